"""`why` as programs read it: the shape is told in ``emit/README.md``."""

from __future__ import annotations

from pipesched import render
from pipesched.analysis.assumptions import published
from pipesched.analysis.idle import bubble
from pipesched.model.numbers import exact
from pipesched.model.schedule import Schedule
from pipesched.source import Span
from pipesched.verbs.recognize import Known
from pipesched.verbs.timed import slot
from pipesched.verbs.why import Growth, Why
from pipesched.verbs.why_text import gap_text, known_text


def as_json(why: Why) -> dict[str, object]:
    """The published form, see ``emit/README.md``."""
    run = why.run
    return {
        "ok": run.report.ok,
        "name": run.schedule.name,
        "source": run.loaded.source,
        "parameters": dict(run.report.parameters),
        **published(run.costs, run.kinds),
        **exact(makespan=run.makespan, bubble=bubble(run.makespan, why.work()), work=why.work(), idle=why.idle()),
        **exact(split=why.parts()),
        "growth": None if why.growth is None else _growth_json(why.growth),
        **exact(instead=why.instead),
        "critical_path": [_step_json(why, i, span) for i, span in zip(why.path, run.spans(why.path), strict=True)],
        "gaps": [_gap_json(why, gap) for gap in why.longest_first],
        "recognized": None if why.known is None else _known_json(why.known, run.schedule),
        "diagnostics": [render.as_json(diagnostic) for diagnostic in run.report.diagnostics],
    }


def _growth_json(growth: Growth) -> dict[str, object]:
    return {
        "microbatches": growth.more,
        **exact(makespan=growth.makespan, idle=growth.idle, split=growth.parts),
    }


def _step_json(why: Why, index: int, span: Span | None) -> dict[str, object]:
    run = why.run
    return {
        "rank": int(run.schedule.rank[index]),
        "step": run.schedule.step(index),
        "op": slot(run.schedule, index),
        **exact(start=run.time(run.times.start[index]), end=run.time(run.times.end[index])),
        **exact(message=run.time(why.causes.lag[index])),
        "line": None if span is None else span.line,
    }


def _gap_json(why: Why, gap: int) -> dict[str, object]:
    run, gaps = why.run, why.gaps
    before = int(gaps.before[gap])
    return {
        "rank": int(gaps.rank[gap]),
        **exact(begin=run.time(gaps.begin[gap]), end=run.time(gaps.end[gap])),
        "before": None if before < 0 else slot(run.schedule, before),
        **exact(message=run.time(gaps.message[gap])),
        "waits_for": [{"rank": int(run.schedule.rank[i]), "op": slot(run.schedule, i)} for i in why.chain(gap)],
        "text": gap_text(why, gap),
    }


def _known_json(known: Known, schedule: Schedule) -> dict[str, object]:
    return {
        "schedule": known.name,
        "reading": known.like.reading,
        "equal": known.like.whole,
        **exact(common=known.like.common),
        "text": known_text(known, schedule),
    }
