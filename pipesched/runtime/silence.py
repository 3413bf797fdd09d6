"""From what the ranks wrote of themselves to a verdict: does anything move, is everybody there.

    moves    grow with every finished instruction      none grows for the timeout, and somebody is in a step    PS822
    beat     grows with every write                    one does not grow for the timeout                        PS823

Times are those at which a change was *seen* by the rank that judges, so no two clocks need agree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pipesched.runtime.agree import ranks_text
from pipesched.runtime.errors import RANK_LOST, STALLED, Fault, Place

IDLE, RUNNING, DONE = "between two steps", "runs", "has finished"


@dataclass(frozen=True, slots=True)
class Beat:
    """What a rank writes of itself. state: `IDLE`, `RUNNING` or `DONE`."""

    place: Place
    beat: int = 0
    moves: int = 0
    state: str = IDLE

    def __str__(self) -> str:
        return str(self.place) if self.place.waits else f"{self.place}: {self.state}"

    def dumps(self) -> str:
        """JSON; `loads` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Beat:
        data: dict[str, Any] = json.loads(text)
        return cls(**{**data, "place": Place(**data["place"])})


@dataclass
class Silence:
    """The beats of all ranks, and when something about them last changed. Times in seconds of a steady clock."""

    timeout: float
    beats: dict[int, Beat] = field(default_factory=dict)
    moved: float = 0.0
    seen: dict[int, float] = field(default_factory=dict)

    @classmethod
    def begin(cls, ranks: int, timeout: float, now: float) -> Silence:
        """Nobody has written yet, and everybody has the timeout to do so."""
        return cls(timeout, {}, now, dict.fromkeys(range(ranks), now))

    def look(self, beats: Mapping[int, Beat], now: float) -> Fault | None:
        """The fault that these beats show, if any."""
        for rank, beat in beats.items():
            before = self.beats.get(rank)
            if before is None or (before.moves, before.state) != (beat.moves, beat.state):
                self.moved = now
            if before is None or before.beat != beat.beat or beat.state == DONE:
                self.seen[rank] = now
        self.beats.update(beats)
        lost = [rank for rank, at in sorted(self.seen.items()) if now - at >= self.timeout]
        if lost:
            return self.lost(lost, f"no sign of life for {self.timeout:g} s")
        if now - self.moved >= self.timeout and any(beat.state == RUNNING for beat in self.beats.values()):
            return self.stalled()
        return None

    def stalled(self) -> Fault:
        """PS822 at a rank that waits for no other, if there is one: it is the cause; else all wait for each other."""
        running = [beat.place for _, beat in sorted(self.beats.items()) if beat.state == RUNNING]
        busy = [place for place in running if not place.waits]
        circle = "every rank waits for a message: `pipesched verify` on this stream shows the circle"
        slow = "an instruction that needs longer than that wants a larger timeout"
        message = f"nothing moves: no rank finished an instruction for {self.timeout:g} s"
        return Fault(STALLED, message, (busy or running)[0], help=slow if busy else circle)

    def lost(self, ranks: Sequence[int], how: str) -> Fault:
        """PS823, at the place where the first of these ranks was last heard of."""
        known = self.beats.get(ranks[0])
        return Fault(
            RANK_LOST,
            f"{ranks_text(ranks)} {'is' if len(ranks) == 1 else 'are'} gone: {how}",
            known.place if known else Place(ranks[0]),
            help="see its own output; a rank that was killed leaves none, but the system's log may (out of memory)",
        )

    def places(self, without: Place | None) -> tuple[str, ...]:
        """Where each rank was when it was last heard of, but for the rank that a fault names anyway."""
        return tuple(str(beat) for rank, beat in sorted(self.beats.items()) if without is None or rank != without.rank)
