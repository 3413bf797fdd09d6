"""Reads keyword arguments of Python functions like the options of the command; all other keywords are parameters.

    def why(target: Target, *, comm: str | None = None, **parameters: Parameter) -> Why:
        given, sizes = keywords.read("why", locals())
        return verb.why(*keywords.file("why", target, given, sizes))

An extension defines its functions in a module `api`; `shell.public` collects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from os import PathLike, fsdecode
from typing import TypeAlias, TypeVar, cast

from pipesched.command import options, sizes, values
from pipesched.command.options import Given
from pipesched.command.sizes import SIZES, Several, one, setting
from pipesched.command.values import Not, short
from pipesched.common import sources
from pipesched.common.in_memory import Rows, TorchSchedule
from pipesched.common.sources import parameters_of
from pipesched.diagnostics import Code, fail
from pipesched.examine import Options
from pipesched.extension import Option, Reading
from pipesched.model.cost_values import Cost, grid
from pipesched.model.costs import Costs
from pipesched.model.numbers import Value
from pipesched.model.schedule import Program, Schedule
from pipesched.support.source import Source

Target: TypeAlias = str | PathLike[str] | Source | Schedule | Program | Rows | TorchSchedule
File: TypeAlias = str | PathLike[str] | Source
Number: TypeAlias = int | float | str | Fraction
Caps: TypeAlias = Number | Sequence[Number] | None
Parameter: TypeAlias = int | str | Sequence[int]
CostsLike: TypeAlias = str | PathLike[str] | Costs | Mapping[str, Number | Sequence[Number]] | None

Raw = TypeVar("Raw")
Made = TypeVar("Made")


def read(command: str, arguments: dict[str, object]) -> tuple[Given, dict[str, Value]]:
    """Return the arguments of a function, each read like its option, and the sizes.

    Raises:
        PipeschedError: PS225, PS809.
    """
    parameters = cast("Mapping[str, object]", arguments.pop("parameters"))
    if (target := arguments.get("target")) is not None:
        _require_known(command, target, [*parameters], arguments)
    grid, settings = apart(parameters)
    return {**converted(command, arguments), "settings": settings}, one(command, grid)


def converted(command: str, given: Given) -> Given:
    """Return the keyword arguments, each read like its option; a default of None stays None.

    Raises:
        PipeschedError: PS225, PS809.
    """
    made = dict(given)
    for option in options.of(command):
        if option.name in made and not (made[option.name] is None and option.default is None):
            made[option.name] = value(option.name, _reader(option), made[option.name])
    return made


def _reader(option: Option) -> Reading:
    """Return the function that reads a Python value for an option."""
    if option.choices:
        return _Choice(option.choices)
    return costs if option.read is values.costs_file else options.reader(option)


@dataclass(frozen=True)
class _Choice:
    """The reader of a value that must be one of a few names."""

    names: tuple[str, ...]

    def __call__(self, value: object) -> str:
        if values.text(value) not in self.names:
            raise Not(value, f"one of {', '.join(self.names)}")
        return str(value)


def costs(value: object) -> Costs:
    """Return costs from text such as ``F=1,B=2``, a mapping, the `Path` of a TOML file, or `Costs`.

    Raises:
        PipeschedError: PS225, PS809.
    """
    match value:
        case Costs():
            return value
        case PathLike():
            return values.costs_file(fsdecode(value))
        case str():
            return values.costs(value)
        case Mapping():
            given = {str(name): _cost(name, cost) for name, cost in value.items()}
            return values.of_costs(Costs, given)
    raise Not(value, "costs: a string such as 'F=1,B=2', a dict, the Path of a TOML file, or Costs")


def _cost(name: object, cost: object) -> Cost:
    if isinstance(cost, Iterable) and not isinstance(cost, str | bytes | Mapping):
        entries = list(cost)
        if entries and all(isinstance(row, Iterable) and not isinstance(row, str) for row in entries):
            return grid([[values.exact(one) for one in row] for row in entries], f"cost {name}")
        return tuple(values.exact(one) for one in entries)
    return values.exact(cost)


def value(name: str, reader: Callable[[Raw], Made], given: Raw) -> Made:
    """Read a Python value.

    Raises:
        PipeschedError: PS225: the value is invalid; the message contains the name.
    """
    try:
        return reader(given)
    except Not as error:
        raise fail(Code.USAGE, f"{name} is {short(given)}, not {error.what}") from None
    except ValueError as error:
        raise fail(Code.USAGE, f"{name}: {error}") from None


def file(command: str, target: object, given: Given, own: dict[str, Value]) -> tuple[Source, Options]:
    """Return the source of a target, and the options to read it."""
    source, own = sources.named(target, own)
    return source, options.compile_options(command, given, own)


def apart(parameters: Mapping[str, object]) -> tuple[dict[str, Several], dict[str, str | float]]:
    """Split parameters into sizes, each with its values, and the settings of a framework."""
    found = {name: None if name in SIZES else setting(x) for name, x in parameters.items()}
    settings = {name: x for name, x in found.items() if x is not None}
    return {n: value(n, sizes.read, x) for n, x in parameters.items() if n not in settings}, settings


def _require_known(command: str, target: object, names: Sequence[str], own: Iterable[str]) -> None:
    """Raise PS225 for a keyword that is not a parameter of the .ps file but resembles a keyword of the function."""
    near = {name: close[0] for name in names if (close := get_close_matches(name, own, 1, 0.75))}
    if not near or not isinstance(target, str | PathLike | Source):
        return
    known = parameters_of(sources.source(target))
    for name, meant in near.items():
        if known and name not in known:
            raise fail(Code.USAGE, f"{command} takes no keyword {name}", help=f"did you mean `{meant}`?")
