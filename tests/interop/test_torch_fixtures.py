"""In torch CSV files every planted mistake is reported at its place, and correct files have no finding.

``torch_fixtures/make.py`` makes the files with torch alone, ``torch_fixtures/expect.toml`` lists the faults of each and
how torch reads it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import pipesched
from pipesched.diagnostics import Label

FOLDER = Path(__file__).parents[1] / "torch_fixtures"
TABLE: dict[str, list[dict[str, Any]]] = tomllib.loads((FOLDER / "expect.toml").read_text("utf-8"))
GOOD = TABLE.pop("good")
BAD = [case for cases in TABLE.values() for case in cases]


def path(case: dict[str, Any]) -> Path:
    return FOLDER / f"{case['file']}.csv"


def name(case: dict[str, Any]) -> str:
    return "-".join([case["file"], *(f"{k}={v}" for k, v in case.get("with", {}).items())])


def place(label: Label) -> str:
    """Return row:cell, counted in the file by line ends and commas."""
    assert label.span is not None
    before = label.span.source.text[: label.span.start]
    return f"{before.count(chr(10)) + 1}:{before.rpartition(chr(10))[2].count(',') + 1}"


@pytest.mark.parametrize("case", GOOD, ids=name)
def test_good_files_pass_in_silence(case: dict[str, Any]) -> None:
    """A right file has no finding, not even a warning."""
    report = pipesched.verify(path(case), **case.get("with", {}))
    assert (report.ok, report.diagnostics) == (True, ())


@pytest.mark.parametrize("case", BAD, ids=name)
def test_bad_files_are_named(case: dict[str, Any]) -> None:
    """The defect has its code, and the first label of that code is at it; warnings do not change the verdict."""
    report = pipesched.verify(path(case), **case.get("with", {}))
    codes = [d.code.value for d in report.diagnostics]
    assert {case["code"], *case.get("also", [])} <= set(codes)
    main = report.diagnostics[codes.index(case["code"])]
    assert place(main.labels[0]) == case["place"]
    assert report.ok == case["code"].startswith("PS9")


def test_every_file_is_in_the_table() -> None:
    """Every file has an expectation, and every expectation has a file."""
    assert {case["file"] for case in GOOD + BAD} == {file.stem for file in FOLDER.glob("*.csv")}


@pytest.fixture(scope="module")
def schedules() -> Any:
    return pytest.importorskip("torch.distributed.pipelining.schedules")


@pytest.mark.parametrize("case", GOOD + BAD, ids=name)
def test_what_torch_says(case: dict[str, Any], schedules: Any) -> None:
    """torch 2.13's own loader accepts or refuses the file as the table says."""
    text = path(case).read_text("utf-8")
    format = "compute_comms" if any(word in text for word in ("SEND", "SHARD", "GRAD")) else "compute_only"
    stages = case.get("stages", 2)
    held = [mock.MagicMock(num_stages=stages, group_size=2, group_rank=0) for _ in range(stages // 2)]
    runtime = schedules._PipelineScheduleRuntime(held, case.get("m", 3))
    try:
        runtime._load_csv(str(path(case)), format=format)
    except (AssertionError, KeyError, RuntimeError, ValueError):
        loads = False
    else:
        loads = True
    assert loads == case.get("loads", True)


def test_files_are_what_torch_makes(schedules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is the output of ``make.py``: the good ones are orders and lowerings of torch's own classes."""
    monkeypatch.syspath_prepend(FOLDER)
    import make  # type: ignore[import-not-found]

    assert make.all_files() == {file.stem: file.read_bytes().decode("utf-8") for file in FOLDER.glob("*.csv")}
