"""A file of parts: TOML with the parts of F, I and W of a layer.

unit = "ms"
layers = 4                                     # of 1/p of the model
F = "attn 4.36, dispatch 6.69 on comm, mlp 4.60, combine 8.68 on comm"
I = "combine 5.77 on comm, mlp 5.31, dispatch 7.49 on comm, attn 9.34"
W = "mlp 6.38, attn 2.39"
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from importlib.resources import files
from os import PathLike, fsdecode
from os.path import exists

from pipesched.command.values import text
from pipesched.diagnostics import AnyCode, Code, Label, PipeschedError, fail
from pipesched.engines.codes import EngineCode
from pipesched.engines.parts import OWN, Parts, Piece
from pipesched.library.inputs import read_path
from pipesched.model.units import UNITS
from pipesched.planning.toml import exact, place, read
from pipesched.support.source import Source, Span

_LETTERS = ("F", "I", "W")
_PIECE = re.compile(r"([A-Za-z_]\w{0,30})\s+(\d{1,12}(?:\.\d{1,12})?(?:/\d{1,12})?)(?:\s+on\s+([A-Za-z_]\w{0,30}))?")
_MOST = 64  # parts of a letter
_LAYERS = 1024
_HELP = 'for example F = "attn 4.4, dispatch 6.7 on comm, mlp 4.6, combine 8.7 on comm"'


def read_parts(source: Source) -> Parts:
    """Return the parts in a file.

    Raises:
        PipeschedError: PS261, not TOML, an unknown key, a value that cannot be read; PS262, parts that contradict each
            other; PS843, reading exceeds the budget.
    """
    values, places = read(source, EngineCode.PARTS_SYNTAX, exact)
    table = _Table(values, places)
    for key in values:
        if key not in ("unit", "layers", *_LETTERS):
            raise table.fault(
                key,
                f"parts have no key {key!r}",
                f"keys are unit, layers, {', '.join(_LETTERS)}; --cost gives FB and C",
            )
    unit, layers = values.get("unit", ""), values.get("layers", 1)
    if not isinstance(unit, str) or unit not in UNITS:
        raise table.fault("unit", f"the unit of the parts is {unit!r}"[:60], 'units of time are "s", "ms" and "us"')
    if type(layers) is not int or not 1 <= layers <= _LAYERS:
        raise table.fault(
            "layers", f"layers is {layers!r}"[:60], f"give the layers of 1/p of the model, 1 to {_LAYERS}"
        )
    letters = {key: tuple(table.parts(key)) for key in _LETTERS if key in values}
    for key in ("F", "I"):
        if key not in letters:
            raise fail(EngineCode.PARTS_WRONG, f"{source.name} has no parts of {key}", help=_HELP.replace("F", key, 1))
    table.check(letters)
    return Parts(layers, letters, UNITS[unit], source.name)


class _Table:
    """The values of a file, and where they are."""

    def __init__(self, values: Mapping[str, object], places: Mapping[str, Span]) -> None:
        self._values, self._places = values, places

    def fault(self, key: str, message: str, help: str, code: AnyCode = EngineCode.PARTS_SYNTAX) -> PipeschedError:
        """Return an error at a key."""
        span = place(key, self._places)
        return fail(code, message, *(() if span is None else (Label(span, "here"),)), help=help)

    def parts(self, key: str) -> Iterator[Piece]:
        """Yield the parts of a letter."""
        text = self._values[key]
        if not isinstance(text, str) or not text.strip():
            raise self.fault(key, f"{key} lists no parts", _HELP)
        words = text.split(",")
        if len(words) > _MOST:
            raise self.fault(key, f"{key} has {len(words)} parts", f"a letter has at most {_MOST} parts of a layer")
        for word in words:
            found = _PIECE.fullmatch(word.strip())
            if found is None:
                raise self.fault(key, f"{word.strip()[:40]!r} is no part of {key}", f"NAME TIME [on ENGINE], {_HELP}")
            whole, _, below = found[2].partition("/")
            if below and not int(below):
                raise self.fault(key, f"the time of {found[1]} is {found[2]}", "a denominator is above 0")
            yield Piece(found[1], Fraction(whole) / int(below or 1), found[3] or OWN)

    def check(self, letters: Mapping[str, tuple[Piece, ...]]) -> None:
        """Check that names are unique within a letter, that every part of W has its part of I, and that an engine other
        than the rank's own has a part in two letters or more.
        """
        wrong = EngineCode.PARTS_WRONG
        for key, parts in letters.items():
            names = [part.name for part in parts]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise self.fault(key, f"{key} has two parts {twice}", "give each part of a letter its own name", wrong)
        inputs = {part.name for part in letters["I"]}
        for part in letters.get("W", ()):
            if part.name not in inputs:
                message = f"{part.name} of W waits for {part.name} of I, which is no part"
                raise self.fault("W", message, f"the parts of I are {', '.join(sorted(inputs))}", wrong)
        engines = {key: {part.engine for part in parts} for key, parts in letters.items()}
        for key, used in engines.items():
            others = set().union(*(engines[other] for other in engines if other != key))
            if alone := sorted(used - others - {OWN}):
                message = f"only {key} has parts on the engine {alone[0]}"
                raise self.fault(key, message, f"engines of other letters are {', '.join(sorted(others))}", wrong)


def parts(value: object) -> Parts:
    """Return parts: of a file by its path, of a file that ships with pipesched by its name, or as they are.

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
    if re.fullmatch(r"[a-z0-9-]+", name) is None or not file.is_file():
        own = ", ".join(sorted(x.name.removesuffix(".toml") for x in folder.iterdir() if x.name.endswith(".toml")))
        raise fail(Code.UNREADABLE, f"no such file: {name}", help=f"the parts that come with pipesched: {own}")
    return read_parts(Source(name, file.read_text("utf-8")))


def asked(own: Mapping[str, object], _: dict[str, object]) -> object:
    """Return the parts given by the option."""
    return own["parts"]
