"""Every analysis and every check over one loaded schedule, in one report.

    complete, data flow, placement ── timeline, memory ── program: channels, deadlock, hand-over, torch ── claims

All that is wrong is reported together. What needs a timeline runs only if there is one, and claims are judged only of
an order that is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from pipesched.analysis.assumptions import assumed, remarks, used
from pipesched.analysis.buffers import Buffers, buffers, lowered
from pipesched.analysis.channels import Pairing, pair
from pipesched.analysis.communication import Verdicts, verdicts
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.idle import Idle, idle
from pipesched.analysis.memory import Memory as Held
from pipesched.analysis.memory import memory
from pipesched.analysis.models import ASYNC, ONE_STREAM, PAIR_STREAM, STRICT, UNBOUNDED, Model, parse_model
from pipesched.analysis.timeline import Timeline, timeline
from pipesched.check.buffers import check_buffers
from pipesched.check.channels import check_channels
from pipesched.check.complete import check_complete
from pipesched.check.dataflow import check_dataflow
from pipesched.check.deadlock import check_deadlock
from pipesched.check.gradients import check_gradients
from pipesched.check.handover import check_handover
from pipesched.check.memory import check_memory
from pipesched.check.misnamed import one_slip
from pipesched.check.placement import check_placement
from pipesched.check.step import check_step
from pipesched.check.torch_rules import check_torch
from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail, of_the_caller
from pipesched.language.claims import Facts, Verdict
from pipesched.language.evaluate import MAX_OPS, Unit
from pipesched.lower.communicate import communicate
from pipesched.model.costs import Costs
from pipesched.model.numbers import require_counts
from pipesched.model.program import Program
from pipesched.model.release import AT_W, Release
from pipesched.model.schedule import Schedule
from pipesched.model.torch_versions import DEFAULT, TorchVersion
from pipesched.report import Claim, Communication, Memory, Report, Subject, Time

UNIT = "microbatches through 1/p of the model"


@dataclass(frozen=True)
class Options:
    """How to verify. Sizes given for a CSV are checked against it; `mem_cap` has one entry, or one a rank.
    require_proof: it is an error unless it is an answer that is proved optimal.
    """

    parameters: Mapping[str, int] = field(default_factory=dict)
    costs: Costs | None = None
    release: Release = AT_W
    mem_cap: tuple[Fraction, ...] | None = None
    comm: str = "strict"
    max_ops: int = MAX_OPS
    torch_version: TorchVersion | None = None
    fsdp: bool = False
    stages: int | None = None
    microbatches: int | None = None
    placement: tuple[int, ...] | None = None
    require_proof: bool = False

    def __post_init__(self) -> None:
        """Raises PipeschedError: PS225, a size below 1."""
        require_counts(self.parameters.items())


@dataclass(frozen=True)
class Loaded:
    """What a file holds: a compute order, and its messages if it names them. unit: of a .ps file. torch: of a CSV."""

    source: str
    schedule: Schedule
    program: Program | None = None
    unit: Unit | None = None
    torch: bool = False

    @property
    def own_costs(self) -> Costs:
        """The costs that the file gives."""
        return self.unit.costs if self.unit else Costs()

    def costs(self, asked: Costs | None) -> Costs:
        """The costs that count: what is asked for, over those of the file."""
        return self.own_costs if asked is None else asked.over(self.own_costs)


def sizes(loaded: Loaded) -> dict[str, int]:
    """The parameters of a file, or p and m of an order."""
    schedule = loaded.schedule
    return dict(schedule.parameters) or {"p": schedule.ranks, "m": schedule.microbatches}


@dataclass
class Examination:
    """One run of all analyses and checks; `report` raises PipeschedError for options that mean nothing."""

    loaded: Loaded
    options: Options

    def report(self) -> Report:
        schedule, options = self.loaded.schedule, self.options
        model, caps = parse_model(options.comm), self._caps()
        costs = self._costs()
        ticks = costs.ticks(schedule.stages)
        dependencies = Dependencies.of(schedule)
        times = timeline(schedule, dependencies, ticks)
        found = [
            *check_complete(schedule, dependencies),
            *check_dataflow(schedule, dependencies, times),
            *check_placement(schedule),
        ]
        sound = not any(d.severity == "error" for d in found)
        slip = one_slip(schedule, found) if self.loaded.unit is None and self.loaded.program is None else []
        found = slip or found
        held = memory(schedule, options.release, costs.sizes(schedule.stages))
        program = self._program(dependencies, times)
        communication, messages = self._communication(program, model, found, times)
        found += check_memory(held, caps) if caps else ()
        found += () if len(slip) == 1 else self._runtime(program, dependencies)
        hands = buffers(self.loaded.program) if self.loaded.program is not None else None
        if hands is not None and program is not None and sound and times.finished:
            found += check_buffers(program, hands, lowered(schedule, dependencies, times))
        spent = idle(schedule, times, ticks) if times.finished else None
        claims = self._claims(spent if sound else None, costs)
        found += _failed(claims)
        return Report(
            schedule.name,
            self.loaded.source,
            sizes(self.loaded),
            schedule.ranks,
            schedule.stages,
            schedule.microbatches,
            len(schedule),
            schedule.slots,
            messages,
            tuple(found),
            communication,
            _memory(held, caps, hands),
            _time(spent, costs, used(schedule, costs)),
            tuple(Claim(v.claim.text, v.holds, v.detail) for v in claims),
            Subject(schedule, costs, options.release, self._stopped(communication)),
            forward_only=schedule.forward_only and len(schedule) > 0,
        )

    def _costs(self) -> Costs:
        """The costs asked for, over those of the file."""
        asked = self.options.costs or Costs()
        try:
            asked.require_fit(self.loaded.schedule.stages)
            asked.sizes(self.loaded.schedule.stages)
        except PipeschedError as error:  # the command line is at fault, not the file
            raise of_the_caller(error) from None
        return self.loaded.costs(asked)

    def _caps(self) -> tuple[Fraction, ...] | None:
        caps, ranks = self.options.mem_cap, self.loaded.schedule.ranks
        if caps is not None and min(caps, default=0) < 0:
            raise fail(Code.USAGE, f"a cap is negative: {min(caps)}")
        if caps is None or len(caps) == ranks:
            return caps
        if len(caps) == 1:
            return caps * ranks
        raise fail(Code.USAGE, f"{len(caps)} caps for {ranks} ranks", help="give one cap, or one a rank")

    def _program(self, dependencies: Dependencies, times: Timeline) -> Program | None:
        """The file's own program, or ours for its compute order, if there can be one."""
        if self.loaded.program is not None:
            return self.loaded.program
        if not times.finished or not dependencies.valid.all():
            return None
        return communicate(self.loaded.schedule, dependencies, times)

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

    def _stopped(self, said: Communication | None) -> Program | None:
        """The file's own program if it never ends, which its picture then shows; else it is let go."""
        return None if said is None or said.model in said.holds else self.loaded.program

    def _runtime(self, program: Program | None, dependencies: Dependencies) -> Iterator[Diagnostic]:
        """What a file's own program, and torch's runtime, ask for."""
        loaded, options = self.loaded, self.options
        if loaded.program is not None:
            yield from check_handover(loaded.program, loaded.schedule, dependencies)
            yield from check_gradients(loaded.program, loaded.schedule)
            yield from check_step(loaded.program)
        if loaded.torch or options.torch_version is not None:
            yield from check_torch(
                loaded.program,
                loaded.schedule,
                version=options.torch_version or DEFAULT,
                fsdp=options.fsdp,
                explicit_version=options.torch_version is not None,
            )

    def _claims(self, spent: Idle | None, costs: Costs) -> list[Verdict]:
        """The verdict on each claim; not applicable where the order itself is wrong."""
        unit = self.loaded.unit
        if unit is None:
            return []
        if spent is None:
            return [Verdict(claim, None, "the order is wrong") for claim in unit.checked.claims]

        def peak(release: Release) -> tuple[Fraction, ...]:
            return memory(unit.schedule, release, costs.sizes(unit.schedule.stages)).peak

        times = (spent.makespan, spent.span, spent.work, spent.idle, spent.span_idle)
        facts = Facts(*times, spent.bubble, spent.span_bubble, peak, costs)
        return unit.judge(facts)


def _failed(claims: list[Verdict]) -> Iterator[Diagnostic]:
    for verdict in claims:
        if verdict.error is not None:
            yield verdict.error
        if verdict.holds is False:
            label = Label(verdict.claim.node.span, verdict.detail)
            help = "correct the formula, or say `when` it holds"
            yield Diagnostic(Code.CLAIM, f"claim {verdict.claim.text} does not hold", (label,), (), help)


def _time(spent: Idle | None, costs: Costs, kinds: set[str]) -> Time | None:
    if spent is None:
        return None
    guessed, said = assumed(costs, kinds), tuple(remarks(costs, kinds))
    times = (spent.makespan, spent.span, spent.work, spent.idle, spent.span_idle)
    return Time(costs.to_json(), *times, guessed, said)


def _memory(held: Held, caps: tuple[Fraction, ...] | None, hands: Buffers | None) -> Memory:
    received, unsent = (hands.received.most, hands.unsent.most) if hands is not None else (None, None)
    return Memory(held.release.name, UNIT, held.peak, caps, _memory_notes(held.schedule), received, unsent)


def _memory_notes(schedule: Schedule) -> tuple[str, ...]:
    if not schedule.placement.bidirectional:
        return ()
    copies = max(len(schedule.placement.copies(stage)) for stage in range(schedule.stages))
    return (f"{copies} copies of every stage: parameters and their gradients take {copies} times as much",)
