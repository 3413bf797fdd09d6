"""Orders that follow from a rule instead of a list: a free rank runs the first line of its `greedy` block that can run.

    rank r { greedy { B[1]  B[0]  F[1]  F[0] when held < cap } }

All ranks share one clock. At each instant operations end, then messages arrive, then every free rank starts an
operation if it can, until no rank can. The times of operations and messages come from the costs in the file (without
costs, 1 per result), never from the command line, so the order depends only on the file and its parameters. Ranks
without a `greedy` block run their list on the same clock; so do operations that precede the block in a program.

An operation can run once its inputs are made and, if they come from another rank, have arrived. `held` is the memory
that the rank holds if W frees it (`model.release`); conditions are read only when the rank is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from typing import TypeAlias

import numpy as np

from pipesched.diagnostics import Code, Label, PipeschedError, fail
from pipesched.language.execution import Budget, Halt, report
from pipesched.language.operations import Emitter, Rule
from pipesched.language.typecheck import Checked
from pipesched.model.columns import Ints
from pipesched.model.costs import Costs
from pipesched.model.ops import BEFORE, BEHIND, COMPUTES, Op, Result
from pipesched.model.placement import Placement
from pipesched.model.release import AT_W

ASKED = 400  # parts of expressions charged for asking whether a line can run, which takes as long
Part: TypeAlias = tuple[Op, int, int]  # kind, stage and microbatch
Made: TypeAlias = tuple[Result, int, int]
_SHOWN = 8  # most lines of a standstill
_FALSE = "its condition is false"


class Clock:
    """Runs all ranks on one clock.

    free: the time at which each rank is next free; done: the number of entries of each rank's list that have started;
    made: the time at which each result of a stage and microbatch is ready.
    """

    def __init__(
        self, emitters: Sequence[Emitter], placement: Placement, costs: Costs, checked: Checked, budget: Budget
    ) -> None:
        self.emitters, self.placement, self.checked, self.budget = emitters, placement, checked, budget
        self.sites = sites = checked.sites
        self.microbatches = placement.microbatches
        ticks = costs.ticks(placement.stages, self.microbatches)
        self.scale, self.pairs = ticks.scale, {key: _full(each, placement) for key, each in ticks.pair.items()}
        self.times, self.delays = [_full(row, placement) for row in ticks.compute], _full(ticks.message, placement)
        self.rank_of = placement.table.tolist()
        every = [(placement.read(s), (s,), placement.readers[s]) for s in range(placement.stages)]
        self.near = [_near(placement, route) if placement.left_out else every for route in range(placement.routes)]
        sizes = costs.held(placement.stages, self.microbatches)
        self.sizes = np.broadcast_to(sizes.whole, placement.table.shape).tolist()
        for emitter in emitters:
            emitter.part = Fraction(placement.ranks, placement.stages * sizes.scale)
        self.run_by = [emitter.functions() for emitter in emitters]
        self.second = [set(emitter.second) for emitter in emitters]
        self.free, self.done = [0] * len(emitters), [0] * len(emitters)
        backward = any(Result.GRADIENT in Op[site.op].kind.makes for site in sites)
        keeps = (placement.wants[Result.GRADIENT] & backward).tolist()
        trained = placement.wants[Result.WEIGHTS].tolist()
        self.changes = [
            [int(AT_W.change(op, trained=trained[s])) * keeps[s] for s in range(placement.stages)] for op in COMPUTES
        ]
        self.route_of = placement.route_of.tolist()
        self.made: dict[Made, int] = {}
        self.now = 0

    def run(self) -> list[list[int]]:
        """Complete the lists of all ranks; return an empty list, since no operation changes position.

        Raises:
            PipeschedError: PS229: operations are left, but none can run. PS2xx: a condition is invalid.
        """
        self.events = [(0, emitter.rank) for emitter in self.emitters]
        heapify(self.events)
        while self.events:
            self.now = self.events[0][0]
            awake = set()
            while self.events and self.events[0][0] == self.now:
                awake.add(heappop(self.events)[1])
            for rank in sorted(awake):
                if self.free[rank] <= self.now:
                    self._wake(rank)
        if left := [labels for emitter in self.emitters if (labels := [*self._reasons(emitter)])]:
            raise self._standstill(left)
        return []

    def _wake(self, rank: int) -> None:
        """Start what the rank can start now: the next slot of its list, or the first line of its block that can run."""
        emitter, first = self.emitters[rank], self.done[rank]
        if first == len(emitter.sites):
            line = next((line for line in emitter.rules if self._can(emitter, line)), None)
            if line is None:
                return
            self.run_by[rank][line.op.name](line.site, line.chunk)
        slot = [self._entry(emitter, i) for i in range(first, first + 1 + (first + 1 in self.second[rank]))]
        if not any(self._waits(rank, op, key) for op, key in slot):
            self.done[rank] += len(slot)
            self._start(emitter, [part for op, key in slot if (part := self._part(op, key)) is not None])

    def _entry(self, emitter: Emitter, at: int) -> tuple[Op, int]:
        """Return the kind and the key of an entry of a rank's list."""
        return Op[self.sites[emitter.sites[at]].op], emitter.keys[at]

    def _can(self, emitter: Emitter, line: Rule) -> bool:
        try:
            self.budget.pay(ASKED)
        except Halt as spent:
            here = Label(self.sites[line.site].span, f"rank {emitter.rank} exceeds the step limit here")
            raise fail(spent.code, spent.message, here, help=spent.help) from None
        entry = emitter.upcoming(line.op, line.chunk)
        if entry is None or self._waits(emitter.rank, line.op, emitter.key(entry)):
            return False
        try:
            return line.when is None or bool(line.when())
        except (ZeroDivisionError, Halt) as error:
            checked = self.checked
            raise report(error, checked.file.span.source, f"rank {emitter.rank}", checked.loops) from None

    def _part(self, op: Op, key: int) -> Part | None:
        """Return the kind that the stage runs, the stage and the microbatch; None if a frozen stage skips it."""
        stage, microbatch = divmod(key, self.microbatches)
        wanted = int(self.placement.wanted[op, stage]) if self.placement.frozen else op
        return (Op(wanted), stage, microbatch) if wanted >= 0 else None

    def _waits(self, rank: int, op: Op, key: int) -> list[Made]:
        """Return the missing results for which an operation waits, each with stage and microbatch."""
        part = self._part(op, key)
        taken = self._inputs(part) if part else []
        return [x for x in taken if x not in self.made or self.made[x] + self._delay(x, rank) > self.now]

    def _inputs(self, part: Part) -> list[Made]:
        """Return the results that an operation needs, each with stage and microbatch."""
        kind, stage, microbatch = part[0].kind, *part[1:]
        near = self.near[self.route_of[microbatch]][stage][kind.of - BEFORE]
        if not near and kind.own is not None:
            return [(kind.own, stage, microbatch)]
        return [(part[0].result, x, microbatch) for x in near]

    def _delay(self, made: Made, rank: int) -> int:
        """Return the time that a result takes to reach a rank."""
        _, stage, microbatch = made
        return 0 if self.rank_of[stage][microbatch] == rank else self.delays[stage][microbatch]

    def _duration(self, parts: Sequence[Part]) -> int:
        if pair := self.pairs.get("".join(op.name for op, _, _ in parts)):
            return pair[parts[0][1]][parts[0][2]]
        return sum(self.times[op][stage][microbatch] for op, stage, microbatch in parts)

    def _start(self, emitter: Emitter, parts: Sequence[Part]) -> None:
        self.free[emitter.rank] = end = self.now + self._duration(parts)
        heappush(self.events, (end, emitter.rank))
        for op, stage, microbatch in parts:
            chunk = emitter.chunk_of[self.route_of[microbatch], stage]
            emitter.holds[chunk] += self.changes[op][stage] * self.sizes[stage][microbatch]
            for result in op.kind.makes:
                made = result, stage, microbatch
                self.made[made] = end
                takers = self.near[self.route_of[microbatch]][stage][
                    (BEHIND if result is Result.ACTIVATION else BEFORE) - BEFORE
                ]
                for rank in {self.rank_of[x][microbatch] for x in takers}:
                    heappush(self.events, (end + self._delay(made, rank), rank))

    def _standstill(self, left: list[list[Label]]) -> PipeschedError:
        labels = sorted(chain.from_iterable(left), key=lambda label: not label.message.endswith(_FALSE))
        message = (
            f"`greedy` gets stuck at time {Fraction(self.now, self.scale)}: "
            f"{len(left)} of {len(self.emitters)} ranks have operations left, but no line can run"
        )
        more = (f"and {len(labels) - _SHOWN} more lines",) if len(labels) > _SHOWN else ()
        help = "relax a condition (for example, let the rank hold more), or add a line that can run"
        return fail(Code.GREEDY, message, *labels[:_SHOWN], help=help, notes=more)

    def _reasons(self, emitter: Emitter) -> Iterator[Label]:
        """Yield, for each line with operations left on a rank, a label with the reason why it cannot run."""
        done = self.done[emitter.rank]
        upcoming = ((line.site, emitter.upcoming(line.op, line.chunk)) for line in emitter.rules)
        left = [(site, emitter.key(entry)) for site, entry in upcoming if entry is not None]
        if done < len(emitter.sites):
            left = [(emitter.sites[done], emitter.keys[done])]
        for site, key in left:
            written, (stage, microbatch) = self.sites[site], divmod(key, self.microbatches)
            why = _FALSE
            for result, of, i in self._waits(emitter.rank, Op[written.op], key)[:1]:
                why = f"waits for the {result.words} of stage {of}, microbatch {i}"
            yield Label(written.span, f"rank {emitter.rank}: {written.op}{stage}.{microbatch}: {why}")


def _near(placement: Placement, route: int) -> list[tuple[tuple[int, ...], ...]]:
    """Return, for each stage, the previous stage, the stage itself and the next stage on a route."""
    runs: list[int] = np.flatnonzero(placement.rank_of[route] >= 0).tolist()
    before, behind = dict(zip(runs[1:], runs, strict=False)), dict(pairwise(runs))
    return [tuple((x[s],) if s in x else () for x in (before, {s: s}, behind)) for s in range(placement.stages)]


def _full(table: Ints, placement: Placement) -> list[list[int]]:
    """Return a table by stage and microbatch; restore the microbatch axis if it was omitted for equal microbatches."""
    whole: list[list[int]] = np.broadcast_to(table.T, placement.table.T.shape).T.tolist()
    return whole
