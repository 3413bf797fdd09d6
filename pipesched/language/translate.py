"""Translates expressions and statements to Python bytecode with the positions of the .ps file.

The tree is translated node by node to Python's syntax tree, which is compiled. Every Python node has the *offset* of
its .ps node as its line number, so an exception in the running code identifies the place in the .ps file, and the
frames hold the loop bindings. Of the user's text, only integers and prefixed names reach Python.

    F[fwd(k)]             ->   F(7, v_fwd(v_k))              7 is the site: the operation's number in the file
    length[i]             ->   entry("length", v_length, v_i)
    for k in a .. b { }   ->   for v_k in steps(a, b, c): …  charges c per iteration, and refuses too many
    repeat n { }          ->   for n_120 in steps(0, n, c): …
    x * y                 ->   a call of the function named `*` there, which refuses results beyond 62 bits
    require e             ->   pay(c) or e                   charges c, unless an enclosing loop has done so
    pending               ->   pending()                     is evaluated anew at each use

The cost of an expression is the number of its parts, including the functions that it calls. A function that costs more
than `DEAR` is charged when it is called, so that costs stay small however deep the calls are.

Names and types are checked during translation; a file with an unknown name is never run.
"""

from __future__ import annotations

import ast as python
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from pipesched.diagnostics import Code
from pipesched.language import ast
from pipesched.language.scope import Kind, Scope
from pipesched.support.record import Record
from pipesched.support.source import Span

FILENAME = "<schedule>"
_INTS = "write whole numbers: `p // 2` for half of p, rounded down"
_TIMES = "a product needs a `*`: write `p * (r + 1)`"
_ONE = "give at least two values, as in `min(p, m)`"
CALL, STATEMENT, DEAR = 4, 4, 1000  # costs, in parts of an expression

OPERATORS: dict[str, tuple[Kind, Kind, Callable[[Any, Any], Any]]] = {
    "and": ("boolean", "boolean", operator.and_),
    "or": ("boolean", "boolean", operator.or_),
    "==": ("unknown", "boolean", operator.eq),
    "!=": ("unknown", "boolean", operator.ne),
    "<": ("number", "boolean", operator.lt),
    "<=": ("number", "boolean", operator.le),
    ">": ("number", "boolean", operator.gt),
    ">=": ("number", "boolean", operator.ge),
    "+": ("number", "number", operator.add),
    "-": ("number", "number", operator.sub),
    "*": ("number", "number", operator.mul),
    "//": ("number", "number", operator.floordiv),
    "%": ("number", "number", operator.mod),
    "/": ("number", "number", Fraction),
}
"""For each operator: the kind of its operands ("unknown" for any), the kind of its result, and the function."""
_UNARY: dict[str, tuple[Kind, python.unaryop]] = {"not": ("boolean", python.Not()), "-": ("number", python.USub())}
_LAZY = {"and": python.And(), "or": python.Or()}  # the right side is evaluated only if the left side does not decide

Made = TypeVar("Made", bound=python.AST)


def placed(span: Span, made: Made) -> Made:
    """Give a Python node, and new nodes below it, a position in the .ps file: offsets instead of lines."""
    place = {"lineno": span.start + 1, "end_lineno": span.end + 1, "col_offset": 0, "end_col_offset": 0}
    fresh: list[python.AST] = [made]
    while fresh:
        part = fresh.pop()
        if "lineno" in part._attributes:
            if "lineno" in vars(part):
                continue  # it and all nodes below it already have places
            vars(part).update(place)
        if not isinstance(part, python.Constant | python.Name):
            fresh += python.iter_child_nodes(part)
    return made


def keep(node: ast.Node, code: python.expr | python.Module, scope: Scope) -> None:
    """Compile the code of a part of the file, unless the file has errors and is therefore never run."""
    if not scope.diagnostics:
        tree = python.Expression(placed(node.span, code)) if isinstance(code, python.expr) else code
        scope.code[id(node)] = compile(tree, FILENAME, "exec" if tree is code else "eval")


class Term(Record):
    """A translated expression: its code, its kind, and its cost."""

    code: python.expr
    kind: Kind
    cost: int = 1


def call(function: str, *arguments: python.expr) -> python.Call:
    """Return ``function(arguments)``."""
    return python.Call(python.Name(function, python.Load()), list(arguments), [])


class Expressions(Record):
    """Translates expressions. `exact` allows ``/`` and decimals, as in claims and costs."""

    exact: bool = False

    def term(self, node: ast.Expression, scope: Scope, want: Kind = "unknown") -> Term:
        """Return a term of the wanted kind, or report a diagnostic to the scope."""
        made = self._term(node, scope)
        if "unknown" not in (want, made.kind) and want != made.kind:
            scope.report(Code.TYPE, f"expected a {want}, found a {made.kind}", node.span, f"this is a {made.kind}")
        placed(node.span, made.code)
        return made

    def _term(self, node: ast.Expression, scope: Scope) -> Term:
        match node:
            case ast.Boolean(value=value):
                return Term(python.Constant(value), "boolean")
            case ast.Number(value=int(value)):
                return Term(python.Constant(value), "number")
            case ast.Number():
                if not self.exact:
                    scope.report(Code.TYPE, "programs use only whole numbers", node.span, "not a whole number", _INTS)
                return Term(call("/", *map(python.Constant, node.value.as_integer_ratio())), "number")
            case ast.Name():
                return self._name(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Entry():
                return self._entry(node, scope)
            case ast.Unary():
                kind, sign = _UNARY[node.operator]
                operand = self.term(node.operand, scope, kind)
                return Term(python.UnaryOp(sign, operand.code), kind, 1 + operand.cost)
            case ast.Conditional():
                condition, yes = self.term(node.condition, scope, "boolean"), self.term(node.yes, scope)
                no = self.term(node.no, scope, yes.kind)
                made = python.IfExp(condition.code, yes.code, no.code)
                return Term(made, yes.kind, 1 + condition.cost + max(yes.cost, no.cost))
            case ast.Binary():
                return self._binary(node, scope)

    def _name(self, node: ast.Name, scope: Scope) -> Term:
        found, name = scope.known(node), node.id
        if found.arity is not None and not found.bare:
            scope.report(Code.CALL, f"`{name}` is a function", node.span, "used as a value", f"call it: `{name}(…)`")
        if found.now:
            return Term(call(name), found.kind, CALL)
        if found.kind == "list":
            help = f"write `{name}[i]`: its entries are numbers, counted from 0"
            scope.report(Code.TYPE, f"`{name}` is a list", node.span, "used as a value", help)
        made = python.Name(f"{'b' if found.bare else 'v'}_{name}", python.Load())
        return Term(made, "unknown" if found.kind == "list" else found.kind)

    def _call(self, node: ast.Call, scope: Scope) -> Term:
        arguments = [self.term(a, scope, "number") for a in node.arguments]
        found, name = scope.known(node.function), node.function.id
        if found.arity is None:
            scope.report(Code.CALL, f"`{name}` is a value", node.span, "called as a function", _TIMES)
        elif not found.arity[0] <= len(arguments) <= (found.arity[1] or len(arguments)):
            wanted = f"{found.arity[0]}" if found.arity[1] else f"at least {found.arity[0]}"
            message = f"`{name}` takes {wanted} argument{'s' * (wanted != '1')}, not {len(arguments)}"
            scope.report(Code.CALL, message, node.span, "called here", _ONE if found.arity == (2, None) else None)
        made = call(name if found.now else f"v_{name}", *(a.code for a in arguments))
        return Term(made, found.kind, CALL + sum(a.cost for a in arguments) + found.cost)

    def _entry(self, node: ast.Entry, scope: Scope) -> Term:
        index = self.term(node.index, scope, "number")
        found, name = scope.known(node.list), node.list.id
        if found.kind not in ("list", "unknown"):
            what = "a function" if found.arity is not None else "a value"
            help = "lists are declared in the header: `schedule f(p, m, length[m] = 1)`"
            scope.report(Code.TYPE, f"`{name}` is {what}, not a list", node.span, "used as a list", help)
        made = call("entry", python.Constant(name), python.Name(f"v_{name}", python.Load()), index.code)
        return Term(made, "number" if found.kind == "list" else "unknown", CALL + index.cost)

    def _binary(self, node: ast.Binary, scope: Scope) -> Term:
        """Return a term that applies an operator's function to two operands."""
        takes, makes, _ = OPERATORS[node.operator]
        left = self.term(node.left, scope, takes)
        right = self.term(node.right, scope, left.kind if takes == "unknown" else takes)
        if node.operator == "/" and not self.exact:
            message = "`/` is exact division, which only claims and costs allow"
            help = f"write `{node.left.span.text} // {node.right.span.text}`: `//` rounds down"
            scope.report(Code.TYPE, message, node.span, "this must be a whole number", help)
        lazy, parts = _LAZY.get(node.operator), (left.code, right.code)
        made = python.BoolOp(lazy, list(parts)) if lazy else call(node.operator, *parts)
        return Term(made, makes, 1 + left.cost + right.cost)


def paid(node: ast.Node, term: Term) -> python.expr:
    """Return the expression, preceded by its charge."""
    return placed(node.span, python.BoolOp(python.Or(), [call("pay", python.Constant(term.cost)), term.code]))


def define(node: ast.Let, scope: Scope, *, pays: bool = False) -> python.stmt:
    """Return ``let x = e`` or ``let f(k) = e`` as an assignment; the name is visible from here on.

    pays: whether a value is charged separately, as it is outside of ranks; a costly function always is.
    """
    parameters = node.parameters
    inside = scope.inner(defining=node.name.id)
    for parameter in parameters or ():
        inside.define(parameter)
    value = Expressions().term(node.value, inside)
    code, cost = value.code, value.cost
    if (parameters is None and pays) or (parameters is not None and cost > DEAR):
        code, cost = paid(node, value), 1
    if parameters is not None:
        code = function([x.id for x in parameters], code)
    scope.define(node.name, value.kind, None if parameters is None else (len(parameters),) * 2, cost)
    return placed(node.span, python.Assign([python.Name(f"v_{node.name.id}", python.Store())], code))


def function(names: Sequence[str], body: python.expr) -> python.Lambda:
    """Return ``lambda names: body`` for names of the file."""
    taken = [python.arg(f"v_{name}") for name in names]
    return python.Lambda(python.arguments([], taken, kwonlyargs=[], kw_defaults=[], defaults=[]), body)
