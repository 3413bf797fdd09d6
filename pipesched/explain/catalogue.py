"""The catalogue of the library, grouped by placement and by special requirements, oldest first. The group of a file is
computed from the file at a small size, so a new file needs no entry elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from pipesched.common.aliases import others
from pipesched.common.library import sized
from pipesched.formats.readers import checked
from pipesched.library.assets import built_in
from pipesched.library.inputs import read
from pipesched.model.columns import among
from pipesched.model.ops import HOLDING
from pipesched.model.schedule import Schedule

ONE = "one stage on each rank"
LOOP = "several stages on each rank, in a loop"
TURN = "several stages on each rank, down the ranks and up again"
ROUTES = "several routes through the ranks, each with its own copy of every stage"
STEPS = "no flush: STEPs inside the order, with older weights"
KEPT = "recomputation, or activations in host memory"
SPECIAL = "special models, data and uses"
GROUPS = (ONE, LOOP, TURN, ROUTES, STEPS, KEPT, SPECIAL)
_SIZES = {"p": 4, "m": 8}
_PAPER = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


@dataclass(frozen=True)
class Entry:
    """A library schedule. documentation: the documentation in its file, on one line. also: its aliases."""

    name: str
    title: str
    documentation: str
    group: str
    also: tuple[str, ...]

    @property
    def papers(self) -> tuple[str, ...]:
        """The arXiv numbers of the papers that the schedule's file names, such as 2104.04473."""
        return tuple(dict.fromkeys(_PAPER.findall(self.documentation)))

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "documentation": self.documentation,
            "title": self.title,
            "group": self.group,
            "also": list(self.also),
        }


def entries() -> list[Entry]:
    """Return all entries, group by group, in the order of publication within a group."""
    found = []
    for name in built_in():
        source = read(name)
        file = checked(source).file
        documentation = " ".join((file.documentation or "").split())
        group = _group(sized(source, _SIZES), lists=bool(checked(source).lists))
        found.append(Entry(name, file.title or name, documentation, group, others(name)))
    return sorted(found, key=lambda entry: (GROUPS.index(entry.group), entry.papers[:1] or ("~",), entry.name))


def _group(schedule: Schedule | None, *, lists: bool) -> str:
    if schedule is None or lists:
        return SPECIAL
    place, ranks = schedule.placement, schedule.ranks
    if schedule.forward_only or place.frozen or not place.chain or schedule.slices > 1:
        return SPECIAL
    if schedule.steps is not None:
        return STEPS
    if among(schedule.op, HOLDING).any():
        return KEPT
    if place.routes > 1:
        return ROUTES
    if place.stages == ranks:
        return ONE
    return LOOP if np.array_equal(place.rank_of[0], np.arange(place.stages) % ranks) else TURN
