"""Evaluates the ``stage`` lines of a file at given sizes into a placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.extension import explained
from pipesched.language import ast
from pipesched.language.execution import Names
from pipesched.language.typecheck import Checked
from pipesched.model.numbers import interval, ranges
from pipesched.model.ops import Op, Result
from pipesched.model.placement import OPS_A_RANK, OPS_A_STAGE, Placement, most_ranks, most_stages
from pipesched.support.source import Span

WIDEST_RANK = 2**31  # columns have 32 bits
_Key: TypeAlias = tuple[str, int, int]  # of a route: its name, the member of its family, its microbatch or -1
_HELD = 64  # most ranks with a stage that are listed


class Placed(NamedTuple):
    """A stage of a route: its rank (None if it is skipped), the line that places it, and the stages it may read."""

    rank: int | None
    node: ast.Stages
    reads: tuple[int, ...]


@dataclass
class Route:
    """A route: the ranks of its stages, and its microbatches.

    name: its name in the file. member: its number in its family. The routes of `for microbatch i in` share their
    chunks, so they have one name and one member.
    """

    name: str
    member: int
    span: Span
    stages: dict[int, Placed] = field(default_factory=dict)
    microbatches: tuple[int, int] | None = None

    @property
    def called(self) -> str:
        """The name of the route; from the second member of a family on, it ends in the number of the member."""
        return f"{self.name}{self.member + 1}" if self.member else self.name

    def ranks(self, stages: int) -> list[int]:
        """Return the rank of every stage, -1 if it is skipped."""
        return [-1 if (rank := self.stages[stage].rank) is None else rank for stage in range(stages)]


def place(checked: Checked, names: Names, max_ops: int) -> Placement:
    """Evaluate the placement.

    Raises:
        PipeschedError: PS210: there are more operations than max_ops; PS215, PS216, PS223: the placement is invalid.
        Halt, ZeroDivisionError: an expression has no value.
    """
    found = _routes(checked, names, max_ops)
    _require_families(found)
    ranges = _ranges(found, names.get("m"))
    stages = _stages(found)
    microbatches = max(high for _, high in ranges)
    _require_few(checked, stages, microbatches, max_ops)
    reads = _reads(found, stages, microbatches, max_ops)
    left_out = _require_all_run(found, stages, reads)
    shared = any(line.microbatch for line in checked.items(ast.Stages))
    found, ranges = _merged(found, ranges, stages) if shared else (found, ranges)
    rank_of = np.array([route.ranks(stages) for route in found], dtype=np.int32)
    ranks = int(rank_of.max()) + 1
    if ranks > most_ranks(max_ops):
        message = f"{ranks} ranks; the limit is {most_ranks(max_ops)}"
        raise _too_many(message, found[0].span, f": a rank counts as {OPS_A_RANK} operations")
    route_of = np.zeros(microbatches, dtype=np.int32)
    for number, (low, high) in enumerate(ranges):
        route_of[low:high] = number
    called = [route.called for route in found]
    alike, chunks = [*dict.fromkeys(called)], tuple[int, ...]()
    if shared:  # microbatches were placed one by one
        chunks = tuple(map(alike.index, called))
        called = [f"{x or 'route'}{n}" for n, x in enumerate(called)] if len(alike) < len(called) else called
    frozen = _frozen(checked, names, stages)
    return Placement(rank_of, route_of, ranks, tuple(called), frozen, reads, left_out=left_out, shared=chunks)


def _routes(checked: Checked, names: Names, max_ops: int) -> list[Route]:
    """Return the routes of all `stage` lines, sorted by their numbers in a family."""
    lines = checked.items(ast.Stages)
    if not lines:
        help = "write a line such as `stage s in 0 .. p on rank s`"
        raise _wrong("the file does not place any stage", checked.file.name.span, "this schedule", help)
    routes: dict[_Key, Route] = {}
    for line in lines:
        _line(line, routes, names, max_ops)
    if not any(route.stages for route in routes.values()):
        raise _wrong("no stage is placed", lines[0].span, "this range is empty", "check the sizes")
    return sorted(routes.values(), key=lambda route: route.member)


def _require_few(checked: Checked, stages: int, microbatches: int, max_ops: int) -> None:
    least = (1 + any(Result.GRADIENT in Op[site.op].kind.makes for site in checked.sites)) * stages * microbatches
    if least > max_ops:
        what = (
            f"{stages} stages and {microbatches} microbatches need at least {least} operations; the limit is {max_ops}"
        )
        raise _too_many(what, checked.items(ast.Stages)[0].span)


def _frozen(checked: Checked, names: Names, stages: int) -> tuple[int, ...]:
    """Return the stages of all `frozen` lines."""
    found: set[int] = set()
    for node in checked.items(ast.Frozen):
        low, high = _ends(node, names)
        if low < high and not 0 <= low < high <= stages:
            what = f"stage {low} is" if high - low == 1 else f"stages {interval(low, high)} are"
            help = "each frozen stage needs a `stage` line"
            message = f"{what} declared frozen, but the stages are {interval(0, stages)}"
            raise _wrong(message, node.span, "some of these stages do not exist", help)
        holds = names.function(node.condition) if node.condition else None
        found.update(stage for stage in range(low, high) if holds is None or holds(stage))
    return tuple(sorted(found))


def nobody(checked: Checked, placement: Placement, rank: int) -> PipeschedError:
    """Return the finding PS215 for a rank with a program but no stage."""
    held = np.unique(placement.rank_of).tolist()
    where = ("rank " if len(held) == 1 else "ranks ") + ranges(held[:_HELD]) + ", …" * (len(held) > _HELD)
    lines = checked.items(ast.Stages)
    places = tuple(Label(line.rank.span, f"of {where}") for line in lines)
    message = f"rank {rank} has a program but no stage: the stages are on {where}"
    found = Diagnostic(Code.PLACEMENT, message, places, (), "give it a stage")
    return PipeschedError(explained("ranks", [found], placement, lines[0].rank.span.text))


def _ends(node: ast.Stages | ast.Frozen, names: Names, *of: int) -> tuple[int, int]:
    """Return the half-open range of stages that a line names. of: the number of the member, for a family."""
    low = names.number(node.low, *of)
    return low, low + 1 if node.high is None else names.number(node.high, *of)


def _line(node: ast.Stages, routes: dict[_Key, Route], names: Names, max_ops: int) -> None:
    """Add the stages of a line to its routes: to each member of a family, and to a route for each named microbatch."""
    name, most = node.route.id if node.route else "", most_stages(max_ops)
    members = range(*map(names.number, node.family[1:])) if node.family else range(1)
    if not 0 < len(members) <= most:
        wrong = f"route {name} has {len(members)} members"
        raise _wrong(wrong, node.span, f"{members.start} .. {members.stop}", code=Code.ROUTES)
    line, there = _placing(node, names), sum(len(route.stages) for route in routes.values())
    for k in members:
        of = (k,) * bool(node.family)
        low, high = _ends(node, names, *of)
        taken = node.microbatches and (names.number(node.microbatches[0], *of), names.number(node.microbatches[1], *of))
        each = range(*taken) if node.microbatch and taken else range(-1, 0)
        if (high - low) * len(each) > max_ops:
            raise _too_many(f"at least {(high - low) * len(each)} stages; the limit is {max_ops}", node.span)
        for i in each:
            route = routes.setdefault((name, k, i), Route(name, k - members.start, node.span))
            route.microbatches = (i, i + 1) if node.microbatch else taken or route.microbatches
            there += len({*range(low, high)} - route.stages.keys())
            if there > most:
                message = f"more than {most} stages, counted over all routes"
                raise _too_many(message, node.span, f": a stage counts as {OPS_A_STAGE} operations")
            for stage in range(low, high):
                _require_place(stage, placed := line(stage, k, i), route.stages.get(stage))
                route.stages[stage] = placed


def _placing(node: ast.Stages, names: Names) -> Callable[[int, int, int], Placed]:
    """Return the function that places a stage of a line, given the stage, the member and the microbatch."""
    rank_of, *reads = (names.function(part) for part in (node.rank, *node.reads))
    runs = names.function(node.condition) if node.condition else None

    def placed(*at: int) -> Placed:
        return Placed(rank_of(*at) if runs is None or runs(*at) else None, node, tuple(read(*at) for read in reads))

    return placed


def _require_place(stage: int, placed: Placed, before: Placed | None) -> None:
    """Require that a stage may be placed here; a line for a single stage overrides a range."""
    span, rank = placed.node.span, placed.rank or 0
    message = f"stage {stage} is on rank {rank}"
    if before is not None and (placed.node.high is not None or before.node.high is None):
        raise _wrong(f"stage {stage} is placed twice", span, "placed again here", "keep one of the two lines")
    if stage < 0 or rank < 0:
        raise _wrong(message, span, "neither may be negative")
    if rank >= WIDEST_RANK:
        raise _wrong(message, span, "this rank does not exist")


def _require_families(routes: list[Route]) -> None:
    """Require that each rank has equally many stages of all members of a family, and that route names are distinct."""
    known: dict[str, Route] = {}
    for route in routes:
        other = known.setdefault(route.called, route)
        if (other.name, other.member) != (route.name, route.member):
            here = Label(other.span, "this one")
            raise fail(Code.ROUTES, f"two routes are called `{route.called}`", here, Label(route.span, "and this one"))
    counts = {name: Counter(placed.rank for placed in route.stages.values()) for name, route in known.items()}
    for name, route in known.items():
        own, first = counts[name], counts[route.name]
        if route.member and (odd := sorted(r for r in own | first if r is not None and own[r] != first[r])):
            message = f"rank {odd[0]} has {own[odd[0]]} stages of route {name}, and {first[odd[0]]} of {route.name}"
            help = "give each rank the same number of stages of each member, or place stages with `for microbatch i in`"
            raise _wrong(message, route.span, "F[k] would not belong to member k there", help, Code.ROUTES)


def _require_all_run(routes: list[Route], stages: int, reads: dict[int, tuple[int, ...]]) -> bool:
    """Return True if a stage is skipped; refuse files that skip the first stage, the last stage or all copies of a
    stage, or that skip stages although they have `reads`.
    """
    out = [(stage, route) for route in routes for stage in range(stages) if route.stages[stage].rank is None]
    on = Counter(stage for stage, _ in out)
    for stage, route in out:
        wrong = "a file with `reads` must not skip stages" if reads else ""
        wrong = wrong or "the first stage takes the input of the model" * (stage == 0)
        wrong = wrong or "the last stage computes the loss" * (stage == stages - 1)
        wrong = wrong or f"no route contains stage {stage}" * (on[stage] == len(routes))
        if wrong:
            of = f", microbatch {route.microbatches[0]}" if route.microbatches else ""
            raise _wrong(f"stage {stage} is skipped{of}: {wrong}", route.stages[stage].node.span, "skipped here")
    return bool(out)


def _merged(
    routes: list[Route], ranges: list[tuple[int, int]], stages: int
) -> tuple[list[Route], list[tuple[int, int]]]:
    """Return routes and their ranges; consecutive microbatches with the same placement share one route."""
    ways = [(route.called, route.ranks(stages)) for route in routes]
    fresh = [n for n, way in enumerate(ways) if not n or way != ways[n - 1] or ranges[n][0] != ranges[n - 1][1]]
    ends = [ranges[n - 1][1] for n in [*fresh[1:], len(routes)]]
    return [routes[n] for n in fresh], [(ranges[n][0], end) for n, end in zip(fresh, ends, strict=True)]


def _reads(routes: list[Route], stages: int, microbatches: int, max_ops: int) -> dict[int, tuple[int, ...]]:
    """Map stages that do not read exactly the previous stage to the stages that they read; all routes must agree."""
    if not any(placed.reads for route in routes for placed in route.stages.values()):
        return {}
    found: dict[int, tuple[int, ...]] = {}
    for stage in range(stages):
        for route in routes:
            reads = _reads_of(stage, route.stages[stage])
            if found.setdefault(stage, reads) != reads:
                one, other = (", ".join(map(str, x)) for x in (found[stage], reads))
                message = f"stage {stage} reads {one} on route {routes[0].called} and {other} on route {route.called}"
                places = (Label(x.stages[stage].node.span, f"route {x.called}") for x in (routes[0], route))
                help = "all copies of a stage must read the same stages: write `reads` on every route"
                raise fail(Code.ROUTES, message, *places, help=help)
    if loose := sorted({*range(stages - 1)}.difference(*found.values())):
        message = f"no stage reads stage {loose[0]}, and it is not the last one"
        help = f"let a later stage read it, or remove it: stage {stages - 1} computes the loss"
        raise _wrong(message, routes[0].stages[loose[0]].node.span, f"stage {loose[0]} is placed here", help)
    others = {stage: reads for stage, reads in found.items() if reads != (stage - 1,)}
    edges = sum(map(len, others.values()))
    if edges * microbatches > max_ops:
        what = f"{edges} reads for {microbatches} microbatches are {edges * microbatches} inputs"
        raise _too_many(f"{what} at least; the limit is {max_ops}", routes[0].span)
    return others


def _reads_of(stage: int, placed: Placed) -> tuple[int, ...]:
    """Return the stages that a stage reads, the latest first: the previous stage if its line has no `reads`."""
    for read, node in zip(placed.reads, placed.node.reads, strict=True):
        if not -1 <= read < stage:
            help = "a stage reads earlier stages, or -1, the input of the model"
            raise _wrong(f"stage {stage} reads stage {read}", node.span, f"{read} for stage {stage}", help)
    return tuple(sorted(set(placed.reads), reverse=True)) or (stage - 1,)


def _stages(routes: list[Route]) -> int:
    """Return the number of stages; every route must contain all of them."""
    stages = 1 + max(s for route in routes for s in route.stages)
    for route in routes:
        if len(route.stages) < stages:
            hole = next(s for s in range(stages) if s not in route.stages)
            code, on = (Code.ROUTES, f" on route {route.called}") if len(routes) > 1 else (Code.PLACEMENT, "")
            here = f"places only {len(route.stages)} of {stages} stages"
            help = "stages count from 0, as in `stage s in 0 .. p`" if hole == 0 else "a line can place a single stage"
            raise _wrong(f"stage {hole} is not placed{on}", route.span, here, help, code)
    return stages


def _ranges(routes: list[Route], m: object) -> list[tuple[int, int]]:
    """Return the range of microbatches of each route; the ranges must cover all microbatches exactly once."""
    microbatches = m if type(m) is int and all(x.name != "m" for x in routes) else None  # no list or route named m
    first, unknown = routes[0].span, Code.MICROBATCHES_UNKNOWN
    if microbatches is None and any(route.microbatches is None for route in routes):
        help = "declare the parameter m, or write `for microbatch 0 .. n` here"
        message = "the number of microbatches is not given"
        raise _wrong(message, first, "runs microbatches 0 .. m", help, unknown)
    ranges = [route.microbatches or (0, microbatches or 0) for route in routes]
    total = max(high for _, high in ranges) if microbatches is None else microbatches
    if total <= 0:
        raise _wrong(f"there are {total} microbatches", first, "nothing to run", code=unknown)
    _require_each_once(ranges, routes, total)
    return ranges


def _require_each_once(ranges: list[tuple[int, int]], routes: list[Route], total: int) -> None:
    at = 0
    for (low, high), route in sorted(zip(ranges, routes, strict=True), key=lambda pair: pair[0]):
        if low == high and 0 <= low <= total:
            continue
        wrong = f"the range {low} .. {high} is not within 0 .. {total}" if high < low or high > total else ""
        wrong = f"microbatch {at} takes no route" if low > at else wrong
        wrong = f"microbatch {low} takes more than one route" if low < at else wrong
        if wrong:
            raise _wrong(wrong, route.span, f"microbatches {low} .. {high}", code=Code.ROUTES)
        at = high
    if at != total:
        raise _wrong(f"microbatch {at} takes no route", routes[-1].span, "none follows", code=Code.ROUTES)


def _wrong(message: str, span: Span, here: str, help: str | None = None, code: Code = Code.PLACEMENT) -> PipeschedError:
    return fail(code, message, Label(span, here), help=help)


def _too_many(what: str, span: Span, counts: str = "") -> PipeschedError:
    help = f"choose smaller sizes, or raise --max-ops{counts}"
    return _wrong(what, span, "too many here", help, Code.TOO_MANY_OPERATIONS)
