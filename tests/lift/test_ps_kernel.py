"""A file with a kernel generates, for every number of microbatches, the order that repeats this kernel."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.diagnostics import PipeschedError
from pipesched.lift import writer
from pipesched.lift.kernel import Kernel, in_order
from pipesched.model.ops import Compute, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from tests.depth import deep
from tests.makers.ps_texts import laws, read
from tests.makers.strategies import SEEDS


def unrolled(schedule: Schedule, kernel: Kernel, copies: int) -> Schedule:
    """Return the schedule of m0 + copies * K microbatches: every rank runs its kernel `copies` more times.

    Raises:
        ValueError: if it is not a kernel of this schedule (`Kernel.fault`).
    """
    if fault := kernel.fault(schedule):
        raise ValueError(fault)
    pieces = []
    for rank in range(schedule.ranks):
        order = np.arange(int(schedule.start[rank]), int(schedule.start[rank + 1]))
        low, high = kernel.low[rank], kernel.high[rank]
        pieces.append(np.concatenate([order[:high], np.tile(order[low:high], copies), order[kernel.after(rank) :]]))
    at = np.concatenate(pieces)
    m = kernel.least(schedule) + copies * kernel.microbatches
    old = schedule.placement
    op, stage = schedule.op[at], schedule.stage[at]
    return replace(
        schedule,
        placement=replace(old, route_of=np.zeros(m, dtype=np.int32)),
        op=op,
        stage=stage,
        microbatch=in_order(op, stage),
        second=np.zeros(len(at), dtype=np.bool_),
        start=np.cumsum([0] + [len(x) for x in pieces], dtype=np.int64),
    )


def in_turn(words: list[str], ranks_of: list[int]) -> Schedule:
    """Return the schedule of words such as F0 I0 W0 B1 (kind, stage), microbatches in order."""
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


def kerneled(parts: list[tuple[str, str, str]], ranks_of: list[int], k: int) -> tuple[Schedule, Kernel]:
    """Return a schedule from (prefix, kernel, suffix) by rank, with one kernel."""
    schedule = in_turn([" ".join(x) for x in parts], ranks_of)
    low = [len(x.split()) for x, _, _ in parts]
    return schedule, Kernel(k, low, [a + len(x.split()) for a, (_, x, _) in zip(low, parts, strict=True)])


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
    "two chunks, W in the order of the I in the short order alone": (
        [
            (
                "F0 F1 F1 F0 I0 I1 I1 I0 W0 W1",
                "F0 F1 I0 I1 W1 W0",
                "F0 F1 I0 I1 W0 W1 W0 W1",
            )
        ],
        [0, 0],
        1,
    ),
    "the same order with its kernels elsewhere": (
        [
            ("", "F0 B0 F0 B0", "F0 F0 B0 B0"),
            ("F1 B1 F1 B1", "F1 F1 B1 B1", ""),
            ("", "F2 B2 F2 B2", "F2 F2 B2 B2"),
        ],
        [0, 1, 2],
        2,
    ),
    "a kernel that is a power": (
        [("F0 F0", "F0 B0 F0 B0", "F0 B0 B0 B0"), ("", "F1 B1 F1 B1", "F1 B1 F1 B1 F1 B1")],
        [0, 1],
        2,
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_file_with_a_kernel_is_every_unrolled_schedule(name: str) -> None:
    """evaluate(text, m0 + jK) is the order with the kernel repeated j times more, letter by letter."""
    parts, ranks_of, k = WINDOWS[name]
    schedule, kernel = kerneled(parts, ranks_of, k)
    text = writer.write(schedule, kernel=kernel)
    for j in (0, 1, 2, 3, 7, 20):
        longer = in_turn([" ".join(filter(None, [a, *[b] * (1 + j), c])) for a, b, c in parts], ranks_of)
        again = unrolled(schedule, kernel, j)
        assert [again.order(r) for r in range(again.ranks)] == [longer.order(r) for r in range(longer.ranks)]
        laws(longer, text, m=schedule.microbatches + j * k)
        assert without_sizes(writer.write(again, kernel=replace(kernel, copies=j))) == without_sizes(text)
    if k > 1:
        with pytest.raises(PipeschedError, match="the part that repeats runs 2 microbatches"):
            read(text, m=schedule.microbatches + 1)
    with pytest.raises(PipeschedError, match="the part that repeats"):
        read(text, m=schedule.microbatches - k)


def test_a_kernel_joins_what_goes_on_with_it() -> None:
    """1F1B with one kernel is written as people write it: m is in the count of the steady part."""
    schedule, kernel = kerneled(*WINDOWS["1f1b"])
    text = writer.write(schedule, kernel=kernel)
    assert "  repeat m - 3 + r { F  B }\n" in text
    later = replace(kernel, low=[x + 1 for x in kernel.low], high=[x + 1 for x in kernel.high])
    assert writer.write(schedule, kernel=later) == text


def test_a_kernel_begins_with_its_forward() -> None:
    """Among equally short cuts of the period, the customary one is chosen."""
    schedule, kernel = kerneled([("F0 F0 F0 B0 B0 F0 B0", "F0 B0", "F0 B0 B0")], [0], 1)
    text = writer.write(schedule, kernel=kernel)
    assert "  F  F  F  B  B\n  repeat m - 3 { F  B }\n  B\n" in text


@settings(max_examples=deep(12, usual=6), deadline=None)
@given(SEEDS, st.integers(1, 3), st.integers(1, 2), st.integers(1, 3))
def test_random_kernels(seed: int, ranks: int, chunks: int, k: int) -> None:
    """Random kernels between a regular prefix and suffix are found."""
    rng = random.Random(seed)
    parts = []
    for rank in range(ranks):
        alone = " ".join(f"F{s} I{s} W{s}" for s in range(rank, ranks * chunks, ranks))
        before = rng.choice((0, 1, 2))
        parts.append((times(alone, before), " ".join(_lawful(alone.split() * k, rng)), times(alone, 4 - before)))
    schedule, kernel = kerneled(parts, [s % ranks for s in range(ranks * chunks)], k)
    text = writer.write(schedule, kernel=kernel)
    for j in (0, 1, 4):
        laws(unrolled(schedule, kernel, j), text, m=schedule.microbatches + j * k)


def _lawful(kernel: list[str], rng: random.Random) -> list[str]:
    """Return the same operations in another order, with no I before its F and no W before its I."""
    left = list(kernel)
    done: dict[str, int] = {}
    order = []
    while left:
        ready = [x for x in left if x[0] == "F" or done.get("FI"["IW".index(x[0])] + x[1:], 0) > done.get(x, 0)]
        x = rng.choice(sorted(ready))
        left.remove(x)
        done[x] = done.get(x, 0) + 1
        order.append(x)
    return order


def test_no_kernel() -> None:
    """A part that does not run each stage K times, or is not within the order, is refused."""
    schedule, kernel = kerneled(*WINDOWS["1f1b"])
    for wrong in (
        Kernel(2, kernel.low, kernel.high),
        Kernel(1, kernel.low, [x + 1 for x in kernel.high]),
        Kernel(1, kernel.low[1:], kernel.high[1:]),
        Kernel(1, [-1, *kernel.low[1:]], kernel.high),
        Kernel(0, kernel.low, kernel.low),
        replace(kernel, copies=3),
        replace(kernel, copies=-1),
        replace(kernel, copies=100),
    ):
        assert wrong.fault(schedule)
        with pytest.raises(ValueError, match=re.escape(wrong.fault(schedule))):
            writer.write(schedule, kernel=wrong)
    elsewhere, _ = kerneled(*WINDOWS["the same order with its kernels elsewhere"])
    assert "copies" in Kernel(2, [0] * 3, [4] * 3, copies=1).fault(elsewhere)
    assert Kernel(1, [0], [1]).fault(pipesched.load("dualpipe", p=2, m=4))
