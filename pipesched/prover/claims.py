"""Proofs of a file's claims, for all sizes and all costs that satisfy their conditions.

A claim is split where its condition or its costs require it. Each part is a cone of costs in which both sides are
linear, so a claim that holds at the generators of the cone holds everywhere in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from pipesched.extension import ClaimName, rows
from pipesched.language import ast
from pipesched.language.claims import COSTS
from pipesched.model.costs import PAIRS
from pipesched.prover.cones import Cone, Form
from pipesched.prover.facts import Facts, single, valued, whole
from pipesched.prover.forms import FIGURES, UNIT, Part, as_sum, costs_in, degree, degrees, linear, parts, positive
from pipesched.prover.presburger import PwAff, Set, Value, isl, only_point, smallest
from pipesched.prover.question import Question
from pipesched.prover.relations import Unsettled
from pipesched.prover.replay import Costs, cost_of
from pipesched.prover.scope import Figure, Scope, evaluate
from pipesched.prover.timeline import shown

_COMPARES = {"==": "eq_set", "<=": "le_set", ">=": "ge_set"}
_DEGREE = dict.fromkeys(FIGURES, 1)
_COUNTED = {**_DEGREE, "peak": 0}
_MEMORY = {"M", "K"}
_TIMES = {*FIGURES} - {"peak", "host"}
_SHARES = {"bubble": ("idle", "makespan"), "span_bubble": ("span_idle", "span")}
VARY, FORMS = 7, 12  # most costs that vary, and most conditions on them


class Fails(Unsettled):
    """A claim with a known counterexample: the costs, and the first size at which the claim is false."""

    def __init__(self, costs: Costs, size: dict[str, int]) -> None:
        where = " ".join(f"{name}={value}" for name, value in size.items())
        super().__init__(f"with {shown(costs)} the claim is false at {where}")
        self.costs, self.size = costs, size


@dataclass(eq=False)
class Proof:
    """The proof of one claim for one question."""

    question: Question
    claim: ast.Claim
    applies: bool = False
    unit: bool = False  # the claim compares costs with numbers

    def prove(self) -> list[Cone]:
        """Return the cones of costs for which the claim holds; together they cover its condition.

        Raises:
            Unsettled: a part of the claim is not proved. NotAffine: the claim's condition does not have a supported
                form.
        """
        self._require_sums()
        proved: list[Cone] = []
        for question, cones, ranks in self._parts():
            if question.settled(lambda own=question: _without_sizes(own)):  # type: ignore[misc]
                continue
            self.applies = True
            for cone in cones:
                part = self._part(question, cone, ranks)
                question.settled(part.prove)
            proved += cones
        return proved

    def _part(self, question: Question, cone: Cone, ranks: tuple[ast.Expression, ...]) -> _Part:
        return _Part(question, self._node, cone, ranks, even=self._even, sized=self.sized)

    def false(self, costs: Costs) -> Iterator[dict[str, int]]:
        """Yield, for each part of the claim's condition, the smallest size at which the claim is false at these costs.

        Raises:
            Unsettled, NotAffine: as for `prove`.
        """
        for question, cones, ranks in self._parts():
            assert question.settled(lambda own=question: own.clock)  # type: ignore[misc]
            for ray in {ray: None for cone in cones if (ray := cone.ray(costs)) is not None}:
                try:
                    question.settled(self._part(question, ray, ranks).prove)
                except Fails as error:
                    yield error.size

    def generators(self) -> list[list[dict[str, int]]]:
        """Return, for each cone of costs, its generators."""
        return [cone.generators for _, cones, _ in self._parts() for cone in cones]

    @cached_property
    def counted(self) -> bool:
        """True if the claim compares a peak with a number derived from sizes, so it holds only for M = 1."""
        claim = self.claim.claim
        if costs_in(claim) or ast.names_in(claim) & set(FIGURES) != {"peak"} or not isinstance(claim, ast.Binary):
            return False
        if self.claim.condition is not None and costs_in(self.claim.condition) & _MEMORY:
            return False
        return {degree(x, _COUNTED) for x in (claim.left, claim.right)} <= {0, None}

    @property
    def where(self) -> str:
        """The costs to which the proof is limited, as text; empty if the proof covers the claim's whole condition."""
        if not self.applies:
            return "the claim's condition holds at no size"
        if self.counted:
            return "at tM == 1"
        found = [f"t{pair} == t{pair[0]} + t{pair[1]}" for pair in self._summed]
        _, of_sizes = _sides(self._node)
        if of_sizes and not positive(self.claim.condition):
            assert isinstance(self._node.left, ast.Binary)
            length = self._node.left.right
            found.append(f"{length.id if isinstance(length, ast.Name) else length.span.text} > 0")
        return f"where {' and '.join(found)}" if found else ""

    @cached_property
    def _summed(self) -> list[str]:
        """The overlap pairs whose cost no claim can name; a proof uses the sum of the costs of both parts."""
        if ast.names_in(self._node).isdisjoint(_TIMES):
            return []
        kinds = self.question.settled(lambda: self.question.timeline.kinds)
        return [pair for pair in PAIRS if f"t{pair}" not in COSTS and pair in kinds.values()]

    def _require_sums(self) -> None:
        """Require that the file gives no other cost for these pairs; raise Unsettled if it does."""
        items = self.question.file.items
        given = {entry.name for item in items if isinstance(item, ast.Costs) for entry in item.entries}
        for pair in self._summed:
            if pair in given or any(isinstance(item, ast.Parts) for item in items):
                raise Unsettled(f"the file gives the cost of an overlap of {pair[0]} and {pair[1]}")

    @cached_property
    def _even(self) -> bool:
        """True if the claim names a bubble, which equals idle / makespan if every rank has the same work."""
        return not ast.names_in(self.claim.claim).isdisjoint(_SHARES)

    @cached_property
    def _node(self) -> ast.Binary:
        """The claim's comparison."""
        claim = self.claim
        self._require_known_names()
        if claim.release not in (None, "W"):
            raise Unsettled(f"`release {claim.release}`")
        if not isinstance(claim.claim, ast.Binary) or not (self.sized or claim.claim.operator in _COMPARES):
            raise Unsettled("the claim is not a comparison with `==`, `<=` or `>=`")
        if self.counted or self.sized:
            return claim.claim
        node = _quotient(claim.claim) if self._even else claim.claim
        of_costs, of_sizes = _sides(node)
        found = set().union(*(degrees(x, _DEGREE) for x in of_costs))
        sizes = {degree(x, _DEGREE) for x in of_sizes}
        if 1 not in found or not found <= ({1} if of_sizes else {0, 1}) or not sizes <= {0, None}:
            raise Unsettled("the claim's sides are not linear in the costs")
        self.unit = 0 in found
        return node

    def _require_known_names(self) -> None:
        """Require that the claim's figures have their usual meaning; raise Unsettled otherwise."""
        file, names = self.question.file, ast.names_in(self.claim.claim)
        own = {x.name.id for x in file.parameters} | {x.name.id for x in file.items if isinstance(x, ast.Let)}
        if shadowed := own & (COSTS.keys() | set(FIGURES)):
            raise Unsettled(f"the file defines `{min(shadowed)}` as a name of its own")
        if unknown := names & ({"host", *(row.name for row in rows(ClaimName))} - own):
            raise Unsettled(f"`prove` does not support `{min(unknown)}`")

    @property
    def sized(self) -> bool:
        """True if the claim has neither costs nor figures, so it must hold regardless of its condition on costs."""
        return not costs_in(self.claim.claim) and ast.names_in(self.claim.claim).isdisjoint(FIGURES)

    def _parts(self) -> Iterator[tuple[Question, list[Cone], tuple[ast.Expression, ...]]]:
        """Yield each set of sizes with the cones of costs in which the claim is linear, and the conditions on ranks."""
        model, node = self.question.model, self._node
        scope = model.sized(model.space, None)
        for part in parts(self.claim.condition, scope):
            if len(part.forms) > FORMS:
                raise Unsettled("the claim has too many conditions on costs")
            ranks = tuple(x for x in part.sizes if not ast.names_in(x).isdisjoint(_variables(self.question)))
            question = self.question.narrowed(tuple(x for x in part.sizes if x not in ranks))
            if self.sized:
                yield question, [Cone.of(["F"], [])], ranks
                continue
            names = self._names(part)
            less = [{"M": Fraction(1), "K": Fraction(-1)}] if "K" in names else []  # K is a part of M
            if "C" in names and "C" not in costs_in(node) and _grows(node) and not any("C" in x for x in part.named):
                less.append({"C": Fraction(-1)})  # it grows with the latency: the least suffices
            cone = Cone.of(names, [*_kept(part, names), *less])
            yield question, linear(node, cone, scope), ranks

    def _names(self, part: Part) -> list[str]:
        """Return the names of the costs on which a part of the claim depends."""
        node = self._node
        used = costs_in(node) | {name for form in part.forms for name, _ in form}
        unit = [UNIT] if UNIT in used or self.unit else []
        used = (used - {UNIT} - _MEMORY) | costs_in(node)
        if "peak" in ast.names_in(node):
            if not costs_in(node) <= _MEMORY or ast.names_in(node) & (set(FIGURES) - {"peak"}):
                raise Unsettled("the claim mentions both memory and time")
            known = self.question.settled(lambda: self.question.model.statements)
            again = any(x.letter == "R" for x in known)
            return ["M", *(["K"] if again and not self.counted else []), *unit]
        letters = self.question.settled(lambda: self.question.timeline.letters)
        names = [*dict.fromkeys((*letters, "C", *sorted(used))), *unit]
        if len(names) > VARY or used & _MEMORY:
            raise Unsettled("the claim mentions too many costs")
        return names


def _grows(node: ast.Binary) -> bool:
    """Return True if a claim is a lower bound on the makespan or on the idle time."""
    sides = {">=": (node.left, node.right), "<=": (node.right, node.left)}.get(node.operator)
    if sides is None or not isinstance(sides[0], ast.Name) or sides[0].id not in ("makespan", "idle"):
        return False
    return ast.names_in(sides[1]).isdisjoint(FIGURES)


def _without_sizes(question: Question) -> bool:
    """Return True if a question does not cover any size."""
    sizes = question.model.sizes
    return question.evidence.holds("there is no size", sizes, sizes.empty(sizes.get_space()))


def _weighed(node: ast.Expression, scope: Scope, unit: int | None) -> Value:
    """Return the value of a side in which each term without a cost counts `unit` times."""
    if unit is not None and (whole := as_sum(node, _DEGREE)) is not None:
        left, right = (_weighed(x, scope, unit) for x in (whole.left, whole.right))
        return left.add(right) if whole.operator == "+" else left.sub(right)
    value = scope.lifted(evaluate(node, scope))
    return value.scale_val(scope.space.value(unit)) if unit is not None and degree(node, _DEGREE) == 0 else value


def _quotient(node: ast.Binary) -> ast.Binary:
    """Return ``bubble == a / b`` as ``idle / makespan == a / b``, and ``bubble == 0`` as ``idle == 0``; likewise for
    spans.
    """
    match node:
        case ast.Binary(operator="==", left=ast.Name(span=span, id="bubble" | "span_bubble" as name)):
            idle, whole = (ast.Name(span, x) for x in _SHARES[name])
            if isinstance(node.right, ast.Number) and node.right.value == 0:
                return ast.Binary(node.span, "==", idle, node.right)
            if isinstance(node.right, ast.Binary) and node.right.operator == "/":
                return ast.Binary(node.span, "==", ast.Binary(span, "/", idle, whole), node.right)
    raise Unsettled("a claim on a bubble must state that it is equal to a quotient or to 0")


def _kept(part: Part, names: Sequence[str]) -> list[Form]:
    """Return the conditions that involve only these costs; raise Unsettled if one also involves other costs."""
    own = {*names} - {UNIT}
    found = [form for form in part.named if not form.keys().isdisjoint(own)]
    if any(not form.keys() <= {*names} for form in found):
        raise Unsettled("the claim mentions both memory and time")
    return found


def _times(costs: Costs) -> Costs:
    """Return the costs without the unit."""
    return {name: value for name, value in costs.items() if name != UNIT}


def _variables(question: Question) -> list[str]:
    """Return the names of the rank variables in the programs of a file."""
    ranks = [x.rank for x in question.file.items if isinstance(x, ast.Rank)]
    return [x.id for x in ranks if isinstance(x, ast.Name) and not question.model.known(x)]


def _sides(node: ast.Binary) -> tuple[list[ast.Expression], list[ast.Expression]]:
    """Return the sides of a claim; for quotients ``a / b == c / d`` return a and b, and the two sizes c and d."""
    match node:
        case ast.Binary(
            operator="==",
            left=ast.Binary(operator="/", left=a, right=b),
            right=ast.Binary(operator="/", left=c, right=d),
        ) if not ast.names_in(b).isdisjoint(FIGURES):
            return [a, b], [c, d]
    return [node.left, node.right], []


@dataclass(eq=False)
class _Part:
    """The claim's comparison on a cone on which it is linear. ranks: conditions on the rank. even: whether all ranks
    must have the same work. sized: whether the comparison depends only on sizes.
    """

    question: Question
    node: ast.Binary
    cone: Cone
    ranks: tuple[ast.Expression, ...] = ()
    even: bool = False
    sized: bool = False

    @cached_property
    def generators(self) -> list[dict[str, int]]:
        return self.cone.generators

    @cached_property
    def facts(self) -> Facts:
        return self.question.facts

    def prove(self) -> None:
        """Prove the comparison at every generator; raise Unsettled if it fails or is not proved at some generator."""
        figures = {name: self._figures(name) for name in FIGURES if name in ast.names_in(self.node)}
        for at, costs in enumerate(self.generators):
            scope = self.question.model.sized(self.facts.space, self.question.model.ranks)
            scope.values |= {name: costs.get(key, 0) for name, key in COSTS.items() if key in costs}
            scope.values |= {name: self._figure(of, at) for name, of in figures.items()}
            for rank in _variables(self.question):
                scope.values[rank] = self.facts.space.named("r")
            if self.even and not self.facts.alike(f"work at {shown(costs)} is that of all ranks", self._work(costs)):
                raise Unsettled("ranks have unequal work, so the bubble is not idle / makespan")
            holds = self._holding(scope, costs.get(UNIT))
            for condition in self.ranks:
                holds = holds.union(scope.holding(evaluate(condition, scope)).complement())
            said = " ".join(self.node.span.text.split())
            if not self.facts.everywhere(f"{said} at {shown(costs)}", holds):
                raise Fails(costs, self._least(self.question.model.ranks.subtract(holds)))

    def _holding(self, scope: Scope, unit: int | None) -> Set:
        """Return the sizes and ranks for which the comparison holds. unit: the factor for terms without a cost."""
        if self.sized:
            return scope.holding(evaluate(self.node, scope))
        of_costs = [_weighed(x, scope, unit) for x in _sides(self.node)[0]]
        of_sizes = [scope.lifted(evaluate(x, scope)) for x in _sides(self.node)[1]]
        if of_sizes:
            return self._equal(*of_costs, *of_sizes)
        left, right = of_costs
        return getattr(left, _COMPARES[self.node.operator])(right)

    def _least(self, of: Set) -> dict[str, int]:
        """Return the smallest size in a set: the smallest p + m, then the fewest ranks."""
        model = self.question.model
        if model.digits:
            own = isl().dim_type
            least = of.move_dims(own.set, 0, own.param, 0, len(model.parameters)).lexmin()
            point = only_point(least)[: len(model.parameters)]
        else:
            point = smallest(of, len(model.parameters))
        return {**self.question.given, **model.known_at(point)}

    def _equal(self, a: PwAff, b: PwAff, c: PwAff, d: PwAff) -> Set:
        """Return the set where ``a / b == c / d``, with b and d above 0: where the polynomial ``a d - b c`` is 0."""
        ranks = self.question.model.ranks
        space = self.facts.space
        polynomials = [space.polynomial(x, ranks) for x in (a, d, b, c)]
        if not polynomials[0].mul(polynomials[1]).sub(polynomials[2].mul(polynomials[3])).is_zero():
            raise Unsettled("the quotients could not be shown to be equal")
        said = " ".join(self.node.span.text.split())
        self.question.evidence.equal(
            f"{said}: a d == b c of these quotients a / b and c / d",
            lambda: [[digit.intersect_domain(ranks) for digit in space.digits(x)] for x in (a, d, b, c)],
        )
        return b.pos_set().intersect(d.pos_set())

    def _figures(self, name: str) -> Sequence[PwAff]:
        """Return a figure (peak, makespan, …) at each generator, for each rank."""
        facts = self.facts
        if name == "peak":
            facts.claimed = self._claimed() if len(self.generators) == 1 else None
            return [
                x.scale_down_val(facts.space.value(self._chunks()))
                for x in facts.peaks([*map(_times, self.generators)])
            ]
        if name == "work":
            return [self._work(costs) for costs in self.generators]
        if name not in ("makespan", "span", "idle", "span_idle"):
            raise Unsettled(f"`prove` does not support `{name}`")
        times = self.question.times([_times(costs) for costs in self.generators])
        whole = facts.makespans(times) if name in ("makespan", "idle") else facts.spans(times)
        if "idle" not in name:
            return whole
        return [length.sub(self._work(costs)) for length, costs in zip(whole, self.generators, strict=True)]

    def _claimed(self) -> PwAff | None:
        """Return the formula that the claim gives for the peak of every rank or of all ranks, or None."""
        node, facts = self.node, self.facts
        facts.of_all = isinstance(node.left, ast.Name) and node.left.id == "peak"
        known = facts.of_all or (isinstance(node.left, ast.Call) and node.left.function.id == "peak")
        if node.operator != "==" or not known or ast.names_in(node.right) & set(FIGURES):
            return None
        scope = self.question.model.sized(facts.space, self.question.model.ranks)
        scope.values |= {"tM": 1, **{rank: facts.space.named("r") for rank in _variables(self.question)}}
        said = scope.lifted(evaluate(node.right, scope)).scale_val(facts.space.value(self._chunks()))
        return said.intersect_domain(self.question.model.ranks)

    def _work(self, costs: Costs) -> PwAff:
        space = self.facts.space
        total = space.number(0).intersect_domain(self.question.model.ranks)
        for kind, count in self.facts.counts.items():
            total = total.add(count.scale_val(space.value(cost_of(kind, costs))))
        return total

    def _chunks(self) -> int:
        """Return the number of stages per rank."""
        model = self.question.model
        space = self.facts.space
        for chunks in range(1, len(model.placing.chunks) + 1):
            r = space.named("r")
            below = r.lt_set(model.count(space).scale_val(space.value(chunks))).intersect(r.ge_set(space.number(0)))
            stages, below = (x.intersect_params(model.sizes) for x in (model.placing.stages, below))
            what = f"{chunks} stages for each rank"
            holds = self.question.evidence.holds
            if holds(f"{what}: not more", stages, below) and holds(f"{what}: not fewer", below, stages):
                return chunks
        raise Unsettled("peak: the number of stages is not a multiple of the number of ranks")

    def _figure(self, of: Sequence[PwAff], at: int) -> Figure:
        """Return a figure at one generator: its value for a given rank, and the largest value over all ranks."""
        r = self.facts.space.named("r")
        ranks = self.question.model.ranks

        def of_rank(rank: Value) -> Value:
            place = self.facts.space.number(rank) if isinstance(rank, int) else rank
            if ranks.is_subset(place.eq_set(r)):
                return of[at]
            varies = any(x.involves_dims(isl().dim_type.in_, 0, 1) for x in self.facts.space.digits(place))
            own = ranks.intersect(place.eq_set(r)).params()
            if varies or not self.question.evidence.holds("there is a rank of this number", ranks.params(), own):
                raise Unsettled("the claim names a rank that does not exist, or that varies")
            return self._at(of[at], ranks.intersect(place.eq_set(r)))

        def largest() -> Value:
            witness = ranks
            for each in of:
                own = valued(self.facts.space, whole(self.facts.space, each)[0].intersect_domain(ranks))
                witness = witness.subtract(
                    own.apply_range(self.facts.space.below()).apply_range(own.reverse()).domain()
                )
            what = f"one rank has the most at {' and '.join(map(shown, self.generators))}"
            if not self.question.evidence.holds(what, ranks.params(), witness.params()):
                raise Unsettled("at costs in between, another rank may have the largest value")
            return self._at(of[at], witness.lexmin())

        return Figure(of_rank, largest)

    def _at(self, of: PwAff, rank: Set) -> PwAff:
        """Return the value at one rank, as a constant for all ranks."""
        space = self.facts.space
        every = isl().Map.from_domain_and_range(self.question.model.ranks, rank)
        made, times = whole(space, of)
        return single(space, every.apply_range(valued(space, made))).scale_down_val(space.value(times))
