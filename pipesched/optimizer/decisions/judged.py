"""Judges the entry `decision` of a certificate: the schedule is of the chosen alternative, and no other alternative is
better.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from pipesched.model.schedule import Schedule
from pipesched.optimizer.decisions.alternatives import alike
from pipesched.optimizer.decisions.over_all import over_all
from pipesched.optimizer.decisions.read import decided
from pipesched.optimizer.proof.case import Case, require
from pipesched.optimizer.proof.entries import Entries, Unreadable
from pipesched.optimizer.proof.own_order import OWN
from pipesched.optimizer.verdict import Terms, Verdict, kinds_of


def judged_over_all(given: Entries, case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict over all alternatives of a decision.

    Raises:
        FaultError: the schedule is not of the chosen alternative, or the answer is for every m.
        Unreadable: an entry cannot be read.
    """
    found = decided(given, case.terms)
    require("a decision covers only one m" if verdict.every is not None else "")
    own = found.decision.terms(found.taken)
    require("" if alike(own, case.terms) else f"its costs or caps differ from those of {own.decided}")
    return over_all(found.decision, found.taken, verdict, found.proofs)


def named(schedule: Schedule, terms: Terms, certificate: Mapping[str, object]) -> Terms:
    """Return the terms with a description of the certificate's decision; unchanged if no decision can be read."""
    if certificate.get("backward") == OWN:
        return replace(terms, own=kinds_of(schedule, terms.costs))
    again, backward = certificate.get("recompute", ""), certificate.get("backward")
    if backward == "pairs" or again:
        text = again if isinstance(again, str) else ""
        return replace(terms, pairs=backward == "pairs", fused=backward == "fused", again=text)
    told = Entries(certificate, terms.costs.ticks(terms.placement.stages).scale)
    with suppress(Unreadable):
        if "decision" in told:
            found = decided(told.part("decision"), terms)
            return replace(terms, decided=found.decision.text(found.taken))
    return terms
