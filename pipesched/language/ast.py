"""The syntax tree: frozen nodes, each with its span.

Two trees are equal if their contents are equal; spans are ignored. Grammar: ``grammars/README.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TypeAlias

from pipesched.support.record import Record
from pipesched.support.source import Span


class Node(Record):
    """A node of the tree. Every kind of node is a frozen dataclass."""

    span: Span

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and type(self) is type(other) and self._content == other._content

    def __hash__(self) -> int:
        return hash((type(self), self._content))

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._content}"

    @property
    def _content(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in [*self.__dataclass_fields__][1:])


# Expressions


class Number(Node):
    """A number such as ``12``; a Fraction if it has a decimal point (``1.5``), which only costs and claims allow."""

    value: int | Fraction


class Boolean(Node):
    """``true`` or ``false``."""

    value: bool


class Name(Node):
    """A name, where it is used or defined."""

    id: str


class Call(Node):
    """A call such as ``min(a, b)`` or ``fwd(k)``; in claims also ``peak(r)``."""

    function: Name
    arguments: tuple[Expression, ...]


class Entry(Node):
    """``length[i]``: an entry of a list parameter."""

    list: Name
    index: Expression


class Unary(Node):
    """``-a`` or ``not a``."""

    operator: str
    operand: Expression


class Binary(Node):
    """``+ - * // % /``, ``== != < <= > >=``, ``and or``."""

    operator: str
    left: Expression
    right: Expression


class Conditional(Node):
    """``if condition then yes else no``."""

    condition: Expression
    yes: Expression
    no: Expression


Expression: TypeAlias = Number | Boolean | Name | Call | Entry | Unary | Binary | Conditional


# Statements, inside a rank


class Let(Node):
    """A ``let x = e`` (parameters is None) or ``let f(k) = e``, also at top level."""

    name: Name
    parameters: tuple[Name, ...] | None
    value: Expression


class Operation(Node):
    """An operation such as ``F``, ``I[c]`` or ``B[c](i)``. op: the letter of its kind."""

    op: str
    chunk: Expression | None
    microbatch: Expression | None


class Overlap(Node):
    """``overlap(F[a], B[b])``: two operations as one slot."""

    first: Operation
    second: Operation


class Drain(Node):
    """A ``drain W`` or ``drain W[c]``: every pending W, oldest first."""

    chunk: Expression | None


class Step(Node):
    """``STEP`` for every stage of the rank, or ``STEP[c]``."""

    chunk: Expression | None


class For(Node):
    """``for k in low .. high { … }``; `high` is excluded."""

    variable: Name
    low: Expression
    high: Expression
    body: tuple[Statement, ...]


class Repeat(Node):
    """``repeat n { … }``."""

    count: Expression
    body: tuple[Statement, ...]


class If(Node):
    """``if c { … } else { … }``; for ``else if``, `no` is a single `If`."""

    condition: Expression
    yes: tuple[Statement, ...]
    no: tuple[Statement, ...]


class Line(Node):
    """``F[0] when held < cap`` in a `Greedy`."""

    operation: Operation
    condition: Expression | None


class Greedy(Node):
    """A ``greedy { B  F when held < cap }``: the first line that can run runs next; or ``backfill``, without lines."""

    lines: tuple[Line, ...]
    word: str = "greedy"


Statement: TypeAlias = Let | Operation | Overlap | Drain | Step | For | Repeat | If | Greedy


# Top level


class Parameter(Node):
    """A ``p`` or ``v = 2`` in the head of a schedule, or a list: ``length[m] = 1``, with m entries."""

    name: Name
    default: Expression | None
    size: Expression | None = None


class Require(Node):
    """``require condition, "why"``."""

    condition: Expression
    message: str | None


class Stages(Node):
    """The placement of stages.

    ``stage s in low .. high on rank e`` (variable and high set) or ``stage low on rank e`` (both None), after ``route
    NAME:`` if there are several routes, before ``for microbatch a .. b``. reads: the expressions after ``reads``; empty
    without ``reads``. condition: the expression after ``when``; a stage is skipped where it is false. family: k and its
    range in ``route NAME[k] in a .. b:``. microbatch: i in ``for microbatch i in a .. b``.
    """

    route: Name | None
    variable: Name | None
    low: Expression
    high: Expression | None
    rank: Expression
    microbatches: tuple[Expression, Expression] | None
    reads: tuple[Expression, ...] = ()
    condition: Expression | None = None
    family: tuple[Name, Expression, Expression] | None = None
    microbatch: Name | None = None


class Frozen(Node):
    """A ``frozen s in low .. high when c`` (variable and high set) or ``frozen low`` (both None): untrained stages."""

    variable: Name | None
    low: Expression
    high: Expression | None
    condition: Expression | None = None


class Slices(Node):
    """A ``slices q``: q consecutive microbatches are the slices of one sequence."""

    count: Expression


class Versions(Node):
    """``versions stash``, ``versions latest``, or ``versions delay e``: the weights that F and B read."""

    rule: str
    delay: Expression | None


class Rank(Node):
    """``rank r { … }`` for every rank (a bare name) or ``rank 0 { … }`` for one (any other expression)."""

    rank: Expression
    body: tuple[Statement, ...]


class Cost(Node):
    """``F = 10``, ``F = [10, 12]`` or ``F[s, i] = 2 * length[i]`` in a `Costs`.

    values: an expression, or a tuple with one per stage. of: the names of the stage and microbatch variables.
    """

    name: str
    value: Expression | None
    values: tuple[Expression, ...] | None
    of: tuple[Name, ...] = ()


class Costs(Node):
    """``costs F = 10, I = 12, W = 8, C = 1``."""

    entries: tuple[Cost, ...]


class Part(Node):
    """``dispatch 6.7 on comm``: a part of an operation; engine is None without ``on``."""

    name: Name
    time: Expression
    engine: Name | None


class Parts(Node):
    """``parts F[s] = 4 of (attn 4.4, dispatch 6.7 on comm)``; of: the name of the stage variable, if any."""

    letter: str
    of: tuple[Name, ...]
    layers: Expression
    each: tuple[Part, ...]


class Claim(Node):
    """``claim E release R when C``; `release` is the rule as text: ``I``, ``torch``, ``split:1/2``."""

    claim: Expression
    release: str | None
    condition: Expression | None


Item: TypeAlias = Require | Let | Stages | Frozen | Slices | Versions | Rank | Costs | Parts | Claim


class File(Node):
    """A ``schedule name "title" (parameters) "documentation"`` and its items. title: the display name."""

    name: Name
    parameters: tuple[Parameter, ...]
    documentation: str | None
    items: tuple[Item, ...]
    title: str | None = None


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes directly below a node, in the order of its fields."""
    names: tuple[str, ...] = node.__match_args__  # the first field is the place
    for name in names[1:]:
        part = getattr(node, name)
        for child in part if isinstance(part, tuple) else (part,):
            if isinstance(child, Node):
                yield child


def names_in(node: Node) -> frozenset[str]:
    """Return every value and function named in an expression."""
    return frozenset({node.id}) if isinstance(node, Name) else frozenset().union(*map(names_in, children(node)))
