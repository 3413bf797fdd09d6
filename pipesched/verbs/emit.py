"""What is published: a verified program as a stream, or as torch's CSV.

    load ──> verify ──> lower ──> the target's own actions ──> verify again ──> text, a rank at a time

What is emitted is exactly what was verified.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.timeline import timeline
from pipesched.check.torch_order import check_torch_target
from pipesched.compile import examine, load
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Loaded, Options, sizes
from pipesched.formats import stream_write, torch_csv
from pipesched.lower.communicate import communicate
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
        if self.target == "stream" and isinstance(self.order, Program):
            return (safe(piece, "json") for piece in stream_write.pieces(self.order, self.parameters))
        return torch_csv.pieces(self.order) if self.order is not None else iter(())

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
        loaded = load(source, own)
        _require_fit(loaded, target)
    except PipeschedError as error:
        return Emission(Report(None, source.name, dict(options.parameters), diagnostics=error.diagnostics), target)
    parameters = dict(loaded.schedule.parameters) or sizes(loaded)
    if loaded.program is not None:
        report = examine(loaded, own)
        if not report.ok or target == "stream":
            return Emission(report, target, loaded.program if report.ok else None, parameters)
    order = loaded.schedule if target == "torch-csv" else loaded.program or _lowered(loaded, options)
    if order is None:
        return Emission(examine(loaded, own), target)
    version = None if target == "stream" else options.torch_version or DEFAULT
    if target == "torch-comms" and isinstance(order, Program):
        order = torch_actions(order, version or DEFAULT)
    final = replace(loaded, program=order if isinstance(order, Program) else None, torch=version is not None)
    report = examine(final, replace(options, torch_version=version))
    if not report.ok:  # what is wrong with the file itself is told in its own terms
        first = examine(loaded, own)
        return Emission(report if first.ok else first, target)
    return Emission(report, target, order, parameters, version or DEFAULT)


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


def _lowered(loaded: Loaded, options: Options) -> Program | None:
    """The program at the costs asked for, or None where the file has none, or the costs mean nothing."""
    dependencies = Dependencies.of(loaded.schedule)
    try:
        ticks = loaded.costs(options.costs).ticks(loaded.schedule.stages)
    except PipeschedError:
        return None
    times = timeline(loaded.schedule, dependencies, ticks)
    return communicate(loaded.schedule, dependencies, times) if times.finished and dependencies.valid.all() else None
