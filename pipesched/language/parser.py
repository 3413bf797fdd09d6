"""The parser, from text to tree. LALR(1): linear time, one pass, no ambiguity; a valid file is read only once.

    text --grammar--> reductions --Build--> ast.File
      \\__ not in the language --> PS101 at the first misplaced token; hints find every mistake

The tables are loaded when the first file is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, cast

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.extension import explained
from pipesched.language import ast
from pipesched.language.grammar import Children, grammar
from pipesched.language.tokens import LONGEST, UNKNOWN, Token, known_release, too_long
from pipesched.support.safe import STEERING
from pipesched.support.source import Source, Span

NESTED = 100  # most nested brackets
DEEPEST = 200  # most nested operators, calls and blocks
WORDS = 100_000  # most names, numbers, signs and strings of a file
OPS_A_WORD = 20  # --max-ops also raises this limit: one word per so many operations

_COMMENTS = 10  # most lines of comments for each word that a file may have
_FEWER = (
    "write it with loops; an order without loops is shorter as text (`rank 0: F0.0 …`) or torch CSV; --max-ops "
    "raises the limit"
)
_DEEPER = ast.Rank, ast.For, ast.Repeat, ast.If, ast.Greedy, ast.Conditional, ast.Binary, ast.Unary, ast.Call, ast.Entry
_WORD = re.compile(r'[A-Za-z_0-9.]+|"[^"]*"|(?P<gap>\s+|#[^\r\n]*)|[^\s"#A-Za-z_0-9.]')


def parse(source: Source, words: int = WORDS) -> ast.File:
    """Return the tree of a file. words: the largest allowed number of words.

    Raises:
        PipeschedError: PS101 to PS104, PS210, PS219: the first mistake; hints on `syntax` find all mistakes.
    """
    _refuse_large(source, words)
    _refuse_steering(source)
    build = Build(source)
    tree: ast.File | Token = grammar().read(source.text, build)
    wrong = tree if isinstance(tree, Token) else build.doubtful
    if wrong is not None:
        raise PipeschedError(explained("syntax", [_misplaced(wrong, source)], source))
    _refuse_deep(cast("ast.File", tree))
    return cast("ast.File", tree)


def _misplaced(token: Token, source: Source) -> Diagnostic:
    """Return the finding on the first misplaced token: PS102 for a character, PS219 for a number, else PS101."""
    here = Label(source.span(token.start, token.end), "the file is correct up to here")
    if token.kind == UNKNOWN:
        return Diagnostic(Code.CHARACTER, f"no word of the language begins with `{token.text}`", (here,))
    if too_long(token.text) and token.kind == "NUMBER":
        return Diagnostic(Code.OVERFLOW, f"a number has more than {LONGEST} digits", (here,))
    shown = f"`{token.text[:40]}`" if token.text else "the end of the file"
    return Diagnostic(Code.SYNTAX, f"found {shown}, which is not allowed here", (here,))


def _refuse_large(source: Source, words: int) -> None:
    """Refuse a file too large to read within a few seconds, and brackets nested too deeply for recursive functions."""
    text = source.text
    if len(text) <= words and sum(map(text.count, "{[(")) <= NESTED:
        return
    count = comments = depth = 0
    for found in _WORD.finditer(text):
        word, (start, end) = found[0], found.span()
        count += found.lastgroup is None
        comments += word[0] == "#"
        depth += (word in "{[(") - (word in "}])")
        if comments > _COMMENTS * words:
            here = Label(source.span(start, start + 1), "one too many")
            raise fail(Code.TOO_MANY_OPERATIONS, f"the file has more than {_COMMENTS * words:,} comments", here)
        if count > words:
            message = (
                f"the file has more than {words:,} words; the limit is one per {OPS_A_WORD} operations of --max-ops"
            )
            here = Label(source.span(start, end), f"word {words + 1:,}")
            raise fail(Code.TOO_MANY_OPERATIONS, message, here, help=_FEWER)
        if depth > NESTED:
            here = Label(source.span(start, end), f"this bracket is at nesting level {NESTED + 1}")
            help = "name inner expressions with `let`; a schedule needs no more than a few nested blocks"
            raise fail(Code.NESTING, f"brackets are nested more than {NESTED} deep", here, help=help)


def _refuse_steering(source: Source) -> None:
    """Refuse characters that control a terminal or make a line look different from its contents."""
    found = STEERING.search(source.text, source.text.startswith("\ufeff"))
    if found is not None:
        point = f"U+{ord(found.group()):04X}"
        message = f"the file contains the invisible control character {point}"
        here = Label(source.span(found.start(), found.end()), point)
        raise fail(Code.CHARACTER, message, here, help="remove it; it is not allowed even in a comment")


def _refuse_deep(tree: ast.File) -> None:
    """Refuse a tree too deep for recursive functions; neither this function nor the parser recurses."""
    left: list[tuple[ast.Node, int]] = [(tree, 0)]
    for node, around in left:
        depth = around + isinstance(node, _DEEPER)
        if depth > DEEPEST:
            message = f"operators, calls and blocks are nested more than {DEEPEST} deep"
            raise fail(Code.NESTING, message, Label(node.span, "too deep"), help="name its parts with `let`")
        left += [(child, depth) for child in ast.children(node)]


# Rules become nodes as soon as they are recognised: one row per rule. A row gets the rule's children in order,
# including tokens, so a node extends from its first child to its last.


class _Part(ast.Node):
    """A part that has a span but is not a node: a block, a range, the contents of brackets."""

    value: Any


def _value(part: _Part | None) -> Any:
    return None if part is None else part.value


def _text(token: Token) -> str:
    """Return a string without its quotes, with line ends as ``\\n``."""
    return token.text[1:-1].replace("\r\n", "\n")


def _inner(c: Children) -> object:
    return c[1]


def _stages(c: Children) -> tuple[object, ...]:
    variable, (low, high) = (c[2], c[4].value) if c[3].text == "in" else (None, (c[2], None))
    route, family = _value(c[0]) or (None, None)
    microbatch, *ends = _value(c[-1]) or (None,)
    found = (route, variable, low, high, c[-4], tuple(ends) or None, _value(c[-3]) or ())
    return *found, _value(c[-2]), family, microbatch


def _cost(c: Children) -> tuple[object, ...]:
    if c[1].text == "[":
        return c[0].text, c[-1], None, tuple(c[2:-3:2])
    values = tuple(c[3:-1:2]) if isinstance(c[2], Token) else None
    return c[0].text, None if values else c[2], values


PARTS: dict[str, Callable[[Children], object]] = {
    "title": lambda c: _text(c[0]),
    "documentation": lambda c: _text(c[0]),
    "parameters": lambda c: tuple(c[::2]),
    "names": lambda c: tuple(c[1:-1:2]),
    "reads": lambda c: tuple(c[1::2]),
    "microbatches": lambda c: (c[2] if len(c) > 3 else None, *c[-1].value),
    "route": lambda c: (c[1], (c[3], *c[6].value) if len(c) > 3 else None),
    "block": lambda c: tuple(c[1:-1]),
    "otherwise": lambda c: (c[1],) if isinstance(c[1], ast.If) else c[1].value,
    "range": lambda c: (c[0], c[2]),
    "of": lambda c: (c[1],),
    **dict.fromkeys(("size", "condition", "chunk", "microbatch"), _inner),
}
"""The value of a part, by its grammar rule; a part without children is omitted."""

NODES: dict[str, tuple[type[ast.Node], Callable[[Children], tuple[object, ...]]]] = {
    "parameter": (ast.Parameter, lambda c: (c[0], c[3] if len(c) > 2 else None, _value(c[1]))),
    "require": (ast.Require, lambda c: (c[1], _text(c[3]) if len(c) > 2 else None)),
    "let": (ast.Let, lambda c: (c[1], _value(c[2]), c[4])),
    "stages": (ast.Stages, _stages),
    "frozen": (ast.Frozen, lambda c: (*((c[1], *c[3].value) if len(c) > 3 else (None, c[1], None)), _value(c[-1]))),
    "slices": (ast.Slices, lambda c: (c[1],)),
    "versions": (ast.Versions, lambda c: (c[1].text, c[2] if len(c) > 2 else None)),
    "rank": (ast.Rank, lambda c: (c[1], c[2].value)),
    "costs": (ast.Costs, lambda c: (tuple(c[1::2]),)),
    "cost": (ast.Cost, _cost),
    "parts": (ast.Parts, lambda c: (c[1].text, _value(c[2]) or (), c[4], tuple(c[7:-1:2]))),
    "part": (ast.Part, lambda c: (*c[:2], c[3] if len(c) > 2 else None)),
    "claim": (ast.Claim, lambda c: (c[1], _value(c[2]), _value(c[3]))),
    "operation": (ast.Operation, lambda c: (c[0].text, _value(c[1]), _value(c[2]))),
    "overlap": (ast.Overlap, lambda c: (c[2], c[4])),
    "drain": (ast.Drain, lambda c: (_value(c[2]),)),
    "step": (ast.Step, lambda c: (_value(c[1]),)),
    "loop": (ast.For, lambda c: (c[1], *c[3].value, c[4].value)),
    "repeat": (ast.Repeat, lambda c: (c[1], c[2].value)),
    "choice": (ast.If, lambda c: (c[1], c[2].value, _value(c[3]) or ())),
    "greedy": (ast.Greedy, lambda c: (tuple(c[2:-1]), c[0].text)),
    "line": (ast.Line, lambda c: (c[0], _value(c[1]))),
    "conditional": (ast.Conditional, lambda c: (c[1], c[3], c[5])),
    "binary": (ast.Binary, lambda c: (c[1].text, c[0], c[2])),
    "unary": (ast.Unary, lambda c: (c[0].text, c[1])),
    "call": (ast.Call, lambda c: (c[0], tuple(c[2:-1:2]))),
    "entry": (ast.Entry, lambda c: (c[0], c[2])),
    "boolean": (ast.Boolean, lambda c: (c[0].text == "true",)),
    "name": (ast.Name, lambda c: (c[0].text,)),
}
"""For each grammar rule: its node class, and how to get the node's fields from the parsed children."""


class Build:
    """Builds the nodes of a source.

    doubtful: the first token, if any, that the grammar accepts but the language does not: a number with too many
    digits, or an unknown release rule.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.doubtful: Token | None = None
        for rule, value in PARTS.items():
            setattr(self, rule, partial(self._part, value))
        for rule, (kind, fields) in NODES.items():
            setattr(self, rule, partial(self._node, kind, fields))

    def _span(self, children: Children) -> Span:
        there = [child for child in children if child is not None]
        first, last = there[0], there[-1]
        start = first.span.start if isinstance(first, ast.Node) else first.start
        end = last.span.end if isinstance(last, ast.Node) else last.end
        return Span(self.source, start, end)

    def _part(self, value: Callable[[Children], object], c: Children) -> _Part | None:
        return _Part(self._span(c), value(c)) if c else None

    def _node(self, kind: type[ast.Node], fields: Callable[[Children], tuple[object, ...]], c: Children) -> ast.Node:
        return kind(self._span(c), *fields(c))

    def file(self, c: Children) -> ast.File:
        title, parameters, documentation = _value(c[2]), _value(c[4]) or (), _value(c[6])
        return ast.File(self._span(c), c[1], parameters, documentation, tuple(c[7:]), title)

    def release(self, c: Children) -> _Part | None:
        rule = "".join([token.text for token in c[1:]])
        if c and c[1].kind == "NAME" and not known_release(rule):
            self.doubtful = self.doubtful or c[1]
        return self._part(lambda _: rule, c)

    def group(self, c: Children) -> ast.Expression:
        """Return the inner expression, with its span widened to include the parentheses."""
        inner: ast.Expression = c[1]
        return replace(inner, span=self._span(c))

    def number(self, c: Children) -> ast.Number:
        text = c[0].text
        if too_long(text):
            self.doubtful, text = self.doubtful or c[0], "0"
        return ast.Number(self._span(c), Fraction(text) if "." in text else int(text))
