"""The placement as relations: the rank of a stage, the chunks of a rank, the stages that a stage reads, the
microbatches of a route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce

from pipesched.language import ast
from pipesched.prover.presburger import Context, Map, Set, Space, Value, isl
from pipesched.prover.scope import NotAffine, Scope, evaluate

CHUNKS = 64  # most chunks of a rank


@dataclass(frozen=True, eq=False)
class Placing:
    """The placement. home: for each route, ``[s] -> [r]``. stages: ``[s]``. chunks: for each chunk, its route and
    stage, ``[r] -> [route, s]``.

    reads: ``[s] -> [s']``, where s reads s'. ends: for each route, the first microbatch and the end, None for 0 .. m.
    frozen: ``[s]``, the frozen stages that have no trained stage before them.
    """

    home: tuple[Map, ...]
    chunks: tuple[Map, ...]
    stages: Set
    reads: Map
    ends: tuple[Ends | None, ...]
    frozen: Set


Names = Callable[[Space, Set | None], Scope]


@dataclass(frozen=True)
class Ends:
    """The microbatches of a route. bound: for a family of routes, its variable with the number of the member."""

    low: ast.Expression
    high: ast.Expression
    bound: Mapping[str, int]

    def of(self, scope: Scope) -> tuple[Value, Value]:
        """Return the first microbatch, and the end of the range."""
        inside = scope.inner(**self.bound)
        return evaluate(self.low, inside), evaluate(self.high, inside)


@dataclass(frozen=True)
class Line:
    """A stage line of one route, or of one member of a family. of: the route's name, and the index of the member."""

    node: ast.Stages
    of: tuple[str, int] = ("", 0)
    bound: Mapping[str, int] = field(default_factory=dict)


def _lines(file: ast.File, names: Names, space: Space) -> Iterator[Line]:
    """Yield the stage lines of every route.

    Raises:
        NotAffine: the number of members in a family is not fixed, or a line places single microbatches or has a `when`.
    """
    members: dict[str, tuple[int, int]] = {}
    for item in file.items:
        if not isinstance(item, ast.Stages):
            continue
        if item.microbatch or item.condition:
            raise NotAffine(item.span, f"the placement depends on {'the microbatch' if item.microbatch else '`when`'}")
        name = item.route.id if item.route else ""
        low, high = (evaluate(end, names(space, None)) for end in item.family[1:]) if item.family else (0, 1)
        if not (isinstance(low, int) and isinstance(high, int) and 0 < high - low <= CHUNKS):
            raise NotAffine(item.span, f"the number of routes in `{name}` varies, or is above {CHUNKS}")
        if members.setdefault(name, (low, high)) != (low, high):
            raise NotAffine(item.span, f"two lines place different members of `{name}`")
        for k in range(low, high):
            yield Line(item, (name, k - low), {item.family[0].id: k} if item.family else {})


def placing(file: ast.File, names: Names, space: Space, wide: Space) -> Placing:
    """Return the placement of a file. names: returns the scope of the file's top level in a space. space: the space of
    stages as expressions; wide: the space of stages as values.

    Raises:
        NotAffine: the placement is not affine.
    """
    lines = [*_lines(file, names, space)]
    if not lines:
        raise NotAffine(file.name.span, "no stage is placed")
    routes = sorted(dict.fromkeys(line.of for line in lines), key=lambda of: of[1])  # member by member
    home: list[Map] = [None] * len(routes)
    ends: list[Ends | None] = [None] * len(routes)
    reads: list[Map] = []
    alone: list[Set] = [space.universe.complement()] * len(routes)
    for line in lines:
        route, node = routes.index(line.of), line.node
        found, taken = _line(line, names(space, None))
        before = home[route]
        if before is not None and not found.domain().is_disjoint(
            alone[route] if node.high is None else before.domain()
        ):
            raise NotAffine(node.span, "at some sizes a stage is placed twice")
        if node.high is None:
            alone[route] = alone[route].union(found.domain())
            reads = [each.subtract_domain(found.domain()) for each in reads]
        home[route] = found if before is None else before.subtract_domain(found.domain()).union(found)
        reads += taken
        ends[route] = Ends(*node.microbatches, line.bound) if node.microbatches else ends[route]
    stages = home[0].domain()
    read = reduce(lambda one, other: one.union(other), reads)
    _require_stages(home, stages, file)
    _require_routes(home, ends, file, names(wide, None))
    _require_families(routes, home, file, space.context)
    if any(line.node.reads for line in lines):
        _require_reads(read, stages, file, several=len(routes) > 1)
    chunks, frozen = _chunks(home, file, space.context), _frozen(file, stages, names(space, None))
    return Placing(tuple(home), chunks, stages, read.intersect_range(stages), tuple(ends), frozen)


def _frozen(file: ast.File, stages: Set, scope: Scope) -> Set:
    """Return the stages in all `frozen` lines; raise NotAffine if one of them is after a trained stage, or if all
    stages are frozen.
    """
    found = stages.subtract(stages)
    s = scope.space.named("s")
    for item in file.items:
        if isinstance(item, ast.Frozen):
            low = scope.lifted(evaluate(item.low, scope))
            high = low.add(scope.space.number(1)) if item.high is None else scope.lifted(evaluate(item.high, scope))
            own = s.ge_set(low).intersect(s.lt_set(high)).intersect(scope.context)
            if not own.is_subset(stages):
                raise NotAffine(item.span, "at some sizes a frozen stage does not exist")
            if item.condition is not None:
                inside = scope.inner(own, **({item.variable.id: s} if item.variable is not None else {}))
                own = own.intersect(inside.holding(evaluate(item.condition, inside)))
            found = found.union(own)
            later = isl().Map.read_from_str(stages.get_ctx(), "{ [s] -> [t] : t >= s }")
            if not found.is_disjoint(stages.subtract(found).apply(later)):
                raise NotAffine(item.span, "`prove` does not support a frozen stage after a trained one")
            if not stages.params().is_subset(stages.subtract(found).params()):
                raise NotAffine(item.span, "at some sizes every stage is frozen")
    return found.coalesce()


def _require_stages(home: list[Map], stages: Set, file: ast.File) -> None:
    """Raise NotAffine unless stages are numbered from 0 without a gap, and every route has all of them."""
    fewer = isl().Map.read_from_str(stages.get_ctx(), "{ [s] -> [s - 1] : s != 0 }")
    if not fewer.intersect_domain(stages).range().is_subset(stages) or not all(
        x.domain().is_equal(stages) for x in home
    ):
        raise NotAffine(file.name.span, "at some sizes a stage is placed nowhere")


def _require_families(routes: list[tuple[str, int]], home: list[Map], file: ast.File, context: Context) -> None:
    """Require that each rank has the same number of stages from each member of a family; raise NotAffine otherwise."""
    ranks: dict[str, list[Set]] = {}
    for (name, member), each in zip(routes, home, strict=True):
        if any(other == name for other, k in routes if k):
            own = [chunk.domain() for chunk in _chunks([each], file, context)]
            first = ranks.setdefault(name, own)
            if len(own) != len(first) or not all(map(isl().Set.is_equal, own, first)):
                raise NotAffine(file.name.span, f"at some sizes a rank has fewer stages of route {member} of `{name}`")


def _require_routes(home: list[Map], ends: list[Ends | None], file: ast.File, scope: Scope) -> None:
    """Require that routes take consecutive microbatches; raise NotAffine otherwise."""
    if len(home) == 1 and ends[0] is None:
        return
    at = file.name.span
    last: Value = scope.space.number(0)
    whole = scope.context
    for each in ends:
        if each is None:
            raise NotAffine(at, "the microbatches of a route are not given")
        low, high = map(scope.lifted, each.of(scope))
        if not whole.is_subset(low.eq_set(last).intersect(low.le_set(high))):
            raise NotAffine(at, "at some sizes the microbatches of the routes are not consecutive")
        last = high
    if not whole.is_subset(last.eq_set(scope.lifted(evaluate(ast.Name(at, "m"), scope)))):
        raise NotAffine(at, "at some sizes a microbatch takes no route")


def _require_reads(read: Map, stages: Set, file: ast.File, *, several: bool) -> None:
    """Require that stages read only earlier stages, and that all stages but the last are read; raise NotAffine
    otherwise.
    """
    before = isl().Map.read_from_str(stages.get_ctx(), "{ [s] -> [t] : -1 <= t < s }")
    inner = stages.subtract(stages.lexmax())
    inside = read.intersect_domain(stages)
    if several or not inside.is_subset(before) or not inner.is_subset(inside.range()):
        raise NotAffine(
            file.name.span,
            "each stage must read only earlier stages, and another stage must read each stage but the last",
        )


def _line(of: Line, scope: Scope) -> tuple[Map, list[Map]]:
    """Return the ranks of the stages in one line, and the stages that they read."""
    space, line = scope.space, of.node
    scope.values |= of.bound
    variable = space.named("s")
    low = evaluate(line.low, scope)
    high = low if line.high is None else evaluate(line.high, scope)
    low, high = scope.lifted(low), scope.lifted(high)
    above = variable.le_set(high) if line.high is None else variable.lt_set(high)
    inside = scope.inner(variable.ge_set(low).intersect(above))
    if line.variable is not None:
        inside.values[line.variable.id] = variable
    rank = inside.lifted(evaluate(line.rank, inside)).intersect_domain(inside.context)
    taken = [inside.lifted(evaluate(each, inside)) for each in line.reads] or [variable.sub(space.number(1))]
    reads = [isl().Map.from_pw_aff(each.intersect_domain(inside.context)) for each in taken]
    return isl().Map.from_pw_aff(rank), reads


def _chunks(home: list[Map], file: ast.File, context: Context) -> tuple[Map, ...]:
    """Return the chunks of every rank: each rank's first stage, its second, and so on, by route, then by stage."""
    numbered = [each.reverse().insert_dims(isl().dim_type.out, 0, 1) for each in home]
    numbered = [each.fix_val(isl().dim_type.out, 0, isl().Val(route, context)) for route, each in enumerate(numbered)]
    left = numbered[0]
    for each in numbered[1:]:
        left = left.union(each)
    chunks: list[Map] = []
    while not left.is_empty():
        if len(chunks) >= CHUNKS:
            raise NotAffine(
                file.name.span, f"a rank has more than {CHUNKS} stages, or their number depends on the number of ranks"
            )
        first = left.lexmin()
        chunks.append(first.coalesce())
        left = left.subtract(first)
    return tuple(chunks)
