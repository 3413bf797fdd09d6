"""Valid Python values work, invalid ones raise a PipeschedError, and every `repr` takes one line."""

from __future__ import annotations

import warnings
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import pipesched
from pipesched.diagnostics import PipeschedError
from pipesched.stream import loads

ROOT = Path(__file__).parents[2]
CSV = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
ANYTHING: tuple[Any, ...] = (
    *(None, True, 0, -1, 5.5, float("nan"), float("inf"), 10**40, 3j),
    *("4", " 4 ", "x", "", "80GB", "1e400", "9" * 50, "\x1b[31m", b"4"),
    *([4], [4, 3], (4,), [None], ["x"], [[1]], {"a": 1}, {4}, {"F": 2}, {"F": [1, 2]}, {"F": "x"}, {1: 2}),
    *(object(), Fraction(1, 2), Decimal("5.5"), np.int64(4), np.float64(2.5), np.array([4, 4]), Path("x"), range(3)),
)
VERIFY = ("p", "m", "mem_cap", "costs", "release", "comm", "torch_version", "stages", "placement", "max_ops")
OPTIMIZE = ("mem_cap", "costs", "release", "objective", "backward", "time_limit", "engine", "placement", "progress")
ORDERS: dict[str, Any] = {
    "rows of cells": CSV.splitlines(),
    "rows of words": ["F0.0 F0.1 B0.0 B0.1", "F1.0 B1.0 F1.1 B1.1"],
    "lines of an order": ["rank 0: F0.0 F0.1 B0.0 B0.1", "rank 1: F1.0 B1.0 F1.1 B1.1"],
    "lists of cells": [line.split(",") for line in CSV.splitlines()],
    "lists of words": [["F0.0", "F0.1", "B0.0", "B0.1"], ["F1.0", "B1.0", "F1.1", "B1.1"]],
    "a tuple with bubbles": (("0F0", "0F1", None, "0B0", "0B1"), (None, "1F0", "1B0", "1F1", "1B1")),
    "by rank": dict(enumerate(line.split(",") for line in CSV.splitlines())),
    "by rank, out of turn": {1: CSV.splitlines()[1], 0: CSV.splitlines()[0]},
    "an array": np.array([line.split(",") for line in CSV.splitlines()]),
}


def answers(function: Any, *arguments: Any, **options: Any) -> None:
    """Any values give an answer or a PipeschedError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(PipeschedError):
            function(*arguments, **options)


@pytest.mark.parametrize("option", VERIFY)
def test_no_value_of_an_option_ends_in_an_error_of_pythons(option: str) -> None:
    """Invalid values are refused by `verify`, which shares its options with the other functions."""
    for value in ANYTHING:
        answers(pipesched.verify, "1f1b", **{"p": 2, option: value})


@pytest.mark.parametrize(
    ("verb", "option", "value"),
    [("compare", "p", []), ("compare", "m", {}), ("show", "end", 10**39), ("verify", "recorded", "\x00")],
)
def test_nothing_and_too_much_are_refused_by_name(verb: str, option: str, value: object) -> None:
    """An option without a value, or with one out of range, is an error with a code."""
    try:
        found = getattr(pipesched, verb)("1f1b", **{"p": 2, "m": 2, option: value}).diagnostics
    except PipeschedError as error:
        found = error.diagnostics
    assert found and found[0].severity == "error"


@pytest.mark.parametrize("option", OPTIMIZE)
def test_no_value_ends_optimize_in_an_error_of_pythons(option: str) -> None:
    """No value ends `optimize` in one of Python's errors."""
    for value in ANYTHING:
        answers(pipesched.optimize, **{"p": 1, "m": 1, "time_limit": 1, option: value})


def test_no_value_as_a_schedule_ends_in_an_error_of_pythons() -> None:
    """No value of a schedule, a target or a version ends in one of Python's errors."""
    for value in ANYTHING:
        for function in (pipesched.verify, pipesched.load, pipesched.emit, pipesched.from_torch_csv):
            answers(function, value)
        answers(pipesched.emit, "1f1b", value, p=2)
        answers(pipesched.emit, "1f1b", "torch-csv", torch_version=value, p=2)


def test_values_mean_what_they_say() -> None:
    """A size as a text, a cap and costs as any number, a placement as a list: the same as on the command line."""
    told = pipesched.verify("1f1b", p="4", m=np.int64(8), mem_cap=5.5, costs={"F": 2, "I": "3/2", "W": 2.5})
    assert told == pipesched.verify("1f1b", p=4, m=8, mem_cap="11/2", costs="F=2,I=1.5,W=5/2")
    assert told.memory is not None and told.memory.cap == (Fraction(11, 2),) * 4
    by_stage = pipesched.verify("1f1b", p=2, m=2, costs={"F": [1, 2.5]}, mem_cap=[2, 1])
    assert by_stage.makespan == pipesched.verify("1f1b", p=2, m=2, costs="F=[1,2.5]").makespan
    best = pipesched.optimize(p="2", m="2", mem_cap=Decimal(2), costs={"F": 1})
    assert best.makespan == pipesched.optimize(p=2, m=2, mem_cap=2).makespan


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_in_memory_is_that_order(name: str) -> None:
    """A schedule object is verified, loaded, written and optimized like its file."""
    order, file = ORDERS[name], pipesched.Source("x.csv", CSV)
    told, known = pipesched.verify(order, torch_version="2.13"), pipesched.verify(file)
    assert (told.ok, told.makespan, told.peak, told.operations) == (True, known.makespan, known.peak, known.operations)
    assert pipesched.emit(order, "torch-csv") == pipesched.emit(file, "torch-csv") == CSV
    assert pipesched.load(order).order(1) == pipesched.load(file).order(1)


def test_a_finding_in_memory_has_its_row() -> None:
    """The place is the given row and cell."""
    report = pipesched.verify(["0F0,0F1,0B0,0B1", "1F0,1B0,1X1,1B1"])
    span = report.diagnostics[0].labels[0].span
    assert span is not None and (span.line, span.text) == (2, "1X1")


def torch_schedule(name: str, ranks: int, stages: int, microbatches: int) -> Any:
    """Return a schedule of torch, without processes."""
    from torch.distributed.pipelining import schedules

    made = [mock.MagicMock(num_stages=ranks * stages, group_size=ranks, group_rank=0) for _ in range(stages)]
    return getattr(schedules, name)(made if stages > 1 else made[0], microbatches)


@pytest.mark.parametrize(
    ("name", "stages", "own", "sizes"),
    [
        ("ScheduleInterleaved1F1B", 2, "interleaved", {"v": 2}),
        ("ScheduleZBVZeroBubble", 2, "zb_v", {}),
        ("ScheduleDualPipeV", 2, "dualpipev", {}),
        ("ScheduleGPipe", 1, "gpipe", {}),
        ("Schedule1F1B", 1, "1f1b", {}),
    ],
)
def test_a_schedule_of_torch_is_verified(name: str, stages: int, own: str, sizes: dict[str, int]) -> None:
    """The order of its runtime, with its messages if it exposes them, is the schedule of the library."""
    schedule = torch_schedule(name, 2, stages, 4)
    report, known = pipesched.verify(schedule), pipesched.verify(own, p=2, m=4, **sizes)
    assert report.ok, report
    assert (report.makespan, report.peak, report.messages) == (known.makespan, known.peak, known.messages)
    if stages > 1:
        assert pipesched.verify(schedule.pipeline_order).makespan == known.makespan
        assert pipesched.verify(schedule.pipeline_order_with_comms).messages == known.messages


def test_a_schedule_and_a_program_go_everywhere() -> None:
    """Every function accepts the results of `load`, which have the same members."""
    program = pipesched.load(ROOT / "tests" / "torch_fixtures" / "ok_1f1b_comms.csv")
    schedule = pipesched.load("1f1b", p=2, m=3)
    for made in (schedule, program):
        assert pipesched.load(made) is made
        assert pipesched.verify(made).ok and (made.ranks, made.stages, made.microbatches) == (2, 2, 3)
        assert loads(pipesched.emit(made)).stages == 2
        assert len(made.order(0)) == 6 and len(made.to_networkx()) == 12
    with pytest.raises(PipeschedError, match="already has its sizes"):
        pipesched.load(schedule, p=2)


def test_what_is_shown_is_a_line() -> None:
    """No representation of a public value shows arrays, has several lines or more than 200 characters."""
    schedule = pipesched.load("interleaved", p=64, v=4, m=128)
    program = pipesched.load(ROOT / "tests" / "torch_fixtures" / "ok_1f1b_comms.csv")
    report = pipesched.verify(schedule, mem_cap=300)
    wrong = pipesched.verify(pipesched.Source("x\x1b[31m.csv", "0F0,0B0\n0F1,what\n"))
    best = pipesched.optimize(p=2, m=2, mem_cap=2)
    costs = pipesched.Costs.parse(f"F=[{','.join(['1'] * 300)}]")
    values = [schedule, program, schedule.placement, schedule.order(0)[0], report, report.time, report.memory]
    values += [wrong, wrong.diagnostics[0], wrong.diagnostics[0].labels[0], wrong.diagnostics[0].labels[0].span]
    values += [pipesched.Source("x.ps", "schedule x(p)\n" * 99), costs, pipesched.Costs(), best, report.communication]
    values += [loads(pipesched.emit("1f1b", p=2)), *report.claims, *best.known]
    for value in values:
        shown = repr(value)
        assert "\n" not in shown and "\x1b" not in shown and len(shown) < 200 and "array" not in shown, shown


def test_what_is_not_known_is_said() -> None:
    """The figures of a report exist, or the error is raised."""
    with pytest.raises(PipeschedError, match="PS104"):
        pipesched.verify(pipesched.Source("x.ps", "")).makespan
