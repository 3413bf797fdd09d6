"""The supervisor of `launch.Launcher`, and the ranks that it forks.

The supervisor imports torch and starts no thread, so a forked rank is ready immediately. A rank ends by itself in all
cases that the watchdog detects. For other cases, such as a stopped rank, the supervisor has a deadline: when one rank
has failed or ended without a result, the others have a few seconds. Every second the supervisor writes an empty line,
to show that it is alive.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import NoReturn, TypeAlias

from pipesched.runtime.execute.errors import RAISED, Fault, Place, RunError
from pipesched.runtime.execute.launch import ALIVE, EXTRA, Job, Measured

BAD = 1  # the exit status of a rank that reports a fault
Train: TypeAlias = Callable[[Job, int, str, Callable[[Fault], NoReturn]], Measured]
_FORKS = multiprocessing.get_context("fork")


def main() -> None:
    """Read jobs from stdin, one per line, and write one outcome per line to stdout, until stdin ends."""
    from pipesched.runtime.execute import training  # imports torch, once for all ranks

    gc.freeze()  # a collection in a rank would copy every page of what is imported
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in _lines():
        job = Job.loads(line)
        if job.judge is not None:
            with contextlib.suppress(ImportError):  # the rank reports it
                import_module(job.judge.partition(":")[0])  # imported once for all ranks
        _say(json.dumps(_run(job, training.train)))
    os._exit(0)  # no cleanup is needed, and unloading torch takes a second


def _lines() -> Iterator[str]:
    """Yield the lines of stdin without buffering, so that `wait` notices the end of stdin while ranks run."""
    pending = b""
    while chunk := os.read(0, 1 << 16):
        *lines, pending = (pending + chunk).split(b"\n")
        yield from (line.decode() for line in lines)


def _say(line: str = "") -> None:
    """Write a line for the caller; an empty line is a sign of life."""
    data = f"{line}\n".encode()
    with contextlib.suppress(BrokenPipeError):  # stdin ends then too
        while data:
            data = data[os.write(1, data) :]


@dataclass
class _Rank:
    """A rank as its supervisor sees it. said: its result as JSON, once it has arrived."""

    process: ForkProcess
    pipe: Connection
    said: bytes = b""
    seconds: float | None = None
    stopped: bool = False


def _run(job: Job, train: Train) -> list[dict[str, object]]:
    """Run all ranks of a job and return their results; end the process if the caller is gone."""
    ranks: list[_Rank] = []
    lifeline, held = os.pipe()  # never written to: its end tells a rank that the supervisor is gone
    with tempfile.TemporaryDirectory(prefix="pipesched-") as folder:
        try:
            for number in range(job.ranks):
                ours, theirs = _FORKS.Pipe(duplex=False)
                process = _FORKS.Process(target=_be_rank, args=(job, number, folder, lifeline, held, theirs, train))
                process.start()
                theirs.close()
                ranks.append(_Rank(process, ours))
            _supervise(ranks)
        finally:
            _kill(ranks)
            os.close(lifeline)
            os.close(held)
    return [
        {
            "rank": number,
            "status": rank.process.exitcode,
            "seconds": rank.seconds,
            "stopped": rank.stopped,
            **(json.loads(rank.said) if rank.said else {"data": None, "fault": None}),
        }
        for number, rank in enumerate(ranks)
    ]


def _supervise(ranks: list[_Rank]) -> None:
    """Wait until every pipe has ended; a pipe ends when its rank ends."""
    began, deadline = time.monotonic(), math.inf
    _say()
    while running := [rank for rank in ranks if rank.seconds is None]:
        left = deadline - time.monotonic()
        ready = wait([0, *(rank.pipe for rank in running)], max(min(left, ALIVE), 0))
        _say()
        if 0 in ready:  # no job is sent while one runs, so the caller has ended
            raise SystemExit(BAD)
        if left <= 0 and not ready:
            _kill(ranks)
        for rank in (rank for rank in running if rank.pipe in ready):
            try:
                said = rank.pipe.recv_bytes()
                rank.said = rank.said or said  # the watchdog and the main thread may both have written
            except (EOFError, OSError):
                rank.process.join()
                rank.seconds = time.monotonic() - began
                if rank.process.exitcode != 0 or not rank.said:
                    deadline = min(deadline, time.monotonic() + EXTRA)


def _kill(ranks: list[_Rank]) -> None:
    for rank in ranks:
        if rank.seconds is None:
            rank.stopped = True
            rank.process.kill()


def _be_rank(job: Job, number: int, folder: str, lifeline: int, held: int, pipe: Connection, train: Train) -> NoReturn:
    """Run a rank in the forked process. It exits with `os._exit`, since it must not clean up inherited resources."""

    def fail(fault: Fault) -> NoReturn:
        """End a stuck rank, as the last resort of the watchdog."""
        _send(pipe, None, fault)
        os._exit(BAD)

    status = BAD
    try:
        os.close(held)
        threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
        os.dup2(2, 1)  # the supervisor's stdout is reserved for outcomes
        _send(pipe, train(job, number, folder, fail))
        status = 0
    except RunError as error:
        if error.fault.code == RAISED and error.fault.place and error.fault.place.rank == number:
            traceback.print_exception(error.__cause__)
        _send(pipe, None, error.fault)
    except BaseException as error:
        traceback.print_exc()
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        _send(pipe, None, Fault(RAISED, said, Place(number)))
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)


def _send(pipe: Connection, data: Measured | None, fault: Fault | None = None) -> None:
    pipe.send_bytes(json.dumps({"data": data, "fault": fault and fault.dumps()}).encode())


def _end_with(lifeline: int) -> None:
    """End this process when its supervisor ends."""
    os.read(lifeline, 1)
    os._exit(BAD)


if __name__ == "__main__":
    main()
