"""Conversion of a cap in bytes to caps in the optimizer's unit. Caps are rounded down, so an order within them is
within the cap in bytes.

    room       the cap less parameters, gradients and optimizer, the largest working memory, and messages
    M          bytes of a microbatch on a stage / its bytes on most stages, rounded up to a hundredth
    release    I=-x,W=1+x where I stores gradients for W: x is the largest ratio of these to the bytes of F, rounded up
    caps       room / bytes of a microbatch on most stages, rounded down

Counting x can exclude an order that just fits. So the search first runs without x, and any bytes by which its order
exceeds the cap are set aside in the next search. The bytes of messages, whose number depends on the order, are treated
likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from statistics import mode

from pipesched.diagnostics import Diagnostic, PipeschedError
from pipesched.model.costs import Costs
from pipesched.model.numbers import percent
from pipesched.model.placement import Placement
from pipesched.model.release import Release
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.solve.bounds.least_cap import infeasible
from pipesched.optimizer.solve.problem import Problem
from pipesched.planning.byte_counts import gigabytes
from pipesched.planning.transformer import activations, parameters
from pipesched.planning.transformer.config import Trained
from pipesched.planning.transformer.state import state, undivided
from pipesched.planning.transformer.trainers import reserve_of, settled, whole_gradients

MESSAGES = 4  # messages per rank for which bytes are set aside before an order is known
_FINE = 100


@dataclass(frozen=True)
class Room:
    """A cap in bytes, converted to the optimizer's unit.

    left: for each rank, the bytes left for activations. one: the bytes that a microbatch keeps on most stages. unit:
    the bytes in a unit of caps.
    """

    costs: Costs
    release: Release
    caps: tuple[Fraction, ...]
    left: tuple[Fraction, ...]
    one: Fraction
    unit: Fraction

    def require(self, problem: Problem) -> None:
        """Raise PipeschedError, PS504, if a single microbatch needs more bytes than are left."""
        reason = infeasible(problem, lambda amount: gigabytes(amount * self.unit))
        if reason is not None:
            message = f"no known order fits: {reason}; left for activations: {self._left}"
            help = "use a higher cap, more ranks, tensor or context parallelism, or --backward fused with recompute"
            raise PipeschedError([Diagnostic(OptimizerCode.NO_ROOM, message, help=help)])

    @property
    def note(self) -> str:
        """A sentence that explains how the caps follow from the bytes."""
        share = percent(-self.release.at_input)
        split = "" if self.release.at_input >= 0 else f", plus at most {share} of that between I and W"
        return (
            f"the cap is in bytes: {self._left} remain for activations; one microbatch holds {gigabytes(self.one)} on "
            f"most stages{split}; both are rounded conservatively, so an order slightly above these caps may still fit"
        )

    @property
    def _left(self) -> str:
        least, most = min(self.left), max(self.left)
        return gigabytes(least) if least == most else f"{gigabytes(least)} to {gigabytes(most)} depending on the rank"


def set_aside(trained: Trained, placement: Placement) -> tuple[int, ...]:
    """Return the bytes set aside for messages, by rank, before any order is known."""
    each = ceil(MESSAGES * activations.boundary(*trained)) if placement.ranks > 1 else 0
    return (each,) * placement.ranks


def _states(
    trained: Trained, parts: Sequence[tuple[parameters.Part, ...]], held: Sequence[Sequence[int]], count: int
) -> list[Fraction]:
    """Return the bytes of parameters, gradients and optimizer on every rank, with the trainer's reserve for them."""
    a, x = trained[0], settled(trained[1])
    of, whole = reserve_of(x), whole_gradients(x, count)
    each = [[state(a, x, parts[stage], whole=whole) for stage in own] for own in held]
    states = [sum((one.total for one in own), Fraction(0)) + _ROUNDING for own in each]
    if of is None:
        return states
    kept = [sum((one.parameters + one.gradients for one in own), Fraction(0)) for own in each]
    return [there + of.fixed + of.state * one for there, one in zip(states, kept, strict=True)]


def room(
    trained: Trained,
    placement: Placement,
    costs: Costs,
    release: Release,
    caps: tuple[Fraction, ...],
    *,
    fused: bool,
    aside: Sequence[int] | None,
    until_w: bool,
) -> Room:
    """Convert caps in bytes. aside: for each rank, the bytes set aside for messages. until_w: True to count the
    gradients that I stores for W.

    Raises:
        PipeschedError: PS235; PS503: parameters, gradients and optimizer exceed the cap.
    """
    a, x = trained[0], settled(trained[1])
    ranks, count, of = placement.ranks, placement.stages, reserve_of(x)
    stages, parts = activations.by_stage(a, x, count), parameters.by_stage(a, x, count)
    working = _working(stages, undivided(a, x, count), fused=fused)
    messages = aside or set_aside(trained, placement)
    held = [sorted({stage for _, stage in placement.chunks(rank)}) for rank in range(ranks)]
    states = _states(trained, parts, held, count)
    _require_room(states, caps, x.zero)
    left = [
        (cap - there) / (1 + (of.changing if of else 0))
        - max((working[stage] for stage in own), default=0)
        - waiting
        - _ROUNDING
        for cap, there, own, waiting in zip(caps, states, held, messages, strict=True)
    ]
    saved = [Fraction(ceil(one.saved)) for one in stages]
    unit = mode(saved) or max(saved)
    if release.name in ("W", "torch") and not fused and until_w:
        release = _until_w(release, stages)
    sizes = tuple(_up(size / unit) for size in saved)
    share = Fraction(ranks, count)
    fit = tuple(max(Fraction(floor(_FINE * one / unit), _FINE), Fraction(0)) * share for one in left)
    return Room(Costs({"M": sizes}).over(costs), release, fit, tuple(left), unit, unit / share)


def _until_w(release: Release, stages: Sequence[activations.StageBytes]) -> Release:
    """Return the release rule in which I takes the largest share of an activation that any stage stores for W."""
    most = max(_up(Fraction(ceil(one.stored), ceil(one.saved))) for one in stages if one.saved)
    return Release.parse(f"I=-{most},W={1 + most}") if most else release


def _working(
    stages: Sequence[activations.StageBytes], whole: Sequence[tuple[Fraction, Fraction]], *, fused: bool
) -> list[Fraction]:
    """Return the working memory of each stage's backward, including parameters and gradients that ZeRO gathers."""
    each = (one.working[0] if fused else max(one.working[1:]) for one in stages)
    return [one + sum(parts) for one, parts in zip(each, whole, strict=True)]


def _require_room(states: Sequence[Fraction], caps: Sequence[Fraction], zero: int) -> None:
    """Raise PipeschedError, PS503, if parameters, gradients and optimizer exceed a cap."""
    pairs = enumerate(zip(states, caps, strict=True))
    over = [f"rank {rank}: {gigabytes(there)}, cap {gigabytes(cap)}" for rank, (there, cap) in pairs if there > cap]
    if over:
        more = f" and {len(over) - _SHOWN} more" if len(over) > _SHOWN else ""
        message = f"parameters, gradients and optimizer states alone exceed the cap: {', '.join(over[:_SHOWN])}{more}"
        help = (
            "use more ranks, tensor parallelism" + ("" if zero == 3 else ", a higher ZeRO stage") + ", or a higher cap"
        )
        raise PipeschedError([Diagnostic(OptimizerCode.STATES_OVER_CAP, message, help=help)])


_ROUNDING = 3 * 64  # bytes: every figure of the footprint is rounded up to whole bytes
_SHOWN = 3


def _up(share: Fraction) -> Fraction:
    return Fraction(ceil(_FINE * share), _FINE)
