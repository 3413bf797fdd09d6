"""Judges a schedule with pairs, and its certificate.

    schedule    complete, every input before its use, within the caps, with the makespan that the certificate states
    bound       the work of a rank, with each F alone or in a pair, whichever is cheaper; or a microbatch's longest path
    refuted     shorter makespans, by a proof from the clauses of `proof.slots`, followed here

The optimizer is not consulted. The verdict is valid for all schedules of F, I, W, B and pairs F+B under these terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np

from pipesched.diagnostics import budgeted
from pipesched.model.columns import Bools, among, makes
from pipesched.model.ops import Op, Result
from pipesched.model.schedule import Schedule
from pipesched.optimizer.proof.case import Case, require
from pipesched.optimizer.proof.entries import Entries
from pipesched.optimizer.proof.judgement import Judgement, expected, wrong
from pipesched.optimizer.proof.lrat import hinted, refutes
from pipesched.optimizer.proof.slot_terms import EACH, STAGES, Question, backwards
from pipesched.optimizer.proof.slots import SlotClauses
from pipesched.optimizer.verdict import Terms, Verdict


def judged(schedule: Schedule, terms: Terms, certificate: Mapping[str, object]) -> Judgement:
    """Judge a schedule with pairs, and its certificate.

    Raises:
        FaultError, PipeschedError, Unreadable: faults, which `proof.judge` turns into findings.
    """
    case = Case(schedule, terms)
    if case.wrong:
        return Judgement(tuple(case.wrong))
    told, asked = Entries(certificate, case.scale), Question(terms)
    require(asked.wrong or other_kinds(schedule, terms))
    verdict = _refuted(told, case, asked, bound(asked, case))
    backward = "pairs" if terms.pairs else "fused" if terms.fused else "split"
    right = expected(case, verdict, backward, **({"recompute": terms.again} if terms.again else {}))
    told.only(*right, "bound", "refuted", "every")
    for name, value in wrong(told, right):
        require(f"{name} is {value}")
    return Judgement((), verdict, case.spent)


def other_kinds(schedule: Schedule, terms: Terms) -> str:
    """Return the reason why the clauses do not cover a schedule; an empty string if they do."""
    if not terms.pairs and bool(schedule.joined.any()):
        return "it has overlap pairs"
    if not among(schedule.op, (Op.F, Op.R, *backwards(terms))).all():
        return "it has another kind of backward"
    key = schedule.key()
    again = np.isin(key, key[schedule.op == Op.R])
    for stage in range(schedule.stages if terms.again else 0):
        for route in range(schedule.placement.routes):
            mine = (schedule.stage == stage) & (schedule.placement.route_of[schedule.microbatch] == route)
            if wrong := _other_order(schedule, mine, again, terms.again):
                return f"{wrong} of stage {stage}"
    return "" if terms.again or not again.any() else "it runs forwards again"


def _other_order(schedule: Schedule, mine: Bools, again: Bools, asked: str) -> str:
    """Describe operations of a stage that the terms exclude; empty if there are none. again: the F that run again."""
    forward = mine & (schedule.op == Op.F)
    if asked == EACH:
        kinds = (forward, mine & (schedule.op == Op.R), mine & makes(schedule.op, Result.GRADIENT))
        ordered = all((np.diff(schedule.microbatch[some]) > 0).all() for some in kinds)
        return "" if ordered else "an operation changes the order of microbatches"
    some, stage = set(again[forward].tolist()), str(schedule.stage[mine][0]) if mine.any() else ""
    if asked == STAGES:
        return "only some F run again" if len(some) > 1 else ""
    return "" if some <= {stage in asked.split(",")} else "other F run again"


def bound(asked: Question, case: Case) -> Verdict:
    """Return the verdict from the longest path, or from the least head and the work of a rank."""
    value, rank, work, head = asked.sums()
    why = "the longest path of a microbatch"
    if rank is not None:
        why = f"rank {rank} has at least {case.said(work * asked.tick)} of work"
        why += ", even if its F run in pairs" * asked.pairs
        why += f", that begins after {case.said(head * asked.tick)}" if head else ""
    return Verdict("makespan", case.value, Fraction(value * asked.tick, case.scale), why, "a sum", unit=case.unit)


def _refuted(told: Entries, case: Case, asked: Question, formula: Verdict) -> Verdict:
    if "refuted" not in told:
        require("" if "refuted" in told.entries else "it does not name the refuted bound")
        return formula
    given = told.part("refuted").only("value", "proof")
    limit = given.ticks("value")
    lower = Fraction((limit // asked.tick + 1) * asked.tick, case.scale)
    if lower <= formula.lower:
        return formula
    text = given.proof()
    with budgeted("its proof"):
        require(unproved(text, asked, limit))
    steps = len(text.splitlines())
    why = f"within {case.said(limit)} the rules of a schedule contradict each other: {steps:,} steps, checked"
    return replace(formula, lower=lower, shown_by=f"{why} one by one", by="a proof")


def unproved(text: bytes, asked: Question, limit: int) -> str:
    """Return the reason why the steps do not refute makespans of at most `limit` ticks, or an empty string."""
    return refutes(text, lambda steps: SlotClauses(asked, limit, wanted=hinted(steps)))
