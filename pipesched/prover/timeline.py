"""Start times for every size and for all costs in a cone.

At each generator c of the cone, a start time T is guessed from small sizes and then proved correct:

    feasible:   On every edge x -> y, end(x) <= T(y), so T(x) + c <= T(y). With costs above 0, T is a clock.
    tight:      For every y, T(y) = 0, or end(x) = T(y) for some edge x -> y.

If T is feasible at all generators, it is feasible in the cone. If an edge is tight at all generators, it is tight in
the cone, and T is linear there: the sum of the generators' T, with the same weights as the costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import count

from pipesched.prover.flow import Flow
from pipesched.prover.presburger import PwAff, UnionMap, UnionSet, isl, parts
from pipesched.prover.relations import Relations, Unsettled
from pipesched.prover.replay import Costs, Replay, cost_of
from pipesched.prover.statements import Statement


def shown(costs: Costs) -> str:
    """Return costs in the user's notation: ``F=1, B=2``."""
    return ", ".join(f"{name}={value}" for name, value in costs.items())


@dataclass(eq=False)
class Timed:
    """The start times at the costs of one generator. start: the start of each node. begin, end, late: maps from each
    node to its start, its end, and its end plus the cost of a message.
    """

    costs: Costs
    start: Mapping[str, PwAff]
    begin: UnionMap
    end: UnionMap
    late: UnionMap


@dataclass(frozen=True, eq=False)
class Times:
    """The start times at the generators of a cone. justified: the slots whose start is linear between the generators.

    A justified slot ends a path that is tight at all generators. The length of this path is linear in the costs, and no
    path is longer, since the length of each is at most the sum of the starts at the generators.
    """

    at: Sequence[Timed]
    justified: UnionSet


ROUNDS = 3


@dataclass(eq=False)
class Timeline:
    """Start times of the slots of a file."""

    rel: Relations
    flow: Flow
    replay: Replay
    _known: dict[str, Timed | Unsettled] = field(default_factory=dict)
    _feasible: dict[str, bool] = field(default_factory=dict)
    _sound: set[str] = field(default_factory=set)

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        """The cost letter of each node."""
        second = {x.pair: x.letter for x in self.rel.statements if x.second}
        return {x.name: x.letter + (second[x.pair] if x.pair >= 0 else "") for x in self.flow.nodes}

    @cached_property
    def letters(self) -> tuple[str, ...]:
        """The costs on which times depend."""
        found = dict.fromkeys(x if x == "FB" else y for x in self.kinds.values() for y in ([x] if x == "FB" else x))
        return tuple(x for x in ("F", "B", "I", "W", "R", "FB") if x in found)

    def at(self, costs: Costs) -> Timed:
        """Guess the start times at given costs.

        Raises:
            Unsettled: no expression fits.
        """
        name = shown(costs)
        if name not in self._known:
            try:
                self._known[name] = self._fitted(costs)
            except Unsettled as error:
                self._known[name] = error
        found = self._known[name]
        if isinstance(found, Unsettled):
            raise found
        return found

    def _fitted(self, costs: Costs) -> Timed:
        begun = zip(self.replay.slots, self.replay.times(costs)[0], strict=True)
        starts = {id(slot.first): start for slot, start in begun}
        rel, found = self.rel, {}
        for x in self.flow.nodes:
            guess = rel.fitted(x, f"start at {shown(costs)}", starts)
            if guess is None:
                raise Unsettled(
                    f"start times at {shown(costs)}: no expression with few cases fits {x.letter} at `{_line(x)}`"
                )
            found[x.name] = guess
        return self.timed(costs, found)

    def timed(self, costs: Costs, start: Mapping[str, PwAff]) -> Timed:
        """Return start times as relations."""
        number, late = self.rel.space.number, costs.get("C", 0)
        end = {name: x.add(number(cost_of(self.kinds[name], costs))) for name, x in start.items()}
        arrives = {name: x.add(number(late)) for name, x in end.items()}
        return Timed(costs, start, *(self.rel.valued(x) for x in (start, end, arrives)))

    def feasible(self, timed: Timed) -> bool:
        """Return True if no slot with a known time starts before its dependencies end."""
        name = shown(timed.costs)
        if name not in self._feasible:
            self._feasible[name] = self._in_time(timed)
        return self._feasible[name]

    def _in_time(self, timed: Timed) -> bool:
        most = self.rel.related(self.rel.space.at_most())
        what, holds = f"start at {shown(timed.costs)}", self.rel.holds
        if not holds(f"{what} is known everywhere", self.flow.points, timed.begin.domain()):
            return False
        return all(
            holds(f"{what}: not before its inputs {where}", edges.apply_domain(end).apply_range(timed.begin), most)
            for where, edges, end in (
                ("on one rank", self.flow.near, timed.end),
                ("from others", self.flow.far, timed.late),
            )
        )

    def prove(self, generators: Sequence[Costs]) -> Times:
        """Prove the start times at each generator; return them with the slots whose start is linear in between.

        Raises:
            Unsettled: a guess is wrong.
        """
        times = [self.at(costs) for costs in generators]
        for timed in times:
            if (name := shown(timed.costs)) not in self._sound:
                if not self.feasible(timed):
                    raise Unsettled(f"start times at {name}: an operation starts before its input")
                if not self._tight_everywhere(f"start at {name}: not late", *self._tight([timed])):
                    raise Unsettled(f"start times at {name}: an operation starts late")
                self._sound.add(name)
        return Times(times, self._between(times))

    def _between(self, times: Sequence[Timed]) -> UnionSet:
        """Return the slots whose start is linear between generators: all proved slots, or the slots of a guess."""
        tight, zero = self._tight(times)
        what = f"start between {' and '.join(shown(timed.costs) for timed in times)}"
        if self._tight_everywhere(f"{what}: of one way", tight, zero):
            return self.flow.points
        try:
            return self._justified(what, tight, zero)
        except Unsettled:
            found = isl().UnionSet.read_from_str(self.rel.model.context, self.rel.empty)
        for k, chosen in enumerate(self.replay.justified([x.costs for x in times])):
            guess = self._guessed(f"{what}: way {k}", chosen)
            if self.rel.holds(f"{what}: on way {k}", guess, zero.union(tight.intersect_domain(guess).range())):
                found = found.union(guess)
        return found

    def _guessed(self, what: str, chosen: set[int]) -> UnionSet:
        """Return the slots that meet a condition fitted to the chosen instances; none of a statement without a fit."""
        rel = self.rel
        found = isl().UnionSet.read_from_str(rel.model.context, rel.empty)
        for x in self.flow.nodes:
            mine = rel.sample.of(rel.number[x.name])
            guess = rel.fitted(x, what, {id(each): int(id(each) in chosen) for each in mine})
            if guess is not None:
                where = rel.domains[x.name].intersect(guess.eq_set(rel.space.number(1)))
                found = found.union(isl().UnionSet.from_set(where.set_tuple_name(x.name)))
        return found

    def _tight(self, times: Sequence[Timed]) -> tuple[UnionMap, UnionSet]:
        """Return the edges whose consumer starts when its producer ends, and the slots that start at 0, at all
        generators.
        """
        zeros = ", ".join("0" * self.rel.space.width)
        at_zero = isl().UnionSet.read_from_str(self.rel.model.context, f"{{ [{zeros}] }}")
        near, far, zero = self.flow.near, self.flow.far, self.flow.points
        for timed in times:
            near, far = (self._equal(*x) for x in ((near, timed.end, timed.begin), (far, timed.late, timed.begin)))
            zero = zero.intersect(timed.begin.intersect_range(at_zero).domain())
        return near.union(far), zero

    def _equal(self, edges: UnionMap, end: UnionMap, begin: UnionMap) -> UnionMap:
        """Return the edges whose consumer begins when its producer ends."""
        kind = isl().dim_type
        ends, begins = ({x.get_tuple_name(kind.in_): x for x in parts(of)} for of in (end, begin))
        made = []
        for each in parts(edges):
            names = each.get_tuple_name(kind.in_), each.get_tuple_name(kind.out)
            same = ends[names[0]].apply_range(begins[names[1]].reverse())
            made.append(each.intersect(same))
        return self.rel.union(made)

    def _tight_everywhere(self, what: str, tight: UnionMap, zero: UnionSet) -> bool:
        """Return True if every slot starts at 0 or ends a tight edge; since edges have no cycle, all slots go back to
        0.
        """
        return self.rel.holds(what, self.flow.points, zero.union(tight.range().coalesce()))

    def _justified(self, what: str, tight: UnionMap, zero: UnionSet) -> UnionSet:
        """Return the slots at the end of a path of tight edges from a slot at 0; raise Unsettled if this takes too many
        rounds.
        """
        found = zero.union(tight.range())
        for _ in range(ROUNDS):
            fewer = zero.union(tight.intersect_domain(found).range())
            if self.rel.holds(f"{what}: a way leads there", found, fewer):
                return found
            found = fewer
        raise Unsettled("start times: it is not known which operations wait for each other")


def _line(x: Statement) -> str:
    return x.span.text


def clock(timeline: Timeline) -> str:
    """Prove that no operations wait for each other in a cycle; return the kind of proof. If each operation has a cost
    above 0 at some generator, the sum of the start times grows along every edge.

    Raises:
        Unsettled: no clock was found.
    """
    why, equal = "no clock was found", [dict.fromkeys(timeline.letters, 1) | {"C": 0}]
    units = [{each: int(each == letter) for each in timeline.letters} | {"C": 0} for letter in timeline.letters]
    for of in (units, equal) if len(units) == 2 else (equal, units):
        try:
            if all(timeline.feasible(timeline.at(costs)) for costs in of):
                return f"start times at {' and '.join(map(shown, of))}"
        except Unsettled as error:
            why = str(error)
    edges = timeline.flow.near.union(timeline.flow.far)
    if timeline.rel.space.width == 1 and scheduled(timeline.flow, "", edges):
        return "a clock found by isl's scheduler"
    for letter, costs in zip(timeline.letters, units, strict=True):
        with suppress(Unsettled):
            timed = timeline.at(costs)
            same = timed.begin.apply_range(timed.begin.reverse())
            if timeline.feasible(timed) and scheduled(
                timeline.flow, f" after start at {shown(costs)}", edges.intersect(same)
            ):
                return f"start times of {letter}, then a clock found by isl's scheduler"
    raise Unsettled(f"no deadlock: {why}")


def scheduled(flow: Flow, after: str, edges: UnionMap) -> bool:
    """Return True if isl's scheduler finds a clock that increases along these edges. after: the clock that increases
    along the other edges.
    """
    rel, kind = flow.rel, isl().dim_type
    clocks = cache(lambda: _schedule(flow, edges))
    try:
        made = rel.union(rel.of(x, word) for x in flow.nodes if (word := [*_word(rel, x, after, clocks)]))
    except isl().Error as error:
        if "maximal number" in str(error):
            raise
        return False
    if not rel.holds(f"clock{after} is known everywhere", flow.points, made.domain()):
        return False
    later = parts(edges.apply_domain(made).apply_range(made))
    return all(
        x.dim(kind.in_) == x.dim(kind.out)
        and rel.holds(f"clock{after} grows along every edge", x, isl().Map.lex_lt(x.get_space().domain()))
        for x in later
    )


def _schedule(flow: Flow, edges: UnionMap) -> UnionMap:
    return isl().ScheduleConstraints.on_domain(flow.points).set_validity(edges).compute_schedule().get_map()


def _word(rel: Relations, x: Statement, after: str, clocks: Callable[[], UnionMap]) -> Iterator[PwAff]:
    """Yield the components of a statement's clock, as found by isl's scheduler."""
    for k in count():
        what = f"clock {k}{after} at {x.name}"
        number = rel.model.evidence.guess(what, rel.space, lambda k=k: _scheduled(clocks, x, k))  # type: ignore[misc]
        if number is None:
            return
        yield number


def _scheduled(clocks: Callable[[], UnionMap], x: Statement, k: int) -> PwAff | None:
    """Return a component of the clock that isl's scheduler finds."""
    kind = isl().dim_type
    for own in parts(clocks()):
        if own.get_tuple_name(kind.in_) == x.name and k < own.dim(kind.out):
            return isl().PwMultiAff.from_map(own.reset_tuple_id(kind.in_)).get_pw_aff(k)
    return None
