"""Restricts a framework's code: it can change files only in one folder, and use only limited memory.

    hooks      Python's audit events, in the process itself: an action is refused at the line that attempts it
    Landlock   Linux 5.13 and later: the kernel refuses it, also for C code, sqlite, shells and all child processes
    limits     memory of each process, size of each file

If the kernel has no Landlock, the code must not start processes, since these would not be restricted. As in
`recording`, the code here runs on Python 3.9.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable
from contextlib import suppress

MEMORY = 4 * 2**30  # most bytes of a process, without mapped files
FILE = 2**30  # most bytes of a file
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")
_CHANGES = {
    *("os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr", "os.chflags"),
}
_BEGINS = {
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn"),
}

# Numbers from Linux's include/uapi/linux/landlock.h and prctl.h; the three calls have the same numbers on every
# architecture.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVILEGES = 38
_WRITE, _TRUNCATE = 1 << 1, 1 << 14
_FILES = {1: 0x1FF2, 2: 0x3FF2, 3: 0x7FF2}  # by Landlock version: write, remove, make; 2: link elsewhere; 3: truncate
_TCP = 0b11  # from version 4: bind, connect
_SCOPES = 0b11  # from version 6: abstract sockets of other processes, signals to other processes


def close(folder: str, refuse: Callable[[str], None]) -> None:
    """Confine this process permanently. refuse: raises an error for a forbidden action of Python code, which its
    argument describes.
    """
    _limit()
    held = _landlock(folder)
    inside = os.path.realpath(folder) + os.sep

    def elsewhere(path: object) -> bool:
        if not isinstance(path, (str, bytes)):
            return False
        whole = os.path.realpath(os.fsdecode(path))
        return not ((whole + os.sep).startswith((inside, "/proc/self/")) or whole in _DEVICES)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "socket.__new__":
            refuse("opens a socket")
        elif event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITES and elsewhere(path):
                refuse(f"writes to {_named(path)}")
        elif event in _CHANGES:
            for path in filter(elsewhere, arguments[:2]):
                refuse(f"changes {_named(path)}")
        elif event == "sqlite3.connect" and elsewhere(_database(arguments[0])):
            refuse(f"opens the database {_named(arguments[0])}")
        elif event in _BEGINS and not held:
            refuse("starts a process, which this system cannot confine")

    sys.addaudithook(hook)


def _named(path: object) -> str:
    """Return the path as a string; empty if `path` is not a path (a number, None)."""
    return os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""


def _database(name: object) -> str | None:
    """Return the file that sqlite3 opens for a database name, None for a database in memory."""
    text = _named(name)
    path = text[5:].partition("?")[0] if text.startswith("file:") else text
    return None if path in ("", ":memory:") or "mode=memory" in text else path


def _limit() -> None:
    """Limit the memory and file size of each process, if the system supports it; a lower existing limit is kept."""
    with suppress(ImportError):
        import resource

        for kind, most in ((resource.RLIMIT_DATA, MEMORY), (resource.RLIMIT_FSIZE, FILE), (resource.RLIMIT_CORE, 0)):
            with suppress(ValueError, OSError):
                hard = resource.getrlimit(kind)[1]
                least = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.setrlimit(kind, (least, least))


def _landlock(folder: str) -> bool:
    """Make the kernel refuse changes outside of `folder` by this process and its children; return True on success."""
    if not sys.platform.startswith("linux"):
        return False
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        version = libc.syscall(_CREATE, None, ctypes.c_size_t(0), 1)
        if version < 1:
            return False
        files = _FILES[min(version, 3)]
        rules = struct.pack("QQQ", files, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
        size = 8 if version < 4 else 16 if version < 6 else 24
        made = libc.syscall(_CREATE, rules, ctypes.c_size_t(size), 0)
        for path, allowed in ((folder, files), *((device, files & (_WRITE | _TRUNCATE)) for device in _DEVICES)):
            with suppress(FileNotFoundError):
                at = os.open(path, os.O_PATH | os.O_CLOEXEC)
                libc.syscall(_ADD, made, 1, struct.pack("=Qi", allowed, at), 0)
                os.close(at)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        held = int(libc.syscall(_RESTRICT, made, 0)) == 0
        os.close(made)
        return held
    return False
