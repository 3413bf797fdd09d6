"""After a run, a calibration and an optimization, the order for the measured costs takes the predicted time."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.stream import loads
from tests.runtime.paced import Taken, explained, measured

Captured = pytest.CaptureFixture[str]

pytestmark = pytest.mark.timed

SIZE = ("--p", "2", "--m", "6")
TOLERANCE = 0.1
PACES = (20, 20, 40, 80)  # milliseconds of a forward in each try; a quiet machine needs one


def asked(capsys: Captured, *arguments: str) -> dict[str, Any]:
    """Return the output of a command that succeeds."""
    assert main([*arguments, "--json"]) == 0, capsys.readouterr()
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


@pytest.fixture
def costs(folder: Path, capsys: Captured, one_supervisor: None) -> dict[str, Any]:
    """Return the costs of a run of 1F1B in the current folder, with full backwards, as in the file."""
    asked(capsys, "run", "1f1b", *SIZE, "--pace", "20", "--trace", "run.json")
    assert main(["calibrate", "run.json", "-o", "costs.toml"]) == 0
    capsys.readouterr()
    made: dict[str, Any] = asked(capsys, "calibrate", "run.json")["costs"]
    return made


def steps(trace: Path) -> list[list[Taken]]:
    """Return by step and rank the time of each instruction."""
    events = [x for x in json.loads(trace.read_text("utf-8"))["traceEvents"] if x["ph"] == "X"]
    found: dict[int, dict[int, list[tuple[float, float, float]]]] = {}
    for event in events:
        args = event["args"]
        times = args["start"], args["end"], args["waited"]
        found.setdefault(args["step"], {}).setdefault(event["pid"], []).append(times)
    return [[taken for _, taken in sorted(found[step].items())] for step in sorted(found)]


@pytest.mark.nightly
def test_the_optimized_order_takes_the_predicted_time(costs: dict[str, Any], folder: Path, capsys: Captured) -> None:
    """At most 10 % more than its instructions explain, which take the predicted times (`test_runtime_time`)."""
    assert "I" not in costs and "W" not in costs
    line = ("optimize", *SIZE, "--mem-cap", "2", "--costs", "costs.toml")
    assert main([*line, "-o", "best.ps"]) == 0
    capsys.readouterr()
    answer = asked(capsys, *line)
    work = max(6 * (f + b) for f, b in zip(*([Fraction(x) for x in costs[key]] for key in "FB"), strict=True))
    before = Fraction(asked(capsys, "verify", "1f1b", *SIZE, "--costs", "costs.toml")["time"]["makespan"])

    assert work < Fraction(answer["makespan"]) < before, "I and W are half of B each"
    assert main(["emit", "best.ps"]) == 0
    stream = loads(capsys.readouterr().out)
    least = float("inf")
    for pace in PACES:
        time = asked(capsys, "run", "best.ps", "--pace", str(pace), "--trace", "again.json")["time"]
        took = steps(folder / "again.json")
        least = min(least, *(measured(step) / explained(stream, step) for step in took[1:]))
        assert_it_is_predicted(time, costs, pace)
        if least <= 1 + TOLERANCE:
            break
    assert 1 - TOLERANCE <= least <= 1 + TOLERANCE


def assert_it_is_predicted(time: dict[str, Any], costs: dict[str, Any], pace: int) -> None:
    """Assert that a forward lasts the pace, though costs are microseconds, and the prediction is the makespan without
    messages."""
    alone = pipesched.verify("best.ps", costs="F=[{},{}],B=[{},{}],C=0".format(*costs["F"], *costs["B"])).time
    mean = sum(map(Fraction, costs["F"])) / 2

    assert alone is not None
    assert Fraction(time["makespan"]) == alone.makespan
    assert time["pace"] * float(mean) == pytest.approx(pace / 1000)
    assert time["predicted"] == pytest.approx(float(alone.makespan / mean) * pace / 1000)


def test_a_pace_of_a_microsecond_takes_the_measured_time(costs: dict[str, Any], capsys: Captured) -> None:
    """With costs in microseconds of real length no step exceeds the timeout, so a cost of 1 lasts the pace."""
    time = asked(capsys, "run", "1f1b", *SIZE, "--costs", "costs.toml", "--pace", "0.001", "--steps", "1")["time"]

    assert time["pace"] == pytest.approx(1e-6)
    assert time["measured"] >= time["predicted"]
