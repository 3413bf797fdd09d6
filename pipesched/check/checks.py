"""All checks, a row each: the property, the facts that it needs, and the codes of its violations.

    order of compute ── sound? ── program: messages, deadlock ── memory ── the file's own instructions

A new check is its file, the page of its code, and its row. Extensions add rows. No check stops another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import or_

from pipesched.check.channels import check_channels, check_waits
from pipesched.check.complete import check_complete, check_placement
from pipesched.check.dataflow import check_dataflow
from pipesched.check.deadlock import check_deadlock
from pipesched.check.gradients import check_gradients
from pipesched.check.handover import check_handover
from pipesched.check.memory import check_buffers, check_memory
from pipesched.check.step import check_step
from pipesched.diagnostics import Diagnostic
from pipesched.extension import Check, Extended, Needs, counting, explained
from pipesched.model.schedule import Program
from pipesched.model.torch_versions import DEFAULT, TorchVersion
from pipesched.schedule_analysis import Analysis


@dataclass(frozen=True, eq=False)
class Subject(Extended):
    """The schedule that is judged. torch: the version whose rules count where `for_torch`; explicit: the user named it.

    written: the order is written down operation by operation, so that a slip of the pen is likely.
    owned: of the options and of the reader.
    """

    analysis: Analysis
    caps: tuple[Fraction, ...] = ()
    for_torch: bool = False
    torch: TorchVersion = DEFAULT
    explicit: bool = False
    written: bool = False

    @property
    def own(self) -> Program:
        """The instructions of the file, for checks that need OWN."""
        assert self.analysis.own is not None
        return self.analysis.own


ORDER_CHECKS: list[Check[Subject]] = [
    Check(
        "every F, and B or I + W, exactly once, in range, on its rank",
        ("PS301", "PS302", "PS303", "PS304", "PS310", "PS311"),
        lambda x: check_complete(x.analysis.schedule, x.analysis.dependencies),
    ),
    Check(
        "each operation after what it needs on its rank; overlap parts independent; no cycle of compute orders",
        ("PS305", "PS306", "PS307"),
        lambda x: check_dataflow(x.analysis.schedule, x.analysis.dependencies, x.analysis.timeline),
    ),
    Check(
        "copies of a stage that can be summed; no rank without work",
        ("PS604", "PS902"),
        lambda x: check_placement(x.analysis.schedule),
    ),
]
"""The checks of the order of compute. What they find may have a hint."""

PROGRAM_CHECKS: list[Check[Subject]] = [
    Check(
        "peers exist; each message sent and received once; the two ends of a channel in one order",
        ("PS402", "PS403", "PS404", "PS405"),
        lambda x: check_channels(x.analysis),
        Needs.MESSAGES,
        place=10,
    ),
    Check(
        "each WAIT after its send or its reduction; for torch by torch's rules",
        ("PS406",),
        lambda x: () if x.for_torch else check_waits(x.own),
        Needs.OWN,
        place=20,
    ),
    Check(
        "no rank waits for ever under the communication model",
        ("PS401",),
        lambda x: check_deadlock(x.analysis),
        Needs.PROGRAM | Needs.ENDS,
        place=30,
    ),
    Check(
        "no rank holds more activations than its cap",
        ("PS501",),
        lambda x: check_memory(x.analysis.memory, x.caps),
        Needs.CAPS,
        place=40,
    ),
    Check(
        "each rank computes with received inputs and sends computed results",
        ("PS308", "PS309"),
        lambda x: check_handover(x.own, x.analysis.schedule, x.analysis.dependencies),
        Needs.OWN,
        place=50,
    ),
    Check(
        "the gradients of a stage are reduced once, when they are complete",
        ("PS303", "PS601", "PS602", "PS603"),
        lambda x: check_gradients(x.own, x.analysis.schedule),
        Needs.OWN,
        place=60,
    ),
    Check(
        "copies of a stage are summed and every rank steps, once, with complete gradients",
        ("PS605", "PS606", "PS607"),
        lambda x: check_step(x.own),
        Needs.OWN,
        place=70,
    ),
    Check(
        "no messages collected without a reason",
        ("PS906",),
        lambda x: check_buffers(x.analysis),
        Needs.OWN | Needs.SOUND | Needs.ENDS,
        place=110,
    ),
]
"""The checks of instructions and memory."""


def findings(subject: Subject) -> tuple[list[Diagnostic], bool]:
    """Run all checks: their findings, and whether the order of compute has no error.

    Raises:
        PipeschedError: PS222, costs or sizes that leave 64 bits.
    """
    analysis = subject.analysis
    found = [*_run(ORDER_CHECKS, subject, Needs.NOTHING)]
    sound = not any(x.severity == "error" for x in found)
    told = explained("order", found, analysis.schedule) if subject.written and found else found
    _ = analysis.memory  # fails before anything of the program is made
    program, own = analysis.program is not None, analysis.own is not None
    given = {
        Needs.PROGRAM: program,
        Needs.MESSAGES: program and (own or not found),
        Needs.OWN: own,
        Needs.ENDS: analysis.finished,
        Needs.SOUND: sound,
        Needs.CAPS: bool(subject.caps),
        Needs.TORCH: subject.for_torch,
    }
    there = reduce(or_, (need for need, met in given.items() if met), Needs.NOTHING)
    checks = sorted([*PROGRAM_CHECKS, *counting(Check, subject)], key=lambda row: row.place)
    return [*told, *_run(checks, subject, there)], sound


def _run(checks: Iterable[Check[Subject]], subject: Subject, there: Needs) -> Iterator[Diagnostic]:
    for check in checks:
        if check.needs in there:
            yield from check.found(subject)
