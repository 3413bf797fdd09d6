"""Reads the entry `decision` of a certificate: the decision, its alternatives, and their proofs.

    {"kind": "partition", "taken": [4, 4, 5, 3], "proofs": [{"taken": [4, 4, 4, 4], "lrat": "…"}, …], …}

A proof is LRAT for the clauses of that alternative; without `lrat`, `ranks` must exclude it. The other entries
define the alternatives, and are those of `Decision.to_json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from pipesched.model.cost_values import Cost
from pipesched.optimizer.decisions.alternatives import Choice, Decision
from pipesched.optimizer.decisions.partition import Load, Partition
from pipesched.optimizer.proof.entries import Entries, Unreadable
from pipesched.optimizer.verdict import Terms

_MOST_LAYERS = 100_000


@dataclass(frozen=True)
class Decided:
    """A decision, the chosen alternative, and the proofs about others, as `over_all` expects them."""

    decision: Decision
    taken: Choice
    proofs: Mapping[Choice, bytes] = field(default_factory=dict)


def decided(given: Entries, terms: Terms) -> Decided:
    """Read a decision. terms: of the answer's schedule.

    Raises:
        Unreadable: an entry is missing, or has the wrong type or value.
    """
    kind = given.text("kind")
    if kind not in _KINDS:
        raise Unreadable(f"unknown decision {kind[:40]!r}")
    decision = _KINDS[kind](given, terms)
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
        raise Unreadable("its split does not give every stage a layer, or does not add up to its layers")
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


_KINDS: Mapping[str, Callable[[Entries, Terms], Decision]] = {"partition": _partition}


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
