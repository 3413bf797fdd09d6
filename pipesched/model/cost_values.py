"""Reads and writes the value of a cost: a number, a list by stage, or a grid by stage and microbatch.

    F=3/2    F=[1,2,2,1]    F=[[6,8,3,7],[6,8,3,7]]

All numbers are exact: integers over a common scale, as large as 64 bits allow (`scale_of`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import lcm
from typing import TypeAlias

from pipesched.diagnostics import Code, fail
from pipesched.model.grid import Grid, spread
from pipesched.model.numbers import number, plain, shown

Cost: TypeAlias = Fraction | tuple[Fraction, ...] | Grid

_LISTED = 6  # most entries of a list that are shown
_WHOLE = 10**15  # bound on whole numbers, as on the command line
_WRITTEN = 40  # most characters of an entry of a file
_ROWS = re.compile(r"\[(?:\s*\[[^\[\]]*\]\s*,)*\s*\[[^\[\]]*\]\s*\]")
_FINEST = 2**50  # most ticks of one cost: the sum of thousands of costs fits in 64 bits


def parse(text: str, what: str) -> Cost:
    """Parse a cost as given on the command line: ``3/2``, ``[1,2]`` by stage, ``[[1,3],[2,6]]`` also by microbatch.

    Raises:
        PipeschedError: PS222: the text is anything else.
    """
    if _ROWS.fullmatch(text):
        return grid([[number(x, what) for x in row.split(",")] for row in re.findall(r"\[([^\[\]]*)\]", text)], what)
    if text.startswith("[") and text.endswith("]"):
        return tuple(number(x, what) for x in text[1:-1].split(","))
    return number(text, what)


def read(value: object, what: str) -> Cost:
    """Read a cost from a file: a number, a list by stage, or for each stage a list by microbatch.

    Raises:
        PipeschedError: PS222: the value is anything else.
    """
    if not isinstance(value, list):
        return number(_text(value), what)
    if not any(isinstance(row, list) for row in value):
        return tuple(number(_text(x), what) for x in value)
    rows = [[_entry(x, what) for x in row] if isinstance(row, list) else [] for row in value]
    return grid(rows, what)


def _entry(value: object, what: str) -> Fraction | int:
    """Read an entry of a grid; an integer is not converted, since there may be hundreds of thousands of entries."""
    return value if type(value) is int and 0 <= value < _WHOLE else number(_text(value), what)


def grid(rows: Sequence[Sequence[Fraction | int]], what: str) -> Cost:
    """Return a cost by stage and microbatch.

    Raises:
        PipeschedError: PS222: the rows have different lengths, or are empty.
    """
    lengths = [len(row) for row in rows]
    if len(set(lengths)) != 1 or not lengths[0]:
        message = f"{what} has rows of {' and '.join(map(str, sorted(set(lengths))))} numbers"
        raise fail(
            Code.COSTS, message, help="give each stage one number, or each stage a list with one number per microbatch"
        )
    made = Grid.of(rows)
    return made.column if made.even else made


def _text(value: object) -> str:
    """Format a value as in TOML and JSON; shorten a number that is too long."""
    if isinstance(value, int) and abs(value) >= _WHOLE:
        return "too large"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _WRITTEN else f"{text[:_WRITTEN]}…"


def least(cost: Cost) -> Fraction:
    """Return the smallest number of a cost."""
    return cost.least if isinstance(cost, Grid) else min(listed(cost))


def most(cost: Cost) -> Fraction:
    """Return the largest number of a cost."""
    return cost.most if isinstance(cost, Grid) else max(listed(cost))


def listed(cost: Cost) -> tuple[Fraction, ...]:
    """Return the numbers of a cost, one per stage; for a grid, its largest number and 1 / its scale."""
    if isinstance(cost, Grid):
        return (cost.most, Fraction(1, cost.scale))
    return cost if isinstance(cost, tuple) else (cost,)


def each(function: Callable[[Fraction, Fraction], Fraction], a: Cost, b: Cost) -> Cost:
    """Apply a function to two costs: entry by entry if one is a list by stage, or a grid by stage and microbatch."""
    if isinstance(a, Grid) or isinstance(b, Grid):
        a, b = (x if isinstance(x, Grid) else spread(listed(x)) for x in (a, b))
        return a.each(function, b)
    if not isinstance(a, tuple) and not isinstance(b, tuple):
        return function(a, b)
    length = min(len(x) for x in (a, b) if isinstance(x, tuple))
    return tuple(map(function, *(x if isinstance(x, tuple) else (x,) * length for x in (a, b))))


def table(key: str, cost: Cost, stages: int, microbatches: int | None) -> Grid:
    """Return the cost by stage, and by microbatch if it differs between microbatches.

    Raises:
        PipeschedError: PS222: the cost does not match these sizes.
    """
    made = cost if isinstance(cost, Grid) else spread(cost if isinstance(cost, tuple) else (cost,) * stages)
    (rows, columns), wrong, help = made.whole.shape, "", "give one number, or one per stage"
    by_microbatch = isinstance(cost, Grid)
    if rows != stages:
        wrong = f"lists {rows} stages; the schedule has {stages}"
        help = "give a list for each stage, with one number per microbatch" if by_microbatch else help
    elif by_microbatch and microbatches is None:
        if not made.even:
            wrong = "differs from microbatch to microbatch"
            help = "here all microbatches must cost the same: give one number per stage"
        made = spread(made.column)
    elif by_microbatch and columns != microbatches:
        wrong = f"lists {columns} microbatches; the schedule has {microbatches}"
        help = "give one number per microbatch, in a list for each stage"
    if wrong:
        raise fail(Code.COSTS, f"cost {key} {wrong}", help=help)
    return made


def scale_of(numbers: Sequence[Fraction], larger: str) -> int:
    """Return the number of ticks per unit that makes all of these whole numbers."""
    scale = 1
    for denominator in dict.fromkeys(x.denominator for x in numbers):
        scale = lcm(scale, denominator)
        if scale * max(numbers) >= _FINEST:
            message = f"the costs need ticks of 1/{scale} or finer, too fine to add exactly in 64 bits"
            raise fail(Code.COSTS, message, help=f"use fewer digits, or {larger}")
    return scale


def in_json(cost: Cost) -> object:
    """Return a cost for JSON: a number, a list, or a list of lists."""
    if isinstance(cost, Grid):
        return cost.to_json()
    return [in_json(x) for x in cost] if isinstance(cost, tuple) else plain(cost)


def in_text(cost: Cost) -> str:
    """Return a cost in the form that `parse` reads; a long list is shortened, and a grid is shown as its extremes."""
    if isinstance(cost, Grid):
        return str(cost)
    if not isinstance(cost, tuple):
        return shown(cost)
    entries = [shown(x) for x in cost]
    return f"[{','.join(entries if len(entries) <= _LISTED else [*entries[: _LISTED - 1], '…', entries[-1]])}]"
