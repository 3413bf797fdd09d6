"""Marks for the rows of ranks that stop for good, and for the messages between the ranks of the cycle."""

from __future__ import annotations

from dataclasses import dataclass

from pipesched.analysis.standstill import Blocked, Link, Standstill
from pipesched.views.chart.caption import blocked, link


def messages(stop: Standstill) -> list[Link]:
    """Return the waits of the cycle in which one rank waits for another."""
    return [x for x in stop.cycle if x.other != x.blocked.rank]


@dataclass(frozen=True)
class Mark:
    """A mark in the row of a blocked rank. link: the rank's wait in the cycle, None if it is not in the cycle."""

    blocked: Blocked
    link: Link | None

    @property
    def rank(self) -> int:
        return self.blocked.rank

    @property
    def cycle(self) -> bool:
        return self.link is not None

    @property
    def words(self) -> str:
        """The text in the row: the instruction, and the instruction for which it waits."""
        x = self.link
        return f"{x.needs or x.blocked.at} waits for {x.until}" if x is not None and x.until else self.blocked.at

    @property
    def sentence(self) -> str:
        """The text of the tooltip."""
        return link(self.link) if self.link is not None else blocked(self.blocked)


def marks(stop: Standstill | None) -> list[Mark]:
    """Return the marks of all ranks that stop for good."""
    links = {} if stop is None else {x.blocked.rank: x for x in reversed(stop.cycle)}
    return [] if stop is None else [Mark(x, links.get(x.rank)) for x in stop.waiting]
