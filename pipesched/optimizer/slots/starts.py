"""Initial orders when F can run again: the best order without R, and 1F1B with recomputation on its first stages.

A rank of 1F1B begins with w F, as many as its cap and the previous rank allow, then repeats F, R, I, W:

    held before an R    w K + M        if its F run again
    held after an F     (w + 1) M      if not
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from pipesched.diagnostics import PipeschedError
from pipesched.model.ops import Compute, Op
from pipesched.model.schedule import Schedule
from pipesched.optimizer.printed import read_back
from pipesched.optimizer.proof.slot_terms import EACH, STAGES, backwards
from pipesched.optimizer.solve.instance import Instance
from pipesched.optimizer.solve.meter import Meter

if TYPE_CHECKING:
    from pipesched.optimizer.optimize_report import Ask
    from pipesched.optimizer.optimize_request import Request

_PLAIN = 0.1  # part of the time for the best order without R


def starts(request: Request, instance: Instance, ask: Ask, meter: Meter) -> Iterator[tuple[str, Schedule]]:
    """Yield orders with their names; some orders can exceed the caps."""
    yield from request.seeds
    if not request.recompute:
        return
    placement, free = instance.placement, instance.again in (EACH, STAGES)
    if free and request.source is None:
        with meter.part(_PLAIN) as part, suppress(PipeschedError):
            found = ask(replace(request, recompute=None, overlap=False), part)
            yield "no R", replace(read_back(found.source).schedule, name=request.name)
    if placement.routes > 1 or placement.rank_of[0].tolist() != [*range(placement.ranks)]:
        return
    given = [] if free else [int(stage) for stage in instance.again.split(",")]
    for first in range(placement.stages + 1) if free else (0,):
        stages = {*range(first), *given}
        yield f"1F1B, R on {len(stages)} stages", _one_f_one_b(instance, stages, request.name)


def _one_f_one_b(instance: Instance, stages: set[int], name: str) -> Schedule:
    placement, m, warmup = instance.placement, instance.placement.microbatches, instance.placement.microbatches
    sizes, small = instance.costs.sizes(placement.stages), instance.costs.kept(placement.stages).column
    orders = []
    for rank in range(placement.ranks):
        warmup = min(
            warmup, placement.ranks - 1 - rank, _room(instance, rank, sizes[rank], small[rank], rank in stages)
        )
        later = ([Op.R] if rank in stages else []) + [op for op in (Op.I, Op.W, Op.B) if op in backwards(instance)]
        later = [op for op in later if op is not Op.B or Op.I not in later]
        order = [Compute(Op.F, rank, i) for i in range(warmup)]
        for i in range(m):
            order += [Compute(Op.F, rank, i + warmup)] if i + warmup < m else []
            order += [Compute(op, rank, i) for op in later]
        orders.append(order)
    return Schedule.from_orders(orders, placement, name)


def _room(instance: Instance, rank: int, size: Fraction, small: Fraction, again: bool) -> int:
    """Return the largest number of F with which a rank can begin under its cap."""
    if instance.caps is None or (again and not small):
        return instance.placement.microbatches
    cap = instance.caps[rank]
    return max(0, int((cap - size) / small if again else cap / size - 1)) if size else instance.placement.microbatches
