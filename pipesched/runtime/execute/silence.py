"""Judges from the reports of the ranks whether the run makes progress, and whether every rank is present.

    a rank does not report for the timeout                                it is stopped, or its machine is down  PS823
    a rank has left after k steps, another one is in step k + 1, or for
        the timeout in a collective that is not the pipeline's            the loops differ                       PS836
    no rank finishes an instruction for the timeout, and a rank is in a step:
        a rank runs an instruction, and waits for no other                it is the cause                        PS822
        else a rank is outside of a step: optimizer, data loader          it is the cause                        PS822
        else a rank is in a collective that is not the pipeline's         a rank of that group is the cause      PS837
        else all wait for messages                                        they wait in a cycle                   PS822

Times are taken when the judging rank learns of a change, so clocks need not agree. No stall is reported while a rank
has not reported recently: that rank may turn out to be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from pipesched.runtime.execute.errors import (
    OUTSIDE,
    RANK_LOST,
    STALLED,
    STEPS_DIFFER,
    Fault,
    Place,
    fields,
    printable,
    whole,
)
from pipesched.runtime.execute.fingerprints import ranks_text

IDLE, RUNNING, DONE = "between two steps", "runs", "has finished"
_SLOW = "if an instruction takes longer than this, choose a larger timeout"
_CYCLE = "every rank waits for a message: `pipesched verify` on this stream shows the cycle"
_OUTSIDE = "the others wait for this rank, which is outside of the pipeline: in an optimizer, data loader or evaluation"
_SAME = "all ranks must take the same number of steps: compare the loops on the ranks, such as their data loaders"
ELSEWHERE = "look for the missing rank of that group, such as another replica of data parallelism"


@dataclass(frozen=True, slots=True)
class Beat:
    """A beat: the report of a rank about itself.

    state: `IDLE`, `RUNNING` or `DONE`. moves, steps: instructions finished and steps begun so far. at: the line in the
    user's code. outside: whether the rank is in a collective that is not part of the pipeline.
    """

    place: Place
    moves: int = 0
    steps: int = 0
    state: str = IDLE
    at: str = ""
    outside: bool = False

    @classmethod
    def of(cls, data: object) -> Beat:
        """Read a beat from JSON data. The result is safe to print, even from an untrusted sender.

        Raises:
            ValueError: if the data are not a beat.
        """
        try:
            place, moves, steps, at, outside, said = fields(data, "place", "moves", "steps", "at", "outside", "state")
            state = next(state for state in (IDLE, RUNNING, DONE) if state == said)
            return cls(Place.of(place), whole(moves), whole(steps), state, printable(at), outside=bool(outside))
        except (TypeError, KeyError, StopIteration) as error:
            raise ValueError("this is not the report of a rank") from error

    def plain(self) -> dict[str, object]:
        """Return the JSON form, which `of` reads."""
        return asdict(self)

    @property
    def shown(self) -> Place:
        """The place, with the rank's state there."""
        return replace(self.place, waits=self.place.waits or ", ".join(filter(None, (self.state, self.at))))

    def __str__(self) -> str:
        return str(self.shown)


@dataclass
class Silence:
    """The last reports (beats) of all ranks. moved: the time at which a beat last changed. seen: the time of each
    rank's last report. Times are seconds of a monotonic clock. fresh: a rank that has reported within this many seconds
    counts as present.
    """

    timeout: float
    beats: dict[int, Beat] = field(default_factory=dict)
    moved: float = 0.0
    seen: dict[int, float] = field(default_factory=dict)

    @classmethod
    def begin(cls, ranks: int, timeout: float, now: float) -> Silence:
        """Return the initial state, without any report: every rank has the timeout to send one."""
        return cls(timeout, {}, now, dict.fromkeys(range(ranks), now))

    @property
    def fresh(self) -> float:
        return max(self.timeout / 4, 0.2)

    def hear(self, rank: int, beat: Beat, now: float) -> None:
        """Record the beat of a rank."""
        before = self.beats.get(rank)
        if before is None or (before.moves, before.steps, before.state) != (beat.moves, beat.steps, beat.state):
            self.moved = now
        self.beats[rank] = beat
        self.seen[rank] = now

    def judge(self, now: float) -> Fault | None:
        """Return the fault that the heartbeats indicate, if any."""
        silent = {rank: now - at for rank, at in sorted(self.seen.items()) if not self.left(rank)}
        if max(silent.values(), default=0.0) >= self.timeout:
            lost = [rank for rank, time in silent.items() if time >= self.fresh]
            return self.lost(lost, f"no sign of life for {self.timeout:g} s")
        if (early := self._early()) is not None:
            return early
        if not self._stands(now):
            return None
        return self.stalled() if self._in(RUNNING) else self._alone()

    def waits_elsewhere(self, now: float) -> Beat | None:
        """Return the first beat in a user's collective, if all ranks are idle and none has moved for the timeout."""
        outside = [beat for beat in self._in(IDLE) if beat.outside]
        return outside[0] if outside and self._stands(now) and len(self._in(IDLE)) == len(self.seen) else None

    def left(self, rank: int) -> bool:
        """Return True if the rank has announced that it leaves."""
        return rank in self.beats and self.beats[rank].state == DONE

    def stalled(self) -> Fault:
        """Return the fault of a stall: at the blocked rank that caused the stall, or at a rank that waits for it."""
        running = self._in(RUNNING)
        elsewhere = [beat for beat in (*running, *self._in(IDLE)) if beat.outside]
        busy = [beat for beat in running if not beat.place.waits and not beat.outside]
        idle = [beat for beat in self._in(IDLE) if not beat.outside]
        message = f"no progress: no rank finished an instruction for {self.timeout:g} s"
        if busy:
            return Fault(STALLED, message, busy[0].shown if busy[0].at else busy[0].place, help=_SLOW)
        if idle:
            return Fault(STALLED, message, idle[0].shown, help=_OUTSIDE)
        if elsewhere:
            endless = "a collective outside of the pipeline does not end"
            return Fault(OUTSIDE, endless, elsewhere[0].shown, (message,), ELSEWHERE)
        return Fault(STALLED, message, running[0].place, help=_CYCLE)

    def lost(self, ranks: Sequence[int], how: str) -> Fault:
        """Return PS823 for ranks that are gone, at the place that the first of them reported last."""
        known = self.beats.get(ranks[0])
        silent = "it is stopped (SIGSTOP, a debugger, swapping), or its machine cannot be reached"
        ended = "see its own output; a killed rank prints nothing, but the system's log may name it (out of memory)"
        return Fault(
            RANK_LOST,
            f"{ranks_text(ranks)} {'is' if len(ranks) == 1 else 'are'} gone: {how}",
            known.place if known else Place(ranks[0]),
            help=silent if how.startswith("no sign") else ended,
        )

    def places(self, without: Place | None) -> tuple[str, ...]:
        """Return the last known place of each rank, except the rank that the fault names."""
        return tuple(str(beat) for rank, beat in sorted(self.beats.items()) if without is None or rank != without.rank)

    def _early(self) -> Fault | None:
        """Return PS836 if a rank that others need for their step has left."""
        for left in self._in(DONE):
            for other in self._in(RUNNING):
                if other.steps > left.steps:
                    count = f"{left.steps} step{'s' if left.steps != 1 else ''}"
                    here, there = left.place.rank, other.place.rank
                    message = f"rank {here} left after {count}, and rank {there} is in step {other.steps}"
                    return Fault(STEPS_DIFFER, message, left.shown, help=_SAME)
        return None

    def _alone(self) -> Fault | None:
        """Return PS836 if a rank has left, and another rank waits in a collective for it or for other ranks."""
        waiting = [beat for beat in self._in(IDLE) if beat.outside]
        for left in self._in(DONE) if waiting else []:
            message = f"rank {left.place.rank} left, but rank {waiting[0].place.rank} waits {waiting[0].at}"
            return Fault(STEPS_DIFFER, message, left.shown, help=_SAME)
        return None

    def _stands(self, now: float) -> bool:
        """Return True if no rank has made progress for the timeout, and every rank is present."""
        there = all(now - at < self.fresh for rank, at in self.seen.items() if not self.left(rank))
        return there and now - self.moved >= self.timeout

    def _in(self, state: str) -> list[Beat]:
        return [beat for _, beat in sorted(self.beats.items()) if beat.state == state]
