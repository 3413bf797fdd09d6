"""torch's schedule classes by the names that trainers use, with the p, v and m that each requires.

    name                     stages per rank     microbatches
    1F1B                     1                   as many as stages, since 2.11
    GPipe                    1                   any
    Interleaved1F1B          2 and more          a multiple of the rounds, m // p
    LoopedBFS                2 and more          any
    InterleavedZeroBubble    2 and more          a multiple of the rounds            backwards split into I and W
    ZBVZeroBubble            2, in a V           any                                 backwards split into I and W
    DualPipeV                2, in a V           as many as stages                   backwards split into I and W

Source: torch 2.10 to 2.15, torch/distributed/pipelining/schedules.py: `get_schedule_class`, which takes a name in any
case, and the constructors.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from pipesched.common.aliases import known_as

_PRIVATE = "_pipelinescheduleruntime"


@dataclass(frozen=True)
class TorchName:
    """A schedule class by its name in torch's map. order: the library schedule with exactly the same operations.

    single: True for one stage per rank. vee: True for a V placement with two stages per rank. rounds: True if m must be
    a multiple of m // p. split: True if the backward runs as I and W. abstract: True if it has no order of its own.
    """

    name: str
    order: str | None = None
    single: bool = False
    vee: bool = False
    rounds: bool = False
    split: bool = False
    abstract: bool = False


NAMES = {
    row.name.lower(): row
    for row in (
        TorchName("1F1B", "1f1b", single=True),
        TorchName("GPipe", "gpipe", single=True),
        TorchName("Interleaved1F1B", "interleaved", rounds=True),
        TorchName("LoopedBFS"),
        TorchName("InterleavedZeroBubble", rounds=True, split=True),
        TorchName("ZBVZeroBubble", "zb_v", vee=True, split=True),
        TorchName("DualPipeV", "dualpipev", vee=True, split=True),
        TorchName("PipelineScheduleSingle", single=True, abstract=True),
        TorchName("PipelineScheduleMulti", abstract=True),
    )
}


def torch_name(name: str | None) -> TorchName | None:
    """Return the row of a name, None if torch has no such class. As in torch, case does not matter."""
    return NAMES.get((name or "").lower())


def meant(name: str) -> str:
    """Suggest the torch class that was probably meant: one with a similar name, or the class of a library schedule."""
    if name.lower() == _PRIVATE:
        return "torch has no name for _PipelineScheduleRuntime: write PipelineScheduleMulti, which also runs a CSV"
    own = known_as(name)
    known = {row.name: row for row in NAMES.values()}
    letters = name.lower().replace("_", "").replace("-", "").removeprefix("schedule")
    near = [row.name for row in known.values() if row.name.lower() == letters or (own and row.order == own)]
    near = near or get_close_matches(name, known, 1, 0.6)
    return f"did you mean {near[0]}?" if near else f"the names are {', '.join(known)}"
