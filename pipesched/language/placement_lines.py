"""The placement that the ``stage`` lines of a file describe, at given sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np

from pipesched.diagnostics import Code, Label, PipeschedError, fail
from pipesched.language import ast
from pipesched.language.layout import Line
from pipesched.language.parser import grammar
from pipesched.language.scope import BUILTINS
from pipesched.language.spelling import linear
from pipesched.language.tokens import SOFT
from pipesched.language.typecheck import Checked, StageCode
from pipesched.model.numbers import runs
from pipesched.model.ops import Op, Result
from pipesched.model.placement import OPS_A_RANK, OPS_A_STAGE, Placement, most_ranks, most_stages
from pipesched.source import Span

WIDEST_RANK = 2**31  # of columns


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
    ranges = _ranges(found, names.get("v_m"))
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
    """PS215 for a rank with a program and no stage: more often than not, the ranks of all stages are off by one."""
    held = np.unique(placement.rank_of)
    first, last, node = int(held[0]), int(held[-1]), checked.stages[0].node
    places = (Label(line.node.rank.span, f"of ranks {first} to {last}") for line in checked.stages)
    message = f"rank {rank} has a program and no stage: the stages are on ranks {first} to {last}"
    help = f"ranks count from 0: write `{_lowered(node.rank.span.text, first)}`" if first else "give it a stage"
    return fail(Code.PLACEMENT, message, *places, help=help)


def _lowered(expression: str, by: int) -> str:
    """An expression less a number: ``s + 1`` less 1 is ``s``."""
    plain = re.fullmatch(rf"(.+?)\s*\+\s*{by}|{by}\s*\+\s*(.+)", expression, re.DOTALL)
    return f"{expression} - {by}" if plain is None else plain[1] or plain[2]


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
        raise fail(Code.PLACEMENT, f"stage {stage} is placed twice", Label(span, "placed again here"))
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


# The other direction: a formula where a placement has one of the known shapes, else runs of stages. The language
# gives a route one range of microbatches; where those of a route are apart, each part is a route of its own, with
# the same ranks.
#
#     stage s in 0 .. p on rank s                                          linear
#     stage s in 0 .. p * v on rank s % p                                  looped
#     stage s in 0 .. 2 * p on rank min(s, 2 * p - 1 - s)                  vee
#     route up: stage s in 0 .. p on rank p - 1 - s  for microbatch m // 2 .. m

TAKEN = frozenset("pvmrsi")
"""Names that a printed file uses itself."""

_HELP = "keep it as an order or a torch CSV"


def legal(name: str) -> bool:
    """Whether a file may call something by this name."""
    spelled = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII)
    reserved = name in grammar().words.kinds and name not in SOFT
    return spelled is not None and name not in BUILTINS and not reserved


def in_ranges(placement: Placement) -> Placement:
    """The same table with routes that are ranges of microbatches.

    Raises:
        PipeschedError: PS814, a stage without a rank, a last rank without a stage, or no microbatch.
    """
    _sayable(placement)
    parts = [(route, len(list(part))) for route, part in groupby(placement.route_of.tolist())]
    used = [route for route, _ in parts]
    names = list(_names(placement))
    if len(used) == len(set(used)):
        return replace(placement, route_names=tuple(names))
    kept: list[int] = list(range(placement.routes))
    route_of: list[int] = []
    for at, (route, length) in enumerate(parts):
        if route in used[:at]:
            names.append(_fresh(f"{names[route]}_{used[:at].count(route) + 1}", names))
            kept.append(route)
        number = len(kept) - 1 if route in used[:at] else route
        route_of += [number] * length
    routes = np.array(route_of, dtype=np.int32)
    return replace(placement, rank_of=placement.rank_of[kept], route_of=routes, route_names=tuple(names))


def _sayable(placement: Placement) -> None:
    if not placement.microbatches or not placement.rank_of.size:
        raise fail(Code.TARGET, "a .ps file has at least one stage and one microbatch", help=_HELP)
    if bool(np.any(placement.rank_of < 0)):
        route, stage = np.argwhere(placement.rank_of < 0)[0].tolist()
        where = f" on route {placement.route_names[route]}" if placement.routes > 1 else ""
        raise fail(Code.TARGET, f"nothing says on which rank stage {stage} is{where}", help=_HELP)
    most = int(placement.rank_of.max())
    if most != placement.ranks - 1:
        message = f"the last rank with a stage is {most} of {placement.ranks}: a .ps file ends there"
        raise fail(Code.TARGET, message, help=_HELP)


def _names(placement: Placement) -> Iterator[str]:
    """The names of the routes where they are legal and different, else route0, route1, …."""
    given = placement.route_names
    if placement.routes == 1 and given in ((), ("",)):
        yield ""
    elif len(given) == placement.routes == len(set(given)) and all(legal(x) and x not in TAKEN for x in given):
        yield from given
    else:
        yield from (f"route{i}" for i in range(placement.routes))


def _fresh(name: str, names: list[str]) -> str:
    return name if name not in names else _fresh(f"{name}_", names)


def chunks_each(placement: Placement) -> int:
    """v of a looped placement on one route, else 0."""
    stages, ranks = placement.stages, placement.ranks
    looped = placement.routes == 1 and stages > ranks > 1 and stages % ranks == 0
    return stages // ranks if looped and _is(placement.rank_of[0].tolist(), lambda s: s % ranks) else 0


def lines(placement: Placement) -> Iterator[Line]:
    """The lines of a placement whose routes are ranges, then those of its frozen stages."""
    shares = placement.routes > 1
    for route, name in enumerate(placement.route_names):
        row = placement.rank_of[route].tolist()
        read = [(rank, *placement.reads.get(stage, ())) for stage, rank in enumerate(row)]
        shape = _shape(row, placement.ranks, shares=shares) if placement.chain else _runs(read)
        for at, (stages, rank) in enumerate(shape):
            taken = [f" for microbatch {_range(placement, route)}"] if shares and at == 0 else []
            head = [f"route {name}:"] if name else []
            yield Line(0, [*head, f"stage {stages} on rank {rank}", *taken], kind="route" if name else "")
    for line in frozen_lines(placement):
        yield Line(0, [line.strip()])


def frozen_lines(placement: Placement) -> Iterator[str]:
    """What says which stages are frozen."""
    for low, high in runs(placement.frozen):
        yield f"frozen {low}\n" if high - low == 1 else f"frozen s in {low} .. {high}\n"


def _shape(row: list[int], p: int, *, shares: bool) -> list[tuple[str, str]]:
    """What follows `stage` and `on rank`, line by line."""
    n = len(row)
    if n == p and _is(row, lambda s: s):
        return [("s in 0 .. p", "s")]
    if n == p and _is(row, lambda s: p - 1 - s):
        return [("s in 0 .. p", "p - 1 - s")]
    if n > p > 1 and n % p == 0 and _is(row, lambda s: s % p):
        return [(f"s in 0 .. {n // p} * p" if shares else "s in 0 .. p * v", "s % p")]
    if n == 2 * p and _is(row, lambda s: min(s, 2 * p - 1 - s)):
        return [("s in 0 .. 2 * p", "min(s, 2 * p - 1 - s)")]
    return list(_runs([(rank,) for rank in row]))


def _is(row: list[int], formula: Callable[[int], int]) -> bool:
    return row == [formula(s) for s in range(len(row))]


def _runs(rows: list[tuple[int, ...]]) -> Iterator[tuple[str, str]]:
    """Stages one by one, those that go up, down or stay together. rows: of each the rank, then what it reads."""
    low = 0
    while low < len(rows):
        high, step = low + 1, _step(rows, low + 1)
        while step and _step(rows, high) == step:
            high += 1
        alone = high - low == 1
        said = [
            str(x) if alone else linear(x - by * low, by, "s")
            for x, by in zip(rows[low], step or rows[low], strict=True)
        ]
        reads = f" reads {', '.join(said[1:])}" if said[1:] else ""
        yield str(low) if alone else f"s in {low} .. {high}", said[0] + reads
        low = high


def _step(rows: list[tuple[int, ...]], at: int) -> tuple[int, ...]:
    """How far a row is from the one before it, if that is at most 1 everywhere."""
    if at == len(rows) or len(rows[at]) != len(rows[at - 1]):
        return ()
    step = tuple(x - before for x, before in zip(rows[at], rows[at - 1], strict=True))
    return step if max(map(abs, step)) <= 1 else ()


def _range(placement: Placement, route: int) -> str:
    """The microbatches of a route, m and its half by name."""
    here = np.flatnonzero(placement.route_of == route)
    low, high = (int(here[0]), int(here[-1]) + 1) if len(here) else (0, 0)
    m = placement.microbatches
    named = {m: "m"} | ({m // 2: "m // 2"} if m % 2 == 0 and m > 2 else {})
    return f"{named.get(low, low)} .. {named.get(high, high)}"
