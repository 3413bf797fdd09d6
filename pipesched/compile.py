"""The whole pipeline on one page.

    read ──> load ──> Schedule ──> waits, timeline, memory ──> lower ──> Program ──> channels, deadlock ──> Report
               │        │ check: complete, data flow, memory               │ check: hand-over, gradients, torch
               └─ .ps text, torch CSV, order text; a file with messages is its own Program

Each arrow is one call. Everything that is wrong is collected and reported together; a later step runs as far as what
came before it allows. A reader is imported with the first file that needs it: most runs read one kind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from pipesched.analysis.channels import Pairing, pair
from pipesched.analysis.communication import Verdicts, verdicts
from pipesched.analysis.idle import Idle, idle
from pipesched.analysis.memory import memory
from pipesched.analysis.models import ASYNC, ONE_STREAM, PAIR_STREAM, STRICT, UNBOUNDED, Model, parse_model
from pipesched.analysis.timeline import Timeline, timeline
from pipesched.analysis.waits import Waits, waits
from pipesched.assets import asset
from pipesched.check.channels import check_channels
from pipesched.check.complete import check_complete
from pipesched.check.dataflow import check_dataflow
from pipesched.check.deadlock import check_deadlock
from pipesched.check.gradients import check_gradients
from pipesched.check.handover import check_handover
from pipesched.check.memory import check_memory
from pipesched.check.placement import check_placement
from pipesched.check.step import check_step
from pipesched.check.torch_rules import check_torch
from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.formats import sniff
from pipesched.language.checked import Checked, check_file
from pipesched.language.claims import Facts, Verdict
from pipesched.language.evaluate import MAX_OPS, Unit, at_size
from pipesched.language.parser import parse
from pipesched.lower.communicate import communicate
from pipesched.model.costs import Costs
from pipesched.model.program import Program
from pipesched.model.release import AT_W, Release
from pipesched.model.schedule import Schedule
from pipesched.report import Claim, Communication, Memory, Report, Time
from pipesched.source import Source

TORCH = (2, 13)  # the version whose rules hold for a CSV unless another is named
UNIT = "microbatches through 1/p of the model"


@dataclass(frozen=True)
class Options:
    """How to verify. Sizes given for a CSV are checked against it; `mem_cap` has one entry, or one a rank."""

    parameters: Mapping[str, int] = field(default_factory=dict)
    costs: Costs | None = None
    release: Release = AT_W
    mem_cap: tuple[Fraction, ...] | None = None
    comm: str = "strict"
    max_ops: int = MAX_OPS
    torch_version: tuple[int, int] | None = None
    fsdp: bool = False
    stages: int | None = None
    microbatches: int | None = None
    placement: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Loaded:
    """What a file holds: a compute order, and its messages if it names them. unit: of a .ps file. torch: of a CSV."""

    source: str
    schedule: Schedule
    program: Program | None = None
    unit: Unit | None = None
    torch: bool = False


def read(target: str) -> Source:
    """The text of a path, of stdin (``-``), or of a built-in schedule by its name.

    Raises:
        PipeschedError: PS809 unreadable, PS810 neither a file nor a built-in schedule.
    """
    try:
        if target == "-":
            return Source("<stdin>", _text(sys.stdin.buffer.read(), "<stdin>"))
        path = Path(target)
        if target == "":
            raise fail(
                Code.UNREADABLE, "the name of a file is empty", help="`pipesched list` shows the built-in schedules"
            )
        if path.exists() or "/" in target or path.suffix:
            return Source(target, _text(path.read_bytes(), target))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise fail(Code.UNREADABLE, f"cannot read {target}: {reason.lower()}", help=_meant(target)) from None
    if target not in _library():
        raise fail(Code.UNKNOWN_SCHEDULE, f"no schedule is called {target!r}", help=_meant(target))
    return Source(f"{target}.ps", asset("schedules", f"{target}.ps").read_text("utf-8"))


def _text(content: bytes, name: str) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise fail(Code.UNREADABLE, f"{name} is not text", help="a schedule is UTF-8 text: .ps or torch CSV")
    return text


def _meant(target: str) -> str:
    close = get_close_matches(Path(target).stem, _library(), 1, 0.5)
    return f"did you mean `{close[0]}`?" if close else "`pipesched list` shows the built-in schedules"


def _library() -> list[str]:
    return sorted(path.name.removesuffix(".ps") for path in asset("schedules").iterdir() if path.name.endswith(".ps"))


def library() -> list[tuple[str, str]]:
    """The built-in schedules: name, and the documentation of the file, on one line."""
    files = {name: _checked(read(name)).file for name in _library()}
    return [(name, " ".join((file.documentation or "").split())) for name, file in files.items()]


@lru_cache(maxsize=64)
def _checked(source: Source) -> Checked:
    """A file is parsed and checked once, whatever the number of sizes."""
    return check_file(parse(source))


def load(source: Source, options: Options) -> Loaded:
    """A file as a schedule, by its content.

    Raises:
        PipeschedError: PS1xx, PS2xx, PS8xx, everything that keeps it from being one.
    """
    kind = sniff.kind(source.name, source.text)
    if kind == "ps":
        unit = at_size(_checked(source), options.parameters, max_ops=options.max_ops)
        return Loaded(source.name, unit.schedule, unit=unit)
    extra = sorted(set(options.parameters) - {"p", "m"})
    if extra:
        raise fail(Code.PARAMETER_UNKNOWN, f"{source.name} is an order, without parameters: {', '.join(extra)} given")
    made: Schedule | Program
    if kind == "order":
        from pipesched.formats import order_text

        made = order_text.read(source)
    else:
        from pipesched.formats import torch_csv

        made = torch_csv.read(
            source,
            torch_version=options.torch_version or TORCH,
            stages=options.stages,
            microbatches=options.microbatches,
            placement=options.placement,
        )
    if options.parameters.get("p", made.ranks) != made.ranks:
        message = f"{source.name} has {made.ranks} ranks, one a row; {options.parameters['p']} were given"
        raise fail(Code.FILE_DISAGREES, message, help="one row a rank")
    if isinstance(made, Program):
        return Loaded(source.name, made.computes, made, torch=kind == "torch-csv")
    return Loaded(source.name, made, torch=kind == "torch-csv")


def verify(source: Source, options: Options) -> Report:
    """Everything we know of a file at a size. What is wrong is in the report; nothing is raised."""
    try:
        loaded = load(source, options)
    except PipeschedError as error:
        return Report(None, source.name, dict(options.parameters), diagnostics=error.diagnostics)
    return examine(loaded, options)


def examine(loaded: Loaded, options: Options) -> Report:
    """Check and measure what was loaded."""
    try:
        return _Examination(loaded, options).report()
    except PipeschedError as error:
        return Report(loaded.schedule.name, loaded.source, _sizes(loaded), diagnostics=error.diagnostics)


def lower(schedule: Schedule) -> Program:
    """The program of a schedule, at unit costs.

    Raises:
        PipeschedError: PS306, compute orders that wait for each other have no program.
    """
    needs = waits(schedule)
    times = timeline(schedule, needs, Costs().ticks(schedule.stages))
    if not times.finished:
        raise PipeschedError(check_dataflow(schedule, needs, times))
    return communicate(schedule, needs, times)


def order(source: Source, options: Options, *, program: bool) -> str:
    """The order of a file in the notation ``F0.0 I0.0 … F3.1+B2.0``; with `program`, sends and receives too.

    Raises:
        PipeschedError: as `load` and `lower`.
    """
    from pipesched.formats import order_write

    loaded = load(source, options)
    if not program:
        return order_write.write(loaded.schedule)
    return order_write.write_program(loaded.program or lower(loaded.schedule))


def _sizes(loaded: Loaded) -> dict[str, int]:
    schedule = loaded.schedule
    return dict(schedule.parameters) if loaded.unit else {"p": schedule.ranks, "m": schedule.microbatches}


@dataclass
class _Examination:
    """One run of all analyses and checks over a schedule."""

    loaded: Loaded
    options: Options

    def report(self) -> Report:
        schedule, options = self.loaded.schedule, self.options
        model, caps = parse_model(options.comm), self._caps()
        costs = self._costs()
        ticks = costs.ticks(schedule.stages)
        needs = waits(schedule)
        times = timeline(schedule, needs, ticks)
        found = [*check_complete(schedule, needs), *check_dataflow(schedule, needs, times), *check_placement(schedule)]
        held = memory(schedule, options.release)
        program = self._program(needs, times)
        communication, messages = self._communication(program, model, found, times)
        found += check_memory(held, caps) if caps else ()
        found += self._runtime(program, needs)
        spent = idle(schedule, times, ticks) if times.finished else None
        whole = spent is not None and not any(d.severity == "error" for d in found)
        claims = self._claims(spent if whole else None, costs)
        found += _failed(claims)
        return Report(
            schedule.name,
            self.loaded.source,
            _sizes(self.loaded),
            schedule.ranks,
            schedule.stages,
            schedule.microbatches,
            len(schedule),
            schedule.slots,
            messages,
            tuple(found),
            communication,
            Memory(options.release.name, UNIT, held.peak, caps, _memory_notes(schedule)),
            _time(spent, costs),
            tuple(Claim(v.claim.text, v.holds, v.detail) for v in claims),
        )

    def _costs(self) -> Costs:
        """The costs asked for, over those of the file."""
        asked, own = self.options.costs, self.loaded.unit.costs if self.loaded.unit else Costs()
        if asked is None:
            return own
        try:
            asked.ticks(self.loaded.schedule.stages)
        except PipeschedError as error:  # the command line is at fault, not the file
            raise fail(Code.USAGE, error.diagnostics[0].message, help=error.diagnostics[0].help) from None
        return asked.over(own)

    def _caps(self) -> tuple[Fraction, ...] | None:
        caps, ranks = self.options.mem_cap, self.loaded.schedule.ranks
        if caps is None or len(caps) == ranks:
            return caps
        if len(caps) == 1:
            return caps * ranks
        raise fail(Code.USAGE, f"{len(caps)} caps for {ranks} ranks", help="give one cap, or one a rank")

    def _program(self, needs: Waits, times: Timeline) -> Program | None:
        """The file's own program, or ours for its compute order, if there can be one."""
        if self.loaded.program is not None:
            return self.loaded.program
        if not times.finished or not needs.valid.all():
            return None
        return communicate(self.loaded.schedule, needs, times)

    def _communication(
        self, program: Program | None, model: Model, found: list[Diagnostic], times: Timeline
    ) -> tuple[Communication | None, int | None]:
        """The verdict on the messages; channel and deadlock findings are added to `found`."""
        if program is None:
            every = dict.fromkeys([STRICT, UNBOUNDED, ONE_STREAM, PAIR_STREAM, ASYNC, model])
            return (None if times.finished else Communication(str(model), (), tuple(map(str, every)), None)), None
        pairing: Pairing = pair(program)
        if program is self.loaded.program or not found:  # messages of an incomplete order are not the file's
            found += check_channels(program, pairing)
        verdict: Verdicts = verdicts(program, pairing, model)
        if times.finished:
            found += check_deadlock(program, pairing, model, verdict)
        holds, fails = (tuple(map(str, models)) for models in (verdict.holds, verdict.fails))
        return Communication(str(model), holds, fails, verdict.capacity), program.messages

    def _runtime(self, program: Program | None, needs: Waits) -> Iterator[Diagnostic]:
        """What a file's own program, and torch's runtime, ask for."""
        loaded, options = self.loaded, self.options
        if loaded.program is not None:
            yield from check_handover(loaded.program, loaded.schedule, needs)
            yield from check_gradients(loaded.program, loaded.schedule)
            yield from check_step(loaded.program)
        if loaded.torch or options.torch_version is not None:
            yield from check_torch(
                loaded.program,
                loaded.schedule,
                version=options.torch_version or TORCH,
                fsdp=options.fsdp,
                explicit_version=options.torch_version is not None,
            )

    def _claims(self, spent: Idle | None, costs: Costs) -> list[Verdict]:
        """The verdict on each claim; not applicable where the schedule is wrong."""
        unit = self.loaded.unit
        if unit is None:
            return []
        if spent is None:
            return [Verdict(claim, None, "the schedule has errors") for claim in unit.checked.claims]

        def peak(release: Release) -> tuple[Fraction, ...]:
            return memory(unit.schedule, release).peak

        facts = Facts(spent.makespan, spent.span, spent.work, spent.idle, spent.span_idle, peak, costs)
        return unit.judge(facts)


def _failed(claims: list[Verdict]) -> Iterator[Diagnostic]:
    for verdict in claims:
        if verdict.holds is False:
            label = Label(verdict.claim.node.span, verdict.detail)
            help = "correct the formula, or say `when` it holds"
            yield Diagnostic(Code.CLAIM, f"claim {verdict.claim.text} does not hold", (label,), (), help)


def _time(spent: Idle | None, costs: Costs) -> Time | None:
    if spent is None:
        return None
    return Time(costs.to_json(), spent.makespan, spent.span, spent.work, spent.idle, spent.span_idle)


def _memory_notes(schedule: Schedule) -> tuple[str, ...]:
    if not schedule.placement.bidirectional:
        return ()
    copies = max(len(schedule.placement.copies(stage)) for stage in range(schedule.stages))
    return (f"{copies} copies of every stage: parameters and their gradients take {copies} times as much",)


__all__ = ["Loaded", "Options", "examine", "library", "load", "lower", "order", "read", "verify"]
