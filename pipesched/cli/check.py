"""``pipesched check``: is a trainer's configuration right."""

from __future__ import annotations

from typing import Any

import click

from pipesched.cli import flags
from pipesched.diagnostics import PipeschedError


@click.command(short_help="Check a trainer's configuration: schedule, sizes, CSV.")
@click.argument("file", type=click.Path(), metavar="FILE")
@flags.options("check")
def check(file: str, **given: Any) -> int:
    """Check the pipeline settings of a trainer: FILE is its TOML, YAML or JSON, or a script with its command line.

    \b
    torchtitan, Megatron-LM, DeepSpeed, gpt-neox, NeMo AutoModel:
      pipesched check debug_model.toml
      pipesched check train.sh --trainer megatron==0.16 --processes 64
      pipesched check ds_config.json --p 4

    Does the release have the schedule, do p, v, m and the batch agree, is the CSV right, does the combination work.
    Each finding names its source. The last line says which schedule it is, and how to verify that.
    """
    from pipesched.inputs import read_path
    from pipesched.verbs import check as verb
    from pipesched.verbs.options import request

    with flags.output_of(given) as out:
        asked = request(verb.Asked, given)
        try:
            source = read_path(file)
        except PipeschedError as error:
            return out.verdict(verb.Checked(file, diagnostics=error.diagnostics))
        return out.verdict(verb.check(source, asked))
