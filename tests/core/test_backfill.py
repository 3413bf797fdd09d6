"""`backfill` moves the operations of lists to the places that a slow search finds, and keeps the source position of
each."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import pipesched
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source
from tests.core.test_random_forms import counted
from tests.depth import deep
from tests.makers import ps_forms

TEXT = (Path(__file__).parents[2] / "schedules" / "v1f1b.ps").read_text("utf-8")


def loaded(text: str, **sizes: int) -> Schedule:
    made = pipesched.load(Source("x.ps", text), **sizes)
    assert isinstance(made, Schedule)
    return made


@pytest.mark.parametrize("block", range(3))
def test_random_lists_move_as_a_slow_search_says(block: int) -> None:
    """In random files of every form, each operation has the first start that fits, out of all starts tried in turn."""
    seeds = range(block * 10_000, (block + 1) * 10_000)
    moved = (seed for seed in seeds if "backfill" in ps_forms.program(seed)[0])
    ends, _ = counted([next(moved) for _ in range(deep(6))])
    assert ends["accepted"] > deep(3)


@pytest.mark.parametrize(("p", "m"), [(3, 4), (4, 9), (5, 12)])
def test_a_moved_operation_keeps_its_origin(p: int, m: int) -> None:
    """The line and the loop bindings of an operation are those that it has in the list."""
    moved, listed = loaded(TEXT, p=p, m=m), loaded(TEXT.replace("backfill", ""), p=p, m=m)
    places = [{str(made[at]): made.origin.place(at) for at in range(len(made))} for made in (moved, listed)]
    shown = [{x: (place.span.line, place.bindings) for x, place in each.items()} for each in places]
    assert shown[0] == shown[1] and len({bindings for _, bindings in shown[0].values()}) > m
    assert [str(moved[at]) for at in range(len(moved))] != [str(listed[at]) for at in range(len(listed))]


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("backfill", "backfill  F[0]", "PS229", "`backfill` must be the last statement"),
        ("rank r {", "rank 0 { repeat m { F[0] } }\nrank r {", "PS229", "must end all programs or none of them"),
        ("rank r {", "versions stash\nrank r {\n STEP", "PS238", "`backfill` does not support a STEP"),
        ("F[0]", "F[0]  R[0]", "PS224", "`backfill` does not support R"),
        ("F[0]", "F[0]  O[0]", "PS224", "`backfill` does not support O"),
        ("backfill", "backfil", "PS101", "found `backfil`"),
    ],
)
def test_what_backfill_does_not_support_is_named(old: str, new: str, code: str, said: str) -> None:
    """A program of one rank, a later statement, a STEP and copies are refused with their line."""
    (found,) = pipesched.verify(Source("x.ps", TEXT.replace(old, new, 1)), p=4, m=8).diagnostics
    assert (found.code, found.where is not None) == (code, True) and said in found.message


def test_lists_that_wait_for_each_other_are_reported_as_written() -> None:
    """A cycle in the lists is the finding that it is without `backfill`."""
    text = re.sub(r"F\[1\]\n", "B[0]\n", TEXT, count=1)
    reports = [pipesched.verify(Source("x.ps", x), p=2, m=4) for x in (text, text.replace("backfill", ""))]
    first, second = ([x.message for x in report.diagnostics] for report in reports)
    assert first == second != []


@pytest.mark.parametrize("cost", ["F=3,B=1", "C=5"])
def test_costs_of_the_command_line_change_no_order(cost: str) -> None:
    """The clock has the costs of the file; the report says so."""
    report = pipesched.verify("v1f1b", p=4, m=8, costs=cost)
    assert report.ok and "ordered by `backfill` with the costs in the file: 1 for each result" in str(report)
    ranks = [json.loads(pipesched.emit("v1f1b", p=4, m=8, costs=costs))["ranks"] for costs in (None, cost)]
    first, second = ([[x for x in row if x["op"] in "FB"] for row in rows] for rows in ranks)
    assert first == second
