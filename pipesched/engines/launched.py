"""Check the calls that a framework's code issued: members of a group make the same calls, and no calls wait for each
other in a cycle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pipesched.check.checks import Subject
from pipesched.diagnostics import Diagnostic
from pipesched.engines.calls import read
from pipesched.engines.meetings import Meetings
from pipesched.interop.frameworks.loaded import Launched
from pipesched.report.parts import Communication, Part
from pipesched.support.source import Source

if TYPE_CHECKING:
    from pipesched.examine import Examination

_READ = lru_cache(maxsize=2)(lambda source: Meetings(read(source)))


def _made(source: Source) -> Meetings:
    """Return the meetings of the calls in a file."""
    made: Meetings = _READ(source)
    return made


def check(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS407 and PS408 for the calls that a framework's code issued."""
    source = subject.of(Launched).source
    if source is None:
        return
    meetings = _made(source)
    yield from meetings.apart()  # the order contains the messages and has its own checks
    if not meetings.uneven:
        yield from meetings.deadlock(subject.analysis.model)


@dataclass(frozen=True)
class Met(Part):
    """The verdict on the calls of expert peers. meetings: the number of collective calls, each counted once for all its
    members. peers: the number of members of the largest group.
    """

    key = "meetings"

    meetings: int
    calls: int
    peers: int
    communication: Communication

    def short(self) -> list[str]:
        """Return the number of meetings."""
        return [f"{self.meetings} meetings"]

    def lines(self) -> list[str]:
        """Return the verdict."""
        return [f"{self.meetings} meetings of {self.peers} expert peers: calls agree · {self.communication}"]

    def to_json(self) -> dict[str, object]:
        """Return the counts, and the names of the models under which all calls complete, and of all other models."""
        said = self.communication
        models = {"model": said.model, "holds": list(said.holds), "fails": list(said.fails), "capacity": said.capacity}
        return {"meetings": self.meetings, "calls": self.calls, "peers": self.peers, **models}


def met(examination: Examination) -> Met | None:
    """Return the verdict on calls that agree and complete under the requested model; None for other calls."""
    source, analysis = examination.judged.of(Launched).source, examination.analysis
    if source is None:
        return None
    meetings, model = _made(source), analysis.model
    if meetings.uneven or next(meetings.apart(), None) or not meetings.holds(model):
        return None
    groups = [of for of in meetings.collective.values() if any(of)]
    return Met(
        sum(len(of[0]) for of in groups),
        len(meetings.at),
        max(map(len, groups), default=0),
        meetings.verdict(model),
    )
