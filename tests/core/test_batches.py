"""Every program with batches and communicators that passes `verify` finishes in every run, with correct gradients.

Lowered random schedules, their neighbouring messages fused, their messages on several communicators, and some out of
place. A few hundred here; as many as you like with

    python -m tests.core.test_batches --cases 20000 --jobs 2
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

import pipesched
from pipesched.analysis import termination
from pipesched.analysis.communication import parse_model
from pipesched.compile import lower
from pipesched.model.ops import Instruction
from pipesched.model.schedule import Program
from tests.depth import deep
from tests.makers import strategies
from tests.makers.programs import of_instructions
from tests.oracles.explorer import walk
from tests.oracles.explorer_machines import machine
from tests.oracles.explorer_script import Script
from tests.oracles.symbolic import right

CHUNK = 25
LAXER = ("buffered(1)", "one-stream", "pair-stream", "async")


def batched(seed: int) -> Program:
    """Make a right program and damage it: move messages in their lists and batches, or one end to
    another communicator.
    """
    rng = random.Random(seed)
    drawn = (lower(strategies.random_schedule(rng.getrandbits(32))) for _ in itertools.count())
    made = next(program for program in drawn if 4 <= program.messages <= 40)
    lists = [made.instructions(rank) for rank in range(made.ranks)]
    _apart(rng, lists)
    for _ in range(rng.choice((2, 4, 8))):
        _gather(rng, rng.choice(lists))
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        _move(rng, rng.choice(lists))
    _fuse(rng, lists, rng.choice((0.2, 0.6, 1)))
    for _ in range(rng.choice((0, 0, 1, 2))):
        _turn(rng, rng.choice(lists))
    if rng.random() < 0.1:
        _lose(rng, rng.choice(lists))
    return of_instructions(lists, made.placement)


def message(x: Instruction) -> bool:
    return x.op.send or x.op.receive


def _apart(rng: random.Random, lists: list[list[Instruction]]) -> None:
    """Assign communicators: one, one per kind, one per channel, or any on which both ends of a message agree."""
    how = rng.choice(("one", "kind", "channel", "any"))
    for rank, listed in enumerate(lists):
        for i, x in enumerate(listed):
            if not message(x):
                continue
            kind, ways = x.op.name[-1], (rank, x.peer) if x.op.send else (x.peer, rank)
            number = {"one": 0, "kind": int(kind == "B"), "channel": 1 + ways[0] * len(lists) + ways[1]}
            number["any"] = random.Random(f"{ways} {kind} {x.microbatch} {sum(ways)}").randrange(2)
            listed[i] = replace(x, communicator=number[how])


def _gather(rng: random.Random, listed: list[Instruction]) -> None:
    """Move a message past unrelated computes, next to another message."""
    at = [i for i, x in enumerate(listed) if message(x)]
    if not at:
        return
    i, step = rng.choice(at), rng.choice((-1, 1))
    x, j = listed[i], i + step
    while 0 <= j < len(listed) and not message(listed[j]) and listed[j].op.compute:
        if (listed[j].stage, listed[j].microbatch) == (x.stage, x.microbatch):
            return
        j += step
    if 0 <= j < len(listed) and message(listed[j]) and abs(i - j) > 1:
        listed.insert(j - (step > 0) + (step < 0), listed.pop(i))


def _move(rng: random.Random, listed: list[Instruction]) -> None:
    """Move a message to a nearby place."""
    at = [i for i, x in enumerate(listed) if message(x)]
    if at:
        i = rng.choice(at)
        x = listed.pop(i)
        j = min(max(0, i + rng.randint(-3, 3)), len(listed))
        while j < len(listed) and listed[j].second:  # a pair stays one
            j += 1
        listed.insert(j, x)


def _fuse(rng: random.Random, lists: list[list[Instruction]], chance: float) -> None:
    """Merge neighbours into batches."""
    for listed in lists:
        for i in range(1, len(listed)):
            before, after = listed[i - 1], listed[i]
            if message(before) and message(after) and rng.random() < chance:
                group = before.group if before.group >= 0 else i
                listed[i - 1 : i + 1] = [replace(before, group=group), replace(after, group=group)]


def _turn(rng: random.Random, listed: list[Instruction]) -> None:
    """Swap two members of a batch."""
    at = [i for i in range(1, len(listed)) if listed[i].group >= 0 and listed[i].group == listed[i - 1].group]
    if at:
        i = rng.choice(at)
        listed[i - 1 : i + 1] = [listed[i], listed[i - 1]]


def _lose(rng: random.Random, listed: list[Instruction]) -> None:
    """Move one end of a message to another communicator."""
    at = [i for i, x in enumerate(listed) if message(x)]
    if at:
        i = rng.choice(at)
        listed[i] = replace(listed[i], communicator=9)


def ends(script: Script, model: str, seed: int) -> bool:
    """Return True if a random run finishes; either all runs finish, or no run."""
    return set(walk(machine(script, model), random.Random(seed))) == {-1}


def differences(case: Program, seed: int) -> list[str]:
    """Describe the differences between the verdict and the oracles."""
    script = Script(case)
    report = pipesched.verify(case)
    said, done = report.ok, ends(script, "strict", seed) and right(case)
    wrong = []
    if said != done and not renamed(case, seed):
        found = sorted({str(d.code) for d in report.diagnostics if d.severity == "error"})
        wrong.append(f"seed {seed}: {found or 'right'}, strict {ends(script, 'strict', seed)}, symbols {right(case)}")
    ended = {model: ends(script, model, seed) for model in LAXER}
    held = {model: termination.holds(case, parse_model(model)) for model in LAXER}
    return wrong + [f"seed {seed}: {model} ends: {ended[model]}" for model in LAXER if ended[model] != held[model]]


def renamed(case: Program, seed: int) -> bool:
    """Return True if only names are wrong: a stage swaps two microbatches in both directions, so the values are right.
    It is still reported (PS403), as it cannot be intended.
    """
    codes = {str(d.code) for d in pipesched.verify(case).diagnostics if d.severity == "error"}
    return codes == {"PS403"} and ends(Script(case), "strict", seed) and right(case)


@pytest.mark.parametrize("first", range(0, deep(50), CHUNK))
def test_what_is_called_right_is_right(first: int) -> None:
    """The verdict under strict equals the outcome of a random run and of symbolic execution; the verdict under each
    laxer model equals the outcome of its run.
    """
    for seed in range(first, first + CHUNK):
        assert not differences(batched(seed), seed)


@pytest.mark.nightly
def test_the_mix_can_show_a_fault() -> None:
    """A third is right, a third is not; most have batches, many have several communicators, some finish only under
    laxer models.
    """
    count: Counter[str] = Counter()
    for seed in range(50):
        count += traits(batched(seed))
    assert 15 <= count["right"] <= 35, count
    assert count["batches"] > 30 and count["communicators"] > 20 and count["both verdicts"] > 2, count
    assert min(count[code] for code in ("PS401", "PS402", "PS403")) > 1, count


def traits(case: Program) -> Counter[str]:
    """Return the features of a program, and its verdict."""
    report = pipesched.verify(case)
    count = Counter({str(d.code) for d in report.diagnostics} | ({"right"} if report.ok else set()))
    count["batches"] = int((case.group >= 0).any())
    count["communicators"] = len(set(case.communicator.tolist())) > 1
    part = report.communication
    count["renamed"] = not report.ok and renamed(case, 0)
    count["both verdicts"] = part is not None and bool(part.holds) and bool(part.fails)
    return count


def tally(first: int, last: int) -> tuple[Counter[str], list[str]]:
    count: Counter[str] = Counter()
    wrong = []
    for seed in range(first, last):
        case = batched(seed)
        count["cases"] += 1
        count += traits(case)
        wrong += differences(case, seed)
    return count, wrong


def report(results: Iterable[tuple[Counter[str], list[str]]]) -> int:
    total: Counter[str] = Counter()
    wrong = []
    for count, different in results:
        total += count
        wrong += different
    print(f"{total['cases']} programs with batches and communicators, {len(wrong)} differences")
    for name in sorted(total.keys() - {"cases"}):
        print(f"  {name:20} {total[name]:9} {total[name] / total['cases']:7.1%}")
    print("\n".join(wrong[:20]))
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description="The verdict on batches beside random runs and tensors as symbols.")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    starts = range(asked.first, asked.first + asked.cases, CHUNK)
    with ProcessPoolExecutor(asked.jobs) as pool:
        return 1 if report(pool.map(tally, starts, [start + CHUNK for start in starts])) else 0


if __name__ == "__main__":
    sys.exit(main())
