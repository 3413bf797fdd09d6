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

Children: TypeAlias = list[Any]  # tokens of lark and nodes of ours, as the rule has them
AnyNode = TypeVar("AnyNode", bound=ast.Node)


@dataclass(frozen=True, slots=True)
class _Block(ast.Node):
    body: tuple[ast.Statement, ...]


@dataclass(frozen=True, slots=True)
class _Range(ast.Node):
    low: ast.Expression
    high: ast.Expression


@dataclass(frozen=True, slots=True)
class _Inner(ast.Node):
    """What stands between brackets: a chunk in square ones, a microbatch in round ones."""

    bracket: str
    value: ast.Expression


@dataclass(frozen=True, slots=True)
class _Release(ast.Node):
    rule: str


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
        first, last = children[0], children[-1]
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

    # The file and its items

    def file(self, c: Children) -> ast.File:
        parameters = tuple(x for x in c if isinstance(x, ast.Parameter))
        text = next((_text(x) for x in c if not isinstance(x, ast.Node) and x.type in ("STRING", "TEXT")), None)
        items = tuple(x for x in c if isinstance(x, ast.Item))
        return ast.File(self.span(c), c[1], parameters, text, items)

    def parameter(self, c: Children) -> ast.Parameter:
        return self.made(ast.Parameter(self.span(c), c[0], c[2] if len(c) > 1 else None), c)

    def require(self, c: Children) -> ast.Require:
        return self.made(ast.Require(self.span(c), c[1], _text(c[3]) if len(c) > 2 else None), c)

    def let(self, c: Children) -> ast.Let:
        names = tuple(x for x in c[3:-1] if isinstance(x, ast.Name)) if c[2] == "(" else None
        return self.made(ast.Let(self.span(c), c[1], names, c[-1]), c)

    def stages(self, c: Children) -> ast.Stages:
        variable, high, route, microbatches, rest = None, None, None, None, c
        if rest[0] == "route":
            route, rest = rest[1], rest[3:]
        if isinstance(rest[-1], _Range):
            microbatches, rest = (rest[-1].low, rest[-1].high), rest[:-3]
        low, rank = rest[1], rest[-1]
        if rest[2] == "in":
            variable, low, high = rest[1], rest[3].low, rest[3].high
        return self.made(ast.Stages(self.span(c), route, variable, low, high, rank, microbatches), c)

    def rank(self, c: Children) -> ast.Rank:
        return self.made(ast.Rank(self.span(c), c[1], c[2].body), c)

    def costs(self, c: Children) -> ast.Costs:
        return self.made(ast.Costs(self.span(c), tuple(c[1::2])), c)

    def cost(self, c: Children) -> ast.Cost:
        values = tuple(c[3:-1:2]) if c[2] == "[" else None
        return self.made(ast.Cost(self.span(c), str(c[0]), None if values else c[2], values), c)

    def claim(self, c: Children) -> ast.Claim:
        release = c[2].rule if len(c) > 2 and isinstance(c[2], _Release) else None
        condition = c[-1] if c[-2] == "when" else None
        return self.made(ast.Claim(self.span(c), c[1], release, condition), c)

    def release(self, c: Children) -> _Release:
        if c[1].type == "NAME":
            self.doubtful |= not known_release(c[1], len(c) > 2)
        return _Release(self.span(c), "".join(c[1:]))

    # Statements

    def block(self, c: Children) -> _Block:
        return self.made(_Block(self.span(c), tuple(c[1:-1])), c, 1)

    def operation(self, c: Children) -> ast.Operation:
        inner = {x.bracket: x.value for x in c[1:]}
        return self.made(ast.Operation(self.span(c), str(c[0]), inner.get("["), inner.get("(")), c)

    def chunk(self, c: Children) -> _Inner:
        return self.made(_Inner(self.span(c), str(c[0]), c[1]), c)

    microbatch = chunk

    def overlap(self, c: Children) -> ast.Overlap:
        return self.made(ast.Overlap(self.span(c), c[2], c[4]), c)

    def drain(self, c: Children) -> ast.Drain:
        return self.made(ast.Drain(self.span(c), c[2].value if len(c) > 2 else None), c)

    def loop(self, c: Children) -> ast.For:
        return self.made(ast.For(self.span(c), c[1], c[3].low, c[3].high, c[4].body), c)

    def repeat(self, c: Children) -> ast.Repeat:
        return self.made(ast.Repeat(self.span(c), c[1], c[2].body), c)

    def choice(self, c: Children) -> ast.If:
        no: tuple[ast.Statement, ...] = ()
        if len(c) > 3:
            no = c[4].body if isinstance(c[4], _Block) else (c[4],)
        return self.made(ast.If(self.span(c), c[1], c[2].body, no), c, 1)

    def range(self, c: Children) -> _Range:
        return self.made(_Range(self.span(c), c[0], c[2]), c)

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


def _text(token: str) -> str:
    """A string without its quotes; line ends are ``\\n`` whatever the file has."""
    return str(token)[1:-1].replace("\r\n", "\n")
