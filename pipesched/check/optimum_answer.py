"""Whatever an answer says beside its certificate is what follows from the schedule and its terms.

`pipesched optimize --json` prints a verdict, its terms, times, peaks and bounds. Each of them is derived here, and one
that is told otherwise is named. What cannot be derived is judged by nobody, and listed as such.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pipesched.analysis.holdings import memory
from pipesched.analysis.idle import Idle
from pipesched.check.optimum import Judgement
from pipesched.check.optimum_case import Terms
from pipesched.check.optimum_told import same
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model import verdict as words
from pipesched.model.numbers import exact
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.model.verdict import FOUND, Verdict

NOT_JUDGED = ("found_by", "given", "known", "notes", "reason", "seed")
"""What the search did, and schedules that are not there to be looked at."""

_CHECKED_ELSEWHERE = ("source", "certificate")
_SHOWN = 120  # characters of a value


def check_answer(
    schedule: Schedule, terms: Terms, judged: Judgement, told: Mapping[str, object], documentation: str | None
) -> Iterator[Diagnostic]:
    """PS714, a field says what does not follow. documentation: of the schedule's file."""
    assert judged.verdict is not None and judged.spent is not None
    right = derived(schedule, terms, judged.verdict, judged.spent)
    for name in told:
        if name in right and not same(told[name], right[name]):
            yield _finding(f"`{name}` is {_text(right[name])}, not {_text(told[name])}")
        elif name not in (*right, *NOT_JUDGED, *_CHECKED_ELSEWHERE):
            yield _finding(f"an answer has no entry {name[:40]!r}")
    said = words.documentation(judged.verdict, str(right["for"]))
    if documentation is not None and documentation.split() != said.replace('"', "'").split():
        yield _finding(f"the schedule's documentation is not what follows: {said}")


def derived(schedule: Schedule, terms: Terms, verdict: Verdict, spent: Idle) -> dict[str, object]:
    """The fields of an answer that follow, as JSON. spent: the times of the schedule."""
    placement, fused = schedule.placement, bool((schedule.op == Op.B).any())
    peak = memory(schedule, terms.release, terms.costs.sizes(schedule.stages)).peak
    return {
        "ok": verdict.status != FOUND,
        "status": verdict.status,
        "proved": verdict.proved,
        "verdict": verdict.line,
        "for": words.terms(placement, terms.costs, terms.release, terms.caps, fused=fused),
        "parameters": words.sizes(placement),
        "placement": placement.rank_of.tolist(),
        "objective": terms.objective,
        **exact(makespan=spent.makespan, span=spent.span, bubble=spent.bubble, span_bubble=spent.span_bubble),
        **exact(work=max(spent.work), lower_bound=verdict.lower, gap=verdict.gap),
        "proved_by": None if verdict.word else verdict.shown_by,
        "told_by": verdict.shown_by if verdict.word else None,
        "every": _every(verdict),
        **exact(mem_cap=terms.caps, peak=peak),
        "release": terms.release.name,
        **exact(costs=terms.costs.to_json()),
        "assumed_costs": words.assumed(terms.costs, fused=fused),
        "diagnostics": [],
    }


def _every(verdict: Verdict) -> dict[str, object] | None:
    if verdict.every is None:
        return None
    first, step = verdict.every
    return {"microbatches": first, "step": step, **exact(value=verdict.grown[0], growth=verdict.grown[1])}


def _text(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def _finding(message: str) -> Diagnostic:
    return Diagnostic(Code.ANSWER, f"the answer does not follow: {message}", help="optimize again; this proves nothing")
