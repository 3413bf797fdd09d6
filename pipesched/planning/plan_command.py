"""``pipesched plan``: the layouts of a training step that fit a cluster, fastest first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from pipesched.command import flags
from pipesched.command.options import COLOR, FILE, FORMAT, JSON, VERBOSE, Given
from pipesched.command.terminal import replace_file, writable
from pipesched.command.values import seconds, text, whole
from pipesched.common.values import texts
from pipesched.diagnostics import Code, fail
from pipesched.extension import Option, flag
from pipesched.planning.progress import watched
from pipesched.planning.rows import DEVICE, EFFICIENCY, EXECUTOR, MODEL
from pipesched.planning.values import amount, byte_cap, device, fraction, named_model, one_device

PLAN = (
    replace(MODEL, help="The transformer and its training; the plan decides the rest.", read=named_model),
    Option("gpus", whole, "GPUs of the cluster.", "N"),
    Option("gpus_per_node", whole, "[default: the device's]", "N"),
    replace(DEVICE, help="Type of the GPUs.", read=one_device, typed=device, default=()),
    Option("kept", None, "Factors for the bytes of layers, as `run --rank -o` writes them.", "kept.toml"),
    Option("batch", whole, "Sequences per step [default: the model's].", "B"),
    Option("tokens", amount, "Tokens to train on, to predict the days: 300B, 15T.", "T"),
    Option("mem_cap", byte_cap, "Usable bytes per GPU [default: what its driver offers].", "80GB"),
    Option("only", texts, "Try only these values of p, t, c, d, e, v, b, ...", "t=4,8", (), typed=text),
    Option("trainer", text, "Show only choices that this trainer can run, with its configuration.", "NAME[==RELEASE]"),
    Option("config", None, "With --trainer: write the first row's configuration.", "FILE", terminal=True),
    Option("optimize", seconds, "Search for better orders of the first rows, for SECONDS.", "SECONDS", terminal=True),
    Option("explain", None, "Explain why a choice with these sizes is not the first.", "p=8,t=4,.."),
    Option("top", whole, "Number of rows.", "N", 5),
    replace(EFFICIENCY, help="Assumed fraction of peak FLOP/s, e.g. 50% [default: by shape]."),
    Option(
        "overlap",
        fraction,
        "Share of data-parallel messages that may overlap compute [default: the trainer's].",
        "X",
    ),
    replace(EXECUTOR, help="Where the work runs.", default="processes"),
    Option("plot", None, "Plot step time against memory; with --sweep, tokens/s per GPU.", "OUT.svg", terminal=True),
    Option(
        "sweep",
        None,
        "Print the first row for each value; the batch grows with the GPUs.",
        "gpus=64,128|b=1,2,4",
        terminal=True,
    ),
    Option(
        "explain_model",
        flag,
        "Only describe the model: parameters, FLOPs and bytes by part.",
        default=False,
        terminal=True,
    ),
    replace(VERBOSE, help="List all assumptions about the model and the cluster."),
    replace(FORMAT, choices=("text", "json")),
    replace(JSON, help="Print one object: rows, counts, rules, assumed."),
    COLOR,
    replace(FILE, help="Write to FILE instead of stdout; FILE.html is a page."),
)

_CONTRADICTIONS: tuple[tuple[Callable[[Given], object], str, str], ...] = (
    (
        lambda x: x["plot"] is not None and not x["plot"].lower().endswith(".svg"),
        "a plot is an SVG file, but the file name does not end in .svg",
        "end the name in .svg",
    ),
    (
        lambda x: x["config"] is not None and x["trainer"] is None,
        "a configuration requires a trainer",
        "give a trainer, such as --trainer megatron==0.16",
    ),
    (
        lambda x: x["sweep"] is not None and (x["config"] is not None or x["optimize"] is not None or x["explain"]),
        "--config, --optimize and --explain apply to one plan, not to a sweep",
        "plan for a single value",
    ),
    (
        lambda x: x["explain_model"] and x["model"] is None,
        "no model is given",
        "give a model, such as --model llama3-70b, or a file",
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
"""Conflicting options: the condition, the message, and the help."""


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
    Choices that do not fit are only counted; the time and the bytes of each row come from the timeline and the order of
    its schedule.

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
