"""A fault of one rank becomes the fault of every rank, and a stall becomes a fault, within the timeout.

Each rank has a thread that writes where the rank is into a store on rank 0, and reads where the others are:

    rank/0   step 1, instruction 7 (0RECV_B0) waits for …      all of them judged by `silence.Silence`
    rank/1   step 1, instruction 4 (1RECV_F1) waits for …
    fault    the first that anybody found: all ranks end with it
    told/1   rank 1 has read it, and written its last place

A thread cannot wake a main thread that sits in a transport's wait. So after a grace the process ends there, with the
fault told first. Rank 0 leaves last: a store that is gone means that rank 0 is gone.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from pipesched.runtime.errors import RANK_LOST, Fault, Place
from pipesched.runtime.silence import DONE, Beat, Silence

GRACE = 0.3  # seconds for a main thread that is not stuck to raise by itself
SETTLE = 0.5  # seconds for the other ranks to write their last place
_SOON = 0.01  # seconds between looks when there is little left to wait for


class Store(Protocol):
    """What is needed of torch's stores, such as ``TCPStore``. Values are bytes, whatever was set."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def multi_get(self, keys: list[str], /) -> list[bytes]: ...
    def check(self, keys: list[str], /) -> bool: ...
    def add(self, key: str, amount: int, /) -> int: ...
    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...


class Watch(threading.Thread):
    """The thread of one rank.

    where: this rank's state, place and count of moves; called in this thread. end: called with the fault when the
    main thread has not left by itself within the grace; it does not return.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        ranks: int,
        timeout: float,
        where: Callable[[], tuple[str, Place, int]],
        end: Callable[[Fault], None],
    ) -> None:
        super().__init__(name="pipesched watchdog", daemon=True)
        self._store, self._rank, self._ranks = store, rank, ranks
        self._where, self._end = where, end
        self._silence = Silence.begin(ranks, timeout, time.monotonic())
        self._period = min(max(timeout / 20, 0.02), 0.5)
        self._beat = 0
        self._said_done = False
        self._leaving, self._wake = threading.Event(), threading.Event()
        self.fault: Fault | None = None

    def run(self) -> None:
        """Writes and looks until this rank may leave, or there is a fault."""
        while self.fault is None and not self._may_leave():
            self._look()
            self._wake.wait(self._period)
            if self._leaving.is_set():
                time.sleep(_SOON)
        if self.fault is None:
            with contextlib.suppress(RuntimeError):
                self._write()
            return
        self.fault = self._settled(self.fault)
        if not self._leaving.wait(GRACE):
            self._end(self.fault)

    def publish(self, fault: Fault) -> None:
        """Makes the main thread's own fault that of all ranks, unless there was one before."""
        if self.fault is None:
            try:
                self.fault = self._first(fault)
            except RuntimeError:
                self.fault = self._no_store()
        self._wake.set()

    def lost(self, rank: int, how: str) -> Fault:
        """The fault that another rank is gone."""
        return self._silence.lost([rank], how)

    def leave(self) -> None:
        """Ends the thread: on a fault when all ranks know of it, else when this rank may go. Rank 0 goes last."""
        self._leaving.set()
        self._wake.set()
        self.join()

    def _look(self) -> None:
        """One exchange with the store."""
        try:
            self._write()
            fault = self._silence.look(self._read(), time.monotonic())
            if fault is not None or self._store.check(["fault"]):
                self.fault = self._first(fault)
        except RuntimeError:  # of which torch's DistError is one
            if not self._said_done:  # else rank 0 may have gone in peace
                self.fault = self.fault or self._no_store()

    def _no_store(self) -> Fault:
        return self._silence.lost([0], "its store does not answer")

    def _write(self) -> None:
        state, place, moves = self._where()
        self._beat += 1
        done = self._leaving.is_set() and self.fault is None
        self._said_done = done
        self._store.set(f"rank/{self._rank}", Beat(place, self._beat, moves, DONE if done else state).dumps())

    def _read(self) -> dict[int, Beat]:
        """The beats of the ranks that have written at least once."""
        known = self._silence.beats
        ranks = [rank for rank in range(self._ranks) if rank in known or self._store.check([f"rank/{rank}"])]
        texts = self._store.multi_get([f"rank/{rank}" for rank in ranks])
        return {rank: Beat.loads(text.decode()) for rank, text in zip(ranks, texts, strict=True)}

    def _first(self, fault: Fault | None) -> Fault:
        """The fault in the store, which is this one if there was none."""
        text = self._store.get("fault") if fault is None else self._store.compare_set("fault", "", fault.dumps())
        return Fault.loads(text.decode())

    def _may_leave(self) -> bool:
        beats = self._silence.beats.values()
        if self._rank != 0 or not self._leaving.is_set():
            return self._leaving.is_set()
        return len(beats) == self._ranks and all(beat.state == DONE for beat in beats)

    def _settled(self, fault: Fault) -> Fault:
        """The fault, with where every rank was when it learned of it; a rank that never does is the lost one."""
        try:
            self._write()
            self._store.set(f"told/{self._rank}", "")
            silent = self._wait("told")
            self._silence.beats.update(self._read())
            self._store.set(f"read/{self._rank}", "")
            if self._rank == 0:
                self._wait("read", without=silent)
        except RuntimeError:
            state, place, moves = self._where()
            self._silence.beats[self._rank] = Beat(place, 0, moves, state)
            silent = [0]
        if fault.code == RANK_LOST and fault.place is None and silent:
            fault = self._silence.lost(silent, fault.message)
        return replace(fault, notes=fault.notes + self._silence.places(fault.place))

    def _wait(self, what: str, without: Sequence[int] = ()) -> list[int]:
        """Until every rank but those has written it, but not for long; the ranks that have not."""
        until = time.monotonic() + SETTLE
        left = [rank for rank in range(self._ranks) if rank not in without]
        while left and time.monotonic() < until:
            left = [rank for rank in left if not self._store.check([f"{what}/{rank}"])]
            time.sleep(_SOON)
        return left
