"""A placement as `stage` and `route` lines: a formula where it has one of the known shapes, else runs of stages.

    stage s in 0 .. p on rank s                                          linear
    stage s in 0 .. p * v on rank s % p                                  looped
    stage s in 0 .. 2 * p on rank min(s, 2 * p - 1 - s)                  vee
    route up: stage s in 0 .. p on rank p - 1 - s  for microbatch m // 2 .. m

The language gives a route one range of microbatches. Where those of a route are apart, each part is a route of its own:
the same ranks hold the same stages, and every operation stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.placement import Placement

TAKEN = frozenset("pvmrsi")
"""Names that a printed file uses itself."""

_WORDS = """
schedule require let route stage in on rank for microbatch costs claim release when repeat if then else overlap drain
and or not true false F I W B min max abs
"""
RESERVED = frozenset(_WORDS.split())

_HELP = "keep it as an order or a torch CSV"


def legal(name: str) -> bool:
    """Whether a file may call something by this name."""
    return bool(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII)) and name not in RESERVED


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
        return Placement(placement.rank_of, placement.route_of, placement.ranks, tuple(names))
    kept: list[int] = list(range(placement.routes))
    route_of: list[int] = []
    for at, (route, length) in enumerate(parts):
        if route in used[:at]:
            names.append(_fresh(f"{names[route]}_{used[:at].count(route) + 1}", names))
            kept.append(route)
        number = len(kept) - 1 if route in used[:at] else route
        route_of += [number] * length
    return Placement(placement.rank_of[kept], np.array(route_of, dtype=np.int32), placement.ranks, tuple(names))


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


def lines(placement: Placement) -> list[str]:
    """The lines of a placement whose routes are ranges, in canonical form."""
    found: list[tuple[str, str, str]] = []
    for route, name in enumerate(placement.route_names):
        row = placement.rank_of[route].tolist()
        shares = placement.routes > 1
        for at, (stages, rank) in enumerate(_shape(row, placement.ranks, shares=shares)):
            range_ = f"  for microbatch {_range(placement, route)}" if shares and at == 0 else ""
            found.append((f"route {name}: " if name else "", f"stage {stages} on rank {rank}", range_))
    head = max(len(x) for x, _, _ in found)
    middle = max((len(x) for _, x, range_ in found if range_), default=0)
    aligned = [f"{a.ljust(head)}{b.ljust(middle) if c else b}{c}" for a, b, c in found]
    return aligned if max(map(len, aligned)) <= 100 else ["".join(x) for x in found]


def _shape(row: list[int], p: int, *, shares: bool) -> list[tuple[str, str]]:
    """What stands after `stage` and after `on rank`, line by line."""
    n = len(row)
    if n == p and _is(row, lambda s: s):
        return [("s in 0 .. p", "s")]
    if n == p and _is(row, lambda s: p - 1 - s):
        return [("s in 0 .. p", "p - 1 - s")]
    if n > p > 1 and n % p == 0 and _is(row, lambda s: s % p):
        return [(f"s in 0 .. {n // p} * p" if shares else "s in 0 .. p * v", "s % p")]
    if n == 2 * p and _is(row, lambda s: min(s, 2 * p - 1 - s)):
        return [("s in 0 .. 2 * p", "min(s, 2 * p - 1 - s)")]
    return list(_runs(row))


def _is(row: list[int], formula: Callable[[int], int]) -> bool:
    return row == [formula(s) for s in range(len(row))]


def _runs(row: list[int]) -> Iterator[tuple[str, str]]:
    """Stages one by one, those that go up, down or stay together."""
    low = 0
    while low < len(row):
        high, step = low + 1, row[low + 1] - row[low] if low + 1 < len(row) else 0
        while high < len(row) and row[high] - row[high - 1] == step and abs(step) <= 1:
            high += 1
        if high - low == 1:
            yield str(low), str(row[low])
        else:
            yield f"s in {low} .. {high}", _line(row[low] - step * low, step)
        low = high


def _line(base: int, step: int) -> str:
    if step == 0:
        return str(base)
    if step < 0:
        return f"{base} - s"
    return "s" if base == 0 else f"s {'+' if base > 0 else '-'} {abs(base)}"


def _range(placement: Placement, route: int) -> str:
    """The microbatches of a route, m and its half by name."""
    here = np.flatnonzero(placement.route_of == route)
    low, high = (int(here[0]), int(here[-1]) + 1) if len(here) else (0, 0)
    m = placement.microbatches
    named = {m: "m"} | ({m // 2: "m // 2"} if m % 2 == 0 and m > 2 else {})
    return f"{named.get(low, low)} .. {named.get(high, high)}"
