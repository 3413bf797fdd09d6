"""Words that differ only in their numbers give the same result when they are read together as when they are read one by
one."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import numpy as np

from pipesched.formats import numbered
from pipesched.orders.limits import LARGEST
from pipesched.orders.words import Entry, Notation
from tests.depth import deep

FIELDS = {"x": -1, "y": 7}
MEANINGS = {
    "a#": [(1, ["x"])],
    "b#:#": [(2, ["y", "x"])],
    "#c#c#": [(3, ["x"]), (4, ["y", "x"])],
    "e": [(5, [])],
    "": [],
}


def meaning(shape: str) -> Sequence[Entry] | None:
    return MEANINGS.get(re.sub("0+", "#", shape))


def alone(word: str) -> list[tuple[int, int, int, int]] | None:
    """Return (code, place in the word, x, y) of each entry of a word, or None."""
    numbers = [int(digits) for digits in re.findall("[0-9]+", word)]
    entries = MEANINGS.get(re.sub("[0-9]+", "#", word))
    if entries is None or any(number > LARGEST for number in numbers):
        return None
    found = []
    for place, (code, fields) in enumerate(entries):
        given = FIELDS | {field: numbers.pop(0) for field in fields}
        found.append((code, place, given["x"], given["y"]))
    return found


def some_words(rng: random.Random) -> list[str]:
    def number() -> str:
        if rng.random() < 0.05:
            return str(LARGEST + rng.randrange(2))
        digits = rng.choice((1, 1, 2, 5, 8, 30))
        return "0" * (digits - 1) + str(rng.randrange(10)) if rng.random() < 0.3 else str(rng.randrange(10**digits))

    shapes = rng.choices(
        [*MEANINGS, "#", "a", "é#", "b#", "a#:"], weights=[9, 9, 9, 3, 3, 1, 1, 1, 1, 1], k=rng.randint(0, 30)
    )
    return [re.sub("#", lambda _: number(), shape) for shape in shapes]


def test_a_text_of_words_is_read_as_each_word_is() -> None:
    """Entries, their words, silent and bad words equal those of reading word by word."""
    notation = Notation(FIELDS, meaning)
    for seed in range(deep(100)):
        given = some_words(random.Random(seed))
        found, expected = notation.read(",".join(given), ","), [alone(word) for word in given or [""]]
        bad = [i for i, entries in enumerate(expected) if entries is None]
        assert found.bad.tolist() == bad
        if not bad:
            rows = [(i, *entry) for i, entries in enumerate(expected) for entry in entries or ()]
            assert list(zip(found.word.tolist(), *found.columns.tolist(), strict=True)) == rows
            assert found.silent.tolist() == [i for i, entries in enumerate(expected) if not entries]


def test_a_text_of_other_words_alone_is_given_up() -> None:
    """Only a limited number of shapes is read; the first bad words are reported."""
    asked: list[str] = []

    def counted(shape: str) -> Sequence[Entry] | None:
        asked.append(shape)
        return meaning(shape)

    given = ["a1", *("z" * i for i in range(1, 2000)), "e"]
    found = Notation(FIELDS, counted).read(",".join(given), ",")
    assert found.bad.tolist()[:100] == [*range(1, 101)] and len(asked) < 200


def test_rows_of_large_numbers_are_told_apart() -> None:
    """The distinct rows equal a set of tuples, though the product of their ranges exceeds 64 bits."""
    rng = random.Random(0)
    values = (0, 1, 2**32 - 1)
    for _ in range(deep(25)):
        rows = [tuple(rng.choice(values) for _ in range(4)) for _ in range(rng.randint(1, 40))]
        found, which = numbered.distinct(*np.array(rows).T)
        assert [rows[found[i]] for i in which.tolist()] == rows and len(found) == len({*rows})
        assert found == [rows.index(rows[i]) for i in found]
