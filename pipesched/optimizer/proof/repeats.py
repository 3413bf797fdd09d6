"""Checks that m determines only how many times a part of each rank's program is repeated.

    rank r { A   repeat m - a { B }   Z }        or (m - a) // b times; no m in a, A, B, Z, placement and costs

Programs do not name microbatches and do not use `pending`, so a program expands to a word of letters: A B .. B Z. If K
is a multiple of every b, every further K microbatches add the same number of copies of B, once there is one copy. A
`drain W` always expands to the same number of letters, or to a number that grows by a constant. `claim` does not affect
the order; `require` can only demand a least m, or a multiple.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from pipesched.language import ast

_FUNCTIONS = {"min", "max", "abs"}


def unrepeated(file: ast.File, step: int, chunks: Sequence[int]) -> str:
    """Return the reason why m determines more than repetitions, or "". step: K; chunks: the count on each rank."""
    for item in (*file.parameters, *file.items):
        match item:
            case ast.Claim() | ast.Parameter(name=ast.Name(id="m")):
                pass
            case ast.Require(condition=condition):
                if not _unbounded(condition, step):
                    return f"line {item.span.line} does not allow every m"
            case ast.Rank(rank=rank, body=body):
                if _says(rank) or not _repeats(body, step):
                    return f"in line {item.span.line} m determines more than the number of repetitions"
                own = int(rank.value) if isinstance(rank, ast.Number) and rank.value in range(len(chunks)) else None
                if wrong := _unlike(body, (max(chunks) if own is None else chunks[own]) > 1):
                    return wrong
            case _:
                if _says(item) or isinstance(item, ast.Slices):
                    return f"in line {item.span.line} m determines more than the number of repetitions"
    return ""


def _nodes(node: object) -> Iterator[ast.Node]:
    """Yield all nodes of a syntax tree."""
    if isinstance(node, tuple):
        for one in node:
            yield from _nodes(one)
    elif isinstance(node, ast.Node):
        yield node
        for field in fields(node):
            yield from _nodes(getattr(node, field.name))


def _says(node: object, name: str = "m") -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in _nodes(node))


def _repeats(body: Sequence[ast.Statement], step: int) -> bool:
    """Return True if m occurs only in the count of one loop, or of one loop per branch of an `if`."""
    grows = [one for one in body if _says(one)]
    match grows:
        case []:
            return True
        case [ast.Repeat(count=count, body=inner)]:
            return not _says(inner) and _steady(count, step)
        case [ast.For(variable=variable, low=low, high=high, body=inner)]:
            return not (_says(low) or _says(inner) or _says(inner, variable.id)) and _steady(high, step)
        case [ast.If(condition=condition, yes=yes, no=no)]:
            return not _says(condition) and _repeats(yes, step) and _repeats(no, step)
    return False


def _unbounded(condition: ast.Expression, step: int) -> bool:
    """Return True if a condition that holds at m also holds at m + K, m + 2K and so on."""
    match condition:
        case ast.Binary(operator="and", left=left, right=right):
            return _unbounded(left, step) and _unbounded(right, step)
        case ast.Binary(operator=">" | ">=", left=left, right=right) if not _says(right):
            return _steady(left, 1)
        case ast.Binary(operator="==", left=ast.Binary(operator="%", left=left, right=ast.Number(value=int(by)))):
            return by > 0 and step % by == 0 and _steady(left, 1) and not _says(condition.right)
    return not _says(condition)


def _steady(count: ast.Expression, step: int) -> bool:
    """Return True if K more microbatches add a constant to a count: m + n, m - n, or (m - n) // b with K % b == 0."""
    match count:
        case ast.Binary(operator="//", left=left, right=ast.Number(value=int(by))):
            return by > 0 and step % by == 0 and _steady(left, 1)
        case ast.Binary(operator="+" | "-", left=left, right=right) if not _says(right):
            return _steady(left, step)
        case ast.Binary(operator="+", left=left, right=right) if not _says(left):
            return _steady(right, step)
        case ast.Name(id="m"):
            return True
    return False


def _unlike(body: Sequence[ast.Statement], several: bool) -> str:
    """Return the reason why copies can differ in their letters, or "". several: whether the rank has several chunks."""
    for one in _nodes(body):
        match one:
            case ast.Operation(op="W", chunk=None) | ast.Drain(chunk=None) if several:
                return f"in line {one.span.line} a W does not name its stage"
            case ast.Operation(microbatch=ast.Node()):
                return f"in line {one.span.line} an operation names its microbatch"
            case ast.Greedy() | ast.Overlap() | ast.Name(id="pending"):
                return f"in line {one.span.line} an operation depends on earlier ones"
            case ast.Call(function=function) if function.id not in _FUNCTIONS:
                return f"a program calls {function.id}, in line {one.span.line}"
    return ""
