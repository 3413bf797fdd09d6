"""The dependencies between a file's operations, and its completeness and clock.

    F(s, j) <- F(s', j)        G(s, j) <- G(s', j)        W(s, j) <- I(s, j)
    R(s, j) <- F(s, j)         G(s, j) <- R(s, j)

Here G is an I or a B. An F waits for the F of each stage s' that s reads, and a G for the G of each stage s' that reads
s, or for its own F if no stage reads s. If these dependencies and the order have no cycle, no program deadlocks under
any communication model, because lowering places sends and receives in the order of the clock. Both parts of an overlap
are one node.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pipesched.prover.presburger import Map, Set, UnionMap, UnionSet, isl, parts
from pipesched.prover.relations import Relations, Unsettled
from pipesched.prover.statements import Statement


def every_key(rel: Relations) -> Set:
    """Return every pair of stage and microbatch, as ``[s, j]``."""
    model = rel.model
    space = model.space_of("s", *(("jp", "j") if model.digits else ("j",)))
    made: Set | None = None
    for home, ends in zip(model.placing.home, model.placing.ends, strict=True):
        scope = model.sized(space, None)
        low, high = (0, scope.values["m"]) if ends is None else ends.of(scope)
        j = space.named("j")
        inside = j.ge_set(scope.lifted(low)).intersect(j.lt_set(scope.lifted(high)))
        if model.digits:
            inside = inside.intersect(space.raw("j").nonneg_set()).intersect(space.raw("j").lt_set(space.raw("p")))
        own = home.domain().insert_dims(isl().dim_type.set, 1, space.width).intersect(inside)
        made = own if made is None else made.union(own)
    assert made is not None
    return made.intersect_params(model.sizes)


def complete(rel: Relations) -> str:
    """Return the letters of the kinds that run once for each stage and microbatch.

    Raises:
        Unsettled: an operation is missing or runs twice, or neither is ruled out.
    """
    keys = rel.union(rel.keys.values())
    if not rel.holds("complete: every operation has a stage", rel.points(rel.statements), keys.domain()):
        raise Unsettled("complete: an operation does not belong to any stage of its rank")
    every, frozen = every_key(rel), rel.model.placing.frozen
    trained = every.subtract(frozen.insert_dims(isl().dim_type.set, 1, rel.space.width))
    letters = {x.letter for x in rel.statements}
    asked = ["F"] if letters <= set("FRO") else ["F", "IB", "WB"]
    for kind in asked:
        made = rel.made(kind)
        name = " or ".join(x for x in kind if x in letters)
        found, what = made.range(), f"complete: {name} of each stage and microbatch"
        keys = isl().UnionSet.from_set(every if kind == "F" else trained)
        if not (rel.holds(what, keys, found) and rel.holds(f"{what}, and no other", found, keys)):
            raise Unsettled(what)
        if not rel.holds(f"{what} once", *_twice(made)):
            raise Unsettled(f"complete: {name} may run twice for a stage and microbatch")
    once = "complete: R of each stage and microbatch at most once"
    if "R" in letters and (asked == ["F"] or not rel.holds(once, *_twice(rel.made("R")))):
        raise Unsettled("complete: R may run twice for a stage and microbatch")
    return ", ".join(x for x in "FBIWR" if x in letters)


def _twice(made: UnionMap) -> tuple[UnionMap, UnionMap]:
    """Return the pairs of instances with the same result, and the pairs of an instance with itself."""
    return made.apply_range(made.reverse()), made.domain().identity()


@dataclass(eq=False)
class Flow:
    """The edges between slots, within a rank and between ranks."""

    rel: Relations

    @cached_property
    def nodes(self) -> list[Statement]:
        """The statements whose instances begin a slot."""
        return [x for x in self.rel.statements if not x.second]

    @cached_property
    def _node(self) -> UnionMap:
        """A map from each instance to the instance that begins its slot."""
        rel = self.rel
        made: list[Map] = []
        for x in rel.statements:
            for other in self.nodes if x.second else [x]:
                if x is other or other.pair == x.pair:
                    own = rel.of(x, [*map(rel.space.raw, rel.space.dims)])
                    own = own.set_tuple_name(isl().dim_type.out, other.name)
                    made.append(own.intersect_range(rel.domains[other.name].set_tuple_name(other.name)))
        return rel.union(made)

    @cached_property
    def _data(self) -> UnionMap:
        """A map from producers to their consumers, by operation."""
        rel, model = self.rel, self.rel.model
        f, g, i, w, r = (rel.made(x) for x in ("F", "IB", "I", "W", "R"))
        wide = rel.space.width
        j = rel.read("{ [j] -> [j] }" if wide == 1 else "{ [q, j] -> [q, j] }")
        reads = isl().UnionMap.from_map(model.placing.reads.intersect_domain(model.placing.stages))
        before = _beside(reads, j, wide)
        unread = model.placing.stages.subtract(model.placing.reads.intersect_domain(model.placing.stages).range())
        last = isl().UnionSet.from_set(unread.insert_dims(isl().dim_type.set, 1, wide))
        made = f.apply_range(before).apply_range(f.reverse()).reverse()
        made = made.union(g.apply_range(before.reverse()).apply_range(g.reverse()).reverse())
        made = made.union(f.intersect_range(last).apply_range(g.reverse()))
        made = made.union(i.apply_range(w.reverse()))
        made = made.union(f.apply_range(r.reverse())).union(r.apply_range(g.reverse()))
        if model.slices > 1:
            q = model.slices
            for of, step in ((f, 1), (g, -1)):
                near = f"{{ [s, j] -> [s, k] : k = j + {step} and floor(j/{q}) = floor(k/{q}) }}"
                made = made.union(of.apply_range(rel.read(near)).apply_range(of.reverse()))
        return made

    @cached_property
    def data(self) -> UnionMap:
        """A map from producers to their consumers, by slot."""
        return self._data.apply_domain(self._node).apply_range(self._node)

    @cached_property
    def order(self) -> UnionMap:
        """A map from each slot to the later slots of its rank."""
        own = self.points
        return self.rel.order.intersect_domain(own).intersect_range(own)

    @cached_property
    def points(self) -> UnionSet:
        """All slots."""
        return self.rel.points(self.nodes)

    @cached_property
    def near(self) -> UnionMap:
        """The edges within one rank."""
        kind = isl().dim_type
        return self.order.union(self.rel.union(x.equate(kind.in_, 0, kind.out, 0) for x in parts(self.data)))

    @cached_property
    def far(self) -> UnionMap:
        """The edges between ranks."""
        ends = isl().dim_type.in_, 0, isl().dim_type.out, 0
        return self.rel.union(x.order_lt(*ends).union(x.order_gt(*ends)) for x in parts(self.data))


def _beside(first: UnionMap, second: UnionMap, wide: int) -> UnionMap:
    """Return the product ``[s, j] -> [s', j']`` of the maps ``[s] -> [s']`` and ``[j] -> [j']``."""
    product = first.product(second)
    digits = ", ".join(f"b{k}" for k in range(wide))
    flat = isl().UnionMap.read_from_str(first.get_ctx(), f"{{ [[a] -> [{digits}]] -> [a, {digits}] }}")
    return product.apply_domain(flat).apply_range(flat)
