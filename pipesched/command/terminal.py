"""Writes text: results to stdout or a file, errors and progress to stderr.

Colour is off for files and pipes, and follows NO_COLOR, FORCE_COLOR and TERM=dumb. A stream that is not UTF-8 receives
ASCII. Control characters from a source never reach a terminal. A file is written completely or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, Self, TextIO

from pipesched import render
from pipesched.diagnostics import Code, Diagnostic, PipeschedError, fail
from pipesched.model.numbers import significant
from pipesched.support import files
from pipesched.support.safe import Form, safe


class Found(Protocol):
    """The result of a verb. text: writes the result for people; its keywords depend on the verb."""

    @property
    def exit_status(self) -> int: ...

    @property
    def text(self) -> Callable[..., str]: ...

    def to_json(self) -> Mapping[str, object]: ...


class Verdict(Found, Protocol):
    """A result with findings about a source. line: writes the verdict on one line."""

    @property
    def ok(self) -> bool: ...

    @property
    def source(self) -> str | None: ...

    @property
    def diagnostics(self) -> Sequence[Diagnostic]: ...

    @property
    def line(self) -> Callable[..., str]: ...


_CHUNK = 1 << 15  # under PYTHONUNBUFFERED, a longer write that a closed pipe truncates is not an error


def wants_color(choice: str, stream: TextIO | None) -> bool:
    """Return True if output to the stream is coloured; choice: ``auto``, ``always`` or ``never``."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream is not None and os.environ.get("TERM") != "dumb" and stream.isatty()


def write(text: str, stream: TextIO | None, form: Form = "terminal") -> None:
    """Write text in characters that the stream can show; a missing stream is ignored."""
    if stream is None:
        return
    text = safe(text, form)
    if not utf8(stream):
        text = render.plain(text)
    for at in range(0, len(text), _CHUNK):
        stream.write(text[at : at + _CHUNK])


def utf8(stream: TextIO | None) -> bool:
    """Return True if a stream can encode any character."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"


def dumps(value: object) -> str:
    """Return JSON in its canonical form: ASCII, indented by two spaces, with the keys in their given order."""
    return safe(json.dumps(value, indent=2, ensure_ascii=False), "ascii-json")


@dataclass
class Output:
    """The destination of results: stdout, or the file of ``-o``, which is written after success.

    digits: significant digits of percentages, None for one decimal. verbose: list all assumptions.
    """

    format: str = "text"
    color_choice: str = "auto"
    path: str | None = None
    digits: int | None = None
    verbose: bool = False
    kept: list[str] = field(default_factory=list)

    @property
    def color(self) -> bool:
        return self.format == "text" and wants_color(self.color_choice, None if self._file else sys.stdout)

    @property
    def complaint_color(self) -> bool:
        return self.format == "text" and wants_color(self.color_choice, sys.stderr)

    @property
    def how(self) -> dict[str, bool]:
        """The keyword arguments for writing a report as text; `verbose` lists all assumptions."""
        return {"verbose": True} if self.verbose else {}

    @property
    def _file(self) -> str | None:
        return None if self.path == "-" else self.path

    @property
    def width(self) -> int | None:
        """The width of the terminal that shows the results, None if they do not go to a terminal."""
        return None if self._file or not sys.stdout.isatty() else shutil.get_terminal_size().columns

    def result(self, found: Found, **how: object) -> int:
        """Write the result of a verb as text or JSON; return the exit status."""
        self.line(dumps(found.to_json()) if self.format == "json" else found.text(**how, **self.how))
        return found.exit_status

    def verdict(self, report: Verdict) -> int:
        """Write a verdict in full; errors of the command line go to stderr. Return the exit status."""
        if self.format == "json":
            self.line(dumps(report.to_json()))
        elif self.format == "text" and report.exit_status == 2:
            self.complain(report.text(color=self.complaint_color, **self.how))
        else:
            self.line(self.shown(report))
        return report.exit_status

    def shown(self, report: Verdict) -> str:
        """Return a verdict as text, or its findings, one per line."""
        if self.format == "text":
            return report.text(color=self.color, **self.how)
        findings = [LINES[self.format](found, report.source) for found in report.diagnostics]
        return "\n".join(findings + ([report.line()] if report.ok else []))

    def line(self, text: str) -> None:
        """Write a line of a result."""
        self.write(text + "\n")

    def write(self, text: str, form: Form | None = None) -> None:
        """Write a result."""
        if self._file:
            self.kept.append(text)
        else:
            write(text, sys.stdout, form or _form(self.format))

    def complain(self, text: str) -> None:
        """Write a line about an error or about progress to stderr."""
        write(text + "\n", sys.stderr)

    @contextmanager
    def open(self) -> Iterator[Self]:
        """Write results inside the block, and close the file after it."""
        if self._file is not None:
            writable(self._file)
        with significant(self.digits):
            yield self
        if self._file and self.kept:
            put(self._file, "".join(self.kept))


def _form(format: str) -> Form:
    """Return the escaping for results of a format; annotations must reach GitHub unchanged."""
    return "commands" if format == "github" else "terminal"


LINES = {"concise": render.concise, "github": render.github}
"""The functions that format a finding on a line, by format."""


def writable(path: str) -> None:
    """Check, before the work starts, that its result can be written.

    Raises:
        PipeschedError: PS225: no file of that name can be written.
    """
    folder = os.path.dirname(os.path.realpath(path))
    special = os.path.exists(path) and not os.path.isdir(path) and not os.path.isfile(path)  # a device or a pipe
    if path == "-" or special or files.DESCRIPTOR.fullmatch(path):
        return
    meant = os.path.isdir(path) or path.endswith(os.sep)
    if meant or not path or not os.access(folder, os.W_OK | os.X_OK):
        reason = "it is a folder" if meant else f"files cannot be created in {folder}" if path else "the name is empty"
        raise fail(Code.USAGE, f"cannot write {path or repr(path)}: {reason}")


def put(path: str, text: str) -> None:
    """Write a result to a file; if that fails, write it to stdout, so that no work is lost.

    Raises:
        PipeschedError: PS225: the file cannot be written.
    """
    try:
        replace_file(path, text)
    except PipeschedError:
        write(text, sys.stdout)
        raise


def replace_file(path: str, text: str | Iterable[str]) -> None:
    """Replace a file completely or not at all; keep the mode of an existing file. Each piece of text is written as soon
    as it is made.

    Raises:
        PipeschedError: PS225: the file cannot be written.
    """
    pieces = [text] if isinstance(text, str) else text
    try:
        files.replace(path, (safe(piece, "file").encode("utf-8", "surrogateescape") for piece in pieces))
    except OSError as error:
        raise fail(Code.USAGE, f"cannot write {path}: {error.strerror or error}") from None


def complain(diagnostics: Sequence[Diagnostic], format: str, color: str) -> None:
    """Report why a command stopped: JSON or annotations on stdout for tools, text on stderr for people."""
    if format == "json":
        from pipesched.report.report import Report

        write(dumps(Report(None, None, diagnostics=tuple(diagnostics)).to_json()) + "\n", sys.stdout)
    elif format in LINES:
        stream = sys.stdout if format == "github" else sys.stderr
        write("".join(LINES[format](d, None) + "\n" for d in diagnostics), stream, _form(format))
    else:
        shown = [render.text(d, color=wants_color(color, sys.stderr)) for d in diagnostics]
        write("\n\n".join(shown) + "\n", sys.stderr)
