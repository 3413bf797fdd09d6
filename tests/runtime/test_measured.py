"""A measured run is compared with its plan: without deviations it equals the plan, and every deviation is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.model.schedule import Schedule
from tests.makers.measured_runs import (
    COSTS,
    LIBRARY,
    TORCH,
    Captured,
    built,
    later,
    played,
    rows_of,
    shown,
    written,
)


@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize("torch", [False, True], ids=["ours", "torch"])
def test_a_run_that_keeps_to_its_plan_is_its_plan(name: str, torch: bool, tmp_path: Path, capsys: Captured) -> None:
    """Every ratio is 1, nothing is late, and both rows of a rank are equal; torch's messages count as work."""
    costs = COSTS.replace("C=15", "C=0") if torch else COSTS
    files = written(tmp_path, played(built(name), costs, torch=torch), torch=torch)
    status, out, err = shown(name, files, capsys, "--cost", costs, "--width", "300", "--json")
    told = json.loads(out)

    assert (status, err) == (0, "")
    assert told["measured"]["late"] == [] and told["measured"]["clocks_disagree"] == 0
    assert [x["ratio"] for x in told["measured"]["ratios"]] == pytest.approx([1] * len(told["measured"]["ratios"]))
    assert told["measured"]["unit"] == pytest.approx(1e-6)
    rows = rows_of(told["picture"])
    assert len(rows) == built(name).ranks
    assert all(plan == run for plan, run in rows)


def test_it_ran_our_order(capsys: Captured) -> None:
    """torch's ScheduleZBVZeroBubble is zb_v, operation for operation."""
    arguments = ["show", "zb_v", "--p", "2", "--m", "4", "--json"]
    assert main([*arguments, "--measured", TORCH[1], "--measured", TORCH[0]]) == 0
    assert len(json.loads(capsys.readouterr().out)["measured"]["steps"]) == 3


def test_a_late_rank_is_named(tmp_path: Path, capsys: Captured) -> None:
    """The first late operation of each rank that has one, and no other rank; the plan is unchanged."""
    schedule = built("1f1b")
    files = written(tmp_path, played(schedule, COSTS, torch=False, late=(3, 6, 400)), torch=False)
    _, out, _ = shown("1f1b", files, capsys, "--json")
    (late,) = json.loads(out)["measured"]["late"]

    assert (late["rank"], late["operation"]) == (3, str(schedule.order(3)[6]))
    assert late["ran"] - late["planned"] == pytest.approx(400, rel=0.01)
    _, text, _ = shown("1f1b", files, capsys)
    assert re.search(rf"^rank 3 is late from {re.escape(late['operation'])} on: .*\(\+\d+", text, re.M)
    assert [plan == run for plan, run in rows_of(text)] == [True, True, True, False]


def test_a_little_late_is_not_late(tmp_path: Path, capsys: Captured) -> None:
    """Half a mean operation, 98.875 here, is allowed."""
    for by, named in ((90, 0), (110, 1)):
        files = written(tmp_path, played(built("1f1b"), COSTS, torch=False, late=(3, 6, by)), torch=False)
        assert len(json.loads(shown("1f1b", files, capsys, "--json")[1])["measured"]["late"]) == named


def test_a_slow_stage_is_named(tmp_path: Path, capsys: Captured) -> None:
    """The kind and stage whose work deviates most from its cost comes first."""
    schedule = built("zb_h1")
    slow = COSTS.replace("I=170", "I=[170,170,340,170]")
    files = written(tmp_path, played(schedule, slow, torch=False), torch=False)
    _, text, _ = shown("zb_h1", files, capsys, "--width", "200")

    assert re.search(r"^furthest from their cost: I of stage 2 ", text, re.M)


def test_both_pictures_of_a_figure_are_on_one_clock(tmp_path: Path, capsys: Captured) -> None:
    """A run without deviation is drawn like the plan, below it; the same bytes each time."""
    files = written(tmp_path, played(built("zb_h1"), COSTS, torch=False), torch=False)
    figures = [shown("zb_h1", files, capsys, "--format", "svg")[1] for _ in range(2)]
    plan, run = ElementTree.fromstring(figures[0]).findall("{*}g")

    def boxes(part: ElementTree.Element) -> list[tuple[str | None, ...]]:
        return [tuple(x.get(key) for key in ("x", "y", "width")) for x in part.iter() if x.tag.endswith("rect")]

    assert figures[0] == figures[1]
    assert [x for part in (plan, run) for x in part.itertext() if x.startswith(("plan: ", "run: "))]
    assert len(boxes(plan)) > len(built("zb_h1")) and boxes(plan) == boxes(run)
    alone = ElementTree.fromstring(shown("zb_h1", [], capsys, "--format", "svg")[1])
    assert boxes(alone) == boxes(plan)


@pytest.mark.parametrize("torch", [False, True], ids=["ours", "torch"])
def test_clocks_that_disagree_are_told(torch: bool, tmp_path: Path, capsys: Captured) -> None:
    """The clock of rank 2 is 9 ms behind, so it uses values before they are made; both commands report it."""
    ranks = [
        later(events, 1_000 if rank == 2 else 10_000)
        for rank, events in enumerate(played(built("zb_h1"), COSTS, torch=torch))
    ]
    files = written(tmp_path, ranks, torch=torch)
    assert main(["calibrate", *files]) == 0
    assert "the clocks of the ranks disagree" in capsys.readouterr().out
    assert re.search(r"^the clocks of the ranks disagree by [89](\.\d+)? ms", shown("zb_h1", files, capsys)[1], re.M)


@pytest.mark.parametrize("width", [32, 60, 100, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_nothing_is_wider_than_it_may_be(width: int, plain: bool, tmp_path: Path, capsys: Captured) -> None:
    """Every line fits any width; in ASCII on request; a part of time has rows of its own."""
    files = written(tmp_path, played(built("interleaved"), COSTS, torch=False), torch=False)
    window = ("--from", "500", "--to", "1200") if plain else ()
    status, out, _ = shown(
        "interleaved", files, capsys, "--width", str(width), *window, *(["--ascii"] if plain else [])
    )

    assert status == 0 and out.isascii() == plain
    assert max(map(len, out.splitlines())) <= width
    assert len(re.findall(r"^rank \d plan  \S", out, re.M)) == 2


@pytest.mark.usefixtures("one_supervisor")
def test_what_run_writes_is_read(tmp_path: Path, capsys: Captured) -> None:
    """The trace of `run` with real processes is laid over its plan, and fits are not below the pace."""
    pytest.importorskip("torch", reason="one of the commands is `run`")
    file = tmp_path / "run.json"
    asked = ["dualpipev", "--p", "2", "--m", "5"]
    assert main(["run", *asked, "--steps", "2", "--pace", "2", "--trace", str(file)]) == 0
    assert main(["show", *asked, "--measured", str(file)]) == 0
    capsys.readouterr()
    assert main(["calibrate", str(file), "--json"]) == 0
    fits = [(x["cost"], x["low"]) for x in json.loads(capsys.readouterr().out)["fits"]]
    paced = {"F": 2000, "I": 2000, "W": 2000, "B": 4000, "FB": 6000}
    assert {cost for cost, _ in fits} >= {"F", "FB"}
    assert all(low >= 0.95 * paced[cost] for cost, low in fits if cost != "C")


def test_a_rank_without_operations_needs_no_trace(tmp_path: Path, capsys: Captured) -> None:
    """If one of three ranks holds no stage, the run of the other two matches the schedule."""
    file = tmp_path / "idle.ps"
    file.write_text(
        "schedule idle(m = 2)\nstage s in 0 .. 2 on rank 2 * s\nrank r { if r != 1 { repeat m { F B } } }\n", "utf-8"
    )
    made = pipesched.load(file)
    assert isinstance(made, Schedule) and made.ranks == 3
    files = written(tmp_path, [x for x in played(made, COSTS, torch=True) if x], torch=True)
    assert main(["show", str(file), *(x for name in files for x in ("--measured", name))]) == 0


def test_ranks_that_are_not_told_are_found(tmp_path: Path, capsys: Captured) -> None:
    """The operations of a file without a rank identify its rank, in any order of the files."""
    files = written(tmp_path, played(built("1f1b"), COSTS.replace("C=15", "C=0"), torch=True), torch=True)
    for file in map(Path, files):
        told = json.loads(file.read_text("utf-8"))
        del told["distributedInfo"]
        file.write_text(json.dumps(told), "utf-8")
    status, out, _ = shown("1f1b", files, capsys, "--cost", COSTS.replace("C=15", "C=0"))
    assert status == 0 and all(plan == run for plan, run in rows_of(out))
