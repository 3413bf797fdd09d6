"""`why` as programs read it: the shape is told in ``emit/README.md``."""

from __future__ import annotations

from pipesched import render
from pipesched.analysis.assumptions import assumed
from pipesched.comparison.known import Known
from pipesched.comparison.run import slot
from pipesched.comparison.tables import number
from pipesched.comparison.why import Growth, Why
from pipesched.comparison.why_text import gap_text, known_text
from pipesched.model.schedule import Schedule
from pipesched.source import Span


def as_json(why: Why) -> dict[str, object]:
    """The published form, see ``emit/README.md``."""
    run = why.run
    return {
        "ok": run.report.ok,
        "name": run.schedule.name,
        "source": run.loaded.source,
        "parameters": dict(run.report.parameters),
        "costs": run.costs.to_json(),
        "assumed_costs": assumed(run.costs, run.kinds),
        "cost_remarks": run.remarks,
        "makespan": number(run.makespan),
        "work": [number(x) for x in why.work()],
        "idle": [number(x) for x in why.idle()],
        "split": {part: [number(x) for x in row] for part, row in why.parts().items()},
        "growth": None if why.growth is None else _growth_json(why.growth),
        "instead": {name: number(makespan) for name, makespan in why.instead.items()},
        "critical_path": [_step_json(why, i, span) for i, span in zip(why.path, run.spans(why.path), strict=True)],
        "gaps": [_gap_json(why, gap) for gap in why.longest_first],
        "recognized": None if why.known is None else _known_json(why.known, run.schedule),
        "diagnostics": [render.as_json(diagnostic) for diagnostic in run.report.diagnostics],
    }


def _growth_json(growth: Growth) -> dict[str, object]:
    return {
        "microbatches": growth.more,
        "makespan": number(growth.makespan),
        "idle": [number(x) for x in growth.idle],
        "split": {part: [number(x) for x in row] for part, row in growth.parts.items()},
    }


def _step_json(why: Why, index: int, span: Span | None) -> dict[str, object]:
    run = why.run
    return {
        "rank": int(run.schedule.rank[index]),
        "step": run.schedule.step(index),
        "op": slot(run.schedule, index),
        "start": number(run.time(run.times.start[index])),
        "end": number(run.time(run.times.end[index])),
        "message": number(run.time(why.causes.lag[index])),
        "line": None if span is None else span.line,
    }


def _gap_json(why: Why, gap: int) -> dict[str, object]:
    run, gaps = why.run, why.gaps
    before = int(gaps.before[gap])
    return {
        "rank": int(gaps.rank[gap]),
        "begin": number(run.time(gaps.begin[gap])),
        "end": number(run.time(gaps.end[gap])),
        "before": None if before < 0 else slot(run.schedule, before),
        "message": number(run.time(gaps.message[gap])),
        "waits_for": [{"rank": int(run.schedule.rank[i]), "op": slot(run.schedule, i)} for i in why.chain(gap)],
        "text": gap_text(why, gap),
    }


def _known_json(known: Known, schedule: Schedule) -> dict[str, object]:
    return {
        "schedule": known.name,
        "reading": known.like.reading,
        "equal": known.like.whole,
        "common": number(known.like.common),
        "text": known_text(known, schedule),
    }
