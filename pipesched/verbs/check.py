"""Is a trainer's configuration right: every rule of its trainer, its CSV verified, and the schedule that it asks for.

    text ──read──> settings ──whose?──> case ──rules──> facts, notes, diagnostics ──> Checked, with the command to go on

What is assumed (the release, the version of torch) and what is not judged is said.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pipesched import render
from pipesched.compile import Options, examine, load
from pipesched.diagnostics import NOT_JUDGED, Code, Diagnostic, Judged, Label, PipeschedError, fail
from pipesched.inputs import read_path
from pipesched.model.torch_versions import DEFAULT, TorchVersion
from pipesched.source import Source
from pipesched.trainers import texts
from pipesched.trainers.case import Case, Fact, Finding, Note, Plan, samples, wrong
from pipesched.trainers.settings import Settings, Unread
from pipesched.trainers.torch_names import torch_name
from pipesched.trainers.trainers import Trainer, named, trainer_of

_EXPANDED = "let your shell read it: pipesched check -- COMMAND and its arguments"


@dataclass(frozen=True)
class Asked:
    """What a configuration is for, as far as that is said: trainer and release, torch, ranks, all processes."""

    trainer: str | None = None
    torch_version: TorchVersion | None = None
    p: int | None = None
    processes: int | None = None


@dataclass(frozen=True)
class Checked(Judged):
    """What is said of a configuration. assumed: ``release``, ``torch``, where they were not given.

    command: how to verify its schedule, or why that is not known.
    """

    source: str
    trainer: str | None = None
    release: str | None = None
    torch: str | None = None
    assumed: tuple[str, ...] = ()
    plan: Plan = field(default_factory=Plan)
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    command: str | None = None

    def __repr__(self) -> str:
        return f"<Checked {self.verdict} {self._head()}>"

    def __str__(self) -> str:
        return self.text()

    @property
    def verdict(self) -> str:
        """``ok``, ``fail``, or ``not judged`` where something was not read or is not known, and nothing is wrong."""
        return "ok" if self.ok else "not judged" if self.exit_status == NOT_JUDGED else "fail"

    def text(self, *, color: bool = False) -> str:
        """The diagnostics with their places, what holds, a line a fact, and the schedule on the last line."""
        parts = [render.text(found, color=color) for found in self.diagnostics]
        if self.trainer is None:
            return "\n\n".join(parts)
        head = render.paint(self.verdict, {"ok": "ok", "fail": "error"}.get(self.verdict, "unjudged"), color)
        width = max((len(fact.about) for fact in self.facts), default=0)
        lines = [f"{head}  {self._head()}"]
        lines += [render.clean(f"    {fact.about:<{width}}  {fact.text}") for fact in self.facts]
        lines += [render.clean(f"    note: {note}") for note in self.notes]
        return "\n\n".join([*parts, "\n".join([*lines, self._last()])])

    def line(self) -> str:
        """The verdict on one line."""
        return f"{self.verdict}  {self._head()}"

    def _head(self) -> str:
        parts = [f"{self.trainer} {self.release}" + " (assumed)" * ("release" in self.assumed)]
        if self.torch is not None:
            parts.append(f"torch {self.torch}" + " (assumed)" * ("torch" in self.assumed))
        counted = render.tally(self.diagnostics)
        return render.clean("   ".join(filter(None, [self.source, ", ".join(parts), counted])))

    def _last(self) -> str:
        """The schedule, and how to verify it."""
        plan = self.plan
        if plan.off:
            return render.clean(f"    no pipeline: {plan.off}")
        sizes = {"p": plan.ranks, "v": plan.chunks, "m": plan.microbatches}
        said = " ".join(f"{name}={'?' if count is None else count}" for name, count in sizes.items())
        size = "" if plan.microbatch_size is None else f", microbatches of {samples(plan.microbatch_size)}"
        ranks = "" if plan.ranks is None else f", {plan.ranks} ranks"
        return render.clean(f"    {plan.name or 'schedule unknown'}  {said}{size}{ranks}: {self.command}")

    def to_json(self) -> dict[str, object]:
        """The published form, see ``emit/README.md``."""
        plan = self.plan
        return {
            "ok": self.ok,
            "verdict": self.verdict,
            "source": self.source,
            "trainer": self.trainer,
            "release": self.release,
            "torch": self.torch,
            "assumed": list(self.assumed),
            "schedule": {
                "name": plan.name,
                "p": plan.ranks,
                "v": plan.chunks,
                "m": plan.microbatches,
                "microbatch_size": plan.microbatch_size,
                "csv": None if plan.csv is None else str(plan.csv.value),
                "off": plan.off,
            },
            "facts": [{"about": fact.about, "text": fact.text} for fact in self.facts],
            "notes": list(self.notes),
            "command": self.command,
            "diagnostics": [render.as_json(found) for found in self.diagnostics],
        }


def check(source: Source, asked: Asked) -> Checked:
    """Everything that is known of a configuration. What is wrong in it is in the result.

    Raises:
        PipeschedError: PS225, an option that means nothing.
    """
    for name, count in (("p", asked.p), ("processes", asked.processes)):
        if count is not None and count < 1:
            raise fail(Code.USAGE, f"--{name} is {count}, not a whole number from 1")
    row, release = named(asked.trainer) if asked.trainer else (None, None)
    try:
        settings = texts.read(source)
        settings = _with_file(settings)
        row = row or trainer_of(settings)
        if settings.kind not in row.texts:
            kinds = " and ".join(row.texts)
            raise fail(Code.CONFIG_UNKNOWN, f"{source.name} is {settings.kind}; {row.name} is read from {kinds}")
    except PipeschedError as error:
        return Checked(source.name, diagnostics=error.diagnostics)
    case = _case(row, release, settings, asked)
    plan = row.plan(case)
    _require_ranks(case, plan, asked)
    found = [*_launched(case, asked), *row.check(case, plan), *_csv(case, plan), *_unread(case)]
    assumed = ["release"] if release is None else []
    assumed += ["torch"] if row.torch_of is not None and asked.torch_version is None else []
    return Checked(
        source.name,
        row.name,
        case.release,
        None if row.torch_of is None else str(case.torch),
        tuple(assumed),
        plan,
        tuple(x for x in found if isinstance(x, Fact)),
        tuple(x.text for x in found if isinstance(x, Note)),
        tuple(x for x in found if isinstance(x, Diagnostic)),
        _command(case, plan),
    )


def _case(row: Trainer, release: str | None, settings: Settings, asked: Asked) -> Case:
    settled = row.settled(settings)
    chosen = release or (row.release_of(settled) if row.release_of else row.releases[-1])
    torch = asked.torch_version or (row.torch_of(chosen) if row.torch_of else DEFAULT)
    return Case(settled, row.name, chosen, row.releases, torch, asked.p, asked.processes or _processes(settled))


def _unread(case: Case) -> Iterator[Diagnostic]:
    """The settings that stand in the text and are not understood there: nothing is said that depends on them."""
    for setting in case.settings:
        if isinstance(setting.value, Unread) and setting.at is not None:
            message = f"line {setting.at.line} is not read: {setting.written} stands there, and its value is not known"
            yield Diagnostic(Code.CONFIG_UNREAD, message, (Label(setting.at, "not read"),), (), _EXPANDED)


def _launch(settings: Settings) -> dict[str, object]:
    """The options of torchrun that are on the command line."""
    return {x.written.lstrip("-").replace("-", "_"): x.value for x in settings if x.written.startswith("--n")}


def _processes(settings: Settings) -> int | None:
    """What torchrun starts, where it is on the command line: processes of a node, on one node unless there are more."""
    given = _launch(settings)
    each, nodes = given.get("nproc_per_node"), given.get("nnodes", 1)
    return each * nodes if isinstance(each, int) and isinstance(nodes, int) and each > 0 and nodes > 0 else None


def _launched(case: Case, asked: Asked) -> Iterator[Finding]:
    """How many processes there are, where that is from the command line of torchrun."""
    if case.processes is not None and asked.processes is None:
        nodes = "nnodes" if "nnodes" in _launch(case.settings) else "one node, as nnodes is not given"
        yield Fact("processes", f"{case.processes}, by nproc_per_node and {nodes}")
    file = case.settings("job.config_file").value
    if case.settings.kind == "shell" and isinstance(file, str) and _beside(case.settings.source.name, file) is None:
        yield Note(f"there is no file {file[:100]}: what it sets is not known, its defaults are taken")


def _with_file(settings: Settings) -> Settings:
    """Options of a command line over the TOML file that they name."""
    named = next((x for x in settings if x.key in ("--job.config_file", "--job.config-file")), None)
    if settings.kind != "shell" or named is None or not isinstance(named.value, str):
        return settings
    path = _beside(settings.source.name, named.value)
    if path is None:
        return settings
    own = {setting.key.removeprefix("--").replace("-", "_"): setting for setting in settings}
    return replace(settings, given={**texts.read(read_path(path)).given, **own})


def _beside(source: str, path: str) -> str | None:
    """A file that a configuration names, from the current folder or from its own."""
    return next((p for p in (path, os.path.join(os.path.dirname(source), path)) if os.path.isfile(p)), None)


def _require_ranks(case: Case, plan: Plan, asked: Asked) -> None:
    """Raises PipeschedError: PS225, --p is not that of the file."""
    if asked.p is not None and plan.ranks not in (None, asked.p):
        message = f"{case.settings.source.name} has {plan.ranks} ranks; {asked.p} were given"
        raise fail(Code.USAGE, message, help="leave out --p: the file says it")


def _csv(case: Case, plan: Plan) -> Iterator[Finding]:
    """What is wrong with the CSV that replaces the order: it is not there, not of these sizes, or not right."""
    if plan.csv is None or plan.off:
        return
    source = f"{case.named}, pipeline_parallel.py: _load_csv"
    path = _beside(case.settings.source.name, str(plan.csv.value))
    if path is None:
        yield wrong(Code.CONFIG_CSV, f"there is no file {str(plan.csv.value)[:100]}", source, plan.csv)
        return
    try:
        csv = read_path(path)
        name = csv.name if csv.name.lower().endswith(".csv") else f"{csv.name}.csv"
        loaded = load(replace(csv, name=name), Options(torch_version=case.torch))
    except PipeschedError as error:
        yield from error.diagnostics
        return
    schedule = loaded.schedule
    if schedule.program is not None:
        message = f"{path} names its messages; {case.trainer} loads computes alone"
        help = f"pipesched emit {path} --target torch-csv"
        yield wrong(Code.CONFIG_CSV, message, source, plan.csv, help=help)
        return
    wanted = {"ranks": plan.ranks, "microbatches": plan.microbatches, "stages": plan.stages}
    real = {"ranks": schedule.ranks, "microbatches": schedule.microbatches, "stages": schedule.stages}
    bad = [name for name, count in wanted.items() if count is not None and count != real[name]][:1]
    for name in bad:
        yield wrong(
            Code.CONFIG_CSV, f"{path} has {real[name]} {name}; the settings make {wanted[name]}", source, plan.csv
        )
    if bad:
        return
    placement = _placement(plan)
    if placement is not None and schedule.placement.rank_of[0].tolist() != placement:
        kind = "the V" if plan.placement == "vee" else "the loop"
        by_stage = ",".join(map(str, schedule.placement.rank_of[0].tolist()))
        message = f"{path} has its stages on ranks {by_stage}; by the name {plan.name} they are built on {kind}"
        yield wrong(Code.CONFIG_CSV, message, source, plan.csv)
        return
    report = examine(loaded, Options(torch_version=case.torch)).report
    yield from report.diagnostics
    if report.ok:
        split = ", backward in I and W" if schedule.split else ""
        yield Fact("CSV", f"{path} holds: {len(schedule)} operations{split}")
    if schedule.split and case.trainer == "torchtitan" and case.release == "0.3.0":
        message = f"{path} has I and W: under the chunked loss the last norm gets no gradient, silently"
        yield wrong(
            Code.CONFIG_SILENT,
            message,
            "measured, torchtitan 0.3.0 on torch 2.15; components/loss.py: ChunkedLossWrapper",
            plan.csv,
            help="a --config without ChunkedLossWrapper, and activation_checkpoint:none",
        )


def _placement(plan: Plan) -> list[int] | None:
    """The rank of every stage."""
    if plan.ranks is None or plan.stages is None:
        return None
    if plan.placement == "vee":
        return [*range(plan.ranks), *reversed(range(plan.ranks))]
    return [stage % plan.ranks for stage in range(plan.stages)]


def _command(case: Case, plan: Plan) -> str | None:
    """``pipesched verify …`` for the schedule; else what keeps it from being named."""
    if plan.off:
        return None
    p, v, m = plan.ranks, plan.chunks, plan.microbatches
    if p is None or m is None:
        return f"its {'p' if p is None else 'm'} is not known"
    if plan.csv is not None:
        path = shlex.quote(_beside(case.settings.source.name, str(plan.csv.value)) or str(plan.csv.value))
        stages = f" --stages {plan.stages}" if plan.stages else ""
        return f"pipesched verify {path} --p {p} --m {m}{stages} --torch-version {case.torch}"
    if v is None:
        return "its v is not known"
    row, sizes = torch_name(plan.name), f"--p {p}" + (f" --v {v}" if v != 1 else "") + f" --m {m}"
    if plan.options:
        return f"pipesched verify megatron:interleaved {sizes}" + "".join(f" -D {option}" for option in plan.options)
    order = row.order if row else plan.name
    ours = order is not None and not (order == "interleaved" and m % p) and not (order == "dualpipev" and m < 2 * p)
    if row is not None and not ours:
        return f"pipesched verify torch:{row.name} {sizes}"
    return f"pipesched verify {order} {sizes if order == 'interleaved' else f'--p {p} --m {m}'}"
