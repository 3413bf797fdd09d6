"""A file is accepted if and only if torch's runtime trains with it like the undivided model.

Right programs of torch are changed at random, a cell or two at a time, and judged twice: by `verify`, and by running
them on symbols (``torch_runtime.py``), which shares no code with it.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

import pipesched
from pipesched.support.source import Source
from tests.depth import deep
from tests.oracles.torch_runtime import Runtime

FOLDER = Path(__file__).parents[1] / "torch_fixtures"
LOOP, VEE = (0, 1, 0, 1), (0, 1, 1, 0)
MUTANTS = deep(20, usual=14)

BASES = {
    "ok_1f1b_comms": ((0, 1), 3, False),
    "ok_1f1b_fsdp": ((0, 1), 3, True),
    "ok_early_receives": ((0, 1), 2, False),
    "ok_zero_bubble_comms": ((0, 1), 4, True),
    "ok_vee_comms": (VEE, 2, False),
    "ok_zbv_comms": (VEE, 4, True),
    "ok_dualpipev_comms": (VEE, 4, True),
    "ok_interleaved_comms": (LOOP, 4, True),
    "ok_looped_bfs_comms": (LOOP, 2, True),
}


def mutant(random: random.Random, text: str) -> str:
    """Return a cell dropped, doubled, moved, swapped with another one, or with another microbatch."""
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(random.choice([1, 1, 1, 2])):
        row = random.choice(rows)
        at, other = random.randrange(len(row)), random.randrange(len(row))
        match random.randrange(6):
            case 0:
                row.pop(at)
            case 1:
                row[at], row[other] = row[other], row[at]
            case 2:
                row[at - 1], row[at] = row[at], row[at - 1]
            case 3:
                row.insert(other, row[at])
            case 4:
                row.insert(other, row.pop(at))
            case _:
                row[at] = re.sub(r"\d+$", lambda found: str(abs(int(found[0]) + random.choice([-1, 1]))), row[at])
    return "".join(",".join(row) + "\n" for row in rows)


@pytest.mark.parametrize("name", BASES)
def test_verdict_is_what_the_runtime_does(name: str) -> None:
    """verify says ok exactly if every gradient is right, with no order between the two directions of a pair (gloo)."""
    owner, microbatches, fsdp = BASES[name]
    text = (FOLDER / f"{name}.csv").read_text("utf-8")
    assert Runtime(text, owner, microbatches, fsdp=fsdp).wrong() is None
    rng = random.Random(name)
    right = 0
    for _ in range(MUTANTS):
        changed = mutant(rng, text)
        wrong = Runtime(changed, owner, microbatches, fsdp=fsdp).wrong()
        report = pipesched.verify(
            Source("mutant.csv", changed), comm="async", stages=len(owner), m=microbatches, placement=owner
        )
        assert report.ok == (wrong is None), (wrong, str(report), changed)
        right += wrong is None
    assert 0 < right < MUTANTS
