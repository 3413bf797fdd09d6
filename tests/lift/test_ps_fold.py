"""A list of words is folded into the shortest nest of loops that expands to it."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesched.lift.folding import LETTER, LOOP, Folder, spelled
from tests.depth import deep

pytestmark = pytest.mark.quick


@cache
def least(word: tuple[int, ...]) -> int:
    """Return the least cost of a loop nest that spells a word, by exhaustive search."""
    if len(word) < 2:
        return LETTER * len(word)
    costs = [least(word[:i]) + least(word[i:]) for i in range(1, len(word))]
    powers = [q for q in range(1, len(word) // 2 + 1) if word == word[:q] * (len(word) // q) and len(word) % q == 0]
    return min(costs + [LOOP + least(word[:q]) for q in powers])


def cost(tree: object) -> int:
    assert isinstance(tree, tuple)
    return sum(LETTER if isinstance(x, int) else LOOP + cost(x.body) for x in tree)


@settings(max_examples=deep(50, usual=25), deadline=None)
@given(st.lists(st.integers(0, 2), max_size=14))
def test_short_words_fold_to_the_shortest_nest(word: list[int]) -> None:
    """No nest of loops is shorter than the result, which spells the word."""
    tree = Folder([LETTER] * 3).fold(tuple(word))
    assert spelled(tree) == tuple(word)
    assert cost(tree) == least(tuple(word))


@settings(max_examples=deep(12, usual=6), deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=150), st.integers(2, 9), st.integers(0, 40))
def test_long_words_fold(piece: list[int], times: int, more: int) -> None:
    """A long word with a repeated piece is spelled by its tree, which costs at most a loop, the piece and the rest."""
    folder = Folder([LETTER] * 3)
    word = tuple(piece * times + piece[:more])
    assert spelled(folder.fold(word)) == word
    if len(piece) <= 90:
        assert cost(folder.fold(word)) <= LOOP + cost(folder.fold(tuple(piece))) + LETTER * len(piece[:more])
