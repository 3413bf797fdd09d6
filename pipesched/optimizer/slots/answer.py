"""Finds the shortest order of slots, with pairs or R as a decision, and proves that no order is shorter.

known orders that fit ───────┐
clauses at C: a model ───────┴─> best ──> one tick less ──> ... ──> refuted: a proof in LRAT ──> bound
                                                         └─ out of steps: the bound is raised from below
"""

from __future__ import annotations

import lzma
from base64 import b64encode
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.costs import UNIT, Costs
from pipesched.model.numbers import plain, shown
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.release import caps_by_rank
from pipesched.model.schedule import Schedule
from pipesched.optimizer.answer_of import answered
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.optimize_report import Ask, Optimum
from pipesched.optimizer.optimize_request import costs_of, loaded, require_costs
from pipesched.optimizer.proof.clauses import MOST, TooManyError
from pipesched.optimizer.proof.judge import judge
from pipesched.optimizer.proof.slot_terms import Question
from pipesched.optimizer.proof.slots import SlotClauses
from pipesched.optimizer.slots.judged import other_kinds
from pipesched.optimizer.slots.orders import schedule_of
from pipesched.optimizer.slots.starts import starts
from pipesched.optimizer.slots.windows import Window, fixed, is_mirrored, kept_slots, mirror
from pipesched.optimizer.solve.engines.lrat import refutation
from pipesched.optimizer.solve.engines.sat_engines import Effort, UnknownError, by_cadical
from pipesched.optimizer.solve.instance import BOUNDED, Instance, placement_at, sizes_of
from pipesched.optimizer.solve.meter import SECOND, Meter
from pipesched.schedule_analysis import Analysis

if TYPE_CHECKING:
    from pipesched.optimizer.optimize_request import Request

_CLAUSE, _FOLLOWED = 3, 0.7  # steps to write a clause, and for each byte of a proof that is followed at the end
_FIRST, _SHARE = 0.1, 0.6  # part of the remaining time for one question: about a shorter order, about a bound
_FOUND = 0.3  # part of the time for shorter orders; the bound has the rest
_WINDOWS, _PLACES, _WINDOW = (0.4, 0.6), 5, 3  # parts of the time that are free, places of these, seconds for each


@dataclass(eq=False)
class Search:
    """The search for the shortest order. value: the makespan of the best order, in ticks; refuted: the largest refuted
    makespan, in ticks, and its LRAT proof.
    """

    asked: Question
    instance: Instance
    name: str
    meter: Meter
    seed: int
    best: Schedule | None = None
    value: int = 0
    source: str = ""
    refuted: tuple[int, bytes] | None = None
    notes: list[str] = field(default_factory=list)

    def offer(self, schedule: Schedule, source: str) -> None:
        """Accept an order if it is within the caps and shorter than the best order."""
        made = Analysis(schedule, self.instance.costs, self.instance.release)
        caps = self.instance.caps or made.memory.peak
        if made.idle is None or any(a > b for a, b in zip(made.memory.peak, caps, strict=True)):
            return
        value = int(made.idle.makespan * self.asked.scale)
        if self.best is None or value < self.value:
            self.best, self.value, self.source = schedule, value, source

    def at(self, bound: int, meter: Meter, *, refute: bool = False) -> bool | None:
        """Return True if some order takes at most `bound` ticks, False if no order does, None if this is undecided."""
        try:
            clauses = SlotClauses(self.asked, bound, most=int(min(MOST, meter.left / _CLAUSE + 1)))
            meter.spend(_CLAUSE * clauses.count)
            if refute or not all(clauses.lists()):
                return self._refute(clauses, bound, meter)
            found = by_cadical(clauses, Effort(int(meter.left), seed=self.seed))
            meter.spend(found.steps)
        except TooManyError as error:
            self.notes += [str(error)] * (str(error) not in self.notes)
            return None
        except UnknownError as error:
            meter.spend(error.steps)
            return None
        if found.true is None:
            return self._refute(clauses, bound, meter)
        true = frozenset(np.flatnonzero(found.true).tolist())
        self.offer(schedule_of(clauses, true, self.instance.placement, self.name), "cadical")
        return True

    def _refute(self, clauses: SlotClauses, bound: int, meter: Meter) -> bool | None:
        own = Meter(max(min(3 * meter.left, self.meter.left), SECOND))
        text = refutation(clauses.known, clauses.count, own)
        meter.spend(own.spent)
        if not text:
            return None
        if self.refuted is None or bound > self.refuted[0]:
            before = 0 if self.refuted is None else len(self.refuted[1])
            meter.spend(int(_FOLLOWED * max(0, len(text) - before)))
            self.refuted = (bound, text)
        return False

    def run(self, lower: int) -> None:
        """Search for shorter orders, then raise the bound from below. lower: the bound by a sum, in ticks."""
        tick, bound = self.asked.tick, lower
        while self.best is None and not self.meter.late:
            self._ask(bound, 0.5)
            if self.impossible:
                return
            bound = min(bound + max(tick, bound // 4), self._serial())
        low, high = lower, self.value - tick
        enough = self.meter.spent + _FOUND * self.meter.left
        while high >= low and not self.meter.late:
            found = self._ask(high, _FIRST)
            if found is False:
                return
            if found is None and not self._shortened(enough):
                break
            high = self.value - tick
        self._raise(low)

    def _raise(self, low: int) -> None:
        """Raise the bound from below by a step that doubles after each refutation, since all refutations cost about the
        same. low: the least makespan that is not refuted.
        """
        tick = step = self.asked.tick
        while low < self.value and not self.meter.late:
            bound = min(low + step, self.value) - tick
            if self._ask(bound, _SHARE, refute=True) is False:
                low, step = bound + tick, 2 * step
            elif step > tick:
                step = tick
            else:
                return

    @property
    def impossible(self) -> bool:
        """True if no order is within the caps: even the makespan of the serial order is refuted."""
        return self.refuted is not None and self.refuted[0] >= self._serial()

    def _shortened(self, enough: float) -> bool:
        """Look for a shorter order that differs from the best one only in a time window; return True if one is found.

        enough: the number of spent steps at which to give up.
        """
        assert self.best is not None
        tick, mirrored = self.asked.tick, (True, False) if is_mirrored(self.asked) else (False,)
        known = kept_slots(self.best, self.instance)
        for share, place, alike in product(_WINDOWS, range(_PLACES), mirrored):
            width = int(known[1] * share)
            low = (known[1] - width) * place // (_PLACES - 1)
            clauses = SlotClauses(self.asked, self.value - tick)
            more = fixed(clauses, known, low, low + width) + (mirror(clauses) if alike else [])
            self.meter.spend(_CLAUSE * clauses.count)
            try:
                found = by_cadical(
                    Window(clauses, more, clauses.variables), Effort(int(min(_WINDOW * SECOND, self.meter.left)))
                )
            except UnknownError as error:
                self.meter.spend(error.steps)
            else:
                self.meter.spend(found.steps)
                if found.true is not None:
                    true = frozenset(np.flatnonzero(found.true).tolist())
                    self.offer(schedule_of(clauses, true, self.instance.placement, self.name), "cadical, by windows")
                    return True
            if self.meter.spent >= enough:
                break
        return False

    def _ask(self, bound: int, share: float, *, refute: bool = False) -> bool | None:
        meter = Meter(max(share * self.meter.left, SECOND))
        found = self.at(bound, meter, refute=refute)
        self.meter.spend(meter.spent)
        return found

    def _serial(self) -> int:
        """Return the makespan if all operations run one after another."""
        a = self.asked
        each = {q: a.work[Op.F, q] + a.work[Op.W, q] + max(a.work[Op.I, q], a.work[Op.B, q]) for q in a.all}
        slots = sum(a.count[q] * (each[q] + bool(a.again) * a.work[Op.R, q]) for q in a.all)
        return int(a.tick * (slots + 2 * sum(a.message) * max(a.count.values())))


def in_slots(request: Request, ask: Ask, meter: Meter) -> Optimum:
    """Find the shortest order of F, R, I, W, B and pairs F+B as requested, with a proof if possible. ask: function that
    optimizes without R and pairs. meter: counts steps up to the limit.

    Raises:
        PipeschedError: PS2xx, PS3xx: the options or the schedule are invalid. PS716: the terms are not supported.
    """
    given = None
    if request.source is not None:
        given = loaded(request.source, request)
        require_costs(given)
        placement, own = given.schedule.placement, given.own_costs
        request = replace(request, fused=not given.schedule.split if request.fused is None else request.fused)
        known = replace(BOUNDED, kinds=(*BOUNDED.kinds, Op.R)) if request.recompute else BOUNDED
        known.require(given.schedule, own if request.costs is None else request.costs.over(own))
    else:
        placement, own = placement_at(request.placement, sizes_of(request.placement, request.parameters)), Costs()
    if not placement.chain:
        help = "give the placement of a chain with --placement"
        raise fail(OptimizerCode.NOT_OPTIMIZED, f"{placement.skip}: stages must form a chain", help=help)
    instance = _instance(request, placement, own)
    asked = Question(instance)
    if asked.wrong:
        option = "--overlap" if request.overlap else "--recompute"
        raise fail(OptimizerCode.DECISION, asked.wrong, help=f"leave out {option}, or meet this condition")
    if reason := _too_large(asked):
        return Optimum(instance, impossible=True, reason=reason)
    search = Search(asked, instance, request.name, meter, request.limits.seed)
    if given is not None and not other_kinds(given.schedule, instance):
        search.offer(replace(given.schedule, name=request.name), given.schedule.name)
    for name, schedule in starts(request, instance, ask, meter):
        search.offer(schedule, name)
    search.run(asked.sums()[0] * asked.tick)
    if search.best is None:
        reason = "no order is within the caps" if search.impossible else request.limits.reached
        least = Fraction(search.refuted[0] if search.refuted else 0, asked.scale)
        return Optimum(instance, impossible=search.impossible, reason=reason, least=least, least_by="a proof")
    return _answer(request, instance, search)


def _too_large(asked: Question) -> str:
    """Return the reason why a single F exceeds the cap of its rank, or an empty string."""
    for q, rank in asked.rank.items():
        cap = asked.cap[rank]
        if cap is not None and asked.takes[q] > cap:
            return f"F of stage {q[1]} holds {shown(Fraction(asked.takes[q], asked.fine))}, over the cap of rank {rank}"
    return ""


def _instance(request: Request, placement: Placement, own: Costs) -> Instance:
    """Return the terms of the optimization; raise PipeschedError, PS225 or PS222, if options or costs do not fit."""
    if request.workload.cap is not None:
        option = "--overlap" if request.overlap else "--recompute"
        raise fail(
            Code.USAGE, f"with {option}, a cap must be in activations", help="give a number, such as --mem-cap 5"
        )
    costs = costs_of(request, placement, own)
    costs.require_fit(placement.stages)
    costs = _as_printed(costs)
    caps = caps_by_rank(request.mem_cap, placement.ranks, zero=False)
    again, kinds = request.recompute or "", (placement, costs, request.release, caps, bool(request.fused))
    return Instance(*kinds, request.objective, pairs=request.overlap, again=again)


def _as_printed(costs: Costs) -> Costs:
    """Omit the costs that follow from other costs, as the printed file does."""
    given = dict(costs.given)
    for key in given.keys() & {"R", "K"}:
        others = {name: x for name, x in given.items() if name != key}
        given = others if Costs(others)[key] == given[key] else given
    even = all(costs[key] == x for key, x in UNIT.items())
    return replace(costs, given={key: x for key, x in given.items() if not (even and key in UNIT)})


def _answer(request: Request, instance: Instance, search: Search) -> Optimum:
    """Judge the best order, print it, read it back and check it."""
    assert search.best is not None
    schedule, scale = search.best, search.asked.scale
    refuted = None
    if search.refuted is not None:
        bound, proof = search.refuted
        packed = b64encode(lzma.compress(proof)).decode("ascii")
        refuted = {"value": plain(Fraction(bound, scale)), "proof": {"lrat": packed}}
    backward = "pairs" if instance.pairs else "fused" if instance.fused else "split"
    written: dict[str, object] = {"objective": "makespan", "backward": backward, "bound": None, "every": None}
    written |= {"recompute": instance.again} if instance.again else {}
    written |= {"schedule": plain(Fraction(search.value, scale)), "refuted": refuted}
    told, stopped = judge(schedule, instance, written).accepted(), request.limits.reached
    return answered(
        request, instance, schedule, written, told, source=search.source, stopped=stopped, said=search.notes
    )
