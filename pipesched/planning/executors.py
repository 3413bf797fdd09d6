"""Executors that do the work: this process, processes on this machine, a cluster's workers, or the caller's executor.

The pieces of work are divided into portions, each of which one worker computes. The results are in the order of the
pieces and do not depend on the workers.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from typing import Any, ParamSpec, TypeVar

from pipesched.command.values import Not
from pipesched.diagnostics import Diagnostic, PipeschedError, fail
from pipesched.planning.codes import PlanningCode

Given = ParamSpec("Given")
Made = TypeVar("Made")
Piece = TypeVar("Piece")

MOST = 1024  # processes
PORTION, PORTIONS = 32, 16  # most pieces of a portion, and least portions where there are enough pieces
_NAMES = re.compile(r"here|processes(:[1-9][0-9]{0,3})?|dask:.+", re.ASCII)


def named(text: str) -> str:
    """Check and return an executor's name: ``here``, ``processes``, ``processes:N``, or ``dask:ADDRESS`` of a
    scheduler.
    """
    if not _NAMES.fullmatch(text) or (text.startswith("processes:") and int(text.partition(":")[2]) > MOST):
        raise Not(text, f"here, processes, processes:N with N up to {MOST:,}, or dask:ADDRESS")
    return text


@dataclass(frozen=True)
class Workers:
    """The executor that an option names or a caller passes."""

    executor: str | Executor = "here"


class Here(Executor):
    """An executor that runs in this process."""

    def submit(self, fn: Callable[Given, Made], /, *args: Given.args, **kwargs: Given.kwargs) -> Future[Made]:
        """Call the function immediately."""
        made: Future[Made] = Future()
        try:
            made.set_result(fn(*args, **kwargs))
        except Exception as error:
            made.set_exception(error)
        return made

    def map(
        self, fn: Callable[..., Made], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Made]:
        """Call the function for each item when its result is consumed, so that progress is visible."""
        return map(fn, *iterables)


@contextmanager
def executor(of: str | Executor) -> Iterator[Executor]:
    """Yield `of` if it is a `concurrent.futures` executor, otherwise the executor with that name.

    Raises:
        PipeschedError: PS249 if there is no cluster, or if a process is killed.
    """
    if isinstance(of, Executor):
        yield of
        return
    kind, _, where = of.partition(":")
    makes = {"processes": _processes, "dask": _dask}.get(kind)
    if makes is None:
        yield Here()
        return
    with makes(where) as made:
        yield made


class Processes(ProcessPoolExecutor):
    """An executor of processes on this machine."""

    def map(
        self,
        fn: Callable[..., Made],
        *iterables: Iterable[object],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Made]:
        """Yield the results in order. Nothing is cancelled if the wait is interrupted: Python 3.11 reports errors if a
        process dies with cancelled work.
        """
        made = [self.submit(fn, *given) for given in zip(*iterables, strict=False)]
        return (one.result(timeout) for one in made)


@contextmanager
def _processes(count: str) -> Iterator[Executor]:
    """Yield an executor of processes on this machine; an error or Ctrl-C ends them immediately."""
    begun, others = get_context("fork" if sys.platform == "linux" else "spawn"), {*active_children()}
    made = Processes(int(count or os.cpu_count() or 1), begun, _owned)
    try:
        yield made
    except BrokenExecutor:
        help = "it may have run out of memory: use fewer processes, such as --executor processes:1"
        raise fail(PlanningCode.NO_CLUSTER, "a process ended before it finished its work", help=help) from None
    except BaseException:
        for process in {*active_children()} - others:
            process.terminate()
        raise
    finally:
        made.shutdown()


def _owned() -> None:
    """Ignore Ctrl-C, which the parent process handles, and exit when the parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    if (parent := parent_process()) is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    """Yield an executor for the workers of a Dask cluster, which must run the same version of pipesched."""
    try:
        from distributed import Client
    except ImportError:
        raise fail(PlanningCode.NO_CLUSTER, "Dask is not installed", help="pip install 'pipesched[planning]'") from None
    try:
        client = Client(address, timeout=5)
    except (OSError, ValueError) as error:  # timeouts of both are OSErrors
        raise fail(PlanningCode.NO_CLUSTER, f"no Dask scheduler answers at {address[:60]}: {error}") from None
    try:
        yield client.get_executor()
    finally:
        client.close()


def divided(work: Callable[[Sequence[Piece]], Sequence[Made]], pieces: Sequence[Piece], by: Workers) -> Iterator[Made]:
    """Yield the results of all pieces in order; one worker computes each portion. work: a function that can be pickled.

    Raises:
        PipeschedError: the first one that a piece raises; PS249.
    """
    if by.executor == "here":
        yield from work(pieces)
        return
    few = max(1, min(PORTION, len(pieces) // PORTIONS))
    with executor(by.executor) as workers:
        for found in workers.map(partial(_done, work), [pieces[at : at + few] for at in range(0, len(pieces), few)]):
            if isinstance(found, tuple):
                raise PipeschedError(found)
            yield from found


def _done(
    work: Callable[[Sequence[Piece]], Sequence[Made]], pieces: Sequence[Piece]
) -> list[Made] | tuple[Diagnostic, ...]:
    """Return the results, or an error's findings, since the error itself cannot be pickled."""
    try:
        return [*work(pieces)]
    except PipeschedError as error:
        return error.diagnostics
