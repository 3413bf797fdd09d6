"""A file whose names and types are right, compiled: ready to be run at any size.

Everything that can be known without sizes is found here, all of it in one run.
"""

from __future__ import annotations

import ast as python
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType

from pipesched.diagnostics import Code, Label, PipeschedError, fail
from pipesched.language import ast
from pipesched.language.claims import CLAIM_NAMES, Claim, compile_claim, scope_of_claims
from pipesched.language.execution import Loop
from pipesched.language.parser import WORDS, parse
from pipesched.language.scope import BUILTINS, Kind, Scope
from pipesched.language.statements import Site, Statements
from pipesched.language.translate import Expressions, call, compiled, define, function, lambda_of, paid, placed
from pipesched.model.costs import KEYS
from pipesched.support.source import Source


@dataclass(frozen=True, slots=True)
class StageCode:
    """A line of the placement: ``stage v in low .. high on rank f(v)``; high is None for a single stage.

    reads: functions likewise, none where the line does not say what its stages read.
    """

    node: ast.Stages
    low: CodeType
    high: CodeType | None
    rank: CodeType
    microbatches: tuple[CodeType, CodeType] | None
    reads: tuple[CodeType, ...]


@dataclass(frozen=True, slots=True)
class RankCode:
    """A program: for every rank if `literal` is None, else for the one that it evaluates to."""

    node: ast.Rank
    literal: CodeType | None
    program: CodeType


@dataclass(frozen=True)
class Checked:
    """A compiled file; each list in the order of the text. sizes: how many entries a list has, by its name."""

    file: ast.File
    sites: list[Site]
    loops: list[Loop]
    defaults: dict[str, CodeType | None] = field(default_factory=dict)
    sizes: dict[str, CodeType] = field(default_factory=dict)
    steps: list[tuple[ast.Let | ast.Require, CodeType]] = field(default_factory=list)
    stages: list[StageCode] = field(default_factory=list)
    frozen: list[tuple[ast.Frozen, list[CodeType]]] = field(default_factory=list)
    ranks: list[RankCode] = field(default_factory=list)
    slices: list[tuple[ast.Slices, CodeType]] = field(default_factory=list)
    costs: list[tuple[ast.Cost, list[CodeType]]] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    @property
    def greedy(self) -> list[ast.Greedy]:
        """Where a program is a rule."""
        return [part for code in self.ranks for part in code.node.body if isinstance(part, ast.Greedy)]


@lru_cache(maxsize=256)
def check_text(source: Source, words: int = WORDS) -> Checked:
    """A text of at most so many words, parsed, checked and compiled: once, for all the sizes at which it is run.

    Raises:
        PipeschedError: PS1xx, all mistakes; PS2xx, everything that is wrong whatever the sizes.
    """
    return check_file(parse(source, words))


def check_file(file: ast.File) -> Checked:
    """Check names and types, and compile.

    Raises:
        PipeschedError: PS2xx, everything that is wrong whatever the sizes; PS103, an expression nests too deep.
    """
    try:
        return _Checker(file).run()
    except RecursionError:
        raise fail(
            Code.NESTING,
            "an expression nests too deep",
            Label(file.name.span, "in this schedule"),
            help="name parts of it with `let`",
        ) from None


@dataclass
class _Checker:
    file: ast.File
    scope: Scope = field(default_factory=lambda: Scope([dict(BUILTINS), {}], reserved=CLAIM_NAMES))
    statements: Statements = field(default_factory=Statements)

    def run(self) -> Checked:
        self.made = Checked(self.file, self.statements.sites, self.statements.loops)
        for parameter in self.file.parameters:
            default = parameter.default
            self.made.defaults[parameter.name.id] = None if default is None else self._code(default, "number")
            if parameter.size is not None:
                self.made.sizes[parameter.name.id] = self._code(parameter.size, "number")
            self.scope.define(parameter.name, "number" if parameter.size is None else "list")
        self._routes()
        for item in self.file.items:
            if not isinstance(item, ast.Claim):
                self._item(item)
        variables = tuple(dict.fromkeys(v for item in self.made.ranks if (v := _variable(item.node, self.scope))))
        inside = scope_of_claims(self.scope, variables)
        claims = [compile_claim(item, inside, variables) for item in self.file.items if isinstance(item, ast.Claim)]
        if self.scope.diagnostics:
            raise PipeschedError(sorted(self.scope.diagnostics, key=lambda x: x.where.start if x.where else 0))
        self.made.claims.extend(claims)
        return self.made

    def _routes(self) -> None:
        """Route names are the constants 0, 1, … wherever they are declared."""
        named = [item.route for item in self.file.items if isinstance(item, ast.Stages) and item.route is not None]
        for route in {route.id: route for route in reversed(named)}.values():
            self.scope.define(route)

    def _item(self, item: ast.Item) -> None:
        match item:
            case ast.Let():
                module = python.Module([define(item, self.scope, Expressions(), pays=True)], [])
                self.made.steps.append((item, compiled(module, self.scope)))
            case ast.Require():
                self.made.steps.append((item, self._code(item.condition, "boolean")))
            case ast.Stages():
                self.made.stages.append(self._stages(item))
            case ast.Frozen():
                self.made.frozen.append((item, self._frozen(item)))
            case ast.Slices():
                if self.made.slices:
                    first = Label(self.made.slices[0][0].span, "first here")
                    self.scope.report(Code.SLICES, "`slices` is given twice", item.span, "again here", None, first)
                self.made.slices.append((item, self._code(item.count, "number")))
            case ast.Rank():
                self.made.ranks.append(self._rank(item))
            case ast.Costs():
                self.made.costs.extend(self._cost(entry) for entry in item.entries)
            case ast.Claim():
                pass

    def _code(self, node: ast.Expression, want: Kind, scope: Scope | None = None, exact: bool = False) -> CodeType:
        term = Expressions(exact).term(node, scope or self.scope, want)
        return compiled(python.Expression(paid(node, term)), self.scope)

    def _stages(self, item: ast.Stages) -> StageCode:
        inside = self.scope.inner()
        if item.high is None and isinstance(item.low, ast.Name) and self.scope.find(item.low.id) is None:
            stage, ranks = item.low.id, item.rank.span.text
            help = f"for every stage write `stage {stage} in 0 .. p on rank {ranks}`"
            self.scope.report(Code.UNKNOWN_NAME, f"no name `{stage}` is known here", item.span, "used here", help)
            inside.define(item.low)
        low = self._code(item.low, "number", inside)
        high = None if item.high is None else self._code(item.high, "number")
        if item.variable is not None:
            inside.define(item.variable)
        name = "v_" if item.variable is None else f"v_{item.variable.id}"
        rank, *reads = (
            compiled(lambda_of([name], Expressions().term(node, inside, "number"), node), self.scope)
            for node in (item.rank, *item.reads)
        )
        ends = item.microbatches
        both = None if ends is None else (self._code(ends[0], "number"), self._code(ends[1], "number"))
        return StageCode(item, low, high, rank, both, tuple(reads))

    def _frozen(self, item: ast.Frozen) -> list[CodeType]:
        """The ends of a range, or one stage."""
        if item.variable is not None:
            self.scope.inner().define(item.variable)
        return [self._code(end, "number") for end in (item.low, item.high) if end is not None]

    def _rank(self, item: ast.Rank) -> RankCode:
        variable = _variable(item, self.scope)
        inside = self.scope.inner()
        literal = None
        if variable is None:
            literal = self._code(item.rank, "number")
        elif isinstance(item.rank, ast.Name):
            inside.define(item.rank)
        module = self.statements.program(item, variable, inside)
        return RankCode(item, literal, compiled(module, self.scope))

    def _cost(self, entry: ast.Cost) -> tuple[ast.Cost, list[CodeType]]:
        if entry.name not in KEYS:
            help = f"costs are {', '.join(KEYS)}"
            self.scope.report(Code.COSTS, f"no cost is called `{entry.name}`", entry.span, "unknown", help)
        if entry.of and entry.value is not None:
            return entry, [self._formula(entry, entry.value)]
        values = (entry.value,) if entry.value is not None else entry.values or ()
        return entry, [self._code(value, "number", exact=True) for value in values]

    def _formula(self, entry: ast.Cost, value: ast.Expression) -> CodeType:
        """``F[s, i] = e`` as what makes a row for each stage that it is given, and pays for so many entries at once.

        lambda stages, microbatches, count: pay(cost * count) or [[e for v_i in microbatches] for v_s in stages]
        """
        inside = self.scope.inner()
        for name in entry.of:
            inside.define(name)
        term = Expressions(True).term(value, inside, "number")
        variables = [*(f"v_{name.id}" for name in entry.of), "_"][:2]
        made = term.code
        for variable, over in zip(reversed(variables), ("microbatches", "stages"), strict=True):
            part = python.comprehension(python.Name(variable, python.Store()), python.Name(over, python.Load()), [], 0)
            made = placed(entry, python.ListComp(made, [part]))
        price = python.BinOp(python.Constant(term.cost), python.Mult(), python.Name("count", python.Load()))
        made = python.BoolOp(python.Or(), [call(entry, "pay", price), made])
        of_all = function(("stages", "microbatches", "count"), made, entry)
        return compiled(python.Expression(of_all), self.scope)


def _variable(item: ast.Rank, scope: Scope) -> str | None:
    """The rank variable of ``rank r { … }``; a name that is already known makes it one rank's own program."""
    if isinstance(item.rank, ast.Name) and scope.find(item.rank.id) is None:
        return item.rank.id
    return None
