"""The program of a rank becomes one Python function (see `translate`).

    def program(v_r, F, F_at, …, steps): …

The emission functions are arguments, so that one compiled function serves every rank. An operation is a call with
its site, and its chunk where it names one; `F_at` is the form that names the microbatch.
"""

from __future__ import annotations

import ast as python
from dataclasses import dataclass, field

from pipesched.diagnostics import Code, Label
from pipesched.language import ast
from pipesched.language.execution import Loop
from pipesched.language.scope import Binding, Scope
from pipesched.language.translate import FILENAME, STATEMENT, Expressions, call, define, lambda_of, place_of, placed
from pipesched.model.ops import LETTERS, Op, overlap
from pipesched.source import Span

_CALLS = ("drain", "pair", "pending", "held", "greedy", "steps")
EMITTERS = (*(f"{op}{form}" for op in LETTERS for form in ("", "_at")), *_CALLS)
_NOW = Binding(arity=(1, 1), bare=True, now=True)
LOOPS_DEEP = 16  # Python's own compiler allows 20 nested blocks


@dataclass(frozen=True, slots=True)
class Site:
    """One operation of the file: its letter, its place, and whether it names its microbatch."""

    op: str
    span: Span
    named: bool = False


@dataclass
class Statements:
    """Translates the body of a rank; `sites` and `loops` grow with every operation and loop of the file."""

    sites: list[Site] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    expressions: Expressions = field(default_factory=Expressions)

    def program(self, node: ast.Rank, variable: str | None, scope: Scope) -> python.Module:
        """A module that defines ``program``."""
        known = Scope([{"pending": _NOW}, *scope.blocks, {}], scope.diagnostics)
        rule = node.body[-1] if node.body and isinstance(node.body[-1], ast.Greedy) else None
        body, cost = self.block(node.body[:-1] if rule else node.body, known, 0)
        for line in rule.lines if rule else ():
            body.append(self._line(line, known))
        arguments = ", ".join([f"v_{variable}" if variable else "v_", *EMITTERS])
        module = python.parse(f"def program({arguments}): pass", FILENAME)
        function = module.body[0]
        assert isinstance(function, python.FunctionDef)
        pay = placed(node, python.Expr(call(node, "pay", python.Constant(cost))))
        function.body = [pay, *body, *function.body]
        return module

    def block(self, statements: tuple[ast.Statement, ...], scope: Scope, depth: int) -> tuple[list[python.stmt], int]:
        """The statements, and what one pass over them costs, inner loops not counted."""
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
                code = define(node, scope, self.expressions)
                binding = scope.find(node.name.id)
                return [code], binding.cost if binding else 1
            case ast.Operation():
                return self._operation(node, scope)
            case ast.Overlap():
                return self._overlap(node, scope)
            case ast.Drain():
                return self._drain(node, scope)
            case ast.For() | ast.Repeat():
                return self._loop(node, scope, depth + 1)
            case ast.If():
                return self._if(node, scope, depth)
            case ast.Greedy():
                message = "`greedy` is the last statement of a program, and in no block"
                scope.report(Code.GREEDY, message, Label(node.span, "something else follows, or is around"))
                return [], 0

    def _site(self, op: str, node: ast.Node, *, named: bool = False) -> python.Constant:
        self.sites.append(Site(op, node.span, named))
        return python.Constant(len(self.sites) - 1, None, **place_of(node))

    def _operation(self, node: ast.Operation, scope: Scope) -> tuple[list[python.stmt], int]:
        site = self._site(node.op, node, named=node.microbatch is not None)
        parts = [part for part in (node.microbatch, node.chunk) if part is not None]
        terms = [self.expressions.term(part, scope, "number") for part in parts]
        form = "" if node.microbatch is None else "_at"
        code = python.Expr(call(node, node.op + form, site, *(term.code for term in terms)), **place_of(node))
        return [code], STATEMENT + sum(term.cost for term in terms)

    def _line(self, node: ast.Line, scope: Scope) -> python.stmt:
        """A line of `greedy`, as its site, its letter, its chunk, and its condition as a function."""
        operation = node.operation
        if operation.microbatch is not None:
            message = "a line of `greedy` is the next microbatch, whichever that is"
            scope.report(Code.GREEDY, message, Label(operation.microbatch.span, "names one"), help="take it away")
        chunk: python.expr = placed(node, python.Constant(None))
        if operation.chunk is not None:
            chunk = self.expressions.term(operation.chunk, scope, "number").code
        when: python.expr = placed(node, python.Constant(None))
        if node.condition is not None:
            inside = Scope([{"held": _NOW}, *scope.blocks, {}], scope.diagnostics)
            when = lambda_of([], Expressions(exact=True).term(node.condition, inside, "boolean"), node.condition).body
        letter = placed(node, python.Constant(operation.op))
        made = call(node, "greedy", self._site(operation.op, operation), letter, chunk, when)
        return python.Expr(made, **place_of(node))

    def _overlap(self, node: ast.Overlap, scope: Scope) -> tuple[list[python.stmt], int]:
        if not overlap(Op[node.first.op], Op[node.second.op]):
            scope.report(
                Code.OVERLAP_PARTS,
                f"an overlap is an F and a B or I, not {node.first.op} and {node.second.op}",
                Label(node.span, "these two cannot share a slot"),
                help="write `overlap(F[…], B[…])`, the forward first",
            )
        first, cost = self._operation(node.first, scope)
        second, more = self._operation(node.second, scope)
        pair = placed(node, python.Expr(call(node, "pair")))
        return [*first, *second, pair], cost + more

    def _drain(self, node: ast.Drain, scope: Scope) -> tuple[list[python.stmt], int]:
        site = self._site("W", node)
        chunk = [] if node.chunk is None else [self.expressions.term(node.chunk, scope, "number")]
        code = call(node, "drain", site, *(term.code for term in chunk))
        return [placed(node, python.Expr(code))], STATEMENT + sum(term.cost for term in chunk)

    def _loop(self, node: ast.For | ast.Repeat, scope: Scope, depth: int) -> tuple[list[python.stmt], int]:
        if depth > LOOPS_DEEP:
            scope.report(Code.NESTING, f"loops nest deeper than {LOOPS_DEEP}", Label(node.span, "one too many"))
            return [], STATEMENT
        inside = scope.inner()
        if isinstance(node, ast.For):
            low = self.expressions.term(node.low, scope, "number")
            high = self.expressions.term(node.high, scope, "number")
            inside.define(node.variable, Binding(span=node.variable.span))
            name, bounds, cost = f"v_{node.variable.id}", [low.code, high.code], low.cost + high.cost
        else:
            count = self.expressions.term(node.count, scope, "number")
            zero = placed(node, python.Constant(0))
            name, bounds, cost = f"n_{node.span.start}", [zero, count.code], count.cost
        body, weight = self.block(node.body, inside, depth)
        self.loops.append(Loop(name, _head_end(node), node.span.end))
        weighted = placed(node, python.Constant(weight))
        head = node.span.source.span(node.span.start, _head_end(node))
        steps = call(ast.Boolean(head, True), "steps", *bounds, weighted)
        target = python.Name(name, python.Store())
        loop = python.For(target, steps, body or [python.Pass()], [])
        return [placed(node, loop)], STATEMENT + cost

    def _if(self, node: ast.If, scope: Scope, depth: int) -> tuple[list[python.stmt], int]:
        condition = self.expressions.term(node.condition, scope, "boolean")
        yes, cost = self.block(node.yes, scope.inner(), depth)
        no, other = self.block(node.no, scope.inner(), depth)
        code = placed(node, python.If(condition.code, yes or [placed(node, python.Pass())], no))
        return [code], condition.cost + max(cost, other)


def _head_end(node: ast.For | ast.Repeat) -> int:
    return (node.high if isinstance(node, ast.For) else node.count).span.end
