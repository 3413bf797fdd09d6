"""Expands a script's words to fields: known variables are replaced by their values, unknown text by holes.

A hole is one character that stands for unknown text, such as an environment variable or the output of a program. If
branches of the script set the variable, the hole has their values as its `ways`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pipesched.interop.trainers.bash.known import NAME, computed, cut
from pipesched.interop.trainers.bash.text import Text, closing, joined, plain, quoted, split

_FIRST = 0xF0000  # first of the private characters that represent holes
_HOLE = re.compile("[\U000f0000-\U000ffffd]")
_MOST = 600_000  # most units of work: characters read, and steps
_HOLES = 60_000
_PARAMETER = re.compile(r"(#?)([A-Za-z_]\w*|[0-9@*#?$!-])(?:\[([^\]]*)\])?(.*)", re.S)
_SELF = r"""["']?\$(?:0|\{0\}|\{BASH_SOURCE(?:\[0\])?(?:-\$0|:-\$0)?\}|BASH_SOURCE)["']?"""
_REAL = rf"""["']?\$\((?:readlink -f|realpath) (?:--)?{_SELF}\)["']?"""
_DIRNAME = rf"dirname (?:-- )?(?:{_SELF}|{_REAL})"
_FOLDER = re.compile(
    rf"""{_DIRNAME}|(?:cd|realpath|readlink -f) (?:-- )?["']?\$\({_DIRNAME}\)["']?(?:.*&& *pwd(?: -P)?)?"""
)
_ARGUMENTS = ("@", "*")

Value: TypeAlias = "Text | tuple[Text, ...]"
"""The value of a variable: a string, or an array of strings."""
Part: TypeAlias = "tuple[Text, bool | None]"
"""A piece of a word, and True if it is not split at whitespace; None marks the end of an array element."""


class TooMuch(Exception):
    """Raised if a script takes more work than any training script needs."""


@dataclass(frozen=True)
class Hole:
    """Text with unknown contents. reason: the explanation for messages. ways: its possible values, if known."""

    reason: str
    at: int = -1
    ways: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Parameter:
    """A parameter ``${name[index]rest}``, or ``${#name}`` (counted). word: the expression as written."""

    word: Text
    name: str
    index: str | None
    rest: Text
    counted: bool

    @property
    def several(self) -> bool:
        """True if the parameter stands for all elements of an array, or all arguments."""
        return self.index in _ARGUMENTS or self.name in _ARGUMENTS


@dataclass
class Words:
    """The variables of a script, and the expansion of words with them.

    given: variables set from outside, which the script cannot change. taken: assumptions, such as defaults, each with
    its offset. folder: the script's folder. arguments: the arguments of the script, None if they are unknown.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    folder: str = "."
    taken: dict[str, int] = field(default_factory=dict)
    holes: list[Hole] = field(default_factory=list)
    variables: dict[str, Value] = field(default_factory=dict)
    arguments: tuple[Text, ...] | None = None
    work: int = 0

    def spend(self, count: int) -> None:
        """Charge units of work.

        Raises:
            TooMuch: if the work exceeds what any training script needs.
        """
        self.work += count + 1
        if self.work > _MOST or len(self.holes) > _HOLES:
            raise TooMuch

    def hole(self, reason: str, at: int, *ways: Value) -> Text:
        """Return a new hole, a character that represents unknown text."""
        self.spend(0)
        self.holes.append(Hole(reason, at, ways))
        return plain(chr(_FIRST + len(self.holes) - 1), at)

    def hole_in(self, text: Text) -> Hole | None:
        """Return the first hole in a text, or None."""
        found = _HOLE.search(text.chars)
        return self.holes[ord(found[0]) - _FIRST] if found else None

    def shown(self, text: Text) -> str:
        """Return the characters of a text, with each hole as written in the script."""
        return _HOLE.sub(lambda found: self.holes[ord(found[0]) - _FIRST].reason.partition(",")[0], text.chars)

    def fields(self, words: tuple[Text, ...]) -> list[Text]:
        """Expand words into fields."""
        return [x for word in words for x in self._expanded(word)]

    def joined(self, word: Text, *, quote: bool = False) -> Text:
        """Expand a word to one field, as in an assignment. quote: the word is in double quotes."""
        return joined(part for part, _ in self._parts(word, quote=quote))

    def _expanded(self, word: Text) -> Iterator[Text]:
        """Yield the fields of a word: unquoted parts are split at whitespace; each element of an array is a field."""
        current: Text | None = None
        for part, kept in self._parts(word, quote=False, arrays=True):
            if kept is None and not current:  # an empty element
                current = None
                continue
            for piece in _pieces(part, kept):
                if piece is not None:
                    current = piece if current is None else current + piece
                elif current is not None:
                    yield current
                    current = None
        if current is not None:
            yield current

    def _parts(self, word: Text, *, quote: bool, arrays: bool = False) -> Iterator[Part]:
        """Yield the expanded parts of a word."""
        self.spend(len(word))
        at = 0
        while at < len(word):
            end = _part_end(word.chars, at, quote)
            yield from self._part(word[at:end], quote, arrays)
            at = end

    def _part(self, part: Text, quote: bool, arrays: bool) -> Iterator[Part]:
        sign = part.chars[0] if len(part) > 1 else ""
        if sign == "\\":
            continued = part.chars[1] in "\r\n" and part.chars[-1] == "\n"
            bare = not quote or part.chars[1] in '$`"\\'
            yield from () if continued else [(part[1 if bare else 0 :], True)]
        elif sign == "'" and not quote:
            yield part[1:-1], True
        elif sign == '"' and not quote:
            yield Text(), True
            inner = self._parts(part[1:-1], quote=True, arrays=arrays)
            yield from ((x, None if kept is None else True) for x, kept in inner)
        elif sign == "`":
            yield self._output(part[1:-1], part), quote
        elif sign == "$":
            yield from self._dollar(part, quote, arrays)
        else:
            yield part, True

    def _dollar(self, word: Text, quote: bool, arrays: bool) -> Iterator[Part]:
        """Yield the value of an expression that begins with a dollar sign, as parts."""
        chars = word.chars
        if chars.startswith("$(("):
            value = self.arithmetic(word[3:-2])
            unknown = value is None and self.hole(f"{chars[:40]}, which is unknown", word.place)
            yield unknown or plain(str(value), word.place), quote
            return
        if chars.startswith("$("):
            yield self._output(word[2:-1], word), quote
            return
        inner = word[2:-1] if chars.startswith("${") else word[1:]
        if found := _PARAMETER.fullmatch(inner.chars):
            x = Parameter(word, found[2], found[3], inner[found.start(4) :], bool(found[1]))
            yield from self._spread(x, self._count(x) if x.counted else self._parameter(x), quote, arrays)
        else:
            yield self.hole(f"{chars[:40]}, which is not read", word.place), quote

    def _spread(self, x: Parameter, value: Value, quote: bool, arrays: bool) -> Iterator[Part]:
        """Yield a value as parts: the elements of an array as separate fields, or joined by spaces."""
        if isinstance(value, Text):
            yield value, quote
            return
        together = not arrays or (quote and "*" in (x.name, x.index))
        for number, element in enumerate(value):
            if number:
                yield (plain(" "), True) if together else (Text(), None)
            yield element, quote
        if not value and quote and arrays:
            yield Text(), None

    def _count(self, x: Parameter) -> Text:
        value = self._value(x)
        known = x.index in _ARGUMENTS if isinstance(value, tuple) else value is not None and not self.hole_in(value)
        return plain(str(len(value or ()))) if known else self.hole(f"{x.word.chars[:40]}, a count", x.word.place)

    def _parameter(self, x: Parameter) -> Value:
        """Return the value of a parameter, after its index and operator are applied; a hole if nothing sets it."""
        value = self._value(x)
        if isinstance(value, tuple) and not x.several:
            number = int(x.index or "0") if re.fullmatch(r"[0-9]{0,6}", x.index or "") else len(value)
            value = value[number] if number < len(value) else None
        elif isinstance(value, Text) and not x.several and x.index not in (None, "", "0"):
            value = None
        if x.rest.chars:
            value = self._asked(x, value)
        return self.hole(f"{x.word.chars[:40]}, which the file does not set", x.word.place) if value is None else value

    def _value(self, x: Parameter) -> Value | None:
        """Return the value of a variable, None if nothing sets it."""
        if x.name in self.given:
            return plain(self.given[x.name])
        if x.name in _ARGUMENTS:
            if self.arguments is None:
                said = f"{x.word.chars[:20]}: the script is assumed to have no arguments"
                self.taken.setdefault(said, x.word.place)
            return self.arguments or ()
        if x.name in ("0", "BASH_SOURCE"):
            return plain(f"{self.folder}/", x.word.place) + self.hole("the name of the script", x.word.place)
        if x.name.isdigit():
            return next(iter((self.arguments or ())[int(x.name) - 1 : int(x.name)]), None)
        if x.name == "#":
            return None if self.arguments is None else plain(str(len(self.arguments)))
        return self.variables.get(x.name)

    def _asked(self, x: Parameter, value: Value | None) -> Value | None:
        """Apply ``:-`` and other operators to a value; return None if the result is unset."""
        for pattern, answer in _ASKED:
            if found := pattern.match(x.rest.chars):
                return answer(self, x, found[0], value)
        known = isinstance(value, Text) and not self.hole_in(value)
        made = cut(value.chars, x.rest.chars) if known and isinstance(value, Text) else None
        if made is None or not isinstance(value, Text):
            return self.hole(f"{x.word.chars[:40]}, which is not read", x.word.place)
        return plain(made, value.place)

    def _default(self, x: Parameter, sign: str, value: Value | None) -> Value | None:
        """Apply a default: ``-`` if the variable is not set, ``:-`` also if it is empty; ``=`` assigns it too."""
        if value is not None and (value or sign[0] != ":"):
            return value
        default = self.joined(x.rest[len(sign) :])
        if value is None and default.chars and not self.hole_in(default):
            said = f"{x.name} is {default.chars[:40]}, as in {x.word.chars[:40]}: set it with -D {x.name}=…"
            self.taken.setdefault(said, x.word.place)
        if "=" in sign:
            self.variables[x.name] = default
        return default

    def _other(self, x: Parameter, sign: str, value: Value | None) -> Value | None:
        """Apply ``+``: return the alternative text if the variable is set; None if that is unknown."""
        if value and isinstance(value, Text) and self.hole_in(value):
            return None
        return self.joined(x.rest[len(sign) :]) if value else Text()

    def _output(self, text: Text, whole: Text) -> Text:
        """Return the output of a command that can be computed, such as ``echo``; otherwise a hole."""
        if _FOLDER.fullmatch(text.chars.strip()):
            return plain(self.folder, whole.place)
        program = _PRINTED.get((text.chars.split(None, 1) or [""])[0])
        found = None
        if program and not re.search(r"[|;&<>]", text.chars):
            found = program(self, self.fields(tuple(split(text)))[1:], whole.place)
        return self.hole(f"{whole.chars[:40]}, the output of a program", whole.place) if found is None else found

    def _echo(self, fields: list[Text], place: int) -> Text | None:
        flags = fields and re.fullmatch("-[neE]+", fields[0].chars)
        return None if flags else joined(fields, " ")

    def _dirname(self, fields: list[Text], place: int) -> Text | None:
        paths = [x.chars.rstrip("/") for x in fields if x.chars != "--"]
        folder = os.path.dirname(paths[0]) if len(paths) == 1 else None
        return None if folder is None or _HOLE.search(folder) else plain(folder or ".", place)

    def _expr(self, fields: list[Text], place: int) -> Text | None:
        value = self.arithmetic(joined(fields, " "))
        return None if value is None else plain(str(value), place)

    def arithmetic(self, text: Text) -> int | None:
        """Return the result of an arithmetic expression, None if it is unknown."""
        return computed(self.joined(text, quote=True).chars, self.variables)


_ASKED: tuple[tuple[re.Pattern[str], Callable[[Words, Parameter, str, Value | None], Value | None]], ...] = (
    (re.compile(r":?[-=]"), Words._default),
    (re.compile(r":?\+"), Words._other),
    (re.compile(r":?\?"), lambda words, x, sign, value: value),
)
_PRINTED: Mapping[str, Callable[[Words, list[Text], int], Text | None]] = {
    "echo": Words._echo,
    "dirname": Words._dirname,
    "expr": Words._expr,
}


def _part_end(chars: str, at: int, quote: bool) -> int:
    """Return the index after the part of a word that begins at `at`."""
    sign = chars[at]
    if sign == "\\" and at + 1 < len(chars):
        return at + (3 if chars.startswith("\r\n", at + 1) else 2)
    if sign == "`" or (sign in "'\"" and not quote):
        return quoted(chars, at)
    if sign == "$" and at + 1 < len(chars):
        return _dollar_end(chars, at)
    found = re.compile(r"""[^\\'"`$]*""").match(chars, at + 1)
    return found.end() if found else at + 1


def _dollar_end(chars: str, at: int) -> int:
    after = chars[at + 1]
    if after in "({":
        return closing(chars, at + 1)
    if after == "'":
        return quoted(chars, at + 1)
    found = NAME.match(chars, at + 1)
    return found.end() if found else at + (2 if after in "0123456789@*#?$!-" else 1)


def _pieces(part: Text, kept: bool | None) -> Iterator[Text | None]:
    """Yield a part, split at whitespace, with None for each end of a field."""
    if kept is None:
        yield None
    elif kept:
        yield part
    else:
        for piece in re.finditer(r"\s+|\S+", part.chars):
            yield None if piece[0].isspace() else part[piece.start() : piece.end()]
