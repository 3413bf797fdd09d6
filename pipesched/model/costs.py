"""Exact times of operations and messages, and memory of activations.

    tF, tI, tW, tB   one operation of a stage                 1, 1, 1, 2 if none of them is given
    tR               a recomputed forward                     default tF
    tO, tL           a copy to host memory, and one back      default tF, and tO
    tFB              an overlap pair F + B as one slot        default tF + tB   (tFI, tFW, tIW: likewise)
    tC               a message between ranks                  default 0
    tM               activations of one F, 1 on an even stage default 1
    tK               the part kept until its R                default 0

If some of F, I, W, B are given, the others follow from them, stage by stage, by the table RULES: a user who gives some
costs in milliseconds does not want the others to be 1. Such assumptions are reported wherever they are used.

Each cost is a number, a list with one entry per stage, or a grid by stage and microbatch. The stage is the one that
runs the operation; for tFB stage and microbatch are those of the F, for tC the stage is the sender. All are integers or
`Fraction`; time is counted in ticks of 1 / (common denominator), so that no sum is ever rounded. tM and tK are not
times: a stage counts tM * ranks / stages in the unit of peaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from operator import add, mul, sub
from typing import TypeAlias

import numpy as np

from pipesched.diagnostics import Code, budgeted, fail
from pipesched.model.columns import Column, Ints, nearest
from pipesched.model.cost_values import Cost, each, in_json, in_text, least, listed, most, parse, read, scale_of, table
from pipesched.model.grid import Grid, alike
from pipesched.model.numbers import exact
from pipesched.model.ops import COMPUTES, COPIES, LETTERS
from pipesched.model.units import NO_UNIT, UNITS, Unit
from pipesched.support.budget import Spent
from pipesched.support.foreign import Foreign, json_of, toml_of
from pipesched.support.record import Record

PAIRS = ("FB", "FI", "FW", "IW")
TIMES = (*LETTERS, *PAIRS, "C")
KEYS = (*TIMES, "M", "K")
UNIT: Mapping[str, Cost] = {op.name: Fraction(len(op.kind.makes)) for op in COMPUTES}
"""The costs of all compute operations if none of them is given: 1 for each of their results."""
_COPIES = frozenset(op.name for op in COPIES)
_ALONE = {key: cost for key, cost in UNIT.items() if key not in _COPIES}
_FOLLOWING = (*(key for key in UNIT if key in "FIWB"), "FB", *(key for key in UNIT if key not in "FIWB"))
_DEFAULT: dict[str, Cost] = {"M": Fraction(1), "K": Fraction(0), "C": Fraction(0)}
_COARSER, _ROUNDER = "a larger unit of time", "rounder shares"
_LARGEST = 2**22  # most bytes of a file
_ENTRY = re.compile(r"(?:[^,\[]|\[(?:[^\[\]]|\[[^\[\]]*\])*\]|\[)+")  # commas in brackets do not separate


Said: TypeAlias = tuple[dict[str, object], dict[str, str], tuple[str, ...], tuple[str, ...], tuple[str, ...]]


class Ticks(Record):
    """Costs as integers for S stages; a tick is 1 / scale of the user's unit.

    compute: int64, shape (computes, S), indexed by Op; pair: for each kind of overlap pair that does not cost the sum
    of its parts, the cost by the stage of the first part, shape (S,); message: by sending stage, shape (S,). Costs that
    differ between microbatches have one more axis, of length m.
    """

    scale: int
    compute: Ints
    pair: Mapping[str, Ints]
    message: Ints

    def durations(self, op: Column, stage: Column, microbatch: Column) -> Ints:
        """Return the duration of each of these operations outside of overlap pairs."""
        return self._of(self.compute, 2, stage, microbatch, op)

    def pairs(self, key: str, stage: Column, microbatch: Column) -> Ints:
        """Return the duration of an overlap pair of a kind in `pair`, by the stage and microbatch of its first part."""
        return self._of(self.pair[key], 1, stage, microbatch)

    def delays(self, stage: Column, microbatch: Column) -> Ints:
        """Return the duration of a message that each of these stages sends."""
        some = self.message.any()
        return self._of(self.message, 1, stage, microbatch) if some else np.zeros(len(stage), dtype=np.int64)

    def _of(self, table: Ints, axes: int, stage: Column, microbatch: Column, *op: Column) -> Ints:
        """Return the entries of a table; an out-of-range stage or microbatch counts as the nearest one."""
        at = (*op, nearest(stage, self.message.shape[0]))
        if table.ndim > axes:
            at = (*at, nearest(microbatch, table.shape[-1]))
        return np.asarray(table[at])


class Rule(Record):
    """The default of the cost `key` if all costs in `given` are given. text: the formula. cost: its function."""

    key: str
    given: str
    text: str
    cost: Callable[[Mapping[str, Cost]], Cost]


def _copy(key: str) -> Callable[[Mapping[str, Cost]], Cost]:
    return lambda known: known[key]


def _half(known: Mapping[str, Cost]) -> Cost:
    return each(mul, known["B"], Fraction(1, 2))


RULES = (
    Rule("I", "BW", "B - W", lambda known: each(sub, known["B"], known["W"])),
    Rule("I", "B", "B / 2", _half),
    Rule("I", "W", "W", _copy("W")),
    Rule("I", "F", "F", _copy("F")),
    Rule("W", "BI", "B - I", lambda known: each(sub, known["B"], known["I"])),
    Rule("W", "B", "B / 2", _half),
    Rule("W", "I", "I", _copy("I")),
    Rule("W", "F", "F", _copy("F")),
    Rule("B", "", "I + W", lambda known: each(add, known["I"], known["W"])),
    Rule("F", "I", "I", _copy("I")),
    Rule("F", "", "B / 2", _half),
    *(Rule(op.name, "", op.kind.like, _copy(op.kind.like)) for op in COMPUTES if op.kind.like),
)
"""The rules for derived costs: a cost follows the first of its rules whose inputs were all given."""
ORDER = tuple(dict.fromkeys(rule.key for rule in RULES))
"""The costs, ordered so that each follows from earlier ones."""
BASE = frozenset("".join(rule.given for rule in RULES))
"""The costs that determine others; if none of them is given, every compute operation costs 1 per result."""


@dataclass(frozen=True)
class Costs:
    """The given costs; the other costs follow from them or have their defaults.

    note: the source of the costs, in words. unit: the unit of all times.
    """

    given: Mapping[str, Cost] = field(default_factory=dict)
    note: str = field(default="", compare=False)
    unit: Unit = field(default=NO_UNIT, compare=False)

    def __post_init__(self) -> None:
        """Check the costs; raise PipeschedError (PS222) for an unknown key or a value that is not a number >= 0."""
        for key, cost in self.given.items():
            _check_key(key, {})
            numbers: tuple[object, ...] = (least(cost),) if isinstance(cost, Grid) else listed(cost)
            if not numbers:
                raise fail(Code.COSTS, f"cost {key} lists no stages", help="give one number, or one per stage")
            for x in numbers:
                if not isinstance(x, int | Fraction) or x < 0:
                    raise fail(Code.COSTS, f"cost {key} is {x!r}", help="give a nonnegative int or Fraction")

    def __repr__(self) -> str:
        return f"<Costs {self}>" if self.given else "<Costs of 1 each>"

    def __str__(self) -> str:
        """Return the costs in the form that `parse` reads; long lists and grids are shortened."""
        return ",".join(f"{key}={in_text(cost)}" for key, cost in self.given.items())

    def __getitem__(self, key: str) -> Cost | None:
        """Return the cost of a kind, a pair, C, M or K, or None for a pair that costs the sum of its parts.

        Raises:
            PipeschedError: PS222: B is less than the given I or W.
        """
        return self._computes[key] if key in UNIT else self.given.get(key, _DEFAULT.get(key))

    def assumed_of(self, kinds: Iterable[str]) -> dict[str, str]:
        """Return the costs of these kinds that were derived, each with the text of its rule: ``B / 2``."""
        some, wanted = bool(self.given.keys() & BASE), set(kinds) - self.given.keys()
        assumed = (key for key in _FOLLOWING if key in wanted and (some or key in _COPIES))
        return {key: "F + B" if key == "FB" else self._rule(key).text for key in assumed}

    def doubts(self, kinds: Iterable[str]) -> Iterator[str]:
        """Describe costs that contradict each other, or are not used if times depend on these kinds only."""
        if self.disagreement:
            yield self.disagreement
        for key in (key for key in PAIRS if key in self.given and key not in kinds):
            yield f"the cost {key} is not used: no {key[0]} overlaps a{'n' * (key[1] == 'I')} {key[1]}"

    def remarks(self, kinds: Iterable[str]) -> Iterator[str]:
        """Yield the source of the costs, the assumptions about these kinds, and doubts; nothing if all are given."""
        wanted = set(kinds)
        if self.note:
            yield f"{self.unit.words or 'times'}: {self.note}"
        yield from (f"assumed: {said}" for said in self.guesses(wanted))
        yield from self.doubts(wanted)

    def guesses(self, kinds: Iterable[str]) -> Iterator[str]:
        """Describe the assumptions about the costs of these kinds."""
        if guessed := self.assumed_of(kinds):
            yield equations(guessed, self)

    def published(self, kinds: Iterable[str]) -> dict[str, object]:
        """Return the costs, and the assumptions about these kinds, as JSON."""
        remarks = list(self.remarks(kinds))
        unit = {"unit": self.unit.name} if self.unit else {}
        return {**exact(costs=self.to_json()), **unit, "assumed_costs": self.assumed_of(kinds), "cost_remarks": remarks}

    @property
    def disagreement(self) -> str:
        """A remark if the user gives a B that differs from I + W; otherwise empty."""
        if self.note or not {"I", "W", "B"} <= self.given.keys():
            return ""
        parts = each(add, self.given["I"], self.given["W"])
        difference = each(sub, self.given["B"], parts)
        if least(difference) == most(difference) == 0:
            return ""
        full, sum_of = (
            f" = {self.unit.text(cost)}" if isinstance(cost, Fraction | int) else ""
            for cost in (self.given["B"], parts)
        )
        return f"B{full} differs from I + W{sum_of}: each is used as given"

    @cached_property
    def _computes(self) -> Mapping[str, Cost]:
        """The costs of all compute operations, as given or by the rules."""
        known: dict[str, Cost] = {key: cost for key, cost in self.given.items() if key in UNIT}
        if not known.keys() & BASE:
            known = {**_ALONE, **known}
        for key in (key for key in ORDER if key not in known):
            rule = self._rule(key)
            known[key] = rule.cost(known)
            _require_positive(key, rule, known)
        return known

    def _rule(self, key: str) -> Rule:
        """Return the first rule for a cost whose inputs are all given."""
        return next(rule for rule in RULES if rule.key == key and set(rule.given) <= self.given.keys())

    def scalar(self, key: str) -> Fraction | None:
        """Return the cost as one number, or None if it differs between stages or microbatches."""
        if key not in self._scalars:
            value = self._whole(key)
            self._scalars[key] = least(value) if least(value) == most(value) else None
        return self._scalars[key]

    @cached_property
    def _scalars(self) -> dict[str, Fraction | None]:
        return {}

    @cached_property
    def said(self) -> dict[frozenset[str], Said]:
        """Cache, by the kinds that run: the costs as JSON, derived costs, remarks, assumptions and doubts."""
        return {}

    def differing(self, key: str) -> str:
        """Return how a cost differs, as text: ``microbatch to microbatch`` or ``stage to stage``."""
        value = self._whole(key)
        by_microbatch = isinstance(value, Grid) and not value.even
        return "microbatch to microbatch" if by_microbatch else "stage to stage"

    @property
    def by_microbatch(self) -> tuple[str, ...]:
        """The names of the given costs that differ between microbatches."""
        return tuple(key for key, cost in self.given.items() if isinstance(cost, Grid) and not cost.even)

    def _whole(self, key: str) -> Cost:
        """Return the cost; for an overlap pair without a cost of its own, the sum of its parts."""
        cost = self[key]
        return each(add, self._computes["F"], self._computes["B"]) if cost is None else cost

    def over(self, base: Costs) -> Costs:
        """Return these costs, completed by the costs of `base`, converted to the unit of `base` if both have a unit."""
        if not base.given and not base.unit and not base.note:
            return self
        unit, own = base.unit or self.unit, dict(self.given)
        if self.unit:
            factor = self.unit.seconds / unit.seconds
            own = {key: each(mul, cost, factor) if key in TIMES else cost for key, cost in own.items()}
        return Costs({**base.given, **own}, self.note or base.note, unit)

    def scaled(self, factor: Fraction) -> Costs:
        """Return the costs with all operation times scaled, derived times too, since the rules are linear."""
        computes = self.given if self.given.keys() & BASE else {**_ALONE, **self.given}
        times = {key: each(mul, computes[key], factor) for key in computes if key in (*UNIT, *PAIRS)}
        return Costs({**self.given, **times}, unit=self.unit)

    def require_fit(self, stages: int, microbatches: int | None = None) -> None:
        """Check that the given costs fit this many stages and microbatches.

        Raises:
            PipeschedError: PS222: as for `ticks`.
        """
        for key, cost in self.given.items():
            scale_of(alike(listed(cost)), _COARSER if key in TIMES else _ROUNDER)
            if isinstance(cost, tuple | Grid):
                table(key, cost, stages, microbatches)
        scale_of([x for key in TIMES if key in self.given for x in alike(listed(self.given[key]))], _COARSER)

    def ticks(self, stages: int, microbatches: int | None = None) -> Ticks:
        """Return the times as integers. microbatches: their number, or None if all cost the same.

        Raises:
            PipeschedError: PS222: a list does not have one entry per stage, a grid has another size, numbers are too
            fine for 64 bits, or a derived cost would be negative.
        """
        if one := self._of_one_stage:
            pair = {key: np.repeat(each, stages) for key, each in one.pair.items()}
            return Ticks(one.scale, np.repeat(one.compute, stages, axis=1), pair, np.repeat(one.message, stages))
        return self._ticks(stages, microbatches)

    @cached_property
    def _of_one_stage(self) -> Ticks | None:
        """The times of a stage, if each cost is one number for all stages."""
        return None if any(isinstance(cost, tuple | Grid) for cost in self.given.values()) else self._ticks(1, None)

    def _ticks(self, stages: int, microbatches: int | None) -> Ticks:
        self.require_fit(stages, microbatches)
        costs = {key: cost for key in TIMES if (cost := self[key]) is not None}
        tables = {key: table(key, cost, stages, microbatches) for key, cost in costs.items()}
        scale = scale_of([x for made in tables.values() for x in listed(made)], _COARSER)

        def whole(*keys: str) -> Ints:
            of = np.broadcast_arrays(*(tables[key].whole * (scale // tables[key].scale) for key in keys))
            made = np.stack(of) if len(of) > 1 else of[0]
            return made[..., 0] if made.shape[-1] == 1 else made

        return Ticks(scale, whole(*LETTERS), {key: whole(key) for key in PAIRS if key in tables}, whole("C"))

    def sizes(self, stages: int) -> tuple[Fraction, ...]:
        """Return the activations that one F of each stage holds, shape (S,), as multiples of ranks / stages.

        Raises:
            PipeschedError: PS222: as for `ticks`, or because M differs between microbatches.
        """
        return self.held(stages).column

    def held(self, stages: int, microbatches: int | None = None) -> Grid:
        """Return the activations that an F holds, by stage and microbatch.

        Raises:
            PipeschedError: PS222: as for `ticks`.
        """
        return self._share("M", stages, microbatches)

    def kept(self, stages: int, microbatches: int | None = None) -> Grid:
        """Return the activations that a recomputed F keeps at its end, by stage and microbatch.

        Raises:
            PipeschedError: PS222: as for `ticks`.
        """
        return self._share("K", stages, microbatches)

    def _share(self, key: str, stages: int, microbatches: int | None) -> Grid:
        cost = self.given.get(key, _DEFAULT[key])
        scale_of(alike(listed(cost)), _ROUNDER)
        return table(key, cost, stages, microbatches)

    def to_json(self) -> dict[str, object]:
        """Return F, I, W, B, FB, C as numbers, strings like ``3/2``, lists, or lists of lists.

        R, O, L and K are added if they were given, and M if it is not 1.
        """
        return dict(self._json)

    @cached_property
    def _json(self) -> dict[str, object]:
        even = {"M"} if self.scalar("M") == 1 else set()
        left_out = (UNIT.keys() - BASE | {*PAIRS[1:], "K"}) - self.given.keys() | even
        return {key: in_json(self._whole(key)) for key in KEYS if key not in left_out}

    @classmethod
    def parse(cls, text: str) -> Costs:
        """Parse ``F=1,I=1,W=1,C=0,FB=3``; a list in brackets is by stage, ``F=[1,2]``; nested lists also by microbatch.

        Raises:
            PipeschedError: PS222: a key is unknown or given twice, or a value is not a number.
        """
        given: dict[str, Cost] = {}
        for entry in filter(None, (e.strip() for e in _ENTRY.findall(text))):
            key, equals, value = (part.strip() for part in entry.partition("="))
            if not equals:
                raise fail(Code.COSTS, f"a cost is KEY=NUMBER, not {entry!r}", help="for example F=1,I=1,W=1,C=0")
            _check_key(key, given)
            given[key] = parse(value, f"cost {key}")
        return cls(given)

    @classmethod
    def from_toml(cls, text: str) -> Costs:
        """Read costs from TOML: ``F = 1.5``, ``F = [1, 2]`` by stage, ``F = [[1, 3], [2, 6]]`` also by microbatch.

        The key ``unit`` gives the unit of times: "s", "ms" or "us".
        JSON is accepted too: the output of `to_json`, `calibrate` or `run --rank`.

        Raises:
            PipeschedError: PS222: the text is not TOML, a key is unknown, or a value is not a number; PS843: reading
            exceeds its budget.
        """
        try:
            with budgeted("the costs file"):
                if len(text) > _LARGEST:
                    raise Spent(f"it is larger than {_LARGEST // 2**20} MiB")
                json_ = text.lstrip("\ufeff \t\r\n").startswith("{")
                table = (
                    json_of(text, parse_float=str, parse_constant=str, object_pairs_hook=_once)
                    if json_
                    else toml_of(text, parse_float=str)
                )
        except ValueError as error:  # of the parser
            raise fail(Code.COSTS, f"the costs file is not {'JSON' if json_ else 'TOML'}: {error}") from None
        unit = table.pop(Foreign("unit"), "")
        if isinstance(own := table.get(Foreign("costs")), dict):
            table = own
        if not isinstance(unit, str) or unit not in UNITS:
            raise fail(
                Code.COSTS, f"unknown unit of the costs: {unit!r}"[:60], help='units of time are "s", "ms" and "us"'
            )
        given: dict[str, Cost] = {}
        for key, value in table.items():
            _check_key(key, {})
            given[key] = read(value, f"cost {key}")
        return cls(given, unit=UNITS[unit])


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object after checking that no key is repeated, as in TOML."""
    table: dict[str, object] = {}
    for key, value in pairs:
        if key in table:
            raise fail(Code.COSTS, f"{key} is given twice")
        table[key] = value
    return table


def equations(assumed: Mapping[str, str], costs: Costs | None = None) -> str:
    """Return assumptions as equations: ``I = W = B / 2``; with the costs also ``= 10``, if all stages agree."""
    alike: dict[str, list[str]] = {}
    for key, text in assumed.items():
        alike.setdefault(text, []).append(key)
    values = {text: None if costs is None else costs.scalar(keys[0]) for text, keys in alike.items()}
    return ", ".join(
        " = ".join(
            [*keys, text, *([] if costs is None or (value := values[text]) is None else [costs.unit.text(value)])]
        )
        for text, keys in alike.items()
    )


def _require_positive(key: str, rule: Rule, known: Mapping[str, Cost]) -> None:
    """Raise PipeschedError (PS222) if a backward is shorter than one of its parts."""
    cost = known[key]
    if isinstance(cost, Grid):
        below = np.argwhere(cost.whole < 0)[:1].tolist()
        places = [f" on stage {stage} for microbatch {microbatch}" for stage, microbatch in below]
    else:
        stages = [stage for stage, x in enumerate(listed(cost)) if x < 0]
        places = [f" on stage {stage}" if isinstance(cost, tuple) else "" for stage in stages]
    if places:
        message = f"cost {key} is not given, and {rule.text} is negative{places[0]}"
        raise fail(Code.COSTS, message, help=f"give {key} too, or a B that is at least as large as each of its parts")


def _check_key(key: str, given: Mapping[str, Cost]) -> None:
    if key not in KEYS:
        parts = "; `verify`, `show`, `why`, `compare` and `diff` also accept files of parts" * (key == "layers")
        raise fail(Code.COSTS, f"no cost is called {key!r}", help=f"costs are {', '.join(KEYS)}{parts}")
    if key in given:
        raise fail(Code.COSTS, f"cost {key} is given twice")
