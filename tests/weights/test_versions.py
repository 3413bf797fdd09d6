"""Weight versions follow from the list order: in random orders they agree with an interpreter that keeps real
versions.

python -m tests.weights.test_versions 5000      so many programs under each rule, and two mutants of each: a STEP
                                                is moved, and versions are dropped one STEP early
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import pytest

import pipesched
from pipesched.compile import load
from pipesched.examine import Options
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source
from pipesched.versions.facts import Versions
from tests.depth import deep
from tests.oracles.kept_weights import Item, play

RULES = ("stash", "latest", "delay", "")
CODES = {"nothing": "PS613", "left": "PS615", "batches": "PS614", "crossed": "PS611", "early": "PS612"}
Lists = list[list[Item]]


def lists_of(seed: random.Random) -> Lists:
    """Return random lists of all ranks that finish, with STEPs that take the same batches on every stage."""
    p, v, m = seed.randint(1, 4), seed.randint(1, 2), seed.randint(1, 8)
    split = [seed.random() < 0.4 for _ in range(p * v)]
    ends = sorted({*seed.sample(range(m), seed.randint(0, m - 1)), m - 1})
    ready: dict[tuple[str, int], int] = {}  # how many microbatches of a stage have had this kind
    lists: Lists = [[] for _ in range(p)]
    stages, steps, late = p * v, [0] * (p * v), [seed.random() < 0.3 for _ in range(p * v)]
    count = lambda kind, s: ready.get((kind, s), 0)  # noqa: E731

    def moves(rank: int) -> Iterator[tuple[str, int]]:
        for s in range(rank, stages, p):
            back = "I" if split[s] else "B"
            if count("F", s) < (m if s == 0 else count("F", s - 1)):
                yield "F", s
            above = count("F", s) if s == stages - 1 else count("I" if split[s + 1] else "B", s + 1)
            held = steps[s] < len(ends) and count("W" if split[s] else "B", s) > ends[steps[s]]
            if count(back, s) < min(above, count("F", s)) and not (held and not split[s]):
                yield back, s
            if split[s] and count("W", s) < count("I", s) and not held:
                yield "W", s
            if held and (not late[s] or seed.random() < 0.3):
                yield "STEP", s

    while any(steps[s] < len(ends) for s in range(stages)):
        found = [(rank, move) for rank in range(p) for move in moves(rank)]
        if not found:
            continue
        backs = [x for x in found if x[1][0] != "F"]
        rank, (kind, s) = seed.choice(backs if backs and seed.random() < 0.7 else found)
        if kind == "STEP":
            steps[s] += 1
            lists[rank].append((kind, s))
        else:
            lists[rank].append((kind, s, count(kind, s)))
            ready[kind, s] = count(kind, s) + 1
    return lists


def mutant(lists: Lists, seed: random.Random) -> Lists:
    """Return the lists with one STEP moved, removed or doubled."""
    made = [list(ops) for ops in lists]
    ops = seed.choice([ops for ops in made if any(x[0] == "STEP" for x in ops)])
    at = seed.choice([i for i, x in enumerate(ops) if x[0] == "STEP"])
    step = ops.pop(at) if seed.random() < 0.8 else ops[at]
    if seed.random() < 0.85:
        ops.insert(seed.randint(max(0, at - 6), min(len(ops), at + 6)), step)
    return made


def text_of(lists: Lists, rule: str) -> str:
    """Return the lists as a file: every operation names its chunk and its microbatch."""
    p = len(lists)
    stages = 1 + max(x[1] for ops in lists for x in ops)
    m = 1 + max(x[2] for ops in lists for x in ops if len(x) > 2)
    said = [f"schedule random(p = {p}, m = {m})", f"stage s in 0 .. {stages} on rank s % p"]
    said += [f"versions {rule}"] if rule else []
    for rank, ops in enumerate(lists):
        words = (f"{x[0]}[{x[1] // p}]" + (f"({x[2]})" if len(x) > 2 else "") for x in ops)
        said.append(f"rank {rank} {{ {' '.join(words)} }}")
    return "\n".join(said) + "\n"


def compare(lists: Lists, rule: str) -> bool:
    """Compare our verdict and facts with the interpreter's; return True if the program is right."""
    expected, source = play(lists, rule), Source("random.ps", text_of(lists, rule))
    if not any(x[0] == "STEP" for ops in lists for x in ops):
        expected.wrong.clear()  # all weights step at the end
    report = pipesched.verify(source)
    codes = {str(x.code) for x in report.diagnostics if x.severity == "error"}
    assert codes <= {CODES[x] for x in expected.wrong} and bool(codes) == bool(expected.wrong), (codes, expected.wrong)
    made = Analysis(load(source, Options()).schedule)
    found = Versions.of(made)
    if found is None:  # the STEPs at the end of every rank
        assert expected.alive == [1] * len(lists) and not any(expected.stale)
        return not codes
    m = made.schedule.microbatches
    for (letter, stage, i), version in expected.read.items():
        ours = found.read if letter == "F" else found.read_back
        if not expected.wrong & {"early", "left"}:
            assert int(ours[stage * m + i]) == version, (letter, stage, i)
    if not expected.wrong:
        assert (list(found.alive), list(found.staleness), list(found.crossed)) == (
            expected.alive,
            expected.stale,
            expected.crossed,
        )
    return not codes


def dropped(rule: str) -> str:
    """Return a rule under which each version is dropped one STEP earlier: without a rule none is kept past a STEP."""
    word, _, delay = rule.partition(" ")
    return f"delay {int(delay) - 1}" if word == "delay" and delay != "0" else ""


def tried(count: int, first: int = 0) -> tuple[int, int, int, int]:
    """Compare this many programs under each rule, and two mutants of each: one has a STEP moved, the other drops
    versions early. Return the programs, the right ones, and those of either kind of mutant that are right.
    """
    right = moved = kept = 0
    for number in range(first, first + count):
        for rule in RULES:
            seed = random.Random(f"{number} {rule}")
            lists = lists_of(seed)
            said = f"delay {seed.randint(0, 4)}" if rule == "delay" else rule
            right += compare(lists, said)
            moved += compare(mutant(lists, seed), said)
            kept += compare(lists, dropped(said)) if rule else 0
    return count * len(RULES), right, moved, kept


@pytest.mark.parametrize("part", range(4))
def test_versions_are_those_of_an_interpreter(part: int) -> None:
    """Verdicts, versions read, versions alive, staleness and crossings are equal, in programs and in mutants of them:
    no mutant is accepted that the interpreter calls wrong.
    """
    programs, right, moved, kept = tried(deep(3, usual=2), first=1000 * part)
    assert right > programs // 4 and moved < right and kept < right


if __name__ == "__main__":
    found = tried(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print("programs, right, right with a STEP moved, right with versions dropped early:", *found)
