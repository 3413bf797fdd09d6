"""With --jitter an answer has the same makespan as without it, and its p95 in `verify --jitter` is not larger."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pipesched.__main__ import main
from tests.depth import deep


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("seed", range(deep(2)))
def test_as_short_and_no_later(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Random costs and caps: the makespan and the verdict are the same, and p95 is at most that without --jitter."""
    rng = random.Random(seed)
    costs = f"F={rng.randint(8, 12)},I={rng.randint(8, 12)},W={rng.randint(6, 10)},C={rng.randint(0, 3)}"
    words = ["optimize", "--p", "3", "--m", "6", "--mem-cap", str(rng.randint(2, 4)), "--cost", costs]
    plain, steady = told(capsys, *words), told(capsys, *words, "--jitter", "5%")
    assert (plain["makespan"], plain["status"]) == (steady["makespan"], steady["status"])
    late = []
    for name, answer in (("plain", plain), ("steady", steady)):
        path = tmp_path / f"{name}.ps"
        path.write_text(answer["source"], "utf-8")
        late.append(Fraction(told(capsys, "verify", str(path), "--jitter", "5%")["jitter"]["p95"]))
    assert late[1] <= late[0]
    assert f"p95 {float(late[1]):.4g}" in steady["notes"][0]
    if late[1] < late[0]:
        assert f"p95 {float(late[0]):.4g}" in steady["notes"][0].split("first order found")[1]


def test_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    """The same question has the same answer."""
    words = ("optimize", "--p", "3", "--m", "6", "--mem-cap", "3", "--cost", "F=10,I=12,W=8,C=1", "--jitter", "0.1")
    assert told(capsys, *words) == told(capsys, *words)


@pytest.mark.parametrize("words", [["--all-m"], ["--objective", "span"], ["--overlap"], ["--partition", "8"]])
def test_what_has_no_ties(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Jitter is about the makespan of the order of one m; with other decisions it is refused by name."""
    found = told(capsys, "optimize", "--jitter", "5%", *words)
    assert found["diagnostics"][0]["code"] == "PS225" and "jitter" in found["diagnostics"][0]["message"]
