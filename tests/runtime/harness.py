"""A set of gloo processes that is reused for many cases.

The processes are forked from a server that has imported torch, so they cost little; a case names a function, which
every rank calls with its rank and the arguments. Groups are kept from case to case as long as the size stays. A case
has a hard limit: past it every process is killed and the case fails. When the set closes, no process is left.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

Case = Callable[..., Any]
ONCE = ["tests.runtime.cases", "tests.runtime.troubled"]
"""The imports of the server of forks: torch, and all that ranks need."""


def forks() -> ForkServerContext:
    """Process context that has imported torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(ONCE)
    return context


class Ranks:
    """`size` processes; a case uses the first of them."""

    def __init__(self, size: int) -> None:
        self._size, self._groups = size, 0
        self._joined: tuple[int, str] = (0, "")
        self._pipes: list[Connection] = []
        self._processes: list[ForkServerProcess] = []
        self._folder = tempfile.TemporaryDirectory()
        self._start()

    @property
    def pids(self) -> list[int]:
        return [process.pid or 0 for process in self._processes]

    def _start(self) -> None:
        context = forks()
        for rank in range(self._size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, ranks: int, case: Case, *args: object, limit: float = 60, timeout: float = 0) -> list[Any]:
        """Return the results of the case on each rank. timeout: a fresh group, whose operations fail after these
        seconds.

        Raises:
            AssertionError: a rank raised, or the limit has passed; with the output of each rank.
        """
        if not self._processes:
            self._start()  # a case before this one failed
        if self._joined[0] != ranks or timeout:
            self._groups += 1
            self._joined = (ranks, str(Path(self._folder.name) / str(self._groups)))
        for pipe in self._pipes[:ranks]:
            pipe.send((case, args, ranks, self._joined[1], timeout or limit))
        answers = self._answers(ranks, time.monotonic() + limit)
        if timeout:
            self._joined = (0, "")
        wrong = [f"rank {rank}: {text}" for rank, (good, text) in enumerate(answers) if not good]
        assert not wrong, "\n".join(wrong)
        return [value for _, value in answers]

    def _answers(self, ranks: int, until: float) -> list[tuple[bool, Any]]:
        answers: dict[int, tuple[bool, Any]] = {}
        while len(answers) < ranks:
            left = [pipe for rank, pipe in enumerate(self._pipes[:ranks]) if rank not in answers]
            ready = wait(left, timeout=max(until - time.monotonic(), 0))
            for pipe in ready:
                rank = self._pipes.index(pipe)  # type: ignore[arg-type]
                try:
                    answers[rank] = self._pipes[rank].recv()
                except EOFError:
                    answers[rank] = (False, f"the process ended: {self._processes[rank].exitcode}")
            if not ready or any(not good for good, _ in answers.values()):
                self.close()  # the others wait for a rank that failed, or nothing moves
                missing = dict.fromkeys(range(ranks), (False, "did not finish"))
                return [value for _, value in sorted({**missing, **answers}.items())]
        return [value for _, value in sorted(answers.items())]

    def close(self) -> None:
        """Kill every process, and check that it has ended."""
        for process in self._processes:
            process.kill()
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            process.join(10)
            pipe.close()
            assert process.exitcode is not None, "a process is left"
        self._processes, self._pipes, self._joined = [], [], (0, "")


@contextmanager
def ranks_of(size: int) -> Iterator[Ranks]:
    """Yield a set of processes, which are ended afterwards."""
    made = Ranks(size)
    try:
        yield made
    finally:
        made.close()
        made._folder.cleanup()


def script(rank: int, size: int, folder: str, *arguments: str) -> None:
    """Start a process as a launcher would start it in the folder; its stderr goes to a file there."""
    import runpy
    import sys

    os.chdir(folder)
    os.dup2(os.open(f"stderr{rank}", os.O_CREAT | os.O_WRONLY), 2)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": Path("port").read_text("utf-8"), "GLOO_SOCKET_IFNAME": "lo"}
    os.environ.update(address, RANK=str(rank), WORLD_SIZE=str(size))
    sys.argv = list(arguments)
    runpy.run_path(arguments[0], run_name="__main__")


def torchrun(folder: str, *arguments: str) -> None:
    """Start torchrun with two ranks in the folder, which are forked from it; their output goes to a file there."""
    from torch.distributed.run import main

    os.chdir(folder)
    output = os.open("output", os.O_CREAT | os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    forked = ["--run-path", "--start-method", "fork"]  # as without these, but torch is imported once
    main(["--standalone", "--nproc-per-node", "2", *forked, str(Path(arguments[0]).absolute()), *arguments[1:]])


def _serve(rank: int, pipe: Connection) -> None:
    """Life of a process: join the group of a case, call it, answer."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    warnings.simplefilter("error")
    joined = ""
    while True:
        try:
            case, args, ranks, store, timeout = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            if store != joined:
                if dist.is_initialized():
                    dist.destroy_process_group()
                joined, limit = store, timedelta(seconds=timeout)
                if ranks > 1:
                    files = dist.FileStore(store, ranks)
                    dist.init_process_group("gloo", store=files, rank=rank, world_size=ranks, timeout=limit)
            pipe.send((True, case(rank, *args)))
        except Exception:
            pipe.send((False, traceback.format_exc()))
