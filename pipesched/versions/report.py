"""Weight versions in a report: for each rank, live versions, the staleness of gradients, and crossed STEPs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipesched.model.numbers import shown
from pipesched.report.parts import Part
from pipesched.schedule_analysis import Analysis
from pipesched.versions.facts import Versions

if TYPE_CHECKING:
    from pipesched.examine import Examination


@dataclass(frozen=True)
class VersionPart(Part):
    """For each rank: the most live versions of a stage, the largest staleness, and the most crossed STEPs.

    rule: the version rule in the file, such as ``stash``, ``latest`` or ``delay 1``; "" if the file has no rule.
    """

    key = "versions"

    rule: str
    alive: tuple[int, ...]
    staleness: tuple[int, ...]
    crossed: tuple[int, ...]

    def lines(self) -> list[str]:
        """Return one line with the three rows and the rule."""
        rows = {"weight versions alive": self.alive, "staleness": self.staleness, "STEPs crossed": self.crossed}
        said = [f"{name} {row[0] if len({*row}) == 1 else _row(row)}" for name, row in rows.items()]
        return [f"{', '.join(said)} (versions {self.rule or 'without a rule'})"]

    def to_json(self) -> dict[str, object]:
        """Return the rule, and the rows by name."""
        rows = {"alive": self.alive, "staleness": self.staleness, "crossed": self.crossed}
        return {"rule": self.rule or None, **{name: list(row) for name, row in rows.items()}}


def _row(row: tuple[int, ...]) -> str:
    if len(row) > 8:
        return f"[{'  '.join(map(str, row[:3]))} … {'  '.join(map(str, row[-2:]))}]"
    return f"[{'  '.join(map(shown, row))}]"


def part(made: Examination) -> VersionPart | None:
    """Return the report's part on weight versions; None for an order without a STEP inside."""
    analysis: Analysis = made.analysis
    found = analysis.fact(Versions.of)
    return None if found is None else VersionPart(found.steps.rule, found.alive, found.staleness, found.crossed)


def _by_rank(name: str, without: int) -> Callable[[Analysis], tuple[int, ...]]:
    """Return a function that reads property `name` of `Versions`. without: each rank's value without a STEP inside."""

    def fact(made: Analysis) -> tuple[int, ...]:
        found = made.fact(Versions.of)
        return (without,) * made.schedule.ranks if found is None else getattr(found, name)

    return fact


alive, staleness, crossed = _by_rank("alive", 1), _by_rank("staleness", 0), _by_rank("crossed", 0)
"""The claim names `versions`, the largest number of live versions of a stage; `staleness`, the version at a STEP less
the version that its gradient read; `crossed`, the largest number of STEPs between an F and its backward."""
