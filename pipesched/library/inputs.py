"""Sources of text: a path, stdin, or the library of schedules that ships with pipesched."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pipesched.diagnostics import Code, Diagnostic, PipeschedError, fail
from pipesched.extension import Aliases, Names, explained, rows
from pipesched.library.assets import asset, built_in
from pipesched.support import files
from pipesched.support.source import Source


def read(target: str) -> Source:
    """Read a path, stdin (``-``), or a built-in schedule by its name or an alias.

    A name with a colon may belong to an extension; a file of that name takes precedence.

    Raises:
        PipeschedError: PS809: it cannot be read; PS810: it is neither a file nor a built-in schedule.
    """
    there = os.path.exists(target)
    if target == "":
        help = "`pipesched list` shows the built-in schedules"
        raise fail(Code.UNREADABLE, "the file name is empty", help=help)
    if not there and (named := claimed(target)) is not None:
        return named
    if target == "-" or there or "/" in target or "\0" in target or Path(target).suffix:
        return _text(target, "schedule")
    return library(target)


def claimed(target: str) -> Source | None:
    """Return the source of a name with a colon if an extension claims it, else None."""
    found = (row.claims.load()(target) for row in rows(Names) if ":" in target)
    return next((source for source in found if isinstance(source, Source)), None)


def _text(path: str, on: str = "") -> Source:
    """Read a path or stdin. on: the kind of hints for an unreadable path (see `extension.Hint`).

    Raises:
        PipeschedError: PS809.
    """
    try:
        if path == "-":
            return Source("<stdin>", _stdin().decode("utf-8"))
        return Source(path, files.read(path).decode("utf-8"))
    except files.NotText as error:
        help = "a schedule is UTF-8 text: .ps, torch CSV, order, JSON" if on else None
        raise fail(Code.UNREADABLE, f"{'<stdin>' if path == '-' else path} {error}", help=help) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _missing(on, path, Diagnostic(Code.UNREADABLE, f"cannot read {path}: {reason.lower()}")) from None


def library(target: str) -> Source:
    """Read a built-in schedule, by its name or an alias.

    Raises:
        PipeschedError: PS810: there is no such schedule.
    """
    name = known_as(target)
    if name is None:
        help = "`pipesched list` shows the built-in schedules"
        message = f"no schedule is called {target!r}"
        raise _missing("schedule", target, Diagnostic(Code.UNKNOWN_SCHEDULE, message, help=help))
    return Source(f"{name}.ps", asset("schedules", f"{name}.ps").read_text("utf-8"))


def known_as(name: str) -> str | None:
    """Return the library schedule with this name or alias, or None."""
    meant = (row.known.load()(name) for row in rows(Aliases))
    return name if name in built_in() else next(filter(None, meant), None)


def read_path(path: str) -> Source:
    """Read the file at a path; built-in names are ignored.

    Raises:
        PipeschedError: PS809: the file is missing or not text.
    """
    if path != "-" and not os.path.exists(path):
        raise _missing("path", path, Diagnostic(Code.UNREADABLE, f"no such file: {path}"))
    return _text(path)


def _missing(on: str, target: str, found: Diagnostic) -> PipeschedError:
    """Return the error for an unknown name, as explained by hints."""
    return PipeschedError(explained(on, [found], target))


def _stdin() -> bytes:
    if sys.stdin is None:
        raise OSError("there is no standard input")
    return files.text(iter(lambda: sys.stdin.buffer.read(2**20), b""))
