"""A script that calls pipesched can make its decisions from JSON, files and the exit status alone."""

from __future__ import annotations

import csv
import json
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pipesched.__main__ import main

TOP = Path(__file__).parents[2]
FIXTURES = TOP / "tests" / "torch_fixtures"
MINE = """schedule mine(p, m = 2 * p)
stage s in 0 .. p on rank s

rank r {
  let warmup = min(p - 1 - r, m)
  repeat warmup     { F }
  repeat m - warmup { F  B }
  repeat warmup     { B }
}

claim peak(r) == min(p - r, m)
"""
Asked = Callable[..., tuple[int, Any]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Return a function that runs a command with --json in an empty folder, and returns its status and object."""
    monkeypatch.chdir(tmp_path)

    def asked(*words: str, plain: bool = False) -> tuple[int, Any]:
        status = main([*words, *([] if plain else ["--json"])])
        text = capsys.readouterr().out
        return status, text if plain else json.loads(text)

    return asked


def test_a_hanging_csv_is_found_and_mended(ask: Asked) -> None:
    status, report = ask("verify", str(FIXTURES / "c15_both_send_first.csv"))
    found = report["diagnostics"][0]
    assert (status, found["code"]) == (1, "PS401") and {label["line"] for label in found["labels"]} == {1, 2}
    assert ask("emit", str(FIXTURES / "c15_both_send_first.csv"), "--mend", "-o", "mended.csv")[0] == 0
    assert ask("verify", "mended.csv")[1]["ok"]


def test_a_missing_reduction_is_added_where_the_finding_says(ask: Asked) -> None:
    wrong = FIXTURES / "c10_no_reduction.csv"
    found = [x for x in ask("verify", str(wrong))[1]["diagnostics"] if x["severity"] == "error"]
    rows = wrong.read_text("utf-8").splitlines()
    while found:
        cell = found[0]["help"].split()[1]
        rows[found[0]["labels"][0]["line"] - 1] += f",{cell}"
        Path("mine.csv").write_text("\n".join(rows) + "\n")
        found = [x for x in ask("verify", "mine.csv")[1]["diagnostics"] if x["severity"] == "error"]
    assert sum(row.count("REDUCE_GRAD") for row in rows) == len(rows)


def test_a_misspelt_name_is_replaced_by_the_suggestion(ask: Asked) -> None:
    Path("mine.ps").write_text(MINE.replace("repeat warmup     { F }", "repeat warmpu     { F }"))
    status, report = ask("verify", "mine.ps", "--p", "4")
    place, help = report["diagnostics"][0]["labels"][0], report["diagnostics"][0]["help"]
    assert status == 1 and "warmup" in help
    lines = Path("mine.ps").read_text().split("\n")
    lines[place["line"] - 1] = lines[place["line"] - 1].replace("warmpu", "warmup")
    Path("mine.ps").write_text("\n".join(lines))
    assert ask("verify", "mine.ps", "--p", "4")[0] == 0


def test_a_cap_is_raised_until_an_order_fits(ask: Asked) -> None:
    caps = {}
    for cap in ("1/2", "1", "2"):
        caps[cap] = ask("optimize", "--p", "3", "--m", "4", "--mem-cap", cap)
    assert [caps[cap][0] for cap in caps] == [1, 0, 0]
    assert caps["1/2"][1]["status"] == "infeasible" and caps["1/2"][1]["reason"]
    assert Fraction(caps["2"][1]["makespan"]) < Fraction(caps["1"][1]["makespan"])


def test_the_fastest_schedule_under_a_cap_is_emitted(ask: Asked) -> None:
    rows = ask("compare", "gpipe", "1f1b", "zb_h1", "zb_h2", "--p", "4", "--m", "8", "--mem-cap", "4")[1]["rows"]
    fits = [row for row in rows if Fraction(row["peak"]) <= 4]
    best = min(fits, key=lambda row: Fraction(row["makespan"]))
    assert best["source"] == "zb_h1.ps"
    assert ask("emit", "zb_h1", "--p", "4", "--m", "8", "--target", "torch-csv", "-o", "a.csv")[1]["files"] == ["a.csv"]
    assert ask("verify", "a.csv")[1]["time"]["makespan"] == best["makespan"]


def test_a_sweep_names_the_sizes_that_fail(ask: Asked) -> None:
    Path("mine.ps").write_text(MINE.replace("min(p - r, m)\n", "min(p - r, m) + m // 12\n"))
    status, report = ask("verify", "mine.ps", "--p", "2..4", "--m", "4,8,12")
    failed = {(run["parameters"]["p"], run["parameters"]["m"]) for run in report["runs"] if not run["ok"]}
    assert (status, report["ok"], failed) == (1, False, {(2, 12), (3, 12), (4, 12)})


def test_the_smallest_failing_size_is_read(ask: Asked) -> None:
    Path("mine.ps").write_text(MINE.replace("min(p - r, m)\n", "min(p - r, m) + m // 12\n"))
    status, report = ask("verify", "mine.ps", "--p", "8", "--m", "32", "--smallest")
    assert (status, report["parameters"]["m"]) == (1, 12)


def test_a_wrong_file_is_a_sarif_log(ask: Asked) -> None:
    status, text = ask("verify", str(FIXTURES / "c10_no_reduction.csv"), "--format", "sarif", plain=True)
    result = json.loads(text)["runs"][0]["results"][0]
    place = result["locations"][0]["physicalLocation"]["region"]
    assert (status, result["ruleId"], place["startLine"]) == (1, "PS601", 1)


def test_a_sweep_is_a_junit_file(ask: Asked) -> None:
    status, text = ask("verify", "1f1b", "--p", "2..5", "--format", "junit", plain=True)
    cases = list(ET.fromstring(text).iter("testcase"))
    assert status == 0 and len(cases) == 4 and not any(case.findall("failure") for case in cases)


@pytest.mark.nightly
def test_a_plan_says_the_commands_that_make_it(ask: Asked) -> None:
    asked = ("plan", "--model", "megatron-1.7b", "--gpus", "4", "--device", "a100", "--executor", "here")
    rows = ask(*asked)[1]["rows"]
    line = next(row for row in rows if row["p"] > 1)["commands"]["verify"]
    words = shlex.split(line)
    assert words[0] == "pipesched" and ask(*words[1:])[0] == 0


TITAN = """[parallelism]
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "{0}"

[training]
local_batch_size = 8
"""


def test_a_trainers_configuration_is_corrected(ask: Asked) -> None:
    Path("a.toml").write_text(TITAN.format("1F1C"))
    status, found = ask("check", "a.toml")
    assert status == 1 and not found["ok"] and found["diagnostics"]
    Path("a.toml").write_text(TITAN.format("1F1B"))
    status, found = ask("check", "a.toml")
    assert (status, found["verdict"], found["schedule"]["p"]) == (0, "ok", 2)


def test_a_certificate_is_kept_and_checked_again(ask: Asked) -> None:
    status, proof = ask("prove", "1f1b")
    assert status == 0
    Path("1f1b.proof.json").write_text(json.dumps(proof))
    status, text = ask("verify", "1f1b.proof.json", plain=True)
    assert status == 0 and text.startswith("ok")
    proof["answers"][0]["domain"] = proof["answers"][0]["domain"].replace("1", "0")
    Path("1f1b.proof.json").write_text(json.dumps(proof))
    assert ask("verify", "1f1b.proof.json", plain=True)[0] == 1


def test_a_stream_is_valid_and_has_its_fingerprint(ask: Asked) -> None:
    assert ask("emit", "zb_h1", "--p", "3", "--m", "4", "-o", "a.json")[0] == 0
    stream = json.loads(Path("a.json").read_text())
    Draft202012Validator(json.loads((TOP / "emit/v2/stream.schema.json").read_text("utf-8"))).validate(stream)
    assert len(stream["ranks"]) == 3 and ask("verify", "a.json")[0] == 0


def test_the_moves_of_a_diff_lead_from_one_order_to_the_other(ask: Asked) -> None:
    before, after = [["F0", "F1", "B0", "F2", "B1", "B2"]], [["F0", "F1", "F2", "B0", "B1", "B2"]]
    for name, rows in (("a.csv", before), ("b.csv", after)):
        Path(name).write_text("".join(",".join(f"0{x}" for x in row) + "\n" for row in rows))
    found = ask("diff", "a.csv", "b.csv")[1]
    (move,) = found["moves"]
    cells = before[0]
    moved = [cells.pop(move["from"] - 1) for _ in move["operations"]]
    cells[move["to"] - 1 : move["to"] - 1] = moved
    assert not found["equal"] and cells == after[0]


def test_the_parts_of_idle_time_add_up(ask: Asked) -> None:
    why = ask("why", "1f1b", "--p", "4", "--m", "8", "--cost", "F=3,B=5,C=1")[1]
    for rank, idle in enumerate(why["idle"]):
        assert sum(Fraction(part[rank]) for part in why["split"].values()) == Fraction(idle)


def test_a_table_of_operations_is_read(ask: Asked) -> None:
    assert ask("show", "zb_h1", "--p", "3", "--m", "4", "-o", "a.csv", plain=True)[0] == 0
    rows = list(csv.DictReader(Path("a.csv").read_text().splitlines()))
    ends = [Fraction(row["end"]) for row in rows]
    assert len(rows) == 36 and max(ends) == ask("verify", "zb_h1", "--p", "3", "--m", "4")[1]["time"]["makespan"]


def test_an_optimum_is_stored_and_found_again(ask: Asked) -> None:
    status, best = ask("optimize", "--p", "3", "--m", "5", "--mem-cap", "2")
    Path("best.ps").write_text(best["source"])
    report = ask("verify", "best.ps")[1]
    assert (status, best["status"]) == (0, "proved optimal")
    assert report["time"]["makespan"] == best["makespan"] and Fraction(report["memory"]["peak"][0]) <= 2


def test_costs_from_a_file_count(ask: Asked) -> None:
    Path("costs.toml").write_text("F = [1, 2, 1]\nB = [2, 4, 2]\n")
    even = ask("verify", "1f1b", "--p", "3", "--m", "4", "--cost", "F=1,B=2")[1]["time"]
    uneven = ask("verify", "1f1b", "--p", "3", "--m", "4", "--costs", "costs.toml")[1]["time"]
    assert Fraction(even["makespan"]) == 18 < Fraction(uneven["makespan"])


def test_every_code_of_a_report_has_a_page(ask: Asked) -> None:
    found = set()
    for file in sorted(FIXTURES.glob("*.csv"))[:12]:
        found |= {x["code"] for x in ask("verify", str(file))[1]["diagnostics"]}
    assert len(found) > 3
    for code in sorted(found):
        status, page = ask("explain", code)
        assert status == 0 and page["code"] == code and len(page["text"]) > 100


def test_files_are_formatted_once(ask: Asked) -> None:
    Path("mine.ps").write_text(MINE.replace("  repeat warmup     { F }", "    repeat warmup {F}"))
    assert ask("fmt", "--check", "mine.ps") == (1, {"ok": False, "changed": ["mine.ps"], "diagnostics": []})
    assert ask("fmt", "mine.ps")[0] == 0
    assert ask("fmt", "--check", "mine.ps") == (0, {"ok": True, "changed": [], "diagnostics": []})


def test_what_is_wrong_with_a_command_is_an_object_too(ask: Asked) -> None:
    for words in (["verify", "nothing"], ["verify", "1f1b"], ["optimize", "--p", "0"], ["compare", "1f1b", "--q", "3"]):
        status, report = ask(*words)
        assert status == 2 and not report["ok"] and report["diagnostics"][0]["message"]
