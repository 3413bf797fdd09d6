"""The CSV, Markdown and LaTeX forms of a comparison have the numbers of its JSON and the cells of its text."""

from __future__ import annotations

import csv
import io
import json
from fractions import Fraction
from pathlib import Path

import pytest

from pipesched.__main__ import main

RUN = ["compare", "1f1b", "interleaved", "zb_h1", "--p", "4", "--v", "2", "--m", "4,6"]


def written(capsys: pytest.CaptureFixture[str], format: str, *more: str) -> str:
    main([*RUN, *more, "--format", format])
    return capsys.readouterr().out


def test_csv_has_the_figures_of_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Every figure equals the figure in the JSON, as a decimal; a refused size has its code and no figure."""
    lines = list(csv.DictReader(io.StringIO(written(capsys, "csv", "--comm", "buffered(1)"))))
    rows = json.loads(written(capsys, "json", "--comm", "buffered(1)"))["rows"]
    assert len(lines) == len(rows) == 6
    for line, row in zip(lines, rows, strict=True):
        assert (line["schedule"], line["m"]) == (row["name"], str(row["parameters"]["m"]))
        assert line["error"] == next((one["code"] for one in row["diagnostics"]), "")
        for key in ("makespan", "queued_makespan", "bubble", "overhead", "peak", "messages", "lower_bound"):
            exact = row[key]
            assert line[key] == "" if exact is None else float(line[key]) == pytest.approx(float(Fraction(exact)))


@pytest.mark.parametrize(("format", "mark"), [("markdown", "| "), ("latex", "")])
def test_a_table_has_the_cells_of_the_text(format: str, mark: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each row of the terminal's table is a row, cell by cell, and each remark is there."""
    text, made = written(capsys, "text"), written(capsys, format)
    split = (
        (lambda line: line.strip("| ").split(" | ")) if format == "markdown" else (lambda line: line[:-3].split(" & "))
    )
    found = {" ".join(" ".join(split(line)).replace("\\", "").split()) for line in made.splitlines()}
    rows = [line for line in text.splitlines() if line.startswith(("1f1b  ", "interleaved  ", "zb_h1  "))]
    assert len(rows) == 6
    assert {" ".join(row.split()) for row in rows} <= found
    assert "interleaved p=4 v=2 m=6: PS209" in made and "unit of time: costs of 1/p of the model" in made


@pytest.mark.parametrize(("name", "start"), [("x.csv", "schedule,"), ("x.md", "| schedule"), ("x.tex", "% unit")])
def test_the_ending_of_a_file_selects_the_format(name: str, start: str, tmp_path: Path) -> None:
    """Bad arguments have the same codes as for every other verb."""
    assert main([*RUN, "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_text("utf-8").startswith(start)
