"""Stages that are not trained, and what that is for a runtime.

    frozen, no trained stage before it     a forward without a graph, and no backward
    frozen, a trained stage before it      I is the whole backward: it frees all, and hands the gradient on
    the first that is trained              its input asks for no gradient, and it sends none

Which weights are trained is said twice, by the stream and by `requires_grad`: where the two disagree, something would
be trained wrong in silence, so it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipesched.runtime.execute.errors import UNSUPPORTED, Fault, Place, RunError
from pipesched.runtime.execute.tied import Note, Tied
from pipesched.stream import Stream

_HELP = "set requires_grad as the stream says before the runtime is built, or emit the stream with these stages frozen"


def wanting(stream: Stream) -> frozenset[int]:
    """The stages that a gradient comes to: those that are trained, or have a trained one somewhere before them."""
    found: set[int] = set()
    for stage in range(stream.stages):
        if stage not in stream.frozen or not found.isdisjoint(stream.read(stage)):
            found.add(stage)
    return frozenset(found)


def check_frozen(stream: Stream, notes: Sequence[Note], tied: Tied) -> None:
    """Whether the weights that ask for a gradient are those of the trained stages. notes: what each rank reports.

    Raises:
        RunError: PS831 on every rank, the first stage that differs.
    """
    if not stream.frozen:
        return
    for rank, note in enumerate(notes):
        for key, weights in sorted(note["weights"].items()):
            stage = int(key.partition("/")[2])
            asking = [name for name, _, _, trained, _ in weights if trained]
            if stage in stream.frozen and asking:
                shared = next(
                    (other for x in weights if x[0] == asking[0] for other, _ in x[4] if other != stage), None
                )
                also = "" if shared is None else f", and is one with a weight of stage {shared}"
                message = f"stage {stage} is frozen, but its weight {asking[0]!r} asks for a gradient{also}"
                raise RunError(Fault(UNSUPPORTED, message, Place(rank), (), _HELP))
            if stage not in stream.frozen and weights and not asking:
                message = f"stage {stage} is trained, but none of its weights asks for a gradient"
                raise RunError(Fault(UNSUPPORTED, message, Place(rank), (), _HELP))
    for group in tied:
        kinds = {stage in stream.frozen for stage, _ in group}
        if len(kinds) == 2:
            frozen = next(stage for stage, _ in group if stage in stream.frozen)
            trained = next(stage for stage, _ in group if stage not in stream.frozen)
            message = f"a weight is tied between stage {frozen}, which is frozen, and stage {trained}, which is not"
            raise RunError(Fault(UNSUPPORTED, message, None, (), "freeze both stages, or none"))
