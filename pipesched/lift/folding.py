"""Folds orders into loops: finds the shortest nest of `repeat`s that expands to a word.

    F F F F B F B F B B B      repeat 3 { F }  repeat 3 { F  B }  ...

A repeat is at least two copies of its body, u u ... u, and is found by its period |u|. `best[i]` is the least cost of
the first i letters; they end in a letter or a repeat:

    best[i] = min( best[i-1] + letter,   best[j] + loop + cost(u)   over all j, u, k >= 2 with word[j:i] = u^k )

For repeats with period q that end at i, it suffices to remember the best beginning for those that end at i - q. Bodies
are folded by the same rule. This is exact if all periods are tried; for long words only short periods are tried, and
the result is folded again with its repeats as letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

LETTER = 2
"""The cost of a plain letter. A repeat costs LOOP and its body; at equal costs, the spelling without the repeat is
preferred.

So F F F and F B F B do not change; F F F F and F I W F I W do.
"""
LOOP = 4

LONGEST_PERIOD = 96
"""Words longer than twice this length are folded in two or more steps."""

_STYLE = 1 << 20  # by cost, then by the first letter of the body

Ends: TypeAlias = dict[int, list[int]]
Word: TypeAlias = tuple[int, ...]
"""A word, as the numbers of its letters. The alphabet is in the preferred order of letters in a body."""


@dataclass(frozen=True, slots=True)
class Count:
    """The count of a loop: base + slope * rank + growth * (copies of the kernel)."""

    base: int
    slope: int = 0
    growth: int = 0

    def at(self, rank: int, copies: int) -> int:
        return max(0, self.base + self.slope * rank + self.growth * copies)


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: `repeat count { body }`."""

    count: Count
    body: tuple[Node, ...]


Node: TypeAlias = int | Loop
Tree: TypeAlias = tuple[Node, ...]


def spelled(tree: Tree, rank: int = 0, copies: int = 0) -> Word:
    """Return the word that a tree expands to."""
    word: list[int] = []
    for node in tree:
        if isinstance(node, Loop):
            word += spelled(node.body, rank, copies) * node.count.at(rank, copies)
        else:
            word.append(node)
    return tuple(word)


def root(word: Word) -> Word:
    """Return the shortest u such that the word is a power of u."""
    n = len(word)
    return next(word[:q] for q in range(1, n + 1) if n % q == 0 and word[:q] * (n // q) == word)


@dataclass
class Folder:
    """Folds words over one alphabet; each word and each body is folded only once. weights: the cost of every letter."""

    weights: Sequence[int]
    known: dict[Word, tuple[int, Tree]] = field(default_factory=dict)
    bodies: dict[Word, int] = field(default_factory=dict)

    def fold(self, word: Word) -> Tree:
        """Return a short tree that expands to the word."""
        return self.folded(word)[1]

    def folded(self, word: Word) -> tuple[int, Tree]:
        """Return the cost of a word and its tree."""
        if word not in self.known:
            self.known[word] = self._folded(word)
        return self.known[word]

    def _folded(self, word: Word) -> tuple[int, Tree]:
        cost, tree = self._parse(word)
        while len(word) > 2 * LONGEST_PERIOD and 2 * len(tree) <= len(word):  # otherwise it is irregular throughout
            nodes = list(dict.fromkeys(tree))
            number = {node: i for i, node in enumerate(nodes)}
            word = tuple(number[node] for node in tree)
            again = Folder([self._weight(node) for node in nodes])
            less, shorter = again._parse(word)
            if less >= cost:
                break
            cost, tree = less, _replaced(shorter, nodes)
        return cost, tree

    def _weight(self, node: Node) -> int:
        if isinstance(node, Loop):
            return LOOP + sum(self._weight(x) for x in node.body)
        return self.weights[node]

    def _parse(self, word: Word) -> tuple[int, Tree]:
        cost, choice = self._parts(word, _squares(word), 0, len(word))
        return cost, self._traced(word, choice)

    def _parts(self, word: Word, ends: Ends, low: int, high: int) -> tuple[int, list[tuple[int, int]]]:
        """Return the least cost of word[low:high]; and, for each end, where its last letter or repeat begins, and the
        repeat's period, 0 for a letter.

        ends: the squares of the word, including the squares of its parts.
        """
        best, choice = [0], [(0, 0)]
        squares: dict[tuple[int, int], tuple[int, int]] = {}
        for i in range(low + 1, high + 1):
            least, how = best[-1] + self.weights[word[i - 1]] * _STYLE, (i - low - 1, 0)
            for q in ends.get(i, ()):
                before = i - 2 * q - low
                if before < 0:
                    break  # periods are in ascending order
                begin, body = squares.get((q, i - q), (before, 0))
                if best[before] < best[begin]:
                    begin = before
                # until u has been folded, a lower bound: the cost that it adds to the best cost before it
                if best[begin] + (body or LOOP * _STYLE + best[before + q] - best[before]) < least:
                    body = body or self._body(word, ends, i - q, i)
                    if best[begin] + body < least:
                        least, how = best[begin] + body, (begin, q)
                squares[q, i] = begin, body
            best.append(least)
            choice.append(how)
        return best[-1], choice

    def _traced(self, word: Word, choice: list[tuple[int, int]]) -> Tree:
        nodes: list[Node] = []
        i = len(word)
        while i:
            begin, q = choice[i]
            body = word[i - q : i]
            nodes.append(Loop(Count((i - begin) // q), self.fold(body)) if q else word[i - 1])
            i = begin
        return tuple(reversed(nodes))

    def _body(self, word: Word, ends: Ends, low: int, high: int) -> int:
        """Return the cost of a repeat whose body is word[low:high], folded."""
        body = word[low:high]
        if body not in self.bodies:
            rotated = any(body[i:] + body[:i] < body for i in range(1, len(body)))
            self.bodies[body] = LOOP * _STYLE + rotated + self._parts(word, ends, low, high)[0]
        return self.bodies[body]


def _replaced(tree: Tree, nodes: Sequence[Node]) -> Tree:
    """Replace letters of a tree by the nodes that they represent."""
    return tuple(Loop(x.count, _replaced(x.body, nodes)) if isinstance(x, Loop) else nodes[x] for x in tree)


def _squares(word: Word) -> Ends:
    """Return, for each end, the periods q for which the 2q letters before it are u u, where u is not a power of a
    shorter word.
    """
    n = len(word)
    letters = np.array(word, dtype=np.int64)
    runs: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = {}
    found: dict[int, list[int]] = {}
    for q in range(1, min(n // 2, LONGEST_PERIOD) + 1):
        at = np.arange(n - q)
        run = at - np.maximum.accumulate(np.where(letters[q:] == letters[:-q], -1, at))
        here = np.flatnonzero(run >= q)
        if not len(here):
            continue
        for d in (d for d in runs if q % d == 0):
            here = here[runs[d][here + q - d] < q - d]
        runs[q] = run
        for end in (here + q + 1).tolist():
            found.setdefault(end, []).append(q)
    return found


# The order of a rank with a kernel (`lift.kernel`): prefix, kernel ..., suffix. The shortest root u of the kernel also
# spells the letters before and after it, as far as its period continues, so all of these form one loop. The loop may
# begin anywhere within the period; the cheapest spelling of the rest decides.
#
#     F F F | F I W | F I W I W I W          the suffix continues the kernel F I W
#     F F F ( F I W )^(2 + copies) I W I W


def grown(folder: Folder, prefix: Word, kernel: Word, suffix: Word) -> Tree:
    """Return a short tree that expands to prefix kernel^copies suffix for any number of copies."""
    if not kernel:
        return folder.fold(prefix + suffix)
    u = root(kernel)
    q, growth = len(u), len(kernel) // len(u)
    left = _length(tuple(reversed(prefix)), tuple(reversed(u)))
    right = _length(suffix, u)
    around = prefix[len(prefix) - left :] + suffix[:right]
    least: tuple[int, Tree] | None = None
    for offset in range(min(q, len(around) + 1)):
        times = (len(around) - offset) // q
        turn = (offset - left) % q
        head = folder.folded(prefix[: len(prefix) - left] + around[:offset])
        body = folder.folded(u[turn:] + u[:turn])
        tail = folder.folded(around[offset + times * q :] + suffix[right:])
        rotated = body[1] != () and min(u[i:] + u[:i] for i in range(q)) != u[turn:] + u[:turn]
        cost = head[0] + body[0] + tail[0] + rotated
        if least is None or cost < least[0]:
            least = cost, (*head[1], Loop(Count(times, 0, growth), body[1]), *tail[1])
    assert least is not None
    return least[1]


def _length(word: Word, u: Word) -> int:
    """Return the length of the longest common prefix of the word and u u u …."""
    return next((i for i, letter in enumerate(word) if letter != u[i % len(u)]), len(word))
