"""Checks that no rank waits forever; reports the shortest cycle of waits, rank by rank.

Ranks that wait for a partner that does not exist are reported by `channels`; this check reports ranks that wait for
each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipesched.analysis.standstill import of_program, together
from pipesched.check.checks import Subject
from pipesched.check.findings import label
from pipesched.diagnostics import Code, Diagnostic
from pipesched.extension import explained


def check_deadlock(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS401 if ranks wait for each other under the requested model."""
    analysis = subject.analysis
    program, verdicts, model = analysis.program, analysis.verdicts, analysis.model
    if program is None or verdicts is None or model in verdicts.holds:
        return
    stop = of_program(program, model)
    if stop is None or not stop.cycle:
        return
    holds_under, fails_under = (", ".join(map(str, models)) for models in (verdicts.holds, verdicts.fails))
    found = Diagnostic(
        Code.DEADLOCK,
        f"deadlock: {together(stop.ranks)} under {model} communication",
        tuple(
            label(program, link.places[0], f"{f'waits for {link.needs}, ' * bool(link.needs)}{link.wait}")
            for link in stop.cycle
        ),
        (f"holds under: {holds_under};  " * bool(holds_under) + f"fails under: {fails_under}",),
        "give only the compute order: pipesched then places sends and receives so that they never wait in a cycle",
    )
    yield from explained("deadlock", [found], program, model, stop.cycle)
