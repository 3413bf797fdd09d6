"""`optimize --lost R` orders the remaining ranks; the results are compared with placements and optima from code that
shares nothing with it.

python -m tests.optimizer.test_lost      each rank of 3 and 4 pipelines lost in turn: proofs, ReCycle's file, gloo
"""

from __future__ import annotations

import json

import pytest

import pipesched
from pipesched.__main__ import main as command
from pipesched.support.source import Source
from tests.depth import some
from tests.oracles.brute import Instance, optimum

Rows = list[list[int]]
ALL = [(2, n, lost) for n in (3, 4) for lost in range(2 * n)]


def at(p: int, n: int, k: int, lost: int) -> list[list[int]]:
    """Return the ranks that may run each stage of a microbatch of pipeline k: its own, or copies of the lost one."""
    others = [[j * p + s for j in range(n) if j != k] if k * p + s == lost else [k * p + s] for s in range(p)]
    return [[x - (x > lost) for x in row] for row in others]


@pytest.mark.parametrize(("p", "n", "m", "lost"), [(2, 3, 4, 1), (3, 3, 6, 4), (3, 4, 7, 11), (2, 2, 3, 0)])
def test_only_the_microbatches_of_the_lost_rank_move(p: int, n: int, m: int, lost: int) -> None:
    """Microbatches of the lost rank go to all copies of its stage, in parts that differ by at most one; every other
    microbatch keeps its ranks.
    """
    made = pipesched.optimize(p=p, m=m, lost=lost, pipelines=n, time_limit=2)
    placement = made.instance.placement
    taken: dict[int, int] = {}
    for i, route in enumerate(placement.route_of.tolist()):
        row, allowed = placement.rank_of[route].tolist(), at(p, n, i // m, lost)
        assert all(rank in ranks for rank, ranks in zip(row, allowed, strict=True)), (i, row)
        if i // m == lost // p:
            taken[row[lost % p]] = taken.get(row[lost % p], 0) + 1
    assert sorted(taken) == at(p, n, lost // p, lost)[lost % p]
    assert sum(taken.values()) == m and max(taken.values()) - min(taken.values()) <= 1
    assert made.report.ok and pipesched.verify(Source("left.ps", made.source)).ok


@pytest.mark.parametrize(
    ("n", "m", "cap", "lost"),
    [pytest.param(2, 2, 1, 0, marks=pytest.mark.nightly), (2, 2, 1, 1), (3, 1, None, 0), (3, 1, None, 1)],
)
def test_no_order_is_shorter(n: int, m: int, cap: int | None, lost: int) -> None:
    """The proved optimum equals the best of a search through all orders, with the same memory on each rank as
    before."""
    fused, p = m > 1, 2
    rows: Rows = []
    for i in range(n * m):
        allowed = at(p, n, i // m, lost)
        rows.append([ranks[i % len(ranks)] for ranks in allowed])
    each, none = [1] * p, [0] * p
    caps = [cap or n * m] * (n * p - 1)
    tried = Instance(rows, [*range(n * m)], n * p - 1, fused, each, each, each, [2] * p, none, each, none, each, caps)
    options = {"backward": "fused" if fused else "split", "costs": "F=1,B=2" if fused else "F=1,I=1,W=1"}
    made = pipesched.optimize(p=p, m=m, lost=lost, pipelines=n, mem_cap=cap, time_limit=5, **options)  # type: ignore[arg-type]
    assert made.proved and made.makespan == optimum(tried)
    assert made.lost is not None and max(made.lost.peak) <= (cap or n * m)


def lost_rank(p: int, n: int, lost: int, *, run: bool) -> str:
    """Compare the optimum of what is left, with proof, with ReCycle's file; run it on processes; return the figures."""
    m, cap = n * (n - 1), 2 * p
    made = pipesched.optimize(p=p, m=m, lost=lost, pipelines=n, mem_cap=cap, time_limit=30)
    file = pipesched.verify("recycle", p=p, n=n, m=n * m, lost=lost, cap=cap)
    assert file.ok and file.time is not None and made.makespan is not None and made.lower_bound is not None
    assert made.report.ok and made.lost is not None and max(made.lost.peak) <= cap
    assert made.makespan <= file.time.makespan <= made.lower_bound * 21 / 20
    error = ""
    if run:
        found = pipesched.run(Source("left.ps", made.source), steps=1, pace=0)
        assert isinstance(found, pipesched.Rehearsal) and found.ok and found.error < 1e-12
        error = f", gradients within {found.error:.1e} on gloo"
    return f"p={p} n={n} lost={lost}: {made.status} {made.makespan}, the file {file.time.makespan}{error}"


@pytest.mark.parametrize(("p", "n", "lost"), some(ALL, 4))
def test_what_is_left_is_within_5_percent(p: int, n: int, lost: int) -> None:
    """Both the answer and ReCycle's file are within 5 % of a proved bound, and within the memory."""
    lost_rank(p, n, lost, run=False)


@pytest.mark.nightly
def test_what_is_left_runs() -> None:
    """On processes, gradients of the answer equal the undivided model's: three copies of one stage, two of another."""
    lost_rank(2, 3, 3, run=True)


@pytest.mark.parametrize("cap", [None, pytest.param(8, marks=pytest.mark.nightly)])
def test_many_pipelines_have_an_answer_within_a_short_limit(cap: int | None) -> None:
    """Of 16 pipelines of 8 ranks; within 5 % of its bound, which no schedule is below."""
    made = pipesched.optimize(p=8, m=16, lost=9, pipelines=16, mem_cap=cap, time_limit=2)
    assert made.makespan is not None and made.lower_bound is not None and made.report.ok
    assert made.makespan <= made.lower_bound * 21 / 20


@pytest.mark.parametrize("name", ["dualpipe", "chimera"])
def test_a_schedule_with_copies_needs_no_pipelines(name: str) -> None:
    """The other copy of each stage takes all microbatches of the lost one; a step takes its double work at least."""
    made = pipesched.optimize(placement=name, p=4, m=8, lost=1, time_limit=5)
    assert made.lost is not None and made.lost.peers == (2,) and made.lost.moved == 8
    assert made.makespan is not None and made.makespan >= 2 * 8 * 3


def test_the_answer_says_what_a_step_costs() -> None:
    """As text and as JSON: the makespan of all ranks, and the ratio; `verify` accepts the answer."""
    made = pipesched.optimize(p=3, m=6, lost=4, pipelines=3, mem_cap=3, time_limit=5)
    data = json.loads(json.dumps(made.to_json()))
    whole = pipesched.optimize(p=3, m=6, mem_cap=3, time_limit=5)
    assert data["lost"]["makespan"] == whole.makespan and data["lost"]["peers"] == [1, 7]
    assert whole.makespan is not None
    assert data["lost"]["ratio_decimal"] == float(data["makespan"] / whole.makespan)
    assert data["lost"]["peak"] == [3, 3, 2, 3, 2, 3, 3, 2]
    assert f"but {whole.makespan} with all 9 ranks" in str(made)
    checked = pipesched.verify(Source("x.json", json.dumps(data)))
    assert checked.ok and checked.to_json()["optimum"]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("--lost 4", "PS225", "rank 4 cannot be lost: the ranks are 0 to 3"),
        ("--lost -1 --pipelines 2", "PS225", "the ranks are 0 to 7"),
        ("--lost 1", "PS702", "no other rank has a copy of stage 1"),
        ("--pipelines 3", "PS225", "--pipelines requires --lost"),
        ("--lost 1 --pipelines 0", "PS225", "0 pipelines"),
        ("--lost 1 --pipelines 99999999999", "PS225", "at most 2,000,000 can be optimized"),
        ("--lost 1 --pipelines 2 --all-m", "PS225", "--lost contradicts --all-m"),
        ("--lost 1 --pipelines 2 --front", "PS225", "--lost contradicts --front"),
        ("--lost 1 --pipelines 2 --objective span", "PS225", "--lost contradicts --objective span"),
        ("--lost 1 --pipelines 2 --placement any", "PS225", "--lost contradicts --placement any"),
        ("--lost 1 --pipelines 2 --mem-cap 2..4", "PS225", "--lost requires one cap"),
        ("--lost 1 --pipelines 2 --mem-cap 60GB --model megatron-1.7b", "PS225", "a cap must be in activations"),
        ("skippipe --lost 1 --p 4", "PS702", "skips stage"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(
    options: str, code: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One error, with its code."""
    status = command(["optimize", *options.split()])
    found = capsys.readouterr().err
    assert status in (1, 2) and f"[{code}]" in found and said in found, found


def main() -> None:
    """Print the figures of each rank lost in turn."""
    for p, n in ((2, 3), (2, 4), (3, 3), (3, 4), (4, 3), (4, 4)):
        for lost in range(p * n):
            print(lost_rank(p, n, lost, run=True), flush=True)


if __name__ == "__main__":
    main()
