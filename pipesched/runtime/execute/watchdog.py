"""The watchdog turns a fault of one rank into a fault of every rank, and a stall into a fault, within the timeout.

Each rank has a thread that sends its rank's position and known fault to all others, receives theirs, and detects faults
by itself (`silence.Silence`): a stopped rank, even rank 0, does not affect the others.

    rank 1 ── step 1, instruction 4 (1RECV_F1) waits for … ──> rank 0, rank 2, …
    rank 2 ── fault PS825 ───────────────────────────────────> rank 0, rank 1, …    each takes it and passes it on

If several faults are found at the same moment, all ranks choose the same one: a fault that a rank raised precedes one
that others observed. A connection that breaks in the transport is weak evidence, so the thread waits for better
evidence. Time in which this thread did not run, as in a process that was stopped and resumed, is not counted. A thread
cannot wake a main thread that waits in a transport, so after a grace period this thread reports the fault and ends the
process.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace

from pipesched.runtime.execute.errors import OUTSIDE, RANK_LOST, STALLED, STEPS_DIFFER, Fault
from pipesched.runtime.execute.peers import Peers
from pipesched.runtime.execute.silence import DONE, Beat, Silence

GRACE = 0.3  # seconds for a main thread to raise by itself, if it is not stuck
SETTLE = 0.5  # seconds for the other ranks to learn of a fault
PATIENCE = 0.3  # seconds to wait for better evidence than a broken connection
_LATE = 4  # periods; a longer gap means that this process was stopped
_SEEN = (STEPS_DIFFER, STALLED, OUTSIDE, RANK_LOST)  # faults seen in others; earlier ones win


class Watch(threading.Thread):
    """The watchdog thread of one rank.

    where: returns this rank's beat; called in this thread. end: called with the fault if the main thread has not left
    within the grace period; it does not return.
    """

    def __init__(
        self,
        peers: Peers,
        rank: int,
        ranks: int,
        timeout: float,
        where: Callable[[], Beat],
        end: Callable[[Fault], None],
    ) -> None:
        super().__init__(name="pipesched watchdog", daemon=True)
        self._peers, self._rank, self._ranks = peers, rank, ranks
        self._where, self._end = where, end
        self._silence = Silence.begin(ranks, timeout, 0.0)
        self._period = min(max(timeout / 20, 0.02), 0.5)
        self._now, self._looked = 0.0, time.monotonic()
        self._told: dict[int, Fault] = {}  # the last report of each rank
        self._raised: Fault | None = None
        self._weak: tuple[Fault, float] | None = None
        self._hinted = False
        self._leaving = threading.Event()
        self.fault: Fault | None = None

    def run(self) -> None:
        """Exchange beats until all ranks leave, or there is a fault."""
        while self.fault is None and not self._all_left():
            self._exchange(self._period)
            if (found := self._found()) is not None:
                self.fault = Fault.of(asdict(found))  # in the form in which the other ranks read it
        if self.fault is not None:
            if not self._leaving.is_set():
                self._silence.hear(self._rank, self._where(), self._now)
            self._settle()
            self.fault = replace(self.fault, notes=self.fault.notes + self._silence.places(self.fault.place))
        else:
            self._say()
        self._peers.close()
        if self.fault is not None and not self._leaving.wait(GRACE):
            self._end(self.fault)

    def publish(self, fault: Fault, *, weak: bool = False) -> None:
        """Publish the main thread's fault, unless a better one is known. weak: any other fault is better."""
        if weak:
            self._weak = fault, time.monotonic() + PATIENCE
        else:
            self._raised = fault
        self._peers.wake()

    def lost(self, rank: int, how: str) -> Fault:
        """Return the fault of a rank that is gone."""
        return self._silence.lost([rank], how)

    def leave(self) -> None:
        """Wait for the thread to end: after a fault, when all ranks know of it; otherwise, when all ranks have left."""
        self._leaving.set()
        self._peers.wake()
        self.join()

    def _exchange(self, period: float) -> None:
        """Send one beat, and listen for a period or until there is a message."""
        self._say()
        before, until = self._news(), time.monotonic() + period
        while self._news() == before and (left := until - time.monotonic()) > 0:
            for rank, text in self._peers.hear(left).items():
                self._take(rank, text)
            now = time.monotonic()
            self._now += min(now - self._looked, _LATE * self._period)
            self._looked = now

    def _news(self) -> tuple[object, ...]:
        own = self._leaving.is_set(), self._raised, self._weak
        return *own, dict(self._told), len(self._peers.closed), self._all_left()

    def _say(self) -> None:
        beat = self._silence.beats.get(self._rank)
        if self.fault is None or beat is None:
            beat = self._where()
            if self._leaving.is_set() and self._raised is None and self._weak is None:
                beat = replace(beat, state=DONE, at="", outside=False)
            self._silence.hear(self._rank, beat, self._now)
        fault = None if self.fault is None else asdict(self.fault)
        self._peers.say(json.dumps({"beat": beat.plain(), "fault": fault}, separators=(",", ":")))

    def _take(self, rank: int, text: str) -> None:
        """Read a message from a rank. An unreadable message does not count as a sign of life."""
        try:
            said = json.loads(text)
            beat, fault = Beat.of(said["beat"]), said["fault"]
            if fault is not None:
                self._told[rank] = Fault.of(fault)
        except (ValueError, TypeError, KeyError, RecursionError):
            return
        self._silence.hear(rank, replace(beat, place=replace(beat.place, rank=rank)), self._now)

    def _found(self) -> Fault | None:
        """Return the fault to act on: reported by others, raised here, observed here, or weak, in this order."""
        if self._told:
            return min(self._told.values(), key=_order)
        if self._raised is not None:
            return self._raised
        closed = {rank: how for rank, how in sorted(self._peers.closed.items()) if not self._silence.left(rank)}
        if closed:
            return self._silence.lost(list(closed), next(iter(closed.values())))
        found = self._silence.judge(self._now)
        if found is None and self._weak is not None and time.monotonic() >= self._weak[1]:
            return self._weak[0]
        self._hint()
        return found

    def _hint(self) -> None:
        """Warn once of a possible stall between two steps, where a long wait may be legitimate."""
        beat = self._silence.waits_elsewhere(self._now)
        if beat is not None and not self._hinted and beat.place.rank == self._rank:
            sys.stderr.write(f"warning: for {self._silence.timeout:g} s no rank has made progress: {beat}\n")
        self._hinted = beat is not None

    def _all_left(self) -> bool:
        return self._leaving.is_set() and all(self._silence.left(rank) for rank in range(self._ranks))

    def _settle(self) -> None:
        """Wait briefly until every present rank knows of the same fault."""
        until = time.monotonic() + SETTLE
        while time.monotonic() < until:
            self._exchange(min(self._period, SETTLE / 10))
            assert self.fault is not None
            self.fault = min([self.fault, *self._told.values()], key=_order)
            fresh = {rank for rank, seen in self._silence.seen.items() if self._now - seen < self._silence.fresh}
            there = fresh - {self._rank, *self._peers.closed}
            if all(self._told.get(rank) == self.fault for rank in there):
                break
        self._say()


def _order(fault: Fault) -> tuple[int, int, str]:
    """Return the sort key of a fault: among several faults at one moment, the smallest key wins."""
    seen = _SEEN.index(fault.code) + 1 if fault.code in _SEEN else 0
    return seen, fault.place.rank if fault.place else sys.maxsize, fault.dumps()
