"""What is published: a verified program as a stream, or as torch's CSV.

    load ──> verify ──> lower ──> the target's own actions ──> verify again ──> text, a rank at a time

What is emitted is exactly what was verified.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pipesched import compile
from pipesched.check.torch_order import check_torch_target
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Examination, Loaded, Options, sizes
from pipesched.formats import stream_write
from pipesched.lower.torch_actions import torch_actions
from pipesched.model.ops import Op
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule
from pipesched.model.torch_versions import DEFAULT, TorchVersion, first_with
from pipesched.readers import TORCH_CSV, reader_of
from pipesched.report import Report
from pipesched.safe import safe
from pipesched.source import Source


@dataclass(frozen=True)
class Emission:
    """The verdict on what is emitted, and that; no order where the verdict is not good."""

    report: Report
    target: str
    order: Schedule | Program | None = None
    parameters: Mapping[str, int] = field(default_factory=dict)
    version: TorchVersion = DEFAULT

    def pieces(self) -> Iterator[str]:
        """The text, a rank at a time."""
        return iter(()) if self.order is None else compile.emit(self.order, self.target, self.parameters)

    def by_rank(self) -> Iterator[str]:
        """The text of each rank alone."""
        if self.target == "stream" and isinstance(self.order, Program):
            return (safe(piece, "json") for piece in stream_write.by_rank(self.order, self.parameters))
        return self.pieces()


def emit(source: Source, options: Options, target: str) -> Emission:
    """A file as ``stream``, ``torch-csv`` (computes alone) or ``torch-comms``: the verdict is on what is emitted.

    What is wrong is in the report: with the file, with what is made from it, or that the target cannot run it (PS814).
    """
    own = replace(options, torch_version=_written_for(source))
    try:
        loaded = compile.load(source, own)
        _require_fit(loaded, target)
    except PipeschedError as error:
        return Emission(Report(None, source.name, dict(options.parameters), diagnostics=error.diagnostics), target)
    first = compile.examine(loaded, own)
    if loaded.program is not None and not first.report.ok:
        return Emission(first.report, target)
    if loaded.program is not None and target == "stream":
        return Emission(first.report, target, loaded.program, sizes(loaded))
    order = loaded.schedule if target == "torch-csv" else _lowered(first)
    if order is None:
        return Emission(first.report, target)
    version = None if target == "stream" else options.torch_version or DEFAULT
    if target == "torch-comms" and isinstance(order, Program):
        order = torch_actions(order, version or DEFAULT)
    final = first.having(order if isinstance(order, Program) else None, version)
    if not final.report.ok:  # what is wrong with the file itself is reported in its own terms
        return Emission(final.report if first.report.ok else first.report, target)
    return Emission(final.report, target, order, sizes(loaded), version or DEFAULT)


def _written_for(source: Source) -> TorchVersion | None:
    """The version of torch that a CSV is surely for: waits came late."""
    waiting = "WAIT_" in source.text and reader_of(source) is TORCH_CSV
    return first_with(Op.WAIT_SEND_F) if waiting else None


def _require_fit(loaded: Loaded, target: str) -> None:
    """Whether the target can run it at all, else PS814."""
    if target != "stream":
        found = [*check_torch_target(loaded.schedule, loaded.program if target == "torch-comms" else None)]
        if found:
            raise PipeschedError(found)
        return
    stream_write.routes_of(loaded.schedule.placement)
    if loaded.program is not None:
        stream_write.require_words(loaded.program)


def _lowered(examined: Examination) -> Program | None:
    """The program at the costs asked for, or None where the file has none, or the costs mean nothing."""
    try:
        return examined.analysis.program
    except PipeschedError:
        return None
