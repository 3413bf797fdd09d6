"""Checks names and types: the result is a compiled file that can be run at any size.

All mistakes that do not depend on sizes are found here, in one pass.
"""

from __future__ import annotations

import ast as python
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import CodeType
from typing import TypeVar

from pipesched.diagnostics import Code, Label, PipeschedError, fail
from pipesched.language import ast
from pipesched.language.claims import CLAIM_NAMES, Claim, compile_claim, scope_of_claims
from pipesched.language.execution import Loop
from pipesched.language.parser import WORDS, parse
from pipesched.language.scope import BUILTINS, Kind, Scope
from pipesched.language.statements import Site, Statements
from pipesched.language.translate import Expressions, define, function, keep, paid
from pipesched.model.costs import KEYS
from pipesched.support.record import Record
from pipesched.support.source import Source

AnyItem = TypeVar("AnyItem", bound=ast.Item)


class Checked(Record):
    """A compiled file. code: the compiled parts, by the id of their node; parts that depend on a stage are functions.

    sites, loops: the sites and loops of all programs, in the order of the text. weights: the cost of one iteration of
    each loop, and of each program without its loops, by the id of the node.
    """

    file: ast.File
    sites: list[Site]
    loops: list[Loop]
    code: dict[int, CodeType]
    weights: dict[int, int]
    claims: list[Claim]

    @property
    def parameters(self) -> dict[str, ast.Parameter]:
        return {parameter.name.id: parameter for parameter in self.file.parameters}

    @property
    def lists(self) -> set[str]:
        """The parameters that are lists."""
        return {name for name, declared in self.parameters.items() if declared.size is not None}

    def items(self, kind: type[AnyItem]) -> list[AnyItem]:
        """Return the items of a kind, in the order of the text."""
        return [item for item in self.file.items if isinstance(item, kind)]

    @cached_property
    def rule(self) -> str:
        """The word of the rule that decides the order: ``greedy``, ``backfill``, or "" without one."""
        return next((x.word for item in self.items(ast.Rank) for x in item.body if isinstance(x, ast.Greedy)), "")


@lru_cache(maxsize=256)
def check_text(source: Source, words: int = WORDS) -> Checked:
    """Parse, check and compile a source, once for all sizes. words: the largest allowed number of words.

    Raises:
        PipeschedError: PS1xx: all mistakes of syntax; PS2xx: all other mistakes that occur at every size.
    """
    return check_file(parse(source, words))


def check_file(file: ast.File) -> Checked:
    """Check names and types, and compile.

    Raises:
        PipeschedError: PS2xx: all mistakes that occur at every size; PS103: an expression is nested too deeply.
    """
    try:
        return _Checker(file).run()
    except RecursionError:
        here, help = Label(file.name.span, "in this schedule"), "name its parts with `let`"
        raise fail(Code.NESTING, "an expression is nested too deeply", here, help=help) from None


@dataclass
class _Checker:
    file: ast.File
    scope: Scope = field(default_factory=lambda: Scope(ChainMap({}, dict(BUILTINS)), reserved=CLAIM_NAMES))
    statements: Statements = field(default_factory=Statements)

    def run(self) -> Checked:
        for parameter in self.file.parameters:
            self._keep("number", parameter.default, parameter.size)
            self.scope.define(parameter.name, "number" if parameter.size is None else "list")
        named = [item.route for item in self.file.items if isinstance(item, ast.Stages) and item.route is not None]
        for route in {route.id: route for route in reversed(named)}.values():  # constants, whatever line declares them
            self.scope.define(route)
        for item in self.file.items:
            self._item(item)
        ranks = [self._variable(item) for item in self.file.items if isinstance(item, ast.Rank)]
        variables = tuple(dict.fromkeys(filter(None, ranks)))
        inside = scope_of_claims(self.scope, variables)
        claims = [compile_claim(item, inside, variables) for item in self.file.items if isinstance(item, ast.Claim)]
        if self.scope.diagnostics:
            raise PipeschedError(sorted(self.scope.diagnostics, key=lambda x: x.where.start if x.where else 0))
        statements = self.statements
        return Checked(self.file, statements.sites, statements.loops, self.scope.code, statements.weights, claims)

    def _keep(
        self,
        want: Kind,
        *nodes: ast.Expression | None,
        scope: Scope | None = None,
        of: Sequence[str] | None = None,
        exact: bool = False,
    ) -> None:
        """Compile expressions that are charged separately; with `of`, compile them as functions of these names."""
        for node in nodes:
            if node is not None:
                code = paid(node, Expressions(exact).term(node, scope or self.scope, want))
                keep(node, code if of is None else function(of, code), self.scope)

    def _item(self, item: ast.Item) -> None:
        match item:
            case ast.Let():
                keep(item, python.Module([define(item, self.scope, pays=True)], []), self.scope)
            case ast.Require():
                self._keep("boolean", item.condition)
            case ast.Stages():
                self._stages(item)
            case ast.Frozen():
                inside = self.scope.inner()
                if item.variable is not None:
                    inside.define(item.variable)
                self._keep("number", item.low, item.high)
                self._keep("boolean", item.condition, scope=inside, of=[item.variable.id if item.variable else ""])
            case ast.Slices():
                self._once(item, "slices", Code.SLICES)
                self._keep("number", item.count)
            case ast.Versions():
                self._once(item, "versions", Code.VERSIONS)
                self._keep("number", item.delay)
            case ast.Rank():
                self._rank(item)
            case ast.Costs():
                for entry in item.entries:
                    self._cost(entry)
            case ast.Parts():
                self._of(item.of, item.layers, *(part.time for part in item.each))
            case ast.Claim():
                pass

    def _once(self, item: ast.Item, word: str, code: Code) -> None:
        first = next(other for other in self.file.items if type(other) is type(item))
        if first is not item:
            before = Label(first.span, "first here")
            self.scope.report(code, f"`{word}` is given twice", item.span, "again here", None, before)

    def _stages(self, item: ast.Stages) -> None:
        inside, of = self.scope.inner(), None
        if item.family is not None:
            self._keep("number", *item.family[1:])
            inside.define(item.family[0])
            of = [item.family[0].id]
        if item.high is None and isinstance(item.low, ast.Name) and item.low.id not in inside.names:
            stage, ranks = item.low.id, item.rank.span.text
            help = f"for every stage write `stage {stage} in 0 .. p on rank {ranks}`"
            self.scope.report(Code.UNKNOWN_NAME, f"unknown name `{stage}`", item.span, "used here", help)
            inside.define(item.low)
        self._keep("number", item.low, item.high, *(item.microbatches or ()), scope=inside, of=of)
        for name in filter(None, (item.variable, item.microbatch)):
            inside.define(name)
        named = (item.variable, item.family and item.family[0], item.microbatch)
        of = [name.id if name else str(at) for at, name in enumerate(named)]
        self._keep("number", item.rank, *item.reads, scope=inside, of=of)
        self._keep("boolean", item.condition, scope=inside, of=of)

    def _rank(self, item: ast.Rank) -> None:
        variable, inside = self._variable(item), self.scope.inner()
        if variable and isinstance(item.rank, ast.Name):
            inside.define(item.rank)
        else:
            self._keep("number", item.rank)
        keep(item, self.statements.program(item, variable, inside), self.scope)

    def _cost(self, entry: ast.Cost) -> None:
        if entry.name not in KEYS:
            help = f"costs are {', '.join(KEYS)}"
            self.scope.report(Code.COSTS, f"no cost is called `{entry.name}`", entry.span, "unknown", help)
        self._of(entry.of, entry.value, *(entry.values or ()))

    def _of(self, names: Sequence[ast.Name], *nodes: ast.Expression | None) -> None:
        """Compile exact expressions in which these names are visible too."""
        inside = self.scope.inner()
        for name in names:
            inside.define(name)
        self._keep("number", *nodes, scope=inside, of=[name.id for name in names] or None, exact=True)

    def _variable(self, item: ast.Rank) -> str:
        """Return the rank variable of ``rank r { … }``; "" for a single rank's program, or if r is already known."""
        unknown = isinstance(item.rank, ast.Name) and item.rank.id not in self.scope.names
        return item.rank.id if unknown and isinstance(item.rank, ast.Name) else ""
