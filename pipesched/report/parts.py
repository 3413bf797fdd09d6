"""The parts of a verdict: communication, memory, times, claims, and parts of extensions, with their text and JSON.

    deadlock-free (strict, so under every model)                      Communication
    peak 5.5 of cap none, on rank 0      [5.5  4.5  3.5  2.5]         Memory
    makespan 57 = 48 work + 9 idle   bubble 15.8 % (3/19)             Time

`report` combines them. The JSON follows ``emit/report.schema.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from typing import ClassVar, TypeAlias, TypeVar

from pipesched.analysis.idle import Idle
from pipesched.model.numbers import digits, exact, percent, shown
from pipesched.model.units import NO_UNIT, Unit
from pipesched.support.record import Value

Said: TypeAlias = Callable[[Fraction], str]
_SHOWN = 8  # most ranks of a list that are printed; longer ones keep both ends


class Communication(Value):
    """Verdicts on deadlock under the communication models.

    model: the requested model. holds: the models under which the program finishes. fails: the models under which it
    deadlocks. capacity: the smallest number of buffered messages per channel that prevents deadlock, 0 if none need be
    buffered, None if no number suffices. makespan: the makespan with messages in the queues of that model; None if no
    model was requested or the program never ends.
    """

    model: str
    holds: tuple[str, ...]
    fails: tuple[str, ...]
    capacity: int | None
    makespan: Fraction | None = None

    def __str__(self) -> str:
        """Return ``deadlock-free (…)``, with the models under which the program ends and the buffer that suffices."""
        if not self.fails:
            strict = "strict, so " if self.model == "strict" else f"{self.model}; "
            return f"deadlock-free ({strict}under every model)"
        others = [name for name in self.holds if name != self.model]
        also = f"; also under {', '.join(others)}" if others else ""
        enough = f"; a buffer of {self.capacity} is enough" if self.capacity else ""
        return f"deadlock-free ({self.model}{also}; not under {', '.join(self.fails)}{enough})"

    def queued(self, ideal: Fraction, unit: Unit) -> list[str]:
        """Return the line ``makespan 63 under one-stream, …: 10.5 % more``, or [] if the makespan is None."""
        if self.makespan is None:
            return []
        more = f"{percent((self.makespan - ideal) / ideal)} more" if self.makespan > ideal > 0 else "no more"
        return [f"makespan {unit.text(self.makespan)} under {self.model}, where messages wait for their turn: {more}"]

    def to_json(self) -> dict[str, object]:
        """Return the verdicts under the models as JSON."""
        verdict = {"holds": list(self.holds), "fails": list(self.fails), "capacity": self.capacity}
        return {"model": self.model, **verdict, **exact(makespan=self.makespan)}


class Memory(Value):
    """The largest number of live activations, by rank. Unit: one microbatch through 1/p of the model.

    release: the rule that frees activations. cap: the cap of each rank, in the same unit, or None. notes: lines on
    other uses of memory. received, unsent: for each rank, the largest number of messages that are received but not yet
    used, and made but not yet sent; None unless the file names its messages. A peak does not include message buffers,
    parameters, gradients, optimizer states or workspace. host: for each rank, the peak in host memory, where an
    activation stays from its O to its L; None without offloading. instead: a line to show in place of the peaks, for an
    answer whose activations were counted in rounded sizes.
    """

    release: str
    unit: str
    peak: tuple[Fraction, ...]
    cap: tuple[Fraction, ...] | None = None
    notes: tuple[str, ...] = ()
    received: tuple[int, ...] | None = None
    unsent: tuple[int, ...] | None = None
    host: tuple[Fraction, ...] | None = None
    instead: str = ""

    def __repr__(self) -> str:
        return f"<Memory peak {_list_text(self.peak)} of cap {_list_text(self.cap) if self.cap else 'none'}>"

    def lines(self, *, unit: bool = False) -> list[str]:
        """Return the lines on memory: the largest peak, its cap and rank, all peaks. unit: whether to name the unit."""
        if not self.peak:
            return []
        if self.instead:
            return [self.instead]
        first = self.peak.index(max(self.peak))
        cap = "none" if self.cap is None else shown(self.cap[min(first, len(self.cap) - 1)])
        limit = f" of cap {cap}" if self.cap or not unit else ""
        rule = "" if self.release == "W" else f" (release {self.release})"
        said = (activations, digits) if unit else (shown, shown)
        lines = [_most(f"peak {{}}{limit}{rule}", self.peak, *said)]
        lines += [] if self.host is None else [_most("host memory {}", self.host, *said)]
        lines += self.notes
        if self.received is not None and self.unsent is not None and any(self.received):
            received, unsent = (_list_text([Fraction(x) for x in most]) for most in (self.received, self.unsent))
            lines.append(
                f"messages, not in the peak: received but not yet used {received}, made but not yet sent {unsent}"
            )
        return lines

    def to_json(self) -> dict[str, object]:
        """Return the memory as JSON; a cap that is the same on all ranks is one number, otherwise a list by rank."""
        cap = self.cap[0] if self.cap and len(set(self.cap)) == 1 else self.cap
        counts = {"received": self.received, "unsent": self.unsent}
        listed = {name: None if row is None else list(row) for name, row in counts.items()}
        host = {} if self.host is None else exact(host=self.host)
        return {"release": self.release, "unit": self.unit, **exact(peak=self.peak, cap=cap), **listed, **host}


class Time(Idle):
    """The times at the given costs, in their unit: makespan, and work, idle time and span by rank.

    assumed: the derived costs in use, each with the text of its rule. remarks: all remarks on the costs. rests_on: the
    remarks that are assumptions. doubts: the other remarks. unit: the unit of times.
    """

    costs: Mapping[str, object] = field(default_factory=dict)
    assumed: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    rests_on: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    unit: Unit = NO_UNIT

    def __repr__(self) -> str:
        said = self.unit.text
        return f"<Time makespan {said(self.makespan)}, span {said(self.span)}, idle {_list_text(self.idle, said)}>"

    def to_json(self) -> dict[str, object]:
        """Return the costs, and every time exactly and as a decimal."""
        names = ("makespan", "span", "bubble", "span_bubble", "work", "idle", "span_idle")
        said = {"assumed_costs": dict(self.assumed), "cost_remarks": list(self.remarks)}
        unit = {"unit": self.unit.name} if self.unit else {}
        return {**exact(costs=self.costs), **unit, **said, **exact(**{name: getattr(self, name) for name in names})}


class Claim(Value):
    """A file's claim about its schedule. holds: None if its condition is false. detail: the values of both sides."""

    text: str
    holds: bool | None
    detail: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the claim and its verdict."""
        return {"text": self.text, "holds": "not applicable" if self.holds is None else self.holds}


class Part:
    """A part that an extension adds to a verdict, between memory and time. key: the part's key in JSON. kept: if the
    part counts memory, a description of the amount that a recomputed F keeps.
    """

    key: ClassVar[str]
    kept: ClassVar[str] = ""

    @property
    def assumed(self) -> tuple[str, ...]:
        """The assumptions behind the part's figures, in words."""
        return ()

    def lines(self) -> list[str]:
        """Return the lines of the part in a verdict."""
        return []

    def short(self) -> list[str]:
        """Return the facts of the part for a one-line verdict."""
        return []

    def to_json(self) -> dict[str, object]:
        """Return the published JSON form."""
        return {}


Added = TypeVar("Added", bound=Part)


class Parts(Value):
    """The parts of a verdict, each None if a broken file leaves it unknown.

    operations: the number of operations. slots: the number of slots; an overlap pair is one slot. messages: the number
    of messages between ranks. more: parts of extensions.
    """

    ranks: int | None = None
    stages: int | None = None
    microbatches: int | None = None
    operations: int | None = None
    slots: int | None = None
    messages: int | None = None
    communication: Communication | None = None
    memory: Memory | None = None
    time: Time | None = None
    more: tuple[Part, ...] = ()

    def of(self, kind: type[Added]) -> Added | None:
        """Return the part of the given class, or None if no extension added one."""
        return next((part for part in self.more if isinstance(part, kind)), None)

    @property
    def counted(self) -> bool:
        """True if a part of an extension also counts memory, in its own unit."""
        return any(part.kept for part in self.more)

    @property
    def assumed(self) -> tuple[str, ...]:
        """The assumptions behind all parts of extensions."""
        return tuple(said for part in self.more for said in part.assumed)

    def to_json(self) -> dict[str, object]:
        """Return messages, memory and times as JSON; unknown parts have null or empty values."""
        return {
            "communication": self.communication.to_json() if self.communication else _NO_COMMUNICATION,
            "memory": self.memory.to_json() if self.memory else _NO_MEMORY,
            **{part.key: part.to_json() for part in self.more},
            "time": self.time.to_json() if self.time else _NO_TIME,
        }


_NO_COMMUNICATION = {"model": None, "holds": [], "fails": [], "capacity": None, **exact(makespan=None)}
_NO_MEMORY = {"release": None, "unit": None, **exact(peak=(), cap=None), "received": None, "unsent": None}
_NO_TIME = {
    **exact(costs={}),
    "assumed_costs": {},
    "cost_remarks": [],
    **exact(makespan=None, span=None, bubble=None, span_bubble=None, work=(), idle=(), span_idle=()),
}


def activations(count: Fraction) -> str:
    """Format a peak as shown next to peaks in bytes: ``5.5 activations``."""
    return f"{digits(count)} activation{'s' * (count != 1)}"


def _most(words: str, by_rank: tuple[Fraction, ...], most: Said, each: Said) -> str:
    """Return a line with the largest of the ranks' values, its rank, and all the values."""
    top = max(by_rank)
    where = "every rank" if by_rank.count(top) == len(by_rank) > 1 else f"rank {by_rank.index(top)}"
    return f"{words.format(most(top))}, on {where}      {_list_text(by_rank, each)}"


def _list_text(values: Sequence[Fraction], said: Said = shown) -> str:
    """Format a list as ``[4  3  2  1]``; a long list shows only its two ends."""
    texts = [said(value) for value in values]
    if len(texts) <= _SHOWN:
        return f"[{'  '.join(texts)}]"
    return f"[{'  '.join(texts[:3])} … {'  '.join(texts[-2:])}]"
