"""Writes the findings of `why` as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import groupby

import numpy as np

from pipesched import render
from pipesched.analysis.idle import bubble, headline, split_length
from pipesched.check.rows import CheckCode
from pipesched.engines.binding import Binding
from pipesched.examine import Examination
from pipesched.insight.batches import batch_of
from pipesched.insight.period import Period
from pipesched.insight.recognize import Known
from pipesched.model.numbers import exact, ranges
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.render import clean, sizes
from pipesched.report.report import Report
from pipesched.schedule_analysis import Analysis
from pipesched.support.record import Record
from pipesched.support.source import Span
from pipesched.views import causes as attribution
from pipesched.views.causes import PARTS, Causes, Gaps, Split, critical_path
from pipesched.views.places import Sited
from pipesched.views.tables import ratio, table

TITLES = ("warm-up", "cool-down", "waits for\ncomputes", "waits for\nmessages", "imbalance")
_RANKS = 16  # rows of the table, unless all are requested
_LINES = 12  # lines of the critical path, and of the gaps
_OPS = 6  # operations on a line of the critical path


@dataclass(frozen=True)
class Growth:
    """The growth, per further microbatch, of the makespan and of every part of every rank's idle time.

    more: the difference in microbatches between the two runs.
    """

    more: int
    makespan: Fraction
    parts: Mapping[str, tuple[Fraction, ...]]

    @property
    def idle(self) -> tuple[Fraction, ...]:
        return tuple(sum(column, Fraction(0)) for column in zip(*self.parts.values(), strict=True))


class Why(Record):
    """The explanation of one schedule's idle time. growth: None if the file has no m to vary. period: None if no kernel
    is found.

    instead: the makespan of the same order if messages took no time (`no_latency`), or if every stage (`even_stages`)
    or every microbatch (`even_microbatches`) took the mean time; each is given only if those costs differ from the
    actual ones.
    """

    examined: Examination
    causes: Causes
    gaps: Gaps
    split: Split
    growth: Growth | None
    period: Period | None
    known: Known | None
    instead: Mapping[str, Fraction]
    binding: Binding | None = None

    @property
    def analysis(self) -> Analysis:
        return self.examined.analysis

    @property
    def report(self) -> Report:
        return self.examined.report

    @property
    def exit_status(self) -> int:
        """The exit status for the verdict."""
        return self.report.exit_status

    def __str__(self) -> str:
        return self.text()

    def text(self, *, every: bool = False, verbose: bool = False) -> str:
        """Return the explanation. every: whether to show all ranks and gaps, and the whole critical path. verbose: all
        assumptions.
        """
        bound = self.binding.lines() if self.binding else ()
        facts = "\n".join([*_growth(self), *_instead(self), *bound, *_known(self)])
        rests_on = self.analysis.rests_on if self.analysis.costs.unit else ()
        assumed = "\n".join(render.assumptions(rests_on, verbose=verbose))
        parts = [_head(self), _split(self, every), facts, _path(self, every), *_gaps(self, every), assumed]
        return "\n\n".join(part for part in parts if part)

    def to_json(self) -> dict[str, object]:
        """Return the published form, see ``emit/README.md``."""
        made, grown, known = self.analysis, self.growth, self.known
        return {
            "ok": self.report.ok,
            "name": made.schedule.name,
            "source": self.examined.loaded.source,
            "parameters": dict(self.report.parameters),
            **made.costs.published(made.costs_used),
            **exact(
                makespan=made.makespan, bubble=bubble(made.makespan, self.work()), work=self.work(), idle=self.idle()
            ),
            **exact(split=self.parts()),
            "growth": grown
            and {
                "microbatches": grown.more,
                **exact(makespan=grown.makespan, idle=grown.idle, split=grown.parts),
            },
            "period": _period_json(self.period),
            **exact(instead=self.instead),
            **({"exposed": self.binding.to_json()} if self.binding else {}),
            "critical_path": list(map(partial(_step_json, self), self.path, _spans(made.schedule, self.path))),
            "gaps": [_gap_json(self, gap) for gap in self.longest_first],
            "recognized": known
            and {
                "schedule": known.name,
                "reading": known.like.reading,
                "equal": known.like.whole,
                **exact(common=known.like.common),
                "text": known_text(known, made.schedule),
            },
            "diagnostics": [render.as_json(diagnostic) for diagnostic in self.report.diagnostics],
        }

    def said(self, time: Fraction) -> str:
        """Format a time."""
        return self.analysis.costs.unit.text(time)

    def parts(self) -> dict[str, tuple[Fraction, ...]]:
        """Return the parts of the idle time by rank, in the user's unit."""
        return parts_of(self.analysis, self.split)

    @cached_property
    def path(self) -> list[int]:
        """The operations of the critical path."""
        return critical_path(self.analysis.timeline, self.causes)

    @cached_property
    def longest_first(self) -> list[int]:
        """The indices of the gaps, sorted by descending length, then by rank and time."""
        found: list[int] = np.argsort(-self.gaps.length, kind="stable").tolist()
        return found

    def chain(self, gap: int) -> list[int]:
        """Return the operations that a gap waits for; the operation that ends the wait comes first."""
        return attribution.chain(gap, self.gaps, self.analysis.timeline, self.causes)

    def work(self) -> tuple[Fraction, ...]:
        """Return the work of the operations that ran, by rank."""
        made = self.analysis
        return tuple(map(made.time, attribution.work(made.schedule, made.timeline, made.ticks).tolist()))

    def idle(self) -> tuple[Fraction, ...]:
        """Return the idle time by rank, which is the sum of its parts."""
        return tuple(self.analysis.makespan - work for work in self.work())


def parts_of(made: Analysis, split: Split) -> dict[str, tuple[Fraction, ...]]:
    """Return each part of the idle time, by rank, in the user's unit."""
    return {part: tuple(map(made.time, getattr(split, part).tolist())) for part in PARTS}


def _head(why: Why) -> str:
    """Return the sizes, and the times with the bubble; for an order that deadlocks, how far it runs."""
    time, made, fault = why.report.parts.time, why.analysis, why.report.fault
    title = f"{made.schedule.title or made.schedule.name}  {sizes(why.report.parameters)}"
    unit = made.costs.unit
    remarks = [x.message for x in why.report.diagnostics if x.code is CheckCode.IDLE_RANK]
    remarks += made.costs.doubts(made.costs_used) if unit else made.remarks
    if time is None:
        return "\n".join([f"{clean(title)}   stops at {split_length(made.makespan, why.work(), unit)}", *remarks])
    wrong = "" if fault is None else f"; wrong: {fault.code}"
    return "\n".join([f"{clean(title)}   {headline(time, unit)}{wrong}", *remarks])


def _split(why: Why, every: bool) -> str:
    """Return the table of idle time, with a row per rank; if there are many ranks, the middle ranks are omitted."""
    idle, parts, work, said = why.idle(), why.parts(), why.work(), why.said
    ranks = list(range(why.analysis.schedule.ranks))
    middle = None if every or len(ranks) <= _RANKS else _RANKS // 2
    headers = ["idle by rank", "work", "idle", *TITLES]
    rows = []
    for rank in ranks:
        if middle is not None and middle <= rank < len(ranks) - middle:
            if rank == middle:
                rows.append([f"... {len(ranks) - 2 * middle} more ranks (--all)", *[""] * 7])
            continue
        rows.append([f"rank {rank}", said(work[rank]), said(idle[rank]), *(said(parts[x][rank]) for x in PARTS)])
    return table(headers, rows)


def _growth(why: Why) -> Iterator[str]:
    """Yield the lines about the cost of a further microbatch: the period, or the growth if the order has no period."""
    growth, lasting, said = why.growth, why.period, why.said
    if lasting is not None:
        added, idle, imbalance = lasting.each, lasting.idle, lasting.imbalance
    elif growth is not None:
        added, idle, imbalance = growth.makespan, growth.idle, growth.parts["imbalance"]
    else:
        return
    count = (batch_of(why.analysis) or 1) if why.analysis.schedule.steps else 1
    added *= count
    idle, imbalance = tuple(x * count for x in idle), tuple(x * count for x in imbalance)
    what = f"batch of {count} microbatches" if count > 1 else "microbatch"
    head = f"{'growth' if lasting is None else 'period'}: each further {what} adds {said(added)} to the makespan"
    cause = "" if lasting is None else f"; {_lasting(why, lasting)}"
    if not any(idle) and not any(imbalance):
        yield f"{head} and nothing to the idle time of any rank{cause}"
        return
    most = max(range(len(idle)), key=lambda rank: (abs(idle[rank]), -rank))
    part = imbalance[most]
    share = f", {'all' if part == idle[most] else said(part)} of it imbalance" if part else ""
    yield f"{head}, and {said(idle[most])} to the idle time of rank {most}{share}{cause}"


def _lasting(why: Why, lasting: Period) -> str:
    """Describe the cause of the period: a rank that is always busy, or a cycle through several ranks."""
    if len(lasting.ranks) == 1:
        return f"rank {lasting.ranks[0]} is always busy"
    count = lasting.spans * lasting.microbatches
    each = f"{count} microbatches" if count > 1 else "every microbatch"
    ranks = ranges(lasting.ranks)
    return f"a cycle of waits through ranks {ranks} takes {why.said(lasting.spans * lasting.length)} for {each}"


def _period_json(lasting: Period | None) -> dict[str, object] | None:
    """Return the period as JSON."""
    if lasting is None:
        return None
    facts = exact(period=lasting.each, bubble=lasting.bubble, idle=lasting.idle)
    return {"microbatches": lasting.microbatches, **facts, "ranks": list(lasting.ranks), "spans": lasting.spans}


_INSTEAD = {
    "no_latency": "if messages took no time",
    "even_stages": "if every stage took the mean time",
    "even_microbatches": "if every microbatch took the mean time",
}


def _instead(why: Why) -> Iterator[str]:
    """Yield the lines about the effect of other costs."""
    for name, makespan in why.instead.items():
        change = why.analysis.costs.unit.more(makespan - why.analysis.makespan)
        yield f"{_INSTEAD[name]} the makespan would be {why.said(makespan)} ({change})"


def _known(why: Why) -> Iterator[str]:
    if why.known is not None:
        yield f"this order is {known_text(why.known, why.analysis.schedule)}"


def known_text(known: Known, schedule: Schedule) -> str:
    """Return ``zb_h1``, ``zb_h1 up to the order of W``, ``zb_h1 except for F2.5 to W2.3 on rank 2 (steps 5 to 9)``."""
    if known.like.whole:
        cut = " with full backwards" if bool((schedule.op == Op.B).any()) else " with split backwards"
        lax = {"up to W": " up to the order of W", "split": cut}
        return known.name + lax.get(known.like.reading, "")
    differing = [(rank, low, high) for rank, (low, high) in enumerate(known.like.differing) if high > low]
    if 2 * sum(high - low for _, low, high in differing) > len(schedule):
        return f"{known.name} in {ratio(known.like.common)} of its steps; `pipesched diff` shows the moves"
    parts = []
    for rank, low, high in differing[:_OPS]:
        begin, end = int(schedule.start[rank]), int(schedule.start[rank + 1])
        if (low, high) == (begin, max(end, begin + 1)):  # operations are missing, or all have moved
            parts.append(f"all of rank {rank}" if begin == end else f"rank {rank}")
            continue
        span = f"{schedule[low]} to {schedule[high - 1]}" if high > low + 1 else str(schedule[low])
        parts.append(f"{span} on rank {rank} (steps {schedule.step(low)} to {schedule.step(high - 1)})")
    more = f", and {len(differing) - _OPS} more ranks" if len(differing) > _OPS else ""
    return f"{known.name} except for {', '.join(parts)}{more}"


def _path(why: Why, every: bool) -> str:
    """Return the operations of the critical path, one line per visited rank, with their source positions."""
    if not why.path:
        return ""
    made, said = why.analysis, why.said
    messages = made.time(int(why.causes.lag[why.path].sum()))
    head = f"critical path, {said(made.makespan)} long: {len(why.path)} operation{'s' * (len(why.path) > 1)}"
    if messages:
        head += f" ({said(made.makespan - messages)}) and their {_transfers(why)} ({said(messages)})"
    runs = [(rank, list(steps)) for rank, steps in groupby(why.path, key=lambda i: int(made.schedule.rank[i]))]
    written = dict(zip(why.path, _spans(made.schedule, why.path), strict=True))
    rows = []
    for rank, steps in runs:
        words = [made.schedule.slot(i) for i in steps]
        if len(words) > _OPS and not every:
            words = [*words[:2], f"... {len(words) - 4} more ...", *words[-2:]]
        begin = said(made.time(made.timeline.start[steps[0]]))
        rows.append([f"  t={begin}", f"rank {rank}", " ".join(words), _lines(written[i] for i in steps)])
    if not every and len(rows) > _LINES:
        half = _LINES // 2
        rows[half:-half] = [[f"  ... {len(rows) - 2 * half} more lines (--all)", "", "", ""]]
    return "\n".join([head, table(["", "", "", ""], rows, left=range(4)).lstrip("\n")])


def _spans(schedule: Schedule, operations: Iterable[int]) -> list[Span | None]:
    """Return the source positions of operations."""
    if isinstance(schedule.origin, Sited):
        site, spans = schedule.origin.sited()
        return [spans[int(site[i])] for i in operations]
    return [schedule.origin.place(i).span for i in operations]


def _called(schedule: Schedule, index: int, *, where: bool = True) -> str:
    """Return a description of an operation: ``B4 of stage 3 on rank 3``."""
    op, stage, microbatch = (int(column[index]) for column in (schedule.op, schedule.stage, schedule.microbatch))
    words = f"{Op(op).name}{microbatch} of stage {stage}"
    return f"{words} on rank {int(schedule.rank[index])}" if where else words


def _lines(spans: Iterable[Span | None]) -> str:
    """Return ``1f1b.ps:11``, or the lines of several operations."""
    found = [span for span in spans if span is not None]
    return f"{found[0].source.name}:{','.join(map(str, sorted({span.line for span in found})))}" if found else ""


def _gaps(why: Why, every: bool) -> Iterator[str]:
    """Yield one line per gap, longest first."""
    order = why.longest_first
    if not order:
        return
    chosen = order if every else order[:_LINES]
    lines = [gap_text(why, gap) for gap in chosen]
    if len(order) > len(chosen):
        lines.append(f"... {len(order) - len(chosen)} more gaps (--all)")
    yield "\n".join(lines)


def _transfers(why: Why) -> str:
    """Return the word for the transfers for which idle ranks wait."""
    return "messages" if why.analysis.timeline.copies is None else "messages and copies"


def gap_text(why: Why, gap: int) -> str:
    """Return ``rank 2 idles 3 at t=11, before B4: waits for B4 of stage 3 on rank 3``."""
    made, gaps, said = why.analysis, why.gaps, why.said
    length, at = made.time(gaps.length[gap]), made.time(gaps.begin[gap])
    head = f"rank {int(gaps.rank[gap])} idles {said(length)} at t={said(at)}"
    before = int(gaps.before[gap])
    if before < 0:
        return f"{head}, to the end: {_no_more(why, int(gaps.rank[gap]))}"
    steps, message = why.chain(gap), made.time(gaps.message[gap])
    words = f"{head}, before {_called(made.schedule, before, where=False)}"
    words += f": waits for {_called(made.schedule, steps[0])}" if steps else ""
    if len(steps) > 1:
        words += f", the last of {len(steps)} operations since {_called(made.schedule, steps[-1])}"
    return words + (f"; {said(message)} of it for {_transfers(why)}" if message else "")


def _no_more(why: Why, rank: int) -> str:
    """Explain why a rank idles until the end."""
    stuck = why.analysis.timeline.stuck[rank]
    if stuck >= 0:
        return f"{_called(why.analysis.schedule, stuck, where=False)} never starts"
    if not why.path:
        return "has nothing to do"
    return f"has nothing left to do; {_called(why.analysis.schedule, why.path[-1])} ends last"


def _step_json(why: Why, index: int, span: Span | None) -> dict[str, object]:
    made = why.analysis
    return {
        "rank": int(made.schedule.rank[index]),
        "step": made.schedule.step(index),
        "op": made.schedule.slot(index),
        **exact(start=made.time(made.timeline.start[index]), end=made.time(made.timeline.end[index])),
        **exact(message=made.time(why.causes.lag[index])),
        "line": None if span is None else span.line,
    }


def _gap_json(why: Why, gap: int) -> dict[str, object]:
    made, gaps = why.analysis, why.gaps
    before = int(gaps.before[gap])
    return {
        "rank": int(gaps.rank[gap]),
        **exact(begin=made.time(gaps.begin[gap]), end=made.time(gaps.end[gap])),
        "before": None if before < 0 else made.schedule.slot(before),
        **exact(message=made.time(gaps.message[gap])),
        "waits_for": [{"rank": int(made.schedule.rank[i]), "op": made.schedule.slot(i)} for i in why.chain(gap)],
        "text": gap_text(why, gap),
    }
