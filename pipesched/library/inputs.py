"""Where a text comes from: a path, stdin, or the library of schedules that ships with pipesched."""

from __future__ import annotations

import contextlib
import os
import sys
from difflib import get_close_matches
from pathlib import Path

from pipesched.diagnostics import Code, fail
from pipesched.extension import Names, rows
from pipesched.library.aliases import ROWS, known_as, near, plain
from pipesched.library.assets import asset, built_in
from pipesched.support import files
from pipesched.support.foreign import foreign
from pipesched.support.source import Source

_LOOKED_AT = 10_000  # names of a folder


def read(target: str) -> Source:
    """The text of a path, of stdin (``-``), or of a built-in schedule by its name or by what others call it.

    A name with a colon may be claimed by an extension; a file of that name wins.

    Raises:
        PipeschedError: PS809 unreadable, PS810 neither a file nor a built-in schedule.
    """
    there = os.path.exists(target)
    if target == "":
        help = "`pipesched list` shows the built-in schedules"
        raise fail(Code.UNREADABLE, "the name of a file is empty", help=help)
    if not there and (named := claimed(target)) is not None:
        return named
    if target == "-" or there or "/" in target or "\0" in target or Path(target).suffix:
        return _text(target, schedule=True)
    return library(target)


def claimed(target: str) -> Source | None:
    """The source of a name with a colon that an extension claims; None of any other."""
    found = (row.claims.load()(target) for row in rows(Names) if ":" in target)
    return next((source for source in found if isinstance(source, Source)), None)


def meant(target: str) -> str | None:
    """The remedy for a name with a colon that is nearly one of an extension."""
    said = (row.meant.load()(target) for row in rows(Names) if ":" in target)
    return next((help for help in said if help), None)


def _text(path: str, *, schedule: bool = False) -> Source:
    """The text of a path or of stdin; schedule: whether a remedy may speak of schedules.

    Raises:
        PipeschedError: PS809.
    """
    try:
        if path == "-":
            return Source("<stdin>", _stdin().decode("utf-8"))
        return Source(path, files.read(path).decode("utf-8"))
    except files.NotText as error:
        help = "a schedule is UTF-8 text: .ps, torch CSV, order, JSON" if schedule else None
        raise fail(Code.UNREADABLE, f"{'<stdin>' if path == '-' else path} {error}", help=help) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        help = _meant(path) if schedule else None
        raise fail(Code.UNREADABLE, f"cannot read {path}: {reason.lower()}", help=help) from None


def library(target: str) -> Source:
    """The file of a built-in schedule, by its name or by what others call it.

    Raises:
        PipeschedError: PS810, there is none.
    """
    name = target if target in built_in() else known_as(target)
    if name is None:
        raise fail(Code.UNKNOWN_SCHEDULE, f"no schedule is called {target!r}", help=_meant(target))
    return Source(f"{name}.ps", asset("schedules", f"{name}.ps").read_text("utf-8"))


def read_path(path: str) -> Source:
    """The file that is named by a path; no built-in name counts.

    Raises:
        PipeschedError: PS809, missing or not text.
    """
    if path != "-" and not os.path.exists(path):
        raise fail(Code.UNREADABLE, f"no such file: {path}", help=_beside(path))
    return _text(path)


def _stdin() -> bytes:
    if sys.stdin is None:
        raise OSError("there is no standard input")
    return files.text(iter(lambda: sys.stdin.buffer.read(2**20), b""))


def _beside(path: str) -> str:
    """The file that a path comes close to, of those in its folder, or the schedule of the library by that name."""
    folder, name = os.path.split(path)
    with contextlib.suppress(OSError):
        if near := get_close_matches(name, sorted(os.listdir(folder or "."))[:_LOOKED_AT], 1, 0.7):
            return f"did you mean `{os.path.join(folder, foreign(near[0]))}`?"
    if Path(name).suffix == ".ps" and (known := known_as(Path(name).stem)):
        return f"did you mean `{known}`, the built-in schedule?"
    return f"no file is called so in {folder or 'this folder'}"


def _meant(target: str) -> str:
    if said := near(target[:60]):
        return said
    if said := meant(target):
        return said
    parts = target.split(",")
    if parts[1:] and all(os.path.exists(part) or known_as(part) for part in parts):
        return f"give them one by one: `{' '.join(parts)}`"
    if Path(target).suffix:
        return f"{_beside(target)}; `pipesched list` shows the built-in schedules"
    asked = plain(target)[:60]
    own = {plain(name): name for name in built_in()}
    named = {plain(name): name for row in ROWS for name in row if known_as(name)} | own
    close = [named[x] for x in get_close_matches(asked, named, 1, 0.7) or get_close_matches(asked, own, 1, 0.5)]
    if not close:
        return "`pipesched list` shows the built-in schedules"
    known = known_as(close[0])
    return f"did you mean `{close[0]}`" + ("?" if close[0] == known else f", which is `{known}` here?")
