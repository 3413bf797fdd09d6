"""The grammar's rules, each made into its node the moment it is recognised: one method a rule.

A method is given the rule's children in order, tokens included, so the place of a node is from its first child to its
last. Nothing recurses, neither here nor in the parser: a deep file costs no stack. Those who walk the tree later do
recurse, so what nests deeper than `DEEPEST` is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

from pipesched.diagnostics import Code, Label, fail
from pipesched.language import ast
from pipesched.language.tokens import known_release, too_long
from pipesched.source import Source, Span

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
        parameters, documentation = _value(c[3]) or (), _value(c[5])
        return ast.File(self.span(c), c[1], parameters, documentation, tuple(c[6:]))

    def parameters(self, c: Children) -> _Part | None:
        return self.part(c, tuple(c[::2]))

    def parameter(self, c: Children) -> ast.Parameter:
        return self.made(ast.Parameter(self.span(c), c[0], c[2] if len(c) > 1 else None), c)

    def documentation(self, c: Children) -> _Part | None:
        return self.part(c, _text(c[0]) if c else None)

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
        return self.made(ast.Stages(self.span(c), _value(c[0]), variable, low, high, c[-2], _value(c[-1])), c)

    def route(self, c: Children) -> _Part | None:
        return self.part(c, c[1] if c else None)

    def microbatches(self, c: Children) -> _Part | None:
        return self.part(c, c[2].value if c else None)

    def rank(self, c: Children) -> ast.Rank:
        return self.made(ast.Rank(self.span(c), c[1], c[2].value), c)

    def costs(self, c: Children) -> ast.Costs:
        return self.made(ast.Costs(self.span(c), tuple(c[1::2])), c)

    def cost(self, c: Children) -> ast.Cost:
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

    def chunk(self, c: Children) -> _Part | None:
        return self.part(c, c[1] if c else None)

    microbatch = chunk

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
