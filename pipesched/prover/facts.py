"""Figures of a file at every size: peaks, work, makespan and spans. Each is guessed from small sizes, then proved.

The work is the number n of slots of a kind on a rank: their turns are proved to be the numbers from 0 to n - 1. For a
peak, every amount held on a rank is proved to be at most peak(r), and some amount to be equal to it. For a makespan, no
operation ends later, and the same operation ends last at all generators of a cone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lcm

from pipesched.prover.digits import Number
from pipesched.prover.enumeration import points
from pipesched.prover.guess import of_ranks
from pipesched.prover.presburger import Map, PwAff, Set, Space, UnionMap, Value, case, denominator, isl, parts
from pipesched.prover.relations import Relations, Unsettled
from pipesched.prover.replay import Costs
from pipesched.prover.sampling import Instance
from pipesched.prover.statements import Statement
from pipesched.prover.timeline import Timeline, Times, shown

PLACE = "r"


def valued(space: Space, of: Value) -> Map:
    """Return the map from a point to the value there."""
    first, *others = (isl().Map.from_pw_aff(x) for x in space.digits(of))
    for each in others:
        first = first.flat_range_product(each)
    return first


def whole(space: Space, of: Value) -> tuple[Value, int]:
    """Return the smallest multiple of a value that is a whole number, and the factor."""
    times = lcm(*(denominator(x) for x in ([of.first, of.last] if isinstance(of, Number) else [of])))
    return of.scale_val(space.value(times)), times


def _most(rel: Relations, instances: Sequence[Instance], costs: Costs) -> int:
    """Return the largest amount of memory that the instances on a rank hold at these costs."""
    letters = [rel.statements[each.statement].letter for each in instances]
    again = {each.key for each, letter in zip(instances, letters, strict=True) if letter == "R"}
    held, most, whole, small = 0, 0, costs["M"], costs.get("K", 0)
    for each, letter in zip(instances, letters, strict=True):
        most = max(most, held + whole) if letter == "F" else most
        held += {"F": small if each.key in again else whole, "R": whole - small, "B": -whole, "W": -whole}.get(
            letter, 0
        )
        most = max(most, held)
    return most


def single(space: Space, of: Map) -> Value:
    """Convert a map to single values to an expression."""
    found = isl().PwMultiAff.from_map(of)
    return space.joined([found.get_pw_aff(k) for k in range(space.width)])


@dataclass(eq=False)
class Facts:
    """Figures as expressions in the sizes and the rank r, and figures over all ranks as expressions in the sizes.

    claimed: the peak in a claim, which serves as the guess if no expression with few cases fits. of_all: whether the
    peak is the largest of all ranks, so that some ranks may hold less.
    """

    rel: Relations
    timeline: Timeline
    claimed: Value | None = None
    of_all: bool = False

    @cached_property
    def space(self) -> Space:
        """The space of the sizes and the rank."""
        return self.rel.model.space_of(PLACE)

    def guess(
        self, values: Mapping[tuple[tuple[int, ...], int], int], what: str, claimed: Value | None = None
    ) -> PwAff:
        """Return an expression in the sizes and the rank that takes these values. claimed: the guess to use if no
        expression fits.

        Raises:
            Unsettled: no expression fits, or the expression has no value or a fractional value somewhere.
        """
        keys = sorted(values)

        def make() -> PwAff | None:
            rows = [(*size, rank) for size, rank in keys]
            found = of_ranks(self.rel.sample, rows).through([values[key] for key in keys])
            return claimed if found is None else found

        guess = self.rel.guessed(what, self.space, self.rel.model.ranks, make)
        if guess is None:
            raise Unsettled(f"{what}: no expression with few cases fits")
        found = guess.intersect_domain(self.rel.model.ranks)
        every = isl().UnionSet.from_set(self.rel.model.ranks)
        if not self.rel.holds(f"{what} is known everywhere", every, self.ranked(found).domain()):
            raise Unsettled(f"{what} is not known at every size")
        return found

    def ranked(self, of: PwAff) -> UnionMap:
        """Return the map ``[r] -> [value]``."""
        return isl().UnionMap.from_map(valued(self.space, of))

    def up_to(self, of: PwAff) -> UnionMap:
        """Return the map ``[r] -> [x]`` to all x up to the value."""
        return self.ranked(of).apply_range(self.rel.related(self.space.at_most().reverse()))

    def _values(self, figure: Callable[[Sequence[Instance]], int]) -> dict[tuple[tuple[int, ...], int], int]:
        return {key: figure(instances) for key, instances in self.rel.sample.ranks.items()}

    # Work

    @cached_property
    def counts(self) -> Mapping[str, PwAff]:
        """The number of slots of each kind on each rank."""
        made = {}
        for kind in dict.fromkeys(self.timeline.kinds.values()):
            of = [x for x in self.timeline.flow.nodes if self.timeline.kinds[x.name] == kind]
            numbers = {self.rel.number[x.name] for x in of}
            counted = self._values(lambda instances, numbers=numbers: sum(x.statement in numbers for x in instances))  # type: ignore[misc]
            found = self.guess(counted, f"the number of {kind}")
            turns = self.rel.reached(self.rel.valued(self.rel.turns(of)))
            wide = self.ranked(found).apply_range(self.rel.related(self.space.below().reverse()))
            whole = isl().UnionSet.read_from_str(self.rel.model.context, self.space.naturals())
            wide, what = wide.intersect_range(whole), f"the number of {kind}"
            if not (
                self.rel.holds(f"{what} is at least 0", self.ranked(found).range(), whole)
                and self.rel.holds(f"{what} on a rank: not fewer", turns, wide)
                and self.rel.holds(f"{what} on a rank: not more", wide, turns)
            ):
                raise Unsettled(f"the number of {kind} on a rank is not proved")
            made[kind] = found
        return made

    # Memory

    def peaks(self, generators: Sequence[Costs]) -> list[PwAff]:
        """Return the peak of each rank at each generator; between generators the peak is linear.

        An F holds M until a B or W, or K until an R, and M while it runs.

        Raises:
            Unsettled: the peak is not proved.
        """
        every, rank = isl().UnionSet.from_set(self.rel.model.ranks), self.rel.rank
        if not self.rel.holds("peak: every rank runs F", every, self.rel.reached_by(self._of("F"))):
            raise Unsettled("peak: a rank runs no F")
        if not self._of("BW"):
            return [self.space.number(costs["M"]).intersect_domain(self.rel.model.ranks) for costs in generators]
        found, exact = list[PwAff](), True
        for costs, held in zip(generators, self._held(generators), strict=True):
            own, at = self.rel.valued(held), f" at {shown(costs)}" if len(generators) > 1 else ""
            kept = self._frozen_at
            values = {
                key: costs["M"] if key in kept else _most(self.rel, instances, costs)
                for key, instances in self.rel.sample.ranks.items()
            }
            most, exact = self._most(values, f"peak{at}")
            if not self.rel.holds(f"peak{at}: at most this is held", self.rel.reached(own), self.up_to(most)):
                raise Unsettled("peak: some rank holds more at some time")
            rank = rank.intersect_domain(own.intersect(self.rel.rank.apply_range(self.ranked(most))).domain())
            found.append(most)
        known = (
            self.rel.holds("peak: this is held at some time", every, rank.range())
            if exact
            else self.rel.holds("peak: this is held at some time on some rank", every.params(), rank.range().params())
        )
        if not known:
            raise Unsettled("peak: no rank ever holds this much")
        return found

    @cached_property
    def _frozen_at(self) -> set[tuple[tuple[int, ...], int]]:
        """The sizes and ranks in the sample at which the rank's only stage is frozen."""
        model = self.rel.model
        if model.placing.frozen.is_empty() or len(model.placing.chunks) > 1:
            return set()
        found = points(model.frozen_ranks[0], self.rel.sample.grid).tolist()
        return {(tuple(row[:-1]), row[-1]) for row in found}

    def _most(self, values: Mapping[tuple[tuple[int, ...], int], int], what: str) -> tuple[PwAff, bool]:
        """Return a guess at the peak of each rank, and True; or the claimed peak of all ranks, and False, if no guess
        fits.
        """
        try:
            return self.guess(values, what, None if self.of_all else self.claimed), True
        except Unsettled:
            if not self.of_all or self.claimed is None:
                raise
            return self.claimed, False

    def _held(self, generators: Sequence[Costs]) -> list[dict[str, Value]]:
        """Return, for each generator, the memory held at each F and R, by statement."""
        rel, one = self.rel, self.rel.space.number(1)
        taking, freeing = self._of("F"), self._of("BW")
        if self._of("R"):
            return self._kept(generators)
        try:
            freed, turns = self._freed(taking, freeing), rel.turns(taking)
            counts = {x.name: turns[x.name].add(one).sub(freed[x.name]) for x in taking}
        except Unsettled:
            if self.space.width > 1:
                raise
            counts = {x.name: one.add(self._ran(x, taking)).sub(self._ran(x, freeing)) for x in taking}
        if not rel.model.placing.frozen.is_empty():
            if len(rel.model.placing.chunks) > 1:
                raise Unsettled("peak: a rank may have both frozen and trained stages")
            frozen = rel.model.lifted(rel.model.frozen_ranks[0])
            counts = {name: case(frozen, one, x) for name, x in counts.items()}  # an F there keeps nothing
        sizes = [costs["M"] for costs in generators]
        return [
            counts if size == 1 else {name: x.scale_val(self.rel.space.value(size)) for name, x in counts.items()}
            for size in sizes
        ]

    def _of(self, letters: str) -> list[Statement]:
        return [x for x in self.rel.statements if x.letter in letters]

    def _kept(self, generators: Sequence[Costs]) -> list[dict[str, Value]]:
        """Return the memory held at each F and R, if each rank recomputes either all of its F or none."""
        rel, one = self.rel, self.rel.space.number(1)
        taking, freeing, again = self._of("F"), self._of("BW"), self._of("R")
        if self.space.width > 1 or any("K" not in costs for costs in generators):
            raise Unsettled("peak: the memory kept by an F that runs again is not known")
        forward, ranks = rel.made("F"), rel.reached_by(again)
        own, twice = rel.rank.intersect_range(ranks).domain(), forward.apply_range(rel.made("R").reverse()).domain()
        if not rel.holds("peak: a rank runs all F again, or none", own.intersect(forward.domain()), twice):
            raise Unsettled("peak: a rank runs only some of its F again")
        there = rel.model.lifted(ranks.extract_set(rel.model.ranks.get_space()))
        made: list[dict[str, Value]] = [{} for _ in generators]
        for x in (*taking, *again):
            f, r, b = (self._ran(x, of) for of in (taking, again, freeing))
            small = f.sub(r).sub(one) if x.letter == "R" else f.sub(r)
            whole = r.add(one).sub(b)
            for costs, found in zip(generators, made, strict=True):
                k, m = rel.space.value(costs["K"]), rel.space.value(costs["M"])
                kept = small.scale_val(k).add(whole.scale_val(m))
                found[x.name] = case(there, kept, f.add(one).sub(b).scale_val(m))
        return made

    def _ran(self, x: Statement, of: Sequence[Statement]) -> Value:
        """Return the number of these statements' instances that run before each instance of another statement, chunk by
        chunk.
        """
        total = self.rel.space.number(0)
        for chunk in dict.fromkeys(other.chunk for other in of):
            total = total.add(self._before(x, [other for other in of if other.chunk == chunk]))
        return total

    def _before(self, x: Statement, of: list[Statement]) -> Value:
        """Return the number of these statements' instances that run before each instance of another statement."""
        rel = self.rel
        earlier = rel.order.intersect_domain(rel.points(of)).intersect_range(rel.points([x])).reverse()
        last = parts(earlier.apply_range(rel.valued(rel.turns(of))).lexmax())
        none = rel.space.number(0).intersect_domain(rel.domains[x.name])
        if not last:
            return none
        (turn,) = (each.reset_tuple_id(isl().dim_type.in_) for each in last)
        some = single(rel.space, turn).add(rel.space.number(1))
        return some.union_add(none.subtract_domain(turn.domain()))

    def _freed(self, taking: list[Statement], freeing: list[Statement]) -> Mapping[str, PwAff]:
        """Return, for each F, the number of B and W that run before it."""
        rel, counted = self.rel, {}
        for instances in rel.sample.ranks.values():
            done = 0
            for each in instances:
                counted[id(each)] = done
                done += rel.statements[each.statement].letter in "BW"
        found = {}
        for x in taking:
            guess = rel.fitted(x, "what was freed", counted)
            if guess is None:
                raise Unsettled("peak: no expression with few cases fits the freed activations")
            found[x.name] = guess
        freed, turns = rel.valued(found), rel.valued(rel.turns(freeing))
        less = rel.related(rel.space.below())
        before = rel.order.intersect_domain(rel.points(freeing)).intersect_range(rel.points(taking))
        last = rel.read(rel.space.less_one()).reverse()
        zeros = ", ".join("0" * rel.space.width)
        none = freed.intersect_range(isl().UnionSet.read_from_str(rel.model.context, f"{{ [{zeros}] }}")).domain()
        tight = before.intersect(turns.apply_range(last).apply_range(freed.reverse())).range()
        if not rel.holds("peak: what was freed is known everywhere", rel.points(taking), freed.domain()):
            raise Unsettled("peak: the freed activations are not known at every size")
        if not rel.holds("peak: no more was freed", before.apply_domain(turns).apply_range(freed), less):
            raise Unsettled("peak: more was freed")
        if not rel.holds("peak: no less was freed", rel.points(taking), tight.union(none)):
            raise Unsettled("peak: less was freed")
        return found

    # Time

    def makespans(self, times: Times) -> list[PwAff]:
        """Return the makespan at each generator of a cone; between generators the makespan is linear.

        Raises:
            Unsettled: the makespan is not proved, or different operations end last.
        """
        found, last = [], times.justified
        every = self.rel.model.ranks.params()
        for timed in times.at:
            ends: defaultdict[tuple[int, ...], int] = defaultdict(int)
            replay = self.timeline.replay
            for slot, end in zip(replay.slots, replay.times(timed.costs)[1], strict=True):
                ends[slot.size] = max(ends[slot.size], end)
            values = {key: ends[key[0]] for key in self.rel.sample.ranks}
            most = self.guess(values, f"makespan at {shown(timed.costs)}")
            high = self.ranked(most)
            what = f"makespan at {shown(timed.costs)}"
            if not self.alike(f"{what}: it is that of all ranks", most):
                raise Unsettled(f"{what}: the value differs between ranks")
            if not self.rel.holds(f"{what}: nothing ends later", self.rel.reached(timed.end), self.up_to(most)):
                raise Unsettled(f"{what}: an operation ends later")
            last = last.intersect(timed.end.intersect(self.rel.rank.apply_range(high)).domain())
            found.append(most)
        between = " and ".join(shown(timed.costs) for timed in times.at)
        if not self.rel.holds(f"makespan at {between}: something ends last at all", every, last.params()):
            raise Unsettled("makespan: at costs in between, another operation may end last")
        return found

    def alike(self, what: str, of: PwAff) -> bool:
        """Return True if a value is the same for every rank."""
        return self.rel.holds(what, self._together(self.ranked(of)), self._same)

    @cached_property
    def _same(self) -> UnionMap:
        digits = ", ".join(f"d{k}" for k in range(self.space.width))
        return self.rel.read(f"{{ [{digits}] -> [{digits}] }}")

    @staticmethod
    def _together(of: UnionMap) -> UnionMap:
        """Return ``[a] -> [b]``: the values of all ranks at one size."""
        ranks = of.domain()
        return isl().UnionMap.from_domain_and_range(ranks, ranks).apply_domain(of).apply_range(of)

    def spans(self, times: Times) -> list[PwAff]:
        """Return the span of each rank, from its first start to its last end, at each generator.

        Raises:
            Unsettled: a rank has no operation.
        """
        first, last = self._extremes
        what = f"span at {' and '.join(shown(timed.costs) for timed in times.at)}: ends are tight at all"
        if not self.rel.holds(what, first.range().union(last.range()), times.justified):
            raise Unsettled("span: at costs in between, a rank may wait for another operation")
        made = []
        for timed in times.at:
            begin, end = self._single(first.apply_range(timed.begin)), self._single(last.apply_range(timed.end))
            made.append(end.sub(begin))
        return made

    @cached_property
    def _extremes(self) -> tuple[UnionMap, UnionMap]:
        """The first and the last slot of each rank, as maps ``[r] -> S[...]``."""
        flow = self.timeline.flow
        nodes = self.rel.rank.intersect_domain(flow.points).reverse()
        not_first, not_last = flow.order.range(), flow.order.domain()
        return nodes.subtract_range(not_first), nodes.subtract_range(not_last)

    def _single(self, of: UnionMap) -> PwAff:
        maps: list[Map] = []
        of.foreach_map(maps.append)
        if len(maps) != 1 or not self.rel.model.ranks.is_subset(maps[0].domain()) or not maps[0].is_single_valued():
            raise Unsettled("span: a rank has no operation")
        return single(self.space, maps[0])

    def everywhere(self, what: str, compared: Set) -> bool:
        """Return True if the comparison holds for every size and rank."""
        return self.rel.holds(what, self.rel.model.ranks, compared)
