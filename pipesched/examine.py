"""Runs all analyses and all checks on one loaded schedule, for one report.

    complete, data flow, placement ── timeline, memory ── program: channels, deadlock, hand-over, torch ── claims

All findings are reported together. Checks that need a timeline run only if there is one, and claims are checked only
for a correct order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Self

from pipesched.analysis.communication import ASYNC, ONE_STREAM, PAIR_STREAM, STRICT, UNBOUNDED, parse_model
from pipesched.check import checks
from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, of_the_caller
from pipesched.extension import CostModel, Extended, Measure, counting
from pipesched.formats.readers import Loaded
from pipesched.language.claims import Verdict, judge_all
from pipesched.language.evaluate import MAX_OPS
from pipesched.model.costs import Costs
from pipesched.model.numbers import Value, ranges, require_counts, shown
from pipesched.model.ops import MAKERS, Result
from pipesched.model.release import AT_W, Release, caps_by_rank
from pipesched.model.schedule import Program
from pipesched.model.torch_versions import DEFAULT, TorchVersion
from pipesched.report.parts import Claim, Communication, Memory, Part, Parts, Time
from pipesched.report.report import Report
from pipesched.schedule_analysis import Analysis
from pipesched.support.record import Record

UNIT = "microbatches through 1/p of the model"


@dataclass(frozen=True)
class Options(Extended):
    """The options of a verification. Sizes given for a CSV are compared with the file; `mem_cap` has one entry, or one
    per rank.

    comm: the communication model, strict by default; if it is given, the makespan with its message queues is reported.
    frozen: the stages of an order that are not trained. settings: parameters other than sizes, for a schedule named
    with a colon.
    """

    parameters: Mapping[str, Value] = field(default_factory=dict)
    costs: Costs | None = None
    release: Release = AT_W
    mem_cap: tuple[Fraction, ...] | None = None
    comm: str | None = None
    max_ops: int = MAX_OPS
    torch_version: TorchVersion | None = None
    stages: int | None = None
    placement: tuple[int, ...] | None = None
    frozen: tuple[int, ...] | None = None
    settings: Mapping[str, str | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the sizes; raise PipeschedError (PS225) if one is below 1."""
        require_counts(self.parameters.items())

    def beside(self, loaded: Loaded) -> Self:
        """Return the options, completed by the values of the file's statements."""
        own, of_file = {*map(type, self.owned)}, loaded.unit.owned if loaded.unit else ()
        if not of_file:
            return self
        return replace(self, owned=(*self.owned, *(value for value in of_file if type(value) not in own)))

    def counted(self, loaded: Loaded) -> Costs:
        """Return the costs in effect: the requested costs, completed by the costs of a cost model or of the file.

        Raises:
            PipeschedError: an extension's findings on its options.
        """
        made = [row.costs.load()(loaded, self) for row in counting(CostModel, self)]
        own = next((costs for costs in made if isinstance(costs, Costs)), loaded.own_costs)
        return own if self.costs is None else self.costs.over(own)


class Examination(Record):
    """A loaded schedule with its options: all derived facts, and the verdict."""

    loaded: Loaded
    options: Options

    @cached_property
    def analysis(self) -> Analysis:
        """Everything that follows from the schedule and its program.

        Raises:
            PipeschedError: PS222, PS225: an option does not fit the schedule.
        """
        model, _ = parse_model(self.options.comm or self.loaded.comm or str(STRICT)), self.caps
        try:
            if (asked := self.options.costs) and asked.given:
                size = self.loaded.schedule.stages, self.loaded.schedule.microbatches
                asked.require_fit(*size)
                asked.held(*size)
        except PipeschedError as error:  # the command line is at fault, not the file
            raise of_the_caller(error) from None
        costs = self.options.counted(self.loaded)
        return Analysis(self.loaded.schedule, costs, self.options.release, model, owned=self.options.owned)

    @cached_property
    def caps(self) -> tuple[Fraction, ...] | None:
        """The cap on the activations of each rank.

        Raises:
            PipeschedError: PS225: a cap is negative or, without a model, in bytes; or there is not one per rank.
        """
        return caps_by_rank(self.options.mem_cap, self.loaded.schedule.ranks)

    def having(self, program: Program | None, torch_version: TorchVersion | None) -> Examination:
        """Return the examination with another program, for a version of torch or for another runtime."""
        loaded = replace(
            self.loaded, schedule=self.loaded.schedule.with_program(program), torch=torch_version is not None, owned=()
        )
        made = Examination(loaded, replace(self.options, torch_version=torch_version))
        if "analysis" in self.__dict__:
            made.__dict__["analysis"] = self.analysis.having(program)
        return made

    @cached_property
    def report(self) -> Report:
        """The verdict. Unsuitable options become findings; nothing is raised."""
        try:
            return self._report()
        except PipeschedError as error:
            loaded = self.loaded
            return Report(loaded.schedule.name, loaded.source, loaded.sizes, diagnostics=error.diagnostics)

    def _report(self) -> Report:
        made, loaded = self.analysis, self.loaded
        schedule = made.schedule
        inside, rows = schedule.steps is not None, counting(Measure, self.judged)
        measured = (row.part.load()(self) for row in rows if inside or not row.inside)
        more = tuple(part for part in measured if isinstance(part, Part))
        found, sound = checks.findings(self.judged)
        communication, messages = self._communication()
        stated = loaded.unit.checked.claims if loaded.unit else ()
        claims = self.claims if sound and made.finished else [Verdict(x, None, "the order is wrong") for x in stated]
        found += _failed(claims)
        made.forget("program")  # the lowering is for the checks; pictures and tables need only the order
        return Report(
            schedule.name,
            loaded.source,
            loaded.sizes,
            Parts(
                schedule.ranks,
                schedule.stages,
                schedule.microbatches,
                len(schedule),
                schedule.slots,
                messages=messages,
                communication=communication,
                memory=_memory(made, self.caps, more),
                time=_time(made, loaded.unit.remarks if loaded.unit else ()),
                more=more,
            ),
            tuple(found),
            claims=tuple([Claim(v.claim.text, v.holds, v.detail) for v in claims]),
            subject=self._subject(),
            forward_only=schedule.forward_only and len(schedule) > 0,
            frozen=schedule.placement.frozen,
            title=schedule.title,
            notes=loaded.notes,
        )

    @property
    def judged(self) -> checks.Subject:
        """The subject of the checks: the analysis, the caps and the torch version."""
        loaded, options = self.loaded, self.options
        explicit = (options.torch_version or loaded.torch_version) is not None
        return checks.Subject(
            self.analysis,
            self.caps or (),
            for_torch=loaded.torch or explicit,
            torch=options.torch_version or loaded.torch_version or DEFAULT,
            explicit=explicit,
            written=loaded.unit is None and loaded.program is None,
            owned=(*options.owned, *loaded.owned),
        )

    def _communication(self) -> tuple[Communication | None, int | None]:
        """Return the verdict on the messages, and the number of messages."""
        made = self.analysis
        verdict, model = made.verdicts, made.model
        if verdict is None:
            every = dict.fromkeys([STRICT, UNBOUNDED, ONE_STREAM, PAIR_STREAM, ASYNC, model])
            return (None if made.finished else Communication(str(model), (), tuple(map(str, every)), None)), None
        holds, fails = (tuple(map(str, models)) for models in (verdict.holds, verdict.fails))
        queued = made.queued if self.options.comm is not None else None
        return Communication(str(model), holds, fails, verdict.capacity, queued), made.messages

    def _subject(self) -> Analysis:
        """Return the analysis that a notebook draws from, with its program only if the program deadlocks."""
        made = self.analysis
        stopped = made.verdicts is not None and made.model not in made.verdicts.holds
        schedule = made.schedule if stopped or made.own is None else made.schedule.with_program(None)
        return Analysis(schedule, made.costs, made.release, made.model, owned=made.owned)

    @cached_property
    def claims(self) -> Sequence[Verdict]:
        """The verdict on each claim of a correct order."""
        unit = self.loaded.unit
        return [] if unit is None else judge_all(unit.checked.claims, self.analysis, unit.names)


def _failed(claims: Sequence[Verdict]) -> Iterator[Diagnostic]:
    for verdict in claims:
        if verdict.error is not None:
            yield verdict.error
        if verdict.holds is False:
            label = Label(verdict.claim.node.span, "false at this size")
            help = "correct the formula, or restrict it with `when`"
            message = f"claim {verdict.claim.text} does not hold: {verdict.detail}"
            yield Diagnostic(Code.CLAIM, message, (label,), (), help)


def _time(made: Analysis, remarks: tuple[str, ...]) -> Time | None:
    spent, costs, used = made.idle, made.costs, made.costs_used
    if spent is None:
        return None
    if used not in costs.said:  # schedules of a sweep share their costs
        costs.said[used] = costs.to_json(), costs.assumed_of(used), made.remarks, made.rests_on, (*costs.doubts(used),)
    given, assumed, said, rests_on, doubts = costs.said[used]
    times = spent.makespan, spent.spans, spent.work
    said, doubts = (*said, *remarks), (*doubts, *remarks)
    return Time(*times, {**given}, {**assumed}, said, rests_on, doubts=doubts, unit=costs.unit)


def _memory(made: Analysis, caps: tuple[Fraction, ...] | None, more: Iterable[Part]) -> Memory:
    hands, notes = made.buffers, tuple(_memory_notes(made, more))
    received, unsent = (hands.received.most, hands.unsent.most) if hands is not None else (None, None)
    return Memory(
        made.release.name, UNIT, made.memory.peak, caps, notes, received=received, unsent=unsent, host=made.memory.host
    )


def _memory_notes(made: Analysis, more: Iterable[Part]) -> Iterator[str]:
    schedule = made.schedule
    if schedule.placement.bidirectional:
        held: dict[int, list[int]] = {}
        for stage in range(schedule.stages):
            held.setdefault(len(schedule.placement.copies(stage)), []).append(stage)
        several = [
            f"{copies} copies of " + (f"stage{'s'[: len(of) > 1]} {ranges(of)}" if len(held) > 1 else "every stage")
            for copies, of in sorted(held.items(), reverse=True)
            if copies > 1
        ]
        frozen = {*held[max(held)]} <= {*schedule.placement.frozen}
        what = "frozen parameters" if frozen else "parameters and their gradients"
        yield f"{', '.join(several)}: {what} take {max(held)} times as much"
    if schedule.has(MAKERS[Result.RECOMPUTED]):
        kept, given = made.costs.scalar("K"), "K" in made.costs.given
        assumed = "" if given else "".join(f" here; {part.kept}" for part in more if part.kept) or ", which is assumed"
        much = "its stage's value" if kept is None else shown(kept)
        yield f"a recomputed F keeps K = {much} until its R{assumed}"
