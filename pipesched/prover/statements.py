"""The program of a rank as statements, each with the loop points at which it runs and its place in the text.

    repeat w { F }            A[r, i, 0] : 0 <= i < w           place 0, i
    for i in 0 .. m {
      if w + i < m { F }      B[r, i, 0] : 0 <= i < m - w       place 1, i, 0
      I                       C[r, i, 0] : 0 <= i < m           place 1, i, 1
    }

An instance comes before another instance on its rank if its place is lexicographically smaller. Conditions do not split
a loop: they restrict the points of a statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pipesched.language import ast
from pipesched.prover.presburger import PwAff, Set, Space, Value
from pipesched.prover.scope import NotAffine, Scope, define, evaluate
from pipesched.support.source import Span

UNROLLED = 64  # most iterations of a loop that is unrolled because its variable is a factor of a product
MOST = 400  # most statements of a file
KNOWN, OWN_CLOCK = {*"FIWBR"}, {*"OL"}  # kinds: those with relations here, and the copies


@dataclass(frozen=True, eq=False)
class Statement:
    """An operation of the file, under the conditions around it.

    domain: the points [r, i0, i1, …] at which it runs, with 0 for loops that do not contain it. place: its position in
    the program: the number of each enclosing item, and None for each loop. floors: the quotients in its conditions.
    pair: the number of the overlap that contains it, or -1; second: True for the second part. drain: whether its
    innermost loop runs once for each pending W.
    """

    name: str
    letter: str
    span: Span
    domain: Set
    place: tuple[int | None, ...]
    chunk: Value
    microbatch: Value | None
    floors: tuple[PwAff, ...]
    pair: int = -1
    second: bool = False
    drain: bool = False

    @property
    def loops(self) -> int:
        """The number of loops around the statement."""
        return self.place.count(None)

    def position(self, point: tuple[int, ...]) -> tuple[int, ...]:
        """Return the place of an instance, with loop variables for None. point: its loop variables."""
        inner = iter(point)
        return tuple(next(inner) if x is None else x for x in self.place)


def depth(body: tuple[ast.Statement, ...]) -> int:
    """Return the largest number of nested loops."""
    found = [0]
    for node in body:
        match node:
            case ast.For() | ast.Repeat():
                found.append(1 + depth(node.body))
            case ast.If():
                found += [depth(node.yes), depth(node.no)]
            case ast.Drain():
                found.append(1)
    return max(found)


@dataclass
class Walker:
    """Collects the statements of a rank's program."""

    space: Space
    made: list[Statement] = field(default_factory=list)

    def block(self, body: tuple[ast.Statement, ...], scope: Scope, at: Place) -> None:
        """Collect the statements of a block, in order."""
        for node in body:
            match node:
                case ast.Let():
                    define(node, scope)
                case ast.Operation():
                    self._operation(node, scope, at)
                case ast.Overlap():
                    self._operation(node.first, scope, at)
                    self._operation(node.second, scope, at)
                    pair = len(self.made)
                    self.made[-2:] = (replace(x, pair=pair, second=x is self.made[-1]) for x in self.made[-2:])
                case ast.Drain() if self.space.width > 1:
                    raise NotAffine(node.span, "`drain` in base p")
                case ast.Drain():
                    chunk = None if node.chunk is None else evaluate(node.chunk, scope)
                    inside, loop, _ = self._entered(scope, at, 0, None)
                    self._add("W", node, inside, loop, (chunk, None), drain=True)
                    at.number += 1
                case ast.For():
                    self._loop(node, node.variable.id, (node.low, node.high), scope, at)
                case ast.Repeat():
                    self._loop(node, "", (ast.Number(node.span, 0), node.count), scope, at)
                case ast.If():
                    asked = scope.block()
                    for holds, chosen in self._sides(node, evaluate(node.condition, asked)):
                        self.block(chosen, asked.block(holds), at)
                case ast.Step():
                    raise NotAffine(node.span, "`prove` does not support STEP inside an order")
                case ast.Greedy():
                    raise NotAffine(node.span, f"`{node.word}` is a rule, and its order follows from costs")

    @staticmethod
    def _sides(node: ast.If, condition: Value) -> Iterator[tuple[Value, tuple[ast.Statement, ...]]]:
        if isinstance(condition, bool):
            yield True, node.yes if condition else node.no
        else:
            yield condition, node.yes
            if node.no:
                yield condition.complement(), node.no

    def _operation(self, node: ast.Operation, scope: Scope, at: Place) -> None:
        if node.op not in KNOWN:
            why = "is a copy, not supported by `prove`" if node.op in OWN_CLOCK else "is not supported by `prove`"
            raise NotAffine(node.span, f"{node.op} {why}")
        chunk, microbatch = (None if x is None else evaluate(x, scope) for x in (node.chunk, node.microbatch))
        self._add(node.op, node, scope, at, (chunk, microbatch))
        at.number += 1

    def _add(
        self,
        letter: str,
        node: ast.Node,
        scope: Scope,
        at: Place,
        parts: tuple[Value | None, Value | None],
        *,
        drain: bool = False,
    ) -> None:
        if len(self.made) >= MOST:
            raise NotAffine(node.span, f"more than {MOST} statements")
        domain, loops = scope.context, at.word.count(None)
        for unused in self.space.dims[1 + loops :]:
            domain = domain.intersect(self.space.raw(unused).zero_set())
        name = f"S{len(self.made)}"
        place = (*at.word, at.number) if not drain else at.word
        chunk, microbatch = parts
        floors = {str(each): each for each in scope.floors}
        self.made.append(
            Statement(
                name,
                letter,
                node.span,
                domain,
                place,
                chunk=chunk,
                microbatch=microbatch,
                floors=tuple(floors.values()),
                drain=drain,
            )
        )

    def _entered(
        self, scope: Scope, at: Place, low: Value, high: Value | None, **values: Value
    ) -> tuple[Scope, Place, Value]:
        """Return the scope and the place inside a loop, and the loop's variable."""
        own = self.space.dims[1 + at.word.count(None) :][: self.space.width]
        variable = self.space.named(own[-1])
        inside = variable.ge_set(scope.lifted(low))
        if high is not None:
            inside = inside.intersect(variable.lt_set(scope.lifted(high)))
        if self.space.width > 1:
            last = self.space.raw(own[-1])
            inside = inside.intersect(last.lt_set(self.space.raw("p"))).intersect(last.nonneg_set())
        within = scope.block(inside, **values)
        within.simplify()
        return within, Place((*at.word, at.number, *(None for _ in own))), variable

    def _loop(
        self,
        node: ast.For | ast.Repeat,
        variable: str,
        ends: tuple[ast.Expression, ast.Expression],
        scope: Scope,
        at: Place,
    ) -> None:
        low, high = (evaluate(end, scope) for end in ends)
        kept = len(self.made)
        try:
            inside, loop, index = self._entered(scope, at, low, high)
            if variable:
                inside.values[variable] = index
            self.block(node.body, inside, loop)
            at.number += 1
        except NotAffine:
            if not (isinstance(low, int) and isinstance(high, int) and high - low <= UNROLLED):
                raise
            del self.made[kept:]
            for k in range(low, high):
                self.block(node.body, scope.block(**({variable: k} if variable else {})), at)


@dataclass
class Place:
    """The position of the next statement: `word`, the position of its block, and its number in the block."""

    word: tuple[int | None, ...] = ()
    number: int = 0
