"""Checks frozen stages against the modules, and says how the runtime executes them.

    frozen, no trained stage before it     a forward without a graph, and no backward
    frozen, a trained stage before it      I is the whole backward: it frees everything and passes the gradient on
    the first trained stage                its input needs no gradient, and it sends none

The stream and `requires_grad` both say which weights are trained. If they disagree, the model would silently train
wrongly, so it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipesched.runtime.execute.errors import UNSUPPORTED, Fault, Place, RunError
from pipesched.runtime.execute.tied import Note, Parameter, Tied
from pipesched.stream import Stream

_HELP = "set requires_grad to match the stream before building the runtime, or emit the stream with these stages frozen"


def wanting(stream: Stream) -> frozenset[int]:
    """Return the stages that receive a gradient: trained ones, and those after a trained stage."""
    found: set[int] = set()
    for stage in range(stream.stages):
        if stage not in stream.frozen or not found.isdisjoint(stream.read(stage)):
            found.add(stage)
    return frozenset(found)


def check_frozen(stream: Stream, notes: Sequence[Note], tied: Tied) -> None:
    """Require that exactly the weights of trained stages require gradients. notes: each rank's report.

    Raises:
        RunError: PS831 on every rank, naming the first stage that differs.
    """
    if not stream.frozen:
        return
    for rank, note in enumerate(notes):
        for key, weights in sorted(note["weights"].items()):
            if wrong := _differs(stream, int(key.partition("/")[2]), weights):
                raise RunError(Fault(UNSUPPORTED, wrong, Place(rank), (), _HELP))
    for group in tied:
        frozen = [stage for stage, _ in group if stage in stream.frozen]
        trained = [stage for stage, _ in group if stage not in stream.frozen]
        if frozen and trained:
            stages = f"stage {frozen[0]}, which is frozen, and stage {trained[0]}, which is not"
            message = f"a weight is tied between {stages}"
            raise RunError(Fault(UNSUPPORTED, message, None, (), "freeze both stages, or neither"))


def _differs(stream: Stream, stage: int, weights: Sequence[Parameter]) -> str | None:
    """Describe how the weights of a stage contradict the stream; None if they agree."""
    asking = [(name, names) for name, _, _, trained, names in weights if trained]
    if stage not in stream.frozen:
        untrained = bool(weights) and not asking
        return f"stage {stage} is trained, but none of its weights requires a gradient" if untrained else None
    if not asking:
        return None
    name, names = asking[0]
    shared = next((other for other, _ in names if other != stage), None)
    also = "" if shared is None else f", and is tied to a weight of stage {shared}"
    return f"stage {stage} is frozen, but its weight {name!r} requires a gradient{also}"
