"""At any time limit, `optimize` returns a schedule that is no slower than any library schedule that fits the cap.

python -m tests.optimizer.test_never_worse --cases 300 --limit 2     more instances, each with this limit in seconds

The oracle runs each schedule of the library by hand, slot by slot, and adds up the memory of its ranks.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import pytest

import pipesched
from pipesched.diagnostics import PipeschedError
from pipesched.library.assets import built_in
from pipesched.library.inputs import library
from pipesched.model.costs import Costs
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from tests.depth import deep
from tests.oracles.simulate import rows, run

CALCULATED = (Op.F, Op.I, Op.W, Op.B)


@dataclass(frozen=True)
class Case:
    """A question, and the schedules of the library with its placement."""

    placement: str
    sizes: dict[str, int]
    costs: str
    objective: str
    backward: str
    cap: Fraction
    known: dict[str, Fraction]


def figures(schedule: Schedule, costs: Costs, objective: str) -> tuple[Fraction, Fraction]:
    """Return the objective and the largest peak, with all memory of a microbatch freed by its W or B."""
    played = run(schedule, rows(costs, schedule.stages))
    ends, peaks = [], []
    for rank, order in enumerate(played.orders):
        if not order:
            continue
        first = played.start[rank, 0] if objective == "span" else Fraction(0)
        ends.append(max(played.end[rank, i] for i in range(len(order))) - first)
        held, most = 0, 0
        for x in order:
            held += (x.op is Op.F) - (x.op in (Op.W, Op.B))
            most = max(most, held)
        peaks.append(Fraction(most * schedule.ranks, schedule.stages))
    return max(ends), max(peaks)


def alike(placement: str, sizes: dict[str, int], backward: str) -> Iterator[tuple[str, Schedule]]:
    """Yield the library's schedules with a placement at a size, of this kind of backward or of full backwards."""
    p, stages = sizes["p"], sizes["p"] * sizes["v"]
    turn = list(range(p))
    ranks = [r for c in range(sizes["v"]) for r in (turn if placement != "vee" or c % 2 == 0 else turn[::-1])]
    for name in built_in():
        head = re.search(r"^schedule \w+[^(\n]*\((.*?)\)$", library(name).text, re.DOTALL | re.MULTILINE)
        own = {key: size for key, size in sizes.items() if head and re.search(rf"\b{key}\b", head[1])}
        try:
            schedule = pipesched.load(name, **own)
        except PipeschedError:
            continue
        assert isinstance(schedule, Schedule)
        plain = schedule.placement.routes == 1 and schedule.placement.chain and not schedule.placement.frozen
        if not plain or schedule.placement.rank_of[0].tolist() != ranks or schedule.microbatches != sizes["m"]:
            continue
        kinds = {Op(op) for op in schedule.op.tolist()}
        whole = len(schedule) == stages * sizes["m"] * (2 if Op.I not in kinds else 3)
        if whole and kinds <= set(CALCULATED) and (backward == "split" or not kinds & {Op.I, Op.W}):
            yield name, schedule


def case(seed: int) -> Case | None:
    """Return a random question whose cap is the peak of a schedule of the library; None if no schedule is alike."""
    rng = random.Random(seed)
    placement = rng.choice(["linear", "vee", "vee", "loop"])
    p = rng.randint(2, 6)
    sizes = {"p": p, "v": 1 if placement == "linear" else 2, "m": p * rng.randint(1, 3) + rng.choice([0, 0, 1])}
    stages, even = p * sizes["v"], rng.random() < 0.6
    ranges = {key: rng.randint(1, 20) for key in "FIW"}
    row = lambda most: str(most) if even else f"[{','.join(str(rng.randint(1, most)) for _ in range(stages))}]"  # noqa: E731
    costs = ",".join(f"{key}={row(most)}" for key, most in ranges.items()) + f",C={rng.choice([0, 0, 1, 3])}"
    objective, backward = rng.choice(["makespan", "makespan", "span"]), rng.choice(["split", "split", "fused"])
    found = {name: figures(one, Costs.parse(costs), objective) for name, one in alike(placement, sizes, backward)}
    if not found:
        return None
    cap = rng.choice([peak for _, peak in found.values()])
    known = {name: value for name, (value, peak) in found.items() if peak <= cap}
    return Case(placement, sizes, costs, objective, backward, cap, known)


def above(seed: int, limit: float) -> str | None:
    """Return the schedules of the library that are below the answer, in words; empty if none is, None without a
    case.
    """
    one = case(seed)
    if one is None:
        return None
    question = {"objective": one.objective, "backward": one.backward, "placement": one.placement, "mem_cap": one.cap}
    answer = pipesched.optimize(**question, **one.sizes, costs=one.costs, time_limit=limit)  # type: ignore[arg-type]
    assert answer.value is not None
    better = [f"{name} {value}" for name, value in one.known.items() if value < answer.value]
    return f"seed {seed}: {answer.value}, but {', '.join(better)}" if better else ""


@pytest.mark.parametrize("seed", range(deep(6, usual=3)))
def test_no_answer_is_above_the_library(seed: int) -> None:
    """Even at a limit of 0 seconds, which leaves no time for a search."""
    assert above(seed, 0) == ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--limit", type=float, default=2)
    asked = parser.parse_args()
    found = [above(seed, asked.limit) for seed in range(asked.cases)]
    print(
        f"{sum(x is not None for x in found)} instances, {sum(map(bool, found))} above the library",
        *filter(None, found),
        sep="\n",
    )
    sys.exit(any(found))


if __name__ == "__main__":
    main()
