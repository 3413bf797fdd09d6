"""Costs fitted to a synthetic run equal its costs; costs fitted to a real run equal the sleeping times of its
stages."""

from __future__ import annotations

import json
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest

from pipesched.__main__ import main
from pipesched.model.costs import Costs
from tests.makers.measured_runs import (
    ASLEEP,
    COSTS,
    LIBRARY,
    TORCH,
    Captured,
    built,
    calibrated,
    later,
    played,
    shown,
    written,
)


@pytest.mark.parametrize("name", LIBRARY)
def test_fits_are_the_costs(name: str, tmp_path: Path, capsys: Captured) -> None:
    """If waits are recorded, every fitted cost is exactly the given one, C if a rank waited."""
    files = written(tmp_path, played(built(name), COSTS, torch=False), torch=False)
    line = ["calibrate", *files, "--digits", "9"]
    assert main([*line, "-o", str(tmp_path / "costs.toml")]) == 0
    assert main([*line, "-o", str(tmp_path / "costs.json")]) == 0
    capsys.readouterr()
    assert Costs.from_toml((tmp_path / "costs.json").read_text()) == Costs.from_toml(
        (tmp_path / "costs.toml").read_text()
    )
    made, given = json.loads((tmp_path / "costs.json").read_text()), Costs.parse(COSTS)
    found = tomllib.loads((tmp_path / "costs.toml").read_text("utf-8"))

    assert {"F", "C"} < {fit["cost"] for fit in made["fits"]}
    for fit in made["fits"]:
        assert found[fit["cost"]][fit["stage"]] == given[fit["cost"]], fit


@pytest.mark.parametrize("name", LIBRARY)
def test_fits_of_torch_hold_no_more_than_a_message(name: str, tmp_path: Path, capsys: Captured) -> None:
    """A record of torch includes the wait, so a fit is the cost, or the cost plus the latency of a message."""
    files = written(tmp_path, played(built(name), COSTS, torch=True), torch=True)
    assert main(["calibrate", *files, "--digits", "9", "--json"]) == 0
    given = Costs.parse(COSTS)
    for fit in json.loads(capsys.readouterr().out)["fits"]:
        cost = given[fit["cost"]]
        assert isinstance(cost, Fraction)
        if fit["cost"] != "C":
            assert cost <= fit["median"] <= cost + 15, fit
            assert fit["cost"] != "W" or fit["median"] == cost  # it needs no message


@pytest.mark.parametrize("torch", [False, True], ids=["ours", "torch"])
def test_warm_up_and_outliers_do_not_count(torch: bool, tmp_path: Path, capsys: Captured) -> None:
    """A first step three times slower, and a hundredfold outlier in a later step, change no fit."""
    schedule = built("zb_h1")
    once = played(schedule, COSTS, torch=torch)
    ranks = [[y for i in range(3) for y in later(events, 100_000.0 * i, 3 if i == 0 else 1)] for events in once]
    steady = calibrated(once, torch, tmp_path, capsys)
    for events in ranks:
        w = max(i for i, x in enumerate(events) if "W" in x["name"])
        events[w] = {**events[w], "dur": 100 * events[w]["dur"]}
    told = calibrated(ranks, torch, tmp_path, capsys)
    picture = json.loads(shown("zb_h1", written(tmp_path, ranks, torch=torch), capsys, "--json")[1])

    assert picture["measured"]["step"] == 2  # the first warms up, the third has the outlier
    assert picture["measured"]["late"] == []
    assert told["steps"] == 3
    for fit in told["fits"]:
        if not torch or fit["cost"] == "W":
            assert fit["median"] == Costs.parse(COSTS)[fit["cost"]]
        assert fit["cost"] != "W" or fit["left_out"] == 1
    assert {(x["cost"], x["stage"]) for x in steady["fits"]} == {(x["cost"], x["stage"]) for x in told["fits"]}


def test_backwards_that_are_whole_are_split_as_others_are(tmp_path: Path, capsys: Captured) -> None:
    """B = 40 is divided into I and W as in stage 1, 30 to 10; B of stage 1 is their sum."""
    first = [("0F0", 0, 20), ("0B0", 400, 40)]
    last = [("1F0", 100, 20), ("1I0", 200, 30), ("1W0", 300, 10)]
    ranks = [[{"ph": "X", "name": f"PP:{x}", "ts": t, "dur": d} for x, t, d in rank] for rank in (first, last)]
    made = calibrated(ranks, True, tmp_path, capsys)

    assert {key: row for key, row in made["costs"].items() if key != "C"} == {
        "F": [20, 20],
        "I": [30, 30],
        "W": [10, 10],
        "B": [40, 40],
    }
    assert "stage 0 never ran I alone: I is assumed to be the same part of B as elsewhere" in made["notes"]
    assert "stage 1 never ran a full backward, so B is I + W there" in made["notes"]


def test_a_message_costs_what_its_sender_says(tmp_path: Path, capsys: Captured) -> None:
    """C of a stage is for the messages that it sends, in both directions."""
    costs = COSTS.replace("C=15", "C=[5,15,25,35]")
    made = calibrated(played(built("1f1b"), costs, torch=False), False, tmp_path, capsys)
    assert made["costs"]["C"] == [5, 15, 25, 35]


def test_a_pair_waits_for_both_of_its_inputs(tmp_path: Path, capsys: Captured) -> None:
    """The pair begins at 20, the input of its B arrives at 50, and it ends at 80: it took 30."""
    first = [("0F0", 0, 10), ("(0F1;0B0)OVERLAP_F_B", 20, 60), ("0B1", 100, 40)]
    last = [("1F0", 10, 10), ("1B0", 20, 30), ("1F1", 81, 9), ("1B1", 90, 10)]
    ranks = [[{"ph": "X", "name": f"PP:{x}", "ts": t, "dur": d} for x, t, d in rank] for rank in (first, last)]
    fits = {(x["cost"], x["stage"]): x["median"] for x in calibrated(ranks, True, tmp_path, capsys)["fits"]}
    assert fits["FB", 0] == 30


def test_kernels_that_run_on_are_told(tmp_path: Path, capsys: Captured) -> None:
    """A profile of a GPU is fitted by its records on the host, with a note; ranges on the device are ignored."""
    ranks = played(built("zb_h1"), COSTS, torch=True)
    told = calibrated(ranks, True, tmp_path, capsys)
    on_device = [{**x, "cat": "gpu_user_annotation", "dur": 3 * x["dur"]} for x in ranks[0]]
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0, "dur": 1}
    with_gpu = calibrated([[*ranks[0], *on_device, kernel], *ranks[1:]], True, tmp_path, capsys)

    assert with_gpu["fits"] == told["fits"]
    assert [x for x in with_gpu["notes"] if x not in told["notes"]] == [
        "the trace has GPU kernels, which may run on after the recorded operation that launched them has ended: "
        "synchronize the GPU while you measure"
    ]


def test_fits_are_what_the_stages_slept(capsys: Captured) -> None:
    """No operation is shorter than its sleep; a fit is at most 2 ms longer. No I of stage 0 exists."""
    assert main(["calibrate", *TORCH, "--json"]) == 0
    fits = {(x["cost"], x["stage"]): x for x in json.loads(capsys.readouterr().out)["fits"]}
    assert fits.pop(("I", 0))["median"] < 100
    for (cost, stage), fit in fits.items():
        if cost != "C":
            asleep = 1000 * ASLEEP[cost][stage]
            assert asleep <= fit["low"] <= fit["median"] <= asleep + 2000, fit


def test_costs_go_where_they_are_asked(tmp_path: Path, capsys: Captured) -> None:
    """Without -o there is only a table; with -o FILE the costs are there, with -o - on stdout and the table on
    stderr."""
    file = tmp_path / "costs.toml"
    assert main(["calibrate", *TORCH]) == 0
    table = capsys.readouterr().out
    assert main(["calibrate", *TORCH, "-o", str(file)]) == 0
    assert capsys.readouterr().out == table
    assert main(["calibrate", *TORCH, "-o", "-"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (file.read_text("utf-8"), table)
    assert main(["verify", "zb_v", "--p", "2", "--m", "4", "--costs", str(file)]) == 0
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("digits", [1, 2, 3, 5])
def test_digits_are_significant(digits: int, capsys: Captured) -> None:
    """A cost is within half a unit of its last digit of the median."""
    assert main(["calibrate", *TORCH, "--digits", str(digits), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    for fit in made["fits"]:
        cost = float(Fraction(made["costs"][fit["cost"]][fit["stage"]]))
        assert cost == pytest.approx(fit["median"], rel=0.5 * 10.0 ** (1 - digits) + 1e-9)
