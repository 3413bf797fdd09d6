"""Starts local processes for a program: p ranks and their supervisor, which leaves no process behind.

    caller ──one job per line──> supervisor ──fork──> rank 0 … rank p-1        (`worker.py`)
           <──its outcome───            <──a line each──

The supervisor imports torch once, for all ranks and jobs. It ends its ranks when the caller has ended, and the ranks
end when the supervisor has ended: each process holds a pipe that closes when the other end dies, for any reason. This
module is the caller's side and does not need torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from types import TracebackType
from typing import TypedDict

from pipesched.common import child
from pipesched.runtime.execute.errors import NEEDS, RANK_LOST, Fault, Place, RunError

FAULTS = (
    *("kill", "freeze", "raise", "raise-backward", "nan", "shape", "dtype", "stall", "leave", "collective", "weights"),
    *("hook", "stream"),
)
START = 60.0  # seconds for ranks to find each other, before their watchdogs start
EXTRA = 3.0  # seconds within which the other ranks must end after one has failed
ALIVE = 1.0  # seconds between two signs of life of the supervisor
IMPORT = 600.0  # seconds for the supervisor to import torch


@dataclass(frozen=True, slots=True)
class Break:
    """A fault to inject: its kind, its rank, and the number of the first instruction that it affects, from 1."""

    kind: str
    rank: int
    instruction: int = 1

    @classmethod
    def parse(cls, text: str) -> Break:
        """Parse ``kill@1:7``; without a number the fault acts from the first instruction on.

        Raises:
            ValueError: if the form or the kind is unknown.
        """
        kind, _, where = text.partition("@")
        rank, colon, instruction = where.partition(":")
        numbers = [rank, instruction] if colon else [rank]
        if kind not in FAULTS or not all(x.isascii() and x.isdecimal() and len(x) < 10 for x in numbers):
            raise ValueError(f"{text!r} is not KIND@RANK or KIND@RANK:INSTRUCTION; kinds are {', '.join(FAULTS)}")
        return cls(kind, int(rank), int(instruction) if colon else 1)


@dataclass(frozen=True)
class Job:
    """A run to start. stream: the text of the stream. others: the streams of ranks that run a different one, by rank.

    samples: the number of samples in each microbatch, () for the net's own number. timeout: seconds without progress
    that count as a stall. pace: the shortest duration of a compute operation in seconds, by kind (F, I, W, B, FB) and
    stage, and by microbatch if they differ. agree: whether ranks compare their streams first. trace: whether to record
    the start and end of each instruction. engine: pipesched or torch. csv: a torch CSV with messages, for torch to run
    instead of the stream's compute operations. judge: the ``module:function`` that checks torch's program. options: the
    options of torch's schedule class.
    """

    stream: str
    ranks: int
    net: str = "mlp"
    samples: tuple[int, ...] = ()
    dtype: str = "float64"
    steps: int = 2
    backend: str = "gloo"
    device: str = "cpu"
    timeout: float = 30.0
    seed: int = 0
    trace: bool = False
    agree: bool = True
    pace: Mapping[str, Sequence[float | Sequence[float]]] = field(default_factory=dict)
    engine: str = "pipesched"
    csv: str | None = None
    judge: str | None = None
    options: Mapping[str, bool] = field(default_factory=dict)
    others: Mapping[int, str] = field(default_factory=dict)
    breaks: tuple[Break, ...] = ()

    def dumps(self) -> str:
        """Return the job as one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> Job:
        """Read a job from a line of JSON."""
        data = json.loads(text)
        data["others"] = {int(rank): stream for rank, stream in data["others"].items()}
        data["samples"] = tuple(data["samples"])
        data["breaks"] = tuple(Break(**given) for given in data["breaks"])
        return cls(**data)


class Compared(TypedDict):
    """The losses of the program and of the undivided model by step; the largest error, with its tensor and step."""

    losses: list[float | None]
    undivided: list[float]
    error: float
    tensor: str
    step: int


class Measured(Compared):
    """The result of a rank. peak: the largest number of activations alive at once. versions: the largest number of
    versions of a stage's weights, 0 without STEPs inside the order. spans: the first start and the last end of each
    step, in seconds. steps: times of all instructions of a traced job, as `Recorder.steps`.
    """

    peak: int
    versions: int
    spans: list[tuple[float, float]]
    steps: list[list[list[float]]]


@dataclass(frozen=True, slots=True)
class RankResult:
    """How a rank ended.

    status: as in ``subprocess``, negative for a signal. stopped: whether the supervisor had to end the rank. data: the
    rank's measurements, if any. seconds: the time from the rank's start to its end.
    """

    rank: int
    status: int
    data: Measured | None
    fault: Fault | None
    seconds: float
    stopped: bool = False

    @property
    def end(self) -> str:
        """A description of how the rank ended, for a rank that could not report it."""
        if self.stopped:
            return "did not end by itself and was killed"
        return _ended(self.status)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How all ranks ended."""

    ranks: tuple[RankResult, ...]

    @property
    def fault(self) -> Fault | None:
        """The first fault, with the exit status of every rank that could not report one."""
        silent = sorted((r for r in self.ranks if r.fault is None and r.data is None), key=lambda r: r.seconds)
        notes = tuple(f"rank {r.rank} {r.end}" for r in silent)
        reported = sorted((r for r in self.ranks if r.fault is not None), key=lambda r: r.seconds)
        if reported:
            first = reported[0].fault
            assert first is not None
            return Fault(first.code, first.message, first.place, first.notes + notes, first.help)
        if silent:
            return Fault(RANK_LOST, f"rank {silent[0].rank} {silent[0].end}", Place(silent[0].rank), notes)
        return None


def _ended(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


class Ended(TypedDict):
    """The result of a rank, as its supervisor reports it. fault: the fault, in the format of `Fault.dumps`."""

    rank: int
    status: int
    seconds: float
    stopped: bool
    data: Measured | None
    fault: str | None


class Launcher:
    """A supervisor that runs jobs one after another. Use it in a ``with`` statement, which ends all processes.

    Raises:
        RunError: PS820 if torch is not installed; PS823 if the supervisor has ended or does not respond.
    """

    def __init__(self) -> None:
        require_torch()
        self._process = subprocess.Popen(
            child.command("pipesched.runtime.execute.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,  # Ctrl-C goes to the caller, which then ends all of them
        )
        self._read = b""

    def __enter__(self) -> Launcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The id of the supervisor's process, which is also the id of its process group."""
        return self._process.pid

    def run(self, job: Job) -> Outcome:
        """Start the ranks, and wait until all of them have ended."""
        assert self._process.stdin is not None
        line, limit = b"", IMPORT
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(job.dumps().encode() + b"\n")
            self._process.stdin.flush()
            while (line := self._line(limit)) == b"\n":
                limit = job.timeout + EXTRA
        if not line:
            status = self._process.wait()
            raise RunError(Fault(RANK_LOST, f"the process that starts the ranks {_ended(status)}"))
        return Outcome(tuple(_result(given) for given in json.loads(line)))

    def _line(self, limit: float) -> bytes:
        """Return the next line from the supervisor, or b"" if it has ended.

        Raises:
            RunError: PS823 if the supervisor sent nothing for `limit` seconds; the supervisor and its ranks are killed.
        """
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        while b"\n" not in self._read:
            if not select.select([out], [], [], limit)[0]:
                self._kill()
                message = f"the process that starts the ranks does not respond: no sign of life for {limit:g} s"
                raise RunError(Fault(RANK_LOST, message, help="it may be stopped (SIGSTOP, a debugger) or swapped out"))
            if not (chunk := os.read(out, 1 << 16)):
                return b""
            self._read += chunk
        line, end, self._read = self._read.partition(b"\n")
        return line + end

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the supervisor and its ranks, and wait until it has ended."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()


def _result(given: Ended) -> RankResult:
    fault = None if given["fault"] is None else Fault.loads(given["fault"])
    return RankResult(given["rank"], given["status"], given["data"], fault, given["seconds"], given["stopped"])


def _environment() -> dict[str, str]:
    """Return the ranks' environment: local sockets, one thread each, no torch log of faults that are reported here."""
    wanted = child.environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", TORCH_CPP_LOG_LEVEL="ERROR")
    loopback = {f"{backend}_SOCKET_IFNAME": "lo" for backend in ("GLOO", "NCCL")} if sys.platform == "linux" else {}
    return {**wanted, **loopback, "MASTER_ADDR": "127.0.0.1"}


def require_torch() -> None:
    """Require torch.

    Raises:
        RunError: PS820.
    """
    if find_spec("torch") is None:
        raise RunError(
            Fault(
                NEEDS, "running a schedule needs torch, which is not installed", help="pip install 'pipesched[runtime]'"
            )
        )
