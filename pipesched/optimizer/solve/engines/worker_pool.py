"""Processes that decide questions while the caller continues: the pool in this process, and `main` in each of them.

    submit ──> ticket ── a free worker, or the queue ──> wait ──> (ticket, Answer)
                 │                                  └──> steps: how much it has done
                 └────── cancel: that worker is killed, and a fresh one started

Which answer comes first depends on the machine; `search.lanes` puts answers into an order that does not.

Workers are started at once, by their own command line and never by a fork or a second import of the caller's main
module. Questions come on a worker's stdin and answers leave on what was its stdout, and before an answer now and then
the steps so far; both pipes are private. A worker ends when its stdin closes, so with the pool and with the parent,
however that ends: while it works, anything that happens on stdin ends it, because an engine in C listens to nobody.
SIGINT is the parent's business.
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

from pipesched.diagnostics import PipeschedError
from pipesched.optimizer.solve.engines.decide import decide
from pipesched.optimizer.solve.problem import Answer, Problem, Question
from pipesched.support import child

_WORKER = "pipesched.optimizer.solve.engines.worker_pool"
_BY_SIGNAL = sys.platform == "linux"


class Pool:
    """So many workers, from now until `close`."""

    def __init__(self, workers: int = 2) -> None:
        self._tickets = 0
        self._queue: deque[tuple[int, Question]] = deque()
        self._done: deque[tuple[int, Answer]] = deque()
        self.steps: dict[int, int] = {}
        """By ticket of what is worked on, the steps so far."""
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
        """How many workers there are."""
        return len(self._workers)

    @property
    def idle(self) -> int:
        """How many more questions would be taken at once."""
        return max(0, sum(worker.ticket is None for worker in self._workers) - len(self._queue))

    def submit(self, question: Question) -> int:
        """The ticket of the question; it waits its turn where no worker is free."""
        self._tickets += 1
        self._queue.append((self._tickets, question))
        self._hand_out()
        return self._tickets

    def wait(self, timeout: float | None = None) -> tuple[int, Answer] | None:
        """The next answer, with its ticket; None after so many seconds, and where nothing is asked."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._done and any(worker.ticket for worker in self._workers):
            left = None if until is None else max(0.0, until - time.monotonic())
            if not self.listen(left):
                return None
        return self._done.popleft() if self._done else None

    def arrived(self) -> list[tuple[int, Answer]]:
        """The answers that are here, which are then forgotten."""
        found = list(self._done)
        self._done.clear()
        return found

    def cancel(self, ticket: int) -> None:
        """The question is not to be answered; nothing happens where it has been."""
        self._queue = deque(entry for entry in self._queue if entry[0] != ticket)
        self._done = deque(entry for entry in self._done if entry[0] != ticket)
        self.steps.pop(ticket, None)
        for worker in self._workers:
            if worker.ticket == ticket:
                worker.renew()
        self._hand_out()

    def close(self) -> None:
        """Ends every worker, whatever it does."""
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
        """Whether a worker had something to say in time."""
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
    """One process, and the ticket of what it works on."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.ticket: int | None = None
        self.engine = ""
        self.known: dict[int, Problem] = {}  # kept alive, so that a number stays one problem's
        self.process = subprocess.Popen(
            child.command(_WORKER),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child.environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),  # for what is not an engine
            process_group=0,  # Ctrl-C is for the parent
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input = Connection(os.dup(self.process.stdin.fileno()), readable=False)
        self.output = Connection(os.dup(self.process.stdout.fileno()), writable=False)
        self.process.stdin.close()
        self.process.stdout.close()

    def ask(self, ticket: int, question: Question) -> bool:
        """Whether the question reached the process."""
        self.ticket, self.engine = ticket, question.engine
        self.known[id(question.problem)] = question.problem
        try:
            self.input.send((id(question.problem), question))
        except OSError:
            return False
        except BaseException:  # half a question is none
            self.renew()
            raise
        return True

    def heard(self) -> Answer | int:
        """What it says: an answer, or its steps so far; to be called when it says something."""
        try:
            message: Answer | int = self.output.recv()
        except (EOFError, OSError):
            return self.lost()
        if isinstance(message, Answer):
            self.ticket = None
        return message

    def lost(self) -> Answer:
        """The answer of a process that has died; a fresh one takes its place."""
        with suppress(subprocess.TimeoutExpired):  # its pipe may close a little before it ends
            self.process.wait(1)
        engine, status = self.engine, self.end()
        self._start()
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return Answer("unknown", engine=engine, reason=f"the engine's process ended with {how}")

    def renew(self) -> None:
        """A fresh process in the place of this one."""
        self.end()
        self._start()

    def end(self) -> int:
        """Ends the process; its exit status."""
        if self.process.poll() is None:
            self.process.kill()
        status = self.process.wait()
        self.output.close()
        with suppress(OSError):  # what was not sent
            self.input.close()
        return status


def main() -> None:
    """Answer until stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, out = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # what an engine prints is no answer
    problems: dict[int, Problem] = {}  # the first that came with a number, with all that was derived of it
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
    """The work, which ends with this process when something happens on stdin: the parent is gone.

    The kernel sends SIGIO, whose default is to end the process, whatever it does. Elsewhere than on Linux a thread
    waits, which an engine that holds the interpreter lets run only when it is done.
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
