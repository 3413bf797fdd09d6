"""`pipesched why` prints the cost of one more microbatch, the operations that each gap waits for, and the critical
path."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.model.costs import Costs
from pipesched.model.schedule import Schedule
from pipesched.views.causes import PARTS
from tests.insight.test_why import played

pytestmark = pytest.mark.quick


def order_of(name: str, **sizes: int) -> Schedule:
    return pipesched.load(name, **sizes)


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    status = main(["why", *arguments, "--json"])
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return status, value


def test_growth_is_what_a_microbatch_adds(capsys: pytest.CaptureFixture[str]) -> None:
    """In 1F1B the slowest stage sets the growth of the makespan; a rank's idle time grows by its lead over that."""
    assert told(["1f1b", "--p", "3", "--m", "9"], capsys)[1]["growth"] == {
        "microbatches": 3,
        "makespan": 3,
        "makespan_decimal": 3.0,
        "idle": [0, 0, 0],
        "idle_decimal": [0.0] * 3,
        "split": {part: [0, 0, 0] for part in PARTS},
        "split_decimal": {part: [0.0] * 3 for part in PARTS},
    }
    growth = told(["1f1b", "--p", "3", "--m", "9", "--cost", "F=[1,2,4],B=3"], capsys)[1]["growth"]
    assert growth["makespan"] == 7 and growth["idle"] == [3, 2, 0]
    assert growth["split"]["imbalance"] == [3, 2, 0]


def test_what_other_costs_would_bring(capsys: pytest.CaptureFixture[str]) -> None:
    """1F1B takes (m + p - 1)(F + B) without latency and with even stages; even costs are not reported."""
    given = ["1f1b", "--p", "4", "--m", "8", "--cost"]
    assert told([*given, "F=1,B=2,C=1"], capsys)[1]["instead"] == {"no_latency": 11 * 3}
    assert told([*given, "F=[1,1,1,3],B=2"], capsys)[1]["instead"] == {"even_stages": str(Fraction(11 * 7, 2))}
    assert told([*given, "F=[2,2,2,2],B=2,C=0"], capsys)[1]["instead"] == {}
    makespan = played(order_of("1f1b", p=4, m=8), Costs.parse("F=1,B=2,C=1"))[0].makespan
    assert main(["why", *given, "F=1,B=2,C=1"]) == 0
    assert f"if messages took no time the makespan would be 33 ({33 - makespan})" in capsys.readouterr().out


def test_an_order_without_m_has_no_growth(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only a file can be evaluated at another size."""
    (folder / "a.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    status, value = told(["a.csv"], capsys)
    assert status == 0 and value["growth"] is None
    assert value["idle"] == [3, 3] and value["makespan"] == 9


def test_a_gap_is_told_with_what_it_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    """The example is 1F1B on two ranks, two microbatches: 0F0 0F1 0B0 0B1 above, 1F0 1B0 1F1 1B1 below, from t = 1
    on."""
    assert main(["why", "1f1b", "--p", "2", "--m", "2", "--cost", "F=1,B=2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    gaps = [line for line in lines if " idles " in line]
    assert sorted(gaps) == [
        "rank 0 idles 1 at t=6, before B1 of stage 0: waits for B1 of stage 1 on rank 1",
        "rank 0 idles 2 at t=2, before B0 of stage 0: waits for B0 of stage 1 on rank 1",
        "rank 1 idles 1 at t=0, before F0 of stage 1: waits for F0 of stage 0 on rank 0",
        "rank 1 idles 2 at t=7, to the end: has nothing left to do; B1 of stage 0 on rank 0 ends last",
    ]
    lengths = [int(line.split()[3]) for line in gaps]
    assert lengths == sorted(lengths, reverse=True)


def test_a_long_wait_names_both_ends_of_its_chain(capsys: pytest.CaptureFixture[str]) -> None:
    """In GPipe with one microbatch, rank 0 waits for the whole round trip."""
    status, value = told(["gpipe", "--p", "3", "--m", "1", "--cost", "C=1"], capsys)
    gap = value["gaps"][0]
    assert status == 0 and gap["text"] == (
        "rank 0 idles 10 at t=1, before B0 of stage 0: waits for B0 of stage 1 on rank 1, "
        "the last of 5 operations since F0 of stage 0 on rank 0; 4 of it for messages"
    )
    assert gap["waits_for"] == [
        {"rank": 1, "op": "B1.0"},
        {"rank": 2, "op": "B2.0"},
        {"rank": 2, "op": "F2.0"},
        {"rank": 1, "op": "F1.0"},
        {"rank": 0, "op": "F0.0"},
    ]


def test_the_critical_path_has_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Every step of the path has a source line, and the steps leave no gap."""
    _, value = told(["zb_h1", "--p", "4", "--m", "8"], capsys)
    text = pipesched.compile.read("zb_h1").text.splitlines()
    for step in value["critical_path"]:
        assert step["op"][0] in text[step["line"] - 1]
    ends = [0, *(step["end"] for step in value["critical_path"])]
    assert [step["start"] for step in value["critical_path"]] == ends[:-1] and ends[-1] == value["makespan"]


def test_a_wrong_file_is_told_as_far_as_it_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong file gives status 1, the parts of what ran, and one line on stderr."""
    (folder / "bad.csv").write_text("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")
    assert main(["why", "bad.csv"]) == 1
    shown = capsys.readouterr()
    assert "PS306" in shown.err and shown.err.count("\n") == 1
    assert "rank 1 idles 1 at t=0, to the end: F1 of stage 1 never starts" in shown.out


def test_one_size_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    """A list of sizes is refused, with `compare` as the remedy; status 2."""
    assert main(["why", "1f1b", "--p", "2", "--m", "2,3"]) == 2
    assert "one size" in capsys.readouterr().err


def test_all_of_it_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    """A long answer tells how to get the rest, and --all shows everything."""
    arguments = ["why", "1f1b", "--p", "32", "--m", "32", "--cost", "C=1"]
    assert main(arguments) == 0
    short = capsys.readouterr().out
    assert short.count("(--all)") == 3
    assert main([*arguments, "--all"]) == 0
    whole = capsys.readouterr().out
    _, value = told(arguments[1:], capsys)
    assert "(--all)" not in whole and whole.count(" idles ") == len(value["gaps"])
    assert sum(line.startswith("rank ") and " idles " not in line for line in whole.splitlines()) == 32


def test_what_even_microbatches_would_bring(capsys: pytest.CaptureFixture[str]) -> None:
    """By hand: 1F1B has F of 1 and 3 on the two stages, or of 2 on each; B is 2 F."""
    given = ("1f1b", "--p", "2", "--m", "2", "--cost", "F=[[1,3],[1,3]],B=[[2,6],[2,6]]")
    value = told([*given], capsys)[1]
    assert value["makespan"] == 19 and value["instead"] == {"even_microbatches": 18}
    assert main(["why", *given]) == 0
    assert "if every microbatch took the mean time the makespan would be 18 (-1)" in capsys.readouterr().out


def test_ranks_without_a_stage_are_in_the_head(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The head names them, as the verdict does, since the figures do not include them."""
    file = tmp_path / "x.ps"
    file.write_text("schedule x(p, m)\nstage s in 0 .. 2 on rank s\nrank r { repeat m { F } repeat m { B } }\n")
    assert main(["why", str(file), "--p", "3", "--m", "4"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "no stage is on rank 2; p is 3"
