"""Every published order is recognized, and no order is mistaken for another.

The oracle compares lists of operations.
"""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.insight.likeness import likeness, unequal_part
from pipesched.insight.recognize import Known, known_orders, plainest, recognize
from pipesched.insight.why_report import known_text
from pipesched.language.parser import parse
from pipesched.language.typecheck import check_text
from pipesched.library.assets import built_in
from pipesched.model.ops import Compute, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from tests.depth import deep
from tests.makers import strategies
from tests.makers.placements import linear

CALM = settings(derandomize=True, deadline=None, max_examples=deep(25, usual=13))


def order_of(name: str, **sizes: int) -> Schedule:
    return pipesched.load(name, **sizes)


def rewritten(schedule: Schedule, orders: list[list[Compute]]) -> Schedule:
    return Schedule.from_orders(orders, schedule.placement, "mine")


@pytest.mark.parametrize("name", built_in())
def test_a_published_order_is_recognized(name: str) -> None:
    """Every library schedule with as many stages on each rank, written out without its name, is found."""
    schedule = order_of(name, p=4, m=8)
    known = recognize(rewritten(schedule, [schedule.order(r) for r in range(schedule.ranks)]))
    if schedule.stages % schedule.ranks:
        assert known is None and name in ("helix", "recycle")
        return
    assert known is not None and known.like.whole and known.like.reading == "exactly"
    all_known = known_orders(rewritten(schedule, [schedule.order(r) for r in range(4)]))
    alike = next(order for name, order in all_known if name == known.name)
    assert [alike.order(r) for r in range(4)] == [schedule.order(r) for r in range(4)]


def test_schedules_of_fewer_parameters_come_first_and_the_rest_is_not_read() -> None:
    """A schedule with few parameters is found by reading its file alone."""
    assert (counts := [len(parse(source).parameters) for _, source in plainest()]) == sorted(counts)
    first = order_of(plainest()[0][0], p=4, m=8)
    check_text.cache_clear()
    assert recognize(rewritten(first, [first.order(r) for r in range(4)])) is not None
    assert check_text.cache_info().misses == 1


def fused(*words: tuple[str, int, int]) -> list[Compute]:
    return [Compute(Op[kind], stage, microbatch) for kind, stage, microbatch in words]


def test_known_variants_are_recognized() -> None:
    """GPipe with the last microbatch first, doubled warm-up and breadth first, each written here by its rule, are
    recognized."""
    p, m, v = 3, 4, 2
    back = [fused(*(("F", r, i) for i in range(m)), *(("B", r, i) for i in reversed(range(m)))) for r in range(p)]
    eager = []
    for r in range(p):
        forward, backward = (fused(*((kind, r, i) for i in range(m))) for kind in "FB")
        ahead = min(2 * (p - 1 - r) + 1, m)
        pairs = itertools.zip_longest(forward[ahead:], backward)
        eager.append([*forward[:ahead], *(x for f, b in pairs for x in (b, f) if x is not None)])
    wide = [
        fused(
            *(("F", c * p + r, i) for c in range(v) for i in range(m)),
            *(("B", c * p + r, i) for c in reversed(range(v)) for i in reversed(range(m))),
        )
        for r in range(p)
    ]
    looped = order_of("interleaved", p=3, v=2, m=6).placement.rank_of
    for orders, stages, name in ((back, 1, "gpipe_reversed"), (eager, 1, "eager_1f1b"), (wide, 2, "looped_bfs")):
        placement = linear(p, m) if stages == 1 else Placement(looped, linear(p, m).route_of, p, ("",))
        known = recognize(Schedule.from_orders(orders, placement))
        assert known is not None and known.name == name and known.like.reading == "exactly"


def test_an_order_with_its_w_elsewhere_is_recognized() -> None:
    """ZB-H1 with every W at the end of its rank is ZB-H1 up to the order of W."""
    schedule = order_of("zb_h1", p=4, m=8)
    late = [sorted(schedule.order(r), key=lambda x: x.op is Op.W) for r in range(4)]
    known = recognize(rewritten(schedule, late))
    assert known is not None and (known.name, known.like.reading, known.like.whole) == ("zb_h1", "up to W", True)


def test_an_order_with_its_backwards_split_is_recognized() -> None:
    """GPipe with I and W instead of each B is GPipe with split backwards."""
    schedule = order_of("gpipe", p=2, m=3)
    parts = {Op.F: (Op.F,), Op.B: (Op.I, Op.W)}
    split = [
        [Compute(kind, x.stage, x.microbatch) for x in schedule.order(rank) for kind in parts[x.op]]
        for rank in range(2)
    ]
    known = recognize(rewritten(schedule, split))
    assert known is not None and (known.name, known.like.reading) == ("gpipe", "split")


def test_an_order_that_differs_somewhere_keeps_its_window() -> None:
    """With two operations of ZB-H1 swapped on one rank, that rank differs there, and no other rank does."""
    schedule = order_of("zb_h1", p=4, m=8)
    orders = [schedule.order(r) for r in range(4)]
    orders[2][7], orders[2][9] = orders[2][9], orders[2][7]
    known = recognize(rewritten(schedule, orders))
    start = int(schedule.start[2])
    assert known is not None and known.name == "zb_h1" and not known.like.whole
    assert [high - low for low, high in known.like.differing] == [0, 0, 3, 0]
    assert known.like.differing[2] == (start + 7, start + 10)
    assert known.like.common == Fraction(96 - 2, 96)
    assert "on rank 2 (steps 8 to 10)" in known_text(known, rewritten(schedule, orders))


def test_a_rank_that_lacks_everything_is_said_so() -> None:
    """ZB-H1 without its last rank is reported as ZB-H1 except for that rank."""
    schedule = order_of("zb_h1", p=4, m=8)
    mine = rewritten(schedule, [*(schedule.order(r) for r in range(3)), []])
    known = recognize(mine)
    assert known is not None and known_text(known, mine) == "zb_h1 except for all of rank 3"


def test_a_strange_order_is_nobody() -> None:
    """With reversed microbatches no operation is where a published order has it; or the placement differs."""
    schedule = order_of("gpipe", p=2, m=5)
    strange = [[Compute(x.op, x.stage, 4 - x.microbatch) for x in schedule.order(r)] for r in range(2)]
    assert recognize(rewritten(schedule, strange)) is None
    assert likeness(schedule, order_of("gpipe", p=2, m=4)) is None


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), max_size=8))
@settings(derandomize=True, deadline=None, max_examples=deep(37, usual=19))
def test_outside_of_its_window_a_sequence_is_the_other_one(a: list[int], b: list[int]) -> None:
    """The parts before and after the window are equal, and the window is empty exactly for equal sequences."""
    low, high = unequal_part(np.array(a, dtype=np.int64), np.array(b, dtype=np.int64))
    assert ((low, high) == (0, 0) and a == b) or (a != b and (low < high or high == low - 1))
    if high > low:
        tail = len(a) - high
        assert a[:low] == b[:low] and (not tail or a[high:] == b[-tail:])
    elif a != b:
        assert any(b[:i] + b[i + len(b) - len(a) :] == a for i in range(len(a) + 1))


Orders = list[list[Compute]]


def slots(order: list[Compute]) -> list[list[Compute]]:
    """Count an overlap pair as one slot."""
    found: list[list[Compute]] = []
    for x in order:
        found[-1:] = [[*found[-1], x]] if x.second else [*found[-1:], [x]]
    return found


def mutated(orders: list[list[list[Compute]]], rng: random.Random) -> None:
    """Make a slip, or a harmless change: swap neighbours; move, drop, double, split or rename a slot; put off a W."""
    order = rng.choice([order for order in orders if len(order) > 2])
    i, j = rng.randrange(len(order)), rng.randrange(len(order))
    x = order[i][0]
    match rng.choice(("swap", "move", "lose", "double", "split", "late", "rename")):
        case "swap" if i:
            order[i - 1 : i + 1] = order[i - 1 : i + 1][::-1]
        case "move":
            order.insert(j, order.pop(i))
        case "lose":
            del order[i]
        case "double":
            order.insert(j, order[i])
        case "split" if x.op is Op.B:
            order[i : i + 1] = [[Compute(op, x.stage, x.microbatch)] for op in (Op.I, Op.W)]
        case "late":
            order.sort(key=lambda slot: slot[0].op is Op.W)
        case _:
            order[i] = [Compute(x.op, x.stage, order[j][0].microbatch)]


def read_as(order: list[Compute], reading: str) -> list[Compute]:
    """Return an order under a reading; `up to W` and `split` leave the W out."""
    if reading == "exactly":
        return order
    as_input = {Op.B: Op.I} if reading == "split" else {}
    return [Compute(as_input.get(x.op, x.op), x.stage, x.microbatch, x.second) for x in order if x.op is not Op.W]


def rest(order: list[Compute], reading: str) -> list[tuple[int, int]]:
    """Return the W that a reading leaves out."""
    kinds = {"exactly": (), "up to W": (Op.W,), "split": (Op.W, Op.B)}[reading]
    return sorted((x.stage, x.microbatch) for x in order if x.op in kinds)


def is_true(known: Known, mine: Orders, other: Orders) -> None:
    """Check the reported likeness, list by list."""
    reading = known.like.reading
    pairs = list(zip(mine, other, strict=True))
    if known.like.whole:
        assert all(
            read_as(a, reading) == read_as(b, reading) and rest(a, reading) == rest(b, reading) for a, b in pairs
        )
        return
    assert reading == "exactly" and mine != other
    low, standing = 0, 0
    for (begin, end), (a, b) in zip(known.like.differing, pairs, strict=True):
        first, last = begin - low, end - low
        if end == begin:
            assert a == b
        elif (first, last) != (0, max(len(a), 1)):
            assert a[:first] == b[:first] and a[last:] == b[len(b) - len(a) + last :]
        same = [sum(x == y for x, y in zip(*sides, strict=False)) for sides in ((a, b), (a[::-1], b[::-1]))]
        standing += sum(same)
        low += len(a)
    assert known.like.common * max(sum(map(len, mine)), sum(map(len, other))) <= standing


@settings(CALM, max_examples=deep(12, usual=6))
@given(st.sampled_from(built_in()), strategies.SEEDS, st.integers(0, 6))
def test_no_changed_order_is_told_to_be_what_it_is_not(name: str, seed: int, changes: int) -> None:
    """Library orders with up to six changes: equal as reported, and outside of the reported windows the same."""
    rng = random.Random(seed)
    schedule = order_of(name, p=4, m=8)
    changed = [slots(schedule.order(rank)) for rank in range(4)]
    for _ in range(changes):
        mutated(changed, rng)
    orders = [[x for slot in order for x in slot] for order in changed]
    mine = rewritten(schedule, orders)
    known = recognize(mine)
    if known is None:
        assert changes or schedule.stages % schedule.ranks  # such an order is compared with no schedule
        return
    other = dict(known_orders(mine))[known.name]
    is_true(known, orders, [other.order(rank) for rank in range(4)])


def test_forwards_alone_are_no_order_that_trains() -> None:
    """The forwards of GPipe are half of its operations, at the same places; half is not enough. They equal
    forward_only.
    """
    schedule = order_of("gpipe", p=3, m=4)
    forwards = rewritten(schedule, [[x for x in schedule.order(r) if x.op is Op.F] for r in range(3)])
    assert [name for name, other in known_orders(forwards) if likeness(forwards, other).common >= Fraction(3, 4)] == [
        "forward_only"
    ]


def test_an_order_that_lacks_something_is_told_by_its_rank() -> None:
    """1F1B without the last backward of rank 0 has no differing operation, so the rank is named."""
    schedule = order_of("1f1b", p=4, m=8)
    mine = rewritten(schedule, [schedule.order(0)[:-1], *(schedule.order(r) for r in range(1, 4))])
    known = recognize(mine)
    assert known is not None and known_text(known, mine) == "1f1b except for rank 0"
