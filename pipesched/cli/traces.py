"""The files of a measured run, as text; torch's profiler packs them where their name ends in ``.gz``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pipesched.cli import options
from pipesched.diagnostics import Code, fail

if TYPE_CHECKING:
    from pipesched.source import Source


def read(paths: Iterable[str]) -> list[Source]:
    """The texts of some traces.

    Raises:
        PipeschedError: PS809, missing, packed wrongly, or not text.
    """
    return [_unpacked(path) if path.endswith(".gz") else options.read_path(path) for path in paths]


def _unpacked(path: str) -> Source:
    import gzip
    import zlib

    from pipesched.source import Source

    try:
        with gzip.open(path, "rb") as stream:
            return Source(path, stream.read().decode("utf-8"))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is not packed text"
        raise fail(Code.UNREADABLE, f"cannot read {path}: {reason.lower()}") from None
