"""How long things take and how much they hold, exactly.

    tF, tI, tW   one operation of a stage                 default 1
    tB           a full backward                          default tI + tW
    tFB          an overlap pair F + B as one slot        default tF + tB   (F + I: tF + tI)
    tC           a message between ranks                  default 0
    tM           what one F holds, 1 on an even stage     default 1

Each is a number or a list with one entry a stage: of the stage that runs; for tFB the stage of the F; for tC the
stage that sends. All are integers or `Fraction`; time is counted in ticks of 1 / (common denominator), so that no
sum is ever rounded. tM is no time: a stage counts tM * ranks / stages in the unit of peaks.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import TypeAlias

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Ints
from pipesched.model.numbers import number, plain

Cost: TypeAlias = Fraction | tuple[Fraction, ...]

TIMES = ("F", "I", "W", "B", "FB", "C")
KEYS = (*TIMES, "M")
_DEFAULT: dict[str, Cost] = {**dict.fromkeys("FIWM", Fraction(1)), "C": Fraction(0)}
_FINEST = 2**50  # ticks of one cost: thousands of them add up in 64 bits


@dataclass(frozen=True)
class Ticks:
    """Costs as integers for S stages; a tick is 1 / scale of the user's unit.

    compute: int64, shape (4, S), indexed by Op F, I, W, B; pair: an overlap F + B by the stage of the F, shape (S,), or
    None where it is the sum of its parts; message: shape (S,), by the stage that sends.
    """

    scale: int
    compute: Ints
    pair: Ints | None
    message: Ints


@dataclass(frozen=True)
class Costs:
    """What was given; the rest takes its default."""

    given: Mapping[str, Cost] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises PipeschedError: PS222, an unknown key, or what is neither a whole number nor a Fraction from 0 up."""
        for key, cost in self.given.items():
            _check_key(key, {})
            listed: tuple[object, ...] = cost if isinstance(cost, tuple) else (cost,)
            for x in listed:
                if not isinstance(x, int | Fraction) or x < 0:
                    raise fail(Code.COSTS, f"cost {key} is {x!r}", help="give an int or a Fraction from 0 up")

    def __getitem__(self, key: str) -> Cost | None:
        """The cost of F, I, W, B, FB, C or M; None for FB where it is the sum of its parts."""
        if key in self.given:
            return self.given[key]
        return _plus(self["I"], self["W"]) if key == "B" else _DEFAULT.get(key)

    def scalar(self, key: str) -> Fraction | None:
        """The cost as one number, or None where it differs from stage to stage."""
        value = self[key]
        if value is None:
            value = _plus(self["F"], self["B"])
        if isinstance(value, tuple):
            return value[0] if len(set(value)) == 1 else None
        return value

    def over(self, base: Costs) -> Costs:
        """These costs, and those of `base` for what is not given here."""
        return Costs({**base.given, **self.given})

    def ticks(self, stages: int) -> Ticks:
        """The times as integers.

        Raises:
            PipeschedError: PS222, a list that has not one entry a stage, or numbers too fine for 64 bits.
        """
        rows = {key: _row(key, self[key], stages) for key in TIMES}
        scale = _scale([x for row in rows.values() if row is not None for x in row], "a larger unit of time")

        def whole(key: str) -> Ints:
            row = rows[key]
            assert row is not None
            return np.array([int(x * scale) for x in row], dtype=np.int64)

        pair = None if rows["FB"] is None else whole("FB")
        return Ticks(scale, np.stack([whole(key) for key in "FIWB"]), pair, whole("C"))

    def sizes(self, stages: int) -> tuple[Fraction, ...]:
        """What one F of each stage holds, shape (S,); 1 is an even stage, ranks / stages in the unit of peaks.

        Raises:
            PipeschedError: PS222, as `ticks`.
        """
        row = _row("M", self["M"], stages)
        assert row is not None
        _scale(row, "rounder shares")
        return row

    def to_json(self) -> dict[str, object]:
        """F, I, W, B, FB, C as numbers, strings like ``3/2``, or lists of them; M too where it is not 1."""
        keys = TIMES if self.scalar("M") == 1 else KEYS
        shown = {key: self[key] if self[key] is not None else _plus(self["F"], self["B"]) for key in keys}
        return {key: _plain(value) for key, value in shown.items() if value is not None}

    @classmethod
    def parse(cls, text: str) -> Costs:
        """``F=1,I=1,W=1,C=0,FB=3``; a list a stage in brackets: ``F=[1,2],M=[1,2]``.

        Raises:
            PipeschedError: PS222, an unknown key, a key given twice or a value that is no number.
        """
        given: dict[str, Cost] = {}
        for entry in filter(None, (e.strip() for e in re.split(r",(?![^\[]*\])", text))):
            key, equals, value = (part.strip() for part in entry.partition("="))
            if not equals:
                raise fail(Code.COSTS, f"a cost is KEY=NUMBER, not {entry!r}", help="for example F=1,I=1,W=1,C=0")
            _check_key(key, given)
            if value.startswith("[") and value.endswith("]"):
                given[key] = tuple(number(x, f"cost {key}") for x in value[1:-1].split(","))
            else:
                given[key] = number(value, f"cost {key}")
        return cls(given)

    @classmethod
    def from_toml(cls, text: str) -> Costs:
        """The same keys as TOML: ``F = 1.5`` or ``F = [1, 2, 3, 4]``.

        Raises:
            PipeschedError: PS222, not TOML, an unknown key or a value that is no number.
        """
        try:
            table = tomllib.loads(text, parse_float=str)
        except tomllib.TOMLDecodeError as error:
            raise fail(Code.COSTS, f"the costs file is not TOML: {error}") from None
        except (ValueError, RecursionError):
            raise fail(Code.COSTS, "the costs file has too many digits in a number, or too many brackets") from None
        given: dict[str, Cost] = {}
        for key, value in table.items():
            _check_key(key, given)
            many = isinstance(value, list)
            numbers = tuple(number(_text(x), f"cost {key}") for x in (value if many else [value]))
            given[key] = numbers if many else numbers[0]
        return cls(given)


def _text(value: object) -> str:
    """What TOML read, as a number is written; tables and numbers of any size are not spelt out."""
    if isinstance(value, int) and abs(value) >= 10**15:
        return "too large"
    return str(value) if isinstance(value, str | int) else type(value).__name__


def _check_key(key: str, given: Mapping[str, Cost]) -> None:
    if key not in KEYS:
        raise fail(Code.COSTS, f"no cost is called {key!r}", help=f"costs are {', '.join(KEYS)}")
    if key in given:
        raise fail(Code.COSTS, f"cost {key} is given twice")


def _plus(a: Cost | None, b: Cost | None) -> Cost:
    assert a is not None
    assert b is not None
    if isinstance(a, tuple) or isinstance(b, tuple):
        length = len(a) if isinstance(a, tuple) else len(b) if isinstance(b, tuple) else 0
        both = zip(_spread(a, length), _spread(b, length), strict=False)
        return tuple(x + y for x, y in both)
    return a + b


def _spread(cost: Cost, length: int) -> tuple[Fraction, ...]:
    return cost if isinstance(cost, tuple) else (cost,) * length


def _row(key: str, cost: Cost | None, stages: int) -> tuple[Fraction, ...] | None:
    if cost is None:
        return None
    if isinstance(cost, tuple) and len(cost) != stages:
        raise fail(
            Code.COSTS,
            f"cost {key} lists {len(cost)} stages; there are {stages}",
            help="give one number a stage, or one number",
        )
    return _spread(cost, stages)


def _scale(numbers: Sequence[Fraction], larger: str) -> int:
    """The ticks of the unit in which all of these are whole."""
    scale = lcm(*(x.denominator for x in numbers))
    if scale * max(numbers, default=Fraction(0)) >= _FINEST:
        message = f"the costs need ticks of 1/{scale}, too fine to add exactly in 64 bits"
        raise fail(Code.COSTS, message, help=f"use fewer digits, or {larger}")
    return scale


def _plain(cost: Cost) -> object:
    if isinstance(cost, tuple):
        return [_plain(x) for x in cost]
    return plain(cost)
