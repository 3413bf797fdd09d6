"""The order and the data flow of a file as relations between instances of its statements.

    turns       S[r, i] -> [k]
    keys        S[r, i] -> [s, j]
    order       S[r, i] -> T[r, k]
    flow        S[r, i] -> T[q, k]

The turn k of an instance is the number of instances of its class that ran before it on the rank; its key is its stage
and microbatch. In the order, T comes later on the same rank; in the flow, T takes the result of S. Turns are guessed,
then proved: they increase along the order, and their values on a rank are 0, 1, 2, … without a gap. Only one function
has both of these properties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, product

from pipesched.prover.digits import DigitSpace
from pipesched.prover.guess import Guesses, of_statements
from pipesched.prover.model import Model
from pipesched.prover.presburger import Map, PwAff, Set, Space, UnionMap, UnionSet, Value, isl, maps_to, parts, union
from pipesched.prover.sampling import OF, Sample
from pipesched.prover.statements import Statement


class Unsettled(Exception):
    """A property could not be proved; the message names the step that failed."""


def words(statements: Iterable[Statement]) -> str:
    """Return the letters of statements, separated by commas."""
    return ", ".join(dict.fromkeys(x.letter for x in statements))


@dataclass(eq=False)
class Relations:
    """The relations of a model, with the facts about them that are proved."""

    model: Model
    sample: Sample
    domains: dict[str, Set] = field(default_factory=dict)
    _turns: dict[frozenset[str], Mapping[str, PwAff]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.space: Space = self.model.space
        self.empty = f"[{', '.join(self.model.parameters)}] -> {{ }}"
        self.statements = self.model.statements
        self.number = {x.name: k for k, x in enumerate(self.statements)}
        empty = self.space.universe.complement()
        self.domains = {x.name: empty if x.drain else x.domain for x in self.statements}
        for each in self.statements:
            if each.drain:
                self.domains[each.name] = self._drained(each)
                for name in ("rank", "order"):
                    self.__dict__.pop(name, None)

    @cached_property
    def guesses(self) -> list[Guesses]:
        """For each statement, the guesses of values at its points."""
        return of_statements(self.sample)

    def union(self, maps: Iterable[Map]) -> UnionMap:
        """Return the union of the maps of several statements."""
        return union([*maps], self.empty, self.model.context)

    def points(self, statements: Iterable[Statement]) -> UnionSet:
        """Return all instances of some statements."""
        made = isl().UnionSet.read_from_str(self.model.context, self.empty)
        for x in statements:
            made = made.union(isl().UnionSet.from_set(self.domains[x.name].set_tuple_name(x.name)))
        return made

    def of(self, statement: Statement, expressions: list[PwAff]) -> Map:
        """Return the map ``S[...] -> [expressions]``."""
        return maps_to(expressions, self.domains[statement.name], statement.name)

    def to(self, statement: Statement, *values: Value) -> Map:
        """Return the map ``S[...] -> [values]``, each value as its digits."""
        own = self.domains[statement.name]
        return self.of(
            statement, [digit for value in values for digit in self.space.digits(value.intersect_domain(own).gist(own))]
        )

    def valued(self, of: Mapping[str, PwAff]) -> UnionMap:
        """Return the map ``S[...] -> [value]`` of several statements."""
        return self.union(maps_to(self.space.digits(x), self.domains[name], name) for name, x in of.items())

    def related(self, of: Map) -> UnionMap:
        """Convert a map to a union map."""
        return isl().UnionMap.from_map(of)

    def read(self, text: str) -> UnionMap:
        """Parse a map."""
        return isl().UnionMap.read_from_str(self.model.context, text)

    @cached_property
    def rank(self) -> UnionMap:
        """The map ``S[r, ...] -> [r]``."""
        return self.union(self.rank_of(x) for x in self.statements)

    @cached_property
    def order(self) -> UnionMap:
        """A map from each instance to the later instances on its rank."""
        ranks = {x.name: self.rank_of(x).range() for x in self.statements}
        pairs = product(self.statements, repeat=2)
        return self.union(self._later(x, y) for x, y in pairs if not ranks[x.name].is_disjoint(ranks[y.name]))

    def _later(self, x: Statement, y: Statement) -> Map:
        """Return the map from instances of one statement to later instances of another statement on the same rank."""
        kind, loops = isl().dim_type, count(1)
        first, second = (self.domains[each.name].set_tuple_name(each.name) for each in (x, y))
        same = isl().Map.from_domain_and_range(first, second).equate(kind.in_, 0, kind.out, 0)
        found = same.subtract(same)
        for own, other in zip(x.place, y.place, strict=False):
            if (own is None) != (other is None):
                raise Unsettled("the order of a rank's operations is not known")
            if own is None or other is None:
                k = next(loops)
                found = found.union(same.order_lt(kind.in_, k, kind.out, k))
                same = same.equate(kind.in_, k, kind.out, k)
            elif own != other:
                return (found.union(same) if own < other else found).coalesce()
        return found.coalesce()

    def fitted(self, statement: Statement, of: str, values: Mapping[int, int]) -> Value | None:
        """Return a guess at values of a statement's instances. of: the meaning of the values. values: the values of
        instances, by the identity of the instance.
        """
        number = self.number[statement.name]
        return self.guessed(
            f"{of} at {statement.name}",
            self.space,
            self.domains[statement.name],
            lambda: self.guesses[number].through([values[id(each)] for each in self.sample.of(number)]),
        )

    def guessed(self, of: str, space: Space, where: Set, make: Callable[[], Value | None]) -> Value | None:
        """Return a guess at a value on a set; the guess is made digit by digit."""
        evidence = self.model.evidence
        if not isinstance(space, DigitSpace):
            return evidence.guess(of, space, make)
        found: list[list[PwAff] | None] = []

        def digit(k: int) -> PwAff | None:
            if not found:
                value = make()
                found.append(None if value is None else space.digits(value.intersect_domain(where).gist(where)))
            return found[0] and found[0][k]

        first, last = (
            evidence.guess(f"{of}: {name} by p", space, lambda k=k: digit(k))  # type: ignore[misc]
            for k, name in enumerate(("quotient", "rest"))
        )
        if first is None or last is None:
            return None
        below = last.nonneg_set().intersect(last.lt_set(space.raw("p")))
        own = where.intersect(last.domain())
        return space.joined([first, last]) if self.holds(f"{of}: the rest is below p", own, below) else None

    def holds(self, what: str, left: UnionMap, right: UnionMap) -> bool:
        """Return True if one set is within another set, and add the inclusion to the proof."""
        return self.model.evidence.holds(what, left, right)

    # Turns

    def turns(self, statements: Iterable[Statement]) -> Mapping[str, PwAff]:
        """Map each statement to the number of instances of these statements that run before its own on the rank.

        Raises:
            Unsettled: no guess is proved.
        """
        of = [*statements]
        names = frozenset(x.name for x in of)
        if names not in self._turns:
            self._turns[names] = self._counted(of)
        return self._turns[names]

    def _counted(self, of: list[Statement]) -> Mapping[str, PwAff]:
        numbers = {self.number[x.name] for x in of}
        counted: dict[int, int] = {}
        for instances in self.sample.ranks.values():
            mine = [x for x in instances if x.statement in numbers]
            counted |= {id(x): k for k, x in enumerate(mine)}
        found, what = {}, f"the count of {' '.join(x.name for x in of)}"
        for x in of:
            guess = self.fitted(x, what, counted)
            if guess is None:
                what = f"the count of {words(of)}"
                raise Unsettled(f"{what}: no expression with few cases fits {x.letter} at `{x.span.text}`")
            found[x.name] = guess
        self._prove_turns(of, self.valued(found))
        return found

    def _prove_turns(self, of: list[Statement], turn: UnionMap) -> None:
        """Require that `turn` counts the earlier instances; raise Unsettled if this is not proved."""
        what = f"the count of {words(of)}"
        names = f"the count of {' '.join(x.name for x in of)}"
        if not self.holds(f"{names} is known everywhere", self.points(of), turn.domain()):
            raise Unsettled(f"{what} is not known at every size")
        less = self.related(self.space.below())
        if not self.holds(f"{names} grows along the order", self.order.apply_domain(turn).apply_range(turn), less):
            raise Unsettled(f"{what} does not grow along the order")
        held = self.reached(turn)
        before = self.read(self.space.less_one())
        if not self.holds(f"{names} has no gaps", held.apply_range(before), held):
            raise Unsettled(f"{what} has gaps")

    def reached_by(self, of: Iterable[Statement]) -> UnionSet:
        """Return ``[r]``: the ranks that run some of these statements."""
        return self.points(of).apply(self.rank)

    def reached(self, turn: UnionMap) -> UnionMap:
        """Return the map ``[r] -> [k]`` to the turns on each rank."""
        return self.rank.reverse().apply_range(turn)

    def _drained(self, drain: Statement) -> Set:
        """Return the points of a drain, whose loop runs once for each earlier I without a W; raise Unsettled if they
        are not known.
        """
        if drain.loops != 1:
            raise Unsettled("a `drain` in a loop")
        before = [x for x in self.statements if first(x) < first(drain) and _alike(x, drain)]
        missing = self.space.number(0)
        for letter, sign in ((OF["W"], 1), ("W", -1)):
            of = [x for x in before if x.letter == letter]
            missing = missing.add(self._total(of, drain.domain).scale_val(self.space.value(sign)))
        return drain.domain.intersect(self.space.named(self.space.dims[1]).lt_set(missing))

    def _total(self, of: list[Statement], points: Set) -> PwAff:
        """Return the number of instances of the statements on the rank of each point."""
        total = self.space.number(0)
        for last in parts(self.reached(self.valued(self.turns(of))).lexmax()) if of else ():
            rank = isl().Map.from_pw_aff(self.space.named("r").intersect_domain(points))
            value = isl().PwMultiAff.from_map(rank.apply_range(last)).get_pw_aff(0).add(self.space.number(1))
            total = value.union_add(total.subtract_domain(value.domain()))
        return total

    def _prove_drained(self, drain: Statement) -> None:
        """Require that no W is pending after a drain, and that W never outnumber I; raise Unsettled otherwise."""
        mine = [x for x in self.statements if x.letter in ("I", "W") and _alike(x, drain)]
        until = [x for x in mine if first(x) <= first(drain)]
        made, taken = ([x for x in until if x.letter == letter] for letter in (OF["W"], "W"))
        ran, freed = (self.reached(self.valued(self.turns(of))) for of in (made, taken))
        what = f"as many W as I until {drain.name}"
        if not (self.holds(f"{what}: not fewer", ran, freed) and self.holds(f"{what}: not more", freed, ran)):
            raise Unsettled("the number of W that are drained is not known")

    # Keys

    @cached_property
    def keys(self) -> Mapping[str, Map]:
        """The stage and microbatch of each instance of each statement, as ``S[...] -> [s, j]``.

        Raises:
            Unsettled: the microbatch of an instance is not proved.
        """
        found: dict[str, Map] = {}
        for of in self._grouped(_class):
            named = {x.microbatch is not None for x in of}
            if len(named) > 1:
                raise Unsettled(f"{words(of)}: some operations name their microbatch, and others take the next one")
            turns = {x.name: x.microbatch for x in of} if True in named else self.turns(of)
            for x in of:
                found[x.name] = self._key(x, turns[x.name], named=True in named)
        for letter, source in OF.items():
            for of in self._oldest(letter):
                found |= self._keys_of_oldest(of, source, found)
        for x in self.statements:
            if x.drain:
                self._prove_drained(x)
        return found

    def _grouped(self, kind: Callable[[Statement], str | None]) -> list[list[Statement]]:
        """Return the statements by class and chunk. kind: returns a statement's class, or None to leave the statement
        out.
        """
        found: dict[tuple[str, object], list[Statement]] = {}
        for x in self.statements:
            if (name := kind(x)) is not None:
                found.setdefault((name, x.chunk), []).append(x)
        return [*found.values()]

    def _oldest(self, letter: str) -> list[list[Statement]]:
        groups = self._grouped(lambda x: letter if x.letter == letter else None)
        if len(groups) > 1 and any(x.chunk is None for of in groups for x in of):
            raise Unsettled(f"some {letter} take any chunk, and other {letter} name their chunk")
        return groups

    def _key(self, x: Statement, turn: Value, *, named: bool) -> Map:
        model, count = self.model, len(self.model.placing.home)
        scope = model.sized(self.space, None)
        turn = scope.lifted(turn)
        if x.letter in "IB" and not named and model.slices > 1:
            wide = self.space.value(model.slices)
            left = turn.sub(turn.scale_down_val(wide).floor().scale_val(wide))
            turn = turn.sub(left.scale_val(self.space.value(2))).add(self.space.number(model.slices - 1))
        chunk = self.rank_of(x).apply_range(model.placing.chunks[x.chunk])
        made: Map | None = None
        for route in range(count):
            ends = model.placing.ends[route]
            low = self.space.number(0) if ends is None or named else scope.lifted(ends.of(scope)[0])
            own = chunk.fix_val(isl().dim_type.out, 0, self.space.value(route))
            own = own.project_out(isl().dim_type.out, 0, 1).flat_range_product(self.to(x, turn.add(low)))
            made = own if made is None else made.union(own)
        return made

    def rank_of(self, x: Statement) -> Map:
        """Return the map ``S[r, ...] -> [r]`` of a statement."""
        return self.of(x, [self.space.raw("r")])

    def _keys_of_oldest(self, of: list[Statement], source: str, known: Mapping[str, Map]) -> dict[str, Map]:
        """Return the keys of statements whose k-th instance takes the microbatch of the k-th instance of the source."""
        if any(x.microbatch is not None for x in of):
            raise Unsettled(f"`prove` does not support {words(of)} that names its microbatch")
        if source == "F" and self.model.slices > 1:
            raise Unsettled(f"{words(of)} of slices")
        sources = [x for x in self.statements if x.letter == source and _alike(x, of[0])]
        turns, r = self.turns(sources), self.space.raw("r")
        table: Map | None = None
        for x in sources:
            own = self.of(x, [r, *self.space.digits(turns[x.name])]).reverse().apply_range(known[x.name])
            table = own if table is None else table.union(own)
        if table is None:
            raise Unsettled(f"{words(of)} without {source}")
        mine = self.turns(of)
        return {x.name: self.of(x, [r, *self.space.digits(mine[x.name])]).apply_range(table) for x in of}

    def made(self, letters: str) -> UnionMap:
        """Return the map ``S[...] -> [s, j]`` of the statements with these letters."""
        return self.union(self.keys[x.name] for x in self.statements if x.letter in letters)


def _class(x: Statement) -> str | None:
    """Return the class of statements that count their microbatches together: F, or G for I and B; None for kinds that
    take the oldest operation of another kind.
    """
    return "G" if x.letter in "IB" else "F" if x.letter == "F" else None


def first(x: Statement) -> int:
    """Return the index of a statement's outermost item in its program."""
    assert x.place[0] is not None
    return x.place[0]


def _alike(x: Statement, other: Statement) -> bool:
    """Return True if the statements may belong to the same chunk."""
    return None in (x.chunk, other.chunk) or x.chunk == other.chunk
