"""Guess piecewise expressions from sample values, at the points of a statement or by size and rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from pipesched.model.columns import Ints
from pipesched.prover.digits import DigitSpace
from pipesched.prover.fit import CASES, Guard, cases, guards
from pipesched.prover.presburger import PwAff, Set, Space, Value, coefficients, isl
from pipesched.prover.sampling import Sample

_APART = (-1, 0, 1)
_FAR = (*_APART, *range(-9, -1), *range(2, 9))  # from ends of loops, for periods
_MOST = 160  # most guards that are tried
_PERIOD = 64  # longest period of a loop variable with a case per place
_CASES = 16  # most cases where they are


def constraints(of: Set, parameters: int) -> Iterator[tuple[int, ...]]:
    """Yield the constraints of a set that have no quotients, as weights of 1, the parameters and the dimensions."""
    width = 1 + parameters + of.dim(isl().dim_type.set)
    for part in of.get_basic_sets():
        for found in map(coefficients, part.get_constraints()):
            if not any(found[width:]):
                yield tuple(map(int, found[:width]))


@dataclass(eq=False)
class Guesses:
    """Guesses values at the points of a statement. rows: one per point: 1, its size, its coordinates and floors."""

    space: Space
    rows: Ints
    floors: Sequence[PwAff] = ()
    more: Sequence[tuple[int, ...]] = field(default_factory=tuple)
    halved: int = 0

    @cached_property
    def _halved(self) -> Guesses:
        """Return the guesses with additional columns: half of each loop variable, of its sum with m, and of m; in base
        p, half of each last digit and of its sum with p; for values by rank, half of each size.
        """
        half = self.space.value(2)
        rows, floors = [self.rows], [*self.floors]
        units = {name: at for at, name in enumerate((*self.space.parameters, *self.space.dims), 1)}
        wide = self.space.width > 1
        with_ = "p" if wide else "m"
        loops = self.space.dims[1:] if not wide else self.space.dims[2::2]
        sums: list[tuple[str, ...]] = [(name,) for name in loops or self.space.parameters]
        if loops and with_ in units:
            sums += [(name, with_) for name in loops] + [(with_,)] * (not wide)
        for names in sums:
            rows.append(self.rows[:, [units[name] for name in names]].sum(axis=1, keepdims=True) // 2)
            value = self.space.combination([Fraction(1)] * len(names), [*map(self.space.raw, names)])
            floors.append(value.scale_down_val(half).floor())
        count = len(floors) - len(self.floors)
        return Guesses(self.space, np.hstack(rows), floors, self.more, halved=count)

    @property
    def _one_p(self) -> bool:
        """True if the simpler guesses failed and p is fixed: a period then has few positions, so more guards fit."""
        return bool(self.halved) and "p" not in self.space.parameters

    @property
    def _more(self) -> bool:
        """True if loop variables or sizes can be halved."""
        return bool(self.space.dims[1:] or (self.space.width == 1 and self.space.parameters))

    @cached_property
    def columns(self) -> list[PwAff]:
        """The columns as expressions."""
        names = (*self.space.parameters, *self.space.dims)
        return [self.space.constant(1), *map(self.space.raw, names), *self.floors]

    @cached_property
    def _weighed(self) -> tuple[Ints, list[Value]]:
        """The columns whose weighted sums are the values; in base p, first digits and quotients are multiplied by p."""
        if not isinstance(self.space, DigitSpace):
            return self.rows, self.columns
        names = ["", *self.space.parameters, *self.space.dims]
        names += ["floor"] * (len(self.floors) - self.halved) + ["half"] * self.halved
        first = [name in ("g", "floor") or (name != "p" and name.endswith("p")) for name in names]
        p = self.rows[:, 1:2]
        exact = [at for at, high in enumerate(first) if not high]
        times = [at for at, high in enumerate(first) if high]
        made = [*(self._last(names[at], at) for at in exact), *(self.space.times_p(self.columns[at]) for at in times)]
        return np.hstack([self.rows[:, exact], p * self.rows[:, times]]), made

    def _last(self, name: str, at: int) -> Value:
        assert isinstance(self.space, DigitSpace)
        return self.space.last(name) if name != "half" else self.space.half(self.columns[at])

    @cached_property
    def _guards(self) -> list[Guard]:
        width = self.rows.shape[1]
        found = {guard.holds.tobytes(): guard for guard in self._periodic()} if self._one_p else {}
        found |= {guard.holds.tobytes(): guard for guard in guards(self.rows, self._terms(width))}
        for given in self.more:
            for step in _FAR if self._one_p else _APART:
                weights = (given[0] + step, *given[1:], *(0,) * (width - len(given)))
                holds = np.asarray(self.rows @ np.array(weights, dtype=np.int64) >= 0)
                if holds.any() and not holds.all():
                    found.setdefault(holds.tobytes(), Guard(weights, holds))
        return list(found.values())[: _MOST * (4 if self._one_p else 1)]

    def _periodic(self) -> Iterator[Guard]:
        """Yield the guards ``x - d * floor(x / d) >= k`` for each loop variable x and each quotient of a statement."""
        names = (*self.space.parameters, *self.space.dims)
        for x in range(len(names) - len(self.space.dims) + 2, len(names) + 1):
            for q in range(len(names) + 1, len(names) + 1 + len(self.floors) - self.halved):
                own, quotient = self.rows[:, x], self.rows[:, q]
                passed = int(np.ptp(quotient)) if len(quotient) else 0
                last = own[quotient == quotient.max()].min() if passed else 0
                period = int(last - own[quotient == quotient.min()].min()) // passed if passed else 0
                place = own - period * quotient
                if 2 < period <= _PERIOD and np.ptp(place) < period:
                    for k in np.unique(place)[1:].tolist():
                        weights = [-k, *[0] * (self.rows.shape[1] - 1)]
                        weights[x], weights[q] = 1, -period
                        yield Guard(tuple(weights), place >= k)

    def _terms(self, width: int) -> list[tuple[int, ...]]:
        """Return the terms that guards compare: 0, r, the loop variables, p - r, the sizes, and some halves."""
        names = (*self.space.parameters, *self.space.dims)
        unit = {name: tuple(int(k == at) for k in range(width)) for at, name in enumerate(names, 1)}
        zero = (0,) * width
        made = [zero, *(unit[name] for name in self.space.dims)]
        if "p" in unit and "r" in unit:
            made.append(_sum(unit["p"], unit["r"], -1))
        if self._one_p and not self.space.dims[1:] and len(self.rows):
            ranks = 1 + int(self.rows[:, names.index("r") + 1].max())
            made.append(_sum((ranks, *zero[1:]), unit["r"], -1))
            made += [tuple(int(k == at) for k in range(width)) for at in range(width - self.halved, width)]
        return [*made, *(unit[name] for name in self.space.parameters)]

    def through(self, values: Sequence[int]) -> Value | None:
        """Return a piecewise expression with these values, using halves only if necessary."""
        rows, columns = self._weighed
        found = cases(rows, np.array(values, dtype=np.int64), self._guards, _CASES if self._one_p else CASES)
        if found is None:
            return None if self.halved or not self._more else self._halved.through(values)
        total: Value | None = None
        for case in found:
            made = self.space.combination([*case.weights], columns)
            for guard in case.guards:
                above = self.space.combination([*map(Fraction, guard)], self.columns)
                made = made.intersect_domain(above.nonneg_set())
            total = made if total is None else total.union_add(made)
        return total


def _sum(first: tuple[int, ...], second: tuple[int, ...], sign: int) -> tuple[int, ...]:
    return tuple(x + sign * y for x, y in zip(first, second, strict=True))


def thresholds(sample: Sample) -> list[tuple[int, ...]]:
    """Return the guards at which statements begin or stop running, including those on the sizes and ranks at which they
    run.
    """
    model = sample.model
    loops = len(model.space.dims) - 1
    found: set[tuple[int, ...]] = set()
    for x in model.statements:
        found.update(constraints(x.domain, len(model.parameters)))
        found.update(constraints(x.domain.project_out(isl().dim_type.set, 1, loops), len(model.parameters)))
    width = 1 + len(model.parameters) + 1 + loops
    return sorted({(*each, *(0,) * (width - len(each))) for each in found})


def of_statements(sample: Sample) -> list[Guesses]:
    """Return the guesses for each statement."""
    model, more = sample.model, thresholds(sample)
    made = []
    for number, statement in enumerate(model.statements):
        width = 1 + len(model.parameters) + len(model.space.dims) + len(statement.floors)
        rows = sample.columns(number).reshape(-1, width)
        made.append(Guesses(model.space, rows, statement.floors, more))
    return made


def of_ranks(sample: Sample, rows: Sequence[tuple[int, ...]]) -> Guesses:
    """Return the guesses for values by rank. rows: the size and the rank of each value."""
    model = sample.model
    width = 1 + len(model.parameters) + 1
    more = sorted({each[:width] for each in thresholds(sample) if not any(each[width:])})
    space = model.space_of("r")
    return Guesses(space, np.array([(1, *row) for row in rows], dtype=np.int64).reshape(-1, width), (), more)
