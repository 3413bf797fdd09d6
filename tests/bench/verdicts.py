"""Measure the verdicts per second of one process for schedules one by one, for schedules together, and for draws of
jitter.

    python -m tests.bench.verdicts                      all rows: about a minute
    python -m tests.bench.verdicts --runs 9 --sizes 100000

CPU seconds of this process, the least of the runs: other work on the machine makes some of them longer. A loaded
schedule is examined and its report made; a sweep loads it too, and reads the file once.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from pipesched.common.side_by_side import settle
from pipesched.compile import Examination, Options, examine, load, read
from pipesched.insight.compare import compare
from pipesched.insight.jitter import DRAWS, makespans
from pipesched.verbs.verify import verify, verify_all

SIDE_BY_SIDE = 1000  # schedules
Sizes: TypeAlias = list[dict[str, int]]


def seconds(runs: int, work: Callable[[], object]) -> float:
    """The least CPU time of several runs."""

    def run() -> float:
        begin = time.process_time()
        work()
        return time.process_time() - begin

    work()
    return min(run() for _ in range(runs))


def examined(name: str, sizes: Sizes) -> list[Examination]:
    """Loaded schedules without derived facts."""
    options = [Options(size) for size in sizes]
    return [examine(load(read(name), one), one) for one in options]


def fresh(made: list[Examination]) -> list[Examination]:
    """The same, with nothing derived."""
    return [examine(replace(one.loaded, schedule=replace(one.loaded.schedule)), one.options) for one in made]


def reports(made: list[Examination], *, beside: bool) -> None:
    again = fresh(made)
    if beside:
        settle(again)
    for one in again:
        assert one.report.ok


def spread(count: int) -> Sizes:
    """This many sizes, p and m from 1 up, sizes with the fewest operations first."""
    most = next(n for n in itertools.count(1) if sum(n // p for p in range(1, n + 1)) >= count)
    return [{"p": p, "m": m} for p in range(1, most + 1) for m in range(1, most // p + 1)][:count]


def rows(runs: int, count: int) -> Iterator[tuple[str, float, int, str]]:
    """A measurement: its name, its seconds, the count and its unit."""
    for name, size in (("1f1b", {"p": 4, "m": 8}), ("zb_v", {"p": 4, "m": 8}), ("1f1b", {"p": 16, "m": 64})):
        text = f"{name} p={size['p']} m={size['m']}"
        few, many = examined(name, [size] * 20), examined(name, [size] * SIDE_BY_SIDE)
        one_by_one = seconds(runs, lambda: reports(few, beside=False))  # noqa: B023
        yield f"{text}: loaded, one by one", one_by_one, len(few), "verdicts"
        beside = seconds(runs, lambda: reports(many, beside=True))  # noqa: B023
        yield f"{text}: loaded, side by side", beside, len(many), "verdicts"
    sizes = [Options(size) for size in spread(count)]
    source = read("1f1b")
    yield "1f1b: a sweep", seconds(1, lambda: [*verify_all([(source, x) for x in sizes])]), len(sizes), "sizes"
    some = sizes[:: max(1, len(sizes) // 500)]
    yield "1f1b: some of it one by one", seconds(1, lambda: [verify(source, x) for x in some]), len(some), "sizes"
    named = [read(name) for name in ("gpipe", "1f1b", "zb_h1")]
    grid = [{"p": p, "m": m} for p in range(2, 9) for m in (4, 8, 16, 32)]
    yield "compare gpipe 1f1b zb_h1", seconds(runs, lambda: compare(named, grid, Options())), 3 * len(grid), "rows"
    for name, p, m in (("1f1b", 16, 64), ("zb_v", 16, 64)):
        (made,) = examined(name, [{"p": p, "m": m}])
        assert made.report.ok
        spent = seconds(runs, lambda: makespans(made.analysis, 0.05))  # noqa: B023
        yield f"{name} p={p} m={m}: --jitter 5%", spent, DRAWS, "draws"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sizes", type=int, default=2000, help="of the sweep")
    asked = parser.parse_args()
    print(f"{'':40}{'cpu s':>8}{'a second':>10}")
    for name, spent, count, what in rows(asked.runs, asked.sizes):
        print(f"{name:40}{spent:8.3f}{count / spent:10.0f} {what}", flush=True)


if __name__ == "__main__":
    main()
