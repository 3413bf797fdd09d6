"""PS406: every WAIT ends what its rank began earlier and has not waited for yet."""

from __future__ import annotations

import random

import pytest

import pipesched
from pipesched.source import Source

ORDER = """
F0.0 F0.1 send:F0.0>1 send:F0.1>1 wait:F0.0 wait:F0.1 recv:B1.0<1 B0.0 recv:B1.1<1 B0.1 reduce:0 wait:0
recv:F0.0<0 F1.0 B1.0 send:B1.0>0 recv:F0.1<0 F1.1 B1.1 send:B1.1>0 wait:B1.1 wait:B1.0 reduce:1 wait:1
"""
LISTS = [line.split() for line in ORDER.split("\n") if line]


def early(words: list[str]) -> int:
    """How many waits of a list end nothing, by going through it."""
    under_way, found = list[str](), 0
    for word in words:
        kind, _, what = word.partition(":")
        if kind in ("send", "reduce"):
            under_way.append(what.partition(">")[0])
        elif kind == "wait" and what in under_way:
            under_way.remove(what)
        elif kind == "wait":
            found += 1
    return found


def found_in(lists: list[list[str]]) -> int:
    text = "".join(f"rank {rank}: {' '.join(words)}\n" for rank, words in enumerate(lists))
    report = pipesched.verify(Source("x.txt", text), comm="async")
    codes = [str(one.code) for one in report.diagnostics]
    assert report.ok == ("PS406" not in codes)
    return codes.count("PS406")


@pytest.mark.parametrize("seed", range(60))
def test_waits_are_judged_as_by_going_through_the_list(seed: int) -> None:
    """Waits are moved, repeated or left out at random; all else stays, so nothing else is wrong."""
    rng, moved = random.Random(seed), []
    for words in LISTS:
        made = [word for word in words if not word.startswith("wait")]
        for wait in [word for word in words if word.startswith("wait") for _ in range(rng.choice([0, 1, 1, 1, 2]))]:
            made.insert(rng.randrange(len(made) + 1), wait)
        moved.append(made)
    assert found_in(moved) == min(sum(map(early, moved)), 5)  # so many of a kind are shown


def test_what_is_right_is_accepted() -> None:
    """Every order of the waits behind what they end."""
    assert found_in(LISTS) == 0
