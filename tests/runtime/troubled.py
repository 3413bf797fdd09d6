"""A training loop under `Guard` in real gloo processes, with faults on one or two ranks.

The trouble comes in the third of five steps. Every process writes when it came, and with which fault it ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pipesched.runtime import Fault, Guard, RunError, Runtime
from pipesched.stream import Instruction, Stream
from tests.runtime.harness import forks
from tests.runtime.models import batch, blocks, squared
from tests.runtime.streams import stream_of

STEPS, THIRD, FOREVER = 5, 2, 600.0
MICROBATCHES = 4


STREAMS = {ranks: stream_of("1f1b", p=ranks, m=MICROBATCHES) for ranks in (2, 3)}  # made once, before the fork


@dataclass(frozen=True)
class Trouble:
    """kind: as in `Loop`. ranks: those in trouble. more: processes beside the pipeline's ranks.

    resume: seconds until stopped ranks continue. limit: seconds until the remaining processes are killed.
    """

    kind: str
    ranks: tuple[int, ...] = (1,)
    pipeline: int = 2
    more: int = 0
    timeout: float = 30.0
    resume: float | None = None
    limit: float = 60.0


@dataclass(frozen=True)
class Ended:
    """The end of a process. status: None if it did not end. seconds: since the trouble. said: on stderr."""

    status: int | None
    fault: dict[str, Any] | None
    seconds: float
    said: str


class Loop:
    """The life of one rank."""

    def __init__(self, rank: int, given: Trouble, folder: Path) -> None:
        self.rank, self.given, self.folder = rank, given, folder
        self.has = rank in given.ranks
        self.number = -1
        self.evaluates = False
        self.others: Any = None

    def come(self) -> bool:
        """Return True if the trouble comes now, and write it down."""
        if self.has and self.number == THIRD:
            (self.folder / f"came{self.rank}").write_text(str(time.monotonic()), "utf-8")
            return True
        return False

    def run(self) -> None:
        torch.set_num_threads(1)
        ranks = self.given.pipeline
        whole = ranks + self.given.more
        files = dist.FileStore(str(self.folder / "meet"), whole)
        dist.init_process_group("gloo", store=files, rank=self.rank, world_size=whole)
        groups = [dist.new_group(list(range(i, min(i + ranks, whole)))) for i in range(0, whole, ranks)]
        self.others = dist.new_group(list(range(whole)))
        if self.rank < ranks or self.given.kind == "replica sleeps":
            for _ in range(2 if self.given.kind == "twice" else 1):
                self.train(STREAMS[ranks], groups[self.rank // ranks], self.rank % ranks)
        else:
            time.sleep(FOREVER)  # in another replica, which never arrives

    def train(self, stream: Stream, group: Any, rank: int) -> None:
        inputs, targets = batch(MICROBATCHES)
        modules: dict[tuple[int, int], nn.Module]
        modules = {held: blocks(len(stream.ranks))[held[1]] for held in stream.held_by(rank)}
        if self.given.kind == "replica sleeps":
            replicas = [dist.new_group([stage, stage + len(stream.ranks)]) for stage in range(len(stream.ranks))]
            modules = {held: DistributedDataParallel(x, process_group=replicas[rank]) for held, x in modules.items()}
        runtime = Runtime(
            stream,
            modules,
            self.loss,
            rank=rank,
            example=inputs[: len(inputs) // MICROBATCHES],
            group=group,
            before=self.before,
            optimize=self.step_of_optimizer,
        )
        if self.rank >= self.given.pipeline:
            for _ in range(THIRD):
                runtime.step(inputs, targets)
            time.sleep(FOREVER)
        if self.given.kind == "never begins":
            self.number = THIRD
            if self.come():
                os._exit(0)
        with Guard(runtime, timeout=self.given.timeout, group=group, end=self.end):
            for self.number in range(STEPS):
                self.loader()
                if self.given.kind == "leaves" and self.come():
                    break
                runtime.step(inputs, targets)
                if self.given.kind.startswith("evaluat"):
                    self.evaluates = True
                    runtime.evaluate(inputs, targets)
                    self.evaluates = False
                self.optimizer()

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        if self.given.kind == "loss sleeps" and self.come():
            time.sleep(FOREVER)
        if self.given.kind == "evaluation raises" and self.evaluates and self.come():
            raises()
        return squared(output, target)

    def before(self, instruction: Instruction, index: int) -> None:
        if self.given.kind == "stopped" and index == 3 and self.come():
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.given.kind == "slow" and index in (1, 3) and self.come():
            time.sleep(self.given.timeout * 0.6)

    def step_of_optimizer(self) -> None:
        """Do the work of STEP."""
        if self.given.kind == "STEP sleeps" and self.come():
            time.sleep(FOREVER)
        if self.given.kind == "STEP reduces" and self.come():
            dist.all_reduce(torch.zeros(1), group=self.others)

    def loader(self) -> None:
        """Work before a step."""
        if self.given.kind == "replica sleeps":
            self.come()
        if self.given.kind == "loader sleeps" and self.come():
            time.sleep(FOREVER)
        if self.given.kind == "stopped between" and self.come():
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.given.kind == "all load slowly" and self.number == THIRD:
            time.sleep(2 * self.given.timeout)

    def optimizer(self) -> None:
        """Work after a step."""
        if self.given.kind in ENDS and self.come():
            ENDS[self.given.kind]()
        if self.given.kind == "reduces between" and self.come():
            dist.all_reduce(torch.zeros(1), group=self.others)

    def end(self, fault: Fault) -> NoReturn:
        self.tell(fault)
        os._exit(1)

    def tell(self, fault: Fault) -> None:
        (self.folder / f"fault{self.rank}").write_text(fault.dumps(), "utf-8")


def raises() -> None:
    raise ValueError("\x1b[31mbroken on purpose")


def interrupts() -> None:
    raise KeyboardInterrupt


ENDS: dict[str, Callable[[], object]] = {
    "optimizer sleeps": lambda: time.sleep(FOREVER),
    "raises": raises,
    "interrupted": interrupts,
    "exits": lambda: sys.exit(0),
    "vanishes": lambda: os._exit(0),
}


def live(rank: int, given: Trouble, folder: str) -> None:
    """Life of a process: it exits with 0, or with a fault and 1."""
    loop = Loop(rank, given, Path(folder))
    os.dup2(os.open(loop.folder / f"stderr{rank}", os.O_CREAT | os.O_WRONLY), 2)
    try:
        loop.run()
    except RunError as error:
        loop.end(error.fault)
    except (KeyboardInterrupt, SystemExit):
        os._exit(3)
    os._exit(0)


def ended(given: Trouble) -> list[Ended]:
    """Return the end of every process; those that do not end are killed."""
    context = forks()
    with tempfile.TemporaryDirectory() as made:
        folder, until = Path(made), time.monotonic() + given.limit
        processes = [
            context.Process(target=live, args=(rank, given, made), daemon=True)
            for rank in range(given.pipeline + given.more)
        ]
        for process in processes:
            process.start()
        ends = dict(_ends(processes, folder, given, until))
        for process in processes:
            process.kill()
            process.join(10)
            assert process.exitcode is not None, "a process is left"
        came = max((float(file.read_text("utf-8")) for file in folder.glob("came*")), default=0.0)
        return [_ended(folder, rank, ends.get(rank), came) for rank in range(len(processes))]


def _ends(
    processes: list[ForkServerProcess], folder: Path, given: Trouble, until: float
) -> dict[int, tuple[int, float]]:
    """Return the exit status and time of each process, while one is expected to end."""
    found: dict[int, tuple[int, float]] = {}
    stays, resume = set(range(given.pipeline, len(processes))), given.resume
    if given.kind.startswith("stopped") and resume is None:
        stays |= set(given.ranks)
    while len(found) < len(processes) - len(stays) and time.monotonic() < until:
        time.sleep(0.05)
        for rank, process in enumerate(processes):
            if rank not in found and process.exitcode is not None:
                found[rank] = process.exitcode, time.monotonic()
        came = [folder / f"came{rank}" for rank in given.ranks]
        if resume is not None and all(file.exists() for file in came):
            time.sleep(resume)
            for rank in given.ranks:
                with suppress(ProcessLookupError):
                    os.kill(processes[rank].pid or 0, signal.SIGCONT)
            resume = None
    return found


def _ended(folder: Path, rank: int, end: tuple[int, float] | None, came: float) -> Ended:
    told = folder / f"fault{rank}"
    fault = json.loads(told.read_text("utf-8")) if told.exists() else None
    said = (folder / f"stderr{rank}").read_text("utf-8")
    return Ended(end and end[0], fault, end[1] - came if end else float("inf"), said)
