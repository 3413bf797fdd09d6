"""Placement of stages on ranks.

The placement is a table: `rank_of[route, stage]` is the rank that holds the route's copy of the stage, and every
microbatch takes one route. Every placement in the literature is such a table (here 4 ranks):

    linear   0 1 2 3                    GPipe, 1F1B, zero bubble
    looped   0 1 2 3 0 1 2 3            interleaved 1F1B
    vee      0 1 2 3 3 2 1 0            ZB-V, DualPipeV
    two-way  0 1 2 3  and  3 2 1 0      DualPipe, Chimera: two routes, each with its own copy of every stage

A stage reads the activation of the stage before it, unless the file names others (merging branches, skip connections).
Reads are a property of the model, so they are the same on every route. Here stages 2 and 3 read two stages, and 0 and 1
have two readers:

    0 ──> 1 ──> 2 ──> 3
    │     └───────────^
    └───────────^

The weights of a frozen stage are not trained. For every stage, the earlier stages determine which results are made, and
by which kinds of operation; a stage is *fed* if any earlier stage is trained:

    trained                F, R, O, L, and B or I and W   no stage takes the gradient of the first trained stage
    frozen and fed         F, R, O, L and I               its B is an I, and it has no W
    frozen and not fed     F                              it receives no gradient, and keeps no activation
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property

import numpy as np

from pipesched.model.columns import Bools, Column, Ints
from pipesched.model.ops import BEFORE, COMPUTES, SAME, Result, making
from pipesched.stream import meetings
from pipesched.support.record import Record

RANKS, OPS_A_RANK = 10_000, 200
STAGES, OPS_A_STAGE = 100_000, 20


def most_ranks(max_ops: int) -> int:
    """Return the limit on the number of ranks: enough for any cluster, and higher if more operations are allowed."""
    return max(RANKS, max_ops // OPS_A_RANK)


def most_stages(max_ops: int) -> int:
    """Return the limit on the number of stages, derived like that of `most_ranks`."""
    return max(STAGES, max_ops // OPS_A_STAGE)


class Placement(Record):
    """The rank that runs each stage for each microbatch.

    rank_of: the rank of each route's copy of each stage, or -1; shape (routes, stages). route_of: the route of each
    microbatch; shape (microbatches,). ranks: the number of ranks. frozen: the stages that are not trained, ascending.
    reads: for stages that do not read exactly the previous stage, the stages that they read, the nearest first; -1 is
    the input of the model. slices: the number of consecutive microbatches that are the slices of one sequence.
    left_out: whether rank -1 means that the route skips the stage, whose reader then takes the stage's inputs. shared:
    if the file places single microbatches, a number for each route: on a rank, copies of a stage whose routes have the
    same number are one chunk.
    """

    rank_of: Column
    route_of: Column
    ranks: int
    route_names: tuple[str, ...] = ()
    frozen: tuple[int, ...] = ()
    reads: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    slices: int = 1
    left_out: bool = False
    shared: tuple[int, ...] = ()

    def __repr__(self) -> str:
        rows = [" ".join(map(str, row[:16].tolist())) + (" …" if len(row) > 16 else "") for row in self.rank_of[:4]]
        more = " …" if self.routes > 4 else ""
        return f"<Placement of {self.stages} stages on {self.ranks} ranks: {' | '.join(rows)}{more}>"

    @property
    def routes(self) -> int:
        return int(self.rank_of.shape[0])

    @property
    def stages(self) -> int:
        return int(self.rank_of.shape[1])

    @property
    def microbatches(self) -> int:
        return len(self.route_of)

    def read(self, stage: int) -> tuple[int, ...]:
        """Return the stages whose activations a stage takes, the nearest first."""
        return tuple(x for x in self.reads.get(stage, (stage - 1,)) if x >= 0)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """The stages that take the activation of each stage, the nearest first."""
        found: list[list[int]] = [[] for _ in range(self.stages)]
        for stage in range(self.stages):
            for source in self.read(stage):
                found[source].append(stage)
        return tuple(map(tuple, found))

    @cached_property
    def chain(self) -> bool:
        """True if every stage reads the stage before it and no other."""
        return not (self.reads or self.left_out)

    @property
    def skip(self) -> str:
        """Text that names the first stage that does not read exactly the previous stage."""
        if self.left_out:
            return "route {} skips stage {}".format(*np.argwhere(self.rank_of < 0)[0].tolist())
        stage = min(self.reads)
        named = [f"stage {x}" if x >= 0 else "the input of the model" for x in self.reads[stage]]
        return f"stage {stage} reads {' and '.join(named)}"

    def neighbours(self, of: int) -> tuple[Ints, Ints, Ints]:
        """Return the stages from which each stage takes a result: the nearest one (-1 for none); the others of all
        stages, stage by stage; and the index at which each stage's others begin, shape (stages + 1,).

        of: BEFORE for the stages that a stage reads, SAME for the stage itself, BEHIND for those that read it.
        """
        if of == SAME or self.chain:
            nearest = np.arange(of, self.stages + of)
            nearest[nearest >= self.stages] = -1
            return nearest, nearest[:0], np.zeros(self.stages + 1, dtype=np.int64)
        lists = [self.read(s) for s in range(self.stages)] if of == BEFORE else self.readers
        nearest = np.array([x[0] if x else -1 for x in lists], dtype=np.int64)
        others = np.array([y for x in lists for y in x[1:]], dtype=np.int64)
        return nearest, others, np.cumsum([0, *(len(x[1:]) for x in lists)], dtype=np.int64)

    @cached_property
    def wants(self) -> Mapping[Result, Bools]:
        """For each result, a mask of the stages that need it if they have a backward; shape (stages,)."""
        trained, fed = np.ones(self.stages, dtype=np.bool_), np.zeros(self.stages, dtype=np.bool_)
        trained[list(self.frozen)] = False
        for stage in range(self.stages) if self.frozen else ():
            fed[stage] = any(trained[before] or fed[before] for before in self.read(stage))
        wants = dict.fromkeys(Result, trained | fed)  # all other results are made for a backward
        return {**wants, Result.ACTIVATION: np.ones(self.stages, dtype=np.bool_), Result.WEIGHTS: trained}

    @cached_property
    def wanted(self) -> Column:
        """For each kind and stage, the kind that makes only the needed results, or -1; shape (computes, stages)."""
        kinds = np.full((len(COMPUTES), self.stages), -1, dtype=np.int8)
        alike, at = np.unique(np.stack([self.wants[x] for x in Result]), axis=1, return_inverse=True)
        for number, wants in enumerate(alike.T):
            for op in COMPUTES:
                left = making([x for x in op.kind.makes if wants[x]])
                kinds[op, at.reshape(-1) == number] = -1 if left is None else left
        return kinds

    @cached_property
    def table(self) -> Column:
        """The table rank[stage, microbatch], shape (stages, microbatches)."""
        return np.ascontiguousarray(self.rank_of[self.route_of].T)

    def copies(self, stage: int) -> tuple[int, ...]:
        """Return the ranks that hold a copy of the stage, ascending."""
        return tuple(sorted({int(r) for r in self.rank_of[:, stage] if r >= 0}))

    def meetings(self, stage: int) -> list[tuple[int, int]]:
        """Return, in order, the pairs of ranks that add up their gradients of a stage until all have the sum."""
        return meetings(self.copies(stage))

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """The first microbatch and the end of every route, if the microbatches of a route are consecutive."""
        found = [np.flatnonzero(self.route_of == route) for route in range(self.routes)]
        return [(int(x[0]), int(x[-1]) + 1) if len(x) else (0, 0) for x in found]

    def chunks(self, rank: int) -> list[tuple[int, int]]:
        """Return (route, stage) for every chunk of a rank, by route, then by stage."""
        order, first = self.by_rank
        held = order[first[rank] : first[rank + 1]]
        return [divmod(int(x), self.stages) for x in held]

    @cached_property
    def by_rank(self) -> tuple[Column, Column]:
        """The chunks (route * stages + stage) of all ranks, and the index at which each rank's chunks begin; shape
        (ranks + 1,).
        """
        flat = self.rank_of.ravel()
        order = np.argsort(flat, kind="stable")
        return order, np.searchsorted(flat[order], np.arange(self.ranks + 1))

    @property
    def bidirectional(self) -> bool:
        """True if some stage is on more than one rank."""
        if self.routes == 1:
            return False
        known = self.rank_of >= 0
        lowest = np.where(known, self.rank_of, self.ranks).min(axis=0)
        return bool(np.any(known & (self.rank_of != lowest)))
