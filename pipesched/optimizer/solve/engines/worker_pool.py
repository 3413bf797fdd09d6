"""Worker processes that decide questions while the caller continues: the pool in this process, and `main` in each
worker.

    submit ──> ticket ── a free worker, or the queue ──> wait ──> (ticket, Answer)
                 │                                  └──> steps: its work so far
                 └────── cancel: its worker is killed, and a new one started

Which answer arrives first depends on the machine; `search.lanes` orders the answers independently of the machine.

Workers are started with the pool, by a command line of their own, never by a fork or a second import of the caller's
main module. A worker reads questions from its stdin. It writes the steps so far, from time to time, and the answer to
its stdout; both pipes are private. A worker ends when its stdin closes, and therefore with the pool and with the
parent, however the parent ends. While it works, any event on stdin ends the worker, because an engine written in C
cannot read messages. Workers ignore SIGINT; the parent handles it.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from types import TracebackType

from pipesched.common import child
from pipesched.diagnostics import PipeschedError
from pipesched.optimizer.solve.engines.decide import decide
from pipesched.optimizer.solve.problem import Answer, Problem, Question

_WORKER = "pipesched.optimizer.solve.engines.worker_pool"
_BY_SIGNAL = sys.platform == "linux"


class Pool:
    """A pool of workers, which run until `close`."""

    def __init__(self, workers: int = 2) -> None:
        self._tickets = 0
        self._queue: deque[tuple[int, Question]] = deque()
        self._done: deque[tuple[int, Answer]] = deque()
        self.steps: dict[int, int] = {}
        """The steps taken so far for each open question, by ticket."""
        self._workers: list[_Worker] = []
        try:
            self._workers += (_Worker() for _ in range(workers))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self._workers)

    @property
    def idle(self) -> int:
        """The number of further questions that could begin immediately."""
        return max(0, sum(worker.ticket is None for worker in self._workers) - len(self._queue))

    def submit(self, question: Question) -> int:
        """Queue a question and return its ticket; the question begins as soon as a worker is free."""
        self._tickets += 1
        self._queue.append((self._tickets, question))
        self._hand_out()
        return self._tickets

    def wait(self, timeout: float | None = None) -> tuple[int, Answer] | None:
        """Return the next (ticket, answer); None after `timeout` seconds, or if no question is open."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._done and any(worker.ticket for worker in self._workers):
            left = None if until is None else max(0.0, until - time.monotonic())
            if not self.listen(left):
                return None
        return self._done.popleft() if self._done else None

    def arrived(self) -> list[tuple[int, Answer]]:
        """Return the answers that have arrived, and remove them from the pool."""
        found = list(self._done)
        self._done.clear()
        return found

    def cancel(self, ticket: int) -> None:
        """Drop a question, and its answer if one has arrived; replace its worker if it has one."""
        self._queue = deque(entry for entry in self._queue if entry[0] != ticket)
        self._done = deque(entry for entry in self._done if entry[0] != ticket)
        self.steps.pop(ticket, None)
        for worker in self._workers:
            if worker.ticket == ticket:
                worker.renew()
        self._hand_out()

    def close(self) -> None:
        """End every worker, even in the middle of a question."""
        self._queue.clear()
        for worker in self._workers:
            worker.end()
        self._workers = []

    def _hand_out(self) -> None:
        for worker in self._workers:
            if self._queue and worker.ticket is None:
                ticket, question = self._queue.popleft()
                if not worker.ask(ticket, question):
                    self._done.append((ticket, worker.lost()))

    def listen(self, timeout: float | None) -> bool:
        """Receive messages from workers; return True if one arrived before the timeout."""
        busy = {x.output: (x, x.ticket) for x in self._workers if x.ticket is not None}
        ready = wait(list(busy), timeout)
        for worker, ticket in (entry for output, entry in busy.items() if output in ready):
            message = worker.heard()
            if isinstance(message, Answer):
                self._done.append((ticket, message))
                self.steps.pop(ticket, None)
            else:
                self.steps[ticket] = message
        self._hand_out()
        return bool(ready)


class _Worker:
    """A worker process, and the ticket of its question."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.ticket: int | None = None
        self.engine = ""
        self.known: dict[int, Problem] = {}  # kept alive, so that no other problem gets the same number
        self.process = subprocess.Popen(
            child.command(_WORKER),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child.environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),  # keep NumPy from starting threads
            process_group=0,  # Ctrl-C goes to the parent
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input = Connection(os.dup(self.process.stdin.fileno()), readable=False)
        self.output = Connection(os.dup(self.process.stdout.fileno()), writable=False)
        self.process.stdin.close()
        self.process.stdout.close()

    def ask(self, ticket: int, question: Question) -> bool:
        """Send a question; return False if the process has died."""
        self.ticket, self.engine = ticket, question.engine
        self.known[id(question.problem)] = question.problem
        try:
            self.input.send((id(question.problem), question))
        except OSError:
            return False
        except BaseException:  # a part of the question may have been sent
            self.renew()
            raise
        return True

    def heard(self) -> Answer | int:
        """Receive a message, either an answer or the steps so far; block until there is one."""
        try:
            message: Answer | int = self.output.recv()
        except (EOFError, OSError):
            return self.lost()
        if isinstance(message, Answer):
            self.ticket = None
        return message

    def lost(self) -> Answer:
        """Replace a process that has died, and return an answer for its question."""
        with suppress(subprocess.TimeoutExpired):  # the pipe may close shortly before the process ends
            self.process.wait(1)
        engine, status = self.engine, self.end()
        self._start()
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return Answer("unknown", engine=engine, reason=f"the engine's process ended with {how}")

    def renew(self) -> None:
        """Replace the process with a new one."""
        self.end()
        self._start()

    def end(self) -> int:
        """End the process; return its exit status."""
        if self.process.poll() is None:
            self.process.kill()
        status = self.process.wait()
        self.output.close()
        with suppress(OSError):  # discards the rest of a question
            self.input.close()
        return status


def main() -> None:
    """Answer questions until stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, out = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # output of an engine must not mix with answers
    problems: dict[int, Problem] = {}  # by number: the first copy received, which keeps its derived values
    with suppress(EOFError):
        while True:
            number, question = source.recv()
            question = replace(question, problem=problems.setdefault(number, question.problem))
            out.send(_alone(partial(_answer, question, out.send)))


def _answer(question: Question, report: Callable[[int], None]) -> Answer:
    try:
        return decide(question, report)
    except PipeschedError as error:
        return Answer("unknown", engine=question.engine, reason=error.diagnostics[0].message)
    except Exception as error:
        return Answer("unknown", engine=question.engine, reason=f"internal error: {type(error).__name__}: {error}")


def _alone(work: Callable[[], Answer]) -> Answer:
    """Do the work, but end this process at any event on stdin, since that means that the parent is gone.

    On Linux the kernel sends SIGIO, which by default ends the process immediately. Elsewhere, a thread waits for the
    event; an engine that holds the interpreter lock delays the thread until it is done.
    """
    done = threading.Event()
    if _BY_SIGNAL:
        flags = fcntl.fcntl(0, fcntl.F_GETFL)
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC)
        if select.select([0], [], [], 0)[0]:
            os._exit(1)
        try:
            return work()
        finally:
            fcntl.fcntl(0, fcntl.F_SETFL, flags)
    threading.Thread(target=_until, args=(done,), daemon=True).start()
    try:
        return work()
    finally:
        done.set()


def _until(done: threading.Event) -> None:
    while not done.is_set():
        if select.select([0], [], [], 0.2)[0] and not done.is_set():
            os._exit(1)


if __name__ == "__main__":
    main()
