"""Writing of files whole or not at all, and reading within limits.

    writing   FILE <- rename <- .FILE.123.pipesched.tmp      locked by its writer during its life
    reading   a block at a time, of at most `LARGEST` bytes of text

A writer that is killed leaves its temporary file, but not the lock on it; the next writer to the folder removes
unlocked ones. Pipes, devices and what the shell calls /dev/fd/N are written directly.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import os
import re
import select
import stat
import sys
from collections.abc import Iterable, Iterator

LARGEST = 256 * 2**20
PATIENCE = 2.0  # seconds to wait for the other end of a named pipe
_BLOCK = 2**20
_TEMPORARY = re.compile(r"\..*\.[0-9]+\.pipesched\.tmp", re.S)
DESCRIPTOR = re.compile(r"/dev/stdout|/dev/stderr|(?:/dev|/proc/self)/fd/([0-9]{1,9})")
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


class NotText(ValueError):
    """A file is not text."""


def read(path: str) -> bytes:
    """Read the bytes of a text file.

    Raises:
        OSError: if it cannot be read, or is a pipe to which nobody writes.
        NotText: if it is not UTF-8, or longer than the limit.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as stream:
        head = _first(stream.fileno()) if stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode) else b""
        os.set_blocking(stream.fileno(), True)
        return text(itertools.chain([head], iter(lambda: stream.read(_BLOCK), b"")))


def _first(pipe: int) -> bytes:
    """Read the first bytes of a pipe within a short time, if any; a named pipe may wait for its writer.

    Raises:
        OSError: if there are none.
    """
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN | select.POLLHUP)
    known = bool(waiting.poll(PATIENCE * 1000))
    try:
        head = os.read(pipe, _BLOCK)
    except BlockingIOError:
        return b""  # the writer needs more time
    if not head and not known:
        raise OSError("the pipe has no writer")
    return head


def text(blocks: Iterable[bytes]) -> bytes:
    """Return the blocks as one, each checked on arrival, so that a file that is not text is not read to its end.

    Raises:
        NotText: as for `read`.
    """
    decoder, made = codecs.getincrementaldecoder("utf-8")(), bytearray()
    try:
        for block in itertools.chain(blocks, [b""]):
            made += block
            if len(made) > LARGEST:
                raise NotText(f"holds more than {LARGEST // 2**20} MiB, which no schedule does")
            if "\0" in decoder.decode(block, final=not block):
                raise NotText("is not text")
    except UnicodeDecodeError:
        raise NotText("is not text") from None
    return bytes(made)


def replace(path: str, pieces: Iterable[bytes]) -> None:
    """Replace a file by the pieces, whole or not at all; keep the mode of an existing file.

    Raises:
        OSError: if they cannot be written.
    """
    open_already = DESCRIPTOR.fullmatch(path)
    if open_already:
        _write_to(int(open_already[1] or _STANDARD.get(path, 1)), pieces)
    elif os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        with open(path, "wb") as stream:  # a device or a pipe cannot be replaced by a renamed file
            stream.writelines(pieces)
    else:
        _rename_to(os.path.realpath(path), pieces)


def _write_to(descriptor: int, pieces: Iterable[bytes]) -> None:
    """Write at the position of one of our descriptors, after flushing the standard streams."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    with os.fdopen(os.dup(descriptor), "wb") as target:
        target.writelines(pieces)


def _rename_to(path: str, pieces: Iterable[bytes]) -> None:
    folder, name = os.path.split(path)
    clear(folder)
    with _temporary(os.path.join(folder, f".{name[:50]}.{os.getpid()}.pipesched.tmp")) as (temporary, descriptor):
        with os.fdopen(os.dup(descriptor), "wb") as stream:
            stream.writelines(pieces)
        if os.path.exists(path):
            os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode))
        os.replace(temporary, path)


@contextlib.contextmanager
def _temporary(path: str) -> Iterator[tuple[str, int]]:
    """Yield a new file that is locked while it is written, and removed afterwards if it still has this name."""
    descriptor = -1
    while descriptor < 0 or not os.path.exists(path):  # another process may have removed it before it was locked
        if descriptor >= 0:
            os.close(descriptor)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        _lock(descriptor, wait=True)
    try:
        yield path, descriptor
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.close(descriptor)


def clear(folder: str) -> None:
    """Remove the temporary files of dead writers: those of this kind that nobody has locked."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                itself = os.O_RDONLY | os.O_NOFOLLOW
                with contextlib.suppress(OSError), os.fdopen(os.open(entry.path, itself)) as stream:
                    held = stream.fileno()
                    # Its writer may have continued in the meantime, and have given the name to its next file.
                    if _lock(held, wait=False) and os.path.samestat(os.fstat(held), os.lstat(entry.path)):
                        os.unlink(entry.path)


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Lock a file; return True if it is exclusively ours from now on. Without locks it never is."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):
        return False
    return True
