"""Checks the CSV that replaces a schedule's order: it must exist, have the sizes of the settings, and pass `verify`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pipesched.compile import Loaded, Options, examine, load
from pipesched.diagnostics import PipeschedError
from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers.case import Case, Fact, Findings, Plan, wrong
from pipesched.interop.trainers.scripts import beside
from pipesched.interop.trainers.settings import Setting
from pipesched.library.inputs import read_path

_CHUNKED = "measured, torchtitan 0.3.0 on torch 2.15; components/loss.py: ChunkedLossWrapper"
_SIZES = ("ranks", "microbatches", "stages")


@dataclass(frozen=True)
class Replaced:
    """A plan, and the loaded CSV whose order replaces the plan's schedule."""

    case: Case
    plan: Plan
    path: str
    loaded: Loaded

    @property
    def other_size(self) -> str | None:
        """The name of the first size in which the CSV differs from the settings, or None."""
        wanted = ((name, getattr(self.plan, name)) for name in _SIZES)
        schedule = self.loaded.schedule
        return next((x for x, count in wanted if count is not None and count != getattr(schedule, x)), None)

    @property
    def placement(self) -> list[int]:
        """The rank of every stage in the CSV."""
        placed: list[int] = self.loaded.schedule.placement.rank_of[0].tolist()
        return placed


def _placement(plan: Plan) -> list[int] | None:
    """Return the rank of every stage by the schedule's name, None if unknown."""
    if plan.ranks is None or plan.stages is None:
        return None
    if plan.placement == "vee":
        return [*range(plan.ranks), *reversed(range(plan.ranks))]
    return [stage % plan.ranks for stage in range(plan.stages)]


def _size(x: Replaced) -> str:
    name = x.other_size or ""
    return f"{x.path} has {getattr(x.loaded.schedule, name)} {name}; the settings make {getattr(x.plan, name)}"


def _placed(x: Replaced) -> str:
    by_stage, kind = ",".join(map(str, x.placement)), "the V" if x.plan.placement == "vee" else "the loop"
    return f"{x.path} has its stages on ranks {by_stage}; by the name {x.plan.name} they are built on {kind}"


_REFUSALS: tuple[tuple[Callable[[Replaced], bool], Callable[[Replaced], str], str | None], ...] = (
    (
        lambda x: x.loaded.schedule.program is not None,
        lambda x: f"{x.path} names its messages; {x.case.trainer} loads only computes",
        "pipesched emit {path} --target torch-csv",
    ),
    (lambda x: x.other_size is not None, _size, None),
    (lambda x: _placement(x.plan) not in (None, x.placement), _placed, None),
)
"""Condition, message and help; the first row whose condition holds is reported, and the CSV is not verified."""


def csv(case: Case, plan: Plan) -> Findings:
    """Report the errors of a plan's CSV, or that it passes."""
    if plan.csv is None or plan.off:
        return
    source, name = f"{case.named}, pipeline_parallel.py: _load_csv", str(plan.csv.value)
    path = beside(case.settings.source.name, name)
    if path is None:
        yield wrong(InteropCode.CONFIG_CSV, f"file {name[:100]} does not exist", source, plan.csv)
        return
    try:
        x = Replaced(case, plan, path, _load(path, case))
    except PipeschedError as error:
        yield from error.diagnostics
        return
    for broken, says, help in _REFUSALS:
        if broken(x):
            yield wrong(InteropCode.CONFIG_CSV, says(x), source, plan.csv, help=help and help.format(path=path))
            return
    yield from _verified(x, plan.csv)


def _load(path: str, case: Case) -> Loaded:
    read = read_path(path)
    name = read.name if read.name.lower().endswith(".csv") else f"{read.name}.csv"
    return load(replace(read, name=name), Options(torch_version=case.torch))


def _verified(x: Replaced, setting: Setting) -> Findings:
    schedule, case = x.loaded.schedule, x.case
    report = examine(x.loaded, Options(torch_version=case.torch)).report
    yield from report.diagnostics
    if report.ok:
        split = ", backward in I and W" if schedule.split else ""
        yield Fact("CSV", f"{x.path} holds: {len(schedule)} operations{split}")
    if schedule.split and case.trainer == "torchtitan" and case.since("0.3.0"):
        message = f"{x.path} has I and W: under the chunked loss the last norm gets no gradient, silently"
        help = "use a --config without ChunkedLossWrapper, and activation_checkpoint:none"
        yield wrong(InteropCode.CONFIG_SILENT, message, _CHUNKED, setting, help=help)
