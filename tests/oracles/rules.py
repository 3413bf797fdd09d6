"""The published orders, computed by index from the rules in their sources, one rank at a time.

Each function gives rank r's order as words, ``F0.3`` or ``F3.6+B2.1``. Sources: GPipe, arXiv:1811.06965;
1F1B and interleaved 1F1B, arXiv:2104.04473 and the table of virtual microbatches of its implementation; ZB-H1 and
ZB-H2, arXiv:2401.10241, figure 3 and the authors' code; ZB-V, the handcrafted generator of the same code; groups of n
microbatches and the deeper warm-up, the table of virtual microbatches and the count of warm-up forwards of
Megatron-core 0.16.1; looped BFS and interleaved zero bubble, torch 2.13; eager 1F1B, arXiv:2211.05322; Chimera and
BitPipe, the authors' code; the blocks of the V family, arXiv:2405.15362, and its moves, the authors' code; Seq1F1B and
its interleaved form, arXiv:2406.03488 and the authors' code; grouped interleaved 1F1B, the block of PipeOffload's
code; TeraPipe, the authors' code; DualPipe, arXiv:2412.19437, and DualPipeV, the eight steps of their code.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence


def gpipe(p: int, m: int, r: int) -> Iterator[str]:
    """Yield F0..F(m-1), then B for all in microbatch order."""
    yield from (f"F{r}.{i}" for i in range(m))
    yield from (f"B{r}.{i}" for i in range(m))


def one_f_one_b(p: int, m: int, r: int) -> Iterator[str]:
    """Yield w = min(p-1-r, m). F0..F(w-1); for i < m-w: F(w+i), B(i); then B(m-w..m-1)."""
    w = min(p - 1 - r, m)
    yield from (f"F{r}.{i}" for i in range(w))
    for i in range(m - w):
        yield f"F{r}.{w + i}"
        yield f"B{r}.{i}"
    yield from (f"B{r}.{i}" for i in range(m - w, m))


def naive(p: int, m: int, r: int) -> Iterator[str]:
    """Yield every microbatch forward and backward before the next one."""
    for i in range(m):
        yield from (f"F{r}.{i}", f"B{r}.{i}")


def gpipe_reversed(p: int, m: int, r: int) -> Iterator[str]:
    """Yield F0..F(m-1), then B(m-1)..B0."""
    yield from (f"F{r}.{i}" for i in range(m))
    yield from (f"B{r}.{m - 1 - i}" for i in range(m))


def eager_1f1b(p: int, m: int, r: int) -> Iterator[str]:
    """Yield 1F1B that begins with F0..F(2(p-1-r)-1)."""
    ahead, left = deque(f"F{r}.{i}" for i in range(m)), deque(f"B{r}.{i}" for i in range(m))
    for _ in range(2 * (p - 1 - r)):
        if ahead:
            yield ahead.popleft()
    while left:
        if ahead:
            yield ahead.popleft()
        yield left.popleft()


def _table(p: int, v: int, m: int, n: int, r: int, back: str = "B") -> tuple[list[str], list[str]]:
    """Return the forwards and backwards of a rank: groups of n microbatches, the last one with the rest of m.

    The k-th forward is table[k], the k-th backward the mirrored chunk of table[k].
    """
    table = []
    for first in range(0, m, n):
        for chunk in range(v):
            table += [(chunk, i) for i in range(first, min(first + n, m))]
    forward = [f"F{chunk * p + r}.{i}" for chunk, i in table]
    return forward, [f"{back}{(v - 1 - chunk) * p + r}.{i}" for chunk, i in table]


def interleaved(p: int, v: int, m: int, r: int, n: int = 0) -> Iterator[str]:
    """Yield Warm-up 2(p-r-1) + (v-1)n, then pairs; n is p if none is given."""
    forward, backward = _table(p, v, m, n or p, r)
    w = min(2 * (p - r - 1) + (v - 1) * (n or p), m * v)
    yield from forward[:w]
    for k in range(m * v - w):
        yield forward[w + k]
        yield backward[k]
    yield from backward[m * v - w :]


def interleaved_overlap(p: int, v: int, m: int, r: int) -> Iterator[str]:
    """Yield the order with one more forward before the pairs, whose two parts share a slot."""
    forward, backward = _table(p, v, m, p, r)
    w = min(2 * (p - r - 1) + (v - 1) * p + 1, m * v)
    yield from forward[:w]
    yield from map("+".join, zip(forward[w:], backward, strict=False))
    yield from backward[m * v - w :]


def interleaved_zb(p: int, v: int, m: int, r: int) -> Iterator[str]:
    """Yield the rounds of m / max(1, m // p); warm-up (v-1) rounds + p-1-r; F, I, and from the r-th I on a W, oldest
    first."""
    n = m // max(1, m // p)
    forward, backward = _table(p, v, m, n, r, "I")
    w = min((v - 1) * n + p - 1 - r, m * v)
    weights = iter(word.replace("I", "W") for word in backward)
    yield from forward[:w]
    for k, word in enumerate(backward):
        yield from forward[w + k : w + k + 1]
        yield word
        if k >= r:
            yield next(weights)
    yield from weights


def grouped(p: int, v: int, m: int, r: int, n: int) -> Iterator[str]:
    """Yield a block of 3nv slots for n microbatches, repeated: F takes a slot and B two; F follows a slot later down
    the ranks, B two slots later up again. A chunk begins 3n slots after the one before it, B on the last rank right
    after its F.
    """
    at = {}
    for i in range(m):
        for c in range(v):
            begin = i // n * 3 * n * v + i % n * 3 + 3 * n * c
            at[begin + r] = f"F{c * p + r}.{i}"
            at[begin + 3 * n * (v - 1) + p + 2 * (p - 1 - r)] = f"B{(v - 1 - c) * p + r}.{i}"
    assert len(at) == 2 * m * v, "two in one slot"
    yield from (at[slot] for slot in sorted(at))


def seq1f1b_i(p: int, v: int, m: int, r: int, q: int) -> Iterator[str]:
    """Yield the forwards of interleaved 1F1B, with q - 1 more in the warm-up; a backward takes the last slice of the
    chunk's oldest sequence.
    """
    forward, turns = _table(p, v, m, p, r)
    held: dict[str, deque[list[int]]] = {}
    w = min(2 * (p - r - 1) + (v - 1) * p + q - 1, m * v)
    for k in range(m * v + w):
        if k < m * v:
            stage, i = forward[k][1:].split(".")
            sequences = held.setdefault(stage, deque())
            sequences.extend([[]] if int(i) % q == 0 else [])
            sequences[-1].append(int(i))
            yield forward[k]
        if k >= w:
            stage = turns[k - w][1:].split(".")[0]
            yield f"B{stage}.{held[stage][0].pop()}"
            if not held[stage][0]:
                held[stage].popleft()


def looped_bfs(p: int, v: int, m: int, r: int) -> Iterator[str]:
    """Yield the stages of the rank ascending, F of all microbatches each; then descending, B of all, the last one
    first."""
    for stage in range(r, p * v, p):
        yield from (f"F{stage}.{i}" for i in range(m))
    for stage in reversed(range(r, p * v, p)):
        yield from (f"B{stage}.{i}" for i in reversed(range(m)))


def _zero_bubble(m: int, r: int, w: int, late: int) -> Iterator[str]:
    """Yield F0..F(w-1); for i in 0..m-1: F(w+i) if any is left, I(i), the next W if i >= late; then the W that are
    left."""
    yield from (f"F{r}.{i}" for i in range(min(w, m)))
    weights = iter(range(m))
    for i in range(m):
        if w + i < m:
            yield f"F{r}.{w + i}"
        yield f"I{r}.{i}"
        if i >= late:
            yield f"W{r}.{next(weights)}"
    yield from (f"W{r}.{i}" for i in weights)


def zb_h1(p: int, m: int, r: int) -> Iterator[str]:
    return _zero_bubble(m, r, p - 1 - r, r)


def zb_h2(p: int, m: int, r: int) -> Iterator[str]:
    return _zero_bubble(m, r, 2 * (p - 1 - r), 2 * r)


def zb_v(p: int, m: int, r: int) -> Iterator[str]:
    """Return the pattern of n = max(2p-1, m) microbatches, without the microbatches from m on. a, b: the two stages.

    2(p-r)-1 x Fa; r x (Fb, Fa); (p-r) x (Fb, Ib, Wb); while Fb is behind Fa, or Fa behind n: [Fa], Ia, Wa, Fb, Ib, Wb;
    then r x (Ia, Ib); (p-r) x (Ia, the next Wa); the Wb that are left; the Wa that are left.
    """
    n, stage = max(2 * p - 1, m), {"a": r, "b": 2 * p - 1 - r}
    done = {kind + chunk: 0 for kind in "FIW" for chunk in "ab"}
    words = []

    def run(*kinds: str) -> None:
        for kind in kinds:
            if done[kind] < m:
                words.append(f"{kind[0]}{stage[kind[1]]}.{done[kind]}")
            done[kind] += 1

    run(*["Fa"] * (2 * (p - r) - 1))
    run(*["Fb", "Fa"] * r)
    run(*["Fb", "Ib", "Wb"] * (p - r))
    while done["Fb"] < done["Fa"] or done["Fa"] < n:
        run(*["Fa"] * (done["Fa"] < n), "Ia", "Wa", "Fb", "Ib", "Wb")
    run(*["Ia", "Ib"] * r)
    run(*["Ia", "Wa"] * (p - r))
    run(*["Wb"] * (n - done["Wb"]))
    run(*["Wa"] * (n - done["Wa"]))
    return iter(words)


class _DualPipeRank:
    """A rank of DualPipe or DualPipeV: its two stages, first the one where microbatches enter."""

    def __init__(self, stages: Sequence[int], microbatches: Sequence[range]) -> None:
        self.stage = stages
        self.forwards = [iter(own) for own in microbatches]
        self.backwards = [iter(own) for own in microbatches]
        self.pending: list[str] = []

    def f(self, direction: int) -> str:
        return f"F{self.stage[direction]}.{next(self.forwards[direction])}"

    def b(self, direction: int) -> str:
        return f"B{self.stage[direction]}.{next(self.backwards[direction])}"

    def i(self, direction: int) -> str:
        what = f"{self.stage[direction]}.{next(self.backwards[direction])}"
        self.pending.append(f"W{what}")
        return f"I{what}"

    def w(self) -> str:
        return self.pending.pop(0)


def dualpipe(p: int, m: int, r: int) -> Iterator[str]:
    """Return the eight steps with h = p/2, q = min(r, p-1-r). Two routes of m/2 microbatches; the near one enters
    here."""
    halves, stages = (range(m // 2), range(m // 2, m)), (r, p - 1 - r)
    down = 1 if r < p // 2 else -1
    return _eight_steps(_DualPipeRank(stages[::down], halves[::down]), m // 2, p // 2, min(r, p - 1 - r))


def dualpipev(p: int, m: int, r: int) -> Iterator[str]:
    """Return the eight steps with p for p/2, m for m/2, r for q; every microbatch takes both stages of the rank."""
    return _eight_steps(_DualPipeRank((r, 2 * p - 1 - r), (range(m), range(m))), m, p, r)


def _eight_steps(x: _DualPipeRank, m: int, h: int, q: int) -> Iterator[str]:
    for _ in range(2 * (h - q - 1)):  # 1
        yield x.f(0)
    for _ in range(q + 1):  # 2
        yield from (x.f(0), x.f(1))
    for _ in range(h - q - 1):  # 3
        yield from (x.i(1), x.w(), x.f(1))
    for k in range(m - 2 * h + q + 1):  # 4; where the pipeline turns the very first pair runs one after the other
        yield from (x.f(0), x.b(1)) if k == 0 and q == h - 1 else (f"{x.f(0)}+{x.b(1)}",)
        yield f"{x.f(1)}+{x.b(0)}"
    for _ in range(h - q - 1):  # 5
        yield from (x.b(1), f"{x.f(1)}+{x.b(0)}")
    yield from _dualpipe_6(x, q)
    for _ in range(h - q - 1):  # 7
        yield from (x.w(), x.i(0))
    for _ in range(q + 1):  # 8
        yield x.w()


def _dualpipe_6(x: _DualPipeRank, q: int) -> Iterator[str]:
    """Yield (q+1) x (B1, B0); from iteration (q+1)//2 on they become I: from its B1 if q is odd, from its B0 if q is
    even."""
    half = 2 * ((q + 1) // 2) + (0 if q % 2 else 1)  # the place, among these 2(q+1) backwards, where that begins
    for k in range(2 * (q + 1)):
        direction = 1 if k % 2 == 0 else 0
        yield x.i(direction) if k >= half else x.b(direction)


def _walked(p: int, m: int, r: int, ways: Sequence[Sequence[int]]) -> Iterator[str]:
    """Yield the pipelines in slots of one F or B: p microbatches at a time, as evenly over the ways as possible, two
    slots apart.

    A microbatch takes a slot on each stage and returns by the same way; the next p begin when a rank could have
    finished these. ways: the ranks of the stages of each.
    """
    each, busy = p // len(ways), 2 * len(ways[0])
    seen = []
    for way, ranks in enumerate(ways):
        path = [("F", stage) for stage in range(len(ranks))] + [("B", stage) for stage in reversed(range(len(ranks)))]
        for i, microbatch in enumerate(range(-(-m * way // len(ways)), -(-m * (way + 1) // len(ways)))):
            begin = i // each * busy + 2 * (i % each)
            seen += [(begin + t, f"{k}{s}.{microbatch}") for t, (k, s) in enumerate(path) if ranks[s] == r]
    assert len({slot for slot, _ in seen}) == len(seen), "two at once"
    yield from (word for _, word in sorted(seen))


def chimera(p: int, m: int, r: int) -> Iterator[str]:
    """Return the orders of two routes, down and up."""
    return _walked(p, m, r, [range(p), range(p)[::-1]])


def chimera2(p: int, m: int, r: int) -> Iterator[str]:
    """Return the orders of two routes down and up from the ends, and two from the middle."""
    half = p // 2
    starts = [[*range(p)], [*range(half, p), *range(half)]]
    return _walked(p, m, r, [way[::turn] for way in starts for turn in (1, -1)])


def hanayo(p: int, v: int, m: int, r: int) -> Iterator[str]:
    """Return the down and up again, v / 2 times."""
    return _walked(p, m, r, [[*range(p), *range(p)[::-1]] * (v // 2)])


def bitpipe(p: int, m: int, r: int) -> Iterator[str]:
    """Yield the lists of the authors' code: the order of the four stages of a rank, forwards and backwards.

    near: the way that enters at this half of the ranks, far: the other one; 1 and 2: the first and the second half of
    its stages. Of p microbatches h = p/2 go each way; a is the distance to the middle.
    """
    h = p // 2
    stages = {"d1": r, "u1": p - 1 - r, "d2": 2 * p - 1 - r, "u2": p + r}
    near, far, a = ("d", "u", h - r) if r < h else ("u", "d", r - h + 1)

    def turns(one: str, two: str) -> list[str]:
        """Return near one, far one, far two, near two: each h times, overlapping."""
        first = [near + one] * a + [far + one, near + one] * (h - a) + [far + one, far + two] * a
        return first + [near + two, far + two] * (h - a) + [near + two] * a

    def words(kind: str, order: list[str]) -> Iterator[str]:
        count = {key: itertools.count(0 if key[0] == "d" else m // 2) for key in stages}
        return (f"{kind}{stages[key]}.{next(count[key])}" for key in order)

    forward, backward = words("F", turns("1", "2") * (m // p)), words("B", turns("2", "1") * (m // p))
    warmup = p + h + min(r, p - 1 - r)
    left = 2 * p - warmup
    yield from itertools.islice(forward, warmup)
    for _ in range(m // p - 1):
        yield from itertools.chain.from_iterable(zip(itertools.islice(forward, left), backward, strict=False))
        yield from itertools.islice(backward, warmup - left + 1)
        yield from itertools.chain.from_iterable(zip(itertools.islice(forward, left - 1), backward, strict=False))
        yield from itertools.islice(forward, warmup - left + 1)
    yield from itertools.chain.from_iterable(zip(forward, backward, strict=False))
    yield from backward


def _block(rank: Sequence[tuple[str, int, int]], m: int) -> Iterator[str]:
    """Yield a block of six slots, repeated m times: kind, stage and first slot of each. A free slot has the oldest
    pending W; the rest of them come at the end.
    """
    at = {first + 6 * i: (kind, f"{stage}.{i}") for kind, stage, first in rank for i in range(m)}
    assert len(at) == len(rank) * m, "two in one slot"
    pending: list[str] = []
    for slot in range(max(at) + 1):
        if slot in at:
            kind, what = at[slot]
            yield kind + what
            pending += [what] if kind == "I" else []
        elif pending:
            yield f"W{pending.pop(0)}"
    yield from (f"W{what}" for what in pending)


def v_half(p: int, m: int, r: int) -> Iterator[str]:
    """Return the down two slots per rank and up one; three slots between them if p is even."""
    gap = 0 if p % 2 else 3
    slots = (2 * r, 3 * p - 2 - r, 3 * p + gap + 2 * r - 1, 6 * p + gap - 2 - r)
    return _block([*zip("FFII", (r, 2 * p - 1 - r, 2 * p - 1 - r, r), slots, strict=True)], m)


def v_min(p: int, m: int, r: int) -> Iterator[str]:
    """Return the down one slot per rank and up one; two slots between them if 3 divides p."""
    gap = 0 if p % 3 else 2
    slots = (r, 2 * p - 1 - r, 2 * p + gap + r, 4 * p + gap - 1 - r)
    return _block([*zip("FFII", (r, 2 * p - 1 - r, 2 * p - 1 - r, r), slots, strict=True)], m)


def v_zb(p: int, m: int, r: int) -> Iterator[str]:
    """Return the down four slots per rank and up two, without a slot between at the turn of a microbatch."""
    slot, slots = -4, []
    for ranks, step in ((range(p), 4), (range(p - 1, -1, -1), 2)) * 2:
        for n, rank in enumerate(ranks):
            slot += step if n or slot < 0 else 1
            slots += [slot] if rank == r else []
    return _block([*zip("FFII", (r, 2 * p - 1 - r, 2 * p - 1 - r, r), slots, strict=True)], m)


def _whole(p: int) -> list[list[int]]:
    """Return by rank the slots of the two forwards and of the two backwards of the first microbatch in 1F1B-V.

    Forwards take a slot, backwards two, one rank after the other down, up, down, up; three slots are left free after
    the forwards where 3 divides p, and after every third backward, the first time after as many as make p + 2 of them
    a multiple of 3.
    """
    found: list[list[int]] = [[] for _ in range(p)]
    way = [*range(p), *range(p - 1, -1, -1)]
    for slot, rank in enumerate(way):
        found[rank].append(slot)
    slot, turns = 2 * p + (0 if p % 3 else 3), -(p + 2) % 3
    for rank in way:
        found[rank].append(slot)
        turns = (turns + 1) % 3
        slot += 2 if turns else 5
    return found


def one_f_one_b_v(p: int, m: int, r: int) -> Iterator[str]:
    stages = (r, 2 * p - 1 - r, 2 * p - 1 - r, r)
    return _block([*zip("FFBB", stages, _whole(p)[r], strict=True)], m)


def moved_1f1b_v(p: int, m: int) -> list[list[str]]:
    """Return the block of 1F1B-V with the moves of its authors' code: in the order of slots each operation moves to the
    first free slot after its inputs, a forward only if no rank then exceeds the peak.
    """
    rows: list[dict[int, tuple[str, int, int]]] = []  # by rank and slot: kind and half, stage, microbatch
    for r, first in enumerate(_whole(p)):
        stages = (r, 2 * p - 1 - r, 2 * p - 1 - r, r)
        row = {}
        for n, (slot, stage) in enumerate(zip(first, stages, strict=True)):
            for i in range(m):
                row |= {slot + 6 * i + half: ("FB"[n > 1] + "ab"[half], stage, i) for half in range(1 + (n > 1))}
        rows.append(row)
    length, change = max(map(max, rows)) + 2, {"Fa": 1, "Ba": 0, "Bb": -1}
    held = [list(itertools.accumulate(change[row[t][0]] if t in row else 0 for t in range(length))) for row in rows]
    most, at = max(map(max, held)), {}
    for t, (r, row) in itertools.product(range(length), enumerate(rows)):
        if t not in row:
            continue
        what = kind, stage, i = row[t]
        before = [(kind, stage, i - 1), ("Ba", stage, i) if kind == "Bb" else None]
        before.append(("Fa", stage - 1, i) if kind == "Fa" else ("Bb", stage + 1, i) if kind == "Ba" else None)
        before.append(("Fa", stage, i))
        slot = max(at.get(x, -1) for x in before if x is not None and x != what) + 1
        if kind == "Fa":
            least, slot = slot, t
            while slot > least and held[r][slot - 1] < most:
                slot -= 1
        while slot < t and (slot in row or (kind == "Ba" and slot + 1 in row)):
            slot += 1
        at[what] = slot
        if slot < t:
            row[slot] = row.pop(t)
            for between in range(slot, t):
                held[r][between] += change[kind]
    return [[f"{kind[0]}{s}.{i}" for _, (kind, s, i) in sorted(row.items()) if kind != "Bb"] for row in rows]


def seq1f1b(p: int, m: int, r: int) -> Iterator[str]:
    """Yield two slices per sequence: forwards in order, backwards of a sequence from its last slice; one more forward
    in the warm-up than in 1F1B.
    """
    w = min(p - r, m)
    backwards = iter(i ^ 1 for i in range(m))
    yield from (f"F{r}.{i}" for i in range(w))
    for i in range(w, m):
        yield f"F{r}.{i}"
        yield f"B{r}.{next(backwards)}"
    yield from (f"B{r}.{i}" for i in backwards)


def mario(p: int, m: int, r: int) -> Iterator[str]:
    """Yield 1F1B with an R before every B, except on the last rank."""
    for word in one_f_one_b(p, m, r):
        if word[0] == "B" and r < p - 1:
            yield f"R{word[1:]}"
        yield word


def capped(p: int, k: int, m: int, r: int) -> Iterator[str]:
    """Yield the order where microbatch nk + 2t starts on rank 0 at n(2p+2) + 6t, and nk + 2t + 1 two slots later;
    its I on rank r is 2p-1-2r slots after its F there, W in the first free slots. Where (m-1) % k is even the last
    one starts a slot earlier, and each I that is due from its F on goes a slot later.
    """
    start = [i // k * (2 * p + 2) + i % k // 2 * 6 + i % k % 2 * 2 for i in range(m)]
    shifted = (m - 1) % k % 2 == 0
    start[-1] -= shifted
    at = {}
    for i in range(m):
        back = start[i] + 2 * p - 1 - r
        at[start[i] + r] = ("F", i)
        at[back + (shifted and i < m - 1 and back >= start[-1] + r)] = ("I", i)
    assert len(at) == 2 * m, "two in one slot"
    pending: list[int] = []
    for slot in range(max(at) + 1):
        if slot in at:
            kind, i = at[slot]
            yield f"{kind}{r}.{i}"
            pending += [i] if kind == "I" else []
        elif pending:
            yield f"W{r}.{pending.pop(0)}"
    yield from (f"W{r}.{i}" for i in pending)


RULES: dict[str, Callable[[int, int, int], Iterator[str]]] = {
    "gpipe": gpipe,
    "gpipe_reversed": gpipe_reversed,
    "terapipe": gpipe_reversed,
    "naive": naive,
    "1f1b": one_f_one_b,
    "eager_1f1b": eager_1f1b,
    "zb_h1": zb_h1,
    "zb_h2": zb_h2,
    "zb_v": zb_v,
    "dualpipe": dualpipe,
    "dualpipev": dualpipev,
    "chimera": chimera,
    "chimera2": chimera2,
    "bitpipe": bitpipe,
    "mario": mario,
    "packed": one_f_one_b,
    "unet": gpipe,
}


BLOCKS: dict[str, Callable[[int, int, int], Iterator[str]]] = {
    "1f1b_v": one_f_one_b_v,
    "v_half": v_half,
    "v_min": v_min,
    "v_zb": v_zb,
}
"""The orders in which a block of six slots repeats."""

LOOPED: dict[str, Callable[[int, int, int, int], Iterator[str]]] = {
    "interleaved": interleaved,
    "interleaved_overlap": interleaved_overlap,
    "interleaved_zb": interleaved_zb,
    "looped_bfs": looped_bfs,
    "hanayo": hanayo,
}
"""The orders with v chunks per rank."""


def text(ranks: list[Iterator[str]]) -> str:
    """Return one line per rank."""
    return "".join(f"rank {r}: {' '.join(words)}\n" for r, words in enumerate(ranks))
