"""Checks the CSV that replaces a schedule's order: it must exist, match the settings, and pass `verify`."""

from __future__ import annotations

from dataclasses import replace

from pipesched.compile import Loaded, Options, examine, load
from pipesched.diagnostics import PipeschedError
from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers.case import Case, Fact, Findings, Plan, wrong
from pipesched.interop.trainers.scripts import beside
from pipesched.interop.trainers.settings import Setting
from pipesched.library.inputs import read_path
from pipesched.model.schedule import Schedule

_CHUNKED = "measured, torchtitan 0.3.0 on torch 2.15; components/loss.py: ChunkedLossWrapper"


def _refused(path: str, case: Case, plan: Plan, schedule: Schedule) -> tuple[str, str | None] | None:
    """Return why a CSV does not fit the settings and is not verified, and the remedy; None if it fits."""
    if schedule.program is not None:
        message = f"{path} contains messages; {case.trainer} loads only compute operations"
        return message, f"use the file that `pipesched emit {path} --target torch-csv` writes"
    for name in ("ranks", "microbatches", "stages"):
        wanted, count = getattr(plan, name), getattr(schedule, name)
        if wanted not in (None, count):
            return f"{path} has {count} {name}; the settings require {wanted}", None
    if plan.ranks is None or plan.stages is None:
        return None
    vee = plan.placement == "vee"
    there = [*range(plan.ranks), *reversed(range(plan.ranks))] if vee else [x % plan.ranks for x in range(plan.stages)]
    found = schedule.placement.rank_of[0].tolist()
    if found == there:
        return None
    by_stage, kind = ",".join(map(str, found)), "a V" if vee else "a loop"
    return f"{path} places its stages on ranks {by_stage}; the schedule {plan.name} places them in {kind}", None


def csv(case: Case, plan: Plan) -> Findings:
    """Report the errors in a plan's CSV, or that the CSV is correct."""
    if plan.csv is None or plan.off:
        return
    source, name = f"{case.named}, pipeline_parallel.py: _load_csv", str(plan.csv.value)
    path = beside(case.settings.source.name, name)
    if path is None:
        yield wrong(InteropCode.CONFIG_CSV, f"file {name[:100]} does not exist", source, plan.csv)
        return
    try:
        loaded = _load(path, case)
    except PipeschedError as error:
        yield from error.diagnostics
        return
    if refused := _refused(path, case, plan, loaded.schedule):
        yield wrong(InteropCode.CONFIG_CSV, refused[0], source, plan.csv, help=refused[1])
        return
    yield from _verified(path, case, loaded, plan.csv)


def _load(path: str, case: Case) -> Loaded:
    read = read_path(path)
    name = read.name if read.name.lower().endswith(".csv") else f"{read.name}.csv"
    return load(replace(read, name=name), Options(torch_version=case.torch))


def _verified(path: str, case: Case, loaded: Loaded, setting: Setting) -> Findings:
    schedule, report = loaded.schedule, examine(loaded, Options(torch_version=case.torch)).report
    yield from report.diagnostics
    if report.ok:
        split = ", backwards split into I and W" if schedule.split else ""
        yield Fact("CSV", f"{path} is correct: {len(schedule)} operations{split}")
    if schedule.split and case.trainer == "torchtitan" and case.since("0.3.0"):
        message = f"{path} has I and W: with the chunked loss, the last norm layer silently gets no gradient"
        help = "use a --config without ChunkedLossWrapper, and activation_checkpoint:none"
        yield wrong(InteropCode.CONFIG_SILENT, message, _CHUNKED, setting, help=help)
