"""For files that are not in the library, `prove` agrees with trying all small sizes.

`tests/data/proved` has schedules of papers (DAPPLE, GPipe with recomputation, out-of-order backprop), and others: an
order by the parity of rank and instant, pairs of microbatches, a wave, two routes, cool-downs that are split, a
deadlock. Each has claims, right and wrong.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import pipesched
from pipesched.support.source import Source
from tests.depth import deep
from tests.prover.test_prove_mutants import smallest, wrong

pytest.importorskip("islpy")

FILES = sorted((Path(__file__).parents[1] / "data" / "proved").glob("*.ps"))
OPEN = {("pairs", 0), ("pairs", 2), ("pairs", 3), ("pairs", 4), ("late_weights", 4)}
"""The claims that are not settled for every p, by file and number."""
QUICK = {"even_odd", "frugal", "gpipe_recompute", "first_chunk_first"}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(x, marks=pytest.mark.nightly if x.stem in ("gpipe_recompute", "frugal") else (), id=x.stem)
        for x in FILES
    ],
)
def test_what_is_proved_is_so_and_what_is_false_is_refuted(path: Path) -> None:
    """At p = 1 .. 4, m = 1 .. 7 and several costs, no proved property is false, and each false one is refuted at the
    smallest size, where `verify` agrees.
    """
    if deep(1) < 2 and path.stem not in QUICK:
        pytest.skip("with --depth 2")
    source = Source(path.name, path.read_text("utf-8"))
    orders, claims = wrong(source, [(p, m) for p in range(1, 5) for m in range(1, 8)], random.Random(path.name))
    false = {0: orders} if orders else {number + 2: sizes for number, sizes in claims.items()}
    found = pipesched.prove(source)

    for answer in found.answers:
        assert not any(x.outcome == "proved" and x.number in false for x in answer.findings)
    for finding in found.answers[0].findings:
        counterexample = finding.counterexample
        if finding.number not in false:
            assert finding.outcome == ("not settled" if (path.stem, finding.number) in OPEN else "proved"), finding
            continue
        assert finding.outcome == "refuted" and counterexample is not None
        size = counterexample.parameters["p"], counterexample.parameters["m"]
        assert (sum(size), size) <= (sum(smallest(false[finding.number])), smallest(false[finding.number]))
        costs = dict(counterexample.costs) or None
        assert pipesched.verify(source, costs=costs, **counterexample.parameters).exit_status == 1
