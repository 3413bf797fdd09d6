"""An extension adds rows to tables of the core, which imports nothing of it.

An extension is a folder with a module `rows`, whose `ROWS` are its rows. It imports this module alone: a row names
its functions by path, and they are imported when they are called. `register` says which extensions there are; without
any, the core verifies, shows in characters and emits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from pipesched.diagnostics import Diagnostic

Given = TypeVar("Given")


@dataclass(frozen=True)
class Lazy(Generic[Given]):
    """A function or value of an extension, as ``planning.footprint:footprint``; imported when it is needed."""

    path: str

    def load(self) -> Given:
        """The object itself."""
        module, _, name = self.path.partition(":")
        return cast("Given", getattr(import_module(f"pipesched.{module}"), name))


@dataclass(frozen=True)
class Row:
    """A row of a table. place: where it stands among the rows of all owners; equal places in the order of owners."""

    place: int = field(default=0, kw_only=True)


Kind = TypeVar("Kind", bound=Row)
_registered: tuple[str, ...] = ()


def register(*names: str) -> None:
    """Set the folders of all extensions, in their order."""
    global _registered
    _registered = names
    _all.cache_clear()


def registered() -> tuple[str, ...]:
    """The folders of all extensions."""
    return _registered


def rows(kind: type[Kind]) -> tuple[Kind, ...]:
    """The rows of one kind of all extensions, by place."""
    return tuple(sorted((row for row in _all() if isinstance(row, kind)), key=lambda row: row.place))


@cache
def _all() -> tuple[Row, ...]:
    """The rows of all extensions, which are imported here."""
    return tuple(row for name in _registered for row in import_module(f"pipesched.{name}.rows").ROWS)


@dataclass(frozen=True)
class View(Row):
    """A picture. draw: of a chart and a request its text, or the bytes of a file.

    suffixes: of files, that name the view. takes: the options that mean something for it. forms: by suffix, of a view
    that is written in several; form: the form of a file without a suffix.
    """

    name: str
    draw: Lazy[Callable[..., str | bytes]]
    suffixes: tuple[str, ...]
    takes: tuple[str, ...] = ()
    forms: Mapping[str, str] = field(default_factory=dict)
    form: str = ""

    def written(self, suffix: str) -> str:
        """The form in which a file of that suffix is written."""
        return self.forms.get(suffix, self.form or self.name)


@dataclass(frozen=True)
class Overlay(Row):
    """A picture of more than the plan, where an option of `show` asks for it.

    draw: by name of a view, of a chart, a request and what `lay` gives. lay: of an examination and a request what is
    drawn, as `chart.views.Laid`; the plan where there is none. without: options that mean nothing then, and why.
    """

    option: str
    draw: Mapping[str, Lazy[Callable[..., str | bytes]]]
    lay: Lazy[Callable[..., object]] | None = None
    without: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Verb(Row):
    """A command of the command line. group: its heading in the list of commands; help: its line there.

    command: what click runs.
    """

    name: str
    group: str
    help: str
    command: Lazy[object]


@dataclass(frozen=True)
class Hint(Row):
    """A better explanation of mistakes. on: where they are, as `syntax` or `torch-csv`.

    explain: from the mistakes and what has them to those that are shown; the same ones where it knows nothing better.
    """

    on: str
    explain: Lazy[Callable[..., Sequence[Diagnostic]]]


def explained(on: str, found: Sequence[Diagnostic], *given: object) -> Sequence[Diagnostic]:
    """The mistakes as the hints of all extensions explain them."""
    for hint in rows(Hint):
        found = hint.explain.load()(found, *given) if hint.on == on else found
    return found


@dataclass(frozen=True)
class Reader(Row):
    """A kind of text. title: its name among people. ending: of a file's name, None for any.

    known: tells such a text by its first line that says something, and by all of it. read: gives what it holds, or
    another text to read in turn. takes: the options of `read`, by name. verify: the verdict on such a text, of a source
    and options, where it is more than that on a schedule.
    """

    name: str
    title: str
    ending: str | None
    known: Callable[[str, str], bool]
    read: Lazy[Callable[..., object]]
    takes: tuple[str, ...] = ()
    verify: Lazy[Callable[..., object]] | None = None


@dataclass(frozen=True)
class Names(Row):
    """Schedules that are named with a colon and lie in no file.

    claims: of such a name a source whose `origin` is the name of this row, or None. meant: the remedy for a name that
    is nearly one, or None. all: names that a shell completes. read, takes: as of a reader.
    """

    name: str
    claims: Lazy[Callable[[str], object]]
    meant: Lazy[Callable[[str], str | None]]
    all: Lazy[Callable[[], Iterable[str]]]
    read: Lazy[Callable[..., object]]
    takes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Later(Row):
    """A judgement of a whole report, where one of its options is given.

    judge: of a report, an examination or None, and options the report with it.
    """

    options: tuple[str, ...]
    judge: Lazy[Callable[..., object]]


@dataclass(frozen=True)
class Target(Row):
    """A form in which an order is written. title: for the help text. ending: of its files.

    writer: a `formats.targets.Writer`. messages: whether sends and receives are in it. torch: whether it is for a
    version of torch. blocks: whether its sends wait for their receives, whatever model is asked for. judged: whether it
    is written of a good order alone.
    """

    name: str
    title: str
    ending: str
    writer: Lazy[object]
    messages: bool
    torch: bool = False
    blocks: bool = False
    judged: bool = True
