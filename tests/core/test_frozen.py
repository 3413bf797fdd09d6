"""With frozen stages and recomputation, unneeded operations are omitted and forwards run again; results, times and
memory are right, and impossible uses are refused.
"""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from pipesched.check.rows import CheckCode
from pipesched.compile import examine, load
from pipesched.diagnostics import Code, PipeschedError
from pipesched.examine import Options
from pipesched.interop.codes import InteropCode
from pipesched.library.assets import asset
from pipesched.lift.writer import write
from pipesched.model.columns import among
from pipesched.model.costs import Costs
from pipesched.model.ops import Op
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source
from pipesched.verbs.emit import emit
from pipesched.verbs.verify import verify
from tests.depth import deep
from tests.makers.ps_programs import Written, program
from tests.oracles import frozen as oracle

RELEASES = {"W": Fraction(0), "I": Fraction(1), "split:1/4": Fraction(3, 4), "torch": Fraction(-3, 5)}


def frozen_of(rng: random.Random, made: Written) -> list[int]:
    """Choose some stages, usually the first ones, but not all."""
    stages = made.stages
    if made.named:
        return []
    if rng.random() < 0.5:
        return list(range(rng.randint(0, stages - 1)))
    return sorted(rng.sample(range(stages), rng.randint(0, stages - 1)))


def lines(stages: list[int]) -> list[str]:
    return [f"frozen {stage}" for stage in stages]


def slots(order: list[tuple[str, int, int, bool]]) -> list[oracle.Slot]:
    made: list[oracle.Slot] = []
    for letter, stage, microbatch, second in order:
        step = (letter, stage, microbatch)
        made = [*made[:-1], (*made[-1], step)] if second else [*made, (step,)]
    return made


def analysed(made: Written, text: str, costs: Costs, release: str) -> Analysis:
    unit = load(Source("random.ps", text), Options({"p": made.ranks, "m": made.microbatches}))
    schedule = unit.schedule
    found = Analysis(schedule, costs, Release.parse(release))
    orders = [
        slots([(x.op.name, x.stage, x.microbatch, x.second) for x in schedule.order(r)]) for r in range(schedule.ranks)
    ]
    assert orders == [oracle.left_of(of, schedule.placement.frozen) for of in made.slots]
    return found


def some_costs(rng: random.Random, stages: int) -> dict[str, tuple[Fraction, ...]]:
    keys = ["F", "I", "W", "B", "R", "O", "L", "C", "M", *(["FB"] if rng.random() < 0.5 else [])]
    cost = {key: tuple(Fraction(rng.randint(0, 12), rng.choice((1, 2, 3))) for _ in range(stages)) for key in keys}
    return cost | {"K": tuple(x * Fraction(rng.randint(0, 4), 4) for x in cost["M"])}


@pytest.mark.parametrize(("recompute", "offload"), [(0, 0), (0.5, 0), (1, 0), (0, 1), (0, 0.5), (0.4, 0.8)])
@pytest.mark.parametrize("block", range(2))
def test_time_and_memory_are_those_of_what_is_left(block: int, recompute: float, offload: float) -> None:
    """Random programs: the order is the whole one without unneeded operations; instants, work, messages and peaks, of
    the device and of host memory, are those of the simulation.
    """
    many = deep(8 if offload else 14)
    for seed in range(block * many, (block + 1) * many):
        made, rng = program(seed, recompute=recompute, offload=offload), random.Random(seed)
        frozen = frozen_of(rng, made)
        cost, release = some_costs(rng, made.stages), rng.choice(sorted(RELEASES))
        found = analysed(made, made.text(*lines(frozen)), Costs(cost), release)
        orders = [oracle.left_of(of, frozen) for of in made.slots]
        home = {(s, i): made.home(s, i) for s in range(made.stages) for i in range(made.microbatches)}
        played = oracle.play(orders, home, made.stages, cost)
        schedule, times = found.schedule, found.timeline
        assert found.makespan == played.makespan
        for i in range(len(schedule)):
            x = schedule[i]
            ends = played.times[x.op.name, x.stage, x.microbatch]
            assert (found.time(times.start[i]), found.time(times.end[i])) == ends
        if (copies := times.copies) is not None:
            ends = zip(copies.op.tolist(), copies.end.tolist(), strict=True)
            over = {
                (x.op.name, x.stage, x.microbatch): found.time(end) for x, end in ((schedule[i], e) for i, e in ends)
            }
            assert over == played.copied
        assert found.idle is not None and found.program is not None
        assert list(found.idle.work) == [sum((oracle.length(x, cost) for x in of), Fraction(0)) for of in orders]
        unit = Fraction(made.ranks, made.stages)
        held = [unit * oracle.peak(of, frozen, RELEASES[release], cost["M"], cost["K"]) for of in orders]
        assert list(found.memory.peak) == held
        away = [unit * oracle.host(of, cost["M"]) for of in orders]
        assert list(found.memory.host or [0] * made.ranks) == away
        assert found.program.messages == len(played.messages)


def test_a_gradient_passes_several_frozen_stages() -> None:
    """Stage 0 is trained, so each frozen stage behind it passes the gradient on, also if the one before is frozen."""
    text = "schedule t(p, m)\nstage s in 0 .. p on rank s\nfrozen s in 1 .. 3\nrank r { repeat m { F  I  W } }\n"
    schedule = load(Source("t.ps", text), Options({"p": 4, "m": 1})).schedule
    assert ["".join(x.op.name for x in schedule.order(r)) for r in range(4)] == ["FIW", "FI", "FI", "FIW"]


def test_a_bare_step_is_of_the_trained_stages() -> None:
    """At the end of each list it is the implied one; only a STEP of a frozen stage would be a statement of its own."""
    text = "schedule t(p, m)\nstage s in 0 .. p on rank s\nfrozen 0\nrank r { repeat m { F  I  W }  STEP }\n"
    assert load(Source("t.ps", text), Options({"p": 2, "m": 2})).schedule.steps is None


@pytest.mark.parametrize("release", RELEASES)
def test_a_frozen_stage_frees_all_at_its_i(release: str) -> None:
    """1F1B of three ranks: the frozen middle stage holds two activations, as at B, whatever share I frees elsewhere."""
    text = asset("schedules", "1f1b.ps").read_text("utf-8").partition("claim")[0] + "frozen 1\n"
    report = verify(Source("mine.ps", text), Options({"p": 3, "m": 6}, release=Release.parse(release)))
    assert report.ok and report.memory.peak[1] == 2


def test_what_is_left_passes_every_check_and_reduces_what_is_trained() -> None:
    """There is no finding; every trained stage has REDUCE_GRAD, stages on two ranks have SYNC, and frozen stages have
    neither."""
    for seed in range(deep(30)):
        made, rng = program(seed, recompute=seed % 3 / 2, offload=seed % 4 / 3), random.Random(seed)
        frozen = frozen_of(rng, made)
        source = Source("random.ps", made.text(*lines(frozen)))
        checked = examine(load(source, Options({"p": made.ranks, "m": made.microbatches})), Options())
        assert not [x for x in checked.report.diagnostics if x.severity == "error"]
        program_ = checked.analysis.program
        assert program_ is not None
        reduced = among(program_.op, [Op.REDUCE_GRAD])
        trained = [s for s in range(made.stages) if s not in frozen]
        homes = {(s, made.home(s, i)) for s in trained for i in range(made.microbatches)}
        found = list(zip(program_.stage[reduced].tolist(), program_.rank[reduced].tolist(), strict=True))
        assert sorted(found) == sorted(homes)
        synced = among(program_.op, [Op.SYNC])
        copies = {(s, row[s]) for s in trained for row in made.homes if len({of[s] for of in made.homes}) == 2}
        assert set(zip(program_.stage[synced].tolist(), program_.rank[synced].tolist(), strict=True)) == copies


def test_live_is_what_is_held() -> None:
    """The live activations of an operation add up to the held memory."""
    for seed in range(deep(15)):
        made, rng = program(seed, recompute=seed % 3 / 2, offload=seed % 4 / 3), random.Random(seed)
        text = made.text(*lines(frozen_of(rng, made)))
        found = analysed(made, text, Costs(), "W").memory
        unit = Fraction(made.ranks, made.stages)
        for i in range(len(found.schedule)):
            paired = bool(found.schedule.paired[i])
            assert paired or found.at(i) == unit * len(found.live(i))


def test_what_is_printed_says_the_same() -> None:
    """A schedule with frozen stages, written as a file, evaluates to itself."""
    for seed in range(deep(20)):
        made, rng = program(seed, recompute=seed % 3 / 2, offload=seed % 4 / 3), random.Random(seed)
        text = made.text(*lines(frozen_of(rng, made)))
        sizes = Options({"p": made.ranks, "m": made.microbatches})
        schedule = load(Source("random.ps", text), sizes).schedule
        again = load(Source("again.ps", write(schedule)), Options()).schedule
        assert again.placement.frozen == schedule.placement.frozen
        for name in ("op", "stage", "microbatch", "second", "start"):
            assert np.array_equal(getattr(again, name), getattr(schedule, name))


def _split_behind(schedule: Schedule) -> bool:
    """Return True if the first trained stage behind others runs an I."""
    frozen = schedule.placement.frozen
    first = next(s for s in range(schedule.stages) if s not in frozen)
    return first > 0 and bool(((schedule.op == Op.I) & (schedule.stage == first)).any())


def test_a_torch_csv_has_a_backward_of_every_stage_and_is_read_as_what_runs() -> None:
    """The written file has F and B, or I and W, of every stage and microbatch, in an order that finishes; read with its
    frozen stages it is the original order.
    """
    written = 0
    for seed in range(deep(37)):
        made, rng = program(seed), random.Random(seed)
        if len(made.homes) == 2:
            continue
        frozen = frozen_of(rng, made)
        source, sizes = Source("x.ps", made.text(*lines(frozen))), Options({"p": made.ranks, "m": made.microbatches})
        schedule = load(source, sizes).schedule
        emission = emit(source, sizes, "torch-csv")
        codes = {x.code for x in emission.report.diagnostics if x.severity == "error"}
        if _split_behind(schedule):
            assert InteropCode.TORCH_FROZEN in codes
        elif emission.order is not None:
            text = "".join(emission.pieces())
            whole = examine(load(Source("x.csv", text), Options()), Options()).report
            assert not [x for x in whole.diagnostics if x.severity == "error"]
            again = load(Source("x.csv", text), Options(frozen=tuple(frozen))).schedule
            for name in ("op", "stage", "microbatch", "second", "start"):
                assert np.array_equal(getattr(again, name), getattr(schedule, name)), text
            written += 1
        else:  # the last stage's forwards, a rank without a stage
            assert codes <= {InteropCode.TORCH_LAST_STAGE, Code.TARGET}
    assert written > deep(15)


@pytest.mark.parametrize(
    ("name", "text", "frozen", "code"),
    [
        ("x.csv", "0F0,0B0\n1F0,1B0\n", (0,), None),
        ("x.csv", "0F0,0I0,0W0\n1F0,1B0\n", (0,), CheckCode.FROZEN),
        ("x.csv", "0F0,0B0\n1F0,1I0,1W0\n", (0,), InteropCode.TORCH_FROZEN),
        ("x.csv", "0F0,0B0\n1F0,1B0\n", (2,), Code.FILE_DISAGREES),
        ("x.csv", "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", (0,), Code.USAGE),
        ("x.ps", "schedule f(p, m) stage 0 on rank 0 rank 0 { F B }", (0,), Code.USAGE),
        ("x.json", asset("emit", "v2", "frozen_p3_m2.json").read_text("utf-8"), (1,), Code.USAGE),
        ("x.json", asset("emit", "v2", "frozen_p3_m2.json").read_text("utf-8"), (0,), None),
        ("x.txt", "rank 0: F0.0\nrank 1: F1.0 B1.0\n", (0,), None),
        ("x.txt", "rank 0: F0.0 B0.0\nrank 1: F1.0 B1.0\n", (0,), CheckCode.FROZEN),
        ("x.txt", "rank 0: F0.0 B0.0\nrank 1: F1.0 B1.0\n", (1,), None),
        ("x.txt", "rank 0: F0.0 I0.0 W0.0\nrank 1: F1.0 I1.0 W1.0\n", (1,), CheckCode.FROZEN),
    ],
)
def test_an_order_with_frozen_stages(name: str, text: str, frozen: tuple[int, ...], code: Code | None) -> None:
    """An explicit operation is intended: an unneeded one is an error, except a B, which may be an I."""
    report = verify(Source(name, text), Options({"p": 1, "m": 1} if name == "x.ps" else {}, frozen=frozen))
    assert {x.code for x in report.diagnostics if x.severity == "error"} == (set() if code is None else {code})


HEAD = "schedule f(p = 2, m = 2)\nstage s in 0 .. 2 * p on rank s % p\n"
ALL = "rank r { repeat m { F[0] }  repeat m { F[1] }  repeat m { B[1] }  repeat m { B[0] } }\n"
WRONG = (  # lines after the placement, the programs, the code, the line of the finding, a part of its message
    ("frozen 4", ALL, "PS215", 3, "stage 4 is declared frozen, but the stages are 0 to 3"),
    ("frozen 0 - 1", ALL, "PS215", 3, "stage -1 is declared frozen"),
    ("frozen s in 3 .. 5", ALL, "PS215", 3, "stages 3 to 4 are declared frozen"),
    ("frozen s in 0 .. 1000000000000", ALL, "PS215", 3, "stages are 0 to 3"),
    ("frozen x", ALL, "PS201", 3, "unknown name `x`"),
    ("frozen p in 0 .. 1", ALL, "PS202", 3, "`p` is already defined"),
    ("frozen s in 0 .. x", ALL, "PS201", 3, "unknown name `x`"),
    ("frozen s in 0 .. s", ALL, "PS201", 3, "unknown name `s`"),
    ("frozen true", ALL, "PS205", 3, "expected a number, found a boolean"),
    ("frozen m / 2", ALL, "PS205", 3, "write `m // 2`"),
    ("frozen 1 // (m - 2)", ALL, "PS206", 3, "division by zero"),
    ("frozen s in 0 to 1", ALL, "PS101", 3, "expected `..` after `0`, found `to`"),
    ("frozen", ALL, "PS101", 3, "expected an expression after `frozen`"),
    ("frozen 0, 1", ALL, "PS101", 3, "found `,`"),
    ("frozen s in 0 .. 1 on rank 0", ALL, "PS101", 3, "found `on`"),
    ("frozzen s in 0 .. 1", ALL, "PS101", 3, "did you mean `frozen`?"),
    ("let frozen = 1 let frozen = 2", ALL, "PS202", 3, "`frozen` is already defined"),
    ("frozen 0", ALL.replace("B[0]", "B[0](0)"), "PS310", 4, "B0.0 runs, but stage 0 is frozen: no earlier stage"),
    ("frozen s in 0 .. 2", ALL.replace("B[0]", "I[0](1)"), "PS310", 4, "leave I0.1 out"),
    ("frozen 2", ALL.replace("B[1]", "I[1] W[1](0)"), "PS310", 4, "W2.0 runs, but stage 2 is frozen: its weights"),
    (
        "frozen 0",
        ALL.replace("B[0]", "B[0] B[0]"),
        "PS213",
        4,
        "all microbatches 0 to 1 of stage 0 already have their B",
    ),
    ("frozen 0", ALL.replace("B[0]", "W[0]"), "PS214", 4, "no W is pending"),
    ("frozen 3", ALL.replace("repeat m { B[1] }", ""), "PS301", 4, "stage 3 never runs I"),
    (
        "frozen 2",
        ALL.replace("{ B[1]", "{ if r == 1 { B[1] }"),
        "PS301",
        4,
        "stage 2 never runs I of microbatches 0, 1",
    ),
)


ONE = "rank r { F[0] F[1] %s }\n"
AGAIN = (  # likewise, of R
    ("", "rank r { R[0] repeat m { F[0] F[1] } }\n", "PS213", 4, "every F of stage 0 so far already has its R"),
    ("", ONE % "R[1] R[1]", "PS213", 4, "every F of stage 2 so far already has its R"),
    ("", ONE % "R[2]", "PS212", 4, "rank 0 holds chunks 0 to 1"),
    ("", ONE % "R", "PS217", 4, "which one is this R for?"),
    ("", ONE % "R[0](9)", "PS220", 4, "R of microbatch 9"),
    ("", "rank r { R[0](0) repeat m { F[0] F[1] } }\n", "PS305", 4, "R0.0 runs before F0.0 on rank 0, but needs it"),
    ("", ALL.replace("B[0]", "B[0] R[0]"), "PS305", 4, "B0.0 runs before R0.0"),
    ("", ALL.replace("B[0]", "R[0](0) B[0]"), "PS302", 4, "R0.0 runs twice"),
    ("", ONE % "R[0]", "PS301", 4, "stage 0 never runs B (or I and W) of microbatch 0 on rank 0"),
    ("", ONE % "overlap(F[0], R[1])", "PS218", 4, "an overlap is an F and a B, I or W, or an I and a W, not F and R"),
    ("", ONE % "overlap(R[0], B[1])", "PS218", 4, "not R and B"),
    ("", ONE % "drain R", "PS101", 4, "found `R`"),
    ("costs R = 0 - 1", ALL, "PS222", 3, "cost R is negative"),
    ("costs R = [1, 2]", ALL, "PS222", 3, "a list of 2 numbers for 4 stages"),
    ("costs K = 1, R = 1, R = 2", ALL, "PS222", 3, "cost R is given twice"),
    ("let R = 1 let R = 2", ALL, "PS202", 3, "`R` is already defined"),
    ("claim work(R) == 1", ALL, "PS201", 3, "unknown name `R`"),
    ("", "rank r { repeat m { F[0] F[1] } greedy { B[1] R[0] B[0] } }\n", "PS224", 4, "`greedy` does not support R"),
    ("frozen 0", ALL.replace("B[0]", "R[0](0) R[0](1)"), "PS310", 4, "R0.0 runs, but stage 0 is frozen"),
)


AWAY = (  # likewise, of O and L
    ("", "rank r { O[0] repeat m { F[0] F[1] } }\n", "PS213", 4, "every F of stage 0 so far already has its O"),
    ("", ONE % "O[1] O[1]", "PS213", 4, "every F of stage 2 so far already has its O"),
    ("", ONE % "O[1] L[1] L[1]", "PS213", 4, "every O of stage 2 so far already has its L"),
    ("", ONE % "L[0]", "PS213", 4, "every O of stage 0 so far already has its L"),
    ("", ONE % "O[2]", "PS212", 4, "rank 0 holds chunks 0 to 1"),
    ("", ONE % "L", "PS217", 4, "which one is this L for?"),
    ("", ONE % "O[0](9)", "PS220", 4, "O of microbatch 9"),
    (
        "",
        "rank r { O[0](0) L[0] repeat m { F[0] F[1] } }\n",
        "PS305",
        4,
        "O0.0 runs before F0.0 on rank 0, but needs it",
    ),
    ("", ALL.replace("B[0]", "B[0] O[0] L[0]"), "PS305", 4, "B0.0 runs before O0.0"),
    ("", ALL.replace("B[0]", "O[0] B[0] L[0]"), "PS305", 4, "B0.0 runs before L0.0"),
    ("", ALL.replace("B[0]", "O[0] L[0] O[0](0) B[0]"), "PS302", 4, "O0.0 runs twice"),
    ("", ALL.replace("B[0]", "O[0] L[0] L[0](0) B[0]"), "PS302", 4, "L0.0 runs twice"),
    ("", ALL.replace("B[0]", "O[0] B[0]"), "PS301", 4, "add L0.0 between it and its I or B"),
    ("", ALL.replace("B[0]", "L[0](0) B[0]"), "PS301", 4, "L0.0 runs, but O0.0 never does"),
    ("", ALL.replace("B[0]", "O[0] L[0] R[0] B[0]"), "PS311", 4, "the activation is both offloaded and recomputed"),
    ("", ONE % "O[0] L[0]", "PS301", 4, "stage 0 never runs B (or I and W) of microbatch 0 on rank 0"),
    ("", ONE % "overlap(F[0], O[1])", "PS218", 4, "an overlap is an F and a B, I or W, or an I and a W, not F and O"),
    ("", ONE % "overlap(L[0], B[1])", "PS218", 4, "not L and B"),
    ("", ONE % "drain O", "PS101", 4, "found `O`"),
    ("costs O = 0 - 1", ALL, "PS222", 3, "cost O is negative"),
    ("costs L = [1, 2]", ALL, "PS222", 3, "a list of 2 numbers for 4 stages"),
    ("let L = 1 let L = 2", ALL, "PS202", 3, "`L` is already defined"),
    ("claim host(O) == 1", ALL, "PS201", 3, "unknown name `O`"),
    ("claim host(9) == 1", ALL, "PS221", 3, "rank 9 does not exist"),
    ("", "rank r { repeat m { F[0] F[1] } greedy { B[1] O[0] B[0] } }\n", "PS224", 4, "`greedy` does not support O"),
    ("", "rank r { repeat m { F[0] F[1] } greedy { B[1] L[0] B[0] } }\n", "PS224", 4, "`greedy` does not support L"),
    ("frozen 0", ALL.replace("B[0]", "O[0](0) L[0](0)"), "PS310", 4, "O0.0 runs, but stage 0 is frozen"),
)


@pytest.mark.parametrize(("said", "programs", "code", "line", "part"), [*WRONG, *AGAIN, *AWAY])
def test_what_is_wrong_is_found_where_it_is(said: str, programs: str, code: str, line: int, part: str) -> None:
    """Each wrong use has its code, its place and its words."""
    source = Source("wrong.ps", f"{HEAD}{said}\n{programs}")
    try:
        found = list(examine(load(source, Options()), Options()).report.diagnostics)
    except PipeschedError as error:
        found = list(error.diagnostics)
    first = next((x for x in found if x.code == code and part in f"{x.message}\n{x.help}"), None)
    assert first is not None, found
    assert first.labels[0].span is not None and first.labels[0].span.line == line
