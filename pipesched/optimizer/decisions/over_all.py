"""The checker's verdict over all alternatives of a decision: no alternative has a schedule below the value.

The alternatives are listed anew from the numbers in the answer. Each of them, except the chosen one, must be excluded:
by the work of a rank between a head and a tail (`work`), by meetings of microbatches (`meetings`), by a single rank
(`ranks`), or by a proof in the answer (`lrat`). If an alternative is not excluded, the bound is at most the
alternative's own bound. The optimizer is not consulted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

import numpy as np

from pipesched.optimizer.decisions.partition import Choice, Partition
from pipesched.optimizer.proof.lrat import unproved
from pipesched.optimizer.proof.meetings import meetings
from pipesched.optimizer.proof.problem import Problem, problem
from pipesched.optimizer.proof.ranks import too_busy
from pipesched.optimizer.verdict import Verdict

STEPS = 4_000_000
"""Limit on the steps that `ranks` may take for one alternative."""
RANKED, LISTED = 200, 3_000
"""Limits on the alternatives that `ranks` or a proof can refute, and on those that are examined one by one."""


@dataclass(frozen=True)
class Excluded:
    """by: the number of alternatives that each kind of proof excludes; open: bound and split of each remaining one."""

    by: Mapping[str, int]
    open: Sequence[tuple[Fraction, Choice]]


Proofs = Mapping[Choice, bytes]
"""The LRAT proof for each alternative; empty for an alternative that `ranks` excludes."""


def over_all(decision: Partition, taken: Choice, verdict: Verdict, proofs: Proofs) -> Verdict:
    """Return the verdict over all alternatives; `verdict`: the verdict on the chosen alternative."""
    rest = decision.rest(verdict.value)
    left = [one for one in rest.left if one[1] != taken]
    found = excluded(decision, left, verdict.value, proofs)
    floors = [bound for bound, _ in found.open] + ([] if rest.floor is None else [rest.floor])
    many = f"{decision.count:,} splits"
    if floors and min(floors) < verdict.lower:
        open = f"{len(found.open):,} of {many} are not excluded" if rest.floor is None else f"{many} are too many"
        why = f"{open}; their least bound is {verdict.unit.text(min(floors))}"
        return replace(verdict, lower=min(floors), shown_by=why, by="the splits that are left", word="")
    others = ", ".join(f"{n:,} by {by}" for by, n in {**found.by, QUICK: decision.count - 1 - len(left)}.items() if n)
    return replace(verdict, shown_by=f"{verdict.shown_by}; no other of {many} is better{f': {others}' * bool(others)}")


QUICK = "their work, warm-up and cool-down"


def excluded(
    decision: Partition, alternatives: Sequence[tuple[Fraction, Choice]], value: Fraction, proofs: Proofs
) -> Excluded:
    """Exclude the alternatives that have no schedule below `value`. alternatives: sorted by their quick bounds."""
    by, open, ranked = Counter[str](), list[tuple[Fraction, Choice]](alternatives[LISTED:]), 0
    for _, choice in alternatives[:LISTED]:
        terms = decision.terms(choice)
        asked, scale = problem(terms), terms.costs.ticks(terms.placement.stages).scale
        bound = ceil(value * scale) - 1
        least = lower(asked)
        if least > bound or impossible(asked):
            by["the work of a rank"] += 1
            continue
        ranked += choice in proofs
        text = proofs.get(choice) if ranked <= RANKED else None
        if text and not unproved(text, asked, bound):
            by["a proof"] += 1
        elif text == b"" and too_busy(asked, bound, STEPS) is not None:
            by["single ranks"] += 1
        else:
            open.append((Fraction(least, scale), choice))
    return Excluded(by, open)


def impossible(asked: Problem) -> bool:
    """Return True if a single operation exceeds the cap of its rank."""
    return any(
        cap is not None and any(asked.gains[line] > cap for line in asked.on(rank))
        for rank, cap in enumerate(asked.cap)
    )


def lower(asked: Problem) -> int:
    """Return the larger of two bounds, in ticks: the work of a rank between a head and a tail, and `meetings`."""
    return max([meetings(asked)[0], *_busiest(asked)])


def _busiest(asked: Problem) -> Iterator[int]:
    for rank in sorted(set(asked.rank.values())):
        frame, mine = rank if asked.span else None, asked.on(rank)
        heads, tails = (np.array([x for line in mine for x in of(frame)[line]]) for of in (asked.heads, asked.tails))
        work = np.array([asked.work[line] for line in mine for _ in range(asked.length[line])])
        order = np.argsort(-heads, kind="stable")
        heads, tails, work = heads[order], tails[order], work[order]
        for tail in np.unique(tails).tolist():
            total = np.cumsum(np.where(tails >= tail, work, 0))
            yield int((heads + total)[tails >= tail].max()) + tail
