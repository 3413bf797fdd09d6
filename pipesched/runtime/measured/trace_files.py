"""Reads the files of a measured run."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from os import PathLike, fsdecode

from pipesched.diagnostics import Code, fail
from pipesched.library.inputs import read_path
from pipesched.support import files
from pipesched.support.source import Source


def read(given: Iterable[object]) -> list[Source]:
    """Return the files of a measured run; files that end in ``.gz``, as torch's profiler writes them, are unpacked.

    Raises:
        PipeschedError: PS809, a file that is missing, wrongly packed, or not text.
    """
    paths = [x if isinstance(x, Source) else fsdecode(x) for x in given if isinstance(x, Source | str | PathLike)]
    return [x if isinstance(x, Source) else _unpacked(x) if x.endswith(".gz") else read_path(x) for x in paths]


def _unpacked(path: str) -> Source:
    try:
        with gzip.open(path, "rb") as stream:
            return Source(path, files.text(iter(lambda: stream.read(2**20), b"")).decode("utf-8"))
    except files.NotText as error:
        raise fail(Code.UNREADABLE, f"{path} {error}") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is not compressed text"
        raise fail(Code.UNREADABLE, f"cannot read {path}: {reason.lower()}") from None
