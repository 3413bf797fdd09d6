"""torch's schedule classes by name, as trainers take them, with the p, v and m that each requires.

    name                     stages of a rank    microbatches
    1F1B                     1                   as many as stages, since 2.11
    GPipe                    1                   any
    Interleaved1F1B          2 and more          a multiple of the rounds, m // p
    LoopedBFS                2 and more          any
    InterleavedZeroBubble    2 and more          a multiple of the rounds            backward in I and W
    ZBVZeroBubble            2, on a V           any                                 backward in I and W
    DualPipeV                2, on a V           as many as stages                   backward in I and W

Source: torch 2.10 to 2.15, torch/distributed/pipelining/schedules.py: `get_schedule_class`, which takes a name in any
case, and the constructors.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers.case import Case, Fact, Findings, Plan, wrong
from pipesched.interop.trainers.settings import Setting
from pipesched.library.aliases import known_as

_FILE = "torch/distributed/pipelining/schedules.py"
_PRIVATE = "_pipelinescheduleruntime"


@dataclass(frozen=True)
class TorchName:
    """A schedule class by its name in torch's map. order: the library's schedule with exactly the same operations.

    single: one stage per rank. vee: two stages per rank, on a V. rounds: m must be a multiple of m // p. split: the
    backward runs as I and W. abstract: the class has no order of its own.
    """

    name: str
    order: str | None = None
    single: bool = False
    vee: bool = False
    rounds: bool = False
    split: bool = False
    abstract: bool = False


NAMES = {
    row.name.lower(): row
    for row in (
        TorchName("1F1B", "1f1b", single=True),
        TorchName("GPipe", "gpipe", single=True),
        TorchName("Interleaved1F1B", "interleaved", rounds=True),
        TorchName("LoopedBFS"),
        TorchName("InterleavedZeroBubble", rounds=True, split=True),
        TorchName("ZBVZeroBubble", "zb_v", vee=True, split=True),
        TorchName("DualPipeV", "dualpipev", vee=True, split=True),
        TorchName("PipelineScheduleSingle", single=True, abstract=True),
        TorchName("PipelineScheduleMulti", abstract=True),
    )
}


def torch_name(name: str | None) -> TorchName | None:
    """Row of a name, in upper or lower case as torch takes it; None if torch has no such class."""
    return NAMES.get((name or "").lower())


def judge_name(case: Case, setting: Setting, csv: Setting | None) -> Findings:
    """Check that torch knows the schedule's name, and that the class has an order of its own or a CSV."""
    if not isinstance(setting.value, str):
        return
    source = f"torch {case.torch}, {_FILE}: get_schedule_class"
    row = torch_name(setting.value)
    if row is None:
        message = f"torch {case.torch} has no schedule {setting.value[:60]!r}"
        yield wrong(InteropCode.CONFIG_SCHEDULE, message, source, setting, help=_meant(setting.value))
    elif row.abstract and csv is None:
        message = f"{row.name} has no order of its own: it wants a CSV"
        yield wrong(InteropCode.CONFIG_COMBINATION, message, source, setting, help="name a schedule, or give the CSV")
    else:
        yield Fact("schedule", f"torch {case.torch} has {row.name}" + (", whose order the CSV replaces" * bool(csv)))


def _meant(name: str) -> str:
    """Help that names the class that was probably meant, by its letters or by the library's name for it."""
    if name.lower() == _PRIVATE:
        return "the map has no _PipelineScheduleRuntime: write PipelineScheduleMulti, a CSV is run by that class anyway"
    own = known_as(name)
    known = {row.name: row for row in NAMES.values()}
    letters = name.lower().replace("_", "").replace("-", "").removeprefix("schedule")
    near = [row.name for row in known.values() if row.name.lower() == letters or (own and row.order == own)]
    near = near or get_close_matches(name, known, 1, 0.6)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def judge_chunks(
    row: TorchName, stages: int, ranks: int, said: str, source: str, *places: Setting, name: tuple[Setting, ...] = ()
) -> Findings:
    """Check that the stages divide evenly over the ranks, as many per rank as the class requires.

    said: text on the stages, for the message. name: settings of the schedule's name.
    """
    if stages % ranks:
        yield wrong(InteropCode.CONFIG_STAGES, f"{said} do not go onto {ranks} ranks in equal numbers", source, *places)
        return
    v = stages // ranks
    if (row.single and v != 1) or (row.vee and v != 2) or (not row.single and v < 2):
        wanted = "1 stage" if row.single else "2 stages" if row.vee else "at least 2 stages"
        message = f"{said}, {v} of each rank: {row.name} wants {wanted} of each"
        yield wrong(InteropCode.CONFIG_STAGES, message, source, *places, *name)


def judge_sizes(case: Case, plan: Plan, schedule: Setting, counts: tuple[Setting, ...]) -> Findings:
    """Check that m fits p and v as the class's constructor requires; with a CSV nothing is checked here."""
    row, m, p, stages = torch_name(plan.name), plan.microbatches, plan.ranks, plan.stages
    if row is None or plan.csv is not None or m is None or p is None:
        return
    source = f"torch {case.torch}, {_FILE}: Schedule{row.name}"
    rounds = max(1, m // p)
    if row.rounds and m % rounds:
        near = f"{m - m % rounds} or {m - m % rounds + rounds}"
        yield wrong(
            InteropCode.CONFIG_BATCH,
            f"{m} microbatches do not run in {rounds} equal rounds, of which {row.name} makes m // p = {m} // {p}",
            source,
            schedule,
            *counts,
            help=f"a multiple of p={p}, or {near} microbatches",
        )
    many = row.name == "DualPipeV" or (row.name == "1F1B" and case.torch.number >= (2, 11))
    if stages is not None and many and m < stages:
        message = f"{m} microbatch{'es' * (m > 1)} for {stages} stages: {row.name} wants as many as stages"
        yield wrong(InteropCode.CONFIG_BATCH, message, source, schedule, *counts)
