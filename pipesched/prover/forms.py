"""Conditions and claims about costs: the cone of costs that a condition selects, and the parts on which a claim is
linear.

The condition `tC == 0 and (m >= p or tB <= tF)` has two parts: sizes with m >= p and costs with tC == 0; and any size
and costs with tC == 0 and tB <= tF. The expression `max(tF, tF + tI - 2 * tW)` is linear where tI >= 2 tW, and where
tI <= 2 tW. In `tB <= 2 and makespan <= 3 * m`, numbers count as multiples of an additional cost, the unit, which is 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

from pipesched.language import ast
from pipesched.language.claims import COSTS
from pipesched.prover.cones import Cone, Form
from pipesched.prover.scope import NotAffine, Scope, evaluate

PARTS, BENDS = 16, 64  # limits: parts of a condition; forms at whose sign a claim changes its slope
UNIT = "1"  # as a cost
FIGURES = ("makespan", "span", "work", "idle", "span_idle", "peak", "host", "bubble", "span_bubble")


def costs_in(node: ast.Node) -> frozenset[str]:
    """Return the names of the costs in an expression."""
    return frozenset(COSTS[name] for name in ast.names_in(node) if name in COSTS)


@dataclass(frozen=True)
class Part:
    """The scope of a claim: the sizes where all conditions hold, and the costs where all forms are at least 0."""

    sizes: tuple[ast.Expression, ...] = ()
    forms: tuple[tuple[tuple[str, Fraction], ...], ...] = ()

    def also(self, other: Part) -> Part:
        """Return the intersection of two parts."""
        return Part((*self.sizes, *other.sizes), (*self.forms, *other.forms))

    @property
    def named(self) -> list[Form]:
        """The forms, each as a mapping from the names of costs to their weights."""
        return [dict(form) for form in self.forms]


def parts(condition: ast.Expression | None, scope: Scope) -> list[Part]:
    """Return a condition as a union of parts. scope: the scope in which sizes are evaluated.

    Raises:
        NotAffine: the condition does not have this form.
    """
    if condition is None:
        return [Part()]
    if not costs_in(condition):
        return [Part((condition,))]
    match condition:
        case ast.Binary(operator="and", left=left, right=right):
            both = [a.also(b) for a, b in product(parts(left, scope), parts(right, scope))]
        case ast.Binary(operator="or", left=left, right=right):
            both = [*parts(left, scope), *parts(right, scope)]
        case ast.Binary(operator="<" | "<=" | ">" | ">=" | "==", left=left, right=right):
            less, more = (left, right) if condition.operator in ("<", "<=") else (right, left)
            bounds = [*_below(less, more, scope)] if condition.operator != "==" else [(left, right)]
            made = [[*_compared(condition.operator == "==", a, b, scope)] for a, b in bounds]
            both = [_all(chosen) for chosen in product(*made)]
        case _:
            raise NotAffine(condition.span, "this condition on costs is not of a supported form")
    if len(both) > PARTS:
        raise NotAffine(condition.span, "this condition on costs has too many cases")
    return both


def positive(condition: ast.Expression | None) -> bool:
    """Return True if a condition that `parts` supports excludes, by a strict comparison, costs that are all 0."""
    match condition:
        case ast.Binary(operator="and", left=left, right=right):
            return positive(left) or positive(right)
        case ast.Binary(operator="or", left=left, right=right):
            return positive(left) and positive(right)
        case ast.Binary(operator="<" | ">"):
            return bool(costs_in(condition))
    return False


def _below(less: ast.Expression, more: ast.Expression, scope: Scope) -> Iterator[tuple[ast.Expression, ast.Expression]]:
    """Split ``max(a, b) <= min(c, d)`` into (a, c), (a, d), (b, c) and (b, d), and ``n x <= n y`` into (x, y)."""
    match less, more:
        case ast.Call(function=ast.Name(id="max"), arguments=given), _:
            yield from (pair for each in given for pair in _below(each, more, scope))
        case _, ast.Call(function=ast.Name(id="min"), arguments=given):
            yield from (pair for each in given for pair in _below(less, each, scope))
        case ast.Binary(operator="*", left=a, right=x), ast.Binary(operator="*", left=b, right=y) if _same(a, b, scope):
            yield from _below(x, y, scope)
        case _:
            yield less, more


def _same(a: ast.Expression, b: ast.Expression, scope: Scope) -> bool:
    """Return True if two weights depend on the sizes, and are equal and positive at every size."""
    if costs_in(a) or costs_in(b):
        return False
    one, other = evaluate(a, scope), evaluate(b, scope)
    if any(isinstance(x, (int, Fraction, bool)) for x in (one, other)):
        return False
    return bool(scope.context.is_subset(one.eq_set(other).intersect(one.gt_set(scope.space.number(0)))))


def _all(chosen: Sequence[Part]) -> Part:
    made = Part()
    for part in chosen:
        made = made.also(part)
    return made


def _compared(equal: bool, less: ast.Expression, more: ast.Expression, scope: Scope) -> Iterator[Part]:
    for (first, a), (second, b) in product(pieces(less, scope), pieces(more, scope)):
        found = [minus(b, a), minus(a, b)] if equal else [minus(b, a)]
        yield Part((), tuple(tuple(sorted(form.items())) for form in (*first, *second, *found)))


def minus(a: Form, b: Form) -> Form:
    """Return the difference of two forms."""
    return {name: a.get(name, Fraction(0)) - b.get(name, Fraction(0)) for name in {**a, **b}}


def _added(a: Form, b: Form, sign: int) -> Form:
    """Return the sum of two forms, the second multiplied by a sign."""
    return {name: a.get(name, Fraction(0)) + sign * b.get(name, Fraction(0)) for name in {**a, **b}}


def _scaled(found: list[tuple[list[Form], Form]], number: Fraction) -> list[tuple[list[Form], Form]]:
    """Return the pieces with each form multiplied by a number."""
    return [(where, {name: number * x for name, x in form.items()}) for where, form in found]


def _constant(node: ast.Expression, scope: Scope) -> Form:
    """Return an expression without costs as a form; raise NotAffine if its value is not a number."""
    value = evaluate(node, scope)
    if isinstance(value, (int, Fraction)) and not isinstance(value, bool):
        return {UNIT: Fraction(value)} if value else {}
    raise NotAffine(node.span, "this expression is not a sum of costs")


def pieces(node: ast.Expression, scope: Scope) -> list[tuple[list[Form], Form]]:
    """Return an expression of costs as pieces: each has a linear form, and the forms that are at least 0 where it
    applies.

    Raises:
        NotAffine: the weight of a cost depends on the sizes, or the expression is not a sum of costs.
    """
    if not costs_in(node):
        return [([], _constant(node, scope))]
    match node:
        case ast.Name(id=name):
            return [([], {COSTS[name]: Fraction(1)})]
        case ast.Unary(operator="-", operand=operand):
            return [(where, minus({}, form)) for where, form in pieces(operand, scope)]
        case ast.Binary(operator="+" | "-", left=left, right=right):
            sign = 1 if node.operator == "+" else -1
            return [
                ([*w, *x], _added(a, b, sign)) for (w, a), (x, b) in product(pieces(left, scope), pieces(right, scope))
            ]
        case ast.Binary(operator="*", left=left, right=right):
            weight, of = (right, left) if costs_in(left) else (left, right)
            return _scaled(pieces(of, scope), _number(weight, scope))
        case ast.Binary(operator="/", left=left, right=right):
            return _scaled(pieces(left, scope), 1 / _number(right, scope))
        case ast.Call(function=ast.Name(id="min" | "max" | "abs" as name)):
            return [*_extremes(name, [pieces(x, scope) for x in node.arguments])]
    raise NotAffine(node.span, "this expression is not a sum of costs")


def _extremes(name: str, given: Sequence[list[tuple[list[Form], Form]]]) -> Iterator[tuple[list[Form], Form]]:
    if name == "abs":
        given = [given[0], [(where, minus({}, form)) for where, form in given[0]]]
    for chosen in product(*given):
        where = [form for conditions, _ in chosen for form in conditions]
        for k, (_, form) in enumerate(chosen):
            others = [other for at, (_, other) in enumerate(chosen) if at != k]
            above = [minus(other, form) if name == "min" else minus(form, other) for other in others]
            yield [*where, *above], form


def _number(node: ast.Expression, scope: Scope) -> Fraction:
    value = evaluate(node, scope)
    if not isinstance(value, (int, Fraction)):
        raise NotAffine(node.span, "the weight of a cost depends on the sizes")
    return Fraction(value)


def linear(node: ast.Expression, cone: Cone, scope: Scope) -> list[Cone]:
    """Return the parts of the cone on which an expression is linear.

    Raises:
        NotAffine: the position of a bend depends on the sizes.
    """
    cones, forms = [cone], [*bends(node, scope)]
    if len(forms) > BENDS:
        raise NotAffine(node.span, "this expression bends at too many costs")
    for form in forms:
        cones = [part for each in cones for part in (each.cut(form) if each.sign(form) is None else [each])]
        if len(cones) > PARTS:
            raise NotAffine(node.span, "this expression bends at too many costs")
    return cones


def bends(node: ast.Node, scope: Scope) -> Iterator[Form]:
    """Yield the forms whose sign changes are the bends of an expression."""
    if isinstance(node, ast.Call) and node.function.id in ("min", "max", "abs") and costs_in(node):
        given = [x for each in node.arguments for x in pieces(each, scope)]
        yield from (form for where, _ in given for form in where)
        forms = [form for _, form in given]
        yield from forms if node.function.id == "abs" else (minus(a, b) for a, b in combinations(forms, 2))
        return
    for child in ast.children(node):
        yield from bends(child, scope)


def degree(node: ast.Expression, facts: Mapping[str, int]) -> int | None:
    """Return the degree of an expression in the costs: 1 for a sum of costs, 0 without costs, None for the value 0.

    Raises:
        NotAffine: the degree is neither 0 nor 1.
    """
    match node:
        case ast.Number(value=0):
            return None
        case ast.Name(id=name):
            return 1 if name in COSTS else facts.get(name, 0)
        case ast.Unary(operator="-", operand=operand):
            return degree(operand, facts)
        case ast.Call(function=ast.Name(id=name)) if name in facts and all(_of_sizes(x, facts) for x in node.arguments):
            return facts[name]
        case ast.Binary(operator="*", left=left, right=right):
            a, b = degree(left, facts), degree(right, facts)
            return None if a is None or b is None else a + b
        case ast.Binary(operator="/", left=left, right=right) if degree(right, facts) == 0:
            return degree(left, facts)
    if terms := _terms(node, facts):
        return _alike(node, terms, facts)
    if _of_sizes(node, facts):
        return 0
    raise NotAffine(node.span, "this expression is not linear in the costs")


def as_sum(node: ast.Expression, facts: Mapping[str, int]) -> ast.Binary | None:
    """Return a sum or difference, with a factor or divisor of the whole distributed to both parts; None for a term."""
    match node:
        case ast.Binary(operator="+" | "-"):
            return node
        case ast.Binary(operator="*" | "/", left=ast.Binary(operator="+" | "-") as inner, right=of) if _of_sizes(
            of, facts
        ):
            left, right = (ast.Binary(node.span, node.operator, x, of) for x in (inner.left, inner.right))
        case ast.Binary(operator="*", left=of, right=ast.Binary(operator="+" | "-") as inner) if _of_sizes(of, facts):
            left, right = (ast.Binary(node.span, "*", of, x) for x in (inner.left, inner.right))
        case _:
            return None
    return None if _of_sizes(inner, facts) else ast.Binary(node.span, inner.operator, left, right)


def degrees(node: ast.Expression, facts: Mapping[str, int]) -> set[int]:
    """Return the degrees of the terms of a sum.

    Raises:
        NotAffine: a term has no degree.
    """
    if (whole := as_sum(node, facts)) is not None:
        return degrees(whole.left, facts) | degrees(whole.right, facts)
    found = degree(node, facts)
    return set() if found is None else {found}


def _terms(node: ast.Expression, facts: Mapping[str, int]) -> Sequence[ast.Expression]:
    """Return the parts of an expression that must all have the same degree; empty if there are none."""
    match node:
        case ast.Call(function=ast.Name(id="min" | "max" | "abs")) if not _speaks(node, facts):
            return node.arguments
        case ast.Binary(operator="+" | "-", left=left, right=right):
            return (left, right)
        case ast.Conditional(condition=condition, yes=yes, no=no) if _of_sizes(condition, facts):
            return (yes, no)
    return ()


def _of_sizes(node: ast.Expression, facts: Mapping[str, int]) -> bool:
    """Return True if an expression contains neither a cost nor a figure."""
    return not costs_in(node) and not _speaks(node, facts)


def _speaks(node: ast.Node, facts: Mapping[str, int]) -> bool:
    """Return True if an expression contains a figure."""
    return not ast.names_in(node).isdisjoint(facts)


def _alike(node: ast.Expression, of: Sequence[ast.Expression], facts: Mapping[str, int]) -> int | None:
    found = {degree(x, facts) for x in of} - {None}
    if len(found) > 1:
        raise NotAffine(node.span, "this expression is not linear in the costs")
    return next(iter(found), None)
