"""Lays out neighbouring lines with aligned parts.

repeat warmup     { F }                     route down: stage s in 0 .. p on rank s          for ...
repeat m - warmup { F  B }  # steady        route up:   stage s in 0 .. p on rank p - 1 - s  for ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from pipesched.language.tokens import Token
from pipesched.model.ops import LETTERS

WIDTH = 100


@dataclass
class Line:
    """A line to be written: its parts, at least one space apart, and the comment at its end.

    kind: neighbours of the same kind and indentation are aligned; "" for none.
    """

    indent: int
    parts: list[str]
    blank_before: bool = False
    kind: str = ""
    comment: str = ""

    @property
    def code(self) -> str:
        return " " * self.indent + " ".join(self.parts)

    @property
    def width(self) -> int:
        return len(self.code)


def rendered(lines: list[Line]) -> Iterator[str]:
    """Yield the lines as text, aligned if that keeps them within `WIDTH`."""
    for run in _runs(lines, lambda line: line.kind):
        _align_parts(run)
    comments = {id(line): len(line.code) for line in lines}
    for run in _runs(lines, lambda line: "#" if line.comment and "\n" not in line.code else ""):
        comments |= dict.fromkeys(map(id, run), max(line.width for line in run))
    for line in lines:
        if line.blank_before:
            yield ""
        yield f"{line.code.ljust(comments[id(line)])}  {line.comment}" if line.comment else line.code


def _runs(lines: list[Line], kind: Callable[[Line], str]) -> Iterator[list[Line]]:
    """Yield runs of neighbouring lines of the same kind and indentation, without a blank line between them."""
    paragraphs = zip(accumulate(line.blank_before for line in lines), lines, strict=True)
    for (_, name, _), run in groupby(paragraphs, key=lambda pair: (pair[0], kind(pair[1]), pair[1].indent)):
        if name:
            yield [line for _, line in run]


def _align_parts(run: list[Line]) -> None:
    written = [list(line.parts) for line in run]
    for column in range(max(len(line.parts) for line in run) - 1):
        having = [line for line in run if len(line.parts) > column + 1]
        widest = max(len(line.parts[column]) for line in having)
        for line in having:
            line.parts[column] = line.parts[column].ljust(widest)
    if any(line.width > WIDTH for line in run):
        for line, parts in zip(run, written, strict=True):
            line.parts = parts


# Blanks: F[c](i)    min(a, b)    0 .. m    a // b    -x    { F  B }    route up: stage s    release split:1/2

_VALUE_WORDS = (")", "]", "true", "false")
_BREAK_BEFORE = ("then", "else", "and", "or", "when", "release", "for", "on", "reads")
_OPERATORS = ("COMPARE", "TIMES")
_OPERATOR_WORDS = ("+", "-", "/", "=", ",", "and", "or")


def gap(tokens: Sequence[Token], at: int) -> str:
    """Return the spaces before the token at `at`, unless it begins a line or a statement."""
    before, token = tokens[at - 1], tokens[at]
    tight_left = before.text in ("(", "[") or _unary(tokens, at - 1) or _in_share(tokens, at)
    tight_right = token.text in (")", "]", ",", ":") or (before.text == "{" and token.text == "}")
    return "" if tight_left or tight_right or _argument(tokens, at) else " "


def breakable(tokens: Sequence[Token], at: int) -> bool:
    """Return True if a line may end before the token: at an operator, after a comma, or before a word like `when`."""
    before, token = tokens[at - 1], tokens[at]
    if gap(tokens, at) == "" or before.text in ("{", "}"):
        return False
    if token.text in _BREAK_BEFORE or _operates(before):
        return True
    return _operates(token) and token.text not in ("=", ",")


def _operates(token: Token) -> bool:
    return token.kind in _OPERATORS or token.text in _OPERATOR_WORDS


def _argument(tokens: Sequence[Token], at: int) -> bool:
    """Return True if a bracket belongs to the word before it (a call, a chunk, a microbatch), unlike in `4 of (…)`."""
    before, token = tokens[at - 1], tokens[at]
    if before.text == "of" and (tokens[at - 2].named or tokens[at - 2].kind == "NUMBER" or tokens[at - 2].text in ")]"):
        return False
    named = before.named or before.text in tuple(LETTERS)
    return (token.text in ("(", "[") and named) or (token.text == "(" and before.text in ("overlap", "]"))


def _unary(tokens: Sequence[Token], at: int) -> bool:
    if tokens[at].text != "-" or at == 0:
        return False
    before = tokens[at - 1]
    return not (before.named or before.kind == "NUMBER" or before.text in _VALUE_WORDS)


def _in_share(tokens: Sequence[Token], at: int) -> bool:
    """Return True if the token is inside `split:1/2`, which contains no spaces."""
    words = [token.text for token in tokens[max(0, at - 5) : at + 1]]
    begins = [i for i in range(len(words) - 3) if words[i] == "release" and words[i + 2] == ":"]
    return any(len(words) == i + 4 or words[i + 4] == "/" for i in begins)
