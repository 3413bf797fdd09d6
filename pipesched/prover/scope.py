"""Expressions of a file as piecewise affine expressions of integers.

In a product, one of the factors must be a number. In `a // n` and `a % n`, n must be a number, or |a| < 16n must hold
wherever the expression occurs; the value is then split into cases. All other operators have their usual meaning.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from itertools import product

from pipesched.language import ast
from pipesched.prover.digits import Number, Uncarried
from pipesched.prover.presburger import PwAff, Set, Space, Value, case, isl, spend
from pipesched.support.source import Span

_NUMBER = (int, Fraction)
TURNS = 16  # most cases of a quotient by an expression
DEEP = 200  # deepest nesting of function calls


class NotAffine(Exception):
    """An expression or statement does not have a form that isl supports."""

    def __init__(self, span: Span, reason: str) -> None:
        super().__init__(reason)
        self.span, self.reason = span, reason


class Divides(NotAffine):
    """An expression divides by a value that varies."""


@dataclass(frozen=True)
class Figure:
    """A figure in a claim, such as ``peak(r)`` for one rank, or ``peak``, the largest over all ranks."""

    of_rank: Callable[[Value], Value]
    largest: Callable[[], Value]


@dataclass
class Scope:
    """The meaning of names at a point of a file. definitions: lets, evaluated on demand.

    context: the set where this point is reached. floors: the quotients by numbers that have been evaluated so far.
    """

    space: Space
    values: dict[str, Value]
    definitions: dict[str, ast.Let]
    context: Set
    floors: list[Value] = field(default_factory=list)
    depth: int = 0

    def inner(self, condition: Value = True, **values: Value) -> Scope:
        """Return a copy of the scope with an additional condition and additional names."""
        context = self.context if condition is True else self.context.intersect(condition)
        depth = self.depth + 1
        return Scope(self.space, {**self.values, **values}, dict(self.definitions), context, self.floors, depth)

    def block(self, condition: Value = True, **values: Value) -> Scope:
        """Return the scope of a nested block; the floors found in the block stay in that scope."""
        made = self.inner(condition, **values)
        made.floors, made.depth = list(self.floors), self.depth
        return made

    def simplify(self) -> None:
        """Remove from every value the cases that cannot arise at this point."""
        self.context = self.context.coalesce()
        for name, value in self.values.items():
            if not isinstance(value, (bool, Figure, *_NUMBER)) and hasattr(value, "n_piece") and value.n_piece() > 1:
                self.values[name] = value.intersect_domain(self.context).gist(self.context)

    def lifted(self, value: Value) -> Value:
        """Convert a number to an expression."""
        return self.space.number(value) if isinstance(value, _NUMBER) else value

    def holding(self, value: Value) -> Set:
        """Convert a truth value to a set."""
        if isinstance(value, bool):
            return self.space.universe if value else self.space.universe.complement()
        return value


def evaluate(node: ast.Expression, scope: Scope) -> Value:
    """Return the value of an expression.

    Raises:
        NotAffine: the value does not have a supported form.
    """
    if scope.depth > DEEP:
        raise NotAffine(node.span, "function calls are nested too deeply")
    match node:
        case ast.Number(value=value) if isinstance(value, _NUMBER):
            return value
        case ast.Boolean(value=value):
            return value
        case ast.Name():
            return _name(node, scope)
        case ast.Call():
            return _call(node, scope)
        case ast.Unary(operator="not"):
            value = evaluate(node.operand, scope)
            return not value if isinstance(value, bool) else value.complement()
        case ast.Unary():
            value = evaluate(node.operand, scope)
            return -value if isinstance(value, _NUMBER) else value.neg()
        case ast.Binary(operator="and" | "or"):
            return _logical(node, scope)
        case ast.Binary():
            left, right = evaluate(node.left, scope), evaluate(node.right, scope)
            try:
                return _binary(node, left, right, scope)
            except Uncarried:
                raise NotAffine(node.span, "the carries of this number have no bound") from None
        case ast.Conditional():
            return _conditional(node, scope)
        case ast.Entry():
            raise NotAffine(node.span, f"`{node.list.id}` is a list of values")
    raise NotAffine(node.span, "the value is a fraction")


def define(node: ast.Let, scope: Scope) -> None:
    """Define a name. A value with a varying divisor is evaluated immediately, since it may not exist.

    Raises:
        NotAffine: the value does not have a supported form.
    """
    scope.definitions[node.name.id] = node
    scope.values.pop(node.name.id, None)
    if node.parameters is None and _divides(node.value):
        evaluate(node.name, scope)


def _divides(node: ast.Node) -> bool:
    """Return True if an expression, or a part of it, divides by an expression that is not a number."""
    if isinstance(node, ast.Call):
        return True
    quotient = isinstance(node, ast.Binary) and node.operator in ("//", "%", "/")
    known = isinstance(node, ast.Binary) and isinstance(node.right, ast.Number) and node.right.value
    return (quotient and not known) or any(map(_divides, ast.children(node)))


def _name(node: ast.Name, scope: Scope) -> Value:
    if node.id in scope.values:
        value = scope.values[node.id]
        return value.largest() if isinstance(value, Figure) else value
    if node.id in ("pending", "held"):
        raise NotAffine(node.span, f"`{node.id}` depends on earlier operations")
    found = scope.definitions.get(node.id)
    if found is None or found.parameters is not None:
        raise NotAffine(node.span, f"`{node.id}` does not have a single value")
    scope.values[node.id] = value = evaluate(found.value, scope)
    return value


def _call(node: ast.Call, scope: Scope) -> Value:
    name = node.function.id
    given = [evaluate(each, scope) for each in node.arguments]
    if name in _BUILT_IN:
        if all(isinstance(x, _NUMBER) for x in given):
            return _BUILT_IN[name](*given)
        return _EXTREME[name](*map(scope.lifted, given))
    figure = scope.values.get(name)
    if isinstance(figure, Figure):
        return figure.of_rank(*given)
    found = scope.definitions.get(name)
    if found is None or found.parameters is None:
        raise NotAffine(node.span, f"`{name}` depends on earlier operations")
    bound = {parameter.id: value for parameter, value in zip(found.parameters, given, strict=True)}
    return evaluate(found.value, scope.inner(**bound))


_BUILT_IN: Mapping[str, Callable[..., int]] = {"min": min, "max": max, "abs": abs}
_EXTREME: Mapping[str, Callable[..., Value]] = {
    "min": lambda *values: reduce(lambda one, other: one.min(other), values),
    "max": lambda *values: reduce(lambda one, other: one.max(other), values),
    "abs": lambda value: value.max(value.neg()),
}


def _logical(node: ast.Binary, scope: Scope) -> Value:
    ends = node.operator == "or"
    left = evaluate(node.left, scope)
    if isinstance(left, bool):
        return left if left is ends else evaluate(node.right, scope)
    right = evaluate(node.right, scope.inner(left.complement() if ends else left))
    if isinstance(right, bool):
        return right if right is ends else left
    return left.union(right) if ends else left.intersect(right)


def _conditional(node: ast.Conditional, scope: Scope) -> Value:
    condition = evaluate(node.condition, scope)
    if isinstance(condition, bool):
        return evaluate(node.yes if condition else node.no, scope)
    yes = scope.lifted(evaluate(node.yes, scope.inner(condition)))
    return case(condition, yes, scope.lifted(evaluate(node.no, scope.inner(condition.complement()))))


_SETS = {"==": "eq_set", "!=": "ne_set", "<": "lt_set", "<=": "le_set", ">": "gt_set", ">=": "ge_set"}
_PLAIN: Mapping[str, Callable[..., Value]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "/": Fraction,
}


def _binary(node: ast.Binary, left: Value, right: Value, scope: Scope) -> Value:
    name = node.operator
    if name in ("//", "%", "/") and isinstance(right, _NUMBER) and right == 0:
        raise NotAffine(node.span, "this expression divides by zero")
    if name not in _PLAIN or isinstance(left, bool) or isinstance(right, bool):
        raise NotAffine(node.span, f"`{name}` cannot be applied to these values")
    if isinstance(left, _NUMBER) and isinstance(right, _NUMBER):
        return _PLAIN[name](left, right)
    if name == "*":
        return _product(node, left, right, scope)
    if name == "/":
        if not isinstance(right, _NUMBER):
            raise NotAffine(node.span, "this is a quotient of values that vary")
        return left.scale_down_val(scope.space.value(right))
    if name in ("//", "%"):
        return _divided(node, scope.lifted(left), right, scope)
    left, right = scope.lifted(left), scope.lifted(right)
    if name in _SETS:
        above = {">": ("lt_set", right, left)}.get(name, (_SETS[name], left, right))
        return getattr(above[1], above[0])(above[2])
    return left.add(right) if name == "+" else left.sub(right)


def _product(node: ast.Expression, left: Value, right: Value, scope: Scope) -> Value:
    for number, other in ((left, right), (right, left)):
        if isinstance(number, _NUMBER):
            return other.scale_val(scope.space.value(number))
        if (
            isinstance(number, Number)
            and isinstance(other, Number)
            and other.small
            and (turns := number.multiple_of_p()) is not None
        ):
            return number.space.times_p(other.last.scale_val(scope.space.value(turns)))
    if scope.space.width == 1 and (found := _by_pieces(left, right, scope)) is not None:
        return found
    raise NotAffine(node.span, "this is a product of two values that vary")


def _by_pieces(left: PwAff, right: PwAff, scope: Scope) -> PwAff | None:
    """Multiply two expressions, one of which is a number in every case; return None if in some case both vary."""
    total: PwAff | None = None
    for (where, one), (there, other) in product(left.get_pieces(), right.get_pieces()):
        spend(1)
        own = where.intersect(there).intersect(scope.context)
        if own.is_empty():
            continue
        number, varies = (one, other) if one.is_cst() else (other, one)
        if not number.is_cst():
            return None
        made = isl().PwAff.from_aff(varies).scale_val(number.get_constant_val()).intersect_domain(own)
        total = made if total is None else total.union_add(made)
    return total


def _divided(node: ast.Binary, left: Value, right: Value, scope: Scope) -> Value:
    if isinstance(left, Number) and (found := left.divided(scope.lifted(right))) is not None:
        quotient, rest, floors = found
        scope.floors.extend(floors)
        return quotient if node.operator == "//" else rest
    if isinstance(right, _NUMBER):
        quotient = left.scale_down_val(scope.space.value(right)).floor()
        scope.floors.append(quotient)
        return quotient if node.operator == "//" else left.sub(quotient.scale_val(scope.space.value(right)))
    if scope.space.width == 1 and (made := _by_values(node, left, right, scope)) is not None:
        return made
    return _by_cases(node, left, right, scope)


def _by_values(node: ast.Binary, left: PwAff, right: PwAff, scope: Scope) -> PwAff | None:
    """Return a quotient or remainder by a divisor that is a number case by case; None for other divisors and for 0."""
    found = [(own, one) for where, one in right.get_pieces() if not (own := where.intersect(scope.context)).is_empty()]
    if not all(one.is_cst() and not one.get_constant_val().is_zero() for _, one in found):
        return None
    total: PwAff | None = None
    for where, one in found:
        spend(1)
        number = one.get_constant_val()
        quotient = left.scale_down_val(number).floor()
        scope.floors.append(quotient)
        own = quotient if node.operator == "//" else left.sub(quotient.scale_val(number))
        own = own.intersect_domain(where)
        total = own if total is None else total.union_add(own)
    return total


def _by_cases(node: ast.Binary, left: Value, right: Value, scope: Scope) -> Value:
    """Return a quotient or remainder by an expression n, with one case per value of the quotient, if there are few
    values.
    """
    space, context = scope.space, scope.context
    zero = space.number(0)
    if not context.is_subset(right.ge_set(space.number(1))):
        raise Divides(node.span, "it divides by a value that varies")
    for turns in (1, 2, 4, 8, TURNS):
        most = right.scale_val(space.value(turns))
        if context.is_subset(left.lt_set(most).intersect(left.ge_set(most.neg()))):
            break
    else:
        raise Divides(node.span, "it divides by a value that varies")
    unit = space.number(1) if node.operator == "//" else right.neg()
    total = zero if node.operator == "//" else left
    for k in range(-turns + 1, turns):
        multiple = right.scale_val(space.value(k))
        if k > 0:
            total = total.add(case(left.ge_set(multiple), unit, zero))
        else:
            total = total.sub(case(left.lt_set(multiple), unit, zero))
    return total
