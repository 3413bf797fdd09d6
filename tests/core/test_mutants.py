"""No faulty mutant is accepted: a program that passes `verify` finishes even if every send waits for its receive, and
trains like the undivided model.

A right program of each family gets one slip, or up to three. Then two judges independent of `verify` decide: an
interpreter on symbols (`oracles/symbolic.py`) compares the gradient of every copy of every stage with the undivided
model, and a slow rendezvous (`oracles/simulate.py`) finds whether the program ends. Accepted and bad: none, ever. Some
hundreds here; as many as you like with

    python -m tests.core.test_mutants --cases 20000 --jobs 2

Rejected although harmless: about one in 30, and each for a reason that is an error wherever it stands (`HARMLESS`):

    PS302    an F twice: the activation is made again, and the gradient is the same
    PS303    a REDUCE_GRAD on a rank that has no gradient of the stage divides nothing
    PS307    parts of an overlap pair that need each other, or are no F with a B or I: right one after the other only
    PS309    a message that nobody uses carries what was never made
    PS405    a message sent and received twice: the second copy takes the place of an equal one
    PS602    a REDUCE_GRAD before all backwards divides nothing
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import pytest

import pipesched
from pipesched import compile as compiler
from pipesched.model.ops import Compute, Instruction, Op
from pipesched.model.schedule import Program, Schedule
from tests.depth import deep
from tests.makers import strategies
from tests.makers.mutate import Lists
from tests.makers.mutate_more import MUTATIONS
from tests.makers.programs import of_instructions
from tests.oracles import simulate, symbolic

ORDERS = Path(__file__).parents[1] / "orders"
HARMLESS = {"PS302", "PS303", "PS307", "PS309", "PS405", "PS602"}
CASES = deep(300, usual=225)
CHUNK = min(CASES, 300)


def built_in(name: str, **sizes: int) -> Callable[[], Schedule | Program]:
    return lambda: pipesched.load(name, **sizes)


def recorded(name: str) -> Callable[[], Schedule | Program]:
    return lambda: pipesched.load(ORDERS / f"{name}.txt")


def invented(seed: int) -> Callable[[], Schedule | Program]:
    return lambda: strategies.random_schedule(seed, ranks=3, microbatches=3)


def forwards() -> Schedule:
    """Inference: GPipe without its backwards."""
    schedule = pipesched.load("gpipe", p=3, m=3)
    orders = [[Compute(x.op, x.stage, x.microbatch) for x in o if x.op is Op.F] for o in simulate.orders_of(schedule)]
    return Schedule.from_orders(orders, schedule.placement, "forwards")


FAMILIES: dict[str, list[Callable[[], Schedule | Program]]] = {
    "gpipe": [built_in("gpipe", p=2, m=2), built_in("gpipe", p=3, m=3)],
    "1f1b": [built_in("1f1b", p=2, m=3), built_in("1f1b", p=3, m=2), built_in("1f1b", p=4, m=5)],
    "interleaved": [built_in("interleaved", p=2, v=2, m=2), built_in("interleaved", p=3, v=2, m=3)],
    "zb_h1": [built_in("zb_h1", p=2, m=3), built_in("zb_h1", p=3, m=4)],
    "zb_h2": [built_in("zb_h2", p=2, m=3), built_in("zb_h2", p=3, m=5)],
    "dualpipe": [built_in("dualpipe", p=2, m=4), built_in("dualpipe", p=4, m=8)],
    "zb-v": [recorded("zbv_handcrafted_p4_m8")],
    "1f1b-v": [recorded("1f1bv_p4_m8")],
    "v-half": [recorded("vhalf_head_p4_m8_F1I1W1c0")],
    "dualpipev": [recorded("dualpipev_p4_m8")],
    "chimera": [recorded("chimera_p4_d2_m4")],
    "inference": [forwards],
    "random": [invented(seed) for seed in range(60)],
}


@cache
def program(family: str, number: int) -> Program:
    made = FAMILIES[family][number]()
    return made if isinstance(made, Program) else compiler.lower(made)


def mutant(seed: int) -> tuple[str, str, Program, Program]:
    """Return the family, the change, the programs before and after; half of them with a single slip."""
    rng = random.Random(seed)
    family = rng.choice(sorted(FAMILIES))
    before = program(family, rng.randrange(len(FAMILIES[family])))
    lists: Lists = [before.instructions(rank) for rank in range(before.ranks)]
    done: list[str] = []
    slips = rng.choice((1, 1, 2, 3))
    while len(done) < slips:
        name = rng.choice(sorted(MUTATIONS))
        done += [name] if MUTATIONS[name](rng, lists) else []
    return family, " + ".join(done), before, of_instructions(lists, before.placement)


def right(mutated: Program) -> bool:
    return simulate.finishes(mutated) and symbolic.right(mutated)


def told(before: Program, now: Program) -> str:
    """Return the lists that differ, in words."""
    shown = []
    for rank in range(now.ranks):
        texts = [" ".join(map(_word, x.instructions(rank))) for x in (before, now)]
        if texts[0] != texts[1]:
            shown += [f"rank {rank}, before: {texts[0]}", f"rank {rank}, now:    {texts[1]}"]
    return "\n".join(shown)


def _word(x: Instruction) -> str:
    peer = "" if x.peer < 0 else f"{'<' if x.op.receive else '>'}{x.peer}"
    group = "" if x.group < 0 else f"[{x.group}]"
    return f"{'+' if x.second else ''}{x}{peer}{group}{'@1' if x.communicator else ''}"


@cache
def tally(first: int, last: int) -> tuple[Counter[tuple[str, ...]], list[str]]:
    """Return the counts by family, verdict and code; and the failures: bad but accepted, or rejected for no reason."""
    count: Counter[tuple[str, ...]] = Counter()
    wrong = []
    for seed in range(first, last):
        family, what, before, now = mutant(seed)
        report, good = pipesched.verify(now), right(now)
        codes = {str(d.code) for d in report.diagnostics if d.severity == "error"}
        judged = "right" if good else "bad"
        count["family", family] += 1
        count["rejected" if codes else "accepted", judged] += 1
        count.update(("rejected", judged, "for " + code) for code in codes)
        count.update(("rejected", judged, "for nothing but " + code) for code in codes if len(codes) == 1)
        if (not codes and not good) or (codes and good and not codes & HARMLESS):
            wrong.append(f"seed {seed}, {family}, {what}: {judged}, {sorted(codes)}\n{told(before, now)}")
    return count, wrong


@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_no_bad_mutant_is_accepted(first: int) -> None:
    """Every mutant is rejected, or right by both judges; a rejected right one has a reason from the list."""
    _, wrong = tally(first, first + CHUNK)
    assert not wrong, "\n\n".join(wrong[:3])


def test_every_family_is_right_before_it_is_changed() -> None:
    """Both judges and `verify` accept each program that mutants are made of."""
    for family, makers in FAMILIES.items():
        for number in range(len(makers)):
            made = program(family, number)
            assert pipesched.verify(made).ok and right(made), family


NEEDED = {"PS301", "PS302", "PS305", "PS307", "PS308", "PS309", "PS401", "PS402", "PS403"}
NEEDED |= {"PS601", "PS602", "PS603", "PS605", "PS606"}


def test_mutants_tell_the_checks_apart() -> None:
    """At least half are bad, a twentieth is not; each check alone rejects some bad one, so it is needed."""
    count: Counter[tuple[str, ...]] = sum(
        (tally(first, first + CHUNK)[0] for first in range(0, CASES, CHUNK)), Counter()
    )
    assert count["rejected", "bad"] >= CASES / 2 and count["accepted", "right"] >= CASES / 20
    alone = {key[2].split()[-1] for key in count if key[:2] == ("rejected", "bad") and "nothing but" in key[-1]}
    assert alone >= NEEDED


def _report(results: Iterable[tuple[Counter[tuple[str, ...]], list[str]]]) -> int:
    total: Counter[tuple[str, ...]] = Counter()
    wrong: list[str] = []
    for count, found in results:
        total += count
        wrong += found
    for key in sorted(total):
        print(f"{total[key]:8}  {'  '.join(key)}")
    print(f"{len(wrong)} accepted although bad, or rejected for no reason")
    print("\n\n".join(wrong[:5]))
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutants of right programs before verify and two other judges.")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    last = asked.first + asked.cases
    starts = range(asked.first, last, CHUNK)
    with ProcessPoolExecutor(asked.jobs) as pool:
        return 1 if _report(pool.map(tally, starts, [min(start + CHUNK, last) for start in starts])) else 0


if __name__ == "__main__":
    sys.exit(main())
