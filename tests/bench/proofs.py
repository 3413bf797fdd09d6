"""Measure proofs of optima: the CPU seconds to make a proof, its size, and the CPU seconds to check it.

    python -m tests.bench.proofs                    every instance
    python -m tests.bench.proofs V loop             the instances whose name begins with V
    python -m tests.bench.proofs --to FOLDER        also FOLDER/NAME.cnf and .lrat, and which other checkers accept them

The values are those of schedules that `pipesched optimize` finds; each proof is of what is a tick less. Checked means:
the packed proof is read, the clauses are written from the terms, and every step is followed.
"""

from __future__ import annotations

import argparse
import time
from base64 import b64decode
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pipesched.model.costs import Costs
from pipesched.optimizer.optimize_certify import certified
from pipesched.optimizer.optimize_request import Request, place, target_of
from pipesched.optimizer.proof.entries import unpacked
from pipesched.optimizer.proof.lrat import unproved
from pipesched.optimizer.proof.problem import problem as checked
from pipesched.optimizer.proof.ranks import too_busy
from pipesched.optimizer.solve.bounds.lower_bound import lower_bound
from pipesched.optimizer.solve.instance import Instance
from tests.oracles.foreign import accepts, installed

LATE = "F=2,I=3,W=1,C=1"
"""Skewed costs, and messages that take time."""


def instance(sizes: str, cap: str, placement: str = "linear", costs: str = "F=1,I=1,W=1", **more: Any) -> Instance:
    """sizes: p, m and, if it is used, v; cap: one cap, or one per rank."""
    given = dict(zip("pmv", map(int, sizes.split()), strict=False))
    caps = tuple(map(Fraction, cap.split(",")))
    asked = Request(None, given, {}, place(placement, given), caps, costs=Costs.parse(costs), **more)
    return target_of(asked).instance


def uneven(ranks: int, seed: int) -> str:
    """Return the stages that differ by up to 30 %."""
    factors = np.random.default_rng(seed).uniform(0.7, 1.3, ranks)
    stages = "[" + ",".join(str(round(10 * x)) for x in factors) + "]"
    return f"F={stages},I={stages},W={stages},C=1"


def instances() -> Iterator[tuple[str, Instance, int]]:
    """Yield the name, terms and least value of every instance."""
    for sizes, cap, best in (("8 16", "2", 145), ("8 16", "4", 79), ("8 32", "8", 103), ("8 64", "4", 295)):
        yield f"linear {sizes} cap {cap}", instance(sizes, cap), best
    for sizes, cap, best in (("16 32", "11", 127), ("16 64", "11", 226), ("16 64", "12", 219)):
        yield f"linear {sizes} cap {cap}", instance(sizes, cap), best
    for sizes, cap, best in (("4 12", "5/2", 80), ("6 12", "4", 83), ("8 16", "9/2", 116)):
        yield f"V {sizes} cap {cap}", instance(sizes, cap, "vee"), best
    for costs, best in (("F=1,I=2,W=1", 158), ("F=1,I=2,W=1,C=1", 210), (LATE, 302)):
        yield f"V 8 16 cap 5, {costs}", instance("8 16", "5", "vee", costs), best
    for sizes, cap, costs, best in (
        ("4 8 2", "2", "F=1,I=1,W=1", 63),
        ("4 8 3", "2", "F=1,I=1,W=1", 87),
        ("4 8 3", "3", LATE, 202),
        ("8 16 2", "4", "F=1,I=1,W=1", 125),
    ):
        yield f"loop {sizes} cap {cap}, {costs}", instance(sizes, cap, "loop", costs), best
    for costs, best in (("F=2,I=3,W=1", 262), ("F=1,I=2,W=1", 161), ("F=3,I=4,W=2", 373)):
        yield f"skewed 8 32 cap 6, {costs}", instance("8 32", "6", costs=costs), best
    yield "latency 4 16 cap 4, C=3", instance("4 16", "4", costs="C=3"), 119
    yield f"latency 8 16 cap 6, {LATE[:-1]}2", instance("8 16", "6", costs=f"{LATE[:-1]}2"), 227
    for p, m, cap, seed, best in ((4, 12, "3", 200, 447), (4, 12, "3", 201, 533), (8, 16, "6", 200, 653)):
        yield f"uneven {p} {m} cap {cap}, seed {seed}", instance(f"{p} {m}", cap, costs=uneven(p, seed)), best
    for sizes, cap, costs, best in (("4 12", "3", "F=2,B=5,C=1", 152), ("8 16", "4", "F=1,B=2,C=1", 164)):
        yield f"fused {sizes} cap {cap}, {costs}", instance(sizes, cap, costs=costs, fused=True), best
    yield "span 8 16 cap 4", instance("8 16", "4", objective="span"), 79
    yield f"span V 4 8 cap 5/2, {LATE}", instance("4 8", "5/2", "vee", LATE, objective="span"), 153
    yield "caps 2,3,4,4,3,2 of 6 12", instance("6 12", "2,3,4,4,3,2"), 85
    yield f"caps 4,3,2,1 of 4 12, {LATE}", instance("4 12", "4,3,2,1", costs=LATE), 101
    yield "two routes 4 8 cap 3", instance("4 8", "3", "dualpipe"), 27
    yield f"two routes 4 8 cap 3, {LATE}", instance("4 8", "3", "dualpipe", LATE), 68


def look(name: str, one: Instance, best: int, to: Path | None) -> str:
    """Return a line of the table."""
    problem, made = one.problem(), checked(one)
    below, scale = Fraction(best * problem.scale - 1, problem.scale), one.costs.ticks(one.placement.stages).scale
    path = None if to is None else str(to / name.replace(" ", "-").replace("/", "_"))
    ranks = "" if too_busy(made, int(below * scale)) is None else "ranks alone too"
    bound = lower_bound(problem)  # where that is the value already, its rank is asked alone first
    began = time.process_time()
    found = certified(one, below, bound.rank if problem.time(bound.value) == best else None, path)
    took = time.process_time() - began
    if not found.entry:
        return f"{name:44} {took:6.2f}  {found.note}; {ranks}"
    packed = b64decode(str(found.entry["lrat"]))
    began = time.process_time()
    text = unpacked(packed)
    wrong = unproved(text, made, int(below * scale))
    took_to_check, steps = time.process_time() - began, len(text.splitlines())
    told = wrong or ranks
    if path is not None:
        others = [
            f"{x} {'accepts' if accepts(x, Path(f'{path}.cnf'), Path(f'{path}.lrat')) else 'REFUSES'}"
            for x in installed()
        ]
        told = ", ".join(filter(None, (told, *others)))
    return f"{name:44} {took:6.2f} {steps:8,} {len(packed) / 1000:9,.1f} {took_to_check:6.2f}  {told}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--to", type=Path)
    asked = parser.parse_args()
    print(f"{'instance (p m v)':44} {'make s':>6} {'steps':>8} {'kB':>9} {'check s':>6}")
    for name, one, best in instances():
        if not asked.names or name.startswith(tuple(asked.names)):
            print(look(name, one, best, asked.to), flush=True)


if __name__ == "__main__":
    main()
