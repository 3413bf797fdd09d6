"""Diagnostics: findings as values; other modules print them.

Passes and checks yield diagnostics, `compile` collects them, and the command line prints them. A message states the
fact with its numbers; a label describes its place; a note gives evidence, and the help a remedy. The exit status of a
command follows from the codes of its findings.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from pipesched.support.budget import Spent
from pipesched.support.foreign import mark
from pipesched.support.safe import line as safe
from pipesched.support.source import Source, Span

NOT_JUDGED = 4  # exit status


class AnyCode(enum.StrEnum):
    """A kind of finding, with the exit status of commands that report it: 1 by default.

    PS1xx syntax, 2xx names, parameters, limits, 3xx completeness and data flow, 4xx channels and deadlock, 5xx memory,
    6xx gradients, reduction, replicas, 7xx optimizer, 8xx formats and runtimes, 9xx warnings, whose status is 0. A
    released code keeps its meaning, and a retired code is never reused. All codes are distinct.
    """

    status: int

    def __new__(cls, value: str, status: int = 1) -> Self:
        made = str.__new__(cls, value)
        made._value_, made.status = value, 0 if value.startswith("PS9") else status
        return made

    @property
    def warning(self) -> bool:
        """True for a warning, which does not change the verdict."""
        return self.value.startswith("PS9")

    @property
    def severity(self) -> str:
        """``error``, ``warning``, or ``unjudged`` (no verdict, because a value could not be read or is unknown)."""
        return "warning" if self.warning else "unjudged" if self.status == NOT_JUDGED else "error"

    @property
    def usage(self) -> bool:
        """True if the command line is at fault, not the file."""
        return self.status == 2


class Code(AnyCode):
    """The kinds of findings of the core; the codes that only checks raise are in `check.rows`."""

    SYNTAX = "PS101"
    CHARACTER = "PS102"
    NESTING = "PS103"
    EMPTY = "PS104"

    UNKNOWN_NAME = "PS201"
    REDEFINED = "PS202"
    RECURSION = "PS203"
    CALL = "PS204"
    TYPE = "PS205"
    DIVISION = "PS206"
    PARAMETER_MISSING = "PS207", 2
    PARAMETER_UNKNOWN = "PS208", 2
    REQUIRE = "PS209"
    TOO_MANY_OPERATIONS = "PS210"
    TOO_MANY_STEPS = "PS211"
    CHUNK = "PS212"
    PAST_THE_END = "PS213"
    NO_PENDING_W = "PS214"
    PLACEMENT = "PS215"
    ROUTES = "PS216"
    AMBIGUOUS_CHUNK = "PS217"
    OVERLAP_PARTS = "PS218"
    OVERFLOW = "PS219"
    MICROBATCH_RANGE = "PS220"
    CLAIM = "PS221"
    COSTS = "PS222"
    MICROBATCHES_UNKNOWN = "PS223"
    RANK_PROGRAM = "PS224"
    USAGE = "PS225", 2
    LIST = "PS226", 2
    ENTRY = "PS227"
    SLICES = "PS228"
    GREEDY = "PS229"
    VERSIONS = "PS238"

    OUT_OF_RANGE = "PS304"
    COMPUTE_CYCLE = "PS306"

    DEADLOCK = "PS401"

    CELL = "PS801"
    EMPTY_CELL = "PS802"
    FILE_DISAGREES = "PS803", 2
    UNREADABLE = "PS809", 2
    UNKNOWN_SCHEDULE = "PS810", 2
    STREAM = "PS811"
    STREAM_VERSION = "PS812"
    FINGERPRINT = "PS813"
    TARGET = "PS814"
    NEEDS = "PS820", 2
    BUDGET = "PS843", 2


@dataclass(frozen=True, slots=True)
class Label:
    """A remark at a place. Without a span, the message itself names the place."""

    span: Span | None
    message: str

    def __post_init__(self) -> None:
        mark(self, "message")

    def __repr__(self) -> str:
        return safe(f"<Label {self.span}: {self.message}>" if self.span else f"<Label {self.message}>")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A finding. The first label is the place of the finding; the other labels give further places."""

    code: AnyCode
    message: str
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None

    def __post_init__(self) -> None:
        mark(self, "message")

    def __repr__(self) -> str:
        place = next((f"{label.span}: " for label in self.labels if label.span is not None), "")
        return safe(f"<Diagnostic {place}{self.severity}[{self.code}]: {self.message}>")

    @property
    def where(self) -> Span | None:
        """The place of the first label."""
        return self.labels[0].span if self.labels else None

    @property
    def severity(self) -> str:
        return self.code.severity


def exit_status(found: Iterable[Diagnostic]) -> int:
    """Return the worst exit status of these findings; 4 (not judged) only if none of them is an error."""
    statuses = {diagnostic.code.status for diagnostic in found}
    return max(statuses - {NOT_JUDGED} or {0}) or max(statuses, default=0)


class Judged:
    """A result with `diagnostics`, which determine its verdict."""

    if TYPE_CHECKING:

        @property
        def diagnostics(self) -> Sequence[Diagnostic]: ...

    @property
    def fault(self) -> Diagnostic | None:
        """The first error."""
        return next((found for found in self.diagnostics if found.severity == "error"), None)

    @property
    def ok(self) -> bool:
        """True if everything was checked and there is no error; warnings do not change the verdict."""
        return exit_status(self.diagnostics) == 0

    @property
    def exit_status(self) -> int:
        """0: correct; 1: a file's content is wrong; 2: the command line or the file itself is wrong; 4: not judged."""
        return exit_status(self.diagnostics)


class PipeschedError(Exception):
    """The exception that API functions raise for invalid input; it carries all findings of a phase."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(map(_said, self.diagnostics)))


def _said(found: Diagnostic) -> str:
    """Return a finding as text in an exception: code, message and place on a line, with the remedy below."""
    place = next((f" ({label.span})" for label in found.labels if label.span is not None), "")
    return f"{found.code}: {found.message}{place}" + (f"\n  help: {found.help}" if found.help else "")


def fail(
    code: AnyCode, message: str, *labels: Label, help: str | None = None, notes: tuple[str, ...] = ()
) -> PipeschedError:
    """Return a `PipeschedError` with one diagnostic, to be raised."""
    return PipeschedError([Diagnostic(code, message, labels, notes, help)])


def of_the_caller(error: PipeschedError) -> PipeschedError:
    """Attribute findings to the command line instead of a file: every finding with exit status 1 becomes PS225."""
    return PipeschedError(d if d.code.usage else replace(d, code=Code.USAGE) for d in error.diagnostics)


@contextmanager
def budgeted(file: Source | str) -> Iterator[None]:
    """Limit the work of reading a file in a `with` block. file: its source, or its name if there is no source.

    Raises:
        PipeschedError: PS843: reading exceeds the budget (`pipesched.support.budget`).
    """
    try:
        yield
    except Spent as spent:
        name = file if isinstance(file, str) else file.name
        at = None if isinstance(file, str) or spent.at is None else min(spent.at, len(file.text))
        labels = () if at is None or isinstance(file, str) else (Label(file.span(at, at), "from here on"),)
        help = "the file may be truncated, damaged or malicious: create it again"
        raise fail(
            Code.BUDGET, f"reading {name} takes more work than its size justifies: {spent}", *labels, help=help
        ) from None
