"""A schedule with all derived facts: each fact is derived once, when it is first requested.

    schedule ─── dependencies ──┐
    costs ────── ticks ─────────┴── timeline ──── idle
    release ──── memory                │
    messages ─────────────────────── program ──── pairing ──── verdicts ──── standstill
    model ─────────────────────────────────────────────────────────┴──────── queued

The program is the one in the file or, without one, the lowering of the schedule at these costs. All consumers of a
schedule share this value, so no fact is derived twice; a consumer drops a fact that it no longer needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TypeVar, cast

from pipesched.analysis.communication import STRICT, Model
from pipesched.analysis.copies import Copies
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.holdings import Buffers, Memory, buffers, memory
from pipesched.analysis.idle import Idle, idle
from pipesched.analysis.pairing import Pairing, pair
from pipesched.analysis.queueing import makespan
from pipesched.analysis.standstill import Standstill, cut, of_orders, of_program
from pipesched.analysis.termination import Verdicts, verdicts
from pipesched.analysis.timeline import Timeline, costs_used, timeline
from pipesched.extension import Extended
from pipesched.lower.communicate import communicate
from pipesched.model.costs import Costs, Ticks
from pipesched.model.numbers import over
from pipesched.model.release import AT_W, Release
from pipesched.model.schedule import Program, Schedule

Fact = TypeVar("Fact")
_OF_THE_PROGRAM = frozenset(
    {"program", "messages", "pairing", "verdicts", "queued", "buffers", "standstill", "as_run", "_facts"}
)


@dataclass(frozen=True, eq=False)
class Analysis(Extended):
    """A schedule at its costs, under a release rule and a communication model.

    Reading a fact raises PipeschedError (PS222) if the costs do not fit the schedule, or exceed 64 bits.
    """

    schedule: Schedule
    costs: Costs = field(default_factory=Costs)
    release: Release = AT_W
    model: Model = STRICT

    @property
    def own(self) -> Program | None:
        """The program in the file, None if it gives only the order of compute."""
        return self.schedule.program

    @cached_property
    def dependencies(self) -> Dependencies:
        """The dependencies between operations."""
        return Dependencies.of(self.schedule)

    @cached_property
    def ticks(self) -> Ticks:
        """The costs as integers."""
        return self.costs.ticks(self.schedule.stages, self.schedule.microbatches)

    @cached_property
    def timeline(self) -> Timeline:
        """Start and end of every operation that runs, if messages never queue."""
        return timeline(self.schedule, self.dependencies, self.ticks)

    @cached_property
    def passed(self) -> frozenset[str]:
        """The codes of findings that are known not to occur in the order and its lowered program."""
        return frozenset()

    @cached_property
    def finished(self) -> bool:
        """True if every operation runs, so that no compute orders wait for each other."""
        return self.timeline.finished

    @property
    def makespan(self) -> Fraction:
        """The end of the last operation that runs."""
        return self.time(self.timeline.makespan)

    def time(self, ticks: int) -> Fraction:
        """Return the ticks in the user's unit."""
        return over(int(ticks), self.ticks.scale)

    @cached_property
    def idle(self) -> Idle | None:
        """Work, idle time and span by rank, or None if the order never ends."""
        return idle(self.schedule, self.timeline, self.ticks) if self.finished else None

    @cached_property
    def costs_used(self) -> frozenset[str]:
        """The costs among F, I, W, B and FB on which the times depend."""
        return frozenset(costs_used(self.schedule, self.costs))

    @property
    def remarks(self) -> tuple[str, ...]:
        """The assumptions and other remarks on the costs in use, in words."""
        return tuple(self.costs.remarks(self.costs_used))

    @property
    def rests_on(self) -> tuple[str, ...]:
        """The assumptions among the remarks."""
        note = (self.costs.note,) if self.costs.note else ()
        return (*note, *self.costs.guesses(self.costs_used))

    @cached_property
    def memory(self) -> Memory:
        """The activations that each rank holds after each of its operations."""
        held = self.costs.held(self.schedule.stages, self.schedule.microbatches)
        kept = self.costs.kept(self.schedule.stages, self.schedule.microbatches)
        return memory(self.schedule, self.release, held, kept)

    def peak(self, release: Release) -> tuple[Fraction, ...]:
        """Return every rank's peak activations under another release rule."""
        return (self if release == self.release else replace(self, release=release)).memory.peak

    @cached_property
    def _facts(self) -> dict[Callable[[Analysis], object], object]:
        return {}

    def fact(self, of: Callable[[Analysis], Fact]) -> Fact:
        """Return the fact that a function of an extension derives, once per function."""
        if of not in self._facts:
            self._facts[of] = of(self)
        return cast("Fact", self._facts[of])

    @cached_property
    def program(self) -> Program | None:
        """The file's own program, or the lowering of its order, or None if neither exists."""
        if self.own is not None:
            return self.own
        if not self.finished or not self.dependencies.valid.all():
            return None
        return communicate(self.schedule, self.dependencies, self.timeline)

    @cached_property
    def messages(self) -> int | None:
        """The number of messages of the program, or None without a program."""
        return None if self.program is None else self.program.messages

    @cached_property
    def pairing(self) -> Pairing | None:
        """The pairing of the program's sends and receives."""
        return None if self.program is None else pair(self.program)

    @cached_property
    def verdicts(self) -> Verdicts | None:
        """The verdicts on the program under each communication model."""
        if self.program is None or self.pairing is None:
            return None
        found = verdicts(self.program, self.pairing, self.model)
        if self.model in found.holds:
            self.forget("pairing")  # large, and not needed if the program ends
        return found

    @cached_property
    def queued(self) -> Fraction | None:
        """The makespan with the message queues of the model, or None if the program does not end under the model."""
        verdicts, program = self.verdicts, self.program
        if program is None or verdicts is None or self.model not in verdicts.holds or self.pairing is None:
            return None
        own, copies = self.own is not None, Copies.of(self.schedule, self.dependencies)
        order, ideal = (program.computes, None) if own else (self.schedule, self.timeline)
        return self.time(makespan(self.model, self.pairing, order, self.ticks, copies=copies, ideal=ideal))

    @cached_property
    def buffers(self) -> Buffers | None:
        """The largest number of messages that a rank holds, if the file names its messages."""
        return None if self.own is None else buffers(self.own)

    @cached_property
    def standstill(self) -> Standstill | None:
        """Where the run stops for good: compute orders wait for each other, or messages block under the model."""
        stop = None
        if self.own is not None and self.verdicts is not None and self.model not in self.verdicts.holds:
            stop = of_program(self.own, self.model)
        if self.finished:
            return stop
        orders = of_orders(self.schedule, self.dependencies, self.timeline)
        return orders if stop is None else replace(orders, ran=stop.ran & orders.ran)

    @cached_property
    def as_run(self) -> Timeline:
        """The timeline of the operations that run before the run stops for good."""
        if self.standstill is None:
            return self.timeline
        return timeline(self.schedule, cut(self.dependencies, self.standstill.ran), self.ticks)

    def having(self, own: Program | None) -> Analysis:
        """Return the analysis with another program; facts that do not depend on it are kept."""
        made = replace(self, schedule=self.schedule.with_program(own))
        fields = self.__dataclass_fields__
        kept = {name: fact for name, fact in self.__dict__.items() if name not in _OF_THE_PROGRAM | fields.keys()}
        made.__dict__.update(kept)
        return made

    def forget(self, *facts: str) -> None:
        """Drop facts that are not needed; they are derived again on demand."""
        for fact in facts:
            self.__dict__.pop(fact, None)
