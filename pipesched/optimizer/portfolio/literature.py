"""The orders of the literature, at the caps of the problem.

One stage a rank: an order is given by how many forwards come before the first backward, and how many W are put off,
at each position j of p (Qi et al., ICLR 2024, arXiv:2401.10241, section 2.3; Narayanan et al., SC 2021):

    GPipe     m              0            1F1B      p - 1 - j       0
    ZB-H1     p - 1 - j      j            ZB-H2     2(p - 1 - j)    2j

A cap k leaves room for k - 1 forwards before the first backward, and no position may be further ahead than the one
before it. Where a forward finds no room, W that were put off come first; where even that does not help, it waits.

Long batches under small caps, where F, I and W take one tick and messages none: microbatches run in round trips.

    k at a time, 3k <= 2p + 2; microbatch i = nk + j starts on rank 0 at A = n (2p + 2) + 6 (j // 2) + 2 (j % 2)

    rank s      F at A + s      I at A + 2p - 1 - s      W of the oldest I in the first free tick

Nothing waits: all F of a rank have one parity and all I the other, and W has what they leave of three ticks. A trip
of k microbatches takes 2p + 2, which is the least (`check.optimum_meetings`). Where the last trip has an odd number of
microbatches the last one starts a tick earlier, and the I that are behind it a tick later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, count

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.portfolio.shape import Shape, Token, shape, written
from pipesched.optimizer.problem import Orders, Problem


def known(problem: Problem) -> Iterator[tuple[str, Orders]]:
    """Named orders that fit the placement, the best first; not all keep to the caps."""
    form = shape(problem)
    if (found := trips(problem, form)) is not None:
        yield "round trips", found
    if form.kind == "linear":
        yield from _linear(problem, form)
    elif form.kind == "loop":
        yield from _loop(problem, form)
    elif form.kind == "vee" and not problem.fused:
        yield "ZB-V", zb_v(problem, form)


def warmups(problem: Problem, form: Shape, wanted: Sequence[int]) -> list[int]:
    """What is wanted, cut to what the caps leave room for; by position."""
    takes = {int(problem.stage[q]): int(problem.takes[q]) for q in range(problem.sequences) if problem.op[q] == Op.F}
    length = problem.placement.microbatches
    extra = [max(0, -int(x)) for x in problem.frees]
    rooms = []
    for stage, rank in enumerate(form.way):
        more = max(extra[q] for q in problem.on[rank])
        rooms.append((int(problem.cap[rank]) - more) // takes[stage] if takes[stage] else length)
    return list(accumulate((max(0, min(n, length, room - 1)) for n, room in zip(wanted, rooms, strict=True)), min))


def _linear(problem: Problem, form: Shape) -> Iterator[tuple[str, Orders]]:
    size, length = len(form.way), problem.placement.microbatches
    down = [size - 1 - j for j in range(size)]
    twice = [2 * n for n in down]
    plans: list[tuple[str, Sequence[int], Sequence[int]]] = [
        ("ZB-H1", down, range(size)),
        ("ZB-H2", twice, [2 * j for j in range(size)]),
        ("1F1B", down, [0] * size),
        ("1F1B with late W", down, [length] * size),
        ("ZB-H2 with late W", twice, [length] * size),
        ("GPipe", [length] * size, [0] * size),
    ]
    for name, wanted, put_off in plans:
        if not problem.fused or name in ("1F1B", "GPipe"):
            cut = warmups(problem, form, wanted) != [min(n, length) for n in wanted]
            yield name + " cut to the caps" * cut, profile(problem, form, wanted, put_off)


def profile(problem: Problem, form: Shape, wanted: Sequence[int], put_off: Sequence[int]) -> Orders:
    """wanted: forwards before the first backward; put_off: W that are put off; by position. One stage a rank."""
    warmup = warmups(problem, form, wanted)
    orders: list[list[int]] = [[] for _ in range(problem.ranks)]
    for position, rank in enumerate(form.way):
        orders[rank] = _one_rank(problem, rank, warmup[position], put_off[position])
    return orders


def _one_rank(problem: Problem, rank: int, warmup: int, put_off: int) -> list[int]:
    by_op = {int(problem.op[q]): q for q in problem.on[rank]}
    f, back, w = by_op[Op.F], by_op[Op.B if problem.fused else Op.I], by_op.get(Op.W, -1)
    at_f, at_back, at_w = (int(problem.first[q]) for q in (f, back, w))
    take, freed, late = int(problem.takes[f]), int(problem.frees[back]), int(problem.frees[w]) if w >= 0 else 0
    cap, length = int(problem.cap[rank]), int(problem.length[f])
    extra = max(0, -freed)
    order: list[int] = []
    forwards = done = held = 0
    if w < 0:
        done = length
    for i in range(length):
        while forwards <= min(warmup + i, length - 1):
            while held + take + extra > cap and done < i:
                order.append(at_w + done)
                done += 1
                held -= late
            if held + take + extra > cap and forwards > i:
                break
            order.append(at_f + forwards)
            forwards += 1
            held += take
        while held + extra > cap and done < i:
            order.append(at_w + done)
            done += 1
            held -= late
        order.append(at_back + i)
        held -= freed
        while done <= i - put_off:
            order.append(at_w + done)
            done += 1
            held -= late
    order += range(at_w + done, at_w + length) if w >= 0 else ()
    return order


def _loop(problem: Problem, form: Shape) -> Iterator[tuple[str, Orders]]:
    """Interleaved 1F1B in groups of p, or as near to p as m allows; with the backward split, its zero bubble too."""
    size, length = len(form.way), problem.placement.microbatches
    for group in sorted({min(size, length), *(n for n in range(1, length + 1) if length % n == 0 and n >= size)}):
        words = "" if group == size else f" in groups of {group}"
        if not problem.fused:
            yield f"interleaved zero bubble{words}", _interleaved(problem, form, group, zero=True)
        yield f"interleaved 1F1B{words}", _interleaved(problem, form, group, zero=False)


def _interleaved(problem: Problem, form: Shape, group: int, *, zero: bool) -> Orders:
    size, chunks, length = len(form.way), form.chunks, problem.placement.microbatches
    turns = [
        c for start in range(0, length, group) for c in range(chunks) for _ in range(start, min(start + group, length))
    ]

    def tokens(position: int) -> Iterator[Token]:
        ahead = size - 1 - position
        warmup = min(ahead * (1 if zero else 2) + (chunks - 1) * group, len(turns))
        for c in turns[:warmup]:
            yield Op.F, c
        waiting: list[int] = []
        for k, c in enumerate(turns):
            if warmup + k < len(turns):
                yield Op.F, turns[warmup + k]
            yield (Op.I if zero else Op.B), chunks - 1 - c
            if zero:
                waiting.append(chunks - 1 - c)
                if k >= position:
                    yield Op.W, waiting.pop(0)

    return written(problem, form, tokens)


def trips(problem: Problem, form: Shape) -> Orders | None:
    """The order, which is one for other times too; None where a rank has no room for a microbatch."""
    takes, cap = problem.takes, problem.cap[problem.rank]
    if problem.fused or form.kind != "linear" or not (takes > 0).any():
        return None
    room = min(int((cap[takes > 0] // takes[takes > 0]).min()), (2 * len(form.way) + 2) // 3)
    return _trips(problem, form, room) if room else None


def _trips(problem: Problem, form: Shape, room: int) -> Orders:
    size, i = len(form.way), np.arange(problem.placement.microbatches)
    begin = i // room * (2 * size + 2) + i % room // 2 * 6 + i % room % 2 * 2
    earlier = len(i) > room and (len(i) - 1) % room % 2 == 0
    begin[-1] -= earlier
    orders: list[list[int]] = [[] for _ in range(problem.ranks)]
    for stage, rank in enumerate(form.way):
        forward, inner = begin + stage, begin + 2 * size - 1 - stage
        inner[:-1] += earlier & (inner[:-1] >= forward[-1])
        weight = _gaps(set(forward.tolist()) | set(inner.tolist()), inner)
        first = {int(problem.op[q]): int(problem.first[q]) for q in problem.on[rank]}
        numbers = np.concatenate([first[op] + i for op in (Op.F, Op.I, Op.W)])
        orders[rank] = numbers[np.argsort(np.concatenate([forward, inner, weight]), kind="stable")].tolist()
    return orders


def _gaps(busy: set[int], inner: Ints) -> Ints:
    """The first free tick after each I."""
    made, t = [], 0
    for ready in inner.tolist():
        t = next(at for at in count(max(t, ready + 1)) if at not in busy)
        made.append(t)
        t += 1
    return np.array(made, dtype=np.int64)


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
