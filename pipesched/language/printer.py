"""The canonical form of a file: `pipesched fmt`.

Only blanks and line ends change: the tokens, comments among them, are those of the file, in order.

- Two blanks for each brace around. Items, `let`, `for`, `repeat` and `if` have lines of their own; operations keep the
  user's lines, two blanks apart. An expression keeps its breaks beside operators, the rest moved in by four.
- A block on one line stays there if it fits in 100 columns. One blank line at most, none at the ends of a block.
- In consecutive lines the blocks, the parts of routes, and the comments at the ends stand below one another.

    repeat warmup     { F }        # fill
    repeat m - warmup { F  B }     # steady
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from pipesched.language import ast
from pipesched.language.parser import grammar, parse
from pipesched.language.spacing import breakable, gap
from pipesched.language.tokens import COMMENT, Token
from pipesched.source import Source

WIDTH = 100


def format_source(source: Source) -> str:
    """The text in canonical form. Raises PipeschedError if it does not parse."""
    marks = Marks()
    marks.file(parse(source))
    lines = _Layout(source.text, grammar().words.scan(source.text), marks).lines()
    return "".join(f"{text}\n" for text in rendered(lines))


@dataclass
class Marks:
    """Where things begin and end in a text, by offset.

    lines: items, and the statements that have lines of their own, with their ends; operations likewise.
    """

    lines: dict[int, int] = field(default_factory=dict)
    operations: dict[int, int] = field(default_factory=dict)

    def file(self, file: ast.File) -> None:
        for item in file.items:
            self.lines[item.span.start] = item.span.end
            if isinstance(item, ast.Rank):
                self.body(item.body)

    def body(self, body: tuple[ast.Statement, ...]) -> None:
        for statement in body:
            own_line = isinstance(statement, ast.Let | ast.For | ast.Repeat | ast.If)
            (self.lines if own_line else self.operations)[statement.span.start] = statement.span.end
            if isinstance(statement, ast.For | ast.Repeat):
                self.body(statement.body)
            elif isinstance(statement, ast.If):
                self.body(statement.yes)
                self.body(statement.no)


@dataclass
class Line:
    """A line to be: its parts, which may be set below those of its neighbours, and the comment at its end."""

    indent: int
    blank_before: bool
    kind: str = ""  # of neighbours that are aligned
    parts: list[str] = field(default_factory=lambda: [""])
    comment: str = ""

    @property
    def text(self) -> str:
        return " ".join(self.parts)


@dataclass
class _Layout:
    text: str
    tokens: list[Token]
    marks: Marks
    ...
