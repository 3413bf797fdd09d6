"""Finds the position of another thread: in a step or outside, in which collective, at which line of the user's code.

    time.sleep  <  optimizer.py:12  <  train.py:57                        outside of a step, at train.py:57
    all_reduce  <  train.py:41  <  pipesched's STEP                       in a step, in the all_reduce at train.py:41
    all_reduce  <  pipesched's mean of the losses                         in a step, in a collective of pipesched
    torch's backward  <  pipesched's average of replicas                  in a step, in the all-reduce of DDP

The line is the innermost one that belongs neither to torch, nor to pipesched, nor to an installed package.
"""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from inspect import unwrap
from pathlib import PurePath
from sysconfig import get_paths
from traceback import walk_stack, walk_tb
from types import FrameType

from pipesched.runtime.execute.errors import printable
from pipesched.runtime.execute.executor import Runtime
from pipesched.runtime.execute.replicas import Replica

_STANDARD = get_paths()["stdlib"]
_INSTALLED = {"site-packages", "dist-packages"}
_COLLECTIVES = "torch.distributed.distributed_c10d"
_STEPS = (Runtime.step.__code__, Runtime.evaluate.__code__)
_AVERAGE = unwrap(Replica._reach).__code__
_USERS = {
    "pipesched.runtime.execute.training",
    "pipesched.runtime.execute.breaking",
}  # these modules use the runtime like a user's script
_CODE = 80  # most characters shown of a line


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The source position of a thread or an error. inside: whether the thread is in a step. collective: the name of the
    collective that it is in, or empty. ours: whether pipesched called that collective. line: ``train.py:41
    (dist.all_reduce(x))``.
    """

    inside: bool = False
    line: str = ""
    collective: str = ""
    ours: bool = False

    def __str__(self) -> str:
        """Return ``in all_reduce, at train.py:41 (…)``."""
        collective = f"in {self.collective}" if self.collective else ""
        return ", ".join(filter(None, (collective, self.line and f"at {self.line}")))


def of_thread(thread: int) -> Whereabouts:
    """Return the source position of a running thread."""
    frame = sys._current_frames().get(thread)
    return _whereabouts([] if frame is None else [(x, line or 0) for x, line in walk_stack(frame)])


def of_error(error: BaseException) -> Whereabouts:
    """Return the source position at which an exception was raised."""
    return _whereabouts(list(walk_tb(error.__traceback__))[::-1])


def _whereabouts(frames: list[tuple[FrameType, int]]) -> Whereabouts:
    """Return the source position in a stack. frames: each frame with its line number, the innermost first."""
    inside = any(frame.f_code in _STEPS for frame, _ in frames)
    collective, ours = "", False
    for frame, _ in frames:
        if frame.f_code is _AVERAGE:
            collective = "the all-reduce of DistributedDataParallel"
            break
        if (ours := _is_ours(frame)) or not _is_library(frame):
            break
        name = frame.f_code.co_name
        collective = name if _module(frame) == _COLLECTIVES and name[0] != "_" else collective
    lines = (_line(frame, line) for frame, line in frames if not _is_ours(frame) and not _is_library(frame))
    return Whereabouts(inside, next(lines, ""), collective, ours)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_ours(frame: FrameType) -> bool:
    return _module(frame).startswith("pipesched.") and _module(frame) not in _USERS


def _is_library(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith((_STANDARD, "<frozen", "<string>")) or not _INSTALLED.isdisjoint(PurePath(file).parts)


def _line(frame: FrameType, number: int) -> str:
    file = frame.f_code.co_filename
    code = linecache.getline(file, number).strip()
    return printable(f"{PurePath(file).name}:{number}" + (f" ({code:.{_CODE}})" if code else ""))
