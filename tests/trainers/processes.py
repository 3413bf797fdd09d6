"""Runs a command with a hard time limit and leaves no process behind, even if the command starts separate sessions,
as torchrun does."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h: a process whose parent has ended becomes a child of ours


def finished(command: Sequence[str], folder: Path, limit: float, **more: str) -> str:
    """Return the output of a command, stdout and stderr.

    Raises:
        AssertionError: it failed, or the limit is over; with its last lines.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` is reached
    process = subprocess.Popen(
        command, cwd=folder, env=environment(more), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        said, over = process.communicate(timeout=limit)[0], ""
    except subprocess.TimeoutExpired:
        end_all()
        said, over = process.communicate()[0], f"not over after {limit:g} s"
    finally:
        end_all()
    assert not over and process.returncode == 0, "\n".join([" ".join(command), *said.splitlines()[-40:], over])
    return said


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the our environment, with the commands of this Python first."""
    return {**os.environ, "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])), **more}


def end_all() -> None:
    """End all descendants of this process."""
    while children := [child for of in Path("/proc/self/task").glob("*/children") for child in of.read_text().split()]:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        for child in children:
            with suppress(ChildProcessError):
                os.waitpid(int(child), 0)
