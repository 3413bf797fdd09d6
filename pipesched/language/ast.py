"""The syntax tree: frozen nodes, each with its span.

Two trees are equal if they say the same, wherever they are: spans do not count. Grammar: ``grammars/README.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from pipesched.support.source import Span


@dataclass(frozen=True, slots=True)
class Node:
    """Anything that was written."""

    span: Span = field(compare=False, repr=False)


# Expressions


@dataclass(frozen=True, slots=True)
class Number(Node):
    """``12``; a Fraction where a decimal point was written (``1.5``), in costs and claims only."""

    value: int | Fraction


@dataclass(frozen=True, slots=True)
class Boolean(Node):
    """``true`` or ``false``."""

    value: bool


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A name, where it is used and where it is defined."""

    id: str


@dataclass(frozen=True, slots=True)
class Call(Node):
    """``min(a, b)``, ``fwd(k)``; in claims also ``peak(r)``."""

    function: Name
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Entry(Node):
    """``length[i]``: an entry of a list parameter."""

    list: Name
    index: Expression


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """``-a`` or ``not a``."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """``+ - * // % /``, ``== != < <= > >=``, ``and or``."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Conditional(Node):
    """``if condition then yes else no``."""

    condition: Expression
    yes: Expression
    no: Expression


Expression: TypeAlias = Number | Boolean | Name | Call | Entry | Unary | Binary | Conditional


# Statements, inside a rank


@dataclass(frozen=True, slots=True)
class Let(Node):
    """``let x = e`` (parameters is None) or ``let f(k) = e``; at top level too."""

    name: Name
    parameters: tuple[Name, ...] | None
    value: Expression


@dataclass(frozen=True, slots=True)
class Operation(Node):
    """``F``, ``I[c]``, ``B[c](i)``, ``W``: op is the letter of a kind."""

    op: str
    chunk: Expression | None
    microbatch: Expression | None


@dataclass(frozen=True, slots=True)
class Overlap(Node):
    """``overlap(F[a], B[b])``: two operations as one slot."""

    first: Operation
    second: Operation


@dataclass(frozen=True, slots=True)
class Drain(Node):
    """``drain W`` or ``drain W[c]``: every pending W, oldest first."""

    chunk: Expression | None


@dataclass(frozen=True, slots=True)
class For(Node):
    """``for k in low .. high { … }``, half open."""

    variable: Name
    low: Expression
    high: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Repeat(Node):
    """``repeat n { … }``."""

    count: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If(Node):
    """``if c { … } else { … }``; ``else if`` is an `If` alone in `no`."""

    condition: Expression
    yes: tuple[Statement, ...]
    no: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Line(Node):
    """``F[0] when held < cap`` in a `Greedy`."""

    operation: Operation
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class Greedy(Node):
    """``greedy { B  F when held < cap }``: whichever of these can run, the first one first."""

    lines: tuple[Line, ...]


Statement: TypeAlias = Let | Operation | Overlap | Drain | For | Repeat | If | Greedy


# Top level


@dataclass(frozen=True, slots=True)
class Parameter(Node):
    """``p`` or ``v = 2`` in the head of a schedule, or a list: ``length[m] = 1``, whose size is m."""

    name: Name
    default: Expression | None
    size: Expression | None = None


@dataclass(frozen=True, slots=True)
class Require(Node):
    """``require condition, "why"``."""

    condition: Expression
    message: str | None


@dataclass(frozen=True, slots=True)
class Stages(Node):
    """Where stages live.

    ``stage s in low .. high on rank e`` (variable and high set) or ``stage low on rank e`` (both None), after
    ``route NAME:`` if there is more than one way through the ranks, before ``for microbatch a .. b``. reads: the stages
    that these read, after ``reads``; empty where that is not written.
    """

    route: Name | None
    variable: Name | None
    low: Expression
    high: Expression | None
    rank: Expression
    microbatches: tuple[Expression, Expression] | None
    reads: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Frozen(Node):
    """``frozen s in low .. high`` (variable and high set) or ``frozen low`` (both None): these are not trained."""

    variable: Name | None
    low: Expression
    high: Expression | None


@dataclass(frozen=True, slots=True)
class Slices(Node):
    """``slices q``: q microbatches side by side are the slices of one sequence."""

    count: Expression


@dataclass(frozen=True, slots=True)
class Rank(Node):
    """``rank r { … }`` for every rank (a bare name) or ``rank 0 { … }`` for one (any other expression)."""

    rank: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Cost(Node):
    """``F = 10``, ``F = [10, 12]`` or ``F[s, i] = 2 * length[i]`` in a `Costs`.

    values: a tuple of one entry a stage, where that is what was written. of: the names of the stage and the microbatch.
    """

    name: str
    value: Expression | None
    values: tuple[Expression, ...] | None
    of: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class Costs(Node):
    """``costs F = 10, I = 12, W = 8, C = 1``."""

    entries: tuple[Cost, ...]


@dataclass(frozen=True, slots=True)
class Claim(Node):
    """``claim E release R when C``; `release` is the rule as text: ``I``, ``torch``, ``split:1/2``."""

    claim: Expression
    release: str | None
    condition: Expression | None


Item: TypeAlias = Require | Let | Stages | Frozen | Slices | Rank | Costs | Claim


@dataclass(frozen=True, slots=True)
class File(Node):
    """``schedule name "title" (parameters) "documentation"`` and what follows it; the title is what people call it."""

    name: Name
    parameters: tuple[Parameter, ...]
    documentation: str | None
    items: tuple[Item, ...]
    title: str | None = None


def children(node: Node) -> Iterator[Node]:
    """The nodes right below a node, in the order of its fields."""
    names: tuple[str, ...] = node.__match_args__  # the place first
    for name in names[1:]:
        part = getattr(node, name)
        for child in part if isinstance(part, tuple) else (part,):
            if isinstance(child, Node):
                yield child


def names_in(node: Node) -> frozenset[str]:
    """Every value and function named in an expression."""
    return frozenset({node.id}) if isinstance(node, Name) else frozenset().union(*map(names_in, children(node)))
