"""The placement that the ``stage`` lines of a file describe, at given sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.extension import explained
from pipesched.language import ast
from pipesched.language.typecheck import Checked, StageCode
from pipesched.model.numbers import ranges
from pipesched.model.ops import Op, Result
from pipesched.model.placement import OPS_A_RANK, OPS_A_STAGE, Placement, most_ranks, most_stages
from pipesched.source import Span

WIDEST_RANK = 2**31  # of columns
_HELD = 64  # ranks with a stage that are listed


@dataclass
class Route:
    """A route through the ranks: stage -> rank, and the microbatches that take it.

    line, reads: of each stage the line that places it last, and what that says it reads, if it does.
    """

    name: str
    span: Span
    rank_of: dict[int, int] = field(default_factory=dict)
    single: set[int] = field(default_factory=set)
    line: dict[int, ast.Stages] = field(default_factory=dict)
    reads: dict[int, tuple[int, ...]] = field(default_factory=dict)
    microbatches: tuple[int, int] | None = None


def place(checked: Checked, names: dict[str, Any], max_ops: int) -> Placement:
    """Evaluate the placement.

    Raises:
        PipeschedError: PS210, more operations than max_ops; PS215, PS216, PS223, a placement that is none.
        Halt, ZeroDivisionError: an expression without a value.
    """
    if not checked.stages:
        raise fail(
            Code.PLACEMENT,
            "the file places no stage",
            Label(checked.file.name.span, "this schedule"),
            help="write for example `stage s in 0 .. p on rank s`",
        )
    routes: dict[str, Route] = {}
    for line in checked.stages:
        _line(line, routes, names, max_ops)
        if sum(len(route.rank_of) for route in routes.values()) > most_stages(max_ops):
            raise _too_many_stages(most_stages(max_ops), line.node.span)
    found = list(routes.values())
    m = None if "m" in routes else names.get("v_m")
    ranges = _ranges(found, m if type(m) is int else None)  # no list, function or truth value, whose name m is
    stages = _stages(found)
    _limit(checked, stages, ranges, max_ops)
    reads = _reads(found, stages, ranges[-1][1], max_ops)
    rank_of = np.array([[route.rank_of[s] for s in range(stages)] for route in found], dtype=np.int32)
    ranks = int(rank_of.max()) + 1
    if ranks > most_ranks(max_ops):
        message = f"{ranks} ranks; the limit is {most_ranks(max_ops)}"
        raise _too_many(message, found[0].span, f": a rank counts as {OPS_A_RANK} operations")
    route_of = np.zeros(max(high for _, high in ranges), dtype=np.int32)
    for number, (low, high) in enumerate(ranges):
        route_of[low:high] = number
    frozen = _frozen(checked, names, stages)
    return Placement(rank_of, route_of, ranks, tuple(route.name for route in found), frozen, reads)


def _frozen(checked: Checked, names: dict[str, Any], stages: int) -> tuple[int, ...]:
    """The stages of all `frozen` lines."""
    found: set[int] = set()
    for node, ends in checked.frozen:
        low, *rest = (eval(code, names) for code in ends)
        high = rest[0] if rest else low + 1
        if low < high and not 0 <= low < high <= stages:
            what = f"stage {low} is" if high - low == 1 else f"stages {low} .. {high} are"
            help = "a frozen stage is one that a `stage` line places"
            message = f"{what} frozen; there are stages 0 .. {stages}"
            raise fail(Code.PLACEMENT, message, Label(node.span, "not all of these are there"), help=help)
        found.update(range(low, high))
    return tuple(sorted(found))


def nobody(checked: Checked, placement: Placement, rank: int) -> PipeschedError:
    """PS215 for a rank with a program and no stage."""
    held = np.unique(placement.rank_of).tolist()
    where = ("rank " if len(held) == 1 else "ranks ") + ranges(held[:_HELD]) + ", …" * (len(held) > _HELD)
    places = tuple(Label(line.node.rank.span, f"of {where}") for line in checked.stages)
    message = f"rank {rank} has a program and no stage: the stages are on {where}"
    found = Diagnostic(Code.PLACEMENT, message, places, (), "give it a stage")
    return PipeschedError(explained("ranks", [found], placement, checked.stages[0].node.rank.span.text))


def _line(line: StageCode, routes: dict[str, Route], names: dict[str, Any], max_ops: int) -> None:
    node = line.node
    name = node.route.id if node.route else ""
    route = routes.setdefault(name, Route(name, node.span))
    low = eval(line.low, names)
    high = low + 1 if line.high is None else eval(line.high, names)
    if high - low > max_ops:
        raise _too_many(f"{high - low} stages at least; the limit is {max_ops}", node.span)
    if high - low > most_stages(max_ops):
        raise _too_many_stages(most_stages(max_ops), node.span)
    rank_of, *reads = (eval(code, names) for code in (line.rank, *line.reads))
    if line.microbatches is not None:
        route.microbatches = (eval(line.microbatches[0], names), eval(line.microbatches[1], names))
    for stage in range(low, high):
        _put(route, stage, rank_of(stage), single=line.high is None, span=node.span)
        route.line[stage] = node
        route.reads[stage] = tuple(read(stage) for read in reads)


def _put(route: Route, stage: int, rank: int, *, single: bool, span: Span) -> None:
    if stage in route.rank_of and (not single or stage in route.single):
        raise fail(
            Code.PLACEMENT,
            f"stage {stage} is placed twice",
            Label(span, "placed again here"),
            help="keep one of the two lines",
        )
    if stage < 0 or rank < 0:
        raise fail(Code.PLACEMENT, f"stage {stage} is on rank {rank}", Label(span, "neither may be negative"))
    if rank >= WIDEST_RANK:
        raise fail(Code.PLACEMENT, f"stage {stage} is on rank {rank}", Label(span, "this rank is out of reach"))
    route.rank_of[stage] = rank
    if single:
        route.single.add(stage)


def _reads(routes: list[Route], stages: int, microbatches: int, max_ops: int) -> dict[int, tuple[int, ...]]:
    """What the stages read that do not read the one before them; the same on every route."""
    if not any(read for route in routes for read in route.reads.values()):
        return {}
    found: list[dict[int, tuple[int, ...]]] = []
    for route in routes:
        for stage in range(stages):
            _readable(route, stage)
        sorted_out = {s: tuple(sorted(set(route.reads[s]), reverse=True)) for s in range(stages) if route.reads[s]}
        found.append({s: read for s, read in sorted_out.items() if read != (s - 1,)})
    first = routes[0]
    for route, reads in zip(routes, found, strict=True):
        if reads != found[0]:
            stage = min(s for s in range(stages) if reads.get(s) != found[0].get(s))
            named = (", ".join(map(str, x.get(stage, (stage - 1,)))) for x in (found[0], reads))
            message = f"stage {stage} reads {{}} on route {first.name} and {{}} on route {route.name}".format(*named)
            places = (Label(x.line[stage].span, f"route {x.name}") for x in (first, route))
            raise fail(Code.ROUTES, message, *places, help="all copies of a stage read the same: say it on every route")
    taken = {x for s in range(stages) for x in found[0].get(s, (s - 1,))}
    for stage in range(stages - 1):
        if stage not in taken:
            message = f"stage {stage} is read by no stage, and it is not the last one"
            help = f"let a later stage read it, or leave it out: stage {stages - 1} makes the loss"
            raise fail(
                Code.PLACEMENT, message, Label(first.line[stage].span, f"stage {stage} is placed here"), help=help
            )
    edges = sum(map(len, found[0].values()))
    if edges * microbatches > max_ops:
        what = f"{edges} reads and {microbatches} microbatches: {edges * microbatches} results"
        raise _too_many(f"{what} at least; the limit is {max_ops}", first.span)
    return found[0]


def _readable(route: Route, stage: int) -> None:
    """Whether a stage reads stages before it."""
    for read, node in zip(route.reads[stage], route.line[stage].reads, strict=False):
        if not -1 <= read < stage:
            message = f"stage {stage} reads stage {read}"
            here = Label(node.span, f"{read} for stage {stage}")
            help = "a stage reads stages before it, or -1, the input of the model"
            raise fail(Code.PLACEMENT, message, here, help=help)


def _stages(routes: list[Route]) -> int:
    """How many stages there are; every route must hold them all."""
    stages = 1 + max((s for route in routes for s in route.rank_of), default=-1)
    if stages == 0:
        label = Label(routes[0].span, "this range is empty here")
        raise fail(Code.PLACEMENT, "no stage is placed", label, help="check the sizes")
    for route in routes:
        if len(route.rank_of) < stages:
            hole = next(s for s in range(stages) if s not in route.rank_of)
            several = f" on route {route.name}" if len(routes) > 1 else ""
            code = Code.ROUTES if len(routes) > 1 else Code.PLACEMENT
            label = Label(route.span, f"says where {len(route.rank_of)} of {stages} stages live")
            help = "stages count from 0, as in `stage s in 0 .. p`" if hole == 0 else "a stage of its own has a line"
            raise fail(code, f"stage {hole} is placed nowhere{several}", label, help=help)
    return stages


def _ranges(routes: list[Route], microbatches: int | None) -> list[tuple[int, int]]:
    """The microbatches of each route; together all of 0 .. m, each once."""
    if microbatches is None and any(route.microbatches is None for route in routes):
        raise fail(
            Code.MICROBATCHES_UNKNOWN,
            "nothing says how many microbatches there are",
            Label(routes[0].span, "runs microbatches 0 .. m"),
            help="declare the parameter m, or write `for microbatch 0 .. n` here",
        )
    ranges = [route.microbatches or (0, microbatches or 0) for route in routes]
    total = max((high for _, high in ranges), default=0) if microbatches is None else microbatches
    if total <= 0:
        raise fail(
            Code.MICROBATCHES_UNKNOWN, f"there are {total} microbatches", Label(routes[0].span, "nothing to run")
        )
    at = 0
    for (low, high), route in sorted(zip(ranges, routes, strict=True), key=lambda pair: pair[0]):
        if low == high and 0 <= low <= total:
            continue
        if low != at or high < low or high > total:
            if low < at:
                message = f"microbatch {low} takes more than one route"
            elif low > at:
                message = f"microbatch {at} takes no route"
            else:
                message = f"the range {low} .. {high} is not within 0 .. {total}"
            raise fail(Code.ROUTES, message, Label(route.span, f"microbatches {low} .. {high}"))
        at = high
    if at != total:
        raise fail(Code.ROUTES, f"microbatch {at} takes no route", Label(routes[-1].span, "none follows"))
    return ranges


def _limit(checked: Checked, stages: int, ranges: list[tuple[int, int]], max_ops: int) -> None:
    """Refuse what is too large before anything is expanded."""
    kinds = 1 + any(Result.GRADIENT in Op[site.op].kind.makes for site in checked.sites)
    microbatches = sum(high - low for low, high in ranges)
    least = kinds * stages * microbatches
    if least > max_ops:
        what = f"{stages} stages and {microbatches} microbatches: {least} operations at least; the limit is {max_ops}"
        raise _too_many(what, checked.stages[0].node.span)


def _too_many(what: str, span: Span, counts: str = "") -> PipeschedError:
    help = f"choose smaller sizes, or raise --max-ops{counts}"
    return fail(Code.TOO_MANY_OPERATIONS, what, Label(span, "too many here"), help=help)


def _too_many_stages(most: int, span: Span) -> PipeschedError:
    message = f"more than {most} stages, those of all routes counted"
    return _too_many(message, span, f": a stage counts as {OPS_A_STAGE} operations")
