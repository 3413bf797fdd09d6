"""Writes the built-in schedules at a grid of sizes, as JSON that a page in a browser plays.

    {"name": "1f1b", "title": "1F1B", "parameters": ["p", "m"], "entries": [
        {"sizes": {"p": 4, "m": 8}, "ranks": 4, "stages": 4, "microbatches": 8, "start": [0, 16, ...],
         "place": [[0, 1, 2, 3]], "columns": "H4sI..."}, ...]}

columns: words of 16 bits, gzipped, in base64: for each operation its kind, plus 128 if it is the second part of an
overlap pair; its stage; its microbatch minus the expected microbatch, which follows that of the last operation of the
    same kind and stage on the rank; its line. Repetitive lists are short in this form: the 98,304 operations of ZB-H1
    at p = 64 and m = 512 take 2 kB.
"""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from pipesched.common.library import sized
from pipesched.explain import catalogue
from pipesched.formats.readers import checked
from pipesched.library.inputs import read
from pipesched.model.columns import Column, Ints
from pipesched.model.ops import COMPUTES, COPIES, Result
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source
from pipesched.views.places import Sited

MOST = 1 << 17
"""The largest number of operations in an entry."""
RANKS = (2, 3, 4, 6, 8, 12, 16, 32, 64)
STAGES = (2, 3, 4)
MICROBATCHES = (1, 2, 3, 4, 8)
"""Microbatches for each rank."""


@dataclass(frozen=True)
class Played:
    """A built-in schedule at the sizes of the grid that it accepts. refused: the reason why the page omits it, or
    empty.
    """

    name: str
    title: str
    documentation: str
    text: str
    entries: tuple[Mapping[str, object], ...] = ()
    refused: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the JSON object for its file."""
        return {"name": self.name, "title": self.title, "text": self.text, "entries": list(self.entries)}


def gallery(ranks: Sequence[int] = RANKS, microbatches: Sequence[int] = MICROBATCHES) -> Iterator[Played]:
    """Yield every built-in schedule, in the order of `pipesched list`."""
    for entry in catalogue.entries():
        source = read(entry.name)
        made, refused = _entries(source, ranks, microbatches)
        yield Played(entry.name, entry.title, entry.documentation, source.text, tuple(made), refused)


def _entries(
    source: Source, ranks: Sequence[int], microbatches: Sequence[int]
) -> tuple[list[Mapping[str, object]], str]:
    """Return the entries of a schedule at all sizes that its `require` accepts, or the reason why there are none."""
    if checked(source).lists:
        return [], "it has parameters that are lists"
    names = checked(source).parameters
    made: list[Mapping[str, object]] = []
    for p, v, each in product(ranks, STAGES if "v" in names else (0,), microbatches):
        sizes = {"p": p, "v": v, "m": p * each}
        schedule = sized(source, {name: x for name, x in sizes.items() if name in names})
        if schedule is None or len(schedule) > MOST:
            continue
        if schedule.has(COPIES):
            return [], "it copies activations to host memory"
        if (schedule.placement.rank_of < 0).any():
            return [], "its microbatches skip stages"
        made.append(entry_of(schedule))
    return made, "" if made else "it accepts no size of the grid"


def entry_of(schedule: Schedule) -> dict[str, object]:
    """Return a schedule in the page's format."""
    place = schedule.placement
    found: dict[str, object] = {
        "sizes": {name: x for name, x in schedule.parameters.items() if isinstance(x, int)},
        "ranks": schedule.ranks,
        "stages": schedule.stages,
        "microbatches": schedule.microbatches,
        "start": schedule.start.tolist(),
        "place": place.rank_of.tolist(),
        "columns": _packed(schedule),
    }
    if place.routes > 1:
        found["route"] = place.route_of.tolist()
    if schedule.steps is not None:
        found["steps"] = np.unique(schedule.steps.at - 1).tolist()
    if not place.chain:
        found["reads"] = [list(place.read(stage)) for stage in range(place.stages)]
    if place.frozen:
        found["trained"] = place.wants[Result.WEIGHTS].tolist()
    if not schedule.keeps.all() and not schedule.forward_only:
        found["kept"] = schedule.keeps.tolist()
    return found


def _packed(schedule: Schedule) -> str:
    kind = schedule.op + 128 * schedule.joined.astype(np.int16)
    columns = (kind, schedule.stage, _jumps(schedule), _lines(schedule))
    raw = b"".join(np.asarray(column).astype("<i2").tobytes() for column in columns)
    return b64encode(gzip.compress(raw, 9, mtime=0)).decode("ascii")


def _jumps(schedule: Schedule) -> Ints:
    """Return, for each operation, its microbatch minus the expected microbatch (see `columns` above); shape
    (operations,).
    """
    own = (schedule.rank.astype(np.int64) * len(COMPUTES) + schedule.op) * schedule.stages + schedule.stage
    order = np.argsort(own, kind="stable")
    microbatch, first = schedule.microbatch[order].astype(np.int64), np.diff(own[order], prepend=-1) != 0
    before = np.where(first, 0, np.concatenate([[0], microbatch[:-1] + 1]))
    jumps = np.empty(len(schedule), dtype=np.int64)
    jumps[order] = microbatch - before
    return jumps


def _lines(schedule: Schedule) -> Column:
    """Return the line of each operation in its file, from 1; 0 if it is not known."""
    if not isinstance(schedule.origin, Sited):
        return np.zeros(len(schedule), dtype=np.int64)
    site, spans = schedule.origin.sited()
    return np.array([span.line for span in spans], dtype=np.int64)[site]
