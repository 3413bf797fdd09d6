"""Processes that decide questions while the caller goes on.

    submit ──> ticket ── a free worker, or the queue ──> wait ──> (ticket, Answer)
                 │                                  └──> steps: how far it is
                 └────── cancel: that worker is killed, and a fresh one started

Which answer comes first depends on the machine. Who must not asks `search.lanes`.

They are started at once, by their own command line and never by a fork or a second import of the caller's main module.
None outlives the pool, nor this process: see `worker`.
"""

from __future__ import annotations

import os
import pickle
import selectors
import subprocess
import time
from collections import deque
from contextlib import suppress
from types import TracebackType

from pipesched import child
from pipesched.optimizer.engines.worker import to_wire
from pipesched.optimizer.problem import Problem
from pipesched.optimizer.question import Answer, Question

_WORKER = "pipesched.optimizer.engines.worker"


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
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                if worker.ticket is not None:
                    selector.register(worker.output, selectors.EVENT_READ, worker)
            ready = selector.select(timeout)
        for key, _ in ready:
            worker, ticket = key.data, key.data.ticket
            for message in worker.messages():
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
        self.input, self.output = self.process.stdin, self.process.stdout
        self.heard = b""

    def ask(self, ticket: int, question: Question) -> bool:
        """Whether the question reached the process."""
        number = id(question.problem)
        message = pickle.dumps(to_wire(question, number, known=number in self.known))
        self.ticket, self.engine = ticket, question.engine
        try:
            self.input.write(message)
            self.input.flush()
        except OSError:
            return False
        except BaseException:  # half a question is none
            self.renew()
            raise
        self.known[number] = question.problem
        return True

    def messages(self) -> list[Answer | int]:
        """What it says, as far as it is here; to be called when it says something."""
        try:
            data = os.read(self.output.fileno(), 1 << 20)
        except OSError:
            data = b""
        if not data:
            return [self.lost()]
        self.heard += data
        found: list[Answer | int] = []
        while len(self.heard) >= 8 and len(self.heard) >= (end := 8 + int.from_bytes(self.heard[:8], "big")):
            found.append(pickle.loads(self.heard[8:end]))
            self.heard = self.heard[end:]
        if found and isinstance(found[-1], Answer):
            self.ticket = None
        return found

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
