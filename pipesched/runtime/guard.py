"""A program under guard: watched while it runs, and ended everywhere if it fails anywhere.

    with Guard(runtime, timeout=60):
        for inputs, targets in batches:
            mean = runtime.step(inputs, targets)

Whatever ends the block on one rank ends it on all of them, with the same fault: a `RunError` where the main thread can
raise one, else, where it is stuck in a transport, the fault on stderr and exit status 1.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, NoReturn, cast

import torch
import torch.distributed as dist
from torch import Tensor

from pipesched.runtime.errors import NOT_FINITE, RAISED, RANK_LOST, STALLED, Fault, Place, RunError
from pipesched.runtime.executor import Runtime
from pipesched.runtime.messages import Message
from pipesched.runtime.silence import IDLE, RUNNING
from pipesched.runtime.watchdog import Store, Watch
from pipesched.stream import Instruction

_BROKEN = re.compile(r"connection (closed|reset|refused)|broken pipe|application timeout|socket|remote process", re.I)
_STORE_TIMEOUT = timedelta(seconds=10)


def finite(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The loss, with an error in the place of a NaN or an infinity. It reads the value, which waits for a GPU.

    Raises:
        RunError: PS826, from the function returned.
    """

    def checked(output: object, target: object) -> Tensor:
        value = loss(output, target)
        if not bool(torch.isfinite(value).all()):
            raise RunError(
                Fault(NOT_FINITE, f"the loss is {value.item():g}", help="look for the first stage that makes it")
            )
        return value

    return checked


def end_process(fault: Fault) -> NoReturn:
    """Tells the fault on stderr and ends the process at once: the last resort."""
    sys.stderr.write(f"{fault}\n")
    sys.stderr.flush()
    os._exit(1)


class Guard:
    """The guard of one rank. Enter it on all ranks of the group, around the steps.

    group: that of the runtime. timeout: so many seconds without any finished instruction are a stall; more than the
    longest instruction takes. end: what to do when the main thread is stuck; must not return.

    Raises:
        RunError: PS822 to PS826 on leaving, in the place of what the block raised.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        group: dist.ProcessGroup | None = None,
        timeout: float = 60.0,
        end: Callable[[Fault], NoReturn] = end_process,
    ) -> None:
        self._runtime, self._group, self._timeout, self._end = runtime, group, timeout, end
        self._rank, self._ranks = runtime.rank, len(runtime.stream.ranks)
        self._step = self._moves = 0
        self._watch: Watch | None = None
        self._hooks = runtime.before, runtime.after

    def __enter__(self) -> Guard:
        if self._ranks > 1:
            alarm = threading.Timer(self._timeout, self._end, [self._not_begun()])
            alarm.daemon = True
            alarm.start()
            try:
                store = self._store()
            finally:
                alarm.cancel()
            self._watch = Watch(store, self._rank, self._ranks, self._timeout, self._where, self._end)
            self._watch.start()
        self._runtime.before, self._runtime.after = self._before, self._after
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runtime.before, self._runtime.after = self._hooks
        fault = None if error is None else self._fault_of(error)
        if self._watch is not None:
            if fault is not None:
                self._watch.publish(fault)
            self._watch.leave()
            fault = self._watch.fault
        if fault is not None and (error is None or isinstance(error, Exception)):
            raise RunError(fault) from error

    def _store(self) -> Store:
        """A store on rank 0, of which it tells the others."""
        if self._rank == 0:
            own: Any = dist.TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
            dist.broadcast_object_list([_host(), own.port], group=self._group, group_src=0)
            return cast(Store, own)
        at: list[Any] = [None, None]
        dist.broadcast_object_list(at, group=self._group, group_src=0)
        theirs: Any = dist.TCPStore(at[0], at[1], is_master=False, timeout=_STORE_TIMEOUT)  # type: ignore[attr-defined]
        return cast(Store, theirs)

    def _not_begun(self) -> Fault:
        return Fault(
            STALLED,
            f"rank {self._rank} waited {self._timeout:g} s for the other ranks to begin",
            Place(self._rank),
            help="start every rank of the group, and let all of them enter the guard",
        )

    def _before(self, instruction: Instruction, index: int) -> None:
        self._step += index == 0
        if self._watch is not None and self._watch.fault is not None:
            raise RunError(self._watch.fault)
        if self._hooks[0] is not None:
            self._hooks[0](instruction, index)

    def _after(self, instruction: Instruction, index: int) -> None:
        self._moves += 1
        if self._hooks[1] is not None:
            self._hooks[1](instruction, index)

    def _where(self) -> tuple[str, Place, int]:
        """What the watchdog tells of this rank; called in its thread."""
        place = self._place()
        return RUNNING if place.instruction or place.waits else IDLE, place, self._moves

    def _place(self) -> Place:
        at, waiting = self._runtime.position, self._runtime.waiting
        waits = "" if waiting is None else _waits(waiting, self._rank)
        if not 0 <= at < len(self._runtime.instructions):
            return Place(self._rank, self._step, waits=waits and f"at the end of the step, {waits}")
        return Place(self._rank, self._step, at + 1, str(self._runtime.instructions[at]), waits)

    def _fault_of(self, error: BaseException) -> Fault:
        """The error that ended the block, as a fault with its place."""
        place, waiting = self._place(), self._runtime.waiting
        if isinstance(error, RunError):
            return replace(error.fault, place=error.fault.place or place)
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        if self._watch is not None and isinstance(error, RuntimeError) and _BROKEN.search(said):
            if waiting is None:  # in a collective; the watchdog finds out who is silent
                return Fault(RANK_LOST, f"a connection of rank {self._rank} broke")
            other = waiting.target if waiting.source == self._rank else waiting.source
            return self._watch.lost(other, f"its connection to rank {self._rank} broke")
        return Fault(RAISED, said, replace(place, waits=""), help="the traceback is in the output of that rank")


def _waits(message: Message, rank: int) -> str:
    return f"waits until {message} is received" if message.source == rank else f"waits for {message}"


def _host() -> str:
    """Where the others reach this process."""
    if dist.get_rank() == 0 and os.environ.get("MASTER_ADDR"):
        return os.environ["MASTER_ADDR"]
    return socket.gethostname()
