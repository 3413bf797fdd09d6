"""``pipesched check``: check a trainer's configuration."""

from __future__ import annotations

import os

import click

from pipesched.command import flags
from pipesched.diagnostics import Code, PipeschedError, fail

_BEHIND = "pipesched.check.behind"


class _Check(click.Command):
    """A command whose arguments after ``--`` are another command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        behind = args[at + 1 :]
        file = len(behind) == 1 and os.path.isfile(behind[0])
        ctx.meta[_BEHIND] = () if file else tuple(behind)
        return super().parse_args(ctx, args if file else args[:at])


@click.command(cls=_Check)
@click.argument("file", type=click.Path(), metavar="FILE | -- COMMAND", required=False)
@flags.options("check")
def check(file: str | None, *, dry_run_script: bool, **given: object) -> int:
    """Check a trainer's pipeline settings: FILE is a TOML, YAML or JSON file, or a script that runs the trainer.

    \b
    torchtitan, Megatron-LM, DeepSpeed:
      pipesched check debug_model.toml
      pipesched check train.sh --trainer megatron==0.16 --processes 64
      pipesched check ds_config.json --p 4

    \b
    A script is only read, not executed, so some values may be unknown. To check a command as your shell expands it:
      pipesched check --trainer megatron==0.16 -- torchrun --nproc_per_node 8 pretrain_gpt.py $ARGS
      pipesched check --dry-run-script train.sh     EXECUTES train.sh, with recorders instead of its programs

    Checks whether the release has the schedule, whether p, v, m and the batch agree, whether the CSV is correct, and
    whether the settings work together. Each finding names its source. The last line names the schedule and the command
    that verifies it. If a setting cannot be read or is unknown, the configuration is not judged: exit status 4.
    """
    from pipesched.command.options import request
    from pipesched.interop import check as verb
    from pipesched.interop.check_report import Checked

    command = click.get_current_context().meta[_BEHIND]
    with flags.output_of(given) as out:
        asked = request(verb.Asked, given)
        if command and file is None and not dry_run_script:
            return out.verdict(verb.check_command(command, asked))
        if command or file is None:
            help = "`pipesched check FILE`, or `pipesched check -- torchrun … pretrain_gpt.py …`"
            raise fail(Code.USAGE, "`check` takes one file or command" if command else "there is no FILE", help=help)
        try:
            made = verb.check_file(file, asked, run=dry_run_script)
        except PipeschedError as error:
            made = Checked(file, diagnostics=error.diagnostics)
        return out.verdict(made)
