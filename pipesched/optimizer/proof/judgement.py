"""The outcome of a judgement, and the entries of a certificate that follow from the schedule and the verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipesched.analysis.idle import Idle
from pipesched.diagnostics import Diagnostic, PipeschedError
from pipesched.model.numbers import plain
from pipesched.optimizer.proof.case import Case
from pipesched.optimizer.proof.entries import Entries
from pipesched.optimizer.verdict import Verdict

DERIVED = ("verdict", "lower_bound", "gap")
"""The entries that the checker adds; when the optimizer calls the checker, they are still missing."""


@dataclass(frozen=True)
class Judgement:
    """The findings, or the verdict if the certificate is accepted. spent: the times of the schedule."""

    findings: tuple[Diagnostic, ...]
    verdict: Verdict | None = None
    spent: Idle | None = None

    def accepted(self) -> Verdict:
        """Return the verdict; raise PipeschedError if there are findings."""
        if self.verdict is None:
            raise PipeschedError(self.findings)
        return self.verdict


def expected(case: Case, verdict: Verdict, backward: str, **more: object) -> dict[str, object]:
    """Return the entries that a certificate for this schedule must have."""
    own = {"objective": case.terms.objective, "backward": backward, "schedule": plain(case.value)}
    return {**own, **more, **verdict.entries()}


def wrong(told: Entries, right: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield (name, right value) of each entry that differs; derived entries can be missing."""
    for name, value in right.items():
        if not same(told.entries.get(name), value) and (name in told.entries or name not in DERIVED):
            yield name, value


def same(given: object, right: object) -> bool:
    """Return True if two values are equal as JSON, where 1, 1.0, true and "1" all differ."""
    return json.dumps(given, sort_keys=True) == json.dumps(right, sort_keys=True)
