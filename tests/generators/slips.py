"""Generators with one mistake each, and a few correct ones; `python:slips.py:NAME` executes them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path


def rows(p: int, m: int) -> list[str]:
    """Return the forwards, then backwards, as cells of torch's CSV."""
    return [",".join(f"{r}{kind}{i}" for kind in "FB" for i in range(m)) for r in range(p)]


def lists(p: int, m: int) -> list[list[str | None]]:
    return [[*(f"F{r}.{i}" for i in range(m)), None, *(f"B{r}.{i}" for i in range(m))] for r in range(p)]


def by_rank(p: int, m: int) -> Mapping[int, list[str | None]]:
    return {r: [*(f"{r}F{i}" for i in range(m)), None, *(f"{r}B{i}" for i in range(m))] for r in reversed(range(p))}


def steps(p: int, m: int, rank: int) -> Iterator[list[str]]:
    """Yield a generator of steps, each a list of instructions."""
    for kind in "FB":
        for i in range(m):
            yield [f"{kind}{rank}.{i}"]


class Action:
    """An action that prints like torch's."""

    def __init__(self, kind: str, stage: int, microbatch: int) -> None:
        self.kind, self.stage, self.microbatch = kind, stage, microbatch

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


class Held:
    """A schedule object with the order of every rank, like torch's."""

    def __init__(self, p: int, m: int) -> None:
        self.pipeline_order = {r: [Action(kind, r, i) for kind in "FB" for i in range(m)] for r in range(p)}


def whole(p: int, m: int) -> str:
    return "\n".join(rows(p, m))


def forgets(p: int, m: int, rank: int) -> Iterator[str]:
    for i in range(m):
        yield f"F{rank}.{i}"  # forgets marks this line
    for i in range(m - 1):
        yield f"B{rank}.{i}"


def options(p: int, m: int, *, deep: bool = False, kind: str = "", share: float = 0.0) -> list[str]:
    assert (deep, kind, share) == (True, "half", 0.5), (deep, kind, share)
    return rows(p, m)


def number() -> int:
    return 42


def words() -> list[str]:
    return ["to be", "or not"]


def no_rank_one() -> Mapping[int, str]:
    return {0: "0F0,0B0", 2: "1F0,1B0"}


def endless(p: int, rank: int) -> Iterator[str]:
    while True:
        yield f"F{rank}.0"


def never_ends() -> None:
    while True:
        time.sleep(60)


def deaf() -> None:
    """Ignores every request to end."""
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    never_ends()


def raises() -> None:
    print("about to raise")
    raise KeyError("no schedule")  # raises marks this line


def leaves() -> None:
    sys.exit(3)


def dies() -> None:
    os._exit(0)


def crashes() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def prints(p: int, m: int) -> list[str]:
    """Print texts that look like an answer to every available stream."""
    for descriptor in (1, 2):
        os.write(descriptor, b'{"rows": ["rank 0: F9.9"], "ended": "status 0"}\n' * 10_000)
    return rows(p, m)


def needs() -> None:
    import no_such_package  # noqa: F401  # needs marks this line


def opens_a_socket() -> None:
    socket.socket()  # opens_a_socket marks this line


def tries_a_socket(p: int, m: int) -> list[str]:
    with contextlib.suppress(OSError):
        socket.socket()
    return rows(p, m)


def writes_home(p: int, m: int) -> list[str]:
    """Writes into its presumed home and folder."""
    for folder in (Path.home(), Path.cwd(), Path(os.environ["TMPDIR"])):
        (folder / "left_behind").write_text("here")
    return rows(p, m)


def writes_away(file: str = "") -> None:
    Path(file).write_text("here")


def removes(file: str = "") -> None:
    Path(file).unlink()


def orphans(file: str = "", p: int = 1, m: int = 1) -> list[str]:
    """Leave a process in a separate session, whose command line has a word to find it by; return an order."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", file], start_new_session=True)
    time.sleep(0.3)
    return rows(p, m)


def waits_with_orphans(file: str = "") -> None:
    orphans(file)
    never_ends()


def interrupts() -> None:
    raise KeyboardInterrupt  # interrupts marks this line


def by_sqlite(file: str = "") -> None:
    sqlite3.connect(file).execute("create table t(x)")  # by_sqlite marks this line


def by_sqlite_name(file: str = "") -> None:
    sqlite3.connect(f"file:{file}?mode=rwc", uri=True).execute("create table t(x)")


def in_memory(p: int, m: int) -> list[str]:
    """Create two databases, one of its own and one in its folder."""
    for name in (":memory:", "mine.db"):
        sqlite3.connect(name).execute("create table t(x)")
    return rows(p, m)


def by_times(file: str = "") -> None:
    os.utime(file, (0, 0))


def by_shell(file: str = "") -> None:
    if os.system(f"echo here >> '{file}'"):
        raise OSError("the shell failed")


def by_spawn(file: str = "") -> None:
    command = [sys.executable, "-c", f"open({file!r}, 'w')"]
    if os.waitpid(os.posix_spawn(command[0], command, dict(os.environ)), 0)[1]:
        raise OSError("what was spawned failed")


def by_process(file: str = "") -> None:
    subprocess.run(["rm", "-f", file], check=True, capture_output=True)


def by_fork(file: str = "") -> None:
    child = os.fork()
    if child == 0:
        Path(file).write_text("here")
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise OSError("the child failed")


def by_library(file: str = "") -> None:
    """Calls of C, which Python does not see."""
    libc = ctypes.CDLL(None)
    if libc.creat(file.encode(), 0o600) < 0 and libc.unlink(file.encode()) < 0:
        raise OSError("both failed")


def by_folder(file: str = "") -> None:
    """A name relative to an open folder."""
    folder = os.open(Path(file).parent, os.O_RDONLY)
    os.unlink(Path(file).name, dir_fd=folder)


def takes_memory() -> None:
    bytearray(6 * 2**30)  # takes_memory marks this line


def takes_disk() -> None:
    with open("large", "wb") as stream:
        stream.truncate(2**31)


def ends_its_keeper() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    never_ends()
