"""Files appear whole or not at all, and are read only as far as they can be.

    writing   FILE <- rename <- .FILE.123.pipesched.tmp      locked by its writer as long as that lives
    reading   a block at a time, of at most `LARGEST` bytes of text

A writer that is killed leaves its temporary file, but not the lock on it; the next writer to the folder removes what
nobody holds. Pipes, devices and what the shell calls /dev/fd/N are written to as they are.
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
PATIENCE = 2.0  # seconds for somebody to open the other end of a named pipe
_BLOCK = 2**20
_TEMPORARY = re.compile(r"\..*\.[0-9]+\.pipesched\.tmp", re.S)
DESCRIPTOR = re.compile(r"/dev/stdout|/dev/stderr|(?:/dev|/proc/self)/fd/([0-9]{1,9})")
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


class NotText(ValueError):
    """A file holds something else than text."""


def read(path: str) -> bytes:
    """Return the bytes of a file of text.

    Raises:
        OSError: it cannot be read, or is a pipe to which nobody writes.
        NotText: it is not UTF-8, or there is more of it than is ever read.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as stream:
        head = _first(stream.fileno()) if stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode) else b""
        os.set_blocking(stream.fileno(), True)
        return text(itertools.chain([head], iter(lambda: stream.read(_BLOCK), b"")))


def _first(pipe: int) -> bytes:
    """Read the first bytes of a pipe within a moment, if any; a named pipe may wait for its writer.

    Raises:
        OSError: there is none.
    """
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN | select.POLLHUP)
    known = bool(waiting.poll(PATIENCE * 1000))
    try:
        head = os.read(pipe, _BLOCK)
    except BlockingIOError:
        return b""  # a writer that takes its time
    if not head and not known:
        raise OSError("the pipe has no writer")
    return head


def text(blocks: Iterable[bytes]) -> bytes:
    """Return the blocks as one, each checked as it comes, so that a file that is not text is not read to its end.

    Raises:
        NotText: as `read`.
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
    """Puts the pieces in the place of a file, whole or not at all; keeps the mode of a file that is there.

    Raises:
        OSError: they cannot be written.
    """
    open_already = DESCRIPTOR.fullmatch(path)
    if open_already:
        _write_to(int(open_already[1] or _STANDARD.get(path, 1)), pieces)
    elif os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        with open(path, "wb") as stream:  # a device or a pipe has no place to be renamed to
            stream.writelines(pieces)
    else:
        _rename_to(os.path.realpath(path), pieces)


def _write_to(descriptor: int, pieces: Iterable[bytes]) -> None:
    """Write at the position of a descriptor of ours, once the standard streams are flushed."""
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
    """A new file that is locked as long as it is written, and gone afterwards if it still bears this name."""
    descriptor = -1
    while descriptor < 0 or not os.path.exists(path):  # somebody may have cleared it before it was locked
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
    """Removes the temporary files of writers that are gone: those of this kind that nobody holds a lock on."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                itself = os.O_RDONLY | os.O_NOFOLLOW
                with contextlib.suppress(OSError), os.fdopen(os.open(entry.path, itself)) as stream:
                    held = stream.fileno()
                    # Its writer may have gone on in the meantime, and have given the name to its next file.
                    if _lock(held, wait=False) and os.path.samestat(os.fstat(held), os.lstat(entry.path)):
                        os.unlink(entry.path)


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Lock a file; true if it is ours alone from now on. Without locks it is never ours."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):
        return False
    return True
