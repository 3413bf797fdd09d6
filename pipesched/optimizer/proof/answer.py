"""The entries of `pipesched optimize --json` other than the certificate, derived from the schedule, its terms and
verdict.

Each entry is derived anew, and a difference from the answer is reported. Entries that cannot be derived are listed as
not judged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import islice

from pipesched.analysis.idle import Idle
from pipesched.diagnostics import Diagnostic
from pipesched.model.numbers import exact
from pipesched.model.schedule import Schedule
from pipesched.optimizer import verdict as words
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.proof.judgement import Judgement, same
from pipesched.optimizer.verdict import FOUND, Terms, Verdict
from pipesched.schedule_analysis import Analysis

NOT_JUDGED = ("bytes", "found_by", "given", "known", "lost", "notes", "reason", "seed")
"""The entries about the search, and about schedules that the answer does not contain."""

_TIMES = ("makespan", "span", "bubble", "span_bubble")
_CHECKED_ELSEWHERE = ("source", "certificate")
_SHOWN = 120  # most characters shown of a value
_MOST = 40  # most wrong entries that are reported


def check_answer(
    schedule: Schedule, terms: Terms, judged: Judgement, answer: Mapping[str, object], documentation: str | None
) -> Iterator[Diagnostic]:
    """Yield PS714 for every entry that differs from the derived one. documentation: the schedule's docstring."""
    assert judged.verdict is not None and judged.spent is not None
    peak = Analysis(schedule, terms.costs, terms.release).memory.peak
    right = derived(terms, judged.verdict, judged.spent, peak)
    yield from (_finding(wrong) for wrong in islice(_wrong(right, answer), _MOST))
    own = words.documentation(judged.verdict, terms)
    if documentation is not None and documentation.split() != own.replace('"', "'").split():
        yield _finding(f"the schedule's documentation differs from the derived one: {own}")


def _wrong(right: Mapping[str, object], answer: Mapping[str, object]) -> Iterator[str]:
    """Yield a message for every entry that differs from the derived one."""
    known = {*right, *NOT_JUDGED, *_CHECKED_ELSEWHERE}
    for name, value in answer.items():
        if name in right and not same(value, right[name]):
            yield f"`{name}` is {_text(right[name])}, not {_text(value)}"
        elif name not in known:
            yield f"answers have no entry {name[:40]!r}"


def derived(terms: Terms, verdict: Verdict | None, spent: Idle | None, peak: Sequence[Fraction]) -> dict[str, object]:
    """Derive the entries of an answer, as JSON. spent, peak: the schedule's times and peaks; verdict, spent: None if
    there is no schedule.
    """
    times = {name: None if spent is None else getattr(spent, name) for name in _TIMES}
    return {
        "ok": verdict is not None and verdict.status != FOUND,
        **({} if verdict is None else verdict.to_json()),
        "for": terms.text,
        "parameters": words.sizes(terms.placement),
        "placement": terms.placement.rank_of.tolist(),
        "objective": terms.objective,
        **exact(**times, work=None if spent is None else max(spent.work), gap=None if verdict is None else verdict.gap),
        "every": None if verdict is None else verdict.every_json,
        **exact(mem_cap=terms.caps, peak=peak),
        **as_asked(terms),
        "release": terms.release.name,
        **exact(costs=terms.costs.to_json()),
        "assumed_costs": terms.assumed,
        "diagnostics": [],
    }


def as_asked(terms: Terms) -> dict[str, object]:
    """Return the entries that no check reads: the unit of times, and caps in bytes as the user typed them."""
    unit: dict[str, object] = {"unit": terms.costs.unit.name} if terms.costs.unit else {}
    return unit if terms.asked is None else {**unit, "asked_cap": [cap.written or f"{cap} B" for cap in terms.asked]}


def _text(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def _finding(message: str) -> Diagnostic:
    return Diagnostic(
        OptimizerCode.ANSWER,
        f"the answer does not follow from its certificate: {message}",
        help="run `pipesched optimize` again: this file is not a valid proof",
    )
