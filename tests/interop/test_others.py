"""For orders from generators of other projects, each verdict agrees with a count of the words in the order.

`data/others.json` has them as `generators/others.py` recorded them from the commits that it names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.check.rows import CheckCode
from pipesched.common.in_memory import written
from pipesched.diagnostics import Code
from pipesched.orders.codes import OrdersCode
from pipesched.support.source import Source

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "others.json").read_text("utf-8"))
WORD = re.compile(r"(?:^|(?<=[ ;+(,]))(?:([FIWB])(\d+)\.(-?\d+)|(\d+)([FIWB])(\d+))")


def order(entry: dict[str, Any]) -> Source:
    text = written(entry["rows"])
    assert text is not None
    return text


def counted(entry: dict[str, Any]) -> set[Code]:
    """Return the faults by counting: microbatches out of range, operations that run twice or never."""
    runs: Counter[tuple[str, int, int]] = Counter()
    for row in entry["rows"]:
        for a, s, i, t, b, j in WORD.findall(row):
            for kind in ("I", "W") if (a or b) == "B" else (a or b):
                runs[kind, int(s or t), int(i or j)] += 1
    if any(i < 0 for *_, i in runs):
        return {Code.CELL}
    if any(i >= entry["m"] for *_, i in runs):
        return {Code.FILE_DISAGREES}
    stages = 1 + max(s for _, s, _ in runs)
    every = {(kind, s, i) for kind in "FIW" for s in range(stages) for i in range(entry["m"])}
    found = {CheckCode.TWICE} if max(runs.values()) > 1 else set()
    return found | ({CheckCode.MISSING} if every - runs.keys() else set())


@pytest.mark.parametrize("entry", RECORDED, ids=lambda e: f"{e['function']}-{e['name']}-p{e['p']}-m{e['m']}")
def test_the_verdict_is_what_counting_says(entry: dict[str, Any]) -> None:
    """Right if every operation runs once; torch's own file lacks reductions, which its runtime needs since 2.10."""
    report = pipesched.verify(order(entry), p=entry["p"], m=entry["m"])
    meant = {OrdersCode.NO_REDUCTION} if entry["name"].endswith("_comms.csv") else counted(entry)
    assert {d.code for d in report.diagnostics if not d.code.warning} == meant
    assert meant or report.communication is None or not report.communication.fails
