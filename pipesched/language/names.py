"""The names that an expression uses."""

from __future__ import annotations

from pipesched.language import ast


def names_in(node: ast.Expression) -> frozenset[str]:
    """Every value and function named in an expression."""
    match node:
        case ast.Name(id=name):
            return frozenset({name})
        case ast.Call(function=function, arguments=arguments):
            return frozenset({function.id}).union(*map(names_in, arguments))
        case ast.Unary(operand=operand):
            return names_in(operand)
        case ast.Binary(left=left, right=right):
            return names_in(left) | names_in(right)
        case ast.Conditional(condition=condition, yes=yes, no=no):
            return names_in(condition) | names_in(yes) | names_in(no)
        case ast.Number() | ast.Boolean():
            return frozenset()
