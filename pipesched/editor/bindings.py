"""Finds the definitions in a file: each name with the part of the text in which it is visible.

No name is shadowed, so at any place a name has at most one definition: the one whose part contains the place.

    schedule s(p)                   p                            in the whole file
    let w = p - 1                   w, of a rank's program too   in the rest of its block
    rank r { for k in 0 .. w {} }   r, k                         in their blocks; r in claims too
    let f(k) = k + 1                k                            in its own value
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipesched.language import ast
from pipesched.support.source import Span


@dataclass(frozen=True)
class Definition:
    """A name's definition. kind: such as ``value``; node: the statement that defines it; parts: where it is visible."""

    name: ast.Name
    kind: str
    node: ast.Node
    parts: tuple[Span, ...]

    def known_at(self, offset: int) -> bool:
        return any(part.start <= offset <= part.end for part in self.parts)


def definitions(file: ast.File) -> list[Definition]:
    """Return all definitions, in the order of the text."""
    claims = tuple(item.span for item in file.items if isinstance(item, ast.Claim))
    found = [Definition(x.name, "parameter", x, (file.span,)) for x in file.parameters]
    for item in file.items:
        found += _of_node(item, file.span, claims)
    return found


def _of_node(node: ast.Node, block: Span, claims: Sequence[Span]) -> Iterator[Definition]:
    """Yield the definitions of a node and of the nodes inside. block: the part in which a `let` here is visible."""
    match node:
        case ast.Let(name=name, parameters=parameters):
            kind = "value" if parameters is None else "function"
            yield Definition(name, kind, node, (Span(block.source, node.span.start, block.end),))
            yield from (Definition(x, "argument", node, (node.span,)) for x in parameters or ())
        case ast.For(variable=variable):
            yield Definition(variable, "loop variable", node, (node.span,))
        case ast.Stages():
            yield from _of_line(node)
        case ast.Frozen(variable=ast.Name() as variable):
            yield Definition(variable, "stage", node, (node.span,))
        case ast.Rank(rank=ast.Name() as rank):
            yield Definition(rank, "rank", node, (node.span, *claims))
        case ast.Cost(of=names):
            yield from (
                Definition(x, kind, node, (node.span,)) for x, kind in zip(names, ("stage", "microbatch"), strict=False)
            )
    if isinstance(node, ast.Stages) and node.route is not None:
        yield Definition(node.route, "route", node, (block,))
    for child in ast.children(node):
        yield from _of_node(child, node.span if isinstance(node, _BLOCKS) else block, claims)


def _of_line(node: ast.Stages) -> Iterator[Definition]:
    named = (node.variable, "stage"), (node.microbatch, "microbatch"), (node.family and node.family[0], "member")
    yield from (Definition(name, kind, node, (node.span,)) for name, kind in named if name)


_BLOCKS = (ast.Rank, ast.For, ast.Repeat, ast.If)


def names(node: ast.Node) -> Iterator[ast.Name]:
    """Yield every name in the text, defined or used."""
    if isinstance(node, ast.Name):
        yield node
    for child in ast.children(node):
        yield from names(child)


def definition_at(file: ast.File, offset: int) -> Definition | None:
    """Return the definition of the name at a place, or None if there is no name or it is built in."""
    name = next((x for x in names(file) if x.span.start <= offset <= x.span.end), None)
    return None if name is None else _defining(definitions(file), name)


def uses(file: ast.File, definition: Definition) -> list[Span]:
    """Return the places of a name: its definition and its uses, in the order of the text."""
    known = definitions(file)
    same = (x.span for x in names(file) if x.id == definition.name.id and _defining(known, x) == definition)
    return sorted(same, key=lambda span: span.start)


def _defining(known: Sequence[Definition], name: ast.Name) -> Definition | None:
    return next((x for x in known if x.name.id == name.id and x.known_at(name.span.start)), None)
