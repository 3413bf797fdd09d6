"""Tables of the core to which extensions add rows; the core imports nothing from an extension.

An extension is a folder with a module `rows`, whose `ROWS` are its rows. A row names functions by path; each is
imported when it is called. `register` lists the extensions; without any, the core verifies .ps files and emits streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from functools import cache
from importlib import import_module
from sys import modules
from typing import TYPE_CHECKING, Generic, Self, TypeAlias, TypeVar, cast

from pipesched.support.record import Record

if TYPE_CHECKING:
    from pipesched.diagnostics import AnyCode, Diagnostic

Given = TypeVar("Given")


@dataclass(frozen=True)
class Lazy(Generic[Given]):
    """A function or value of an extension, such as ``planning.footprint:footprint``; imported on first use."""

    path: str

    def load(self) -> Given:
        """Import the object and return it."""
        module, _, name = self.path.partition(":")
        return cast("Given", getattr(modules.get(f"pipesched.{module}") or import_module(f"pipesched.{module}"), name))

    def makes(self, value: object) -> bool:
        """Return True if a value is of the class that the path names, without importing anything."""
        return f"{type(value).__module__}:{type(value).__qualname__}" == f"pipesched.{self.path}"


Owned = TypeVar("Owned")


@dataclass(frozen=True)
class Extended:
    """A core value that carries frozen values of extensions, at most one per class."""

    owned: tuple[object, ...] = field(default=(), kw_only=True)

    def of(self, kind: type[Owned]) -> Owned:
        """Return the value of this class, or one with the class's defaults if there is none."""
        return next((value for value in self.owned if isinstance(value, kind)), None) or kind()

    def owning(self, value: object) -> Self:
        """Return this value with `value` in place of the carried value of its class."""
        return replace(self, owned=(*(x for x in self.owned if type(x) is not type(value)), value))


class Row(Record):
    """A row of a table, equal only to itself. place: its position among the rows of all extensions; ties keep the order
    of the extensions. owner: in tables read by `counting`, the row is used only if a value of this class is present.
    """

    place: int = field(default=0, kw_only=True)
    owner: Lazy[type] | None = field(default=None, kw_only=True)


Kind = TypeVar("Kind", bound=Row)
registered: tuple[str, ...] = ()
"""The folders of all extensions."""
_of_kind: dict[type[Row], tuple[Row, ...]] = {}


def register(*names: str) -> None:
    """Set the folders of all extensions, in order."""
    global registered
    registered = names
    _all.cache_clear()
    _of_kind.clear()


def rows(kind: type[Kind]) -> tuple[Kind, ...]:
    """Return the rows of one kind from all extensions, by place."""
    if (found := _of_kind.get(kind)) is None:
        found = _of_kind[kind] = (*sorted((x for x in _all() if isinstance(x, kind)), key=lambda row: row.place),)
    return cast("tuple[Kind, ...]", found)


@cache
def _all() -> tuple[Row, ...]:
    """Import the `rows` of all extensions and return their rows."""
    return tuple(row for name in registered for row in import_module(f"pipesched.{name}.rows").ROWS)


def flag(value: object) -> bool:
    """Convert the value of a flag to a bool."""
    return bool(value)


Reading: TypeAlias = Callable[[str], object]
Taker: TypeAlias = Callable[[dict[str, object], dict[str, object]], object]


class Option(Row):
    """An option of verbs. read: converts a Python value, and command-line text unless `typed` does; None leaves the
    text unchanged. choices: all allowed values, if they are few.

    flags: the command-line flags, if not ``--name``. terminal: the option exists on the command line only. on:
        the verbs to which an extension adds it. after: the option that it follows in the verb's list.
    into: the class in `Extended` whose fields are the options with this `into`; or a function of these options and of
    all given options that builds the value or None, and may remove options that the core must not see.
    """

    name: str
    read: Reading | Lazy[Reading] | None = None
    help: str | None = None
    metavar: str | None = None
    default: object = None
    flags: tuple[str, ...] = ()
    typed: Reading | Lazy[Reading] | None = None
    terminal: bool = field(default=False, kw_only=True)
    choices: tuple[str, ...] = field(default=(), kw_only=True)
    on: tuple[str, ...] = field(default=(), kw_only=True)
    after: str = field(default="", kw_only=True)
    into: Lazy[type] | Lazy[Taker] | None = field(default=None, kw_only=True)

    @property
    def many(self) -> bool:
        """True if the option can be given several times."""
        return self.default == ()


def counting(kind: type[Kind], asked: Extended) -> list[Kind]:
    """Return the rows that have no owner, or whose owner's value is present."""
    owned = asked.owned
    return [row for row in rows(kind) if row.owner is None or (owned and any(map(row.owner.makes, owned)))]


class CostModel(Row):
    """The costs that follow from an extension's options. costs: makes them from a loaded file and options, or None."""

    costs: Lazy[Callable[..., object]]


class ClaimName(Row):
    """A name that a claim can use, unless its file defines the name. value: computes from an `Analysis` one number per
    rank or one for all, or None if the claim is not applicable. A name by rank without a rank means the largest value.
    """

    name: str
    value: Lazy[Callable[..., object]]
    by_rank: bool = True


class Statement(Row):
    """A statement of the language whose value belongs to an extension. node: its class in `language.ast`.

    read: returns the value (an `owner`) of all such statements in a file, from the checked file, the known names and
    the placement. lines: yields the statements for a value, as text.
    """

    node: str
    read: Lazy[Callable[..., object]]
    lines: Lazy[Callable[..., Iterable[str]]]


class Decider(Row):
    """Decides orders by a rule. decide: takes the ranks' emitters, placement, costs, the checked file and its budget;
    returns, for each rank, the positions of its operations in its list as written, or nothing if no list changed.
    """

    decide: Lazy[Callable[..., list[list[int]]]]


class Measure(Row):
    """A part of a report. key: the part's key in JSON, and its attribute in the report. part: returns the
    `report.parts.Part` of an examination, None if there is nothing to report. inside: used only if STEPs are inside the
    order.
    """

    key: str
    part: Lazy[Callable[..., object]]
    inside: bool = False


class Sweep(Row):
    """Verifies many files and sizes. reports: yields a report for each pair of a source and its options."""

    reports: Lazy[Callable[..., Iterable[object]]]


class Needs(Flag):
    """The facts that must be known before a check runs."""

    NOTHING = 0
    PROGRAM = auto()  # the instructions of the file, or the lowering of its order
    MESSAGES = auto()  # likewise, but the lowering of a wrong order does not count
    OWN = auto()  # the file itself has instructions
    ENDS = auto()  # every operation runs: no compute orders wait for each other
    SOUND = auto()  # the order of compute has no error
    CAPS = auto()  # a cap of activations is given
    TORCH = auto()  # the file comes from torch, or is to run there
    INSIDE = auto()  # STEPs are inside the order


class Check(Row, Generic[Given]):
    """A check: the property in words, the codes of its violations, and the function that finds them."""

    property: str
    codes: tuple[str, ...]
    find: Callable[[Given], Iterable[Diagnostic]] | Lazy[Callable[[Given], Iterable[Diagnostic]]]
    needs: Needs = Needs.NOTHING

    def found(self, judged: Given) -> Iterable[Diagnostic]:
        """Return the violations."""
        return (self.find.load() if isinstance(self.find, Lazy) else self.find)(judged)


class Drawing(Row):
    """A view of a schedule in Python: picture, graph or table. make: builds the view, with costs or None."""

    name: str
    make: Lazy[Callable[..., object]]


class Verb(Row):
    """A command of the command line. group: its heading in the list of commands; help: its line in that list. command:
    the function that click runs. options: its own options, in addition to the rows that name it. forms: its output
    forms, each with its file name extensions; text or JSON by default.
    """

    name: str
    group: str
    help: str
    command: Lazy[object]
    options: Lazy[tuple[Option, ...]] | None = None
    forms: Mapping[str, tuple[str, ...]] | Callable[[], Mapping[str, tuple[str, ...]]] = field(default_factory=dict)


TEXTS: Mapping[str, tuple[str, ...]] = dict.fromkeys(("text", "concise", "github"), (".txt",)) | {"json": (".json",)}
"""The default output forms of a verb."""


class Codes(Row):
    """The codes of an extension's findings, as an enumeration."""

    all: Lazy[type[AnyCode]]


class Hint(Row):
    """A better explanation of mistakes. on: where the mistakes occur, such as `syntax` or `torch-csv`.

    explain: takes the found mistakes and their subject, and returns the mistakes to show instead.
    """

    on: str
    explain: Lazy[Callable[..., Sequence[Diagnostic]]]


def explained(on: str, found: Sequence[Diagnostic], *given: object) -> Sequence[Diagnostic]:
    """Return the mistakes, as explained by the hints of all extensions."""
    for hint in rows(Hint):
        found = hint.explain.load()(found, *given) if hint.on == on else found
    return found


class Reader(Row):
    """A kind of text. title: its display name. ending: the extension of its files, None for any.

    known: recognizes such text from its first meaningful line and from the whole text. read: returns its contents, or a
    further text to be read. takes: the options of `read`, by name. verify: returns the verdict on such text, from a
    source and options, if the verdict covers more than a schedule.
    """

    name: str
    title: str
    ending: str | None
    known: Callable[[str, str], bool]
    read: Lazy[Callable[..., object]]
    takes: tuple[str, ...] = ()
    verify: Lazy[Callable[..., object]] | None = None


class Names(Row):
    """Schedules that are named with a colon and not stored in a file.

    claims: returns a source for such a name, with the name of this row as `origin`, or None. meant: returns the remedy
    for a misspelled name, or None. all: the names that a shell completes. read, takes: as for a reader.
    """

    name: str
    claims: Lazy[Callable[[str], object]]
    meant: Lazy[Callable[[str], str | None]]
    all: Lazy[Callable[[], Iterable[str]]]
    read: Lazy[Callable[..., object]]
    takes: tuple[str, ...] = ()


class Aliases(Row):
    """Aliases of library schedules. known, said: return the schedule with an alias, and a remark on the alias."""

    known: Lazy[Callable[[str], str | None]]
    said: Lazy[Callable[[str], str | None]]


class Format(Row):
    """A format of verdicts for other tools. ending: the extension of its files; text: formats all reports."""

    name: str
    ending: str
    text: Lazy[Callable[..., str]]


class Rewrite(Row):
    """A change before emission. rewrite: takes file, options, and whether it emits messages; returns file, options."""

    rewrite: Lazy[Callable[..., tuple[object, object]]]


class Later(Row):
    """A judgement of a whole report. judge: takes a report, its examination and source (or None), and options."""

    judge: Lazy[Callable[..., object]]


class Target(Row):
    """A form in which an order is written. title: its name in the help text. ending: the extension of its files.

    writer: a `formats.targets.Writer`. messages: whether it contains sends and receives. torch: whether it depends on a
    version of torch. blocks: whether its sends always wait for their receives, whatever the requested model.
    judged: whether only a correct order is written. steps: whether it can express STEPs inside an order.
    """

    name: str
    title: str
    ending: str
    writer: Lazy[object]
    messages: bool
    torch: bool = False
    blocks: bool = False
    judged: bool = True
    steps: bool = False
