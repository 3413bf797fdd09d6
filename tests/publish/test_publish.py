"""SARIF and JUnit output agrees with the JSON of the same run in every finding, place, remedy and verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pipesched.__main__ import main

FIXTURES = Path(__file__).parents[1] / "torch_fixtures"
BROKEN = [str(FIXTURES / f"{name}.csv") for name in ("c15_both_send_first", "a05_first_forward_twice", "c05_no_send")]
RUNS = [["1f1b", "--p", "4"], [*BROKEN, "zb_h1", "--p", "2"], ["none.csv", "1f1b", "--p", "2..3"], ["1f1b"]]


def read(run: list[str], capsys: pytest.CaptureFixture[str], format: str) -> tuple[int, str]:
    status = main(["verify", *run, "--format", format])
    return status, capsys.readouterr().out


def reports(run: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit status and the reports of the JSON form."""
    status, text = read(run, capsys, "json")
    made = json.loads(text)
    return status, made.get("runs", [made])


@pytest.mark.parametrize("run", RUNS, ids=" ".join)
def test_sarif_has_every_finding_at_its_place(run: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One result for each finding, whose rule is its code; line and column are those of the JSON."""
    status, found = reports(run, capsys)
    again, text = read(run, capsys, "sarif")
    (log,) = json.loads(text)["runs"]
    assert again == status
    wanted = [one for report in found for one in report["diagnostics"]]
    assert len(log["results"]) == len(wanted)
    for one, result in zip(wanted, log["results"], strict=True):
        assert log["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == one["code"]
        assert result["level"] == one["severity"]
        assert result["message"]["text"].startswith(one["message"]) and (one["help"] or "") in result["message"]["text"]
        places = [place["physicalLocation"] for place in (*result["locations"], *result["relatedLocations"])]
        at = [(x["artifactLocation"]["uri"], x["region"]["startLine"], x["region"]["startColumn"]) for x in places]
        assert at == [(x["file"], x["line"], x["column"]) for x in one["labels"] if x["file"] is not None]
        assert all(x["region"]["endColumn"] >= x["region"]["startColumn"] for x in places)


@pytest.mark.parametrize("run", RUNS, ids=" ".join)
def test_junit_has_every_verdict(run: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One test case for each file and size; failures are wrong files, errors are those that cannot be judged."""
    status, found = reports(run, capsys)
    again, text = read(run, capsys, "junit")
    root = ElementTree.fromstring(text)
    assert again == status
    cases = list(root.iter("testcase"))
    assert len(cases) == len(found) == int(root.attrib["tests"])
    for report, case in zip(found, cases, strict=True):
        kinds = {child.tag for child in case} - {"system-out"}
        assert bool(kinds) != report["ok"]
        for kind in kinds:
            made = case.find(kind)
            assert made is not None and made.attrib["type"] in {one["code"] for one in report["diagnostics"]}
    counts = [len(list(root.iter(kind))) for kind in ("failure", "error")]
    assert counts == [int(root.attrib[kind]) for kind in ("failures", "errors")]


@pytest.mark.parametrize(("name", "start"), [("x.sarif", "{"), ("x.xml", "<?xml")])
def test_the_ending_of_a_file_selects_the_format(name: str, start: str, tmp_path: Path) -> None:
    """As for every other form."""
    assert main(["verify", "1f1b", "--p", "4", "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_text("utf-8").startswith(start)


def test_a_hostile_name_stays_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Markup in a file's name and in a message of it is escaped."""
    file = tmp_path / 'a"<b>&.csv'
    file.write_text("0F0,<x>&\n", encoding="utf-8")
    _, text = read([str(file)], capsys, "junit")
    (suite,) = ElementTree.fromstring(text)
    assert suite.attrib["name"] == str(file)
    _, text = read([str(file)], capsys, "sarif")
    assert json.loads(text)["runs"][0]["results"]
