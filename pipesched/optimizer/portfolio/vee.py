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
from itertools import accumulate, pairwise, permutations, product

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.portfolio.shape import Shape, Token, shape, written
from pipesched.optimizer.problem import Orders, Problem

PERIOD = 6
FEW = 16


@dataclass(frozen=True)
class Block:
    """slots: int64, shape (6, positions): a, b, B, A, and the W of b and of a."""

    name: str
    slots: Ints

    @property
    def chunks(self) -> int:
        """Most that a rank holds while the block repeats."""
        a, b, _, _, done_b, done_a = self.slots[:, None, :]
        t = np.arange(PERIOD)[:, None]
        held = (t - a) // PERIOD + (t - b) // PERIOD - (t - done_a - 1) // PERIOD - (t - done_b - 1) // PERIOD
        return int(held.max())


def block(name: str, steps: tuple[int, ...], starts: tuple[int, ...]) -> Block | None:
    """The block with these steps between positions and these residues of b, B, A on position 0; None if slots meet."""
    size = len(steps) + 1
    up = np.array([0, *accumulate(steps)], dtype=np.int64)
    down = -np.arange(size)
    b0, back_b0, back_a0 = starts
    a = up
    b = down + _after(b0 - size + 1, int(a[-1]) + 1) + size - 1
    back_b = up + _after(back_b0, int(b[0]) + 1)
    back_a = down + _after(back_a0 - size + 1, int(back_b[-1]) + 1) + size - 1
    slots = np.stack([a, b, back_b, back_a])
    columns = [_with_weights(column) for column in slots.T.tolist()]
    return None if None in columns else Block(name, np.array(columns, dtype=np.int64).T)


def _with_weights(slots: list[int]) -> list[int] | None:
    """Two more slots for W, together as early as possible; None if the four meet."""
    left = sorted(set(range(PERIOD)) - {slot % PERIOD for slot in slots})
    if len(left) > PERIOD - len(slots):
        return None
    ways = [[_after(one, slots[2] + 1), _after(two, slots[3] + 1)] for one, two in permutations(left)]
    return slots + min(ways, key=sum)


def _after(residue: int, least: int) -> int:
    """The least number from `least` up with this residue."""
    return least + (residue - least) % PERIOD


def blocks(size: int) -> list[Block]:
    """All blocks of a step that changes once, without doubles; those that hold most first.

    At more than FEW positions only those of one step: there are as many of the others as positions times these.
    """
    found: dict[bytes, Block] = {}
    for first, then in product(range(1, PERIOD), repeat=2):
        for turn in range(size if first > then and size <= FEW else first == then):
            steps = tuple(first if j < turn else then for j in range(size - 1))
            for starts in permutations(range(1, PERIOD), 3):
                made = block(_name(steps), steps, starts)
                if made is not None:
                    found.setdefault(made.slots.tobytes(), made)
    return sorted(found.values(), key=lambda b: (-b.chunks, int(b.slots.max())))


def _name(steps: tuple[int, ...]) -> str:
    return {frozenset({1}): "V-Min", frozenset({2}): "V-Half"}.get(frozenset(steps), "V building block")


def slots(problem: Problem, made: Block) -> Ints:
    """The slot of every operation, int64, shape (operations,)."""
    form = shape(problem)
    size = len(form.way)
    position = np.argsort(np.array(form.way))[problem.rank]
    second = problem.stage >= size
    row = np.select([problem.op == Op.F, problem.op == Op.I], [second, 3 - second], 5 - second)
    at: Ints = made.slots[row, position][problem.sequence] + PERIOD * problem.index
    return at


def in_slots(problem: Problem, at: Ints) -> Orders:
    """The operations of each rank by slot."""
    order = np.lexsort((at, problem.rank[problem.sequence]))
    cut = np.searchsorted(problem.rank[problem.sequence[order]], np.arange(problem.ranks + 1))
    return [order[low:high].tolist() for low, high in pairwise(cut.tolist())]


def building_blocks(problem: Problem) -> Iterator[tuple[str, Orders]]:
    """Named orders for the vee placement with the backward split, of all blocks within the largest cap."""
    form = shape(problem)
    if form.kind != "vee" or problem.fused:
        return
    takes = int(problem.takes.max(initial=0))
    room = int(problem.cap.max()) // takes if takes else problem.operations
    for made in blocks(len(form.way)):
        if made.chunks <= room:
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
