"""Reads and judges the entry `decision` of a certificate: the schedule must belong to the chosen alternative, and no
other alternative may be better.

    {"kind": "partition", "taken": [4, 4, 5, 3], "proofs": [{"taken": [4, 4, 4, 4], "lrat": "…"}, …], …}

A proof is an LRAT refutation of the clauses of its alternative; without `lrat`, `ranks` must exclude the alternative.
The other entries define the alternatives; they are the entries of `Partition.to_json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from pipesched.model.cost_values import Cost
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.optimizer.decisions.over_all import Proofs, over_all
from pipesched.optimizer.decisions.partition import Choice, Load, Partition
from pipesched.optimizer.proof.case import Case, require
from pipesched.optimizer.proof.entries import Entries, Unreadable
from pipesched.optimizer.proof.own_order import OWN
from pipesched.optimizer.verdict import Terms, Verdict, kinds_of

_MOST_LAYERS = 100_000


def judged_over_all(given: Entries, case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict over all alternatives of a decision.

    Raises:
        FaultError: the schedule does not belong to the chosen alternative, or the answer is for every m.
        Unreadable: an entry cannot be read.
    """
    found = decided(given, case.terms)
    require("a decision covers only one m" if verdict.every is not None else "")
    own = found.decision.terms(found.taken)
    require("" if alike(own, case.terms) else f"its costs or caps differ from those of {own.decided}")
    return over_all(found.decision, found.taken, verdict, found.proofs)


def named(schedule: Schedule, terms: Terms, certificate: Mapping[str, object]) -> Terms:
    """Return the terms with a description of the certificate's decision, or unchanged if no decision can be read."""
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


def alike(a: Terms, b: Terms) -> bool:
    """Return True if both terms define the same problem: the same placement, times, memory, caps and rules."""
    stages = a.placement.stages
    if not np.array_equal(a.placement.rank_of, b.placement.rank_of):
        return False
    if not np.array_equal(a.placement.route_of, b.placement.route_of) or a.placement.reads != b.placement.reads:
        return False
    times = [
        [[Fraction(int(x), ticks.scale) for x in row] for row in (*ticks.compute, ticks.message)]
        for ticks in (a.costs.ticks(stages), b.costs.ticks(stages))
    ]
    kinds = (*(Op[kind] for kind in a.kinds), -1)
    return (
        all(times[0][kind] == times[1][kind] for kind in kinds)
        and list(a.costs.sizes(stages)) == list(b.costs.sizes(stages))
        and (a.caps, a.fused, a.objective) == (b.caps, b.fused, b.objective)
        and (a.release.at_input, a.release.at_weight) == (b.release.at_input, b.release.at_weight)
    )


@dataclass(frozen=True)
class Decided:
    """A decision, the chosen alternative, and the proofs that exclude other alternatives."""

    decision: Partition
    taken: Choice
    proofs: Proofs


def decided(given: Entries, terms: Terms) -> Decided:
    """Read a decision. terms: the terms of the answer's schedule.

    Raises:
        Unreadable: an entry is missing, or has the wrong type or value.
    """
    if (kind := given.text("kind")) != "partition":
        raise Unreadable(f"unknown decision {kind[:40]!r}")
    decision = _partition(given, terms)
    given.only("kind", "taken", "proofs", *decision.to_json())
    proofs = {}
    for one in _list(given, "proofs"):
        entry = Entries(_object(one), given.scale).only("taken", "lrat")
        part = Entries({"proof": {"lrat": entry.text("lrat")}}, given.scale) if "lrat" in entry else None
        proofs[_choice(entry)] = b"" if part is None else part.proof()
    return Decided(decision, _choice(given), proofs)


def _partition(given: Entries, terms: Terms) -> Partition:
    layers, stages = given.whole("layers"), terms.placement.stages
    taken = _choice(given)
    if not stages <= layers <= _MOST_LAYERS or len(taken) != stages or min(taken) < 1 or sum(taken) != layers:
        raise Unreadable("its split leaves a stage without layers, or does not add up to the number of layers")
    if terms.placement.routes > 1 or terms.placement.frozen or not terms.placement.chain:
        raise Unreadable("a partition requires a single route of trained stages in a chain")
    loads = [_load(given, name, terms) for name in ("layer", "first", "last")]
    message = given.entries.get("message")
    made: Cost = tuple(_numbers(given, "message")) if isinstance(message, list) else _number(given, "message")
    if isinstance(made, tuple) and len(made) != stages:
        raise Unreadable("it does not have a message cost for every stage")
    caps = None if given.entries.get("caps") is None else tuple(_numbers(given, "caps"))
    if (caps is None) != (terms.caps is None) or (caps is not None and len(caps) != terms.placement.ranks):
        raise Unreadable("it does not have a cap for every rank")
    base = replace(terms, caps=caps, decided="")
    return Partition(base, layers, layer=loads[0], first=loads[1], last=loads[2], message=made)


def _load(given: Entries, name: str, terms: Terms) -> Load:
    part = given.part(name)
    part.only(*terms.kinds, "M", "S")
    return {key: _number(part, key) for key in part.entries}


def _choice(given: Entries) -> Choice:
    found = _list(given, "taken")
    made = tuple(x for x in found if isinstance(x, int) and not isinstance(x, bool))
    if not made or len(made) < len(found):
        raise Unreadable("`taken` is not a list of whole numbers")
    return made


def _number(given: Entries, name: str) -> Fraction:
    value = given.time(name)
    if value < 0:
        raise Unreadable(f"{name} is below 0")
    return value


def _numbers(given: Entries, name: str) -> list[Fraction]:
    return [_number(Entries({name: x}, given.scale), name) for x in _list(given, name)]


def _list(given: Entries, name: str) -> list[object]:
    found = given.entries.get(name)
    if not isinstance(found, list):
        raise Unreadable(f"it has no list {name!r}")
    return found


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise Unreadable("a proof is not an object")
    return value
