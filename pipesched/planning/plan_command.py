"""``pipesched plan``: the layouts of a training step over a cluster, the fastest that fit first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from pipesched.command import flags
from pipesched.command.terminal import replace_file, writable
from pipesched.diagnostics import Code, fail
from pipesched.planning.progress import watched

_CONTRADICTIONS: tuple[tuple[Callable[[Mapping[str, Any]], object], str, str], ...] = (
    (
        lambda x: x["plot"] is not None and not x["plot"].lower().endswith(".svg"),
        "a plot is an SVG file, but the file name does not end in .svg",
        "end the name in .svg",
    ),
    (
        lambda x: x["config"] is not None and x["trainer"] is None,
        "a configuration requires a trainer",
        "give --trainer megatron==0.16 or another",
    ),
    (
        lambda x: x["sweep"] is not None and (x["config"] is not None or x["optimize"] is not None or x["explain"]),
        "--config, --optimize and --explain apply to one plan, not to a sweep",
        "plan for a single value",
    ),
    (
        lambda x: x["explain_model"] and x["model"] is None,
        "no model is given",
        "give --model llama3-70b, or a file",
    ),
    (
        lambda x: (
            (x["explain_model"] or x["sweep"] is not None) and str(x["output"]).lower().endswith((".html", ".htm"))
        ),
        "only a plan can be written as a page",
        "end the name of the file in .txt or .json",
    ),
    (
        lambda x: (
            x["sweep"] is not None
            and x["plot"] is not None
            and x["sweep"].startswith(("schedule", "recompute", "split"))
        ),
        "the swept values are not numbers, so there is no plot",
        "leave out --plot",
    ),
)
"""Options that contradict each other, the message, and the help."""


@click.command
@flags.options("plan")
def plan(
    *,
    plot: str | None,
    config: str | None,
    sweep: str | None,
    optimize: float | None,
    explain_model: bool,
    executor: str,
    **given: Any,
) -> int:
    """Try every (p, t, c, d, e), schedule, number of stages per rank, microbatch size, recomputation and ZeRO stage.
    Choices that do not fit are counted; the fastest that fits is predicted by its own timeline and bytes.

    \b
    pipesched plan --model llama3-70b --gpus 64 --device h100 --batch 512
    pipesched plan --model gpt3-175b --gpus 1024 --device a100 --tokens 300B --only recompute=full
    pipesched plan --model mine.toml --gpus 64 --device h100 --explain p=8,t=4 -o plan.html
    pipesched plan --model llama3-70b --gpus 64 --device h100 --trainer megatron==0.16 --config plan.sh

    \b
    pipesched plan --model config.json,sequence=8192 --explain-model
    pipesched plan --model llama3-70b --gpus 64 --device h100 --sweep gpus=64,128,256 --plot weak.svg

    \b
    p pipeline  t tensor  c context  d data  e experts  v stages per rank  b sequences per microbatch

    Each row has the commands that verify, optimize and emit it. Exit status: 1 if nothing fits.
    """
    from pipesched.planning import plan_model, plan_sweep
    from pipesched.planning import plans as verb

    asked_for = {**given, "plot": plot, "config": config, "sweep": sweep, "explain_model": explain_model}
    for wrong, message, help in _CONTRADICTIONS:
        if wrong({**asked_for, "optimize": optimize}):
            raise fail(Code.USAGE, message, help=help)
    if explain_model:
        with flags.output_of(given) as out:
            return out.result(plan_model.Model(given["model"][1]))
    for path in filter(None, (plot, given["output"], config)):
        writable(path)
    asked = verb.request(given)
    with flags.output_of(given) as out:
        if sweep is not None:
            with watched(out, "examining the choices") as tell:
                several = plan_sweep.sweep(asked, sweep, lambda one: verb.plan(one, executor, tell))
            if plot is not None:
                replace_file(plot, several.plot())
            return out.result(several)
        with watched(out, "examining the choices") as tell:
            found = verb.plan(asked, executor, tell)
        if optimize is not None:
            found = found.with_order(optimize)
        if config is not None and found.best is not None:
            for path, text in found.configuration(config).items():
                replace_file(path, text)
            out.complain(f"written, and {found.check(config)} accepts it")
        if plot is not None:
            replace_file(plot, found.plot())
        if out.format == "html":
            out.write(found.html())
            out.complain("\n".join(found.text().splitlines()[:2]))
            return found.exit_status
        return out.result(found)
