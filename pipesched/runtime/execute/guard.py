"""Guards a run: it watches the run, and ends it on all ranks if it fails on any rank.

    with Guard(runtime, timeout=60):
        for inputs, targets in batches:
            mean = runtime.step(inputs, targets)

If a fault ends the block on one rank, the block ends on all ranks with that fault: it is raised as a `RunError` or, if
the main thread is stuck in a transport, printed on stderr before the process exits with status 1.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from pipesched.runtime.execute.errors import NOT_FINITE, OUTSIDE, RAISED, RANK_LOST, STALLED, Fault, Place, RunError
from pipesched.runtime.execute.executor import Runtime
from pipesched.runtime.execute.messages import Message
from pipesched.runtime.execute.peers import meet
from pipesched.runtime.execute.silence import ELSEWHERE, IDLE, RUNNING, Beat
from pipesched.runtime.execute.watchdog import Watch
from pipesched.runtime.execute.whereabouts import of_error, of_thread
from pipesched.stream import Instruction

LATE = re.compile(r"application timeout|timed out", re.I)
_BROKEN = re.compile(r"connection (closed|reset|refused)|broken pipe|socket|remote process|" + LATE.pattern, re.I)


def finite(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Wrap a loss function so that NaN or infinity raises an error. Each check waits for the GPU.

    Raises:
        RunError: PS826, raised by the returned function.
    """

    def checked(output: object, target: object) -> Tensor:
        value = loss(output, target)
        if not bool(torch.isfinite(value).all()):
            raise RunError(
                Fault(NOT_FINITE, f"the loss is {value.item():g}", help="find the first stage that produces it")
            )
        return value

    return checked


def end_process(fault: Fault) -> NoReturn:
    """Write the fault to stderr and end the process immediately: the last resort."""
    sys.stderr.write(f"{fault}\n")
    sys.stderr.flush()
    os._exit(1)


class Guard:
    """The guard of one rank. Enter it on all ranks of the group, around the steps.

    group: the runtime's group. timeout: seconds without a finished instruction that count as a stall; must exceed the
    longest instruction. end: called when the main thread is stuck; must not return.

    Raises:
        RunError: PS820 on entering; PS822 to PS826, PS836 or PS837 on leaving, instead of the block's own exception.
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
        self._thread = threading.get_ident()
        self._hooks = runtime.before, runtime.after

    def __enter__(self) -> Guard:
        alarm = threading.Timer(self._timeout, self._end, [self._not_begun()])
        alarm.daemon = True
        alarm.start()
        try:
            peers = meet(self._rank, self._ranks, self._group, self._timeout)
        except RunError:
            raise
        except (RuntimeError, OSError, ValueError) as error:
            raise RunError(self._not_begun(error)) from error
        finally:
            alarm.cancel()
        self._thread = threading.get_ident()
        self._watch = Watch(peers, self._rank, self._ranks, self._timeout, self._where, self._end)
        self._watch.start()
        self._runtime.before, self._runtime.after = self._before, self._after
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runtime.before, self._runtime.after = self._hooks
        assert self._watch is not None
        if error is not None:
            self._publish(error)
        self._watch.leave()
        fault = self._watch.fault
        if fault is not None and (error is None or isinstance(error, Exception)):
            raise RunError(fault) from error

    def _not_begun(self, error: Exception | None = None) -> Fault:
        message = f"rank {self._rank} waited {self._timeout:g} s for the other ranks to begin"
        if error is not None:
            message = f"rank {self._rank} cannot begin: {' '.join(f'{type(error).__name__}: {error}'.split())}"
        help = "start all ranks of the group, since all of them must enter the guard"
        return Fault(STALLED if error is None else RANK_LOST, message, Place(self._rank), help=help)

    def _before(self, instruction: Instruction, index: int) -> None:
        self._thread = threading.get_ident()
        self._step += index == 0
        if self._watch is not None and self._watch.fault is not None:
            raise RunError(self._watch.fault)
        if self._hooks[0] is not None:
            self._hooks[0](instruction, index)

    def _after(self, instruction: Instruction, index: int) -> None:
        self._moves += 1
        if self._hooks[1] is not None:
            self._hooks[1](instruction, index)

    def _where(self) -> Beat:
        """Return the current report of this rank; called in the watchdog's thread."""
        seen = of_thread(self._thread)
        place = self._place()
        if seen.inside and seen.ours and seen.collective and not (place.instruction or place.waits):
            place = replace(place, waits="waits for the losses of the other ranks at the end of the step")
        outside = bool(seen.collective) and not seen.ours
        return Beat(place, self._moves, self._step, RUNNING if seen.inside else IDLE, str(seen), outside)

    def _place(self) -> Place:
        at, waiting = self._runtime.position, self._runtime.waiting
        waits = "" if waiting is None else _waits(waiting, self._rank)
        if waits and self._runtime.enqueues:
            waits += ", on its GPU: the instruction shown was enqueued last"
        if not 0 <= at < len(self._runtime.instructions):
            return Place(self._rank, self._step, waits=waits and f"at the end of the step, {waits}")
        return Place(self._rank, self._step, at + 1, str(self._runtime.instructions[at]), waits)

    def _publish(self, error: BaseException) -> None:
        """Tell the watchdog how the block ended."""
        assert self._watch is not None
        place, waiting = self._place(), self._runtime.waiting
        said = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")
        seen = of_error(error)
        raised = Fault(RAISED, said, replace(place, waits=""), help="the traceback is in the output of that rank")
        if isinstance(error, RunError):
            self._watch.publish(replace(error.fault, place=error.fault.place or place))
        elif not isinstance(error, RuntimeError) or not _BROKEN.search(said):
            self._watch.publish(raised)
        elif waiting is not None and LATE.search(said):
            self._watch.publish(Fault(STALLED, f"the transport timed out: {said}", place), weak=True)
        elif waiting is not None:
            other = waiting.target if waiting.source == self._rank else waiting.source
            self._watch.publish(self._watch.lost(other, f"its connection to rank {self._rank} broke"), weak=True)
        elif seen.collective and not seen.ours:
            ended = f"a collective outside of the pipeline failed: {seen}"
            self._watch.publish(Fault(OUTSIDE, ended, place, (said,), ELSEWHERE), weak=True)
        else:
            self._watch.publish(Fault(RANK_LOST, f"a connection of rank {self._rank} broke", None, (said,)), weak=True)


def _waits(message: Message, rank: int) -> str:
    return f"waits until {message} is received" if message.source == rank else f"waits for {message}"
