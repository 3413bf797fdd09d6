"""`pending` in a program equals the count in a replay of the order, unless the file defines that name itself."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import pipesched
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers.chunks import Chunk, fences

HEAD = "schedule x(p, m)\nstage s in 0 .. 2 * p on rank s % p\n"
SHOWN = {
    chunk.source.text.split("(")[0].split()[-1]: chunk
    for chunk in fences(Path(__file__).parents[2] / "grammars" / "README.md")
}
PEAKS = {"v_half": lambda p: (p + 2) // 2, "v_min": lambda p: (p + 4) // 3}


def order(text: str, p: int = 2, m: int = 4) -> list[list[str]]:
    """Return the order of every rank."""
    schedule = pipesched.load(Source("x.ps", text), p=p, m=m)
    assert isinstance(schedule, Schedule)
    return [[str(operation) for operation in schedule.order(rank)] for rank in range(schedule.ranks)]


@pytest.mark.parametrize("p", range(2, 17))
@pytest.mark.parametrize("name", PEAKS)
def test_controllable_memory_is_that_of_the_paper(name: str, p: int) -> None:
    """V-Half and V-Min of the reference are right, with the peaks of the authors' code."""
    block: Chunk = SHOWN[name]
    report = pipesched.verify(block.source, p=p, m=2 * p + 1)
    assert report.ok and max(report.memory.peak) == PEAKS[name](p)
    assert [claim.holds for claim in report.claims] == [True]


@pytest.mark.parametrize("seed", range(deep(40)))
def test_pending_is_what_a_replay_counts(seed: int) -> None:
    """An I adds one, a W takes one away, of its chunk and of all; a condition on it follows the count."""
    rng = random.Random(seed)
    m, counts, said, expected = 6, [0, 0], list[str](), list[str]()
    done = {"F": [0, 0], "I": [0, 0], "W": [0, 0]}

    def run(kind: str, c: int) -> None:
        expected.append(f"{kind}{2 * c}.{done[kind][c]}")
        done[kind][c] += 1

    for c in rng.sample([0, 1] * m, 2 * m):
        of = rng.choice(["", f"({c})"])
        least = rng.randrange(4)
        said.append(f"F[{c}]  I[{c}]  if pending{of} > {least} {{ repeat pending({c}) - 1 {{ W[{c}] }} }}")
        for kind in "FI":
            run(kind, c)
        counts[c] += 1
        if (counts[c] if of else sum(counts)) > least:
            for _ in range(counts[c] - 1):
                run("W", c)
            counts[c] = min(counts[c], 1)
    program = "\n".join(said)
    (found, _) = order(f"{HEAD}rank 0 {{\n{program}\n}}\nrank 1 {{ }}", m=m)
    assert found == expected


OWN = {
    "a parameter": "schedule x(p, m, pending = 3)\nstage 0 on rank 0\nrank 0 { repeat pending { F } }",
    "a value": "schedule x(p, m)\nlet pending = 3\nstage 0 on rank 0\nrank 0 { I(0)  repeat pending { F } }",
    "a function": "schedule x(p, m)\nlet pending(k) = k + 1\nstage 0 on rank 0\nrank 0 { repeat pending(2) { F } }",
    "a value of a program": "schedule x(p, m)\nstage 0 on rank 0\nrank 0 { let pending = 3  repeat pending { F } }",
    "a loop": "schedule x(p, m)\nstage 0 on rank 0\nrank 0 { for pending in 0 .. 3 { F(pending) } }",
    "an argument": "schedule x(p, m)\nstage 0 on rank 0\nrank 0 { let f(pending) = pending  repeat f(3) { F } }",
    "the rank": "schedule x(p, m)\nstage 0 on rank 0\nrank pending { repeat pending + 3 { F } }",
    "a stage": "schedule x(p, m)\nstage pending in 0 .. 1 on rank pending\nrank 0 { repeat 3 { F } }",
}


@pytest.mark.parametrize("text", OWN.values(), ids=OWN.keys())
def test_the_meaning_of_the_file_comes_first(text: str) -> None:
    """If the file defines `pending`, the name means that: no older file changes its meaning."""
    (found,) = order(text, p=1)
    assert [x for x in found if x[0] == "F"] == ["F0.0", "F0.1", "F0.2"]


WRONG = {
    "outside of programs": ("let a = pending", 3, "PS201"),
    "in a claim": ("claim pending == 0", 3, "PS201"),
    "in a placement": ("stage pending on rank 1", 3, "PS201"),
    "no such chunk": ("rank 0 { if pending(2) > 0 { F[0] } }", 3, "PS212"),
    "below the first chunk": ("rank 0 { if pending(0 - 1) > 0 { F[0] } }", 3, "PS212"),
    "two arguments": ("rank 0 { if pending(0, 1) > 0 { F[0] } }", 3, "PS204"),
    "no argument": ("rank 0 { if pending() > 0 { F[0] } }", 3, "PS204"),
    "a number for a condition": ("rank 0 { if pending { F[0] } }", 3, "PS205"),
    "twice in one block": ("rank 0 {\n let pending = 1\n let pending = 2 }", 5, "PS202"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_it_is_not(case: str) -> None:
    """A wrong use is one finding with its code, at its place."""
    item, line, code = WRONG[case]
    rest = "" if item.startswith("rank") else "\nrank 0 { }"
    found = pipesched.verify(Source("x.ps", f"{HEAD}{item}{rest}\nrank 1 {{ }}"), p=2, m=2).diagnostics
    assert [(x.code, x.where.line) for x in found if x.where and x.code.startswith("PS2")] == [(code, line)]
