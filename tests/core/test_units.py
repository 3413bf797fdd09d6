"""Numbers for a model on a device have a unit and three significant digits in text, and are exact in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import pipesched
from pipesched.__main__ import main
from pipesched.diagnostics import PipeschedError
from pipesched.library.assets import asset
from pipesched.model.costs import Costs
from pipesched.model.units import MICROSECONDS, MILLISECONDS, NO_UNIT, SECONDS

SIZE = ["--p", "4", "--m", "8"]
MODEL = ["--model", "llama3-70b"]
TIMED = [*MODEL, "--device", "h100"]
SMALL = ["--p", "2", "--m", "3"]
SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
LENGTHS = {"us": Decimal("0.000001"), "ms": Decimal("0.001"), "s": Decimal(1)}
UNIT = {"s": "s|ms|us", "B": "[kMGT]?B"}


def told(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    """Return the stdout of a command, cached."""
    if line not in TOLD:
        capsys.readouterr()
        assert main(list(line)) in (0, 1)
        TOLD[line] = capsys.readouterr().out
    return TOLD[line]


TOLD: dict[tuple[str, ...], str] = {}


def found(capsys: pytest.CaptureFixture[str], *line: str) -> Any:
    """Return the JSON object of a command."""
    return json.loads(told(capsys, *line, "--json"))


def in_seconds(text: str) -> Iterator[tuple[Decimal, str]]:
    """Yield every time of a text in seconds, with its digits."""
    for number, unit in re.findall(r"(?<![\w.=])([\d,]*\.?\d+) (s|ms|us)\b", text):
        yield Decimal(number.replace(",", "")) * LENGTHS[unit], number


def says(text: str, milliseconds: object) -> bool:
    """Return True if a text contains a time, to three digits."""
    exact = Decimal(Fraction(str(milliseconds)).numerator) / Fraction(str(milliseconds)).denominator / 1000
    return any(abs(time - exact) <= abs(exact) * Decimal("0.005") for time, _ in in_seconds(text))


VERBS = {
    "verify": ["verify", "zb_h1", *SIZE, *TIMED, "--mem-cap", "90GB", "--comm", "one-stream"],
    "concise": ["verify", "1f1b", *SIZE, *TIMED, "--format", "concise"],
    "several": ["verify", "1f1b", "--p", "4", "--m", "8,16", *TIMED],
    "over": ["verify", "1f1b", *SIZE, *TIMED, "--mem-cap", "28GB"],
    "why": ["why", "1f1b", *SIZE, *TIMED, "--all"],
    "compare": ["compare", "1f1b", "zb_h1", "dualpipe", *SIZE, *TIMED, "--comm", "one-stream", "--mem-cap", "60GB"],
    "diff": ["diff", "1f1b", "zb_h1", *SIZE, *TIMED],
    "optimize": ["optimize", *SMALL, *TIMED, "--mem-cap", "100GB"],
    "fused": ["optimize", "1f1b", *SMALL, *TIMED, "--mem-cap", "100GB"],
    "counted": ["optimize", *SMALL, *TIMED, "--mem-cap", "5"],
    "frontier": ["optimize", *SMALL, *TIMED, "--mem-cap", "3..4"],
    "plan": [
        "plan",
        *TIMED,
        "--gpus",
        "64",
        "--batch",
        "128",
        "--only",
        "t=8,p=8,recompute=none",
        "--explain",
        "p=8,v=1",
    ],
    "show": ["show", "1f1b", *SIZE, *TIMED, "--width", "90"],
    "figure": ["show", "1f1b", *SIZE, *TIMED, "--format", "svg"],
    "page": ["show", "1f1b", *SIZE, *TIMED, "--format", "html"],
}


def prose(text: str) -> str:
    """Return a text without the parts for programs: costs of a .ps file, the device's own data, coordinates of
    drawings."""
    text = re.sub(r"(?m)^costs (?:.*\n)(?:  .*\n)*", "", text)
    text = re.sub(r"989\.4 TFLOP/s", "", text)
    return re.sub(r"<style>.*?</style>|<[^>]*>", "\n", text, flags=re.S)


@pytest.mark.parametrize("verb", VERBS)
def test_no_number_is_finer_than_three_digits(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No verb and no form shows more than three digits, or a fraction except of small whole numbers."""
    text = prose(told(capsys, *VERBS[verb], "--verbose") if verb not in DRAWN else told(capsys, *VERBS[verb]))
    for number in re.findall(r"(?<![\w.])\d+\.\d+(?![\w.]*\.\d)", text):
        assert len(number.replace(".", "").lstrip("0")) <= 3, number
    for top, bottom in re.findall(r"(?<![\w/.])(\d+)/(\d+)(?![\w/.])", text):
        assert max(int(top), int(bottom)) <= 100, f"{top}/{bottom}"
    assert "milliseconds:" not in text and "unit of time" not in text


DRAWN = ("show", "figure", "page")


@pytest.mark.parametrize("verb", VERBS)
def test_every_time_and_size_has_its_unit(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A number that follows a word for a time or a size is followed by a unit."""
    text = prose(told(capsys, *VERBS[verb], *(["--verbose"] if verb not in DRAWN else [])))
    words = "makespan|span|idle|idles|t=|bound|in less than|longer|cap|needs|free"
    for word, rest in re.findall(rf"\b({words})[ :]?((?:(?<=t=)|(?<= ))-?\d.{{0,12}})", text):
        if (word, verb) in (("cap", "counted"), ("cap", "frontier"), ("t=", "plan")):
            continue
        assert re.match(r"-?[\d,.]+ ?(s|ms|us|[kMGT]?B|%)\b|-?[\d,.]+ %", rest), f"{word} {rest}"


def test_times_of_the_text_are_those_of_the_object(capsys: pytest.CaptureFixture[str]) -> None:
    """They agree to three digits, verb by verb."""
    line = VERBS["verify"]
    time, text = found(capsys, *line)["time"], told(capsys, *line)
    assert time["unit"] == "ms" and says(text, time["makespan"]) and says(text, max(map(Fraction, time["idle"])))
    why, text = found(capsys, *VERBS["why"]), told(capsys, *VERBS["why"])
    assert why["unit"] == "ms"
    rows = [
        [str(x) for x in (why["work"][r], why["idle"][r], *(why["split"][k][r] for k in why["split"]))]
        for r in range(4)
    ]
    lines = [line for line in text.splitlines() if re.match(r"rank \d +\d", line)]
    for line_, row in zip(lines, rows, strict=True):
        assert all(says(line_, x) or Fraction(x) == 0 for x in row)
    compared, text = found(capsys, *VERBS["compare"]), told(capsys, *VERBS["compare"])
    for row in compared["rows"]:
        (own,) = (line for line in text.splitlines() if re.match(rf"{row['name']} +\d", line))
        assert says(own, row["makespan"]) and says(own, row["queued_makespan"])
    best, text = found(capsys, *VERBS["optimize"]), told(capsys, *VERBS["optimize"])
    assert says(text.splitlines()[0], best["makespan"]) and best["unit"] == "ms"
    assert Fraction(str(best["makespan"])).denominator > 100  # exact


def test_a_cap_is_written_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    """With its number and its unit, even if GB would differ, and not as a number of activations."""
    for cap, said in (
        ("60GB", "60 GB"),
        ("60gb", "60 GB"),
        ("60.25GB", "60.25 GB"),
        ("64GiB", "64 GiB"),
        ("61000MB", "61000 MB"),
    ):
        text = told(capsys, "verify", "1f1b", *SIZE, *MODEL, "--mem-cap", cap)
        assert f"of cap {said}, on rank 0" in text and "of cap none" not in text
        over = told(capsys, "compare", "gpipe", "--p", "4", "--m", "64", *MODEL, "--mem-cap", cap)
        assert f"more than its cap of {said}" in over
    text = told(capsys, *VERBS["optimize"])
    assert text.splitlines()[1].endswith(", cap 100 GB") and "cap 7" not in text and "release I=" not in text
    planned = told(capsys, *VERBS["plan"], "--mem-cap", "64GiB")
    assert "at most 64 GiB per GPU" in planned and "--mem-cap 64GiB" in planned


SAYING = ("verify", "several", "over", "why", "compare", "diff", "optimize", "plan")


@pytest.mark.parametrize("verb", SAYING)
def test_three_assumptions_and_how_to_see_the_others(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The assumptions are below the table; --verbose shows all assumptions of the object."""
    short, whole = told(capsys, *VERBS[verb]), told(capsys, *VERBS[verb], "--verbose")
    few, every = (re.findall(r"(?m)^ *assumed: (.*)$", text) for text in (short, whole))
    assert few == every[:3] and len(few) <= 3
    more, left = re.findall(r"(\d+) more assumptions?: --verbose", short), len(every) - 3
    assert more == [str(left)] * (left > 0) and "--verbose" not in whole
    last_row = max(
        at
        for at, line in enumerate(short.splitlines())
        if re.search(r"\d (s|ms|GB)( |$)", line) and "assumed" not in line
    )
    first = next(at for at, line in enumerate(short.splitlines()) if "assumed:" in line)
    assert verb in ("optimize", "plan", "over") or first > last_row
    made = found(capsys, *VERBS[verb])
    runs = made.get("runs", [made])
    said = [x for run in runs for x in run.get("assumed", run.get("bytes", {}).get("assumed", []))]
    assert {*said} <= {*every}


def test_costs_know_their_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A .ps file and JSON name the unit; costs of two files are merged in the unit of the second."""
    assert Costs.from_toml('F = 5\nunit = "us"').unit is MICROSECONDS
    assert Costs.from_toml('{"F": 5, "unit": "s"}').unit is SECONDS and Costs.parse("F=5").unit is NO_UNIT
    both = Costs.from_toml('F = 5\nM = 2\nunit = "us"').over(Costs.from_toml('B = 7\nunit = "ms"'))
    assert both.unit is MILLISECONDS and both.given == {"F": Fraction(5, 1000), "M": 2, "B": 7}
    assert Costs.parse("C=3").over(both)["C"] == 3 and Costs.parse("C=3").over(both).unit is MILLISECONDS
    for wrong in ('unit = "h"', "unit = 3", 'F = 1\nunit = ["s"]'):
        with pytest.raises(PipeschedError, match="unknown unit of the costs: "):
            Costs.from_toml(wrong)
    file = tmp_path / "costs.toml"
    file.write_text('F = 1500\nB = 3000\nunit = "us"\n')
    text = told(capsys, "verify", "1f1b", "--p", "2", "--m", "2", "--costs", str(file))
    assert "makespan 13.5 ms = 9 ms work + 4.5 ms idle   bubble 33.3 % (1/3)" in text
    drawn = told(capsys, "show", "1f1b", "--p", "2", "--m", "2", "--costs", str(file))
    assert "makespan 13.5 ms" in drawn and "3 columns = 1.5 ms" in drawn


def test_a_comparison_and_its_plots_have_the_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The unit also comes from a costs file; the plots of `compare`, `optimize` and `plan` show it under the
    pointer."""
    file, plot = tmp_path / "costs.toml", tmp_path / "plot.svg"
    file.write_text('F = 1500.25\nI = 1000\nW = 500\nC = 37\nunit = "us"\n')
    text = told(capsys, "compare", "1f1b", "zb_h1", *SIZE, "--costs", str(file), "--plot", str(plot))
    rows = found(capsys, "compare", "1f1b", "zb_h1", *SIZE, "--costs", str(file))
    for row in rows["rows"]:
        (own,) = (line for line in text.splitlines() if re.match(rf"{row['name']} +\d", line))
        assert rows["unit"] == "us" and says(own, Fraction(str(row["makespan"])) / 1000)
    for line in (
        [],
        ["optimize", *SMALL, *TIMED, "--mem-cap", "2..3", "--plot", str(plot)],
        [*VERBS["plan"], "--plot", str(plot)],
    ):
        told(capsys, *line) if line else None
        titles = re.findall("<title>(.*)</title>", plot.read_text("utf-8"))
        assert titles and all(re.search(r"(: \d, [\d.]+ %|: [\d.]+ GB, [\d.]+ m?s)$", title) for title in titles)


def test_marks_of_an_axis_have_all_their_digits() -> None:
    """Two different marks are written differently, however near; each with its unit."""
    assert [MICROSECONDS.mark(x) for x in (0, 500, 4000, 12500)] == ["0 us", "500 us", "4 ms", "12.5 ms"]
    assert [MILLISECONDS.mark(x) for x in (1001, 1002)] == ["1.001 s", "1.002 s"]
    assert NO_UNIT.mark(Fraction(11, 2)) == "5.5"


def test_without_a_unit_all_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    """Costs that the user gives have no unit."""
    text = told(capsys, "verify", "1f1b", *SIZE, "--cost", "F=10/3,B=20/3")
    assert "makespan 110 = 80 work + 30 idle" in text and not [*in_seconds(text)]
    assert "unit" not in found(capsys, "verify", "1f1b", *SIZE)["time"]


def test_an_answer_keeps_its_unit_and_its_cap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`verify` shows the derived figures with the unit; an answer with another unit or cap is refused."""
    file, schema = tmp_path / "answer.json", json.loads(asset("emit/optimum.schema.json").read_text("utf-8"))
    answer = found(capsys, *VERBS["optimize"])
    Draft202012Validator(schema).validate(answer)
    assert (answer["unit"], answer["asked_cap"]) == ("ms", ["100 GB"])
    file.write_text(json.dumps(answer))
    text = told(capsys, "verify", str(file))
    assert "proved optimal: makespan " in text and says(text, answer["makespan"])
    assert "within the cap of 100 GB" in text and "unit, asked_cap" in text
    capsys.readouterr()
    assert (
        main(["verify", str(file), *MODEL, "--json"]) == 0
    )  # counted as `optimize` did, under the cap as it was given
    again = json.loads(capsys.readouterr().out)
    assert again["bytes"]["ranks"] == answer["bytes"]["ranks"] and again["bytes"]["ranks"][0]["cap"] == 100 * 10**9
    for changed in ({"unit": "us"}, {"unit": "parsec"}, {"asked_cap": ["80 GB"]}, {"asked_cap": ["100GB"]}):
        file.write_text(json.dumps(answer | changed))
        assert main(["verify", str(file)]) == 1
    file.write_text(json.dumps({key: x for key, x in answer.items() if key != "unit"}))
    assert main(["verify", str(file)]) == 1
    capsys.readouterr()


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (Fraction("2903.060225"), "2.90 s"),
        (Fraction("999.96"), "1.00 s"),
        (Fraction("999.4"), "999 ms"),
        (Fraction(80), "80 ms"),
        (Fraction("0.335544"), "336 us"),
        (Fraction("0.0001"), "0.1 us"),
        (Fraction("-4.697616"), "-4.70 ms"),
        (Fraction(0), "0 ms"),
        (Fraction(4000), "4 s"),
        (Fraction("1234567.8"), "1,235 s"),
    ],
)
def test_a_time_is_written_in_three_digits(milliseconds: Fraction, text: str) -> None:
    """Computed by hand; a time that is exact in fewer digits has no trailing zeros."""
    assert MILLISECONDS.text(milliseconds) == text


def test_python_prints_units_too() -> None:
    """`str`, `repr` and the rows of functions also have units."""
    report = pipesched.verify("1f1b", p=4, m=8, model="llama3-70b", device="h100")
    assert re.search(r"makespan [\d.]+ s ", str(report)) and re.search(r"makespan [\d.]+ s\b", repr(report))
    assert "3 more" not in report.text(verbose=True)
