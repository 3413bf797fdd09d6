"""A schedule that is printed as a .ps file has the same operations in the same order; the file is canonical and
short."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.__main__ import main
from pipesched.compile import Options, load
from pipesched.diagnostics import Code, PipeschedError
from pipesched.lift import writer
from pipesched.model.costs import Costs
from pipesched.model.ops import Compute, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source
from tests.depth import deep, some
from tests.makers.placements import linear
from tests.makers.ps_texts import laws, read, tokens, written
from tests.makers.strategies import SEEDS, broken_schedule, random_schedule

ORDERS = sorted((Path(__file__).parents[1] / "orders").glob("*.txt"))
CSVS = sorted((Path(__file__).parents[1] / "torch_fixtures").glob("*.csv"))
SIZES = {
    "gpipe": [{"p": p, "m": m} for p in (1, 2, 3, 8) for m in (1, 2, 7)],
    "1f1b": [{"p": p, "m": m} for p in (1, 2, 3, 4, 8) for m in (1, 3, 8, 20)],
    "zb_h1": [{"p": p, "m": m} for p in (1, 2, 3, 4, 8) for m in (1, 3, 8, 20)],
    "zb_h2": [{"p": p, "m": m} for p in (1, 2, 4, 8) for m in (15, 16, 33)],
    "interleaved": [{"p": p, "v": v, "m": p * g} for p in (1, 2, 4) for v in (1, 2, 3) for g in (1, 2, 5)],
    "zb_v": [{"p": p, "m": m} for p in (1, 2, 3, 4, 8) for m in (1, 5, 16, 24)],
    "dualpipev": [{"p": p, "m": m} for p in (1, 2, 4, 8) for m in (16, 20)],
    "dualpipe": [{"p": p, "m": m} for p in (2, 4, 8) for m in (16, 20)],
}


@pytest.mark.parametrize("name", SIZES)
def test_built_in_schedules_are_read_back(name: str) -> None:
    """evaluate(write(s)) is s for the published schedules at many sizes."""
    for sizes in some(SIZES[name], 1, usual=3):
        schedule = pipesched.load(name, **sizes)
        laws(schedule, writer.write(schedule))


@pytest.mark.parametrize("path", ORDERS, ids=lambda path: path.stem)
def test_recorded_orders_are_read_back(path: Path) -> None:
    """The orders recorded from the authors' own code are read back."""
    loaded = load(Source(path.name, path.read_text("utf-8")), Options({}))
    laws(loaded.schedule, writer.write(loaded.schedule, name=path.stem))


@pytest.mark.parametrize("path", CSVS, ids=lambda path: path.stem)
def test_orders_of_torch_are_read_back(path: Path) -> None:
    """torch's files, right and wrong ones, unless they cannot be read or expressed."""
    try:
        schedule = load(Source(path.name, path.read_text("utf-8")), Options({})).schedule
    except PipeschedError:
        return
    text = written(schedule)
    if isinstance(text, str):
        laws(schedule, text)
    else:
        assert text == [Code.TARGET] and not path.stem.startswith("ok_")


def sayable(schedule: Schedule) -> bool:
    """Return True if the last rank holds a stage, where the placement of a file ends."""
    return int(schedule.placement.rank_of.max()) == schedule.ranks - 1


@settings(max_examples=deep(37, usual=19), deadline=None)
@given(SEEDS)
def test_random_schedules_are_read_back(seed: int) -> None:
    """Random schedules have any placement, routes that take turns, overlap pairs, and W in any order."""
    schedule = random_schedule(seed, ranks=5, microbatches=6)
    text = written(schedule)
    if isinstance(text, str):
        laws(schedule, text)
    assert (text == [Code.TARGET]) == (not sayable(schedule))


@settings(max_examples=deep(37, usual=19), deadline=None)
@given(SEEDS)
@example(33)
def test_what_cannot_be_said_is_refused(seed: int) -> None:
    """A broken schedule reads back unchanged, or is refused with PS814.

    33 has an I twice, whose W is then the oldest twice.
    """
    schedule = broken_schedule(seed)
    text = written(schedule)
    if isinstance(text, str):
        laws(schedule, text)
    else:
        assert text == [Code.TARGET]


@settings(max_examples=deep(25, usual=13), deadline=None)
@given(SEEDS, st.integers(1, 3), st.integers(1, 9))
def test_periodic_orders_are_read_back(seed: int, chunks: int, times: int) -> None:
    """Orders of repeated pieces, which fold, are read back, with the W of a rank last in, first out, or in order."""
    rng = random.Random(seed)
    piece = [rng.randrange(chunks) for _ in range(rng.randint(1, 6))]
    order: list[Compute] = []
    of_chunk = [piece.count(c) * times for c in range(chunks)]
    m = max(1, *of_chunk)
    done = [0] * chunks
    for c in piece * times:
        order += [Compute(op, c, done[c]) for op in (Op.F, Op.I)]
        done[c] += 1
    weights = [Compute(Op.W, x.stage, x.microbatch) for x in order if x.op is Op.I]
    order += weights if rng.random() < 0.5 else weights[::-1]
    placement = Placement(np.zeros((1, chunks), dtype=np.int32), np.zeros(m, dtype=np.int32), 1, ("",))
    schedule = Schedule.from_orders([order], placement, "periodic")
    laws(schedule, writer.write(schedule))


FEW = {"gpipe": 18, "1f1b": 32, "zb_h1": 45, "zb_h2": 50}


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize(("p", "m"), [(8, 16), (16, 40), (32, 64)])
def test_regular_schedules_are_one_block(name: str, p: int, m: int) -> None:
    """Ranks that differ only in counts share one program, as short as a person would write it, at any size."""
    text = writer.write(pipesched.load(name, p=p, m=m))
    assert text.count("\nrank ") == 1
    assert tokens(text) <= FEW[name]


def test_costs_name_and_documentation() -> None:
    """Costs read back as given, unit costs are omitted, and any name and text become legal ones."""
    schedule = pipesched.load("zb_h1", p=8, m=8)
    listed = tuple(Fraction(10**6 + i, 7) for i in range(8))
    costs = Costs({"F": listed, "I": Fraction(25, 2), "W": Fraction(1), "B": listed, "C": Fraction(1, 3)})
    text = writer.write(
        schedule,
        name="3 rep-eats/é.csv",
        documentation='says "so"\n\ton two lines',
        costs=costs,
        claims=["makespan >= 1", "peak(0) == 8 when m >= 8"],
    )
    laws(schedule, text)
    unit = read(text)
    assert unit.costs == costs
    assert unit.schedule.name == "schedule_3_rep_eats_csv"
    assert [claim.text for claim in unit.checked.claims] == ["makespan >= 1", "peak(0) == 8 when m >= 8"]
    assert unit.checked.file.documentation == "says 'so'\non two lines"
    assert "costs" not in writer.write(schedule, costs=Costs({"F": Fraction(1), "B": Fraction(2), "C": Fraction(0)}))
    for few in ({"F": 10, "B": 20}, {"I": 3, "B": 4}, {"W": 0}, {"F": 1, "W": 2}, {"F": 1, "I": 1, "W": 1, "B": 1}):
        given = Costs({key: Fraction(cost) for key, cost in few.items()})
        assert read(writer.write(schedule, costs=given)).costs == given
    assert read(writer.write(schedule, name="repeat")).schedule.name == "schedule_repeat"


@pytest.mark.parametrize(
    ("ranks_of", "line"),
    [
        ([0, 1, 2], "stage s in 0 .. p on rank s"),
        ([2, 1, 0], "stage s in 0 .. p on rank p - 1 - s"),
        ([0, 1, 2, 0, 1, 2], "stage s in 0 .. p * v on rank s % p"),
        ([0, 1, 2, 2, 1, 0], "stage s in 0 .. 2 * p on rank min(s, 2 * p - 1 - s)"),
        ([0, 0, 1, 2, 1], "stage s in 0 .. 2 on rank 0\nstage s in 2 .. 4 on rank s - 1\nstage 4 on rank 1"),
    ],
)
def test_placements(ranks_of: list[int], line: str) -> None:
    """The placements of the literature become formulas; others become runs of stages."""
    stages = len(ranks_of)
    orders = [[Compute(Op.F, s, 0) for s in range(stages) if ranks_of[s] == r] for r in range(3)]
    placement = Placement(np.array([ranks_of], dtype=np.int32), np.zeros(1, dtype=np.int32), 3, ("",))
    schedule = Schedule.from_orders(orders, placement)
    text = writer.write(schedule)
    laws(schedule, text)
    assert f"\n{line}\n" in text


def test_irregular_ranks_stand_beside_the_general_program() -> None:
    """An irregular rank has its own program, the others keep the one that they share."""
    orders = [pipesched.load("1f1b", p=8, m=8).order(r) for r in range(8)]
    orders[3] = [x for i in range(8) for x in (Compute(Op.F, 3, 7 - i), Compute(Op.B, 3, 7 - i))]
    schedule = Schedule.from_orders(orders, linear(8, 8), "odd")
    text = writer.write(schedule)
    laws(schedule, text)
    assert text.count("\nrank ") == 2
    assert "rank 3 {" in text and "if r < 3 {" in text
    two = writer.write(pipesched.load("1f1b", p=2, m=8))
    assert "rank 0 {" in two and "rank 1 {" in two


def test_order_writes_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """``pipesched emit FILE --target ps`` writes the order and the costs of FILE; messages are omitted."""
    csv = tmp_path / "my order.csv"
    csv.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    assert main(["emit", str(csv), "-o", str(tmp_path / "mine.ps")]) == 0
    text = (tmp_path / "mine.ps").read_text()
    assert text.startswith('schedule my_order(p = 2, m = 2)\n"The order of my order.csv"\n')
    for file in (csv, tmp_path / "mine.ps"):
        assert main(["emit", str(file), "--target", "order"]) == 0
    first, again = capsys.readouterr().out.split("rank 0")[1:]
    assert first == again and "B0.0" in first
    assert main(["emit", str(csv), "--target", "ps", "--per-rank", str(tmp_path / "ranks")]) == 2
    assert "the programs of all ranks" in capsys.readouterr().err and not (tmp_path / "ranks").exists()
    (tmp_path / "c.ps").write_text('schedule c(p, m) "told" stage s in 0 .. p on rank s costs F = 2 rank r { F(1) F }')
    assert main(["emit", str(tmp_path / "c.ps"), "--p", "1", "--m", "2", "--target", "ps"]) == 0
    out = capsys.readouterr().out
    assert "costs F = 2\n" in out and '"told"\n' in out and "F(1)  F\n" in out


def test_microbatches_named_in_steps_are_a_loop() -> None:
    """Backwards last in, first out become a loop over i, and so does any part of an order in even steps."""
    last_first = [
        [*(Compute(Op.F, r, i) for i in range(8)), *(Compute(Op.B, r, 7 - i) for i in range(8))] for r in range(3)
    ]
    schedule = Schedule.from_orders(last_first, linear(3, 8), "last_first")
    text = writer.write(schedule)
    laws(schedule, text)
    assert "rank r {\n  repeat 8        { F }\n  for i in 0 .. 8 { B(7 - i) }\n}" in text
    evens = [Compute(Op.F, 0, i) for i in (4, 6, 8, 10, 0, 1, 2, 3, 5, 7, 9, 11)]
    mixed = [x for i in range(12) for x in (Compute(Op.I, 0, i), Compute(Op.W, 0, i))]
    mixed[1::2] = [Compute(Op.W, 0, 11 - i) for i in range(12)]
    schedule = Schedule.from_orders([evens + mixed], linear(1, 12), "steps")
    text = writer.write(schedule)
    laws(schedule, text)
    assert (
        "for i in 0 .. 4  { F(2 * i + 4) }\n  repeat 8         { F }\n" in text
        and "for i in 0 .. 12 { I  W(11 - i) }" in text
    )


@pytest.mark.parametrize(
    "microbatches",
    [
        {"F": [*range(16)], "I": [*range(16)], "nested W": [*reversed(range(16))]},
        {"F": [3, 2, 1, 0, 3, 2, 1, 0], "I": [3, 2, 1, 0, 4, 5, 6, 7, 4, 5, 6, 7]},
        {"F": [2, 2, 2, 2, 2], "I": [0, 1, 2, 3], "W": [0, 1]},
        {"F": [7, 5, 3, 1, 6, 4, 2, 0], "I": [0, 3, 6, 1, 4, 7, 2, 5], "W": [0, 1, 4, 3, 2, 5, 6, 7]},
    ],
)
def test_strange_orders_are_read_back(microbatches: dict[str, list[int]]) -> None:
    """Series within loops, series twice, a repeated microbatch, leftover W: all are written exactly."""
    order = [Compute(Op[kind], 0, i) for kind, of_kind in microbatches.items() if " " not in kind for i in of_kind]
    nested = [Compute(Op.W, 0, i) for i in microbatches.get("nested W", [])]
    for at in range(0, len(nested), 4):
        order += [Compute(Op.F, 0, at), *nested[at : at + 4]]
    schedule = Schedule.from_orders([order], linear(1, 16), "strange")
    laws(schedule, writer.write(schedule))


def test_same_bytes() -> None:
    """A schedule has the same text, whatever was written before."""
    schedule = pipesched.load("interleaved", p=4, v=2, m=8)
    assert len({writer.write(schedule) for _ in range(3)}) == 1
