"""``pipesched optimize``: the least bubble under a memory cap, with a proof."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from pipesched import render
from pipesched.cli import options
from pipesched.cli.progress import Ticker
from pipesched.cli.terminal import Output, dumps, replace_file, writable
from pipesched.diagnostics import Code, PipeschedError, fail, of_the_caller

if TYPE_CHECKING:
    from pipesched.optimizer.answer.frontier import Frontier
    from pipesched.optimizer.answer.optimum import Optimum
    from pipesched.verbs.optimize_request import Request

MOST_POINTS = 200
SHOWN_LINES = 48
NOT_PROVED = 3  # exit status
_RANGE = re.compile(r"\s*([^.:,]+(?:\.\d+)?)\s*\.\.\s*([^:,]+?)\s*(?::\s*([^:,]+?)\s*)?")


def caps(text: str) -> tuple[bool, tuple[Fraction, ...]]:
    """``4``, ``4,4,3,3`` by rank, or a range ``2..8`` or ``2..8:1/2`` with both ends; whether it is a range."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return False, options.cap(text)
    low, high, step = (options.cap(part)[0] for part in (match[1], match[2], match[3] or "1"))
    if low > high:
        raise click.BadParameter(f"the range {text} is empty; write {match[2]}..{match[1]}")
    if step <= 0:
        raise click.BadParameter(f"the range {text} has a step of 0")
    if (high - low) / step >= MOST_POINTS:
        raise click.BadParameter(f"the range {text} has more than {MOST_POINTS} caps")
    return True, tuple(low + i * step for i in range(int((high - low) / step) + 1))


def time_limit(text: str) -> float:
    """Seconds: a number from 0 up."""
    return float(options.cap(text)[0])


def placement(text: str) -> str | tuple[int, ...]:
    """``linear``, ``loop``, ``vee``, ranks by stage, or the name of a file whose placement counts."""
    return options.placement(text) if re.fullmatch(r"[\d\s,]+", text, re.ASCII) else text


@click.command(short_help="Find the least bubble under a memory cap, with a proof.")
@click.argument("schedule", type=options.target, required=False)
@click.option("--p", type=options.whole, metavar="N", help="Ranks [default: 4].")
@click.option("--v", type=options.whole, metavar="N", help="Stages of each rank [default: 1].")
@click.option("--m", type=options.whole, metavar="N", help="Microbatches [default: 2p].")
@click.option("definitions", "-D", type=options.definition, multiple=True, metavar="NAME=N", help="Another parameter.")
@click.option("--placement", type=placement, metavar="linear|loop|vee|0,1,..|FILE", help="Where the stages are.")
@click.option(
    "--mem-cap",
    type=caps,
    metavar="K|K0,K1,..|A..B[:STEP]",
    help="Most activations that a rank may hold; buffers and parameters are not counted.",
)
@click.option(
    "--cost", metavar="F=1,...", help="Costs of F, I, W, B, C, M [default: 1, B 2, C 0; F and B given: I = W = B / 2]."
)
@click.option("--costs", metavar="FILE.toml", help="Costs from a file, a number or a list by stage each.")
@click.option("--release", default="W", show_default=True, metavar="RULE", help="W, I, split:x, torch or I=a,W=b.")
@click.option("--objective", type=click.Choice(("makespan", "span")), default="makespan", show_default=True)
@click.option(
    "--backward", type=click.Choice(("split", "fused")), help="Split into I and W, or whole [default: split]."
)
@click.option("--all-m", is_flag=True, help="One schedule for every number of microbatches.")
@click.option("--time-limit", type=time_limit, default="60", show_default=True, metavar="SECONDS")
@click.option("--engine", type=click.Choice(("auto", "z3", "sat", "cpsat")), default="auto", show_default=True)
@click.option("--seed", type=options.whole, default=0, show_default=True, metavar="N", help="Where chance begins.")
@click.option("--no-portfolio", is_flag=True, help="Start without known schedules and heuristics.")
@click.option("--proof", metavar="PATH", help="Write the refutation to PATH.cnf and PATH.drat.")
@click.option("--require-proof", is_flag=True, help="End with 3 if it is optimal on an engine's word alone.")
@click.option("--plot", metavar="OUT.svg", help="Draw bubble against cap, for a range of caps.")
@options.digits_option
@options.output_options
def optimize(schedule: str | None, **given: Any) -> int:
    """Find the schedule with the least bubble under a memory cap, and prove it.

    \b
    With a SCHEDULE: its placement, sizes and kind of backward. Without: from scratch.
      pipesched optimize --mem-cap 4                            p=4 m=8, unit costs
      pipesched optimize interleaved --p 4 --v 2 --mem-cap 3
      pipesched optimize --p 8 --placement vee --mem-cap 3..8   bubble against cap
      pipesched optimize --p 8 --mem-cap 8 --all-m -o best.ps   one file for every m

    \b
    Caps are in microbatches through 1/p of the model. -o writes the schedule; the verdict, and --json, go to stdout.
    Exit status: 0 optimal, proved or on an engine's word, which the verdict tells; 1 infeasible; 2 the command line;
    3 less is not excluded (a time limit, or interrupted), or not proved with --require-proof.
    """
    ranged, listed = given["mem_cap"] or (False, None)
    if given["plot"] and not ranged:
        raise fail(Code.USAGE, "a plot is of a range of caps", help="give one, such as --mem-cap 2..8")
    if given["proof"] and (ranged or given["all_m"]):
        raise fail(Code.USAGE, "a proof is of one cap and one m", help="leave out the range, or --all-m")
    for path in filter(None, (given["output"], given["plot"], given["proof"])):
        writable(path)
    with options.output_of(given) as out:
        if ranged and listed is not None:
            return _frontier(schedule, given, listed, out)
        request = _request(schedule, given, listed)
        with Ticker(out) as ticker:
            from pipesched.verbs.optimize import optimize as run

            answer = run(request, ticker.state)
        return _show(answer, out, given)


def _request(schedule: str | None, given: dict[str, Any], listed: tuple[Fraction, ...] | None) -> Request:
    """What is asked.

    Raises:
        PipeschedError: PS225, PS809, PS810.
    """
    from pipesched.compile import read
    from pipesched.model.release import Release
    from pipesched.optimizer.search.state import Limits
    from pipesched.verbs.optimize_request import Request, place

    parameters = {name: given[name] for name in ("p", "v", "m") if given[name] is not None}
    for name, size in given["definitions"]:
        if size.count != 1 or name in parameters:
            raise fail(Code.USAGE, f"parameter {name} needs one value", help="optimize runs one size at a time")
        parameters[name] = next(iter(size))
    try:
        costs, release = options.read_costs(given["cost"], given["costs"]), Release.parse(given["release"])
    except PipeschedError as error:
        raise of_the_caller(error) from None
    return Request(
        None if schedule is None else read(schedule),
        parameters,
        place(given["placement"], parameters),
        listed,
        release,
        costs,
        given["objective"],
        None if given["backward"] is None else given["backward"] == "fused",
        given["all_m"],
        Limits(
            given["time_limit"], given["engine"], not given["no_portfolio"], given["proof"], seed=_seed(given["seed"])
        ),
    )


def _seed(number: int) -> int:
    from pipesched.optimizer.search.state import MOST_SEED

    if number > MOST_SEED:
        raise fail(Code.USAGE, f"a seed of {number:,}", help=f"give a whole number from 0 to {MOST_SEED:,}")
    return number


def _show(answer: Optimum, out: Output, given: dict[str, Any]) -> int:
    """The verdict, and the schedule: in the file of -o, else below the verdict if it is short."""
    path, out.path = given["output"], None
    if path and path != "-" and answer.source:
        replace_file(path, answer.source)
    if out.format == "json":
        out.line(dumps(answer.to_json()))
    elif path == "-" and answer.source:
        out.write(answer.source)
        out.complain(answer.text(color=False))
    elif out.format != "text":
        line = render.github if out.format == "github" else render.concise
        out.write("".join(line(found) + "\n" for found in answer.diagnostics) or answer.verdict + "\n")
    else:
        out.line(answer.text(color=out.color))
        if answer.source and not path:
            short = answer.source.count("\n") <= SHOWN_LINES
            out.line("\n" + answer.source.rstrip("\n") if short else "\nwrite the schedule to a file with -o FILE")
    return _status(answer, given)


def _status(answer: Optimum | Frontier, given: dict[str, Any]) -> int:
    unproved = given["require_proof"] and not answer.proved
    return answer.exit_status or (NOT_PROVED if unproved else 0)


def _frontier(schedule: str | None, given: dict[str, Any], listed: tuple[Fraction, ...], out: Output) -> int:
    """Every cap of a range, a line each."""
    from pipesched.optimizer.answer.frontier import Frontier
    from pipesched.optimizer.search.state import INTERRUPTED
    from pipesched.verbs.optimize import optimize as run

    points = []
    for cap in listed:
        with Ticker(out) as ticker:
            points.append((cap, run(_request(schedule, given, (cap,)), ticker.state)))
        if points[-1][1].reason == INTERRUPTED:
            break
    frontier = Frontier(tuple(points))
    if given["plot"]:
        from pipesched.verbs.optimize import frontier_plot

        replace_file(given["plot"], frontier_plot(frontier))
    out.line(dumps(frontier.to_json()) if out.format == "json" else frontier.text())
    return _status(frontier, given)
