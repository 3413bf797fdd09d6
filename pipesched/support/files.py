"""Writes files completely or not at all, and reads them within limits.

    writing   FILE <- rename <- .FILE.1f2e3d4c.pipesched.tmp
    reading   in blocks, at most `LARGEST` bytes of text

A writer that is killed leaves its temporary file. Pipes, devices and /dev/fd/N are written directly.
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
from collections.abc import Iterable

LARGEST = 256 * 2**20
PATIENCE = 2.0  # seconds to wait for the other end of a named pipe
_BLOCK = 2**20
DESCRIPTOR = re.compile(r"/dev/stdout|/dev/stderr|(?:/dev|/proc/self)/fd/([0-9]{1,9})")
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


class NotText(ValueError):
    """Raised if a file is not text."""


def read(path: str) -> bytes:
    """Read the bytes of a text file.

    Raises:
        OSError: if it cannot be read, or is a pipe without a writer.
        NotText: if it is not UTF-8, or longer than the limit.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as stream:
        head = _first(stream.fileno()) if stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode) else b""
        os.set_blocking(stream.fileno(), True)
        return text(itertools.chain([head], iter(lambda: stream.read(_BLOCK), b"")))


def _first(pipe: int) -> bytes:
    """Read the first bytes of a pipe if they arrive within a short time; a named pipe may still wait for its writer.

    Raises:
        OSError: if no bytes arrive.
    """
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN | select.POLLHUP)
    known = bool(waiting.poll(PATIENCE * 1000))
    try:
        head = os.read(pipe, _BLOCK)
    except BlockingIOError:
        return b""  # the writer needs more time
    if not head and not known:
        raise OSError("nothing writes to the pipe")
    return head


def text(blocks: Iterable[bytes]) -> bytes:
    """Join the blocks; each is checked on arrival, so a file that is not text is not read to its end.

    Raises:
        NotText: as for `read`.
    """
    decoder, made = codecs.getincrementaldecoder("utf-8")(), bytearray()
    try:
        for block in itertools.chain(blocks, [b""]):
            made += block
            if len(made) > LARGEST:
                raise NotText(f"is larger than {LARGEST // 2**20} MiB, more than any schedule needs")
            if "\0" in decoder.decode(block, final=not block):
                raise NotText("is not text")
    except UnicodeDecodeError:
        utf_16 = bytes(made[:2]) in (b"\xff\xfe", b"\xfe\xff")
        raise NotText("is UTF-16: save it as UTF-8" if utf_16 else "is not text") from None
    return bytes(made)


def replace(path: str, pieces: Iterable[bytes]) -> None:
    """Replace a file's contents completely or not at all; keep the mode of an existing file.

    Raises:
        OSError: if the contents cannot be written.
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
    """Write to one of our file descriptors at its position, after flushing the standard streams."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    with os.fdopen(os.dup(descriptor), "wb") as target:
        target.writelines(pieces)


def _rename_to(path: str, pieces: Iterable[bytes]) -> None:
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name[:50]}.{os.urandom(8).hex()}.pipesched.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as stream:
            stream.writelines(pieces)
        if os.path.exists(path):
            os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode))
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
