"""`optimize --lost R`: the order of the remaining ranks. Source: ReCycle, arXiv:2405.14009.

    3 pipelines of 3 ranks, 6 microbatches each; rank 4 is lost: the other copies of its stage 1 take equal parts

    stage         0  1  2
    pipeline 0    0  1  2    6 microbatches
    pipeline 1    3  1  5    3
                  3  7  5    3
    pipeline 2    6  7  8    6

In the answer, ranks after R are numbered one lower. A cap keeps its number of bytes: with p ranks per pipeline and q
ranks left in all pipelines, the activation of 1/p of the model counts as q/p in the unit of the answer. As before the
loss, gradients are summed over all copies of a stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.numbers import digits, exact, shown
from pipesched.model.placement import Placement
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.optimize_report import Ask, Optimum
from pipesched.optimizer.optimize_request import Request, target_of
from pipesched.optimizer.solve.instance import MAX_OPS
from pipesched.optimizer.solve.meter import Meter
from pipesched.planning.workload import Workload

_WHOLE = 0.3  # part of the time for the order of all ranks, with which the answer is compared


@dataclass(frozen=True, eq=False)
class Lost:
    """The loss of a rank. ranks: the number of ranks before the loss; pipelines: the number of pipelines that train the
    model, each as in the request.

    peers: the ranks that take over its F and backwards; moved: the number of these F; whole: the answer with all ranks;
    peak: the peak of each remaining rank, in the unit of the request.
    """

    rank: int
    ranks: int
    pipelines: int
    peers: tuple[int, ...]
    moved: int
    whole: Optimum
    peak: tuple[Fraction, ...]

    def lines(self, makespan: Fraction | None) -> list[str]:
        """Return lines with the lost rank, the time of a step without it, and the peaks."""
        said, before = self.whole.instance.costs.unit.text, self.whole.makespan
        peers = [*map(str, self.peers)]
        peers = [*peers[:4], "…", peers[-1]] if len(peers) > 8 else peers
        on = f"rank{'s'[: len(peers) > 1]} {', '.join(peers)}"
        lower = (
            f"; in the schedule, ranks after {self.rank} are numbered one lower" if self.rank + 1 < self.ranks else ""
        )
        lines = [f"without rank {self.rank}: its {self.moved} F and their backwards run on {on}{lower}"]
        if before and makespan is not None:
            lines.append(
                f"until it returns, a step takes {said(makespan)}, but {said(before)} with all {self.ranks} ranks "
                f"({self.whole.status}): {said(makespan - before)} more, or {digits(makespan / before)} times as long"
            )
        caps = self.whole.instance.caps
        most, cap = shown(max(self.peak, default=Fraction(0))), "none" if caps is None else shown(max(caps))
        ranks = self.whole.instance.placement.ranks
        share = f"1/{ranks} of the model" if ranks > 1 else "the model"
        return [*lines, f"peak {most}, cap {cap}, in microbatches through {share}: the same unit as with all ranks"]

    def to_json(self, makespan: Fraction | None) -> dict[str, object]:
        """Return the entry `lost` of an answer."""
        before = self.whole.makespan
        ratio = makespan / before if makespan is not None and before else None
        return {
            **{name: getattr(self, name) for name in ("rank", "ranks", "pipelines")},
            "peers": list(self.peers),
            "microbatches": self.moved,
            "status": self.whole.status,
            **exact(makespan=before, ratio=ratio, peak=self.peak),
        }


def without(request: Request, ask: Ask, meter: Meter) -> Optimum:
    """Find the best order of the remaining ranks, and compare it with the best order of all ranks.
    ask: function that optimizes a request. meter: counts steps up to the limit.

    Raises:
        PipeschedError: PS225: there is no such rank. PS702: a stage of the rank has no copy on another rank. Also the
            errors of `optimize`.
    """
    assert request.lost is not None
    rank, pipelines = request.lost
    if request.workload.cap is not None:
        raise fail(Code.USAGE, "with --lost, a cap must be in activations", help="give a number, such as --mem-cap 4")
    request = replace(request, lost=None)
    instance = target_of(request).instance
    one = instance.placement
    if (operations := 3 * one.stages * one.microbatches * pipelines) > MAX_OPS:
        raise fail(Code.USAGE, f"{operations:,} operations are too many; at most {MAX_OPS:,} can be optimized")
    placement = side_by_side(one, pipelines)
    left, peers = placement_without(placement, rank)
    with meter.part(_WHOLE) as part:
        whole = ask(replace(request, limits=replace(request.limits, proof=None)), part)
    if whole.analysis is None:
        return whole
    unit = Fraction(left.ranks, one.ranks)
    caps = None if instance.caps is None else [unit * cap for cap in instance.caps * pipelines]
    answer = ask(
        replace(
            request,
            source=None,
            parameters={},
            settings={},
            placement=left,
            workload=Workload(),
            costs=instance.costs,
            fused=instance.fused,
            mem_cap=None if caps is None else (*caps[:rank], *caps[rank + 1 :]),
            name=f"without_rank_{rank}",
        ),
        meter,
    )
    rows = placement.rank_of[placement.route_of]
    peak = tuple(x / unit for x in answer.peak)
    lost = Lost(rank, placement.ranks, pipelines, peers, int((rows == rank).sum()), whole, peak)
    return replace(answer, lost=lost)


def side_by_side(placement: Placement, pipelines: int) -> Placement:
    """Return the placement of several copies of a pipeline, each with its own ranks and microbatches."""
    if pipelines == 1:
        return placement
    ranks, routes = placement.ranks, placement.routes
    names = placement.route_names if routes > 1 else ("pipe",)
    return replace(
        placement,
        rank_of=np.concatenate([placement.rank_of + k * ranks for k in range(pipelines)]).astype(np.int32),
        route_of=np.concatenate([placement.route_of + k * routes for k in range(pipelines)]).astype(np.int32),
        ranks=pipelines * ranks,
        route_names=tuple(f"{name}{k}" for k in range(pipelines) for name in names),
    )


def placement_without(placement: Placement, rank: int) -> tuple[Placement, tuple[int, ...]]:
    """Return the placement on the remaining ranks, and the ranks that take over microbatches of the lost rank.

    Raises:
        PipeschedError: PS225: there is no such rank. PS702: a stage of the rank has no copy on another rank.
    """
    if not 0 <= rank < placement.ranks:
        message = f"rank {rank} cannot be lost: the ranks are 0 to {placement.ranks - 1}"
        raise fail(Code.USAGE, message, help="give one of these ranks, or the number of pipelines with --pipelines")
    peers = _peers(placement, rank)
    rows: list[list[int]] = []
    names: list[str] = []
    taking: set[int] = set()
    of = np.empty_like(placement.route_of)
    for route, row in enumerate(placement.rank_of.tolist()):
        name = (
            placement.route_names[route] if placement.route_names and placement.route_names[route] else f"route{route}"
        )
        mine = np.flatnonzero(placement.route_of == route)
        shares = max((len(peers[stage]) for stage, at in enumerate(row) if at == rank), default=1)
        for j, part in enumerate(np.array_split(mine, shares)):
            if len(part):
                of[part] = len(rows)
                names.append(name if shares == 1 else f"{name}_{j}")
                now = [peers[s][j % len(peers[s])] if at == rank else at for s, at in enumerate(row)]
                taking.update(x for x, at in zip(now, row, strict=True) if at == rank)
                rows.append([x - (x > rank) for x in now])
    made = replace(
        placement,
        rank_of=np.array(rows, dtype=np.int32),
        route_of=of,
        ranks=placement.ranks - 1,
        route_names=tuple(names),
        shared=(),
    )
    return made, tuple(sorted(taking))


def _peers(placement: Placement, rank: int) -> Mapping[int, tuple[int, ...]]:
    """Return, for each stage of a rank, the other ranks that have a copy of the stage."""
    found = {}
    for stage in sorted({stage for _, stage in placement.chunks(rank)}):
        found[stage] = tuple(other for other in placement.copies(stage) if other != rank)
        if not found[stage]:
            message = f"rank {rank} is lost, and no other rank has a copy of stage {stage}"
            help = "give the number of pipelines that train the model: --pipelines 3"
            raise fail(OptimizerCode.NOT_OPTIMIZED, message, help=help)
    return found
