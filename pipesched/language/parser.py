"""Text -> tree. LALR(1): linear time, one pass, no ambiguity; a file that is right is read once and nothing more.

    text --lark, grammars/pipesched.lark--> reductions --Build--> ast.File
      \\__ not in the language --recover--> every independent mistake, in words

The grammar is loaded with the first file; a program that parses nothing does not import lark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pipesched.assets import asset
from pipesched.diagnostics import Code, Label, PipeschedError, fail
from pipesched.language import ast
from pipesched.language.tokens import Words, known_release, too_long
from pipesched.safe import STEERING
from pipesched.source import Source, Span

if TYPE_CHECKING:
    from lark import Lark


NESTED = 100  # brackets inside one another
WORDS = 100_000  # names, numbers, signs and strings of a file
OPS_A_WORD = 20  # --max-ops allows more words too: one for so many operations

_WORD = re.compile(r'[A-Za-z_0-9.]+|"[^"]*"?|(?P<gap>(?:\s++|#[^\r\n]*+)++)|[^\s"#A-Za-z_0-9.]')


@dataclass(frozen=True)
class Grammar:
    """The grammar, ready to read; one text at a time, for all share the builder."""

    lark: Lark
    words: Words
    build: Build
    lock: Lock


@cache
def grammar() -> Grammar:
    """The grammar of the language. The first call takes some 50 ms, half of it the import of lark."""
    from lark import Lark

    build = Build()
    lark = Lark(
        asset("grammars", "pipesched.lark").read_text("utf-8"),
        parser="lalr",
        lexer="basic",
        start="file",
        keep_all_tokens=True,
        maybe_placeholders=False,
        transformer=build,
    )
    return Grammar(lark, Words(tuple(lark.terminals)), build, Lock())


def parse(source: Source, words: int = WORDS) -> ast.File:
    """The tree of a file of so many words at most.

    Raises PipeschedError with all independent mistakes of the file, 20 at most: PS101 to PS104, PS210, PS219.
    """
    _refuse_long(source, words)
    _refuse_steering(source)
    _refuse_deep(source)
    tree = _read(source)
    if tree is None:
        from pipesched.language.recover import mistakes

        raise PipeschedError(mistakes(source, grammar().lark, grammar().words))
    return tree


def _read(source: Source) -> ast.File | None:
    """The tree, or None if the text is not in the language."""
    from lark.exceptions import UnexpectedInput

    with grammar().lock:
        grammar().build.begin(source)
        try:
            tree = grammar().lark.parse(source.text)
        except UnexpectedInput:
            return None
        return tree if isinstance(tree, ast.File) and not grammar().build.doubtful else None


def _refuse_long(source: Source, words: int) -> None:
    """Whether a file can be read in a few seconds."""
    if len(source.text) <= words:
        return
    count = 0
    for found in _WORD.finditer(source.text):
        count += found.lastgroup is None
        if count > words:
            raise fail(
                Code.TOO_MANY_OPERATIONS,
                f"the file has more than {words:,} words; the limit is one for {OPS_A_WORD} operations of --max-ops",
                Label(source.span(found.start(), found.end()), f"word {words + 1:,}"),
                help="say it with loops; an order that has none is shorter as text (`rank 0: F0.0 …`) or torch CSV; "
                "--max-ops raises the limit",
            )


def _refuse_steering(source: Source) -> None:
    """Characters that steer a terminal, or make a line look other than it is read, wherever they stand."""
    found = STEERING.search(source.text, source.text.startswith("\ufeff"))
    if found is not None:
        point = f"U+{ord(found.group()):04X}"
        raise fail(
            Code.CHARACTER,
            f"the file has the character {point}, which a terminal would obey and nobody can see",
            Label(source.span(found.start(), found.end()), point),
            help="remove it; comments and documentation have none either",
        )


def _refuse_deep(source: Source) -> None:
    """One linear look at the brackets, so that ten thousand of them are answered at once."""
    depth = 0
    if sum(source.text.count(bracket) for bracket in "{[(") <= NESTED:
        return
    for found in re.finditer(r'[{\[(]|[}\])]|#[^\r\n]*|"[^"]*"', source.text):
        depth += (found.group() in "{[(") - (found.group() in "}])")
        if depth > NESTED:
            raise fail(
                Code.NESTING,
                f"brackets are nested more than {NESTED} deep",
                Label(source.span(found.start(), found.end()), f"bracket {NESTED + 1}, counted from the outside"),
                help="name inner expressions with `let`; a schedule needs no more than a few nested blocks",
            )


# Rules into nodes, the moment they are recognised: one method a rule. A method is given the rule's children in order,
# tokens included, so a node reaches from its first child to its last. Nothing recurses, neither here nor in the parser:
# a deep file costs no stack. Those who walk the tree later do recurse, so what nests deeper than `DEEPEST` is refused.

DEEPEST = 200  # operators, calls and blocks inside one another

Children: TypeAlias = list[Any]  # tokens of lark and nodes of ours, as the rule has them; None where one is left out
AnyNode = TypeVar("AnyNode", bound=ast.Node)


@dataclass(frozen=True, slots=True)
class _Part(ast.Node):
    """What has a place but is no node of its own: a block, a range, what stands between brackets."""

    value: Any


class Build:
    """Makes nodes for one source at a time; `begin` it for each.

    doubtful: whether something was read that the grammar lets pass and the language does not: a number of too many
    digits, a release rule that nobody knows.
    """

    def begin(self, source: Source) -> None:
        self.source = source
        self.doubtful = False
        self.depth: dict[int, int] = {}  # by id, until the parent is made

    def span(self, children: Children) -> Span:
        there = [child for child in children if child is not None]
        first, last = there[0], there[-1]
        start = first.span.start if isinstance(first, ast.Node) else first.start_pos
        end = last.span.end if isinstance(last, ast.Node) else last.end_pos
        return Span(self.source, start, end)

    def made(self, node: AnyNode, children: Children, levels: int = 0) -> AnyNode:
        """The node, its depth noted where it is more than a leaf."""
        depth = levels + max([self.depth.pop(id(child), 0) for child in children])
        if depth:
            self.depth[id(node)] = depth
        if depth > DEEPEST:
            raise fail(
                Code.NESTING,
                f"more than {DEEPEST} operators, calls and blocks are inside one another",
                Label(node.span, "too deep"),
                help="name parts of it with `let`",
            )
        return node

    def part(self, c: Children, value: Any, levels: int = 0) -> _Part | None:
        """A part; None for one that is left out."""
        return self.made(_Part(self.span(c), value), c, levels) if c else None

    # The file and its items

    def file(self, c: Children) -> ast.File:
        title, parameters, documentation = _value(c[2]), _value(c[4]) or (), _value(c[6])
        return ast.File(self.span(c), c[1], parameters, documentation, tuple(c[7:]), title)

    def title(self, c: Children) -> _Part | None:
        return self.part(c, _text(c[0]) if c else None)

    def parameters(self, c: Children) -> _Part | None:
        return self.part(c, tuple(c[::2]))

    def parameter(self, c: Children) -> ast.Parameter:
        return self.made(ast.Parameter(self.span(c), c[0], c[3] if len(c) > 2 else None, _value(c[1])), c)

    def size(self, c: Children) -> _Part | None:
        return self.part(c, c[1] if c else None)

    documentation = title

    def require(self, c: Children) -> ast.Require:
        return self.made(ast.Require(self.span(c), c[1], _text(c[3]) if len(c) > 2 else None), c)

    def let(self, c: Children) -> ast.Let:
        return self.made(ast.Let(self.span(c), c[1], _value(c[2]), c[4]), c)

    def names(self, c: Children) -> _Part | None:
        return self.part(c, tuple(c[1:-1:2]))

    def stages(self, c: Children) -> ast.Stages:
        variable, high, low = None, None, c[2]
        if c[3] == "in":
            variable, (low, high) = c[2], c[4].value
        rank, reads, microbatches = c[-3], _value(c[-2]) or (), _value(c[-1])
        return self.made(ast.Stages(self.span(c), _value(c[0]), variable, low, high, rank, microbatches, reads), c)

    def route(self, c: Children) -> _Part | None:
        return self.part(c, c[1] if c else None)

    def reads(self, c: Children) -> _Part | None:
        return self.part(c, tuple(c[1::2]))

    def microbatches(self, c: Children) -> _Part | None:
        return self.part(c, c[2].value if c else None)

    def frozen(self, c: Children) -> ast.Frozen:
        variable, low, high = (c[1], *c[3].value) if len(c) > 2 else (None, c[1], None)
        return self.made(ast.Frozen(self.span(c), variable, low, high), c)

    def slices(self, c: Children) -> ast.Slices:
        return self.made(ast.Slices(self.span(c), c[1]), c)

    def rank(self, c: Children) -> ast.Rank:
        return self.made(ast.Rank(self.span(c), c[1], c[2].value), c)

    def costs(self, c: Children) -> ast.Costs:
        return self.made(ast.Costs(self.span(c), tuple(c[1::2])), c)

    def cost(self, c: Children) -> ast.Cost:
        if c[1] == "[":
            return self.made(ast.Cost(self.span(c), str(c[0]), c[-1], None, tuple(c[2:-3:2])), c)
        values = tuple(c[3:-1:2]) if c[2] == "[" else None
        return self.made(ast.Cost(self.span(c), str(c[0]), None if values else c[2], values), c)

    def claim(self, c: Children) -> ast.Claim:
        return self.made(ast.Claim(self.span(c), c[1], _value(c[2]), _value(c[3])), c)

    def release(self, c: Children) -> _Part | None:
        rule = "".join(c[1:])
        if c and c[1].type == "NAME":
            self.doubtful |= not known_release(rule)
        return self.part(c, rule)

    def condition(self, c: Children) -> _Part | None:
        return self.part(c, c[1] if c else None)

    # Statements

    def block(self, c: Children) -> _Part | None:
        return self.part(c, tuple(c[1:-1]), 1)

    def operation(self, c: Children) -> ast.Operation:
        return self.made(ast.Operation(self.span(c), str(c[0]), _value(c[1]), _value(c[2])), c)

    chunk = microbatch = size

    def overlap(self, c: Children) -> ast.Overlap:
        return self.made(ast.Overlap(self.span(c), c[2], c[4]), c)

    def drain(self, c: Children) -> ast.Drain:
        return self.made(ast.Drain(self.span(c), _value(c[2])), c)

    def loop(self, c: Children) -> ast.For:
        low, high = c[3].value
        return self.made(ast.For(self.span(c), c[1], low, high, c[4].value), c)

    def repeat(self, c: Children) -> ast.Repeat:
        return self.made(ast.Repeat(self.span(c), c[1], c[2].value), c)

    def choice(self, c: Children) -> ast.If:
        return self.made(ast.If(self.span(c), c[1], c[2].value, _value(c[3]) or ()), c, 1)

    def otherwise(self, c: Children) -> _Part | None:
        chained = bool(c) and isinstance(c[1], ast.If)
        return self.part(c, (c[1],) if chained else _value(c[1]) if c else None)

    def greedy(self, c: Children) -> ast.Greedy:
        return self.made(ast.Greedy(self.span(c), tuple(c[2:-1])), c, 1)

    def line(self, c: Children) -> ast.Line:
        return self.made(ast.Line(self.span(c), c[0], _value(c[1])), c)

    def range(self, c: Children) -> _Part | None:
        return self.part(c, (c[0], c[2]))

    # Expressions

    def conditional(self, c: Children) -> ast.Conditional:
        return self.made(ast.Conditional(self.span(c), c[1], c[3], c[5]), c, 1)

    def binary(self, c: Children) -> ast.Binary:
        return self.made(ast.Binary(self.span(c), str(c[1]), c[0], c[2]), c, 1)

    def unary(self, c: Children) -> ast.Unary:
        return self.made(ast.Unary(self.span(c), str(c[0]), c[1]), c, 1)

    def call(self, c: Children) -> ast.Call:
        return self.made(ast.Call(self.span(c), c[0], tuple(c[2:-1:2])), c, 1)

    def entry(self, c: Children) -> ast.Entry:
        return self.made(ast.Entry(self.span(c), c[0], c[2]), c, 1)

    def group(self, c: Children) -> ast.Expression:
        """The inner expression, its place widened by the brackets."""
        inner: ast.Expression = c[1]
        return self.made(replace(inner, span=self.span(c)), c)

    def number(self, c: Children) -> ast.Number:
        text = str(c[0])
        if too_long(text):
            self.doubtful, text = True, "0"
        return ast.Number(self.span(c), Fraction(text) if "." in text else int(text))

    def boolean(self, c: Children) -> ast.Boolean:
        return ast.Boolean(self.span(c), c[0] == "true")

    def name(self, c: Children) -> ast.Name:
        return ast.Name(self.span(c), str(c[0]))


def _value(part: _Part | None) -> Any:
    return None if part is None else part.value


def _text(token: str) -> str:
    """A string without its quotes; line ends are ``\\n`` whatever the file has."""
    return str(token)[1:-1].replace("\r\n", "\n")
