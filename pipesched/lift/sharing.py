"""Gives one shared program to ranks whose orders differ only in repeat counts.

    rank 0   (F)^3 (F B)^5 (B)^3
    rank 1   (F)^2 (F B)^6 (B)^2         rank r   (F)^(3 - r)  (F B)^(5 + r)  (B)^(3 - r)
    rank 2   (F)^1 (F B)^7 (B)^1
    rank 3         (F B)^8               a part with a count <= 0 is absent

Two neighbours determine each count as a linear function of the rank. The program is used only for ranks whose order it
reproduces, letter by letter, so a wrong guess is harmless. The parts come from the order of one of the ranks, or from
two merged orders if parts are missing at both ends (ZB-H1 has no F I on the first rank, no I W on the last).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, islice

from pipesched.lift.folding import Count, Loop, Tree, Word, spelled

LEAST = 3
"""Smallest number of ranks that share a program with counts linear in the rank; two always fit a line."""

MOST_PARTS = 40
"""Limits on the parts of an order: with more, the order is too irregular to compare, or (MERGED) to merge."""
MERGED = 8
LONGEST = 4 * MOST_PARTS

MOST_PAIRS = 20
MOST_MERGES = 8
MOST_STEPS = 20_000
"""The limits of the search for common parts: ways to merge, and steps of one comparison."""


@dataclass(frozen=True)
class Shared:
    """A program for the ranks from `low` to `high` - 1."""

    low: int
    high: int
    tree: Tree


def shared(trees: Sequence[Tree], orders: Sequence[Callable[[int], Word]]) -> list[Shared]:
    """Return runs of ranks, each with its program.

    trees: each rank's own tree. orders: functions from a rank to its word, for 0, 1, … further copies of the kernel.
    """
    guesses = sorted(_guesses(trees, orders), key=lambda x: (x.low - x.high, x.low))
    free = set(range(len(trees)))
    found: list[Shared] = []
    for guess in guesses:
        for part in _runs([r for r in range(guess.low, guess.high) if r in free]):
            if part.stop - part.start >= (LEAST if _sloped(guess.tree) else 2):
                found.append(Shared(part.start, part.stop, guess.tree))
                free -= set(part)
    found += [Shared(r, r + 1, trees[r]) for r in free]
    return sorted(found, key=lambda x: x.low)


def _guesses(trees: Sequence[Tree], orders: Sequence[Callable[[int], Word]]) -> list[Shared]:
    """Return runs of neighbouring ranks that may share a program."""
    matcher = _Matcher([_packed(orders[0](r)) for r in range(len(trees))])
    found: list[Shared] = []

    def look(lines: Callable[[int], Iterator[Tree]]) -> None:
        for r in range(len(trees) - 1):
            if not any(x.low <= r and r + 1 < x.high and x.high - x.low >= LEAST for x in found):
                guesses = (_stretched(tree, r, len(trees), orders) for tree in lines(r))
                found.extend(guess for guess in guesses if guess is not None)

    look(lambda r: _lines(trees[r], trees[r + 1], r, matcher))
    if any(x.high - x.low < len(trees) for x in found) or not found:
        models = [(parts, _bodies(parts)) for parts in _merged(trees)]
        look(lambda r: (tree for model in models for tree in matcher.lines(*model, r)))
    return found


def _stretched(tree: Tree, r: int, ranks: int, orders: Sequence[Callable[[int], Word]]) -> Shared | None:
    """Return the longest run of ranks around r whose orders the tree reproduces; None if that run lacks r or r + 1."""

    def spells(rank: int) -> bool:
        return all(spelled(tree, rank, copies) == order(rank) for copies, order in enumerate(orders))

    if not (spells(r) and spells(r + 1)):
        return None
    low, high = r, r + 2
    while low > 0 and spells(low - 1):
        low -= 1
    while high < ranks and spells(high):
        high += 1
    return Shared(low, high, tree)


def _lines(one: Tree, two: Tree, r: int, matcher: _Matcher) -> Iterator[Tree]:
    """Yield trees that may reproduce the orders of the ranks r and r + 1."""
    if one == two:
        yield one
    if one == two or max(len(one), len(two)) > LONGEST:
        return
    if _shape(one) == _shape(two):
        yield _through(one, two, r)
    for model in (one, two):
        parts = _parts(model)
        if len(parts) <= MOST_PARTS:
            yield from matcher.lines(parts, _bodies(parts), r)


def _merged(trees: Sequence[Tree]) -> list[tuple[Loop, ...]]:
    """Merge the parts of two ranks of different shape in every way that keeps the order of both."""
    few = [parts for parts in (_parts(tree) for tree in trees if len(tree) <= LONGEST) if len(parts) <= MERGED]
    few = list({tuple((x.body, x.count.growth) for x in parts): parts for parts in few}.values())
    pairs = islice(combinations(few, 2), MOST_PAIRS)
    return list(dict.fromkeys(merged for one, two in pairs for merged in islice(_merges(one, two), MOST_MERGES)))


def _merges(one: tuple[Loop, ...], two: tuple[Loop, ...]) -> Iterator[tuple[Loop, ...]]:
    """Yield the lists that contain the parts of both lists in order, common parts only once; counts are ignored."""
    if not one or not two:
        yield one + two
    elif one[0].body == two[0].body:
        growth = Count(0, 0, max(one[0].count.growth, two[0].count.growth))
        yield from ((Loop(growth, one[0].body), *rest) for rest in _merges(one[1:], two[1:]))
    else:
        for head, first, second in ((one[0], one[1:], two), (two[0], one, two[1:])):
            yield from ((Loop(Count(0, 0, head.count.growth), head.body), *rest) for rest in _merges(first, second))


def _shape(tree: Tree) -> tuple[object, ...]:
    """Return a tree without its counts."""
    return tuple((x.count.growth, _shape(x.body)) if isinstance(x, Loop) else x for x in tree)


def _through(one: Tree, two: Tree, r: int) -> Tree:
    """Return the tree with counts linear in the rank, from two trees of the same shape at ranks r and r + 1."""
    nodes: list[int | Loop] = []
    for a, b in zip(one, two, strict=True):
        if isinstance(a, Loop) and isinstance(b, Loop):
            slope = b.count.base - a.count.base
            nodes.append(Loop(Count(a.count.base - slope * r, slope, a.count.growth), _through(a.body, b.body, r)))
        else:
            nodes.append(a)
    return tuple(nodes)


def _parts(tree: Tree) -> tuple[Loop, ...]:
    """Write single letters as loops, so that F and (F)^3 have the same shape."""
    bodies = [x if isinstance(x, Loop) else Loop(Count(1), (x,)) for x in tree]
    merged: list[Loop] = []
    for x in bodies:
        if merged and merged[-1].body == x.body:
            a, b = merged[-1].count, x.count
            merged[-1] = Loop(Count(a.base + b.base, 0, a.growth + b.growth), x.body)
        else:
            merged.append(x)
    return tuple(merged)


def _bodies(parts: Sequence[Loop]) -> list[bytes]:
    return [_packed(spelled(x.body)) for x in parts]


def _repeated(parts: Sequence[Loop], counts: Sequence[int]) -> Tree:
    """Repeat each part the given number of times."""
    return tuple(Loop(Count(n, 0, x.count.growth), x.body) for n, x in zip(counts, parts, strict=True))


def _packed(word: Word) -> bytes:
    """Pack a word into bytes, a fixed number per letter, for fast comparison."""
    return array("I", word).tobytes()


@dataclass
class _Matcher:
    """Finds how often each part of a list repeats in a rank's order, within a limit of `steps`.

    words: the orders, packed, by rank.
    """

    words: Sequence[bytes]
    steps: int = 100_000

    def lines(self, parts: tuple[Loop, ...], bodies: Sequence[bytes], r: int) -> Iterator[Tree]:
        """Yield the tree of these parts that reproduces the orders of the ranks r and r + 1, if any.

        bodies: the bodies of the parts, packed.
        """
        one = self.match(bodies, self.words[r])
        two = None if one is None else self.match(bodies, self.words[r + 1])
        if one is not None and two is not None:
            yield _through(_repeated(parts, one), _repeated(parts, two), r)

    def match(self, bodies: Sequence[bytes], word: bytes) -> list[int] | None:
        """Return the count of each body in a word, trying large counts first; None if no counts match."""
        dead: set[tuple[int, int]] = set()
        left = min(self.steps, MOST_STEPS)
        self.steps -= left

        def rest(part: int, at: int) -> list[int] | None:
            nonlocal left
            begin = part
            while part < len(bodies) and not word.startswith(bodies[part], at):
                part += 1
            if part == len(bodies):
                return [0] * (part - begin) if at == len(word) else None
            if (part, at) in dead:
                return None
            size, end = len(bodies[part]), at
            while word.startswith(bodies[part], end):
                end += size
            left -= 1 + (end - at) // size
            for until in range(end, at - 1, -size):
                found = rest(part + 1, until) if left > 0 else None
                if found is not None:
                    return [*[0] * (part - begin), (until - at) // size, *found]
            dead.add((part, at))
            return None

        found = rest(0, 0)
        self.steps += max(left, 0)
        return found


def _sloped(tree: Tree) -> bool:
    return any(isinstance(x, Loop) and (x.count.slope != 0 or _sloped(x.body)) for x in tree)


def _runs(ranks: Sequence[int]) -> list[range]:
    """Group ranks into runs of consecutive ranks."""
    groups = groupby(enumerate(ranks), key=lambda pair: pair[1] - pair[0])
    return [range(run[0], run[-1] + 1) for run in ([r for _, r in group] for _, group in groups)]
