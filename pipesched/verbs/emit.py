"""What is published: a verified program as a stream, or as torch's CSV.

    load ──> verify ──> lower ──> the target's own actions ──> verify again ──> text, a rank at a time

What is emitted is exactly what was verified.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipesched import compile, render
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Examination, Options
from pipesched.formats.readers import TORCH_CSV, Loaded, reader_of
from pipesched.formats.targets import TARGETS
from pipesched.interop.torch.torch_actions import torch_actions
from pipesched.interop.torch.torch_frozen import with_backwards
from pipesched.model.numbers import Value, whole
from pipesched.model.ops import Op
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import DEFAULT, TorchVersion, first_with
from pipesched.report.report import Report
from pipesched.source import Source


@dataclass(frozen=True)
class Emission:
    """The verdict on what is emitted, and that; no order where the verdict is not good."""

    report: Report
    target: str
    order: Schedule | Program | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    version: TorchVersion = DEFAULT

    def pieces(self) -> Iterator[str]:
        """The text, a rank at a time."""
        return iter(()) if self.order is None else compile.emit(self.order, self.target, self.parameters)

    def by_rank(self) -> Iterator[str]:
        """The text of each rank alone."""
        return iter(()) if self.order is None else TARGETS[self.target].by_rank(self.order, whole(self.parameters))

    def settings(self, files: Sequence[str] = (), *, by_rank: bool = False) -> list[str]:
        """What a trainer needs besides the files, which are of a rank each or one for all."""
        target = TARGETS[self.target]
        if self.order is None:
            return []
        if by_rank and target.torch:
            return ["torch reads one file with a row a rank, on every node: these rows are for people"]
        return target.settings(self.order, files[0] if files else f"FILE{target.ending}", self.version)

    def to_json(self, files: Sequence[str] = (), *, by_rank: bool = False) -> dict[str, object]:
        """The published form, see ``emit/README.md``: the text is in it where it is in no file."""
        if self.order is None:
            return self.report.to_json()
        return {
            "ok": True,
            "name": self.report.name,
            "target": self.target,
            "files": list(files),
            "text": None if files else "".join(self.pieces()),
            "settings": self.settings(files, by_rank=by_rank),
            "diagnostics": [render.as_json(diagnostic) for diagnostic in self.report.diagnostics],
        }


def emit(source: Source, options: Options, to: str) -> Emission:
    """A file for a target of TARGETS: the verdict is on what is emitted.

    What is wrong is in the report: with the file, with what is made from it, or that the target cannot run it (PS814).
    """
    target = TARGETS[to]
    waiting = "WAIT_" in source.text and reader_of(source) is TORCH_CSV  # so it is surely for a version that has them
    version = first_with(Op.WAIT_SEND_F) if waiting else None
    own = replace(options, torch_version=version, comm=None if target.blocks else options.comm)
    try:
        loaded = compile.load(source, own)
        target.require(loaded.schedule, loaded.program if target.messages else None)
    except PipeschedError as error:
        return Emission(Report(None, source.name, dict(options.parameters), diagnostics=error.diagnostics), to)
    first = compile.examine(loaded, own)
    if loaded.program is not None and not first.report.ok:
        return Emission(first.report, to)
    if loaded.program is not None and not target.torch:
        return Emission(first.report, to, loaded.program, loaded.sizes)
    order = _lowered(first) if target.messages else loaded.schedule
    if order is None:
        return Emission(first.report, to)
    version = options.torch_version or DEFAULT if target.torch else None
    if version is not None and isinstance(order, Program):
        order = torch_actions(order, version)
    final = first.having(order if isinstance(order, Program) else None, version)
    if not final.report.ok:  # what is wrong with the file itself is reported in its own terms
        return Emission(final.report if first.report.ok else first.report, to)
    if isinstance(order, Schedule) and order.placement.frozen:
        order = with_backwards(order, final.analysis.timeline)
        whole = compile.examine(Loaded(loaded.source, order, torch=True), Options(torch_version=version))
        if not whole.report.ok:
            return Emission(whole.report, to)
    return Emission(final.report, to, order, loaded.sizes, version or DEFAULT)


def _lowered(examined: Examination) -> Program | None:
    """The program at the costs asked for, or None where the file has none, or the costs mean nothing."""
    try:
        return examined.analysis.program
    except PipeschedError:
        return None
