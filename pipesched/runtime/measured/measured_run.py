"""Splits the time of every measured operation into work and waiting, and fits costs.

    begin ── waits for its input ── computes ── end        in nanoseconds from the first operation of the run

    input made                |-------- in transit --------|
    operation        begin ---|------ waits ---------------|== works ==| end
                              produced                     start

If the trace records waiting, start is begin + waited. If it does not (torch's records include the wait in the work), an
operation is assumed to start no earlier than its input was made. Waiting while the message is in transit then counts as
work, so only operations whose input was made before they began show their work alone.

    F, I, W, B   the work of an operation            FB   of a pair F + B
    C            from the end of a message's producer to the arrival of the message, if its receiver was waiting

A cost is the median over steps and microbatches, without warm-up and outliers. Warm-up is the first of several steps;
with one step, it is the first operation of each kind and stage, if two more remain; messages have no warm-up. Outliers
differ from the median by more than `FAR` median absolute deviations, scaled as for a normal distribution, and by more
than `NEAR` of the median. If waits are not recorded, the work of an operation that waited for its input includes the
latency of the message; such operations are left out if there are others.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.model.columns import Bools, Ints
from pipesched.model.costs import TIMES
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.support.record import Record


class Measured(Record):
    """A measured run. begin, end, waited: shape (steps, operations); both parts of an overlap pair have the pair's
    times.

    waited: the time that an operation waited for a message, or None if it was not measured. kernels: whether GPU
    kernels continued to run after these times.
    """

    schedule: Schedule
    begin: Ints
    end: Ints
    waited: Ints | None
    kernels: bool = False

    @property
    def steps(self) -> int:
        return int(self.begin.shape[0])


class Running(Record):
    """Times of every operation: arrays of shape (steps, operations), in nanoseconds, the same for both parts of a pair.

    start: when the work begins, after any wait. end: when the operation ends. produced: when the input from another
    rank was made, or the start of the operation if it has no such input. waiting: whether the operation began before
    its input was made. recorded: whether waits are known.
    """

    start: Ints
    end: Ints
    produced: Ints
    waiting: Bools
    recorded: bool

    @property
    def work(self) -> Ints:
        return self.end - self.start

    @property
    def skew(self) -> int:
        """The longest time by which an input was made after its use, which shows that clocks disagree; otherwise 0."""
        used = self.start if self.recorded else self.end
        return max(int((self.produced - used).max(initial=0)), 0)


def running(measured: Measured) -> Running:
    """Compute the work of every operation of every step."""
    dependencies = Dependencies.of(measured.schedule)
    made = np.where(dependencies.crosses, measured.end[:, dependencies.producer], measured.begin)
    found = dependencies.further
    for producer, consumer in zip(found.producer[found.crosses], found.consumer[found.crosses], strict=True):
        made[:, consumer] = np.maximum(made[:, consumer], measured.end[:, producer])
    produced = _of_pairs(measured, made)
    waiting = produced > measured.begin
    if measured.waited is not None:
        start = np.minimum(measured.begin + measured.waited, measured.end)
    else:
        start = np.clip(produced, measured.begin, measured.end)
    return Running(start, measured.end, produced, waiting, measured.waited is not None)


def _of_pairs(measured: Measured, values: Ints) -> Ints:
    """Give both parts of a pair the later of their two times."""
    second = np.flatnonzero(measured.schedule.joined)
    if len(second):
        values = values.copy()
        later = np.maximum(values[:, second - 1], values[:, second])
        values[:, second - 1] = values[:, second] = later
    return values


FAR = 5
NEAR = 0.02
_NORMAL = 1.4826  # standard deviations per median absolute deviation
_LEFT = 2


@dataclass(frozen=True, slots=True)
class Fit:
    """A stage's fitted cost in ns. low, high: quartiles. samples, left_out: numbers of values used and of outliers."""

    cost: str
    stage: int
    value: Fraction
    low: Fraction
    high: Fraction
    samples: int
    left_out: int

    @property
    def spread(self) -> float:
        """The distance between the quartiles, as a fraction of the value."""
        return float((self.high - self.low) / self.value) if self.value else 0.0


def fits(measured: Measured) -> list[Fit]:
    """Fit every cost that was measured; sorted by kind (F, I, W, B, FB, C) and stage."""
    seen = running(measured)
    kept = _warm(measured)
    found = _computes(measured, seen, kept)
    found |= _messages(measured, seen, kept if measured.steps > 1 else np.ones_like(kept), found)
    return [found[key] for key in sorted(found, key=lambda key: (TIMES.index(key[0]), key[1]))]


def _warm(measured: Measured) -> Bools:
    """Return a mask of the values that are not warm-up, shape (steps, operations)."""
    kept = np.ones(measured.begin.shape, dtype=np.bool_)
    if measured.steps > 1:
        kept[0] = False
        return kept
    groups: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
    schedule = measured.schedule
    for i in np.argsort(measured.begin[0], kind="stable").tolist():
        groups[int(schedule.op[i]), int(schedule.stage[i]), bool(schedule.paired[i])].append(i)
    for members in groups.values():
        if len(members) > _LEFT:
            kept[0, members[0]] = False
    return kept


def _computes(measured: Measured, seen: Running, kept: Bools) -> dict[tuple[str, int], Fit]:
    """Fit the compute cost of every kind and stage."""
    schedule, paired = measured.schedule, measured.schedule.paired
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for i, (op, stage) in enumerate(zip(schedule.op.tolist(), schedule.stage.tolist(), strict=True)):
        if not paired[i]:
            groups[Op(op).name, stage].append(i)
        elif not schedule.joined[i] and schedule.op[i + 1] == Op.B:
            groups["FB", stage].append(i)
    return {key: _fit(key, _samples(seen, kept, members)) for key, members in groups.items()}


def _samples(seen: Running, kept: Bools, members: list[int]) -> Ints:
    """Return the work of some operations, without waits if possible."""
    work, counts, waiting = seen.work[:, members], kept[:, members], seen.waiting[:, members]
    if not seen.recorded and (counts & ~waiting).any():
        counts = counts & ~waiting
    return np.asarray(work[counts] if counts.any() else work.ravel())


def _fit(key: tuple[str, int], samples: Ints) -> Fit:
    middle = np.median(samples)
    far = max(FAR * _NORMAL * float(np.median(np.abs(samples - middle))), NEAR * middle)
    near = samples[np.abs(samples - middle) <= far]
    low, value, high = (Fraction(float(x)) for x in np.quantile(near, [0.25, 0.5, 0.75]))
    return Fit(*key, value, low, high, len(near), len(samples) - len(near))


def _messages(
    measured: Measured, seen: Running, kept: Bools, computes: dict[tuple[str, int], Fit]
) -> dict[tuple[str, int], Fit]:
    """Fit the message latency of every stage that sends to a waiting rank."""
    schedule, dependencies = measured.schedule, Dependencies.of(measured.schedule)
    single = dependencies.crosses & ~schedule.paired
    single[dependencies.further.consumer] = False  # with several messages the last one is unknown
    groups: dict[int, list[int]] = defaultdict(list)
    for step, i in np.argwhere(seen.waiting & kept & single).tolist():
        latency = int(seen.start[step, i] - seen.produced[step, i])
        if not seen.recorded:
            own = computes[Op(int(schedule.op[i])).name, int(schedule.stage[i])]
            latency = int(seen.end[step, i] - seen.produced[step, i] - own.value)
        groups[int(schedule.stage[dependencies.producer[i]])].append(max(latency, 0))
    return {("C", stage): _fit(("C", stage), np.array(found, dtype=np.int64)) for stage, found in groups.items()}
