"""Orders for the vee placement: ZB-V, and everything that repeats a building block.

ZB-V (Qi et al., 2023, arXiv:2401.10241, section 6) is written out. A building block (Qi et al., 2024, arXiv:2405.15362)
is when one microbatch runs its four operations a, b = F of the rank's first and second stage, B, A their backwards,
in slots of one unit; it is repeated every 6 slots, and W take the two that are left:

    slot on position j     a: 0 + up j      b: b0 - j      B: B0 + up j      A: A0 - j        up = 1: V-Min, 2: V-Half

The time from a to A and from b to B, over 6, is what a rank holds. All blocks whose four slots never meet are tried,
with one `up` for the first positions and another for the rest; V-Min and V-Half are two of them. The slots only give
the order: it is run as early as it goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, permutations, product

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimize.portfolio.shape import Shape, Token, shape, written
from pipesched.optimize.problem import Orders, Problem

PERIOD = 6


@dataclass(frozen=True)
class Block:
    """slots: int64, shape (4, positions): a, b, B, A; free: the residues left for W, shape (2, positions)."""

    name: str
    slots: Ints
    free: Ints

    @property
    def chunks(self) -> int:
        """A bound on the chunks that a rank holds, W within a period after its backward."""
        a, b, late_b, late_a = self.slots
        return int((-((a - late_a - 1) // PERIOD) - ((b - late_b - 1) // PERIOD)).max())


def block(name: str, steps: tuple[int, ...], starts: tuple[int, ...]) -> Block | None:
    """The block with these steps between positions and these residues of b, B, A on position 0; None if slots meet."""
    size = len(steps) + 1
    up = np.array([0, *accumulate(steps)], dtype=np.int64)
    down = -np.arange(size)
    b0, back_b0, back_a0 = starts
    slots = np.zeros((4, size), dtype=np.int64)
    slots[0] = up
    slots[1] = down + _after(b0 - size + 1, int(up[-1]) + 1) + size - 1
    slots[2] = up + _after(back_b0, int(slots[1, 0]) + 1)
    slots[3] = down + _after(back_a0 - size + 1, int(slots[2, -1]) + 1) + size - 1
    left = np.ones((PERIOD, size), dtype=np.bool_)
    for row in slots % PERIOD:
        if not left[row, np.arange(size)].all():
            return None
        left[row, np.arange(size)] = False
    free = np.array([np.flatnonzero(column) for column in left.T], dtype=np.int64).T
    return Block(name, slots, free)


def _after(residue: int, least: int) -> int:
    """The least number from `least` up with this residue."""
    return least + (residue - least) % PERIOD


def blocks(size: int) -> list[Block]:
    """All blocks of a step that changes once, without doubles; those that hold least first."""
    found: dict[bytes, Block] = {}
    for first, then in product(range(1, 6), repeat=2):
        if then > first:
            continue
        for turn in range(size if first != then else 1):
            steps = tuple(first if j < turn else then for j in range(size - 1))
            for starts in permutations(range(1, PERIOD), 3):
                made = block(_name(steps), steps, starts)
                if made is not None:
                    found.setdefault(made.slots.tobytes(), made)
    return sorted(found.values(), key=lambda b: (b.chunks, int(b.slots[3].max())))


def _name(steps: tuple[int, ...]) -> str:
    return {frozenset({1}): "V-Min", frozenset({2}): "V-Half"}.get(frozenset(steps), "V building block")


def slots(problem: Problem, made: Block) -> Ints:
    """The slot of every operation, int64, shape (operations,); W in the first free residue after its backward."""
    form = shape(problem)
    at = np.zeros(problem.operations, dtype=np.int64)
    size = len(form.way)
    position = {rank: j for j, rank in enumerate(form.way)}
    for q in range(problem.sequences):
        j, second = position[int(problem.rank[q])], int(problem.stage[q]) >= size
        a, b, back_b, back_a = made.slots[:, j].tolist()
        op = int(problem.op[q])
        slot = (b if second else a) if op == Op.F else (back_b if second else back_a)
        if op == Op.W:
            slot = _pairs(back_b, back_a, *made.free[:, j].tolist())[0 if second else 1]
        low, high = int(problem.first[q]), int(problem.first[q + 1])
        at[low:high] = slot + PERIOD * np.arange(high - low)
    return at


def _pairs(back_b: int, back_a: int, one: int, two: int) -> tuple[int, int]:
    """The slots of the W of both stages, together as early as possible."""
    ways = [
        (_after(one, back_b + 1), _after(two, back_a + 1)),
        (_after(two, back_b + 1), _after(one, back_a + 1)),
    ]
    return min(ways, key=sum)


def in_slots(problem: Problem, at: Ints) -> Orders:
    """The operations of each rank by slot."""
    orders: list[list[int]] = []
    for held in problem.on:
        mine = np.concatenate([np.arange(problem.first[q], problem.first[q + 1]) for q in held])
        orders.append(mine[np.argsort(at[mine], kind="stable")].tolist())
    return orders


def vee(problem: Problem) -> Iterator[tuple[str, Orders]]:
    """Named orders for the vee placement with the backward split; not all keep to the caps."""
    form = shape(problem)
    if form.kind != "vee" or problem.fused:
        return
    yield "ZB-V", zb_v(problem, form)
    takes = int(problem.takes.max(initial=0))
    room = int(problem.cap.max()) // takes if takes else problem.operations
    for made in blocks(len(form.way)):
        if made.chunks <= room + 1:
            yield made.name, in_slots(problem, slots(problem, made))


def zb_v(problem: Problem, form: Shape) -> Orders:
    """The order that needs as much memory as 1F1B and leaves no bubble in the steady state."""
    size, length = len(form.way), problem.placement.microbatches

    def tokens(j: int) -> Iterator[Token]:
        return (token for token, i in _zb_v(size, max(2 * size - 1, length), j) if i < length)

    return written(problem, form, tokens)


def _zb_v(size: int, n: int, j: int) -> Iterator[tuple[Token, int]]:
    count: dict[Token, int] = {}

    def run(*what: tuple[Op, int]) -> Iterator[tuple[Token, int]]:
        for token in what:
            i = count.get(token, 0)
            if i < n:
                count[token] = i + 1
                yield token, i

    fa, fb, ia, ib, wa, wb = (Op.F, 0), (Op.F, 1), (Op.I, 0), (Op.I, 1), (Op.W, 0), (Op.W, 1)
    for _ in range(2 * (size - j) - 1):
        yield from run(fa)
    for _ in range(j):
        yield from run(fb, fa)
    for _ in range(size - j):
        yield from run(fb, ib, wb)
    while count.get(fa, 0) < n or count.get(fb, 0) < count.get(fa, 0):
        if count.get(fa, 0) < n:
            yield from run(fa)
        yield from run(ia, wa, fb, ib, wb)
    for _ in range(j):
        yield from run(ia, ib)
    for _ in range(size - j):
        yield from run(ia, wa)
    for _ in range(n):
        yield from run(wb)
    for _ in range(n):
        yield from run(wa)
