"""Options of the core verbs, and options that several verbs share, declared once: name, reader, default, help.

    Option("mem_cap", caps, "Most activations that …", "K|K0,K1,...")     --mem-cap 4,4,3,3      mem_cap=[4, 4, 3, 3]

The command line makes its options from these rows (`command.flags`). The keyword arguments of Python functions, written
out in `api` for readers and type checkers, have the same names and defaults, and the same rows read their values. The
command line and the functions build the same requests. Options that only a terminal needs (output file, colour, output
form) are not keywords.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pipesched.command import sizes, values
from pipesched.command.values import text, whole
from pipesched.extension import Format, Lazy, Option, Reading, Verb, flag, rows
from pipesched.formats.targets import targets
from pipesched.model.ops import LETTERS
from pipesched.model.torch_versions import DEFAULT, NEWEST, OLDEST

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from pipesched.compile import Options
    from pipesched.model.costs import Costs
    from pipesched.model.numbers import Value

Asked = TypeVar("Asked", bound="DataclassInstance")
Given: TypeAlias = Mapping[str, Any]
"""The values of options by name, each of the type that its row in `COMMANDS` returns."""
MAX_OPS = 2_000_000


_P, _V, _M, _D = SIZES = (
    Option("p", sizes.read, "Number of ranks.", "N|A,B|A..B", terminal=True),
    Option("v", sizes.read, "Number of stages per rank.", "N|A,B|A..B", terminal=True),
    Option("m", sizes.read, "Number of microbatches.", "N|A,B|A..B", terminal=True),
    Option(
        "definitions",
        sizes.definition,
        "Set any other parameter; write a list as 4,3,7.",
        "NAME=N|@FILE",
        (),
        ("-D",),
        terminal=True,
    ),
)
LIMIT = Option("max_ops", values.positive, "Largest number of operations [default: 2 million].", "N", MAX_OPS)
_ONE_EACH = (
    f"Costs of {', '.join(LETTERS)}, C, FB; M, K: memory [default: 1, B 2, C 0; some given: I = W = B / 2, and so on]."
)
COST = Option("cost", values.costs, _ONE_EACH, "F=1,...", terminal=True)
_BY_STAGE = "Costs from a TOML file; each is a number, or a list with one entry per stage."
COSTS = Option("costs", values.costs_file, _BY_STAGE, "FILE.toml")
RELEASE = Option("release", values.release, "When activations are freed: W, I, split:x, torch or I=a,W=b.", "RULE", "W")
_HELD = "Largest number of activations that a rank may hold, without buffers and parameters."
CAP = Option("mem_cap", values.caps, _HELD, "K|K0,K1,...")
COMM = Option("comm", text, "Communication model under which the order must not deadlock [default: strict].", "MODEL")
_CHECKS = (COST, COSTS, RELEASE, CAP, COMM)
_VERSION = f"Version of torch whose rules apply to a CSV [default: {DEFAULT}; check: by the trainer]."
TORCH = (
    Option("torch_version", values.version, _VERSION, f"{OLDEST}..{NEWEST}"),
    Option("stages", whole, "Number of stages of a torch CSV, checked against the file.", "N"),
    Option("placement", values.ranks, "Rank of each stage of a torch CSV, checked against the file.", "R0,R1,..."),
    Option("frozen", sizes.stages, "Frozen stages of a CSV, order or stream, e.g. 0..2,5 (inclusive).", "S|A,B|A..B"),
)
ALL = (*SIZES, LIMIT, *_CHECKS, *TORCH)
"""The options of verbs that examine schedules."""

FORMATS = ("text", "concise", "json", "github")
_PER_CENT = "Significant digits of percentages [default: one decimal]."
DIGITS = Option("digits", values.significant, _PER_CENT, "N", terminal=True)
PUBLISHED = {row.name: row for row in rows(Format)}
FORMAT = Option("format", choices=FORMATS, default="text", terminal=True)
JSON = Option("json", flag, "Same as --format json; see emit/README.md.", terminal=True)
COLOR = Option("color", choices=("auto", "always", "never"), default="auto", terminal=True)
VERBOSE = Option("verbose", flag, "List all assumptions about the model and its device.", terminal=True)
FILE = Option("output", text, "Write to FILE instead of stdout.", "FILE", flags=("-o", "--output"), terminal=True)
OUTPUT = (FORMAT, JSON, COLOR, FILE)
RESULTS = (DIGITS, *OUTPUT)


def results(schema: str) -> tuple[Option, ...]:
    """Return the options of verbs whose JSON has a schema in emit/."""
    json = replace(JSON, help=f"Same as --format json; its schema is emit/{schema}.")
    return tuple(json if option is JSON else option for option in RESULTS)


COMMANDS: Mapping[str, tuple[Option, ...]] = {
    "verify": (
        *ALL,
        VERBOSE,
        *(replace(x, choices=(*FORMATS, *PUBLISHED)) if x is FORMAT else x for x in results("report.schema.json")),
    ),
    "emit": (
        Option("to", default="stream", flags=("--target",), choices=tuple(targets())),
        Option("per_rank", text, "Write one file per rank into DIR: rank0.json, ...", "DIR", terminal=True),
        *ALL,
        *OUTPUT,
    ),
}


@cache
def of(command: str) -> tuple[Option, ...]:
    """Return all options of a command. An extension's option replaces the verb's option of the same name, follows the
    option that it names, or comes last.
    """
    verb = next((row for row in rows(Verb) if row.name == command), None)
    listed = verb.options.load() if verb and verb.options else COMMANDS.get(command, ())
    added = {row.name: row for row in rows(Option) if command in row.on}
    own = [added.pop(option.name, option) for option in listed]
    names = {option.name for option in (*own, *added.values())}

    def behind(option: Option) -> tuple[Option, ...]:
        return (option, *(each for row in added.values() if row.after == option.name for each in behind(row)))

    first = (*own, *(row for row in added.values() if row.after not in names))
    return tuple(each for option in first for each in behind(option))


def reader(option: Option, *, typed: bool = False) -> Reading:
    """Return the function that reads an option. typed: whether the value is text from the command line."""
    found = (option.typed if typed else None) or option.read or text
    return found.load() if isinstance(found, Lazy) else found


def request(kind: type[Asked], given: Given, **more: object) -> Asked:
    """Return a frozen request whose fields are the given values with the same names."""
    names = {field.name for field in fields(kind)} - more.keys()
    return kind(**{name: given[name] for name in names & given.keys()}, **more)


def costs(given: Given) -> Costs | None:
    """Return the costs from ``--costs``, overridden by those from ``--cost``, or None if neither option is given."""
    base, own = given.get("costs"), given.get("cost")
    return base if own is None else own if base is None else own.over(base)


def compile_options(command: str, given: Given, sizes: Mapping[str, Value]) -> Options:
    """Return the options for examining a file at a size.

    Raises:
        PipeschedError: PS225: a size is below 1.
    """
    from pipesched.compile import Options

    owned, left = [], dict(given)
    taken = [(row.into, row) for row in of(command) if row.into is not None and row.name in given]
    for into in dict.fromkeys(into for into, row in taken if given[row.name] not in (None, False, row.default)):
        own, make = {row.name: given[row.name] for other, row in taken if other == into}, into.load()
        made = make(**own) if isinstance(make, type) else make(own, left)
        owned += [] if made is None else [made]
    settings = given.get("settings") or settings_of(given.get("definitions", ()))
    return request(Options, left, parameters=dict(sizes), costs=costs(left), settings=settings, owned=tuple(owned))


def settings_of(definitions: Iterable[tuple[str, sizes.Several | str | float]]) -> dict[str, str | float]:
    """Return the definitions that are not sizes."""
    return {name: given for name, given in definitions if not isinstance(given, tuple)}
