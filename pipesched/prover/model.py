"""The file that a question is about: its statements and placement, for every p or one p, and for every m that it
accepts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pipesched.language import ast
from pipesched.prover.digits import DigitSpace
from pipesched.prover.evidence import Evidence
from pipesched.prover.placing import Placing, placing
from pipesched.prover.presburger import Context, PwAff, Set, Space, Value, isl
from pipesched.prover.scope import NotAffine, Scope, define, evaluate
from pipesched.prover.statements import Place, Statement, Walker, depth

SIZES = ("p", "m")
DIGITS = ("p", "g", "h")  # m = g p + h


@dataclass(frozen=True, eq=False)
class Model:
    """The statements and the placement of a file. given: fixed values of parameters; p and m vary unless they are
    given. digits: whether numbers are in base p.
    """

    file: ast.File
    given: Mapping[str, int]
    digits: bool = False
    context: Context = field(default_factory=lambda: isl().Context())
    evidence: Evidence = field(default_factory=Evidence)

    @cached_property
    def varying(self) -> tuple[str, ...]:
        """The names of the parameters that vary."""
        known = [parameter.name.id for parameter in self.file.parameters]
        return tuple(name for name in SIZES if name in known and name not in self.given)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the integers that make up a size."""
        return DIGITS if self.digits else self.varying

    def space_of(self, *dims: str) -> Space:
        """Return a space of values with these dimensions."""
        return (DigitSpace if self.digits else Space)(self.context, self.parameters, dims)

    def known_at(self, size: Sequence[int]) -> dict[str, int]:
        """Return the values of p and m at a size."""
        if not self.digits:
            return dict(zip(self.varying, size, strict=True))
        p, groups, rest = size
        return {"p": p, "m": groups * p + rest}

    def names(self, space: Space, context: Set | None = None) -> Scope:
        """Return the scope of the file's top-level names in a space."""
        scope = Scope(space, {}, {}, space.universe if context is None else context)
        for name in self.varying:
            if name in space.parameters or space.width > 1:
                scope.values[name] = space.named(name)
        for parameter in self.file.parameters:
            own = parameter.name
            if own.id in self.given:
                scope.values[own.id] = self.given[own.id]
            elif own.id not in self.varying and parameter.default is not None:
                scope.definitions[own.id] = ast.Let(own.span, own, None, parameter.default)
        for number, route in enumerate(self.routes):
            scope.values[route] = number
        for item in self.file.items:
            if isinstance(item, ast.Let):
                scope.definitions[item.name.id] = item
        return scope

    @cached_property
    def routes(self) -> tuple[str, ...]:
        """The names of the routes."""
        lines = [item for item in self.file.items if isinstance(item, ast.Stages)]
        return tuple(dict.fromkeys(line.route.id for line in lines if line.route))

    @cached_property
    def sizes(self) -> Set:
        """The sizes that the file accepts: its requirements hold, and p and m are at least 1."""
        space = self.space_of()
        made = space.universe
        if self.digits:
            made = space.raw("h").nonneg_set().intersect(space.raw("h").lt_set(space.raw("p")))
        for name in self.varying:
            made = made.intersect(space.named(name).ge_set(space.number(1)))
        for item in self.file.items:
            if isinstance(item, ast.Require):
                scope = self.names(space, made)
                made = made.intersect(scope.holding(evaluate(item.condition, scope)))
        scope = self.names(space, made)
        for node in [*scope.definitions.values()]:  # values exist at all sizes, or a division by one that varies raises
            define(node, scope)
        return made.params().coalesce()

    @cached_property
    def placing(self) -> Placing:
        """The placement of the stages."""
        for item in self.file.items:
            if isinstance(item, ast.Costs) and any(entry.values is not None for entry in item.entries):
                raise NotAffine(
                    item.span, "these costs are a list with one entry per stage, so the number of stages is fixed"
                )
        return placing(self.file, self.sized, Space(self.context, self.parameters, ("s",)), self.space_of("s"))

    def sized(self, space: Space, context: Set | None) -> Scope:
        """Return the scope of the top-level names in a space, limited to the sizes that the file accepts."""
        whole = space.universe.intersect_params(self.sizes)
        return self.names(space, whole if context is None else whole.intersect(context))

    @cached_property
    def slices(self) -> int:
        """The number of slices per sequence; each slice is a microbatch."""
        lines = [item for item in self.file.items if isinstance(item, ast.Slices)]
        if not lines:
            return 1
        count = evaluate(lines[0].count, self.names(self.space_of()))
        if not isinstance(count, int) or count < 1 or len(lines) > 1 or self.routes:
            raise NotAffine(lines[0].span, "the number of slices per sequence varies, or there are routes")
        if self.digits:
            raise NotAffine(lines[0].span, "slices in base p")
        space = self.space_of("s")
        m = self.names(space).lifted(evaluate(ast.Name(lines[0].span, "m"), self.names(space)))
        rest = m.sub(m.scale_down_val(space.value(count)).floor().scale_val(space.value(count)))
        if not self.sizes.is_subset(rest.zero_set().params()):
            raise NotAffine(lines[0].span, "microbatches are not a whole number of sequences at some sizes")
        return count

    @cached_property
    def ranks(self) -> Set:
        """The set ``[r]`` of all ranks."""
        held = self.placing.home[0].range()
        for each in self.placing.home[1:]:
            held = held.union(each.range())
        space = self.space_of("r")
        below = space.named("r").lt_set(self.count(space)).intersect(space.named("r").ge_set(space.number(0)))
        below = below.intersect_params(self.sizes)
        if not held.intersect_params(self.sizes).is_equal(below):
            raise NotAffine(self.file.name.span, "the ranks with stages are not 0 .. p")
        return below

    def count(self, space: Space) -> Value:
        """Return the number of ranks."""
        return space.named("p") if "p" in self.varying else space.number(self._ranks)

    @cached_property
    def _ranks(self) -> int:
        held = [each.range().intersect_params(self.sizes) for each in self.placing.home]
        most = [each.dim_max_val(0) for each in held if not each.is_empty()]
        if not most or not all(each.is_int() for each in most):
            raise NotAffine(self.file.name.span, "the number of ranks varies")
        return 1 + max(int(each.to_python()) for each in most)

    @cached_property
    def space(self) -> Space:
        """The space of the statements' points: the rank and the loop variables."""
        deep = max([1, *(depth(item.body) for item in self.file.items if isinstance(item, ast.Rank))])
        return self.space_of(
            "r", *(f"i{k}{digit}" for k in range(deep) for digit in (("p", "") if self.digits else ("",)))
        )

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The statements of all ranks, each in one chunk; a bare W may be in any chunk."""
        walker = Walker(self.space)
        for code, guard, rank in self._programs():
            scope = self.sized(self.space, guard)
            if isinstance(code.rank, ast.Name) and not self.known(code.rank):
                scope.values[code.rank.id] = rank
            walker.block(code.body, scope, Place())
        return tuple(split for statement in walker.made for split in self._by_chunk(statement))

    def known(self, name: ast.Name) -> bool:
        """Return True if a name is defined at the top level, so `rank NAME { … }` is the program of one rank."""
        return name.id in self.names(self.space).values or name.id in self.names(self.space).definitions

    def _programs(self) -> Iterator[tuple[ast.Rank, Set, Value]]:
        """Yield each program, the set of its ranks, and the value of its rank variable, which is a number if p is
        fixed.
        """
        rank = self.space.named("r")
        every = self.lifted(self.ranks)
        items = [item for item in self.file.items if isinstance(item, ast.Rank)]
        left = every
        for item in items:
            if not isinstance(item.rank, ast.Name) or self.known(item.rank):
                scope = self.names(self.space)
                own = rank.eq_set(scope.lifted(evaluate(item.rank, scope))).intersect(every)
                if not self.sizes.is_subset(own.intersect(left).params()):
                    raise NotAffine(item.rank.span, "at some sizes this rank does not exist, or has two programs")
                left = left.subtract(own)
                yield item, own, None
        general = [item for item in items if isinstance(item.rank, ast.Name) and not self.known(item.rank)]
        if len(general) > 1 or (not general and not left.is_empty()):
            raise NotAffine(self.file.name.span, "not every rank has one program")
        for item in general:
            yield from ((item, left, rank),) if "p" in self.varying else self._one_by_one(item, left, rank)

    def _one_by_one(self, item: ast.Rank, ranks: Set, rank: PwAff) -> Iterator[tuple[ast.Rank, Set, Value]]:
        """Yield a program once for each of its ranks, if p is fixed."""
        for number in range(self._ranks):
            own = ranks.intersect(rank.eq_set(self.space.number(number)))
            if not own.is_empty():
                yield item, own, number

    def lifted(self, ranks: Set) -> Set:
        """Convert a set of ranks to a set of points of statements."""
        return ranks.insert_dims(isl().dim_type.set, 1, len(self.space.dims) - 1)

    def _by_chunk(self, statement: Statement) -> Iterator[Statement]:
        """Yield a copy of a statement for each chunk that it can run."""
        chunks = [self.lifted(chunk.domain()) for chunk in self.placing.chunks]
        domain, chunk = statement.domain, statement.chunk
        if chunk is None and (statement.letter != "W" or len(chunks) == 1):
            if len(chunks) > 1 and not domain.is_disjoint(chunks[1]):
                raise NotAffine(statement.span, "this operation names no chunk, and its rank has several chunks")
            chunk = 0
        if chunk is None:
            if not self.placing.frozen.is_empty():
                raise NotAffine(statement.span, "this operation names no chunk, and some stages are frozen")
            yield statement
            return
        left = domain
        for number, held in enumerate(chunks):
            whole = self.space.number(chunk) if isinstance(chunk, int) else chunk
            own = domain.intersect(whole.eq_set(self.space.number(number))).intersect(held)
            left = left.subtract(own)
            trained = self._trained(statement, number, own)
            if not trained.is_empty():
                name = f"{statement.name}_{number}"
                yield replace(statement, name=name, chunk=number, domain=trained.coalesce())
        if not left.is_empty():
            raise NotAffine(statement.span, "at some sizes this operation names a chunk that its rank does not have")

    @cached_property
    def frozen_ranks(self) -> tuple[Set, ...]:
        """For each chunk, the ranks where the chunk's stage is frozen, as ``[r]``."""
        whole = [chunk.project_out(isl().dim_type.out, 0, 1) for chunk in self.placing.chunks]
        return tuple(x.intersect_range(self.placing.frozen).domain() for x in whole)

    def _trained(self, statement: Statement, chunk: int, points: Set) -> Set:
        """Return the points at which a statement runs: a frozen stage without a trained stage before it runs only F."""
        plain = statement.letter == "F" and statement.pair < 0
        if plain or self.placing.frozen.is_empty():
            return points
        frozen = self.lifted(self.frozen_ranks[chunk])
        known = statement.letter in "IBW" and statement.microbatch is None and statement.pair < 0
        if not known and not points.is_disjoint(frozen):
            raise NotAffine(
                statement.span, "a frozen stage has an R, an overlap, or an operation that names its microbatch"
            )
        return points.subtract(frozen)
