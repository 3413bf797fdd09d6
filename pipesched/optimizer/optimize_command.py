"""``pipesched optimize``: the least bubble under a memory cap, with a proof."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from pipesched.command import endings, flags, values
from pipesched.command.options import COST, COSTS, RELEASE, SIZES, VERBOSE, Given, results
from pipesched.command.sizes import one
from pipesched.command.terminal import LINES, Output, dumps, put, replace_file, writable
from pipesched.command.values import seconds, text, whole
from pipesched.common.values import deviation
from pipesched.diagnostics import Code, fail
from pipesched.extension import TEXTS, Option, flag
from pipesched.optimizer.decisions.asked import layers, stages
from pipesched.optimizer.values import caps_or_range, placement
from pipesched.planning.progress import Ticker
from pipesched.planning.rows import CAP

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipesched.model.numbers import Value
    from pipesched.optimizer.front import Front
    from pipesched.optimizer.optimize_report import Frontier, Optimum

_P, _V, _M, _D = SIZES

OPTIMIZE = (
    replace(_P, help="Number of ranks [default: 4].", metavar="N", read=whole),
    replace(_V, help="Number of stages per rank [default: 1].", metavar="N", read=whole),
    replace(_M, help="Number of microbatches [default: 2p].", metavar="N", read=whole),
    replace(_D, help="Set another parameter."),
    Option("placement", placement, "Ranks of the stages.", "linear|loop|vee|any|0,1,..|FILE"),
    replace(CAP, metavar="K|K0,K1,..|A..B[:STEP]", typed=caps_or_range),
    replace(COST, help="Costs of F, I, W, B, FB, C, M [default: 1, B 2, C 0; F and B given: I = W = B / 2]."),
    COSTS,
    RELEASE,
    Option("partition", layers, "Also decide how to split this number of layers among the stages.", "LAYERS|model"),
    Option("embedding", values.exact, "With --partition: work of the embedding on the first stage, in layers.", "X"),
    Option("head", values.exact, "With --partition: work of the head on the last stage, in layers.", "X"),
    Option("overlap", flag, "Decide which F and B run as a pair, at the cost FB.", default=False),
    Option(
        "recompute",
        stages,
        ("Also decide which F to run again: any F, all or no F of each stage, or all F of the listed stages."),
        "any|stages|0,1,..",
    ),
    Option(
        "front",
        flag,
        "Find the Pareto front of memory and time.",
        default=False,
        terminal=True,
    ),
    Option("lost", whole, "Order the remaining ranks if this rank is lost.", "RANK"),
    Option("pipelines", whole, "With --lost: number of pipelines that train the model.", "N"),
    Option("jitter", deviation, "Among equally short orders, prefer a low p95 makespan if times vary by X%.", "X%"),
    Option("objective", choices=("makespan", "span"), default="makespan"),
    Option("backward", None, "Split backwards into I and W, or not [default: split].", choices=("split", "fused")),
    Option("all_m", flag, "Find one schedule for every number of microbatches.", default=False),
    Option("time_limit", seconds, None, "SECONDS", 60),
    Option("engine", choices=("auto", "z3", "sat"), default="auto"),
    Option("seed", whole, "Seed of random choices.", "N", 0),
    Option("portfolio", flag, "Start without known schedules and heuristics.", None, True, ("--no-portfolio",)),
    Option("certify", flag, "Spend up to another minute on proving an engine's refutation.", default=False),
    Option("confirm", flag, "Also check the optimum with Z3, even if that takes long.", default=False),
    Option("proof", text, "Write the proof to PATH.cnf and PATH.lrat, for other checkers.", "PATH"),
    Option("require_proof", flag, "Exit with status 3 unless the schedule is proved optimal.", terminal=True),
    Option("plot", text, "Plot the bubble over a range of caps.", "OUT.svg", terminal=True),
    VERBOSE,
    *results("optimum.schema.json"),
)

SHOWN_LINES = 48
NOT_PROVED = 3  # exit status


@click.command
@click.argument("schedule", type=flags.target, required=False)
@flags.options("optimize")
def optimize(schedule: str | None, **given: Any) -> int:
    """Find the schedule with the least bubble under a memory cap, and prove it.

    \b
    A SCHEDULE determines the placement, the sizes and the kind of backward; without it, the options determine them.
      pipesched optimize --mem-cap 4                            p=4 m=8, unit costs
      pipesched optimize interleaved --p 4 --v 2 --mem-cap 3
      pipesched optimize --p 8 --placement vee --mem-cap 3..8   bubble against cap
      pipesched optimize --p 8 --mem-cap 8 --all-m -o best.ps   one file for every m

    \b
    Caps are in microbatches through 1/p of the model or, with --model, in bytes, such as 60GB. -o best.ps writes the
    schedule, and -o answer.json writes the answer, which `verify answer.json` checks; the verdict goes to stdout. For
    several caps, -o DIR/ writes the schedule for each cap.
    Exit status: 0 proved optimal; 1 infeasible; 2 the command line is wrong; 3 a better schedule is not excluded (the
    time limit was reached, or the search was interrupted).
    """
    ranged, caps = given["mem_cap"] or (False, ())
    _require_places(given, ranged=ranged)
    ranged = ranged or given["front"]
    folder = _folder(given["output"]) if ranged else None
    given = {**given, "output": None} if folder else given
    from pipesched.compile import read
    from pipesched.optimizer import optimize as verb
    from pipesched.optimizer.optimize_request import request

    holds = "" if ranged else endings.form(given["output"], "json" if _json(given) else None, "ps")
    with _output(given, ranged=ranged) as out:
        source = None if schedule is None else read(schedule)
        asked = request(source, _sizes(given), {**given, "mem_cap": None if ranged else caps or None})
        if not ranged:
            with Ticker(out) as ticker:
                answer = verb.optimize(asked, lambda state: ticker.tick(lambda: state.line))
            return _show(answer, out, given, holds)
        if given["front"] or asked.placement == "any":
            from pipesched.optimizer.front import front

            with Ticker(out) as ticker:
                found = front(asked, caps, lambda state: ticker.tick(lambda: state.line))
            return _shown(found, out, given, found.plot, folder)
        from pipesched.optimizer.frontier import frontier, frontier_plot

        with Ticker(out) as ticker:
            points = frontier(asked, caps, lambda state: ticker.tick(lambda: state.line))
        return _shown(points, out, given, lambda: frontier_plot(points), folder)


def _folder(path: str | None) -> str | None:
    """Return the folder that -o names, created if absent; None for a file. Raise PS225 for a .ps file or an error."""
    if path and path.endswith(".ps"):
        message = f"{path} can hold only one schedule, but each cap has its own"
        raise fail(Code.USAGE, message, help="write all of them with -o DIR/, or name a .json or .txt file")
    if not path or not (path.endswith("/") or os.path.isdir(path)):
        return None
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise fail(
            Code.USAGE, f"cannot create {path}: {error.strerror}", help="name another folder with -o DIR/"
        ) from None
    return path


def _shown(
    found: Frontier | Front, out: Output, given: Given, plot: Callable[[], str], folder: str | None = None
) -> int:
    """Print a table of caps; if requested, plot it and write the orders to a folder; return the exit status."""
    if given["plot"]:
        replace_file(given["plot"], plot())
    for name, source in found.orders() if folder else ():
        replace_file(os.path.join(folder or "", f"{name}.ps"), source)
    out.line(dumps(found.to_json()) if out.format == "json" else found.text())
    return _status(found, given)


def _require_places(given: Given, *, ranged: bool) -> None:
    """Raise PipeschedError, PS225, if a plot or a proof does not apply to this request or cannot be written."""
    if given["front"] and given["mem_cap"] and not ranged:
        raise fail(Code.USAGE, "a front needs several caps", help="leave out --mem-cap, or give a range, such as 2..8")
    for name in ("partition", "all_m", "proof") if given["front"] or given["placement"] == "any" else ():
        if given[name]:
            message = f"--{name.replace('_', '-')} requires one placement and one cap"
            raise fail(Code.USAGE, message, help="leave out that option, or --front and --placement any")
    if given["lost"] is not None and ranged:
        raise fail(Code.USAGE, "--lost requires one cap", help="give one number, such as --mem-cap 4")
    if given["plot"] and not (ranged or given["front"]):
        raise fail(Code.USAGE, "a plot needs a range of caps", help="give a range, such as --mem-cap 2..8, or --front")
    if given["proof"] and ranged:
        raise fail(Code.USAGE, "a proof covers only one cap and one m", help="leave out the range or --all-m")
    for path in filter(None, (given["plot"], given["proof"])):
        writable(path)


def _json(given: Given) -> bool:
    return bool(given["json"] or given["format"] == "json")


def _output(given: Given, *, ranged: bool) -> AbstractContextManager[Output]:
    """Return the output for results; for a range of caps, the file extension of -o can determine the format."""
    if ranged:
        return flags.output_of(given, TEXTS)
    form = "json" if _json(given) else given["format"]
    return Output(form, given["color"], given["output"], given["digits"], given["verbose"]).open()


def _sizes(given: Given) -> dict[str, Value]:
    """Return the value of each parameter; raise PipeschedError, PS225, if a parameter has several values."""
    parameters = {name: given[name] for name in ("p", "v", "m") if given[name] is not None}
    return {**parameters, **one("optimize", flags.grid({**given, **dict.fromkeys(parameters)}))}


def _show(answer: Optimum, out: Output, given: Given, holds: str) -> int:
    """Print the verdict, and write the schedule to the file that -o names or, if short, below the verdict.

    holds: the format of the file, json or ps. Return the exit status.
    """
    path, out.path = given["output"], None
    file = path if path != "-" else None
    if file and (text := dumps(answer.to_json()) + "\n" if holds == "json" else answer.source):
        put(file, text)
    if out.format == "json" and not file:
        out.line(dumps(answer.to_json()))
    elif path == "-" and answer.source:
        out.write(answer.source)
        out.complain(answer.text(color=False, **out.how))
    elif out.format in LINES:
        line = LINES[out.format]
        out.write("".join(line(found, None) + "\n" for found in answer.diagnostics) or answer.verdict + "\n")
    else:
        out.line(answer.text(color=out.color, **out.how))
        if answer.source and not path:
            short = answer.source.count("\n") <= SHOWN_LINES
            out.line("\n" + answer.source.rstrip("\n") if short else "\nwrite the schedule to a file with -o FILE")
    return _status(answer, given)


def _status(answer: Optimum | Frontier | Front, given: Given) -> int:
    unproved = given["require_proof"] and not answer.proved
    return answer.exit_status or (NOT_PROVED if unproved else 0)
