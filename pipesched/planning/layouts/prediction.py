"""The cost of a configuration: bytes per rank and seconds per step, from the timeline of its order.

    every stage   F, I, W: FLOPs divided by the rate of the device, and messages between the ranks of a layer
    timeline      the schedule's order with these times, and its messages
    step          the timeline, parameters that ZeRO gathers before the first F, and gradients reduced after the
                  last backward: only the part of these two that does not overlap compute

Lower bounds on the time of every order of these operations, and on the bytes of this order, can be computed without
expanding the order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from math import inf

import numpy as np

from pipesched.analysis.communication import STRICT
from pipesched.compile import load, read
from pipesched.examine import Options
from pipesched.model.columns import Ints
from pipesched.model.numbers import Value
from pipesched.model.ops import Op
from pipesched.model.release import AT_W
from pipesched.model.schedule import Schedule
from pipesched.planning.byte_counts import gigabytes
from pipesched.planning.footprint import footprint
from pipesched.planning.layouts.space import Choice, refuses
from pipesched.planning.layouts.stages import NANO, Problem, Stages, stages_of
from pipesched.planning.transformer import flops
from pipesched.planning.transformer.trainers import reserve_of
from pipesched.planning.transformer.trust import Trust, trust
from pipesched.planning.workload import Workload
from pipesched.schedule_analysis import Analysis


@dataclass(frozen=True)
class Refused:
    """A refused choice. kind: the reason without figures, by which choices are counted. reason: the reason as text,
    with its figures. over: the bytes that the first rank above the cap, or the fullest rank, needs; 0 for other
    reasons.
    """

    choice: Choice
    kind: str
    reason: str | Over
    over: int = 0


@dataclass(frozen=True)
class Over:
    """The reason why a choice exceeds the cap; its text is built only when it is read.

    spread: bytes of the cap that are kept free. what: what the rank needs the bytes for.
    """

    rank: int
    bytes: int
    cap: Fraction
    spread: int
    what: str

    def __str__(self) -> str:
        free = f", of which {gigabytes(self.spread)} is kept free" if self.spread else ""
        return f"rank {self.rank} needs {gigabytes(self.bytes)} for {self.what}; the cap is {gigabytes(self.cap)}{free}"


@dataclass(frozen=True)
class Bound:
    """Lower bounds on the nanoseconds of a step in every order, and on the peak bytes of a rank."""

    nanoseconds: int
    bytes: int


@dataclass(frozen=True)
class Terms:
    """The seconds of one step, as means over all ranks; they add up to the step time.

    copies: gathers and scatters of ZeRO in every microbatch. idle: waits for other ranks. gradients: reductions between
    copies after the last backward.
    """

    compute: float
    recompute: float
    tensor: float
    context: float
    experts: float
    copies: float
    idle: float
    gradients: float


def bound(problem: Problem, choice: Choice) -> Refused | Bound:
    """Return lower bounds on the bytes and the time of a choice, or the reason to refuse it."""
    if reason := refuses(problem.space, choice):
        return Refused(choice, reason, reason)
    stages, x, p, v, m, most = stages_of(problem), choice.training, choice.p, choice.v, choice.m, 0
    cap = problem.whole_cap
    own, saved, of = stages.state(choice), stages.saved(choice), reserve_of(x)
    more, spread = (of.changing, int(of.spread)) if of else (Fraction(0), 0)
    for rank, mine in enumerate(choice.held):
        fixed = sum(own[stage] for stage in mine) + (int(of.fixed) if of else 0)
        live = zip(choice.row.before(p, v, m, rank), mine, strict=True)
        alive = sum(count * saved[stage] for count, stage in live) * x.microbatch // x.context
        total = fixed + alive * (more.denominator + more.numerator) // more.denominator
        if total + spread > cap:
            alone = fixed + spread > cap
            what = "parameters, gradients and optimizer" if alone else "memory held at the first backward"
            over = Over(rank, fixed if alone else total, problem.cap, spread, what)
            return Refused(choice, f"{what} over the cap", over, total)
        most = max(most, total)
    return Bound(least(stages, choice), most)


def least(stages: Stages, choice: Choice) -> int:
    """Return a lower bound on the time: a rank begins when its first microbatch has arrived, then runs all its work; if
    backwards are fused, the backwards of earlier stages follow the rank's last backward.
    """
    times, once, m = stages.times(choice), stages.once(choice), choice.m
    crossing = [one != two for one, two in pairwise(choice.ranks)]
    head = [0, *accumulate(f + c * x for f, c, x in zip(times.F, times.C, crossing, strict=False))]
    tail = [0, *accumulate(i + w + c * x for i, w, c, x in zip(times.I, times.W, times.C[1:], crossing, strict=False))]
    most = gathered = 0.0
    for mine in choice.held:
        work = {stage: m * (times.F[stage] + times.I[stage] + times.W[stage]) for stage in mine}
        back = {stage: (times.I[stage] + times.W[stage]) * (1 - 1 / once[stage].layers) for stage in mine}
        alone, gather = (sum(once[stage].alone[which] for stage in mine) for which in (0, 1))
        last = min(once[stage].beside[0] / once[stage].layers for stage in mine)
        end = head[mine[0]] + sum(work.values()) + max(tail[mine[0]] if choice.row.fused else 0, alone + last)
        sent = alone + sum(once[stage].beside[0] for stage in mine)
        most = max(most, end, min(head[stage] + work[stage] - back[stage] for stage in mine) + sent)
        gathered = max(gathered, gather + (once[0].beside[1] / once[0].layers if 0 in mine else 0))
    return int(most + gathered)


def beyond(slots: Iterable[tuple[float, float, int, float]]) -> float:
    """Return the time of sends that exceeds compute after the last backward or before the first forward, if sends
    overlap compute layer by layer. slots: for each compute operation, its distance from this border, its duration, its
    layers, and the duration of its sends; a rank sends one message at a time.
    """
    free = -inf
    for distance, length, layers, sent in sorted(slots, reverse=True):
        first = length / layers - length - distance
        free = max(max(free, first) + sent, sent / layers - distance)
    return max(0.0, free)


@lru_cache(maxsize=8)
def order(schedule: str, sizes: tuple[tuple[str, Value], ...]) -> Schedule:
    """Return the order of a library schedule at these sizes."""
    return load(read(schedule), Options(dict(sizes))).schedule


@dataclass(frozen=True)
class Prediction:
    """The time and memory of a choice that fits the cap. ends: the time at which each rank's list ends; more: the time
    that each rank's sends add before and after its list; both in nanoseconds. bytes: for each rank, the bytes by kind
    at its peak.
    """

    problem: Problem
    choice: Choice
    ends: tuple[int, ...]
    more: tuple[int, ...]
    bytes: tuple[dict[str, int], ...]

    @cached_property
    def nanoseconds(self) -> int:
        """The nanoseconds of a step."""
        return max(end + after for end, after in zip(self.ends, self.more, strict=True))

    @cached_property
    def trust(self) -> Trust:
        """The error bar of the step time, or the reason why no time is shown."""
        return trust(self.problem.space.transformer, self.choice.training, self.problem.on, self.gpus)

    @property
    def seconds(self) -> Fraction:
        """The seconds of a step; show it only if `trust` allows a time."""
        return Fraction(self.nanoseconds, NANO)

    @cached_property
    def peaks(self) -> tuple[int, ...]:
        """The peak bytes of each rank."""
        return tuple(sum(kinds.values()) for kinds in self.bytes)

    @property
    def peak(self) -> int:
        """The largest peak bytes of any rank."""
        return max(self.peaks)

    @cached_property
    def terms(self) -> Terms:
        """The terms of the step, in seconds."""
        share = self.choice.m / self.choice.p
        parts = [one * share for one in stages_of(self.problem).times(self.choice).parts]
        compute, recompute, tensor, context, experts, copies = parts
        idle = max(0.0, max(self.ends) / NANO - sum(parts))
        gradients = (self.nanoseconds - max(self.ends)) / NANO
        return Terms(compute, recompute, tensor, context, experts, copies=copies, idle=idle, gradients=gradients)

    @property
    def bubble(self) -> float:
        """The idle time of all ranks, divided by ranks times makespan."""
        return self.terms.idle * NANO / max(self.ends)

    @property
    def gpus(self) -> int:
        return self.problem.space.gpus

    @property
    def tokens_per_second(self) -> Fraction:
        """Tokens per second of the whole cluster."""
        return (self.choice.training.batch or 0) * self.problem.space.transformer.tokens / self.seconds

    @cached_property
    def model_flops(self) -> Fraction:
        """FLOPs of the model in a step, without recomputation."""
        x = self.choice.training
        return flops.of_model(self.problem.space.transformer, x.batch or 0, x)

    @property
    def utilisation(self) -> Fraction:
        """The model FLOP utilisation: the model's FLOPs, divided by those that all devices can do in a step at peak
        rate.
        """
        return self.model_flops / (self.seconds * self.gpus * self.problem.device.flops)

    def days(self, tokens: int) -> Fraction:
        """Return the days to train on `tokens` tokens."""
        return tokens / self.tokens_per_second / 86_400


def differences(one: Terms, other: Terms) -> list[tuple[str, float]]:
    """Return the seconds by which each term of `one` exceeds the same term of `other`, the largest first."""
    found = [(term.name, getattr(one, term.name) - getattr(other, term.name)) for term in fields(Terms)]
    return sorted(found, key=lambda row: -row[1])


def predict(problem: Problem, choice: Choice) -> Refused | Prediction:
    """Predict the time and the bytes of a choice from its own order."""
    made = analysis(problem, choice)
    used = made.fact(footprint)
    assert used is not None
    bytes = used.peaks
    peaks = [sum(kinds.values()) for kinds in bytes]
    of = reserve_of(choice.training)
    spread = int(of.spread) if of else 0
    if max(peaks) + spread > problem.cap:
        shown = f"rank {peaks.index(max(peaks))} needs {gigabytes(max(peaks))}; the cap is {gigabytes(problem.cap)}"
        shown += f", of which {gigabytes(spread)} is kept free" if spread else ""
        return Refused(choice, "the peak of the order exceeds the cap", shown, max(peaks))
    return Prediction(problem, choice, *ends(problem, choice, made), bytes)


def analysis(problem: Problem, choice: Choice) -> Analysis:
    """Return the analysis of a choice's order, with the costs and the model of the choice."""
    return Analysis(
        order(choice.schedule, tuple(choice.sizes.items())),
        stages_of(problem).costs(choice),
        AT_W,
        STRICT,
        owned=(Workload((problem.space.transformer, choice.training)),),
    )


def ends(problem: Problem, choice: Choice, made: Analysis) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return, for each rank, the nanosecond at which its list ends, and the nanoseconds that its sends add."""
    schedule, times, once = made.schedule, made.timeline, stages_of(problem).once(choice)
    tick = float(made.time(1)) * (NANO // 1000)
    first, last = np.zeros((2, choice.p * choice.v), dtype=np.int64)
    forward, backward = (np.flatnonzero(np.isin(schedule.op, kinds)) for kinds in ([Op.F], [Op.B, Op.W]))
    first[schedule.stage[forward[::-1]]], last[schedule.stage[backward]] = forward[::-1], backward
    last_end = times.end[schedule.start[1:] - 1]

    def past(index: Ints, distance: Ints, which: int) -> list[float]:
        length, away = tick * (times.end - times.start)[index], tick * distance
        return [
            beyond((away[k], length[k], once[k].layers, once[k].beside[which]) for k in mine)
            + sum(once[k].alone[which] for k in mine)
            for mine in choice.held
        ]

    after = past(last, last_end[list(choice.ranks)] - times.end[last], 0)
    before = max(past(first, times.start[first], 1))
    return tuple(round(tick * end) for end in last_end.tolist()), tuple(round(before + one) for one in after)
