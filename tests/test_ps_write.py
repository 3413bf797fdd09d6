"""A schedule printed as a .ps file is that schedule, operation for operation, in canonical form, and short."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.__main__ import main
from pipesched.compile import Options, load
from pipesched.diagnostics import Code, PipeschedError
from pipesched.formats import ps_write
from pipesched.formats.ps_fold import LETTER, LOOP, Folder, spelled
from pipesched.language.evaluate import Unit, evaluate
from pipesched.language.parser import grammar, parse
from pipesched.language.printer import format_source
from pipesched.model.costs import Costs
from pipesched.model.ops import Compute, Op
from pipesched.model.placement import Placement, linear
from pipesched.model.schedule import Schedule
from pipesched.model.window import Window, unrolled
from pipesched.source import Source
from tests.strategies import SEEDS, broken_schedule, random_schedule

COLUMNS = ("op", "stage", "microbatch", "second", "start")
ORDERS = sorted((Path(__file__).parent / "orders").glob("*.txt"))
CSVS = sorted((Path(__file__).parent / "torch_fixtures").glob("*.csv"))
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


def read(text: str, **sizes: int) -> Unit:
    return evaluate(parse(Source("x.ps", text)), sizes)


def laws(schedule: Schedule, text: str, **sizes: int) -> None:
    """What holds of every schedule and its text."""
    assert format_source(Source("x.ps", text)) == text
    again = read(text, **sizes).schedule
    for column in COLUMNS:
        assert np.array_equal(getattr(again, column), getattr(schedule, column)), column
    assert np.array_equal(again.placement.table, schedule.placement.table)
    assert again.ranks == schedule.ranks


def built_in(name: str, **sizes: int) -> Schedule:
    schedule = pipesched.load(name, **sizes)
    assert isinstance(schedule, Schedule)
    return schedule


def tokens(text: str) -> int:
    """The words of the programs, from the first `rank` on."""
    words = [token.text for token in grammar().words.scan(text)]
    return len(words) - next(i for i, (a, b) in enumerate(pairwise(words)) if a == "rank" and b != "s" and i > 8)


@pytest.mark.parametrize("name", SIZES)
def test_built_in_schedules_are_read_back(name: str) -> None:
    """evaluate(write(s)) is s for the published schedules at many sizes."""
    for sizes in SIZES[name]:
        schedule = built_in(name, **sizes)
        laws(schedule, ps_write.write(schedule))


@pytest.mark.parametrize("path", ORDERS, ids=lambda path: path.stem)
def test_recorded_orders_are_read_back(path: Path) -> None:
    """So it is for the orders recorded from the authors' own code."""
    loaded = load(Source(path.name, path.read_text("utf-8")), Options({}))
    laws(loaded.schedule, ps_write.write(loaded.schedule, name=path.stem))


def written(schedule: Schedule) -> str | list[Code]:
    """The text, or the codes of why there is none."""
    try:
        return ps_write.write(schedule)
    except PipeschedError as error:
        return [diagnostic.code for diagnostic in error.diagnostics]


@pytest.mark.parametrize("path", CSVS, ids=lambda path: path.stem)
def test_orders_of_torch_are_read_back(path: Path) -> None:
    """And for torch's files, right and wrong ones, unless they cannot be read or said."""
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
    """Whether the last rank holds a stage; the placement of a file ends there."""
    return int(schedule.placement.rank_of.max()) == schedule.ranks - 1


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_random_schedules_are_read_back(seed: int) -> None:
    """And for random ones: any placement, routes that take turns, overlap pairs, W in any order."""
    schedule = random_schedule(seed, ranks=5, microbatches=6)
    text = written(schedule)
    if isinstance(text, str):
        laws(schedule, text)
    assert (text == [Code.TARGET]) == (not sayable(schedule))


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_what_cannot_be_said_is_refused(seed: int) -> None:
    """A broken schedule is read back as it is, or refused with PS814; never anything else."""
    schedule = broken_schedule(seed)
    text = written(schedule)
    if isinstance(text, str):
        laws(schedule, text)
    else:
        assert text == [Code.TARGET]


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(1, 3), st.integers(1, 9))
def test_periodic_orders_are_read_back(seed: int, chunks: int, times: int) -> None:
    """And for orders made of repeated pieces, which fold, with the W of a rank last in, first out, or in order."""
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
    laws(schedule, ps_write.write(schedule))


FEW = {"gpipe": 18, "1f1b": 32, "zb_h1": 45, "zb_h2": 50}


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize(("p", "m"), [(8, 16), (16, 40), (64, 128)])
def test_regular_schedules_are_one_block(name: str, p: int, m: int) -> None:
    """Ranks that differ in counts alone share one program, as long as a person would write it, at any size."""
    text = ps_write.write(built_in(name, p=p, m=m))
    assert text.count("\nrank ") == 1
    assert tokens(text) <= FEW[name]


@cache
def least(word: tuple[int, ...]) -> int:
    """The least cost of a nest of loops that spells a word, by trying everything."""
    if len(word) < 2:
        return LETTER * len(word)
    costs = [least(word[:i]) + least(word[i:]) for i in range(1, len(word))]
    powers = [q for q in range(1, len(word) // 2 + 1) if word == word[:q] * (len(word) // q) and len(word) % q == 0]
    return min(costs + [LOOP + least(word[:q]) for q in powers])


def cost(tree: object) -> int:
    assert isinstance(tree, tuple)
    return sum(LETTER if isinstance(x, int) else LOOP + cost(x.body) for x in tree)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=14))
def test_short_words_fold_to_the_shortest_nest(word: list[int]) -> None:
    """No nest of loops is shorter than what is found, and it spells the word."""
    tree = Folder([LETTER] * 3).fold(tuple(word))
    assert spelled(tree) == tuple(word)
    assert cost(tree) == least(tuple(word))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=150), st.integers(2, 9), st.integers(0, 40))
def test_long_words_fold(piece: list[int], times: int, more: int) -> None:
    """A long word of a repeated piece is spelled by its tree, which costs at most a loop and the piece and the rest."""
    folder = Folder([LETTER] * 3)
    word = tuple(piece * times + piece[:more])
    assert spelled(folder.fold(word)) == word
    if len(piece) <= 90:
        assert cost(folder.fold(word)) <= LOOP + cost(folder.fold(tuple(piece))) + LETTER * len(piece[:more])


def in_turn(words: list[str], ranks_of: list[int]) -> Schedule:
    """The schedule of words such as F0 I0 W0 B1 (kind, stage), microbatches in order."""
    orders = []
    for word in words:
        done: dict[str, int] = {}
        order = []
        for x in word.split():
            done[x] = done.get(x, -1) + 1
            order.append(Compute(Op[x[0]], int(x[1:]), done[x]))
        orders.append(order)
    m = 1 + max(x.microbatch for order in orders for x in order)
    placement = Placement(np.array([ranks_of], dtype=np.int32), np.zeros(m, np.int32), max(ranks_of) + 1, ("",))
    return Schedule.from_orders(orders, placement, "in_turn")


def windowed(parts: list[tuple[str, str, str]], ranks_of: list[int], k: int) -> tuple[Schedule, Window]:
    """A schedule from (prefix, window, suffix) by rank, in which the window stands once."""
    schedule = in_turn([" ".join(x) for x in parts], ranks_of)
    low = [len(x.split()) for x, _, _ in parts]
    return schedule, Window(k, low, [a + len(x.split()) for a, (_, x, _) in zip(low, parts, strict=True)])


def without_sizes(text: str) -> str:
    return text.partition("\n")[2]


def times(word: str, n: int) -> str:
    return " ".join([word] * n)


ONE_F_ONE_B = [
    (times(f"F{r}", 3 - r), times(f"F{r} B{r}", 1), times(f"F{r} B{r}", r + 1) + " " + times(f"B{r}", 3 - r))
    for r in range(4)
]
WINDOWS = {
    "1f1b": (ONE_F_ONE_B, [0, 1, 2, 3], 1),
    "two of a kind": (
        [("F0", "F0 F0 I0 I0 W0 W0", "F0 I0 W0 I0 W0"), ("", "F1 I1 F1 W1 I1 W1", "F1 I1 W1 F1 I1 W1")],
        [0, 1],
        2,
    ),
    "two chunks": (
        [
            ("F0 F0", "F0 F3 I3 I0 W3 W0", "F3 I3 F3 I3 W3 W3 I0 I0 W0 W0"),
            ("F1 F1", "F1 F2 I2 I1 W2 W1", "F2 F2 I2 I1 I2 I1 W1 W2 W1 W2"),
        ],
        [0, 1, 1, 0],
        1,
    ),
    "two chunks, two of a kind": (
        [
            ("F0 F0 F3", "F0 F3 I3 I0 F0 F3 W3 W0 I3 I0 W3 W0", "F3 I3 I0 W3 W0 I3 I0 W3 W0"),
            ("F1 F2", "F2 F1 I1 I2 F1 F2 W1 W2 I2 I1 W1 W2", "F1 F2 I2 I1 W1 W2 I2 I1 W1 W2"),
        ],
        [0, 1, 1, 0],
        2,
    ),
    "a window that is a power": (
        [("F0 F0", "F0 B0 F0 B0", "F0 B0 B0 B0"), ("", "F1 B1 F1 B1", "F1 B1 F1 B1 F1 B1")],
        [0, 1],
        2,
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_file_with_a_window_is_every_unrolled_schedule(name: str) -> None:
    """evaluate(text, m0 + jK) is the order with the window repeated j times more, letter by letter."""
    parts, ranks_of, k = WINDOWS[name]
    schedule, window = windowed(parts, ranks_of, k)
    text = ps_write.write(schedule, microbatch_window=window)
    for j in (0, 1, 2, 3, 7, 20):
        longer = in_turn([" ".join(filter(None, [a, *[b] * (1 + j), c])) for a, b, c in parts], ranks_of)
        again = unrolled(schedule, window, j)
        assert [again.order(r) for r in range(again.ranks)] == [longer.order(r) for r in range(longer.ranks)]
        laws(longer, text, m=schedule.microbatches + j * k)
        assert without_sizes(ps_write.write(again, microbatch_window=replace(window, copies=j))) == without_sizes(text)
    if k > 1:
        with pytest.raises(PipeschedError, match="the part that repeats runs 2 microbatches"):
            read(text, m=schedule.microbatches + 1)
    with pytest.raises(PipeschedError, match="the part that repeats"):
        read(text, m=schedule.microbatches - k)


def test_a_window_joins_what_goes_on_with_it() -> None:
    """1F1B with the window once is written as people write it: the count of the steady part says m."""
    schedule, window = windowed(*WINDOWS["1f1b"])
    assert "  repeat m - 3 + r { F  B }\n" in ps_write.write(schedule, microbatch_window=window)


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(1, 3), st.integers(1, 2), st.integers(1, 3))
def test_random_windows(seed: int, ranks: int, chunks: int, k: int) -> None:
    """So it is for random windows between a regular prefix and suffix."""
    rng = random.Random(seed)
    parts = []
    for rank in range(ranks):
        alone = " ".join(f"F{s} I{s} W{s}" for s in range(rank, ranks * chunks, ranks))
        before = rng.choice((0, 1, 2))
        parts.append((times(alone, before), " ".join(_lawful(alone.split() * k, rng)), times(alone, 4 - before)))
    schedule, window = windowed(parts, [s % ranks for s in range(ranks * chunks)], k)
    text = ps_write.write(schedule, microbatch_window=window)
    for j in (0, 1, 4):
        laws(unrolled(schedule, window, j), text, m=schedule.microbatches + j * k)


def _lawful(window: list[str], rng: random.Random) -> list[str]:
    """The same operations in another order, no I before its F and no W before its I."""
    left = list(window)
    done: dict[str, int] = {}
    order = []
    while left:
        ready = [x for x in left if x[0] == "F" or done.get("FI"["IW".index(x[0])] + x[1:], 0) > done.get(x, 0)]
        x = rng.choice(sorted(ready))
        left.remove(x)
        done[x] = done.get(x, 0) + 1
        order.append(x)
    return order


def test_no_window() -> None:
    """What does not run each stage K times, or is not within the order, is no window."""
    schedule, window = windowed(*WINDOWS["1f1b"])
    for wrong in (
        Window(2, window.low, window.high),
        Window(1, window.low, [x + 1 for x in window.high]),
        Window(1, window.low[1:], window.high[1:]),
        Window(1, [-1, *window.low[1:]], window.high),
        Window(0, window.low, window.low),
        replace(window, copies=3),
        replace(window, copies=-1),
        replace(window, copies=100),
    ):
        assert wrong.fault(schedule)
        with pytest.raises(ValueError, match=re.escape(wrong.fault(schedule))):
            ps_write.write(schedule, microbatch_window=wrong)
    assert Window(1, [0], [1]).fault(built_in("dualpipe", p=2, m=4))


def test_costs_name_and_documentation() -> None:
    """Costs are read back as they were, default ones are left out, and any name and text become legal ones."""
    schedule = built_in("zb_h1", p=8, m=8)
    listed = tuple(Fraction(10**6 + i, 7) for i in range(8))
    costs = Costs({"F": listed, "I": Fraction(25, 2), "W": Fraction(1), "B": listed, "C": Fraction(1, 3)})
    text = ps_write.write(
        schedule,
        name="3 rep-eats/é.csv",
        documentation='says "so"\n\ton two lines',
        costs=costs,
        claims=["makespan >= 1", "peak(0) == 8 when m >= 8"],
    )
    laws(schedule, text)
    unit = read(text)
    assert [unit.costs[key] for key in ("F", "I", "W", "B", "C")] == [costs[key] for key in ("F", "I", "W", "B", "C")]
    assert "W" not in unit.costs.given
    assert unit.schedule.name == "schedule_3_rep_eats_csv"
    assert [claim.text for claim in unit.checked.claims] == ["makespan >= 1", "peak(0) == 8 when m >= 8"]
    assert unit.checked.file.documentation == "says 'so'\non two lines"
    assert "costs" not in ps_write.write(schedule, costs=Costs({"F": Fraction(1), "B": Fraction(2), "C": Fraction(0)}))
    assert read(ps_write.write(schedule, name="repeat")).schedule.name == "schedule_repeat"


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
    """The placements of the literature are formulas; others are runs of stages."""
    stages = len(ranks_of)
    orders = [[Compute(Op.F, s, 0) for s in range(stages) if ranks_of[s] == r] for r in range(3)]
    placement = Placement(np.array([ranks_of], dtype=np.int32), np.zeros(1, dtype=np.int32), 3, ("",))
    schedule = Schedule.from_orders(orders, placement)
    text = ps_write.write(schedule)
    laws(schedule, text)
    assert f"\n{line}\n" in text


def test_irregular_ranks_stand_beside_the_general_program() -> None:
    """A rank that does as it likes has a program of its own, the others keep the one that they share."""
    orders = [built_in("1f1b", p=8, m=8).order(r) for r in range(8)]
    orders[3] = [x for i in range(8) for x in (Compute(Op.F, 3, 7 - i), Compute(Op.B, 3, 7 - i))]
    schedule = Schedule.from_orders(orders, linear(8, 8), "odd")
    text = ps_write.write(schedule)
    laws(schedule, text)
    assert text.count("\nrank ") == 2
    assert "rank 3 {" in text and "if r < 3 {" in text


def test_order_writes_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What ``pipesched order FILE --format ps`` writes has the order and the costs of FILE; messages have no place."""
    csv = tmp_path / "my order.csv"
    csv.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    assert main(["order", str(csv), "--format", "ps", "-o", str(tmp_path / "mine.ps")]) == 0
    text = (tmp_path / "mine.ps").read_text()
    assert text.startswith('schedule my_order(p = 2, m = 2)\n"The order of my order.csv"\n')
    for file in (csv, tmp_path / "mine.ps"):
        assert main(["order", str(file)]) == 0
    first, again = capsys.readouterr().out.split("rank 0")[1:]
    assert first == again and "B0.0" in first
    assert main(["order", str(csv), "--format", "ps", "--program"]) == 2
    assert "no sends and receives" in capsys.readouterr().err
    (tmp_path / "c.ps").write_text('schedule c(p, m) "told" stage s in 0 .. p on rank s costs F = 2 rank r { F(1) F }')
    assert main(["order", str(tmp_path / "c.ps"), "--p", "1", "--m", "2", "--format", "ps"]) == 0
    out = capsys.readouterr().out
    assert "costs F = 2\n" in out and '"told"\n' in out and "F(1)  F\n" in out


def test_same_bytes() -> None:
    """The same schedule has the same text, whatever was written before."""
    schedule = built_in("interleaved", p=4, v=2, m=8)
    assert len({ps_write.write(schedule) for _ in range(3)}) == 1
