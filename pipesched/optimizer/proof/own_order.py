"""Bounds and judges orders of a schedule's own operations, including offloads, slices, skips and uneven microbatches.

    bound        head + work + tail of the operations of a rank with at least that head and that tail (`own_arcs`),
                 since a rank runs one operation at a time; or the time that activations need under its cap (`own_held`)

The operations and their costs do not depend on the order, so the bound is valid for every order. Nothing is assumed
about microbatches: they can differ, and can overtake each other. The optimizer is not consulted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from pipesched.model.schedule import Schedule
from pipesched.optimizer.proof.case import Case, require
from pipesched.optimizer.proof.entries import Entries
from pipesched.optimizer.proof.judgement import Judgement, expected, wrong
from pipesched.optimizer.proof.own_arcs import Arcs, Least
from pipesched.optimizer.proof.own_held import held
from pipesched.optimizer.verdict import Terms, Verdict
from pipesched.schedule_analysis import Analysis

OWN = "own"
"""The entry `backward` of a certificate about a schedule's own operations."""


def least(made: Analysis, arcs: Arcs, caps: Sequence[Fraction] | None, *, span: bool) -> Least:
    """Return the best lower bound on the makespan, or the span, of all orders within the caps."""
    by_memory = held(made, arcs, caps, span=span)
    return max([busiest(arcs, span=span), *by_memory], key=lambda one: one.value)


def busiest(arcs: Arcs, *, span: bool) -> Least:
    """Return the best bound by the work of a rank, or by a longest path."""
    best, paths = Least(0), (arcs.heads(), arcs.tails())
    if not span:
        best = Least(int((paths[0] + arcs.cost + paths[1]).max(initial=0)))
    for rank in range(len(arcs.cut) - 1):
        if span:
            paths = arcs.heads(rank), arcs.tails(rank)
        mine = slice(int(arcs.cut[rank]), int(arcs.cut[rank + 1]))
        order = np.argsort(-paths[0][mine], kind="stable")
        head, tail, cost = (of[mine][order] for of in (*paths, arcs.cost))
        for end in np.unique(tail).tolist():
            some = tail >= end
            work = np.cumsum(cost[some])
            at = int((head[some] + work).argmax())
            value = int(head[some][at] + work[at]) + end
            if value > best.value:
                best = Least(value, rank, int(head[some][at]), int(work[at]), end)
    return best


def judged(schedule: Schedule, terms: Terms, certificate: Mapping[str, object]) -> Judgement:
    """Judge a schedule and a certificate that covers every order of the schedule's operations.

    Raises:
        FaultError, PipeschedError, Unreadable: faults, which `proof.judge` turns into findings.
    """
    case = Case(schedule, terms)
    if case.wrong:
        return Judgement(tuple(case.wrong))
    require("STEPs divide its order" if schedule.steps else "")
    told, span = Entries(certificate, case.scale), case.terms.objective == "span"
    found = least(case.analysis, Arcs.of(schedule, case.analysis.ticks), terms.caps, span=span)
    verdict = _verdict(case, found)
    if verdict.lower > verdict.value:
        require(f"no order is below {case.said(found.value)}, but the schedule is")
    right = expected(case, verdict, OWN)
    told.only(*right)
    for name, value in wrong(told, right):
        require(f"{name} is {value}")
    return Judgement((), verdict, case.spent)


def _verdict(case: Case, found: Least) -> Verdict:
    why, by = f"the longest path of these operations: {case.said(found.value)}", "the longest path"
    if found.rank >= 0:
        work, by = case.said(found.work), f"rank {found.rank}"
        why = f"{by} has {work} of work"
        if found.held:
            why = f"{by} needs {work} under its cap to hold every activation until it is freed"
        first = [f"after a start of {case.said(found.head)}"] * (found.head > 0)
        last = [f"{case.said(found.tail)} before the end"] * (found.tail > 0)
        why += f", {' and '.join(first + last)}: {case.said(found.value)}" * bool(first + last)
    lower, why = Fraction(found.value, case.scale), f"{why}, in any order of these operations"
    return Verdict(case.terms.objective, case.value, lower, why, by, unit=case.unit)
