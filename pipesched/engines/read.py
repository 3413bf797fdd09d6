"""Parts in TOML and in a schedule: a file gives the parts of a layer's F, I and W.

unit = "ms"
layers = 4                                     # of 1/p of the model
F = "attn 4.36, dispatch 6.69 on comm, mlp 4.60, combine 8.68 on comm"
I = "combine 5.77 on comm, mlp 5.31, dispatch 7.49 on comm, attn 9.34"
W = "mlp 6.38, attn 2.39"
C = 0.5                                        # further costs, which do not follow from parts
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from importlib.resources import files
from os import PathLike, fsdecode
from os.path import exists

from pipesched.command.values import of_costs, text
from pipesched.common import keywords
from pipesched.diagnostics import AnyCode, Code, Label, PipeschedError, fail
from pipesched.engines.codes import EngineCode
from pipesched.engines.parts import LETTERS, MORE, OWN, Chain, Parts, Piece, Stage
from pipesched.language import ast
from pipesched.language.execution import Names
from pipesched.language.typecheck import Checked
from pipesched.library.inputs import read_path
from pipesched.model.cost_values import read as read_cost
from pipesched.model.costs import Costs
from pipesched.model.placement import Placement
from pipesched.model.units import UNITS
from pipesched.planning.toml import exact, place, read
from pipesched.support.source import Source, Span

_PIECE = re.compile(r"([A-Za-z_]\w{0,30})\s+(\d{1,12}(?:\.\d{1,12})?(?:/\d{1,12})?)(?:\s+on\s+([A-Za-z_]\w{0,30}))?")
MODEL = "model"
_MOST = 64  # parts of a letter
_LAYERS = 1024
_OF_PARTS = re.compile(r"""^[ \t]*(?:layers[ \t]*=|[FIW][ \t]*=[ \t]*["']+\s*[A-Za-z_]\w*\s+\d)""", re.M)
_HELP = 'for example F = "attn 4.4, dispatch 6.7 on comm, mlp 4.6, combine 8.7 on comm"'


def read_parts(source: Source) -> Parts:
    """Return the parts in a file.

    Raises:
        PipeschedError: PS261 for text that is not TOML, an unknown key, or a value that cannot be read; PS262 for parts
            that contradict each other; PS843 if reading exceeds the budget.
    """
    values, places = read(source, EngineCode.PARTS_SYNTAX, exact)
    table = _Table(values, places)
    for key in values:
        if key not in ("unit", "layers", *LETTERS, *MORE):
            raise table.fault(
                key,
                f"a file of parts has no key {key!r}",
                f"the keys are unit, layers, {', '.join((*LETTERS, *MORE))}",
            )
    unit, layers = values.get("unit", ""), values.get("layers", 1)
    if not isinstance(unit, str) or unit not in UNITS:
        raise table.fault("unit", f"unknown unit of time: {unit!r}"[:60], 'units of time are "s", "ms" and "us"')
    if type(layers) is not int or not 1 <= layers <= _LAYERS:
        raise table.fault(
            "layers",
            f"layers is {layers!r}"[:60],
            f"give the number of layers in 1/p of the model, from 1 to {_LAYERS}",
        )
    letters = {key: tuple(table.parts(key)) for key in LETTERS if key in values}
    for key in ("F", "I"):
        if key not in letters:
            raise fail(EngineCode.PARTS_WRONG, f"{source.name} has no parts for {key}", help=_HELP.replace("F", key, 1))
    _check(
        {letter: [(part.name, part.engine) for part in each] for letter, each in letters.items()},
        lambda letter, message, help: table.fault(letter, message, help, EngineCode.PARTS_WRONG),
    )
    more = {key: read_cost(_texts(values[key]), f"cost {key}") for key in MORE if key in values}
    return Parts(layers, letters, UNITS[unit], source.name, costs=more)


def _texts(value: object) -> object:
    """Convert a value to the form that files of costs use, where decimals are strings."""
    if isinstance(value, list):
        return [_texts(each) for each in value]
    return value if isinstance(value, int) else str(value)


class _Table:
    """The values in a file, with their positions."""

    def __init__(self, values: Mapping[str, object], places: Mapping[str, Span]) -> None:
        self._values, self._places = values, places

    def fault(self, key: str, message: str, help: str, code: AnyCode = EngineCode.PARTS_SYNTAX) -> PipeschedError:
        """Return an error that points at a key."""
        span = place(key, self._places)
        return fail(code, message, *(() if span is None else (Label(span, "here"),)), help=help)

    def parts(self, key: str) -> Iterator[Piece]:
        """Yield the parts under the key F, I or W."""
        text = self._values[key]
        if not isinstance(text, str) or not text.strip():
            raise self.fault(key, f"{key} lists no parts", _HELP)
        words = text.split(",")
        if len(words) > _MOST:
            raise self.fault(key, f"{key} has {len(words)} parts", f"a letter has at most {_MOST} parts per layer")
        for word in words:
            found = _PIECE.fullmatch(word.strip())
            if found is None:
                raise self.fault(
                    key, (f"{word.strip()[:40]!r} is not a part of {key}"), f"NAME TIME [on ENGINE], {_HELP}"
                )
            whole, _, below = found[2].partition("/")
            if below and not int(below):
                raise self.fault(key, f"the time of {found[1]} is {found[2]}", "a denominator must be above 0")
            yield Piece(found[1], Fraction(whole) / int(below or 1), found[3] or OWN)


def _check(letters: Mapping[str, Sequence[tuple[str, str]]], fault: Callable[[str, str, str], PipeschedError]) -> None:
    """Check that names are unique within a letter, that every part of W has a part of I with its name, and that every
    engine other than the rank's own has parts of at least two letters.

    letters: the name and the engine of each part. fault: makes the error at a letter, from a message and a remedy.
    """
    for letter, parts in letters.items():
        names = [name for name, _ in parts]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise fault(letter, f"{letter} has two parts named {twice}", "give each part of a letter its own name")
    inputs = {name for name, _ in letters["I"]}
    for name, _ in letters.get("W", ()):
        if name not in inputs:
            message = f"part {name} of W waits for part {name} of I, which does not exist"
            raise fault("W", message, f"the parts of I are {', '.join(sorted(inputs))}")
    engines = {letter: {engine for _, engine in parts} for letter, parts in letters.items()}
    for letter, used in engines.items():
        others = set().union(*(engines[other] for other in engines if other != letter))
        if alone := sorted(used - others - {OWN}):
            message = f"only {letter} has parts on the engine {alone[0]}"
            near = get_close_matches(alone[0], others, 1)
            known = f"other letters use the engines {', '.join(sorted(others))}"
            raise fault(letter, message, f"did you mean {near[0]}?" if near else known)


def stated(checked: Checked, names: Names, placement: Placement) -> Parts:
    """Return the parts that a .ps file gives for every stage of its placement.

    Raises:
        PipeschedError: PS222 if a cost that follows from parts is also given; PS262 for parts that contradict each
            other; PS263 for a number of layers that is not whole.
    """
    by_letter = _by_letter(checked)
    chains = {letter: _chains(item, names, placement.stages) for letter, item in by_letter.items()}
    none = [Chain()] * placement.stages
    alike: dict[tuple[int, ...], Stage] = {}
    of_all = zip(*(chains.get(letter, none) for letter in LETTERS), strict=True)
    stages = tuple(alike.setdefault(tuple(map(id, of)), Stage(*of)) for of in of_all)
    if "W" in chains and (wrong := [s for s, x in enumerate(stages) if x.W.layers != x.I.layers]):
        here, s = by_letter["W"], wrong[0]
        message = f"stage {s} has {stages[s].I.layers} layers of I and {stages[s].W.layers} of W"
        raise _fault(here, message, "every part of W needs a part of I in the same layer")
    return Parts(name=by_letter["F"].span.source.name, stages=stages)


def _by_letter(checked: Checked) -> dict[str, ast.Parts]:
    """Return the `parts` statements of a file by letter, after the checks that do not depend on a stage."""
    items = checked.items(ast.Parts)
    if both := [x for item in checked.items(ast.Costs) for x in item.entries if x.name in ("F", "I", "W", "B")]:
        help = "remove one of them; a cost on the command line replaces a derived one"
        message = f"the file gives both the cost {both[0].name} and parts that determine it"
        raise fail(Code.COSTS, message, Label(both[0].span, "a cost"), Label(items[0].span, "parts"), help=help)
    by_letter: dict[str, ast.Parts] = {}
    for item in items:
        if item.letter not in LETTERS or item.letter in by_letter:
            known = (
                f"`parts {item.letter}` occurs twice"
                if item.letter in by_letter
                else f"{item.letter} cannot have parts"
            )
            raise _fault(item, known, f"`parts` accepts {', '.join(LETTERS)}, each at most once")
        if len(item.each) > _MOST:
            raise _fault(
                item, f"{item.letter} has {len(item.each)} parts", (f"a letter has at most {_MOST} parts per layer")
            )
        by_letter[item.letter] = item
    for letter in {"F", "I"} - by_letter.keys():
        raise _fault(
            items[0], f"{letter} has no parts", f"give `parts {letter}` too: the times of pairs depend on both F and I"
        )
    _check(
        {letter: [(x.name.id, _engine(x)) for x in item.each] for letter, item in by_letter.items()},
        lambda letter, message, help: _fault(by_letter[letter], message, help),
    )
    return by_letter


def _chains(item: ast.Parts, names: Names, stages: int) -> list[Chain]:
    """Return the parts of a letter on every stage."""
    nodes = [item.layers, *(part.time for part in item.each)]
    made = [names.function(node) if item.of else names.number(node) for node in nodes]
    found: dict[tuple[Fraction, ...], Chain] = {}
    return [_chain(item, s, [Fraction(x(s) if callable(x) else x) for x in made], found) for s in range(stages)]


def _chain(item: ast.Parts, stage: int, values: list[Fraction], found: dict[tuple[Fraction, ...], Chain]) -> Chain:
    """Return the parts of a letter on a stage; equal values share one object."""
    layers, *times = values
    where = f" on stage {stage}" if item.of else ""
    if layers.denominator > 1 or not 1 <= layers <= _LAYERS:
        message, help = f"{item.letter} has {layers} layers{where}", f"give a whole number from 1 to {_LAYERS}"
        raise fail(EngineCode.PARTS_LAYERS, message, Label(item.layers.span, "here"), help=help)
    for part, time in zip(item.each, times, strict=True):
        if time < 0:
            raise _fault(part, f"the time of {part.name.id} is {time}{where}", "a time must be at least 0")
    key = tuple(values)
    if key not in found:
        each = (Piece(x.name.id, time, _engine(x)) for x, time in zip(item.each, times, strict=True))
        found[key] = Chain(int(layers), tuple(each))
    return found[key]


def _engine(part: ast.Part) -> str:
    return OWN if part.engine is None else part.engine.id


def _fault(node: ast.Node, message: str, help: str) -> PipeschedError:
    return fail(EngineCode.PARTS_WRONG, message, Label(node.span, "here"), help=help)


def parts(value: object) -> Parts:
    """Return the parts in a file, given by its path or the name of a built-in file; for ``model``, the parts of the
    layers of --model on --device. Parts are returned unchanged.

    Raises:
        PipeschedError: PS809, PS261, PS262, PS843.
    """
    if isinstance(value, Parts):
        return value
    name = text(fsdecode(value) if isinstance(value, PathLike) else value)
    folder = files("pipesched.engines")
    file = folder.joinpath(f"{name}.toml")
    if exists(name) or name == "-":
        return read_parts(read_path(name))
    if name == MODEL:
        return Parts(name=MODEL, of_model=True)
    if re.fullmatch(r"[a-z0-9-]+", name) is None or not file.is_file():
        own = ", ".join(sorted(x.name.removesuffix(".toml") for x in folder.iterdir() if x.name.endswith(".toml")))
        raise fail(
            Code.UNREADABLE,
            f"no such file: {name}",
            help=f"the parts that come with pipesched: {own}; or model, with --model and --device",
        )
    return read_parts(Source(name, file.read_text("utf-8")))


def costs_file(path: str) -> Costs | Parts:
    """Return the costs in a file, or its parts if it is a file of parts.

    Raises:
        PipeschedError: PS225, PS809; PS261, PS262 or PS843 for parts.
    """
    source = read_path(path)
    return read_parts(source) if _OF_PARTS.search(source.text) else of_costs(Costs.from_toml, source.text)


def costs(value: object) -> Costs | Parts:
    """Return costs from a Python value, as `keywords.costs` does, or the parts of a `Path`.

    Raises:
        PipeschedError: as for `costs_file`.
    """
    return costs_file(fsdecode(value)) if isinstance(value, PathLike) else keywords.costs(value)


def asked(own: Mapping[str, object], left: dict[str, object]) -> object:
    """Return the parts given by --parts, or by --costs if it names a file of parts; None without parts.

    Raises:
        PipeschedError: PS225, if both options give parts.
    """
    given, inside = own.get("parts"), own.get("costs")
    if not isinstance(inside, Parts):
        return given
    if given is not None:
        help = "remove one of them, or give --costs a file without parts"
        raise fail(Code.USAGE, f"both --parts and --costs give parts ({inside.name})", help=help)
    left["costs"] = None
    return inside


def lines(parts: Parts) -> Iterator[str]:
    """Yield lines such as ``parts F = 4 of (attn 4.4, dispatch 6.7 on comm)``; by stage if stages differ."""
    for letter in LETTERS:
        chains = [getattr(stage, letter) for stage in parts.stages]
        if not chains or not chains[0].each:
            continue
        by_stage = len(set(chains)) > 1
        each = [
            f"{part.name} {_chosen([chain.each[at].time for chain in chains])}"
            + (f" on {part.engine}" if part.engine != OWN else "")
            for at, part in enumerate(chains[0].each)
        ]
        layers = _chosen([Fraction(chain.layers) for chain in chains])
        yield f"parts {letter}{'[s]' * by_stage} = {layers} of ({', '.join(each)})"


def _chosen(values: Sequence[Fraction]) -> str:
    """Return an expression in the stage s that takes these values."""
    text = _number(values[-1])
    for stage in reversed(range(len(values) - 1)):
        if values[stage] != values[stage + 1]:
            text = f"if s <= {stage} then {_number(values[stage])} else {text}"
    return text


def _number(value: Fraction) -> str:
    """Return a number as a decimal if that is exact and short, otherwise as a quotient."""
    digits = next((digits for digits in range(4) if (value * 10**digits).denominator == 1), None)
    if digits is None:
        return f"{value.numerator} / {value.denominator}"
    return str(Decimal(int(value * 10**digits)).scaleb(-digits))
