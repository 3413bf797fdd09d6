"""The placement as relations: the rank of a stage, the chunks of a rank, the stages that a stage reads, the
microbatches of a route.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import Any

from pipesched.language import ast
from pipesched.prover.presburger import Map, Set, Space, isl
from pipesched.prover.scope import NotAffine, Scope, Value, evaluate

CHUNKS = 64  # most chunks of a rank


@dataclass(frozen=True, eq=False)
class Placing:
    """The placement. home: for each route, ``[s] -> [r]``. stages: ``[s]``. chunks: for each chunk, its route and
    stage, ``[r] -> [route, s]``.

    reads: ``[s] -> [s']``, where s reads s'. ends: for each route, the first microbatch and the end, None for 0 .. m.
    """

    home: tuple[Map, ...]
    chunks: tuple[Map, ...]
    stages: Set
    reads: Map
    ends: tuple[tuple[ast.Expression, ast.Expression] | None, ...]


Names = Callable[[Space, Set | None], Scope]


def _route(line: ast.Stages) -> str:
    """Return the name of the route in a stage line; "" if the file has one route without a name."""
    return line.route.id if line.route else ""


def placing(file: ast.File, names: Names, space: Space, wide: Space) -> Placing:
    """Return the placement of a file. names: the scope of its top level in a space. space: the space of stages as
    expressions; wide: the space of stages as values.

    Raises:
        NotAffine: the placement is not affine.
    """
    lines = [(_route(item), item) for item in file.items if isinstance(item, ast.Stages)]
    for _, line in lines:
        _require_plain(line)
    routes = list(dict.fromkeys(name for name, _ in lines))
    home: list[Map] = [None] * len(routes)
    ends: list[tuple[ast.Expression, ast.Expression] | None] = [None] * len(routes)
    reads: list[Map] = []
    alone: list[Set] = [space.universe.complement()] * len(routes)
    for name, line in lines:
        route = routes.index(name)
        found, taken = _line(line, names(space, None))
        before = home[route]
        if before is not None and not found.domain().is_disjoint(
            alone[route] if line.high is None else before.domain()
        ):
            raise NotAffine(line.span, "a stage is placed twice at some sizes")
        if line.high is None:
            alone[route] = alone[route].union(found.domain())
            reads = [each.subtract_domain(found.domain()) for each in reads]
        home[route] = found if before is None else before.subtract_domain(found.domain()).union(found)
        reads += taken
        ends[route] = line.microbatches or ends[route]
    stages = home[0].domain()
    read = reduce(lambda one, other: one.union(other), reads)
    _require_stages(home, stages, file)
    _require_routes(home, ends, file, names(wide, None))
    if any(line.reads for _, line in lines):
        _require_reads(read, stages, file, several=len(routes) > 1)
    return Placing(tuple(home), _chunks(home, file, space.context), stages, read.intersect_range(stages), tuple(ends))


def _require_plain(line: ast.Stages) -> None:
    """Require a line without a family of routes, single microbatches and `when`; raise NotAffine otherwise."""
    if line.family or line.microbatch or line.condition:
        what = "a family of routes" if line.family else "single microbatches" if line.microbatch else "`when`"
        raise NotAffine(line.span, f"stages are placed by {what}")


def _require_stages(home: list[Map], stages: Set, file: ast.File) -> None:
    """Require that stages are numbered from 0 without a gap and that every route has them all; raise NotAffine
    otherwise.
    """
    fewer = isl().Map.read_from_str(stages.get_ctx(), "{ [s] -> [s - 1] : s != 0 }")
    if not fewer.intersect_domain(stages).range().is_subset(stages) or not all(
        x.domain().is_equal(stages) for x in home
    ):
        raise NotAffine(file.name.span, "at some sizes a stage is placed nowhere")


def _require_routes(
    home: list[Map], ends: list[tuple[ast.Expression, ast.Expression] | None], file: ast.File, scope: Scope
) -> None:
    """Require that routes take consecutive microbatches and never share a rank for a stage; raise NotAffine
    otherwise.
    """
    if len(home) == 1 and ends[0] is None:
        return
    at = file.name.span
    last: Value = scope.space.number(0)
    whole = scope.context
    for each in ends:
        if each is None:
            raise NotAffine(at, "a route does not say which microbatches it takes")
        low, high = (scope.lifted(evaluate(x, scope)) for x in each)
        if not whole.is_subset(low.eq_set(last).intersect(low.le_set(high))):
            raise NotAffine(at, "the microbatches of routes do not follow each other at some sizes")
        last = high
    if not whole.is_subset(last.eq_set(scope.lifted(evaluate(ast.Name(at, "m"), scope)))):
        raise NotAffine(at, "a microbatch takes no route at some sizes")
    if len(home) > 2 and (len(home) & (len(home) - 1) or any(not a.is_disjoint(b) for a, b in combinations(home, 2))):
        raise NotAffine(at, "a stage may have a number of copies that is not a power of 2")


def _require_reads(read: Map, stages: Set, file: ast.File, *, several: bool) -> None:
    """Require that stages read only earlier ones, and that all but the last are read; raise NotAffine otherwise."""
    before = isl().Map.read_from_str(stages.get_ctx(), "{ [s] -> [t] : -1 <= t < s }")
    inner = stages.subtract(stages.lexmax())
    inside = read.intersect_domain(stages)
    if several or not inside.is_subset(before) or not inner.is_subset(inside.range()):
        raise NotAffine(file.name.span, "each stage must read earlier stages, and be read by one")


def _line(line: ast.Stages, scope: Scope) -> tuple[Map, list[Map]]:
    """Return the ranks of the stages in one line, and the stages that they read."""
    space = scope.space
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


def _chunks(home: list[Map], file: ast.File, context: Any) -> tuple[Map, ...]:
    """Return the chunks of every rank: the first stage of each rank, the second, and so on, by route and then by
    stage.
    """
    numbered = [each.reverse().insert_dims(isl().dim_type.out, 0, 1) for each in home]
    numbered = [each.fix_val(isl().dim_type.out, 0, isl().Val(route, context)) for route, each in enumerate(numbered)]
    left = numbered[0]
    for each in numbered[1:]:
        left = left.union(each)
    chunks: list[Map] = []
    while not left.is_empty():
        if len(chunks) >= CHUNKS:
            raise NotAffine(file.name.span, f"a rank has more than {CHUNKS} stages, or as many as there are ranks")
        first = left.lexmin()
        chunks.append(first.coalesce())
        left = left.subtract(first)
    return tuple(chunks)
