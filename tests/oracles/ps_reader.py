"""A recursive-descent reader that turns .ps text into a tree of tuples, written only from the language reference
(grammars/README.md).

file        ("file", name, parameters, items)          parameter   (name, size or None, default or None)
item        ("require", e) ("let", name, names or None, e) ("stage", …) ("frozen", …) ("slices", e) ("rank", e, block)
            ("costs", rows) ("claim", e, release, condition)
statement   ("op", letter, chunk, microbatch) ("overlap", op, op) ("drain", chunk) ("let", …) ("for", name, a, b, block)
            ("repeat", e, block) ("if", e, block, block) ("greedy", lines) ("backfill",)
expression  ("number", x) ("truth", x) ("name", x) ("call", name, es) ("entry", name, e) ("unary", op, e)
            ("binary", op, e, e) ("choice", e, e, e)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

Tree = tuple[Any, ...]
LETTERS = "FIWBROL"
_WORDS = """
schedule require let route stage in on rank for microbatch costs claim release when repeat if then else overlap drain
and or not true false F I W B
"""
RESERVED = frozenset(_WORDS.split())
TOKEN = re.compile(
    r"(?P<gap>[ \t\r\n]+|#[^\n]*)|(?P<text>\"[^\"]*\")|(?P<number>\d+(?:\.\d+)?)|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<sign>\.\.|==|!=|<=|>=|//|[-+*/%<>=(){}\[\],:])"
)
LOOSE = (("or",), ("and",), ("==", "!=", "<", "<=", ">", ">="), ("+", "-"), ("*", "//", "%", "/"))


def tokens(text: str) -> list[tuple[str, str]]:
    """Return (kind, token) of a text, without blanks and comments."""
    found, at = [], 0
    while at < len(text):
        one = TOKEN.match(text, at)
        assert one is not None, text[at : at + 20]
        at = one.end()
        if one.lastgroup != "gap":
            found.append((str(one.lastgroup), one[0]))
    return found


class Reader:
    """Reads one file."""

    def __init__(self, text: str) -> None:
        self.rest = [*tokens(text), ("end", "")]
        self.at = 0

    # Tokens

    @property
    def next(self) -> str:
        return self.rest[self.at][1]

    def sees(self, *words: str) -> bool:
        return self.next in words and self.rest[self.at][0] != "text"

    def take(self, word: str = "") -> str:
        kind, found = self.rest[self.at]
        assert not word or (found == word and kind != "text"), f"{word} and not {found}"
        self.at += 1
        return found

    def accept(self, word: str) -> bool:
        if self.sees(word):
            self.at += 1
            return True
        return False

    def name(self) -> str:
        kind, found = self.rest[self.at]
        assert kind == "word" and found not in RESERVED, found
        return self.take()

    def maybe(self, opening: str, closing: str, read: Callable[[], Any]) -> Any:
        if not self.accept(opening):
            return None
        found = read()
        self.take(closing)
        return found

    def several(self, read: Callable[[], Any]) -> tuple[Any, ...]:
        found = [read()]
        while self.accept(","):
            found.append(read())
        return tuple(found)

    def text(self) -> None:
        if self.rest[self.at][0] == "text":
            self.at += 1

    # A file

    def file(self) -> Tree:
        self.take("schedule")
        name = self.name()
        self.text()
        self.take("(")
        parameters = () if self.sees(")") else self.several(self.parameter)
        self.take(")")
        self.text()
        items = []
        while self.rest[self.at][0] != "end":
            items.append(self.item())
        return ("file", name, parameters, tuple(items))

    def parameter(self) -> Tree:
        return (self.name(), self.maybe("[", "]", self.expression), self.expression() if self.accept("=") else None)

    def item(self) -> Tree:
        word = self.next
        if word in ("stage", "route"):
            return self.stages()
        self.take()
        if word == "require":
            condition = self.expression()
            if self.accept(","):
                self.text()
            return ("require", condition)
        if word == "let":
            return self.let()
        if word == "frozen":
            return ("frozen", *self.some())
        if word == "slices":
            return ("slices", self.expression())
        if word == "rank":
            return ("rank", self.expression(), self.block())
        if word == "costs":
            return ("costs", self.several(self.cost))
        assert word == "claim", word
        return self.claim()

    def let(self) -> Tree:
        name = self.name()
        names = None
        if self.accept("("):
            names = () if self.sees(")") else self.several(self.name)
            self.take(")")
        self.take("=")
        return ("let", name, names, self.expression())

    def some(self) -> Tree:
        """Read ``s in a .. b`` as (s, a, b), or an expression as (None, e, None)."""
        if self.rest[self.at + 1][1] == "in":
            name = self.name()
            self.take("in")
            low = self.expression()
            self.take("..")
            return (name, low, self.expression())
        return (None, self.expression(), None)

    def stages(self) -> Tree:
        route = None
        if self.accept("route"):
            route = self.name()
            self.take(":")
        self.take("stage")
        of = self.some()
        self.take("on")
        self.take("rank")
        rank = self.expression()
        reads = self.several(self.expression) if self.accept("reads") else None
        taken = None
        if self.accept("for"):
            self.take("microbatch")
            low = self.expression()
            self.take("..")
            taken = (low, self.expression())
        return ("stage", route, *of, rank, reads, taken)

    def cost(self) -> Tree:
        """Return (key, names or None, one expression or several)."""
        key = self.take()
        names = self.maybe("[", "]", lambda: self.several(self.name))
        self.take("=")
        if names is None and self.accept("["):
            several = self.several(self.expression)
            self.take("]")
            return (key, None, several)
        return (key, names, self.expression())

    def claim(self) -> Tree:
        value, release = self.expression(), "W"
        if self.accept("release"):
            release = self.take()
            if self.accept(":"):
                release += ":" + self.take()
                if self.accept("/"):
                    release += "/" + self.take()
        return ("claim", value, release, self.expression() if self.accept("when") else None)

    # Programs

    def block(self) -> Tree:
        self.take("{")
        found = []
        while not self.accept("}"):
            found.append(self.statement())
        return tuple(found)

    def statement(self) -> Tree:
        word = self.next
        if word in LETTERS:
            return self.operation()
        self.take()
        if word == "overlap":
            self.take("(")
            first = self.operation()
            self.take(",")
            second = self.operation()
            self.take(")")
            return ("overlap", first, second)
        if word == "drain":
            self.take("W")
            return ("drain", self.maybe("[", "]", self.expression))
        if word == "let":
            return self.let()
        if word == "for":
            of, low, high = self.some()
            return ("for", of, low, high, self.block())
        if word == "repeat":
            return ("repeat", self.expression(), self.block())
        if word == "if":
            return self.choice()
        if word == "backfill":
            return ("backfill",)
        assert word == "greedy", word
        self.take("{")
        lines = []
        while not self.accept("}"):
            lines.append((self.operation(), self.expression() if self.accept("when") else None))
        return ("greedy", tuple(lines))

    def choice(self) -> Tree:
        condition, yes, no = self.expression(), self.block(), ()
        if self.accept("else"):
            no = (self.choice(),) if self.accept("if") else self.block()
        return ("if", condition, yes, no)

    def operation(self) -> Tree:
        letter = self.take()
        assert letter in LETTERS, letter
        chunk = self.maybe("[", "]", self.expression)
        return ("op", letter, chunk, self.maybe("(", ")", self.expression))

    # Expressions

    def expression(self) -> Tree:
        if self.accept("if"):
            condition = self.expression()
            self.take("then")
            yes = self.expression()
            self.take("else")
            return ("choice", condition, yes, self.expression())
        return self.binary(0)

    def binary(self, level: int) -> Tree:
        """Return the operators of one row group from the left, except comparisons, which do not chain."""
        if level == len(LOOSE):
            return self.factor()
        if level == 2 and self.accept("not"):
            return ("unary", "not", self.binary(2))
        found = self.binary(level + 1)
        while self.sees(*LOOSE[level]):
            operator = self.take()
            found = ("binary", operator, found, self.binary(level + 1))
            if level == 2:
                break
        return found

    def factor(self) -> Tree:
        if self.accept("-"):
            return ("unary", "-", self.factor())
        kind, found = self.rest[self.at]
        if kind == "number":
            self.at += 1
            return ("number", Fraction(found) if "." in found else int(found))
        if found in ("true", "false"):
            self.at += 1
            return ("truth", found == "true")
        if self.accept("("):
            inner = self.expression()
            self.take(")")
            return inner
        name = self.name()
        if self.accept("("):
            given = self.several(self.expression)
            self.take(")")
            return ("call", name, given)
        if self.accept("["):
            index = self.expression()
            self.take("]")
            return ("entry", name, index)
        return ("name", name)


def read(text: str) -> Tree:
    return Reader(text).file()
