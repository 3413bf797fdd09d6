"""Translates the instructions of DeepSpeed's pipeline engine, which name buffers instead of microbatches, to words and
uses of buffers. The first and the last stage load the microbatches in order, and the other stages receive them from the
stage before; the i-th instruction of a kind on a buffer belongs to the i-th microbatch put into it.

    instruction         word          place of the microbatch        held until
    LoadMicroBatch(0)                 input buffer 0, first stage    until F
                                      label buffer 0, last stage     until F
    RecvActivation(0)   recv:F1.4<1   input buffer 0                 until F, and SendGrad
    ForwardPass(0)      F2.4          output buffer 0                until SendActivation, RecvGrad and B
                                      the loss, last stage           until B       one for all microbatches
    RecvGrad(0)         recv:B3.4<3   the received gradient          until B       one for all microbatches

Messages posted before a CommitP2P are one batch (DualPipeVSchedule, whose engine has a loss and a gradient per buffer).
Source: `_exec_*` of DeepSpeed 0.19.8, `runtime/pipe/engine.py` and `runtime/pipe/dualpipev.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pipesched.interop.frameworks.recording import Nonsense, Place, Recorded

if TYPE_CHECKING:
    from pipesched.interop.frameworks.kept import Kept

LOAD, FORWARD, BACKWARD = "LoadMicroBatch", "ForwardPass", "BackwardPass"
COMMIT, REDUCE, STEP = "CommitP2P", "ReduceGrads", "OptimizerStep"
WORDS = {
    FORWARD: "F{stage}.{microbatch}",
    BACKWARD: "B{stage}.{microbatch}",
    "SendActivation": "send:F{stage}.{microbatch}>{after}",
    "RecvActivation": "recv:F{reads}.{microbatch}<{before}",
    "SendGrad": "send:B{stage}.{microbatch}>{before}",
    "RecvGrad": "recv:B{behind}.{microbatch}<{after}",
}
KNOWN = (*WORDS, LOAD, REDUCE, STEP, COMMIT, "ReduceTiedGrads")


@dataclass
class _One:
    """An instruction of DeepSpeed. phase: 0 or 1, the chunk in DualPipeV. word: the index of its word in the row, or of
    the next word if the instruction has none.
    """

    name: str
    buffer: int
    phase: int
    made_at: Place | None
    microbatch: int = -1
    word: int = -1


@dataclass
class _Stage:
    """A stage with its instructions. before, after: the ranks of the neighbouring stages."""

    number: int
    rank: int
    before: int
    after: int
    first: bool
    last: bool
    own: list[_One]

    def all(self, name: str) -> list[_One]:
        """Return the instructions of this stage with this name."""
        return [one for one in self.own if one.name == name]


def known(given: object) -> str:
    """Return an instruction's name: the first known one of its class and base classes; empty if none is known."""
    return next((kind.__name__ for kind in type(given).__mro__ if kind.__name__ in KNOWN), "")


def recorded(given: Iterable[Iterable[tuple[object, Place | None]]], version: str) -> Recorded:
    """Translate the instructions of all ranks. given: each rank's instructions, with the lines that created them."""
    rows = [list(row) for row in given]
    unknown = {type(one).__name__ for one, _ in chain(*rows) if not known(one)}
    ranks = [[_read(one, place) for one, place in row if known(one)] for row in rows]
    batched = any(one.name == COMMIT for one in chain(*ranks))
    stages = _stages(ranks)
    _name(stages)
    words, places = list[list[str]](), list[list[Place | None]]()
    kept: list[list[Kept]] = []
    for rank, row in enumerate(ranks):
        own = [x for x in stages if x.rank == rank]
        said, at = _row(row, own, batched)
        words.append(said)
        places.append(at)
        kept.append([x for stage in own for x in _kept(stage, alone=not batched and not unknown)])
    left = f"omitted, since DeepSpeed does not have them: {', '.join(sorted(unknown))}; losses are not checked"
    return Recorded(words, places, version, [left] if unknown else [], kept)


def _read(one: object, place: Place | None) -> _One:
    buffer, phase = getattr(one, "buffer_id", -1), getattr(one, "phase", 0)
    if not isinstance(buffer, int) or phase not in (0, 1):
        raise Nonsense(f"{type(one).__name__} names an invalid buffer or phase: buffer {buffer!r}, phase {phase!r}")
    return _One(known(one), buffer, phase, place)


def _stages(ranks: list[list[_One]]) -> list[_Stage]:
    """Return the stages in the order in which activations pass them: down the ranks, and up again with two phases."""
    p, folded = len(ranks), any(one.phase for row in ranks for one in row)
    home = [*range(p), *(reversed(range(p)) if folded else ())]
    made = []
    for number, rank in enumerate(home):
        own = [one for one in ranks[rank] if one.buffer >= 0 and one.phase == number // p]
        before, after = home[number - 1], home[number + 1 - len(home)]
        made.append(_Stage(number, rank, before, after, number == 0, last=number == len(home) - 1, own=own))
    return made


def _name(stages: list[_Stage]) -> None:
    """Set the microbatch of every instruction."""
    arrived: list[int] = []
    for stage in stages:
        entered, seen = _entered(stage, arrived), Counter[tuple[str, int]]()
        for one in stage.own:
            there, turn = entered[one.buffer], seen[one.name, one.buffer]
            if turn >= len(there):
                raise Nonsense(f"{one.name}({one.buffer}) of stage {stage.number} uses an empty buffer")
            one.microbatch = there[turn]
            seen[one.name, one.buffer] += 1
        arrived = [x.microbatch for x in stage.all("SendActivation") or stage.all(FORWARD)]


def _entered(stage: _Stage, arrived: list[int]) -> dict[int, list[int]]:
    """Return the microbatches put into each buffer of a stage, in order. arrived: microbatches sent to the stage."""
    loads, puts = stage.all(LOAD), stage.all("RecvActivation")
    if stage.first or not puts:  # the activation stays on the rank
        puts = loads or stage.all(FORWARD)
    turns = [*arrived, *range(len(arrived), len(puts))]
    if loads and stage.last:
        puts, turns = loads, [*range(len(loads))]
    entered = defaultdict[int, list[int]](list)
    for one, microbatch in zip(puts, turns, strict=False):
        entered[one.buffer].append(microbatch)
    return entered


def _row(row: list[_One], stages: list[_Stage], batched: bool) -> tuple[list[str], list[Place | None]]:
    """Return the words of a rank, and the line that created each word."""
    words: list[str] = []
    places: list[Place | None] = []
    posted: list[_One] = []
    count = 0

    def say(text: str, place: Place | None) -> None:
        words.append(text)
        places.append(place)

    for one in row:
        stage = stages[min(one.phase, len(stages) - 1)]
        if one.name == COMMIT:
            if len(posted) > 1:
                say("(", None)
            for message in posted:
                message.word, count = count, count + 1
                say(_word(message, stages[message.phase]), message.made_at)
            if len(posted) > 1:
                say(")", None)
            posted = []
        elif one.name in (REDUCE, STEP):
            for each in stages if one.name == REDUCE else stages[:1]:
                count += 1
                say(f"reduce:{each.number}" if one.name == REDUCE else "step", one.made_at)
        elif batched and one.name in WORDS and one.name not in (FORWARD, BACKWARD):
            posted.append(one)
        elif one.name in WORDS:
            one.word, count = count, count + 1
            say(_word(one, stage), one.made_at)
        else:
            one.word = count  # index of the next word
    return words, places


def _word(one: _One, stage: _Stage) -> str:
    number = stage.number
    return WORDS[one.name].format(
        stage=number,
        microbatch=one.microbatch,
        reads=number - 1,
        behind=number + 1,
        before=stage.before,
        after=stage.after,
    )


def _kept(stage: _Stage, *, alone: bool) -> Iterator[Kept]:
    """Yield the span during which each buffer of a stage holds each microbatch.

    alone: True if the engine has only one buffer for all losses and one for all received gradients.
    """
    spans: dict[tuple[str, int], tuple[int, int, int, int]] = {}
    for step, one in enumerate(stage.own):
        for place in _places(stage, one, alone):
            begin = spans.get((place, one.microbatch), (step, one.word))
            spans[place, one.microbatch] = begin[0], begin[1], step, one.word
    for (place, microbatch), span in spans.items():
        yield place, stage.number, microbatch, *span


def _places(stage: _Stage, one: _One, alone: bool) -> Iterator[str]:
    """Yield the names of the buffers that an instruction writes or reads."""
    if one.name in ("RecvActivation", FORWARD, "SendGrad") or (one.name == LOAD and stage.first):
        yield f"input buffer {one.buffer}"
    if stage.last and one.name in (LOAD, FORWARD):
        yield f"label buffer {one.buffer}"
    if one.name in (FORWARD, "SendActivation", "RecvGrad") or (one.name == BACKWARD and not stage.last):
        yield f"output buffer {one.buffer}"
    if alone and stage.last and one.name in (FORWARD, BACKWARD):
        yield "the loss"
    if alone and not stage.last and one.name in ("RecvGrad", BACKWARD):
        yield "the received gradient"
