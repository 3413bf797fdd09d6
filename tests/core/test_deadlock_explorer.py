"""The static verdict equals the verdict from exploring all interleavings, for each rank and each model.

A few thousand programs here; any number with

    python -m tests.core.test_deadlock_explorer --cases 100000 --jobs 2

which prints counts and ends with 1 if anything differs. `--exhaustive` does every program of a shape instead.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from math import inf

import pytest

from pipesched.analysis import termination
from pipesched.analysis.communication import parse_model
from pipesched.analysis.events import Events
from pipesched.model.ops import Instruction, Op
from pipesched.model.schedule import Program
from tests.depth import deep
from tests.makers.random_programs import features, program, random_program, whole
from tests.oracles import explorer
from tests.oracles.explorer import MODELS
from tests.oracles.explorer_script import Script

CHAIN = ("strict", "one-stream", "pair-stream", "async"), ("strict", "buffered(1)", "buffered(2)", "buffered(inf)")
CHUNK = 60
parse = cache(parse_model)


def differences(program: Program, script: Script | None = None) -> list[str]:
    """Describe the differences between the explorer and the static analysis."""
    script = script or Script(program)
    expected = {model: explorer.stops(script, model) for model in MODELS}
    found = {model: Events(program, parse(model)).stops for model in MODELS}
    wrong = [f"{m}: explorer {expected[m]}, static {found[m]}" for m in MODELS if expected[m] != found[m]]
    capacity, static = explorer.least_capacity(script), termination.least_capacity(program)
    return wrong + ([f"least capacity: explorer {capacity}, static {static}"] if capacity != static else [])


def shrunk(lists: list[list[Instruction]]) -> list[list[Instruction]]:
    """Shrink a program that shows a difference until no single instruction can be dropped."""
    for rank, i in ((r, i) for r, x in enumerate(lists) for i in range(len(x))):
        smaller = [whole(x[:i] + x[i + 1 :]) if r == rank else x for r, x in enumerate(lists)]
        if differences(program(smaller)):
            return shrunk(smaller)
    return lists


def told(case: Program) -> str:
    """Describe the smallest difference found from here."""
    lists = shrunk([case.instructions(rank) for rank in range(case.ranks)])
    shown = [f"  rank {rank}: {'  '.join(map(_shown, instructions))}" for rank, instructions in enumerate(lists)]
    return "\n".join([*shown, *differences(program(lists))])


def _shown(x: Instruction) -> str:
    """Return ``0SEND_F1>2 in 5 on 1``: to rank 2, in group 5, on communicator 1."""
    peer = "" if x.peer < 0 else f"{'<' if x.op.receive else '>'}{x.peer}"
    where = ("" if x.group < 0 else f" in {x.group}") + ("" if x.communicator == 0 else f" on {x.communicator}")
    return f"{'+' if x.second else ''}{x}{peer}{where}"


def random_cases(first: int, last: int) -> Iterator[Program]:
    return (random_program(random.Random(seed)) for seed in range(first, last))


@pytest.mark.parametrize("first", range(0, deep(60), CHUNK))
def test_the_static_stops_and_capacity_are_those_of_all_interleavings(first: int) -> None:
    """Under every model the program is confluent, each rank stops where the analysis says, and the capacity is the
    least.
    """
    for case in random_cases(first, first + CHUNK):
        assert not differences(case), told(case)


def test_what_holds_under_a_stricter_model_holds_under_a_laxer_one() -> None:
    """Strict implies one-stream, pair-stream and async; strict implies buffered(1), then buffered(2), then
    buffered(inf)."""
    for case in random_cases(0, deep(125)):
        for models in CHAIN:
            verdicts = [termination.holds(case, parse(model)) for model in models]
            assert verdicts == sorted(verdicts), (models, verdicts)


def test_the_least_capacity_is_the_edge() -> None:
    """buffered(k) holds from the least capacity on and not below; none: no number of slots suffices."""
    for case in random_cases(0, deep(62)):
        capacity = termination.least_capacity(case)
        enough = inf if capacity is None else capacity
        tried = [termination.holds(case, parse(f"buffered({k})")) for k in range(1, 6)]
        assert tried == [k >= enough for k in range(1, 6)]
        assert termination.holds(case, parse("buffered(inf)")) == (capacity is not None)
        assert termination.holds(case, parse("strict")) == (capacity == 0)


@pytest.mark.nightly
def test_the_mix_can_show_a_fault() -> None:
    """Every feature occurs in a hundredth of the programs, either verdict in a tenth, and capacities exceed 2."""
    cases = list(random_cases(0, 200))
    scripts = [Script(case) for case in cases]
    tried = Counter(feature for case in cases for feature in features(case))
    assert min(tried.values()) >= 2 and len(tried) == 13, tried
    for model in MODELS:
        good = sum(explorer.holds(script, model) for script in scripts)
        assert 20 <= good <= 180, (model, good)
    assert {explorer.least_capacity(script) for script in scripts} >= {0, 1, 2, 3, None}


LETTERS = {"S": Op.SEND_F, "R": Op.RECV_F, "F": Op.F, "w": Op.WAIT_SEND_F}


def words(letters: str, longest: int, peer: int, batches: bool) -> Iterator[list[Instruction]]:
    """Yield every list of up to `most` instructions that talk to the peer; with batches, in all ways to fuse
    neighbours."""
    for n in range(longest + 1):
        for cuts in itertools.product((0, 1), repeat=max(0, n - 1) if batches else 0):
            group = [0, *itertools.accumulate(cuts)] if batches else [-1] * n
            for word in itertools.product(letters, repeat=n):
                yield [_instruction(letter, peer, group[i]) for i, letter in enumerate(word)]


def _instruction(letter: str, peer: int, group: int) -> Instruction:
    return Instruction(LETTERS[letter], 0, 0, *((peer, group) if letter in "SR" else ()))


def two_ranks(letters: str, longest: int, batches: bool) -> Iterator[Program]:
    """Return every program of two ranks with such lists, matched or not."""
    each = [list(words(letters, longest, 1 - rank, batches)) for rank in range(2)]
    return (program(list(lists)) for lists in itertools.product(*each))


def three_ranks(messages: int) -> Iterator[Program]:
    """Yield every matched program of three ranks with `most` single messages, on one communicator."""
    channels = list(itertools.permutations(range(3), 2))
    for chosen in itertools.combinations_with_replacement(channels, messages):
        orders = []
        for rank in range(3):
            mine = [Instruction(Op.SEND_F, 0, 0, b) for a, b in chosen if a == rank]
            mine += [Instruction(Op.RECV_F, 0, 0, a) for a, b in chosen if b == rank]
            orders.append(list(dict.fromkeys(itertools.permutations(mine))))
        yield from (program([list(order) for order in lists]) for lists in itertools.product(*orders))


SHAPES: dict[str, Callable[[], Iterator[Program]]] = {
    "2 ranks, <= 4 sends and receives each": lambda: two_ranks("SR", 4, False),
    "2 ranks, <= 3 sends and receives each, all batches": lambda: two_ranks("SR", 3, True),
    "2 ranks, <= 3 of send, receive, F, WAIT_SEND each": lambda: two_ranks("SRFw", 3, False),
    "3 ranks, <= 3 messages": lambda: itertools.chain(*(three_ranks(n) for n in range(4))),
}
LARGER: dict[str, Callable[[], Iterator[Program]]] = {
    "2 ranks, <= 4 sends and receives each, all batches": lambda: two_ranks("SR", 4, True),
    "2 ranks, <= 4 of send, receive, F each": lambda: two_ranks("SRF", 4, False),
    "3 ranks, 4 messages": lambda: three_ranks(4),
}


@pytest.mark.parametrize("shape", list(SHAPES))
def test_every_program_of_a_small_shape(shape: str) -> None:
    """The test runs all programs of a small shape, or a sample of a large one; `--exhaustive` tries all."""
    cases = list(SHAPES[shape]())
    for case in cases[:: 1 + len(cases) // deep(45)]:
        assert not differences(case), told(case)


ODD = {
    "the later of two equal receives is awaited": (
        [Instruction(Op.RECV_F, 0, 0, 1), Instruction(Op.RECV_F, 0, 0, 2), Instruction(Op.F, 0, 0)],
        [],
        [Instruction(Op.SEND_F, 0, 0, 0)],
    ),
    "the later of two equal sends is awaited": (
        [Instruction(Op.SEND_F, 0, 0, 1, communicator=c) for c in (1, 0)] + [Instruction(Op.WAIT_SEND_F, 0, 0)],
        [Instruction(Op.RECV_F, 0, 0, 0)],
    ),
    "a SYNC is on no communicator": (
        [Instruction(Op.SYNC, 1, peer=1)],
        [Instruction(Op.SYNC, 1, peer=0, communicator=2)],
    ),
}


@pytest.mark.parametrize("what", ODD)
def test_what_random_programs_seldom_have(what: str) -> None:
    """Small programs that only a few of a thousand random ones contain."""
    assert not differences(program([*ODD[what]])), what


def tally(cases: Iterable[Program]) -> tuple[Counter[str], list[str]]:
    """Return the counts of cases, features, deadlocks and capacities; the differences in words."""
    count: Counter[str] = Counter()
    wrong = []
    for case in cases:
        script = Script(case)
        wrong += [told(case)] if differences(case, script) else []
        count["cases"] += 1
        count.update(f"feature  {name}" for name in features(case))
        count.update(f"deadlock {model}" for model in MODELS if not explorer.holds(script, model))
        count[f"capacity {explorer.least_capacity(script)}"] += 1
    return count, wrong


def _random_tally(first: int, last: int) -> tuple[Counter[str], list[str]]:
    return tally(random_cases(first, last))


def _shape_tally(shape: str, part: int, parts: int) -> tuple[Counter[str], list[str]]:
    return tally(itertools.islice((SHAPES | LARGER)[shape](), part, None, parts))


def _report(title: str, results: Iterable[tuple[Counter[str], list[str]]]) -> int:
    total: Counter[str] = Counter()
    wrong = []
    for count, different in results:
        total += count
        wrong += different
    print(f"{title}: {total['cases']} programs x {len(MODELS)} models, {len(wrong)} differences")
    for name in sorted(total.keys() - {"cases"}):
        print(f"  {name:32} {total[name]:9} {total[name] / total['cases']:7.1%}")
    print("\n".join(wrong[:5]))
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description="The static deadlock verdict beside all interleavings.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--exhaustive", action="store_true", help="every program of a shape instead of random ones")
    asked = parser.parse_args()
    wrong = 0
    with ProcessPoolExecutor(asked.jobs) as pool:
        if asked.exhaustive:
            for shape in SHAPES | LARGER:
                parts = range(asked.jobs)
                args = [shape] * asked.jobs, parts, [asked.jobs] * asked.jobs
                wrong += _report(shape, pool.map(_shape_tally, *args))
        else:
            last = asked.first + asked.cases
            starts = range(asked.first, last, CHUNK)
            ends = [min(start + CHUNK, last) for start in starts]
            wrong += _report("random", pool.map(_random_tally, starts, ends))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
