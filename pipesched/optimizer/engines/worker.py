"""A process that decides questions, one at a time, for `pool`.

Questions come on stdin and answers go out on what was stdout, pickled, and before an answer now and then the steps so
far; both pipes are private. Each message out begins with its length in 8 bytes. It ends when stdin closes, so with its
parent, however that ends: while it works, anything that happens on stdin ends it, because an engine in C listens to
nobody. SIGINT is the parent's business.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import select
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, BinaryIO

from pipesched.diagnostics import PipeschedError
from pipesched.optimizer.engines.decide import decide
from pipesched.optimizer.problem import Problem
from pipesched.optimizer.question import Answer, Question

_BY_SIGNAL = sys.platform == "linux"

Wire = tuple[int, dict[str, Any] | None, dict[str, Any]]
"""The number of the problem, its fields the first time, and the fields of the question but for the problem."""


def to_wire(question: Question, number: int, *, known: bool) -> Wire:
    """A question as it is sent."""
    problem = None if known else {f.name: getattr(question.problem, f.name) for f in fields(Problem)}
    return number, problem, {f.name: getattr(question, f.name) for f in fields(Question) if f.name != "problem"}


def main() -> None:
    """Answer until stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an engine prints is no answer
    problems: dict[int, Problem] = {}
    while (wire := _next(sys.stdin.buffer)) is not None:
        number, sent, asked = wire
        if sent is not None:
            problems[number] = Problem(**sent)
        question = Question(problems[number], **asked)
        _send(out, _alone(partial(_answer, question, partial(_send, out))))


def _send(out: BinaryIO, message: Answer | int) -> None:
    data = pickle.dumps(message)
    out.write(len(data).to_bytes(8, "big") + data)
    out.flush()


def _next(source: BinaryIO) -> Wire | None:
    try:
        wire: Wire = pickle.load(source)
    except EOFError:
        return None
    return wire


def _answer(question: Question, tell: Callable[[int], None]) -> Answer:
    try:
        return decide(question, tell)
    except PipeschedError as error:
        return Answer("unknown", engine=question.engine, reason=error.diagnostics[0].message)
    except Exception as error:
        return Answer("unknown", engine=question.engine, reason=f"internal error: {type(error).__name__}: {error}")


def _alone(work: Callable[[], Answer]) -> Answer:
    """The work, which ends with this process when something happens on stdin: the parent is gone.

    The kernel tells by SIGIO, whose default is to end the process, whatever it does. Elsewhere than on Linux a thread
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
