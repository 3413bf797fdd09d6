"""The search over alternatives: the most promising ones first, until no other alternative can be better.

    seeds     ─ known orders and heuristics ─> a value          excludes alternatives by their quick bounds
    the rest  ─ sorted by the bound ─────────> heuristics on the first ones: the value falls
              ─ in this order: excluded by its bound, by `ranks`, or searched until its bound reaches the value

The final search for orders of the best alternative is `solve.search`, limited only by time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil

from pipesched.optimizer.decisions.over_all import LISTED, RANKED, STEPS, impossible, lower
from pipesched.optimizer.decisions.partition import Choice, Partition
from pipesched.optimizer.optimize_certify import certified
from pipesched.optimizer.proof.problem import problem as whole
from pipesched.optimizer.proof.ranks import too_busy
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.bounds.least_cap import infeasible
from pipesched.optimizer.solve.bounds.lower_bound import lower_bound
from pipesched.optimizer.solve.instance import Instance
from pipesched.optimizer.solve.meter import SECOND, Meter
from pipesched.optimizer.solve.portfolio import orders as heuristic_orders
from pipesched.optimizer.solve.problem import Orders, Problem
from pipesched.optimizer.solve.search.search import search
from pipesched.optimizer.solve.search.state import INTERRUPTED, Limits, State

_FIRST, _EACH = 12, 150  # alternatives on which heuristics are tried; steps of each per operation
_SHARE = 0.25  # an alternative that is not the best gets at most this part of what is left
_LEAST = SECOND  # steps that an alternative gets at least
_BOUNDS, _LISTING = 50, 0.4  # steps per operation for the bounds of an alternative; part of the time for all of these
_RANKED = 2 / 3  # steps for each step of `ranks`, here and by the checker

Progress = Callable[[State], None]


@dataclass(eq=False)
class Best:
    """The best alternative so far. orders: its best orders; searched: the alternatives whose orders were
    searched.

    proofs: the LRAT proof, as in a certificate, by alternative that it excludes; empty if `ranks` excludes it.
    """

    choice: Choice | None = None
    value: Fraction | None = None
    orders: Orders | None = None
    name: str = ""
    state: State | None = None
    searched: set[Choice] = field(default_factory=set)
    proofs: dict[Choice, str] = field(default_factory=dict)
    stopped: str = ""

    def offer(self, choice: Choice, value: Fraction, orders: Orders, name: str) -> None:
        if self.value is None or value < self.value:
            self.choice, self.value, self.orders, self.name = choice, value, orders, name
            self.state = None


def instance_of(decision: Partition, choice: Choice) -> Instance:
    """Return the optimization problem of an alternative."""
    made = decision.terms(choice)
    assert isinstance(made, Instance)
    return made


@dataclass(frozen=True)
class Searcher:
    """The search for the best alternative."""

    decision: Partition
    limits: Limits
    progress: Progress
    meter: Meter

    def run(self) -> Best:
        """Return the best alternative with the state of its search; after an interrupt, the best so far."""
        best = Best()
        try:
            for choice in self.decision.seeds():
                self._look(choice, best)
            self._go_on(best)
        except KeyboardInterrupt:
            best.stopped = INTERRUPTED
        if best.choice is not None and best.state is None:
            best.state = self._state(best.choice, best, Meter(0))
        return best

    def _go_on(self, best: Best) -> None:
        listed = self._listed(best)
        for _, choice in listed[:_FIRST]:
            self._look(choice, best)
        for n, (bound, choice) in enumerate(listed):
            if best.value is not None and bound >= best.value:
                break
            if n and self.meter.late:
                best.stopped = self.limits.reached
                break
            if choice != best.choice and self._too_busy(choice, best):
                best.proofs[choice] = ""
                continue
            if infeasible(instance_of(self.decision, choice).problem()) is not None:
                continue
            self._searched(choice, best)
        if best.choice is not None and (best.state is None or not (best.state.proved or self.meter.late)):
            self._searched(best.choice, best)  # it became the best within its share of the time
        self._exclude_former(best)

    def _exclude_former(self, best: Best) -> None:
        """Exclude with `ranks`, where possible, the alternatives that were the best when they were searched."""
        for choice in sorted(x for x in best.searched if x != best.choice and x not in best.proofs):
            if not self.meter.late and self._too_busy(choice, best):
                best.proofs[choice] = ""

    def _listed(self, best: Best) -> list[tuple[Fraction, Choice]]:
        """Return the alternatives with bounds below the value, sorted by bound; when time is short, by quick bounds."""
        value = best.value if best.value is not None else Fraction(2**40)
        enough = self.meter.spent + _LISTING * self.meter.left
        made = []
        for quick, choice in self.decision.rest(value).left[:LISTED]:
            if self.meter.spent >= enough:
                made.append((quick, choice))
                continue
            bound = quick
            instance = instance_of(self.decision, choice)
            asked = whole(instance)
            self.meter.spend(_BOUNDS * sum(asked.length.values()))
            if impossible(asked) or infeasible(problem := instance.problem()) is not None:
                continue
            scale = instance.costs.ticks(instance.placement.stages).scale
            bound = max(bound, Fraction(lower(asked), scale), problem.time(lower_bound(problem).value))
            if bound < value:
                made.append((bound, choice))
        return sorted(made)

    def _look(self, choice: Choice, best: Best) -> None:
        """Try heuristics on an alternative."""
        instance = instance_of(self.decision, choice)
        problem = instance.problem()
        if (problem.cap < 0).any() or infeasible(problem) is not None:
            return
        self.meter.spend(_EACH * problem.operations)
        for name, orders in heuristic_orders(problem, _EACH * problem.operations, self.limits.seed):
            start = _value(problem, orders)
            if start is not None:
                best.offer(choice, start, orders, name)

    def _too_busy(self, choice: Choice, best: Best) -> bool:
        instance = instance_of(self.decision, choice)
        if best.value is None:
            return False
        bound = ceil(best.value * instance.costs.ticks(instance.placement.stages).scale) - 1
        left = [STEPS]
        found = too_busy(whole(instance), bound, STEPS, left)
        self.meter.spend(int(_RANKED * (STEPS - left[0])))
        return found is not None and len(best.proofs) < RANKED

    def _searched(self, choice: Choice, best: Best) -> None:
        """Search the orders of an alternative, until its bound reaches the best value."""
        best.searched.add(choice)
        share = 1.0 if choice == best.choice else _SHARE
        state = self._state(choice, best, Meter(max(_LEAST, share * self.meter.left)))
        if state.value is not None and (best.value is None or state.problem.time(state.value) < best.value):
            assert state.best is not None
            best.offer(choice, state.problem.time(state.value), state.best, state.source)
        if choice == best.choice:
            best.state = state
        elif best.value is not None and state.problem.time(state.lower) >= best.value and len(best.proofs) < RANKED:
            self._prove(choice, best, state)

    def _prove(self, choice: Choice, best: Best, state: State) -> None:
        """Store a proof that an alternative is not better than the best value, if one is found in time."""
        assert best.value is not None
        instance = instance_of(self.decision, choice)
        below = (ceil(best.value * state.problem.scale) - 1) / state.problem.scale
        ranks = None if state.refuted is None else state.refuted.ranks
        entry = certified(instance, below, ranks[0] if ranks else None, None, Meter(0.5 * self.meter.left)).entry
        if entry:
            best.proofs[choice] = str(entry["lrat"])

    def _state(self, choice: Choice, best: Best, meter: Meter) -> State:
        problem = instance_of(self.decision, choice).problem()
        known = [(best.name, best.orders)] if choice == best.choice and best.orders is not None else []
        target = None if choice == best.choice or best.value is None else best.value
        ended = False

        def watch(state: State) -> None:
            nonlocal ended
            self.progress(state)
            if target is not None and problem.time(state.lower) >= target:
                ended = True
                raise KeyboardInterrupt

        state = search(problem, replace(self.limits, proof=None), known, watch, meter)
        self.meter.spend(meter.spent)
        if state.stopped == INTERRUPTED and not ended and meter.limit:
            raise KeyboardInterrupt
        return state


def _value(problem: Problem, orders: Orders) -> Fraction | None:
    ticks = convert.value(problem, orders)
    return None if ticks is None else problem.time(ticks)
