"""No rank waits for ever: the shortest cycle of waits, rank by rank, and a remedy that was tried.

Ranks that wait for a partner that does not exist are reported by `channels`; here are those that wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pipesched.analysis.communication import Model
from pipesched.analysis.cycle import Hop
from pipesched.analysis.pairing import pair
from pipesched.analysis.standstill import of_program, together
from pipesched.analysis.termination import holds
from pipesched.check.channels import labels_of
from pipesched.check.findings import label, moved
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.columns import RESULT
from pipesched.model.schedule import Program
from pipesched.schedule_analysis import Analysis

SMALL = 2_000_000  # instructions of a program for which remedies are tried


def check_deadlock(analysis: Analysis) -> Iterator[Diagnostic]:
    """PS401 under the model that was asked for."""
    program, verdicts, model = analysis.program, analysis.verdicts, analysis.model
    if program is None or verdicts is None or model in verdicts.holds:
        return
    stop = of_program(program, model)
    if stop is None or not stop.cycle:
        return
    hops = [link.hop for link in stop.cycle if link.hop is not None]
    holds_under, fails_under = (", ".join(map(str, models)) for models in (verdicts.holds, verdicts.fails))
    yield Diagnostic(
        Code.DEADLOCK,
        f"deadlock: {together(stop.ranks)} under {model} communication",
        tuple(
            label(program, hop.at, f"{f'waits for {link.needs}, ' * bool(link.needs)}{link.wait}")
            for link, hop in zip(stop.cycle, hops, strict=True)
        ),
        (f"holds under: {holds_under};  " * bool(holds_under) + f"fails under: {fails_under}",),
        _remedy(program, model, hops),
    )


def _remedy(program: Program, model: Model, hops: list[Hop]) -> str:
    """A single change that removes the deadlock: each candidate is tried."""
    found = [*_moves(program, model, hops), *_communicators(program, model)] if len(program) <= SMALL else []
    return f"{'; or '.join(found)}: then it holds under {model}" if found else ALONE


ALONE = "give the compute order alone: pipesched then places sends and receives so that they cannot wait in a cycle"


def _moves(program: Program, model: Model, hops: list[Hop]) -> Iterator[str]:
    """A receive of the cycle to be moved up."""
    for i, hop in enumerate(hops):
        blocked = hops[(i + 1) % len(hops)].here
        if hop.there < 0 or not program.receives[hop.there] or not blocked < hop.there:
            continue
        if _cured(moved(program, hop.there, blocked), model):
            yield f"on rank {hop.other}, put {program[hop.there]} before {program[blocked]}"
            return


def _communicators(program: Program, model: Model) -> Iterator[str]:
    """More communicators, where messages wait in the queues of one."""
    if not model.queued:
        return
    source, target = np.where(program.sends, (program.rank, program.peer), (program.peer, program.rank))
    for apart, words in (
        (RESULT[program.op], "put activations on one communicator and gradients on another"),
        (source * np.int64(program.ranks) + target, "use a communicator for each direction between two ranks"),
    ):
        _, communicator = np.unique(np.stack([program.communicator, apart]), axis=1, return_inverse=True)
        if _cured(replace(program, communicator=communicator), model):
            yield words
            return


def _cured(program: Program, model: Model) -> bool:
    """True if the program ends and no message is taken for another."""
    return holds(program, model) and not any(labels_of(program, pair(program)))
