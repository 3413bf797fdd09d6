"""The verdict as a value: what was checked, what was found, what it costs.

    ok  interleaved 1F1B  p=4 v=2 m=8   128 ops, 112 messages
        complete · data flow · channels FIFO · deadlock-free (strict, so under every model)
        peak 5.5 of cap none, on rank 0      [5.5  4.5  3.5  2.5]
        makespan 57 = 48 work + 9 idle   bubble 15.8 % (3/19)
        claims 2 of 2 hold

A verdict is good if no diagnostic is an error. `str(report)` is what the command line prints, `to_json()` the
published form (``emit/v1/report.schema.json``). Where a broken file leaves a part unknown, its keys in JSON are there
with null or nothing in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Generic, TypeVar

from pipesched import render
from pipesched.analysis.idle import Idle, headline
from pipesched.diagnostics import Diagnostic, PipeschedError, exit_status, fault_in
from pipesched.model import lists
from pipesched.model.numbers import Value, exact, gigabytes, percent, ranges, share, shown
from pipesched.model.verdict import Verdict
from pipesched.safe import safe
from pipesched.schedule_analysis import Analysis

if TYPE_CHECKING:
    from pipesched.analysis.footprint import Footprint
    from pipesched.analysis.permutations import Worst

Part = TypeVar("Part")
_INDENT = " " * 4
_ROWS = 17  # of a table by rank that are printed
_SHOWN = 8  # ranks of a list that are printed; longer ones keep both ends


@dataclass(frozen=True, slots=True)
class Communication:
    """The deadlock verdict under the named models.

    model: the one asked for. holds, fails: names of models. capacity: the least number of buffered messages a channel
    needs, 0 if strict holds, None if no number is enough. makespan: the end of the last rank where messages wait for
    their turn under the model; None where no model was asked for, or it does not end.
    """

    model: str
    holds: tuple[str, ...]
    fails: tuple[str, ...]
    capacity: int | None
    makespan: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Most activations live at once, by rank. Unit: one microbatch through 1/p of the model.

    release: the rule that frees them. cap: by rank, in the same unit, or None. notes: what else takes memory.
    received, unsent: by rank, where the file names its messages, the most that are received and not yet used, made and
    not yet sent. Their buffers are in no peak, nor are parameters, gradients, optimizer states and workspace.
    host: by rank, where activations are offloaded, the most in host memory at once, each from its O to its L.
    """

    release: str
    unit: str
    peak: tuple[Fraction, ...]
    cap: tuple[Fraction, ...] | None = None
    notes: tuple[str, ...] = ()
    received: tuple[int, ...] | None = None
    unsent: tuple[int, ...] | None = None
    host: tuple[Fraction, ...] | None = None

    def __repr__(self) -> str:
        return f"<Memory peak {_list_text(self.peak)} of cap {_list_text(self.cap) if self.cap else 'none'}>"


@dataclass(frozen=True, slots=True)
class InBytes:
    """What every rank needs for a transformer when it needs most, in bytes.

    model: its name. ranks: by rank the bytes of each kind, as `analysis.footprint` has them. at: by rank the operation
    when it needs most, empty where it has none. cap: by rank, or None. assumed: in words, what the figures rest on.
    host: by rank the most in host memory, where activations are offloaded.
    """

    model: str
    ranks: tuple[Mapping[str, int], ...]
    at: tuple[str, ...]
    cap: tuple[Fraction, ...] | None
    assumed: tuple[str, ...]
    host: tuple[int, ...] | None = None

    @classmethod
    def of(cls, used: Footprint, cap: tuple[Fraction, ...] | None) -> InBytes:
        """What a footprint says."""
        at = tuple(str(used.schedule[index]) if index >= 0 else "" for index in used.peak_at)
        return cls(used.trained[0].name, used.peaks, at, cap, used.assumed, used.host)

    @property
    def total(self) -> tuple[int, ...]:
        """The most that each rank needs."""
        return tuple(sum(kinds.values()) for kinds in self.ranks)

    def lines(self) -> list[str]:
        """The most against the cap, a table by rank, and what is assumed. Of many ranks the ends and the fullest."""
        total, cap = self.total, self.cap or (None,) * len(self.ranks)
        top = total.index(max(total))
        limit = gigabytes(self.cap[top]) if self.cap else "none"
        kinds = [kind for kind in self.ranks[0] if any(rank[kind] for rank in self.ranks)]
        rows = [["rank", *kinds, "total", *(["cap", "free"] if self.cap else []), "at"]]
        for rank, (sizes, most, own, at) in enumerate(zip(self.ranks, total, cap, self.at, strict=True)):
            free = [] if own is None else [gigabytes(own), gigabytes(own - most)]
            rows.append([str(rank), *(gigabytes(sizes[kind]) for kind in kinds), gigabytes(most), *free, at])
        if len(rows) > _ROWS:
            kept = sorted({*range(1, 4), top + 1, *range(len(rows) - 3, len(rows))})
            rows = [rows[0], *(rows[i] for i in kept)]
        wide = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, wide, strict=True)) for row in rows]
        head = f"{self.model}: {gigabytes(total[top])} of cap {limit}, on rank {top}"
        if self.host is not None:
            most = max(self.host)
            lines.append(f"host memory: {gigabytes(most)}, on rank {self.host.index(most)}")
        return [head, *lines, *(f"assumed: {said}" for said in self.assumed)]

    def to_json(self) -> dict[str, object]:
        """Whole bytes, by rank; room, what is free, is below 0 over the cap."""
        cap = self.cap or (None,) * len(self.ranks)
        ranks = [
            {
                **{kind.replace(" ", "_"): size for kind, size in sizes.items()},
                "total": most,
                "cap": None if own is None else int(own),
                "room": None if own is None else int(own) - most,
                "at": at or None,
            }
            for sizes, most, own, at in zip(self.ranks, self.total, cap, self.at, strict=True)
        ]
        host = {} if self.host is None else {"host": list(self.host)}
        return {"model": self.model, "ranks": ranks, **host, "assumed": list(self.assumed)}


@dataclass(frozen=True, repr=False)
class Time(Idle):
    """The timeline at these costs, in their unit: makespan, and by rank work, idle time and span.

    assumed: costs that were not given and are used, each with what it follows from. remarks: that, and what else is to
    be said of the costs, in words.
    """

    costs: Mapping[str, object] = field(default_factory=dict)
    assumed: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Time makespan {shown(self.makespan)}, span {shown(self.span)}, idle {_list_text(self.idle)}>"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a file says about itself. holds: None where its condition is false. detail: both sides, with numbers."""

    text: str
    holds: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Permuted:
    """The worst over all permutations of lists, or why they are not judged: then both are None.

    peak: of the rank `rank`. values: the entries of each list, in their order.
    """

    lists: tuple[str, ...]
    not_judged: str = ""
    makespan: Worst | None = None
    peak: Worst | None = None
    rank: int = 0
    values: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded run, compared with the schedule. by: what recorded it. named: whether its messages have names; else
    they are compared by count, order and size.
    """

    by: str
    ranks: int
    steps: int
    messages: int
    named: bool
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        how = "" if self.named else ", by their number, order and size"
        notes = "".join(f"; {note}" for note in self.notes)
        return (
            f"recorded run ({self.by}): {self.ranks} ranks, {steps}, {self.messages:,} messages as planned{how}{notes}"
        )


@dataclass(frozen=True, slots=True)
class Parts:
    """What a verdict measures, each None where a broken file leaves it unknown.

    operations: parts of overlaps counted. slots: overlaps counted once. messages: between different ranks.
    """

    ranks: int | None = None
    stages: int | None = None
    microbatches: int | None = None
    operations: int | None = None
    slots: int | None = None
    messages: int | None = None
    communication: Communication | None = None
    memory: Memory | None = None
    bytes: InBytes | None = None
    time: Time | None = None


class _Known(Generic[Part]):
    """A part of a report; where it is not known, PipeschedError is raised with what is wrong."""

    def __init__(self, of: Callable[[Parts], Part | None]) -> None:
        self.of = of

    def __get__(self, report: Report | None, owner: type) -> Part:
        if report is None:
            raise AttributeError("a part is of one report")
        part = self.of(report.parts)
        if part is None:
            raise PipeschedError(report.diagnostics)
        return part


@dataclass(frozen=True)
class Report:
    """All that `verify` found out about one schedule at one size.

    A right schedule has all parts: ranks, stages, microbatches, operations, slots, messages, communication, memory and
    time. Of a broken one some are not known: `report.time` then raises PipeschedError, and `report.parts.time` is None.
    subject: what it is about, for its picture. forward_only: there is no backward at all, so nothing is trained.
    frozen: the stages that are not. permuted: where the file has lists by microbatch. verdict: of an optimizer's
    answer. not_judged: its entries that nothing was compared with. title: what people call the schedule, where that is
    not its name. notes: on how a framework came to it. recorded: the runs that were held against it.
    """

    name: str | None
    source: str | None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    parts: Parts = field(default_factory=Parts)
    diagnostics: tuple[Diagnostic, ...] = ()
    claims: tuple[Claim, ...] = ()
    subject: Analysis | None = field(default=None, repr=False, compare=False)
    forward_only: bool = False
    frozen: tuple[int, ...] = ()
    permuted: Permuted | None = None
    verdict: Verdict | None = None
    not_judged: tuple[str, ...] = ()
    title: str = ""
    notes: tuple[str, ...] = ()
    recorded: tuple[Recording, ...] = ()

    ranks = _Known(lambda parts: parts.ranks)
    stages = _Known(lambda parts: parts.stages)
    microbatches = _Known(lambda parts: parts.microbatches)
    operations = _Known(lambda parts: parts.operations)
    slots = _Known(lambda parts: parts.slots)
    messages = _Known(lambda parts: parts.messages)
    communication = _Known(lambda parts: parts.communication)
    bytes = _Known(lambda parts: parts.bytes)
    memory = _Known(lambda parts: parts.memory)
    time = _Known(lambda parts: parts.time)

    def __repr__(self) -> str:
        return f"<Report {' '.join(self.line().split())}>"

    @property
    def makespan(self) -> Fraction:
        """The end of the last operation.

        Raises:
            PipeschedError: what is wrong, where the order has no end.
        """
        return self.time.makespan

    @property
    def peak(self) -> tuple[Fraction, ...]:
        """The most activations of every rank.

        Raises:
            PipeschedError: what is wrong with a file that is no order.
        """
        return self.memory.peak

    @property
    def ok(self) -> bool:
        """Whether no diagnostic is an error; warnings leave the verdict as it is."""
        return all(diagnostic.severity != "error" for diagnostic in self.diagnostics)

    @property
    def fault(self) -> Diagnostic | None:
        """The first error."""
        return fault_in(self.diagnostics)

    @property
    def exit_status(self) -> int:
        """0 holds, 1 something is wrong inside the file, 2 the command line or the file itself is at fault."""
        return exit_status(self.diagnostics)

    def __str__(self) -> str:
        return self.text()

    def text(self, *, color: bool = False) -> str:
        """The diagnostics with their places, then the verdict."""
        parts = [render.text(diagnostic, color=color) for diagnostic in self.diagnostics]
        table = [] if self.ok or self.parts.bytes is None else ["\n".join(self.parts.bytes.lines())]
        parts += [*table, self._verdict(color) if self.ok else self._count(color)]
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        """How a notebook shows it: the picture, and the text."""
        words = f"<pre>{safe(self.text(), 'xml')}</pre>"
        if self.subject is None or not lists.known("picture"):
            return words
        return str(lists.make("picture", self.subject)) + words

    def line(self, *, color: bool = False) -> str:
        """The verdict on one line, for many schedules or sizes in one call."""
        if self.ok:
            facts = [self._head(color, self.source), *self._short_facts(), render.tally(self.diagnostics)]
            return "   ".join(fact for fact in facts if fact)
        first = self.fault
        assert first is not None
        title = self._title(self.source)
        parts = [render.paint("fail", "error", color), *title, render.concise(first, self.source)]
        more = len([d for d in self.diagnostics if d.severity == "error"]) - 1
        return "  ".join(parts) + (f" (and {more} more)" if more else "")

    def to_json(self) -> dict[str, object]:
        """The published form: numbers are integers or strings such as ``11/2``."""
        return {
            "ok": self.ok,
            "name": self.name,
            "title": self.title or None,
            "source": self.source,
            "parameters": dict(self.parameters),
            "ranks": self.parts.ranks,
            "stages": self.parts.stages,
            "microbatches": self.parts.microbatches,
            "forward_only": self.forward_only,
            **({"frozen": list(self.frozen)} if self.frozen else {}),
            "operations": self.parts.operations,
            "slots": self.parts.slots,
            "messages": self.parts.messages,
            "diagnostics": [render.as_json(diagnostic) for diagnostic in self.diagnostics],
            "communication": _communication_json(self.parts.communication),
            "memory": _memory_json(self.parts.memory),
            **({"bytes": self.parts.bytes.to_json()} if self.parts.bytes else {}),
            "time": _time_json(self.parts.time),
            **({"permuted": _permuted_json(self.permuted)} if self.permuted else {}),
            "claims": [_claim_json(claim) for claim in self.claims],
            **({"recorded": [_recording_json(one) for one in self.recorded]} if self.recorded else {}),
            "proved": None if self.verdict is None else self.verdict.proved,
            "optimum": _verdict_json(self.verdict, self.not_judged),
            **({"notes": list(self.notes)} if self.notes else {}),
        }

    def _title(self, name: str | None) -> list[str]:
        """The schedule, or the file where there are several, and the sizes."""
        return [part for part in (render.clean(name or ""), render.sizes(self.parameters)) if part]

    def _head(self, color: bool, name: str | None) -> str:
        counts = f"{_number(self.parts.operations)} ops, {_number(self.parts.messages)} messages"
        counts = f"frozen {ranges(self.frozen)}   {counts}" if self.frozen else counts
        counts = f"forward-only   {counts}" if self.forward_only else counts
        return "  ".join([render.paint("ok", "ok", color), *self._title(name)]) + "   " + counts

    def _count(self, color: bool) -> str:
        counted = render.tally(self.diagnostics)
        head = render.paint(f"{counted} in {render.clean(self.source)}" if self.source else counted, "bold", color)
        return "\n".join([head, *(_INDENT + note for note in self.notes)])

    def _short_facts(self) -> list[str]:
        memory, time = self.parts.memory, self.parts.time
        peak = [f"peak {shown(max(memory.peak))}"] if memory and memory.peak else []
        peak += [f"host memory {shown(max(memory.host))}"] if memory and memory.host else []
        used = self.parts.bytes
        peak += [gigabytes(max(used.total))] if used else []
        if time is None:
            return peak
        longer = [f"{model} {shown(queued)}" for model, queued in self._queued]
        return [*peak, f"makespan {shown(time.makespan)}", *longer, f"bubble {share(time.bubble)}", *time.remarks]

    @property
    def _queued(self) -> list[tuple[str, Fraction]]:
        """The model that was asked for, and the makespan under it."""
        part = self.parts.communication
        return [] if part is None or part.makespan is None else [(part.model, part.makespan)]

    def _verdict(self, color: bool) -> str:
        """The block of a schedule that holds."""
        lines = [f"complete · data flow · channels FIFO{_deadlock_text(self.parts.communication)}"]
        lines += _memory_text(self.parts.memory) if self.parts.memory else []
        lines += self.parts.bytes.lines() if self.parts.bytes else []
        if time := self.parts.time:
            lines += [headline(time.makespan, time.span, time.work), *time.remarks]
            lines += [_queued_text(model, queued, time.makespan) for model, queued in self._queued]
        lines += [_permuted_text(self.permuted)] if self.permuted else []
        lines += [_claims_text(self.claims)] if self.claims else []
        lines += [*_verdict_text(self.verdict, self.not_judged), *self.notes, *map(str, self.recorded)]
        warned = render.tally(self.diagnostics)
        head = self._head(color, self.title or self.name or self.source) + (f", {warned}" if warned else "")
        return "\n".join([head, *(_INDENT + line for line in lines)])


def _deadlock_text(communication: Communication | None) -> str:
    """`` · deadlock-free (…)``: under which models, and what the others need."""
    if communication is None:
        return ""
    if not communication.fails:
        strict = "strict, so " if communication.model == "strict" else f"{communication.model}; "
        return f" · deadlock-free ({strict}under every model)"
    others = [name for name in communication.holds if name != communication.model]
    also = f"; also under {', '.join(others)}" if others else ""
    enough = f"; a buffer of {communication.capacity} is enough" if communication.capacity else ""
    return f" · deadlock-free ({communication.model}{also}; not under {', '.join(communication.fails)}{enough})"


def _queued_text(model: str, queued: Fraction, ideal: Fraction) -> str:
    """``makespan 63 under one-stream, where messages queue: 10.5 % more``."""
    more = f"{percent((queued - ideal) / ideal)} more" if queued > ideal > 0 else "no more"
    return f"makespan {shown(queued)} under {model}, where messages wait for their turn: {more}"


def _memory_text(memory: Memory) -> list[str]:
    """The peak against its cap, where, and every rank's."""
    if not memory.peak:
        return []
    first = memory.peak.index(max(memory.peak))
    cap = "none" if memory.cap is None else shown(memory.cap[min(first, len(memory.cap) - 1)])
    rule = "" if memory.release == "W" else f" (release {memory.release})"
    lines = [_most(f"peak {{}} of cap {cap}{rule}", memory.peak)]
    if memory.host is not None:
        lines.append(_most("host memory {}", memory.host))
    lines += memory.notes
    if memory.received is not None and memory.unsent is not None and any(memory.received):
        received, unsent = (_list_text([Fraction(x) for x in most]) for most in (memory.received, memory.unsent))
        lines.append(f"messages, not in the peak: received and not yet used {received}, made and not yet sent {unsent}")
    return lines


def _most(words: str, by_rank: tuple[Fraction, ...]) -> str:
    """The largest of a row, where, and all of it."""
    top = max(by_rank)
    where = "every rank" if by_rank.count(top) == len(by_rank) > 1 else f"rank {by_rank.index(top)}"
    return f"{words.format(shown(top))}, on {where}      {_list_text(by_rank)}"


def _permuted_text(permuted: Permuted) -> str:
    """``worst order of length: makespan 61 at 3,4,7,2; peak on rank 0 11 at 7,4,3,2``."""
    names = ", ".join(permuted.lists)
    if permuted.makespan is None or permuted.peak is None:
        return f"other orders of {names} are not judged: {permuted.not_judged}"
    row = permuted.values[permuted.lists[0]] if len(permuted.lists) == 1 else ()
    said = []
    for name, worst in (("makespan", permuted.makespan), (f"peak on rank {permuted.rank}", permuted.peak)):
        at = f" at {','.join(str(row[i]) for i in worst.entries)}" if 0 < len(row) <= _SHOWN else ""
        most = "" if worst.exact else f" (no order has more than {shown(worst.bound)})"
        said.append(f"{name} {shown(worst.value)}{at}{most}")
    return f"worst order of {names}: {'; '.join(said)}"


def _permuted_json(permuted: Permuted) -> dict[str, object]:
    """What is found and no permutation exceeds, and by microbatch the entry that it has."""
    made: dict[str, object] = {"lists": list(permuted.lists)}
    made |= {"not_judged": permuted.not_judged} if permuted.not_judged else {}
    for name, worst in (("makespan", permuted.makespan), ("peak", permuted.peak)):
        if worst is None:
            made[name] = None
        else:
            numbers = exact(value=worst.value, bound=worst.bound)
            made[name] = {**numbers, "exact": worst.exact, "entries": list(worst.entries)}
    return made


def _claims_text(claims: Sequence[Claim]) -> str:
    judged = [claim for claim in claims if claim.holds is not None]
    aside = len(claims) - len(judged)
    if not judged:
        return f"claims: none of {aside} applicable here"
    verdict = f"claims {sum(bool(claim.holds) for claim in judged)} of {len(judged)} hold"
    return verdict + (f", {aside} not applicable" if aside else "")


def _verdict_text(verdict: Verdict | None, not_judged: Sequence[str]) -> list[str]:
    if verdict is None:
        return []
    return [verdict.line, verdict.because, f"not judged: {', '.join(not_judged)}"]


def _verdict_json(verdict: Verdict | None, not_judged: Sequence[str]) -> dict[str, object] | None:
    return None if verdict is None else {**verdict.to_json(), "not_judged": list(not_judged)}


def _list_text(values: Sequence[Fraction]) -> str:
    """``[4  3  2  1]``; a long list keeps both ends."""
    texts = [shown(value) for value in values]
    if len(texts) <= _SHOWN:
        return f"[{'  '.join(texts)}]"
    return f"[{'  '.join(texts[:3])} … {'  '.join(texts[-2:])}]"


def _number(count: int | None) -> str:
    return "?" if count is None else str(count)


def _communication_json(part: Communication | None) -> dict[str, object]:
    if part is None:
        return {"model": None, "holds": [], "fails": [], "capacity": None, **exact(makespan=None)}
    verdict = {"holds": list(part.holds), "fails": list(part.fails), "capacity": part.capacity}
    return {"model": part.model, **verdict, **exact(makespan=part.makespan)}


def _memory_json(part: Memory | None) -> dict[str, object]:
    """A cap that is the same everywhere is one number, else a list by rank."""
    if part is None:
        lists = exact(peak=(), cap=None)
        return {"release": None, "unit": None, **lists, "received": None, "unsent": None}
    cap = part.cap[0] if part.cap and len(set(part.cap)) == 1 else part.cap
    counts = {"received": part.received, "unsent": part.unsent}
    said = {name: None if row is None else list(row) for name, row in counts.items()}
    host = {} if part.host is None else exact(host=part.host)
    return {"release": part.release, "unit": part.unit, **exact(peak=part.peak, cap=cap), **said, **host}


def _time_json(part: Time | None) -> dict[str, object]:
    numbers = exact(
        makespan=part and part.makespan,
        span=part and part.span,
        bubble=part and part.bubble,
        span_bubble=part and part.span_bubble,
        work=part.work if part else (),
        idle=part.idle if part else (),
        span_idle=part.span_idle if part else (),
    )
    said = {"assumed_costs": dict(part.assumed) if part else {}, "cost_remarks": list(part.remarks) if part else []}
    return {**exact(costs=part.costs if part else {}), **said, **numbers}


def _recording_json(one: Recording) -> dict[str, object]:
    counts = {"ranks": one.ranks, "steps": one.steps, "messages": one.messages}
    return {"by": one.by, **counts, "named": one.named, "notes": list(one.notes)}


def _claim_json(claim: Claim) -> dict[str, object]:
    return {"text": claim.text, "holds": "not applicable" if claim.holds is None else claim.holds}
