"""Compiles the program of a rank to one Python function (see `translate`).

    def program(v_r, F, I, …, steps): …

The emission functions are arguments, so that one compiled function serves every rank. An operation is a call with its
site, its chunk and its microbatch, or None.
"""

from __future__ import annotations

import ast as python
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipesched.diagnostics import Code
from pipesched.language import ast
from pipesched.language.execution import Loop
from pipesched.language.scope import Binding, Scope
from pipesched.language.translate import FILENAME, STATEMENT, Expressions, Term, call, define, function, paid, placed
from pipesched.model.ops import LETTERS, Op, overlap
from pipesched.support.record import Record
from pipesched.support.source import Span

_CALLS = ("drain", "step", "pair", "pending", "held", "greedy", "steps")
EMITTERS = (*LETTERS, *_CALLS)
_NOW = Binding(arity=(1, 1), bare=True, now=True)
LOOPS_DEEP = 16  # Python's own compiler allows 20 nested blocks


class Site(Record):
    """An operation of the file: its letter, its place, and whether it names its microbatch."""

    op: str
    span: Span
    named: bool = False


@dataclass
class Statements:
    """Translates the body of a rank; it adds an entry to `sites` and `loops` for every operation and loop."""

    sites: list[Site] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    weights: dict[int, int] = field(default_factory=dict)

    def program(self, node: ast.Rank, variable: str, scope: Scope) -> python.Module:
        """Return a module that defines ``program``. variable: the name of the rank, "" if it has none."""
        known = scope.inner(pending=_NOW)
        rule = node.body[-1] if node.body and isinstance(node.body[-1], ast.Greedy) else None
        body, cost = self.block(node.body[:-1] if rule else node.body, known, 0)
        body += [self._line(line, known) for line in (rule.lines if rule else ())]
        module = python.parse(f"def program({', '.join([f'v_{variable}', *EMITTERS])}): pass", FILENAME)
        self.weights[id(node)] = cost
        made = module.body[0]
        assert isinstance(made, python.FunctionDef)
        pay = placed(node.span, python.Expr(call("pay", python.Constant(cost))))
        made.body = [pay, *body, *made.body]
        return module

    def block(self, statements: tuple[ast.Statement, ...], scope: Scope, depth: int) -> tuple[list[python.stmt], int]:
        """Return the translated statements, and the cost of running them once without their inner loops."""
        made: list[python.stmt] = []
        total = STATEMENT
        for statement in statements:
            code, cost = self._statement(statement, scope, depth)
            made += code
            total += cost
        return made, total

    def _statement(self, node: ast.Statement, scope: Scope, depth: int) -> tuple[list[python.stmt], int]:
        match node:
            case ast.Let():
                code = define(node, scope)
                binding = scope.names.get(node.name.id)
                return [code], binding.cost if binding else 1
            case ast.Operation():
                return self._operation(node, scope)
            case ast.Overlap():
                return self._overlap(node, scope)
            case ast.Drain():
                return self._emission(node, "drain", (node.chunk,), scope)
            case ast.Step():
                return self._emission(node, "step", (node.chunk,), scope)
            case ast.For() | ast.Repeat():
                return self._loop(node, scope, depth + 1)
            case ast.If():
                return self._if(node, scope, depth)
            case ast.Greedy():
                message = f"`{node.word}` must be the last statement of a program, outside of blocks"
                scope.report(Code.GREEDY, message, node.span, "a statement follows it, or it is inside a block")
                return [], 0

    def _site(self, op: str, node: ast.Node, *, named: bool = False) -> python.Constant:
        self.sites.append(Site(op, node.span, named))
        return python.Constant(len(self.sites) - 1)

    def _number(self, node: ast.Expression, scope: Scope) -> Term:
        return Expressions().term(node, scope, "number")

    def _operation(self, node: ast.Operation, scope: Scope) -> tuple[list[python.stmt], int]:
        return self._emission(node, node.op, (node.chunk, node.microbatch), scope)

    def _emission(
        self,
        node: ast.Operation | ast.Drain | ast.Step,
        name: str,
        parts: Sequence[ast.Expression | None],
        scope: Scope,
    ) -> tuple[list[python.stmt], int]:
        """Return the call of an emission function with a site and the given parts, and the cost of the call."""
        named = isinstance(node, ast.Operation) and node.microbatch is not None
        letter = node.op if isinstance(node, ast.Operation) else "W" if name == "drain" else "STEP"
        site = self._site(letter, node, named=named)
        nothing = Term(python.Constant(None), "unknown", 0)
        terms = [nothing if part is None else self._number(part, scope) for part in parts]
        code = placed(node.span, python.Expr(call(name, site, *(term.code for term in terms))))
        return [code], STATEMENT + sum(term.cost for term in terms)

    def _line(self, node: ast.Line, scope: Scope) -> python.stmt:
        """Return the call for a line of `greedy`, with its site, letter and chunk, and its condition as a function."""
        operation = node.operation
        chunk: python.expr = python.Constant(None)
        when: python.expr = python.Constant(None)
        if operation.microbatch is not None:
            message = "a line of `greedy` always takes the next microbatch"
            scope.report(Code.GREEDY, message, operation.microbatch.span, "names one", "remove it")
        if operation.chunk is not None:
            chunk = self._number(operation.chunk, scope).code
        if node.condition is not None:
            condition = Expressions(exact=True).term(node.condition, scope.inner(held=_NOW), "boolean")
            when = placed(node.condition.span, function([], paid(node.condition, condition)))
        site = self._site(operation.op, operation)
        return placed(node.span, python.Expr(call("greedy", site, python.Constant(operation.op), chunk, when)))

    def _overlap(self, node: ast.Overlap, scope: Scope) -> tuple[list[python.stmt], int]:
        if not overlap(Op[node.first.op], Op[node.second.op]):
            message = f"an overlap is an F and a B, I or W, or an I and a W, not {node.first.op} and {node.second.op}"
            help = "write `overlap(F[…], B[…])`, the forward first"
            scope.report(Code.OVERLAP_PARTS, message, node.span, "these two operations cannot share a slot", help)
        first, cost = self._operation(node.first, scope)
        second, more = self._operation(node.second, scope)
        return [*first, *second, placed(node.span, python.Expr(call("pair")))], cost + more

    def _loop(self, node: ast.For | ast.Repeat, scope: Scope, depth: int) -> tuple[list[python.stmt], int]:
        if depth > LOOPS_DEEP:
            scope.report(Code.NESTING, f"loops are nested more than {LOOPS_DEEP} deep", node.span, "one too many")
            return [], STATEMENT
        inside = scope.inner()
        ends = (node.low, node.high) if isinstance(node, ast.For) else (node.count,)
        terms = [self._number(end, scope) for end in ends]
        bounds = [term.code for term in terms]
        if isinstance(node, ast.For):
            inside.define(node.variable)
            name = f"v_{node.variable.id}"
        else:
            name = f"n_{node.span.start}"
            bounds.insert(0, python.Constant(0))
        body, weight = self.block(node.body, inside, depth)
        self.weights[id(node)] = weight
        head = node.span.source.span(node.span.start, ends[-1].span.end)
        self.loops.append(Loop(name, head.end, node.span.end))
        steps = placed(head, call("steps", *bounds, python.Constant(weight)))
        loop = python.For(python.Name(name, python.Store()), steps, body or [python.Pass()], [])
        return [placed(node.span, loop)], STATEMENT + sum(term.cost for term in terms)

    def _if(self, node: ast.If, scope: Scope, depth: int) -> tuple[list[python.stmt], int]:
        condition = Expressions().term(node.condition, scope, "boolean")
        yes, cost = self.block(node.yes, scope.inner(), depth)
        no, other = self.block(node.no, scope.inner(), depth)
        code = placed(node.span, python.If(condition.code, yes or [python.Pass()], no))
        return [code], condition.cost + max(cost, other)
