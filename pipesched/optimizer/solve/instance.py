"""The problem in integers, built from placement, costs, release rule and caps as users write them.

Times become whole ticks, where a tick is their greatest common divisor; memory becomes parts, of which every activation
and every release is a whole number. A cap is rounded down to whole parts. A placement is one of these, or the placement
of a schedule:

    linear   0 1 2 3                    one stage per rank
    loop     0 1 2 3 0 1 2 3            v stages per rank, always in the same direction
    vee      0 1 2 3 3 2 1 0            v stages per rank, alternating in direction
    0,1,1,0                             one rank per stage
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd, lcm
from typing import TypeAlias

import numpy as np

from pipesched.common.features import (
    COPIES,
    EMPTY_RANKS,
    FORWARD_ONLY,
    FROZEN,
    OVERLAP,
    SKIPS,
    SLICES,
    UNEVEN_COSTS,
    WEIGHTS,
    Consumer,
)
from pipesched.diagnostics import Code, fail
from pipesched.model.numbers import Value, require_counts, shown, whole
from pipesched.model.ops import Op, Result
from pipesched.model.placement import Placement
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.solve.problem import Problem, Sizes, build
from pipesched.optimizer.verdict import Terms

SEARCHED = Consumer(
    "the optimizer",
    "improve",
    OptimizerCode.NOT_OPTIMIZED,
    (Op.F, Op.I, Op.W, Op.B),
    (COPIES, EMPTY_RANKS, FORWARD_ONLY, FROZEN),
    help="omit the schedule; give its placement with `--placement FILE`, and the sizes",
    because={},
    helps={
        OVERLAP: "use `--overlap` to decide pairs too, or give the placement with `--placement FILE`, and the sizes",
        UNEVEN_COSTS: "give this cost with --cost, as one number or as one number per stage",
    },
)
"""Schedules for which the optimizer searches all orders on the placement and proves lower bounds."""
OPTIMIZER = replace(
    SEARCHED,
    kinds=(*SEARCHED.kinds, Op.R, Op.O, Op.L),
    knows=(*SEARCHED.knows, OVERLAP, WEIGHTS, SKIPS, SLICES, UNEVEN_COSTS),
)
"""Schedules for which the optimizer searches at least the orders of their own operations (`optimizer.own`)."""
BOUNDED = replace(SEARCHED, knows=(COPIES, EMPTY_RANKS, OVERLAP))
"""Schedules for which the optimizer's bounds are valid if an overlap pair takes as long as its parts."""

NO_CAP = 2**40  # parts; more than any schedule holds
PLACEMENTS = ("linear", "loop", "vee")
ANY = "any"  # the best of these
MAX_OPS = 2_000_000

Asked: TypeAlias = str | tuple[int, ...] | Placement | None


@dataclass(frozen=True, eq=False)
class Instance(Terms):
    """The terms of an optimization, for every m. of_one: bytes per unit of peaks, for caps in bytes."""

    of_one: Fraction | None = None

    def problem(self, microbatches: int | None = None) -> Problem:
        """Build the problem for the placement's number of microbatches or, with one route, for another number.

        Raises:
            PipeschedError: PS222: the costs do not fit the placement. PS225: the objective is undefined for the
                placement.
        """
        placement = self.placement if microbatches is None else _of(self.placement, microbatches)
        made = build(placement, self._sizes(), fused=self.fused, objective=self.objective)
        common = gcd(*made.duration.tolist(), *made.lag.tolist()) or 1  # the longest tick is enough
        made = replace(made, scale=made.scale / common, duration=made.duration // common, lag=made.lag // common)
        return replace(made, unit=self.costs.unit)

    def at(self, microbatches: int) -> Instance:
        """Return the instance with another number of microbatches."""
        return replace(self, placement=_of(self.placement, microbatches))

    @property
    def rounded(self) -> tuple[Fraction, ...] | None:
        """The caps, rounded down to multiples of the smallest amount that can be taken or freed."""
        grain = self.grain
        return None if self.caps is None else tuple(cap // grain * grain for cap in self.caps)

    @property
    def grain(self) -> Fraction:
        """The smallest amount of memory that can be taken or freed."""
        sizes = self._sizes()
        amounts = [int(x) for column in (*sizes.takes.values(), *sizes.frees.values()) for x in column if x]
        return sizes.part * (gcd(*amounts) if amounts else 1)

    def _sizes(self) -> Sizes:
        stages = self.placement.stages
        ticks = self.costs.ticks(stages)
        held = self.costs.sizes(stages)
        shares = {Op.F: Fraction(1), Op.I: self.release.at_input, Op.W: self.release.at_weight, Op.B: Fraction(1)}
        fine = lcm(*((x * share).denominator for x in held for share in shares.values()))
        parts = {op: np.array([int(x * share * fine) for x in held], dtype=np.int64) for op, share in shares.items()}
        kept, trained = self.placement.wants[Result.GRADIENT], self.placement.wants[Result.WEIGHTS]
        parts[Op.I] = np.where(trained, parts[Op.I], parts[Op.F])
        runs = {Op.F: np.ones(stages, dtype=np.int64), Op.I: kept, Op.W: trained, Op.B: kept}
        parts = {op: x * (trained if op == Op.W else kept) for op, x in parts.items()}
        part = Fraction(self.placement.ranks, stages) / fine
        caps = self.caps or (None,) * self.placement.ranks
        return Sizes(
            Fraction(ticks.scale),
            {op: ticks.compute[op] * runs[op] for op in parts},
            ticks.message,
            part,
            {Op.F: parts.pop(Op.F)},
            frees=parts,
            cap=np.array([NO_CAP if cap is None else int(min(cap // part, NO_CAP)) for cap in caps], dtype=np.int64),
            answered=kept,
        )

    @property
    def lacking(self) -> str:
        """The reason why a rank whose stages have no backward cannot run an F under its cap; empty if all ranks can."""
        kept, sizes = self.placement.wants[Result.GRADIENT], self.costs.sizes(self.placement.stages)
        for rank, cap in enumerate(self.caps or ()):
            for _, stage in self.placement.chunks(rank):
                need = sizes[stage] * Fraction(self.placement.ranks, self.placement.stages)
                if not kept[stage] and need > cap:
                    return f"F of stage {stage} holds {shown(need)}, over the cap of rank {rank}"
        return ""


def _of(placement: Placement, microbatches: int) -> Placement:
    routes = np.zeros(microbatches, dtype=placement.route_of.dtype)
    return replace(placement, route_of=routes)


def sizes_of(asked: Asked, parameters: Mapping[str, Value]) -> dict[str, int]:
    """Return p, v and m, which default to 4, 1 (2 for a loop or vee) and 2p. There is no v if the placement lists
    ranks.

    Raises:
        PipeschedError: PS208, PS225: the sizes are invalid, or there are too many operations.
    """
    unknown = sorted(set(parameters) - {"p", "v", "m"})
    if unknown:
        raise fail(Code.PARAMETER_UNKNOWN, f"the parameters of a placement are p, v and m, not {', '.join(unknown)}")
    given = whole(parameters)
    if isinstance(asked, Placement):
        return {"p": asked.ranks, "m": asked.microbatches}
    p = given.get("p", max(asked) + 1 if isinstance(asked, tuple) and asked else 4)
    sizes = {"p": p, "v": given.get("v", 2 if asked in ("loop", "vee") else 1), "m": given.get("m", 2 * p)}
    require_counts(sizes.items())
    stages = p * sizes["v"]
    if isinstance(asked, tuple):
        _check_listed(asked, given, p)
        stages = len(asked)
        del sizes["v"]
    operations = 3 * stages * sizes["m"]
    if operations > MAX_OPS:
        raise fail(Code.USAGE, f"{operations:,} operations are too many; at most {MAX_OPS:,} can be optimized")
    return sizes


def placement_at(asked: Asked, sizes: Mapping[str, int]) -> Placement:
    """Make the placement at these sizes.

    Raises:
        PipeschedError: PS225: a linear placement has several stages per rank.
    """
    if isinstance(asked, Placement):
        return asked
    p, m = sizes["p"], sizes["m"]
    if isinstance(asked, tuple):
        ranks = list(asked)
    else:
        v = sizes["v"]
        name = asked or ("linear" if v == 1 else "loop")
        if name == "linear" and v != 1:
            raise fail(Code.USAGE, f"a linear placement has one stage per rank, but v is {v}", help="use loop or vee")
        turn = list(range(p))
        ranks = [r for chunk in range(v) for r in (turn if name != "vee" or chunk % 2 == 0 else turn[::-1])]
    return Placement(np.array([ranks], dtype=np.int32), np.zeros(m, dtype=np.int32), p, ("",))


def _check_listed(ranks: tuple[int, ...], given: Mapping[str, int], p: int) -> None:
    """Refuse a list of ranks that lacks a rank, names a rank that does not exist, or has a length other than p * v."""
    listed = ",".join(map(str, ranks[:16])) + (",…" if len(ranks) > 16 else "")
    missing = sorted(set(range(min(p, len(ranks) + 1))) - set(ranks))
    beyond = [rank for rank in ranks if not 0 <= rank < p]
    if missing or beyond:
        wrong = f"rank {missing[0]} has no stage" if missing else f"rank {beyond[0]} does not exist"
        raise fail(Code.USAGE, f"{listed} is not a placement on {p} ranks: {wrong}", help="use all ranks below p")
    if given.get("v", 1) * p != len(ranks) and "v" in given:
        raise fail(Code.USAGE, f"the placement {listed} has {len(ranks)} stages, not p * v = {given['v'] * p}")
