"""Writes a placement as the ``stage`` and ``frozen`` lines of a file.

A placement of a known shape becomes a formula, any other becomes runs of stages. A route has one range of microbatches
in the language, so a route with several ranges becomes several routes with the same ranks.

    stage s in 0 .. p on rank s                                          linear
    stage s in 0 .. p * v on rank s % p                                  looped
    stage s in 0 .. 2 * p on rank min(s, 2 * p - 1 - s)                  vee
    route up: stage s in 0 .. p on rank p - 1 - s  for microbatch m // 2 .. m
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.language.grammar import grammar
from pipesched.language.scope import BUILTINS
from pipesched.language.tokens import SOFT
from pipesched.lift.layout import Line
from pipesched.lift.spelling import linear
from pipesched.model.numbers import runs
from pipesched.model.placement import Placement

TAKEN = frozenset("pvmrsi")
"""The names that a written file uses as parameters and variables."""

_HELP = "keep it as an order or a torch CSV"


def legal(name: str) -> bool:
    """Return True if a file may use this name."""
    spelled = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII)
    reserved = name in grammar().words.kinds and name not in SOFT
    return spelled is not None and name not in BUILTINS and not reserved


def in_ranges(placement: Placement) -> Placement:
    """Split the routes of a placement into ranges of microbatches.

    Raises:
        PipeschedError: PS814: a stage has no rank, the last rank has no stage, or there is no microbatch.
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
        raise fail(Code.TARGET, "a .ps file needs at least one stage and one microbatch", help=_HELP)
    if bool(np.any(placement.rank_of < 0)):
        route, stage = np.argwhere(placement.rank_of < 0)[0].tolist()
        where = f" on route {placement.route_names[route]}" if placement.routes > 1 else ""
        raise fail(Code.TARGET, f"a .ps file cannot describe a stage without a rank: stage {stage}{where}", help=_HELP)
    most = int(placement.rank_of.max())
    if most != placement.ranks - 1:
        message = f"the ranks after rank {most} of {placement.ranks} have no stage: a .ps file cannot have such ranks"
        raise fail(Code.TARGET, message, help=_HELP)


def _names(placement: Placement) -> Iterator[str]:
    """Yield the names of the routes if they are legal and distinct, otherwise route0, route1, …."""
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
    """Return v of a looped placement on one route, otherwise 0."""
    stages, ranks = placement.stages, placement.ranks
    looped = placement.routes == 1 and stages > ranks > 1 and stages % ranks == 0
    return stages // ranks if looped and _is(placement.rank_of[0].tolist(), lambda s: s % ranks) else 0


def lines(placement: Placement) -> Iterator[Line]:
    """Yield the lines of a placement whose routes are ranges of microbatches, then those of its frozen stages."""
    shares = placement.routes > 1
    for route, name in enumerate(placement.route_names):
        row = placement.rank_of[route].tolist()
        read = [(rank, *placement.reads.get(stage, ())) for stage, rank in enumerate(row)]
        shape = _shape(row, placement.ranks, shares=shares) if placement.chain else _runs(read)
        for at, (stages, rank) in enumerate(shape):
            taken = [f" for microbatch {_range(placement, route)}"] if shares and at == 0 else []
            head = [f"route {name}:"] if name else []
            yield Line(0, [*head, f"stage {stages} on rank {rank}", *taken], kind="route" if name else "")
    for low, high in runs(placement.frozen):
        yield Line(0, [f"frozen {low}" if high - low == 1 else f"frozen s in {low} .. {high}"])


def _shape(row: list[int], p: int, *, shares: bool) -> list[tuple[str, str]]:
    """Return the words after `stage` and `on rank`, for each line."""
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
    """Group stages whose ranks rise, fall or stay the same. rows: for each stage its rank, then the stages that it
    reads.
    """
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
    """Return the difference between a row and the previous row, if no number differs by more than 1."""
    if at == len(rows) or len(rows[at]) != len(rows[at - 1]):
        return ()
    step = tuple(x - before for x, before in zip(rows[at], rows[at - 1], strict=True))
    return step if max(map(abs, step)) <= 1 else ()


def _range(placement: Placement, route: int) -> str:
    """Return the range of microbatches of a route, with these numbers written as m or m // 2 if possible."""
    here = np.flatnonzero(placement.route_of == route)
    low, high = (int(here[0]), int(here[-1]) + 1) if len(here) else (0, 0)
    m = placement.microbatches
    named = {m: "m"} | ({m // 2: "m // 2"} if m % 2 == 0 and m > 2 else {})
    return f"{named.get(low, low)} .. {named.get(high, high)}"
