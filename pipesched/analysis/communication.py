"""Under which models a program holds, and how much buffering it needs."""

from __future__ import annotations

from dataclasses import dataclass

from pipesched.analysis.channels import Pairing
from pipesched.analysis.deadlock import holds, least_capacity
from pipesched.analysis.models import ASYNC, ONE_STREAM, PAIR_STREAM, STRICT, UNBOUNDED, Model, buffered
from pipesched.model.program import Program


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The models by verdict, each from strict to lax; capacity as in `least_capacity`."""

    holds: tuple[Model, ...]
    fails: tuple[Model, ...]
    capacity: int | None


def verdicts(program: Program, pairing: Pairing, asked: Model) -> Verdicts:
    """The verdict under every named model and the one that was asked for."""
    if holds(program, STRICT, pairing):
        models = dict.fromkeys((STRICT, buffered(1), ONE_STREAM, PAIR_STREAM, ASYNC, asked))
        return Verdicts(tuple(models), (), 0)
    capacity = least_capacity(program, pairing)
    found = {STRICT: False}
    if capacity is None:
        found[UNBOUNDED] = False
    else:
        found |= {buffered(capacity - 1): False} if capacity > 1 else {}
        found[buffered(capacity)] = True
    safe = False  # under a model, and so under the laxer ones after it
    for model in (ONE_STREAM, PAIR_STREAM, ASYNC):
        found[model] = safe = safe or holds(program, model, pairing)
    if asked not in found:
        found[asked] = holds(program, asked, pairing)
    yes = tuple(model for model, verdict in found.items() if verdict)
    return Verdicts(yes, tuple(model for model, verdict in found.items() if not verdict), capacity)
