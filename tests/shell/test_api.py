"""The Python API takes and returns objects; it does not print or exit, and faults are in the report."""

from __future__ import annotations

import inspect
import io
import json
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import pipesched
from pipesched import Costs, PipeschedError, Placement, Program, Report, Schedule, Source
from pipesched import compile as compiler
from pipesched.model.release import Release
from tests.makers import strategies

ORDERS = Path(__file__).parents[1] / "orders"
CSV = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
COMMS = (
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
    "1RECV_F0,1F0,1B0,1RECV_F1,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n"
)
BROKEN = "0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n"


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    """`__all__`, `dir` and the attributes agree; each name, and each of its methods and attributes, is documented."""
    assert set(pipesched.__all__) <= set(dir(pipesched))
    for name in pipesched.__all__:
        thing = getattr(pipesched, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            public = [x for x in vars(thing).items() if not x[0].startswith("_") and inspect.isfunction(x[1])]
            assert [x for x, method in public if not inspect.getdoc(method)] == [], name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pipesched.nothing


def test_load_gives_a_schedule(tmp_path: Path) -> None:
    """A built-in name, a path as text or Path, and a Source give a Schedule, with the file's messages if it has some; a
    schedule derived from it has none.
    """
    by_name = pipesched.load("1f1b", p=3, m=5)
    assert isinstance(by_name, Schedule) and (by_name.ranks, by_name.stages, by_name.microbatches) == (3, 3, 5)
    assert by_name.parameters == {"p": 3, "m": 5} and str(by_name.order(2)[1]) == "B2.0"
    file = tmp_path / "mine.csv"
    file.write_text(CSV, encoding="utf-8")
    for target in (file, str(file), Source("mine.csv", CSV)):
        made = pipesched.load(target)
        assert isinstance(made, Schedule) and [str(x) for x in made.order(1)] == ["F1.0", "B1.0", "F1.1", "B1.1"]
        assert made.program is None
    loaded = pipesched.load(Source("comms.csv", COMMS))
    assert isinstance(loaded, Schedule) and isinstance(loaded.program, Program)
    assert str(loaded.program.instructions(1)[0]) == "1RECV_F0" and str(loaded.order(1)[0]) == "F1.0"
    assert pipesched.load(loaded.program).program is loaded.program and replace(loaded, name="other").program is None
    assert isinstance(pipesched.load(ORDERS / "zbv_handcrafted_p4_m8.txt"), Schedule)


def test_from_torch_csv_reads_both_forms() -> None:
    """compute_only is a Schedule, compute_comms one with its program; other files raise."""
    assert pipesched.from_torch_csv(Source("a.csv", CSV)).program is None
    assert isinstance(pipesched.from_torch_csv(Source("b.csv", COMMS)).program, Program)
    waits = Source("c.csv", "0F0,0SEND_F0,0RECV_B0,0WAIT_SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")
    assert isinstance(pipesched.from_torch_csv(waits, torch_version="2.15").program, Program)
    with pytest.raises(PipeschedError, match="PS801"):
        pipesched.from_torch_csv(waits, torch_version="2.13")
    with pytest.raises(PipeschedError, match="PS225"):
        pipesched.from_torch_csv(Source("a.csv", CSV), torch_version="3.0")


def test_a_schedule_its_file_and_its_program_get_one_verdict() -> None:
    """verify of a name, of the loaded schedule, and of its program: the same figures."""
    whole = pipesched.verify("zb_h1", p=4, m=6, costs="F=2,I=3,W=1")
    schedule = pipesched.load("zb_h1", p=4, m=6)
    for target in (schedule, compiler.lower(schedule)):
        report = pipesched.verify(target, costs="F=2,I=3,W=1")
        assert report.ok and report.time == whole.time and report.memory is not None
        assert replace(report.memory, received=None, unsent=None) == whole.memory  # the program's messages are its own
        assert report.messages == whole.messages == 2 * 3 * 6 and report.operations == 4 * 6 * 3
        assert report.communication == whole.communication
        assert report.claims == ()
    assert [claim.holds for claim in whole.claims] == [True, True, True]


def test_a_report_is_an_object_with_exact_numbers() -> None:
    """Counts are int, times and peaks Fraction by rank; text and JSON are made on demand."""
    report = pipesched.verify("interleaved", p=4, v=2, m=8, mem_cap="11/2", release=Release.parse("W"))
    assert report.ok and report.exit_status == 0 and report.diagnostics == ()
    assert (report.name, report.ranks, report.stages, report.microbatches) == ("interleaved", 4, 8, 8)
    assert (report.operations, report.slots, report.messages) == (128, 128, 112)
    assert report.memory is not None and report.time is not None and report.communication is not None
    assert report.memory.peak == (Fraction(11, 2), Fraction(9, 2), Fraction(7, 2), Fraction(5, 2))
    assert report.time.makespan == 57 and list(report.time.work) == [48] * 4
    assert report.communication.model == "strict" and report.communication.capacity == 0
    assert str(report).startswith("ok  interleaved 1F1B  p=4 v=2 m=8") and report.to_json()["ok"] is True


def test_what_is_wrong_with_a_file_is_in_its_report() -> None:
    """A wrong schedule, a syntax error, a missing file or a missing parameter gives a report, not an exception."""
    wrong = {
        "PS301": pipesched.verify(Source("x.csv", BROKEN)),
        "PS101": pipesched.verify(Source("x.ps", "schedule x(p = 2)\nstage s in 0 .. p on on s\n")),
        "PS809": pipesched.verify("no/such/file.ps"),
        "PS810": pipesched.verify("no_such_schedule"),
        "PS207": pipesched.verify("1f1b"),
        "PS208": pipesched.verify("1f1b", p=2, n=3),
        "PS209": pipesched.verify("zb_h2", p=4, m=2),
        "PS803": pipesched.verify(Source("x.csv", CSV), p=3),
        "PS210": pipesched.verify("1f1b", p=4, m=100, max_ops=10),
    }
    for code, report in wrong.items():
        assert not report.ok and code in [d.code for d in report.diagnostics], code
        assert code in str(report) and report.exit_status in (1, 2)


def test_a_part_that_is_not_known_raises_what_is_wrong() -> None:
    """A file that is not an order has no parts; an order that deadlocks has all but times and messages."""
    parts = ("ranks", "stages", "microbatches", "operations", "slots", "messages", "communication", "memory", "time")
    right = pipesched.verify("1f1b", p=2, m=2)
    assert all(getattr(right, part) is getattr(right.parts, part) is not None for part in parts)
    endless = pipesched.verify(["0F0,0B0,0F1,0B1", "1F1,1B1,1F0,1B0"])
    for report, unknown in ((pipesched.verify("1f1b"), {*parts}), (endless, {"messages", "time"})):
        assert {part for part in parts if getattr(report.parts, part) is None} == unknown
        for part in unknown:
            with pytest.raises(PipeschedError) as error:
                getattr(report, part)
            assert error.value.diagnostics == report.diagnostics


def test_load_raises_what_verify_reports() -> None:
    """The exception carries the same diagnostics."""
    with pytest.raises(PipeschedError) as error:
        pipesched.load("zb_h2", p=4, m=2)
    assert error.value.diagnostics == pipesched.verify("zb_h2", p=4, m=2).diagnostics


@pytest.mark.parametrize(
    "options",
    [{"comm": "telepathy"}, {"costs": "F=x"}, {"release": "never"}, {"torch_version": "1.0"}, {"mem_cap": "much"}],
)
def test_an_option_that_means_nothing_raises(options: dict[str, str]) -> None:
    """The caller is at fault, not the schedule: PS222 or PS225, at once."""
    with pytest.raises(PipeschedError, match=r"PS222|PS225"):
        pipesched.verify("1f1b", p=2, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [{"p": 8}, {"m": 2}, {"stages": 3}, {"placement": [0, 1]}])
def test_an_object_has_its_sizes_already(sizes: dict[str, int]) -> None:
    """Sizes given with a Schedule or a Program would be ignored, so they are refused."""
    schedule = pipesched.load("1f1b", p=2)
    with pytest.raises(PipeschedError, match="PS225"):
        pipesched.verify(schedule, **sizes)  # type: ignore[arg-type]


def test_sizes_of_a_csv_are_checked_against_it() -> None:
    """Matching p, m, stages and placement are accepted; others are PS803."""
    good = {"p": 2, "m": 2, "stages": 2, "placement": [0, 1]}
    assert pipesched.verify(Source("x.csv", CSV), **good).ok  # type: ignore[arg-type]
    for name, value in {"p": 3, "m": 3, "stages": 4, "placement": [1, 0]}.items():
        report = pipesched.verify(Source("x.csv", CSV), **{**good, name: value})  # type: ignore[arg-type]
        assert [str(d.code) for d in report.diagnostics] and not report.ok, name


def test_a_schedule_made_by_hand_is_verified() -> None:
    """Operations and placement are records: no file is needed, and diagnostics have no span then."""
    placement = Placement(np.array([[0, 1]]), np.array([0, 0]), 2)
    schedule = pipesched.load(Source("x.csv", CSV))
    made = Schedule.from_orders([schedule.order(0), schedule.order(1)[:-1]], placement, "mine")
    report = pipesched.verify(made)
    assert [d.code for d in report.diagnostics] == ["PS301"] and report.name == "mine"
    assert all(label.span is None for d in report.diagnostics for label in d.labels)


def test_nothing_is_printed_and_nothing_exits(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed on success, on errors, or for a hundred broken schedules; and stdin is read only on
    request."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CSV.encode())))
    for target in ("1f1b", "nothing", Source("x.csv", BROKEN), Source("x.ps", "schedule"), "-"):
        sizes = {"p": 2} if target == "1f1b" else {}
        assert isinstance(pipesched.verify(target, **sizes), Report)  # type: ignore[arg-type]
    for seed in range(100):
        assert isinstance(pipesched.verify(strategies.broken_schedule(seed)), Report)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_costs_can_be_objects() -> None:
    """Costs as objects give the same result as costs as text."""
    assert pipesched.verify("1f1b", p=3, costs=Costs({"F": Fraction(1, 3)})) == pipesched.verify(
        "1f1b", p=3, costs="F=1/3"
    )


def test_a_program_in_memory_keeps_the_names_of_its_routes() -> None:
    """Every function names the routes as the stream did from which the program was read."""
    schedule = pipesched.load(Source("s.json", pipesched.emit("dualpipe", p=2, m=4)))
    for one in (schedule, schedule.program):
        assert [route["name"] for route in json.loads(pipesched.emit(one))["placement"]] == ["down", "up"]


@pytest.mark.parametrize(
    ("line", "order"),
    [
        ("frozen 0", "repeat m { B }"),
        ("slices 2", "B(1) B(0)"),
        ("stage 2 on rank 2 reads 1, 0", "repeat m { B }"),
        ("", "R(0) B(0) R(1) B(1)"),
    ],
)
def test_a_program_in_memory_keeps_what_is_of_its_model(line: str, order: str) -> None:
    """Frozen stages, slices, readers and R are those of the stream that it was read from."""
    text = f"schedule s(p, m) stage s in 0 .. p on rank s {line} rank r {{ repeat m {{ F }} {order} }}"
    stream = pipesched.emit(Source("s.ps", text), p=3, m=2)
    schedule = pipesched.load(Source("s.json", stream))
    assert isinstance(schedule.program, Program)
    assert pipesched.emit(schedule) == stream
    assert [x for x in pipesched.emit(schedule.program).splitlines() if "parameters" not in x] == [
        x for x in stream.splitlines() if "parameters" not in x
    ]
    assert (
        pipesched.why(schedule).to_json()["makespan"] == pipesched.why(Source("s.json", stream)).to_json()["makespan"]
    )
