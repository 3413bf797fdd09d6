"""The supervisor of `launch.Launcher`, and the ranks that it forks.

It imports torch and starts no thread, so a fork is a rank that is ready at once. A rank ends by itself in every case
that the watchdog knows; for the others, such as one that is stopped, the supervisor has a clock: once one rank has
ended badly, or without a result, the rest have a few seconds. An empty line a second says that it is there itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NoReturn

from pipesched.runtime.errors import RAISED, Fault, Place, RunError
from pipesched.runtime.launch import ALIVE, EXTRA, Job

BAD = 1  # the exit status of a rank that reports a fault
_CHUNK = 1 << 16


def main() -> None:
    """Reads jobs from stdin, a line each, writes an outcome a line to stdout, until stdin ends."""
    from pipesched.runtime import training  # torch, once for all ranks

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in _lines():
        job = Job.loads(line)
        if job.judge is not None:
            with contextlib.suppress(ImportError):  # a rank says so
                import_module(job.judge.partition(":")[0])  # once for all ranks
        results = Ranks(job, training.train).run()
        _send(1, results)
    os._exit(0)  # there is nothing to clean up, and taking torch apart takes a second


def _lines() -> Iterator[str]:
    """The lines of stdin, read without a buffer, so that its end shows in `select` while ranks run."""
    pending = b""
    while chunk := os.read(0, _CHUNK):
        *lines, pending = (pending + chunk).split(b"\n")
        yield from (line.decode() for line in lines)


@dataclass
class _Rank:
    """A rank as its supervisor sees it."""

    number: int
    pid: int
    pipe: int
    text: bytearray = field(default_factory=bytearray)
    status: int | None = None
    seconds: float = 0.0
    stopped: bool = False

    def result(self) -> dict[str, Any]:
        line, end, _ = self.text.partition(b"\n")  # the watchdog and the main thread may both have written
        result: dict[str, Any] = json.loads(line) if end else {"data": None, "fault": None}
        return {"rank": self.number, "status": self.status, "seconds": self.seconds, "stopped": self.stopped, **result}


class Ranks:
    """The ranks of one job."""

    def __init__(self, job: Job, train: Any) -> None:
        self._job, self._train = job, train
        self._began = time.monotonic()
        self._deadline: float | None = None
        self._ranks: list[_Rank] = []

    def run(self) -> list[dict[str, Any]]:
        """Forks them, waits for them, and returns their results; ends the process if the caller is gone."""
        with tempfile.TemporaryDirectory(prefix="pipesched-") as folder:
            mine, theirs = os.pipe()  # nobody writes: its end means to a rank that the supervisor is gone
            try:
                for number in range(self._job.ranks):
                    self._ranks.append(self._fork(number, folder, mine, theirs))
                self._supervise()
            finally:
                self._kill()
                os.close(mine)
                os.close(theirs)
        return [rank.result() for rank in self._ranks]

    def _fork(self, number: int, folder: str, lifeline: int, held: int) -> _Rank:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            for other in (read, held, *(rank.pipe for rank in self._ranks)):
                os.close(other)
            _be_rank(self._job, number, folder, lifeline, write, self._train)
        os.close(write)
        return _Rank(number, pid, read)

    def _supervise(self) -> None:
        """Until every pipe has ended; the end of a pipe is the end of its rank."""
        _alive()
        while running := [rank for rank in self._ranks if rank.status is None]:
            left = ALIVE if self._deadline is None else self._deadline - time.monotonic()
            ready, _, _ = select.select([0, *(rank.pipe for rank in running)], [], [], max(min(left, ALIVE), 0))
            _alive()
            if 0 in ready:  # no job is sent while one runs, so this is the end of the caller
                self._kill()
                raise SystemExit(BAD)
            over = left <= 0 and not ready
            if over:
                self._kill()
            for rank in running:
                if rank.pipe in ready or over:
                    self._read(rank)

    def _read(self, rank: _Rank) -> None:
        chunk = os.read(rank.pipe, _CHUNK)
        rank.text += chunk
        if chunk:
            return
        os.close(rank.pipe)
        _, status = os.waitpid(rank.pid, 0)
        rank.status = os.waitstatus_to_exitcode(status)
        rank.seconds = time.monotonic() - self._began
        if (rank.status != 0 or not rank.text) and self._deadline is None:
            self._deadline = time.monotonic() + EXTRA

    def _kill(self) -> None:
        for rank in self._ranks:
            if rank.status is None:
                rank.stopped = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank.pid, signal.SIGKILL)


def _alive() -> None:
    with contextlib.suppress(BrokenPipeError):  # stdin ends then, too
        os.write(1, b"\n")


def _be_rank(job: Job, number: int, folder: str, lifeline: int, pipe: int, train: Any) -> NoReturn:
    """The life of a rank. It leaves by `os._exit`: what it inherited is not its to clean up."""
    status = BAD
    try:
        threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)  # the supervisor's stdout is for outcomes
        _send(pipe, {"data": train(job, number, folder, lambda fault: _fail(pipe, fault)), "fault": None})
        status = 0
    except RunError as error:
        if error.fault.code == RAISED and error.fault.place and error.fault.place.rank == number:
            traceback.print_exception(error.__cause__)
        _send(pipe, {"data": None, "fault": error.fault.dumps()})
    except BaseException as error:
        traceback.print_exc()
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        _send(pipe, {"data": None, "fault": Fault(RAISED, said, Place(number)).dumps()})
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)


def _fail(pipe: int, fault: Fault) -> NoReturn:
    """The last resort of the watchdog: this rank's main thread is stuck."""
    _send(pipe, {"data": None, "fault": fault.dumps()})
    os._exit(BAD)


def _send(pipe: int, value: object) -> None:
    data = (json.dumps(value) + "\n").encode()
    while data:
        data = data[os.write(pipe, data) :]


def _end_with(lifeline: int) -> None:
    """Ends this process when its supervisor does."""
    os.read(lifeline, 1)
    os._exit(BAD)


if __name__ == "__main__":
    main()
