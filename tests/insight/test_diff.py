"""`diff` finds the fewest moves between two orders, checked by applying them and, for small orders, by trying all
subsets.
"""

from __future__ import annotations

import itertools
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.__main__ import main
from pipesched.examine import Examination, Options
from pipesched.formats.readers import Loaded
from pipesched.insight.diff import differ
from pipesched.insight.diff_report import Difference
from pipesched.insight.likeness import Moves, moves
from pipesched.model.ops import Compute, Op
from pipesched.model.schedule import Schedule
from pipesched.orders import order_write
from tests.depth import deep
from tests.makers import strategies

CALM = settings(derandomize=True, deadline=None, max_examples=deep(37, usual=19))


def done(a: list[int], b: list[int], heavy: list[bool] | None = None) -> tuple[list[int], list[int], list[int]]:
    """Return the positions of b that moved, and of a and b that are alone, after a check that they turn a into b."""
    weights = np.array(heavy if heavy is not None else [True] * len(b), dtype=np.bool_)
    found = moves(np.array(a, dtype=np.int64), np.array(b, dtype=np.int64), weights)
    left = {i for i, _ in found.moved} | set(found.gone)
    stay_a = [x for i, x in enumerate(a) if i not in left]
    new = {j for _, j in found.moved} | set(found.new)
    stay_b = [x for j, x in enumerate(b) if j not in new]
    assert stay_a == stay_b
    assert all(a[i] == b[j] for i, j in found.moved)
    assert (found == Moves()) == (a == b)
    return [j for _, j in found.moved], list(found.gone), list(found.new)


@CALM
@given(st.permutations(range(7)))
def test_the_fewest_moves_of_small_orders(permutation: list[int]) -> None:
    """A trial of all subsets finds no larger one with the same order in both."""
    moved, gone, new = done(list(range(7)), permutation)
    increasing = (
        size
        for size in range(7, 0, -1)
        for kept in itertools.combinations(permutation, size)
        if list(kept) == sorted(kept)
    )
    assert len(moved) == 7 - next(increasing) and not gone and not new


@CALM
@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12))
def test_any_two_sequences_with_elements_alone_and_again(a: list[int], b: list[int]) -> None:
    """An element is alone if one sequence has more of its copies."""
    _, gone, new = done(a, b)
    assert sorted(a[i] for i in gone) == sorted((_count(a) - _count(b)).elements())
    assert sorted(b[j] for j in new) == sorted((_count(b) - _count(a)).elements())


def _count(values: list[int]) -> Any:
    from collections import Counter

    return Counter(values)


@CALM
@given(st.permutations(range(6)), st.lists(st.booleans(), min_size=6, max_size=6))
def test_of_equal_choices_the_light_ones_move(permutation: list[int], heavy: list[bool]) -> None:
    """No other largest subset that can stay has more heavy elements."""
    moved, _, _ = done(list(range(6)), permutation, heavy)
    best = max(
        (len(kept), sum(heavy[j] for j in kept))
        for size in range(7)
        for kept in itertools.combinations(range(6), size)
        if [permutation[j] for j in kept] == sorted(permutation[j] for j in kept)
    )
    stays = [j for j in range(6) if j not in moved]
    assert (len(stays), sum(heavy[j] for j in stays)) == best


@pytest.mark.parametrize("seed", range(5))
def test_few_moves_in_a_long_order_are_found(seed: int) -> None:
    """k elements of 5000 that were moved are at most k moves, across blocks of any length."""
    rng = random.Random(seed)
    b = list(range(5000))
    for _ in range(20):
        b.insert(rng.randrange(4999), b.pop(rng.randrange(5000)))
    assert 0 < len(done(list(range(5000)), b)[0]) <= 20


@pytest.mark.parametrize("seed", range(5))
def test_long_blocks_have_the_fewest_moves_too(seed: int) -> None:
    """The number of moves equals the number by the quadratic recurrence for a longest increasing subsequence."""
    rng = random.Random(seed)
    b = list(range(120))
    rng.shuffle(b)
    longest = [1] * 120
    for i, j in itertools.combinations(range(120), 2):
        if b[i] < b[j]:
            longest[j] = max(longest[j], longest[i] + 1)
    assert len(done(list(range(120)), b)[0]) == 120 - max(longest)


def order_of(name: str, **sizes: int) -> Schedule:
    return pipesched.load(name, **sizes)


def written(path: Path, schedule: Schedule, orders: list[list[Compute]]) -> str:
    path.write_text(order_write.write(Schedule.from_orders(orders, schedule.placement, path.stem)))
    return path.name


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    status = main(["diff", *arguments, "--json"])
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return status, value


def test_the_same_order_in_other_forms(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A .ps file, its order, its CSV and its stream are the same order: status 0."""
    schedule = order_of("interleaved", p=2, v=2, m=4)
    names = ["interleaved", written(folder / "a.order", schedule, [schedule.order(r) for r in range(2)])]
    for target, name in (("torch-csv", "a.csv"), ("stream", "a.json"), ("torch-comms", "comms.csv")):
        assert main(["emit", "interleaved", "--p", "2", "--v", "2", "--m", "4", "--target", target, "-o", name]) == 0
        names.append(name)
    capsys.readouterr()
    for a, b in itertools.combinations(names[:4], 2):
        sizes = ["--p", "2", "--m", "4", *(["--v", "2"] if a == "interleaved" else [])]
        assert main(["diff", a, b, *sizes]) == 0
        assert capsys.readouterr().out.endswith("are the same order: 32 operations on 2 ranks\n")
    assert main(["diff", "interleaved", "comms.csv", "--p", "2", "--v", "2", "--m", "4"]) == 0


def test_a_moved_w_is_told_with_its_steps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A W of ZB-H1 that runs three steps earlier is one move, with the steps in both files and its new successor."""
    schedule = order_of("zb_h1", p=4, m=8)
    orders = [schedule.order(r) for r in range(4)]
    at = next(i for i, x in enumerate(orders[1]) if x.op is Op.W and x.microbatch == 3)
    moved = orders[1].pop(at)
    orders[1].insert(at - 3, moved)
    name = written(folder / "mine.order", schedule, orders)
    assert main(["diff", "zb_h1", name, "--p", "4", "--m", "8"]) == 1
    lines = capsys.readouterr().out.splitlines()
    after = orders[1][at - 2]
    assert lines[0] == f"rank 1: W1.3 moved from step {at + 1} to {at - 2}, before {after}"
    assert lines[1] == "" and lines[2].split() == ["zb_h1.ps", "mine.order", "change"]
    status, value = told(["zb_h1", name, "--p", "4", "--m", "8"], capsys)
    assert status == 1 and [move["text"] for move in value["moves"]] == [lines[0].removeprefix("rank 1: ")]


def test_neighbours_move_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of operations that keeps its order is one line."""
    schedule = order_of("1f1b", p=2, m=6)
    orders = [schedule.order(r) for r in range(2)]
    orders[0] = [*orders[0][2:], *orders[0][:2]]
    name = written(folder / "mine.order", schedule, orders)
    _, value = told(["1f1b", name, "--p", "2", "--m", "6"], capsys)
    assert [(m["operations"], m["from"], m["to"], m["before"]) for m in value["moves"]] == [
        (["F0.0", "F0.1"], 1, 11, None)
    ]


def test_the_cost_is_both_and_the_difference(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1F1B and GPipe at p = 4, m = 8 have the same makespan, as in the literature, and hold 4 activations and 8."""
    status, value = told(["gpipe", "1f1b", "--p", "4", "--m", "8", "--cost", "F=1,B=2"], capsys)
    makespan = (8 + 4 - 1) * 3
    assert status == 1 and value["figures"]["makespan"] == [makespan, makespan]
    assert value["figures"]["peak"] == [8, 4]
    assert value["figures"]["bubble_ratio"] == [str(Fraction(3, 11))] * 2
    main(["diff", "gpipe", "1f1b", "--p", "4", "--m", "8"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["makespan", "33", "33", "0"] in rows and ["peak", "8", "4", "-4"] in rows


def test_operations_of_one_order_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An operation that one file lacks is reported as only in the other one, with its step there."""
    (folder / "a.order").write_text("rank 0: F0.0 F0.1 B0.0 B0.1\nrank 1: F1.0 F1.1 B1.0 B1.1\n")
    (folder / "b.order").write_text("rank 0: F0.0 F0.1 B0.0 B0.1\nrank 1: F1.1 B1.1\n")
    status, value = told(["a.order", "b.order"], capsys)
    assert status == 1 and value["moves"] == []
    assert value["only"] == [[{"rank": 1, "operations": ["F1.0", "B1.0"], "steps": [1, 3]}], []]


def test_a_split_backward_is_no_other_operation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ZB-H1 is 1F1B with each backward split: nothing has moved, nothing is alone, and W is part of its B."""
    status, value = told(["1f1b", "zb_h1", "--p", "3", "--m", "4"], capsys)
    assert status == 1 and value["moves"] == [] and value["only"] == [[], []]
    assert [[len(entry["operations"]) for entry in side] for side in value["split"]] == [[4, 4, 4], []]
    assert main(["diff", "zb_h1", "1f1b", "--p", "3", "--m", "4"]) == 1
    assert capsys.readouterr().out.startswith("ranks 0, 1, 2: 4 B of 1f1b.ps are I and W in zb_h1.ps\n\n")
    (folder / "a.csv").write_text("0F0,0F1,0B0,0B1\n")
    (folder / "b.csv").write_text("0F0,0I0,0F1,0I1,0W1,0W0\n")
    _, value = told(["a.csv", "b.csv"], capsys)
    assert [(m["operations"], m["from"], m["to"]) for m in value["moves"]] in ([(["F0.1"], 2, 3)], [(["B0.0"], 3, 2)])


def test_overlap_pairs_of_one_order_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Orders with the same operations are different if two operations are one slot in one file and two in the other."""
    (folder / "a.order").write_text("rank 0: F0.0 F0.1+B0.0 B0.1\n")
    (folder / "b.order").write_text("rank 0: F0.0 F0.1 B0.0 B0.1\n")
    status, value = told(["a.order", "b.order"], capsys)
    assert status == 1 and value["moves"] == [] and value["only"] == [[], []]
    assert value["pairs"] == [[{"rank": 0, "operations": ["F0.1+B0.0"], "steps": [2]}], []]


def test_frozen_stages_of_one_order_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two forward-only files have one order, and one of them has a frozen stage."""
    text = "schedule a(p = 2, m = 1) stage s in 0 .. p on rank s {} rank r {{ F }}\n"
    for name, frozen in (("a.ps", "frozen 0"), ("b.ps", "")):
        (folder / name).write_text(text.format(frozen))
    status, value = told(["a.ps", "b.ps"], capsys)
    assert (status, value["facts"]) == (1, ["frozen stages: 0 in the first order, none in the second"])


def test_batches_of_one_order_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One order posts messages together and the other one by one: one hangs, the other does not.

    A batch of one message is that message.
    """
    (folder / "a.order").write_text(
        "rank 0: F0.0 send:F0.0>1 F0.1 ( send:F0.1>1 recv:B1.0<1 ) B0.0 recv:B1.1<1 B0.1 reduce:0\n"
        "rank 1: recv:F0.0<0 F1.0 B1.0 ( send:B1.0>0 recv:F0.1<0 ) F1.1 B1.1 send:B1.1>0 reduce:1\n"
    )
    text = (folder / "a.order").read_text()
    (folder / "b.order").write_text(text.replace("( ", "").replace(") ", ""))
    (folder / "c.order").write_text(text.replace("recv:B1.1<1", "( recv:B1.1<1 )"))
    assert (main(["verify", "a.order"]), main(["verify", "b.order"])) == (0, 1)
    assert "PS401" in capsys.readouterr().out
    status, value = told(["a.order", "b.order"], capsys)
    assert status == 1 and value["moves"] == [] and value["only"] == [[], []]
    assert value["pairs"] == [
        [
            {"rank": 0, "operations": ["( 0SEND_F1 0RECV_B0 )"], "steps": [4]},
            {"rank": 1, "operations": ["( 1SEND_B0 1RECV_F1 )"], "steps": [4]},
        ],
        [],
    ]
    assert told(["a.order", "c.order"], capsys)[0] == 0


@settings(CALM, max_examples=deep(10, usual=5))
@given(st.integers(0, 2**32 - 1))
def test_any_two_orders_differ_exactly_if_they_are_not_the_same(seed: int) -> None:
    """Right, broken and shuffled orders equal themselves and differ from all others."""
    schedules = [
        make(seed) for make in (strategies.random_schedule, strategies.broken_schedule, strategies.shuffled_schedule)
    ]
    runs = runs_of(*schedules)
    for a, b in itertools.product(runs, repeat=2):
        same = [a.loaded.schedule.order(r) for r in range(a.loaded.schedule.ranks)] == [
            b.loaded.schedule.order(r) for r in range(b.loaded.schedule.ranks)
        ]
        found = differ(a, b)
        assert found.equal == same
        assert found.text(every=True)


def applied(found: Difference, rank: int, order: list[str], length: int) -> list[str]:
    """Apply the reported differences to the first order."""
    moves = [move for move in found.moves if move.rank == rank]
    gone = {step for entry in found.only_a if entry.rank == rank for step in entry.steps}
    gone |= {move.step_a + i for move in moves for i in range(len(move.operations))}
    stays = iter(x for step, x in enumerate(order, 1) if step not in gone)
    new = {move.step_b + i: x for move in moves for i, x in enumerate(move.operations)}
    for entry in found.only_b:
        if entry.rank == rank:
            new |= dict(zip(entry.steps, entry.operations, strict=True))
    made = [new[step] if step in new else next(stays) for step in range(1, length + 1)]
    assert not list(stays)
    for move in moves:
        after = move.step_b + len(move.operations)
        settled = next((made[step - 1] for step in range(after, length + 1) if step not in new), None)
        assert move.before == settled
    return made


def runs_of(*schedules: Schedule) -> list[Examination]:
    return [Examination(Loaded("order", schedule), Options()) for schedule in schedules]


@CALM
@given(strategies.SEEDS, st.integers(0, 8))
def test_the_difference_done_to_the_first_order_is_the_second(seed: int, changes: int) -> None:
    """Random orders, with moved, lost and doubled operations on each rank, agree in both directions."""
    rng = random.Random(seed)
    schedule = strategies.random_schedule(seed)
    orders = [[Compute(x.op, x.stage, x.microbatch) for x in schedule.order(r)] for r in range(schedule.ranks)]
    other = [list(order) for order in orders]
    for _ in range(changes):
        order = rng.choice(other)
        if order:
            x = order.pop(rng.randrange(len(order)))
            for _ in range(rng.choice((0, 1, 1, 1, 2))):
                order.insert(rng.randint(0, len(order)), x)
    both = runs_of(*(Schedule.from_orders(x, schedule.placement) for x in (orders, other)))
    for a, b in (both, both[::-1]):
        found = differ(a, b)
        if found.split_a or found.split_b:  # an I was lost: its W and the B of the other order count as one
            continue
        for rank in range(schedule.ranks):
            names, wanted = ([str(x) for x in side.loaded.schedule.order(rank)] for side in (a, b))
            assert applied(found, rank, names, len(wanted)) == wanted


def test_operations_that_move_to_one_place_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """1F1B to GPipe, p = 2, m = 3, agrees with a derivation by hand: F F B F B B, and F B F B F B, to F F F B B B."""
    assert main(["diff", "1f1b", "gpipe", "--p", "2", "--m", "3"]) == 1
    assert capsys.readouterr().out.splitlines()[:2] == [
        "rank 0: B0.0 moved from step 3 to 4, before B0.1",
        "rank 1: B1.0 B1.1 moved from steps 2, 4 to 4, before B1.2",
    ]


def test_what_has_other_neighbours_at_its_old_step_has_moved(capsys: pytest.CaptureFixture[str]) -> None:
    """In ZB-H1 and ZB-H2, I2.3 is the tenth of rank 2, but no line says that it moved from step 10 to 10."""
    assert all(str(order_of(name, p=4, m=8).order(2)[9]) == "I2.3" for name in ("zb_h1", "zb_h2"))
    assert main(["diff", "zb_h1", "zb_h2", "--p", "4", "--m", "8"]) == 1
    assert "rank 2: I2.3 moved, still at step 10, before F2.6\n" in capsys.readouterr().out


def test_other_sizes_and_placements_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """ZB-H1 and interleaving on four ranks have other stages; other microbatches are named by their number."""
    _, value = told(["1f1b", "interleaved", "--p", "4", "--v", "2", "--m", "8"], capsys)
    assert value["facts"] == ["4 stages in the first order, 8 in the second"]


def test_the_ranks_of_stages_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stage on another rank is reported once, with both ranks."""
    (folder / "a.csv").write_text("0F0,0B0\n1F0,1B0\n")
    (folder / "b.csv").write_text("1F0,1B0\n0F0,0B0\n")
    _, value = told(["a.csv", "b.csv"], capsys)
    assert value["facts"] == [
        "stage 0: rank 0 in the first order, rank 1 in the second",
        "stage 1: rank 1 in the first order, rank 0 in the second",
    ]


def test_messages_are_compared_where_both_files_have_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A moved send among the same computes is a move between files with messages, and no difference between their
    computes alone."""
    first = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    other = "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"
    (folder / "a.csv").write_text(first + other)
    (folder / "b.csv").write_text(first.replace("0SEND_F0,0F1", "0F1,0SEND_F0") + other)
    (folder / "c.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    status, value = told(["a.csv", "b.csv"], capsys)
    assert status == 1 and value["compared"] == "instructions" and len(value["moves"]) == 1
    assert told(["a.csv", "c.csv"], capsys)[0] == 0


def test_a_wrong_file_is_compared_all_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An order that deadlocks has no times, and one line on stderr; a file that is not a schedule ends the command."""
    (folder / "a.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    (folder / "b.csv").write_text("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")
    assert main(["diff", "a.csv", "b.csv"]) == 1
    shown = capsys.readouterr()
    assert "PS306" in shown.err and shown.err.count("\n") == 1 and "makespan" in shown.out
    (folder / "c.csv").write_text("0F0,what\n")
    assert main(["diff", "a.csv", "c.csv"]) == 1
    assert main(["diff", "a.csv", "none.csv"]) == 2
    assert main(["diff", "a.csv"]) == 2
    capsys.readouterr()


def test_long_answers_say_how_to_see_all(capsys: pytest.CaptureFixture[str]) -> None:
    """--all shows every line and every operation."""
    arguments = ["diff", "gpipe", "1f1b", "--p", "32", "--m", "64"]
    assert main(arguments) == 1
    assert "more lines (--all)" in capsys.readouterr().out
    assert main([*arguments, "--all"]) == 1
    whole = capsys.readouterr().out
    assert "..." not in whole and whole.count(" moved from ") > 32 and "rank 31: " in whole
