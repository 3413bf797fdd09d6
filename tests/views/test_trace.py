"""The checker of traces finds every mistake; the trace readers (`readers/drawings.py`) apply it to every trace."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

import pipesched
from pipesched.views import trace
from pipesched.views.chart.chart import chart
from tests.oracles.trace_rules import violations


def events(made: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in made["traceEvents"] if event["ph"] == kind]


def _drop(made: dict[str, Any], kind: str) -> None:
    made["traceEvents"].remove(events(made, kind)[0])


def _change(made: dict[str, Any], kind: str, **to: Any) -> None:
    events(made, kind)[1].update(to)


SLIPS: dict[str, Callable[[dict[str, Any]], None]] = {
    "missing": lambda made: _drop(made, "M"),
    "beginnings": lambda made: _drop(made, "s"),
    "ends": lambda made: _drop(made, "f"),
    "lasts no time": lambda made: _change(made, "X", dur=0),
    "overlap": lambda made: _change(made, "X", dur=events(made, "X")[1]["dur"] + 500),
    "begin at": lambda made: _change(made, "X", ts=events(made, "X")[0]["ts"]),
    "no time": lambda made: _change(made, "X", ts="0"),
    "next slice": lambda made: events(made, "f")[0].pop("bp"),
    "two kinds": lambda made: _change(made, "f", cat="else"),
    "outside": lambda made: _change(made, "f", ts=events(made, "f")[1]["ts"] + 100),
    "back in time": lambda made: _change(made, "s", ts=10**9),
    "does not count": lambda made: _change(made, "C", args={"units": "1"}),
    "no kind": lambda made: _change(made, "C", ph="?"),
    "told 2 times": lambda made: made["traceEvents"].append(copy.deepcopy(events(made, "M")[0])),
    "counter": lambda made: made["traceEvents"].append({**events(made, "C")[0], "ts": 0}),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_the_checker_sees_each_slip(slip: str) -> None:
    """A right trace with one slip breaks the rule that the slip is against."""
    made = json.loads(trace.render(chart(pipesched.load("1f1b", p=3, m=4))))
    assert violations(made) == []
    SLIPS[slip](made)
    assert any(slip in told for told in violations(made))
