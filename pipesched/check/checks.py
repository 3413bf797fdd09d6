"""Runs all checks on a subject: those listed in `rows` and those that extensions add.

order of compute ── sound? ── program: messages, deadlock ── memory ── the file's own instructions
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from pipesched.check.rows import ORDER_CHECKS, PROGRAM_CHECKS
from pipesched.diagnostics import Diagnostic
from pipesched.extension import Check, Extended, Needs, counting, explained
from pipesched.model.schedule import Program
from pipesched.model.torch_versions import DEFAULT, TorchVersion
from pipesched.schedule_analysis import Analysis


@dataclass(frozen=True, eq=False)
class Subject(Extended):
    """The schedule to be judged. torch: the torch version whose rules apply if `for_torch`. explicit: whether the user
    named the version. written: whether the order is written operation by operation, so that slips are likely. owned:
    values that extensions add, from the options and the reader.
    """

    analysis: Analysis
    caps: tuple[Fraction, ...] = ()
    for_torch: bool = False
    torch: TorchVersion = DEFAULT
    explicit: bool = False
    written: bool = False

    @property
    def own(self) -> Program:
        """The instructions that the file lists itself, for checks that need OWN."""
        assert self.analysis.own is not None
        return self.analysis.own


def findings(subject: Subject) -> tuple[list[Diagnostic], bool]:
    """Run all checks; return their findings, and whether the compute order is free of errors.

    Raises:
        PipeschedError: PS222: costs or sizes exceed 64 bits.
    """
    analysis = subject.analysis
    passed = analysis.passed
    found = _found((check for check in ORDER_CHECKS if not passed.issuperset(check.codes)), subject)
    sound = not any(x.severity == "error" for x in found)
    told = explained("order", found, analysis.schedule) if subject.written and found else found
    _ = analysis.memory  # fails before anything is derived from the program
    program, own = bool(passed) or analysis.program is not None, analysis.own is not None
    met = (
        (Needs.PROGRAM, program),
        (Needs.MESSAGES, program and (own or not found)),
        (Needs.OWN, own),
        (Needs.ENDS, analysis.finished),
        (Needs.SOUND, sound),
        (Needs.CAPS, bool(subject.caps)),
        (Needs.TORCH, subject.for_torch),
        (Needs.INSIDE, analysis.schedule.steps is not None),
    )
    lacks = sum(need.value for need, known in met if not known)
    left = [check for check in PROGRAM_CHECKS if not passed.issuperset(check.codes)]
    checks = sorted([*left, *counting(Check, subject)], key=lambda row: row.place)
    return [*told, *_found((check for check in checks if not check.needs.value & lacks), subject)], sound


def _found(checks: Iterable[Check[Subject]], subject: Subject) -> list[Diagnostic]:
    return [diagnostic for check in checks for diagnostic in check.found(subject)]
