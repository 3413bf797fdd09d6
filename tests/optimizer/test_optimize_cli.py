"""`optimize` reports mistakes, edge cases and interrupts with a code and an exit status, and never wrongly reports
`proved`.

Every answer, with --json, is one object of a published schema.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pipesched.__main__ import main
from pipesched.check.rows import CheckCode
from pipesched.diagnostics import Code
from pipesched.library.assets import asset
from pipesched.optimizer.codes import OptimizerCode
from tests.oracles.foreign import drat
from tests.oracles.rup import refusal

ORDERS = Path(__file__).parents[1] / "orders"
REPORT, OPTIMUM = (
    Draft202012Validator(json.loads(asset("emit", f"{name}.schema.json").read_text("utf-8")))
    for name in ("report", "optimum")
)
SMALL = ("--p", "2", "--m", "3")


@dataclass(frozen=True)
class Case:
    """Arguments, the status, the code, and a part of the message."""

    arguments: tuple[str, ...]
    status: int
    code: Code | None = None
    said: str = ""
    files: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join(self.arguments)[:60]


USAGE, UNKNOWN = Code.USAGE, Code.UNKNOWN_SCHEDULE
CSV = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
MISTAKES = [
    Case(("--mem-cap", "0"), 2, USAGE, "a cap is 0"),
    Case(("--mem-cap", "-1"), 2, USAGE, "'-1' is not a nonnegative number"),
    Case(("--mem-cap", "0,1,1,1"), 2, USAGE, "a cap is 0"),
    Case(("--mem-cap", "4,4,4"), 2, USAGE, "3 caps for 4 ranks"),
    Case(("--mem-cap", "1e3"), 2, USAGE, "'1e3' is not a nonnegative number"),
    Case(("--mem-cap", ""), 2, USAGE, "'' is not a nonnegative number"),
    Case(("--mem-cap", "5..3"), 2, USAGE, "empty; write 3..5"),
    Case(("--mem-cap", "1..1000000"), 2, USAGE, "more than"),
    Case(("--mem-cap", "1..2:1/999999"), 2, USAGE, "more than"),
    Case(("--mem-cap", "1..2:0"), 2, USAGE, "a step of 0"),
    Case(("--mem-cap", "0..2", *SMALL), 2, USAGE, "a cap is 0"),
    Case(("--p", "0"), 2, USAGE, "p is 0"),
    Case(("--m", "0"), 2, USAGE, "m is 0"),
    Case(("--m", "-3"), 2, USAGE, "m is -3"),
    Case(("--v", "0"), 2, USAGE, "v is 0"),
    Case(("--p", "100000000000"), 2, USAGE, "operations"),
    Case(("--m", "9" * 40), 2, USAGE, "30 digits"),
    Case(("--m", "2,4"), 2, USAGE, "not a whole number"),
    Case(("-D", "q=3"), 2, Code.PARAMETER_UNKNOWN, "q"),
    Case(("1f1b", "--p", "2", "-D", "q=3"), 2, Code.PARAMETER_UNKNOWN, "its parameters: p, m"),
    Case(("1f1b",), 2, Code.PARAMETER_MISSING, "add --p N"),
    Case(("--engine", "abacus"), 2, USAGE, "'abacus' is not one of"),
    Case(("--objective", "bubble"), 2, USAGE, "is not one of"),
    Case(("--backward", "half"), 2, USAGE, "is not one of"),
    Case(("--release", "never"), 2, USAGE, "not a release rule"),
    Case(("--time-limit", "-1"), 2, USAGE, "'-1' is not a nonnegative number"),
    Case(("--time-limit", "soon"), 2, USAGE, "'soon' is not a nonnegative number"),
    Case(("--placement", "linear", "--v", "2"), 2, USAGE, "use loop or vee"),
    Case(("--placement", "veee"), 2, UNKNOWN, "did you mean `vee`?"),
    Case(("--placement", "zigzag"), 2, UNKNOWN, "linear, loop, vee"),
    Case(("--placement", "none.ps"), 2, Code.UNREADABLE, "none.ps"),
    Case(("--placement", "0,2", "--p", "3"), 2, USAGE, "rank 1 has no stage"),
    Case(("--placement", "0,1,2", "--p", "2"), 2, USAGE, "rank 2 does not exist"),
    Case(("--placement", "vee", "1f1b", "--p", "2"), 2, USAGE, "leave one of them out"),
    Case(("--cost", "F=x"), 2, USAGE, "cost F is not a number"),
    Case(("--cost", "F=[1,2]"), 2, USAGE, "lists 2 stages; the schedule has 4"),
    Case(("--costs", "none.toml"), 2, Code.UNREADABLE, "none.toml"),
    Case(("--costs", "bad.toml"), 2, USAGE, "not TOML", {"bad.toml": "F = [1,"}),
    Case(("--plot", "x.svg"), 2, USAGE, "a range of caps"),
    Case(("-o", "nowhere/x.ps"), 2, USAGE, "cannot write nowhere/x.ps"),
    Case(("-o", "."), 2, USAGE, "it is a folder"),
    Case(("--proof", "nowhere/x"), 2, USAGE, "cannot write nowhere/x"),
    Case(("--proof", "x", "--mem-cap", "1..2"), 2, USAGE, "one cap and one m"),
    Case(("--proof", "x", "--all-m"), 2, USAGE, "one cap and one m"),
    Case(("none.csv",), 2, Code.UNREADABLE, "none.csv"),
    Case(("zb_h3",), 2, UNKNOWN, "did you mean"),
    Case(("pipedream", "--p", "4"), 1, OptimizerCode.NOT_OPTIMIZED, "STEPs inside its order"),
    Case(("bad.csv",), 1, Code.CELL, "bad.csv:1:5", {"bad.csv": CSV.replace("0F1", "0X1")}),
    Case(("less.csv",), 1, CheckCode.MISSING, "F of microbatch 1", {"less.csv": "0F0,0F1,0B0,0B1\n1F0,1B0\n"}),
    Case(("two.csv", "--p", "3"), 2, Code.FILE_DISAGREES, "2 ranks", {"two.csv": CSV}),
    Case(("1f1b", "--p", "2", "--m", "0"), 2, USAGE),
]


@pytest.fixture(autouse=True)
def _in_a_folder(folder: Path, request: pytest.FixtureRequest) -> None:
    case = request.node.callspec.params.get("case") if hasattr(request.node, "callspec") else None
    for name, text in case.files.items() if isinstance(case, Case) else ():
        (folder / name).write_text(text)


def answered(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Return the status and the object of --json, valid under its schema."""
    status = main(["optimize", *arguments, "--json"])
    value = json.loads(capsys.readouterr().out)
    (OPTIMUM if "status" in value or "frontier" in value else REPORT).validate(value)
    assert value["ok"] == (status == 0)
    return status, value


@pytest.mark.parametrize("case", MISTAKES, ids=str)
def test_a_mistake_gets_its_code(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr with its code, with --json as a report; nothing is written or proved."""
    before = sorted(path.name for path in Path().iterdir())
    assert main(["optimize", *case.arguments]) == case.status
    told = capsys.readouterr()
    assert told.out == "" and f"error[{case.code}]" in told.err and case.said in told.err
    assert "Traceback" not in told.err and "internal" not in told.err
    assert sorted(path.name for path in Path().iterdir()) == before
    status, value = answered(case.arguments, capsys)
    assert status == case.status and value["diagnostics"][0]["code"] == str(case.code)


@dataclass(frozen=True)
class Edge:
    """The arguments at the edge of the valid, and the expected makespan."""

    arguments: tuple[str, ...]
    makespan: int

    def __str__(self) -> str:
        return " ".join(self.arguments)


EDGES = [
    Edge(("--p", "1", "--m", "1"), 3),
    Edge(("--p", "1", "--m", "5", "--mem-cap", "1"), 15),
    Edge(("--p", "3", "--m", "1"), 7),  # F F F I I I W
    Edge(("--p", "3", "--m", "1", "--backward", "fused"), 9),
    Edge(("--p", "2", "--v", "3", "--placement", "vee", "--m", "1"), 13),  # F x 6, I x 6, W
    Edge(("--p", "1", "--v", "2", "--placement", "loop", "--m", "2"), 12),
    Edge(
        ("--placement", "0,1,0", "--p", "2", "--m", "1"), 7
    ),  # F F F I I I W; rank 0 runs W of stage 2 while rank 1 runs I
    Edge(("--placement", "loop", "--v", "1", "--p", "2", "--m", "1"), 5),
    Edge((*SMALL, "--cost", "F=1,I=1,W=0"), 8),  # 1F1B of F and I: 2 (m + p - 1)
    Edge((*SMALL, "--cost", "F=0,I=0,W=0"), 0),
    Edge((*SMALL, "--cost", "F=0,I=0,W=0,C=0", "--objective", "span"), 0),
    Edge((*SMALL, "--cost", "M=0", "--mem-cap", "1/100"), 10),
    Edge(("--p", "1", "--m", "4", "--cost", "F=3/2,I=1/3,W=0.25"), 0),
    Edge((*SMALL, "--mem-cap", "1000000000000"), 10),
]


@pytest.mark.parametrize("edge", EDGES, ids=str)
def test_the_edges_are_proved(edge: Edge, capsys: pytest.CaptureFixture[str]) -> None:
    """With one rank, one microbatch or costs of 0, the obvious makespan is proved."""
    status, value = answered(edge.arguments, capsys)
    assert (status, value["status"]) == (0, "proved optimal")
    if "F=3/2,I=1/3,W=0.25" in edge.arguments:
        assert Fraction(value["makespan"]) == 4 * (Fraction(3, 2) + Fraction(1, 3) + Fraction(1, 4))
    else:
        assert value["makespan"] == edge.makespan
    assert value["source"] and value["certificate"]["verdict"] == value["status"]


@pytest.mark.parametrize(
    ("arguments", "rank", "minimum"),
    [
        (("--mem-cap", "0.5"), 0, "1"),
        (("--mem-cap", "1,1,1/2,1"), 2, "1"),
        (("--p", "3", "--placement", "vee", "--mem-cap", "0.5"), 0, "1"),  # two halves of each microbatch at once
        (("--p", "2", "--placement", "loop", "--v", "3", "--mem-cap", "0.9"), 0, "1"),
        (("--p", "2", "--release", "torch", "--mem-cap", "1.5"), 0, "1.6"),  # 0.6 more from I to W
        (("--p", "2", "--cost", "M=[1,3]", "--mem-cap", "2"), 1, "3"),
        (("1f1b", "--p", "2", "--mem-cap", "0.9"), 0, "1"),
    ],
)
def test_a_cap_below_the_minimum_names_rank_minimum_and_reason(
    arguments: tuple[str, ...], rank: int, minimum: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every schedule holds one microbatch at some time, on all stages of a rank."""
    assert main(["optimize", *arguments]) == 1
    said = capsys.readouterr().out
    assert re.match(
        rf"infeasible: rank {rank} must be able to hold {re.escape(minimum)}: when [FI] of stage \d+ has run", said
    )
    assert "proved" not in said and "explain PS701" in said
    status, value = answered(arguments, capsys)
    assert (status, value["status"], value["source"], value["makespan"]) == (1, "infeasible", None, None)
    assert [found["code"] for found in value["diagnostics"]] == ["PS701"]


def test_a_cap_of_just_the_minimum_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """A schedule at the least cap runs one microbatch after another; at p=3, cap 1 takes m (2p + 1), and each
    microbatch ends with its W."""
    status, value = answered(("--p", "3", "--m", "2", "--mem-cap", "1"), capsys)
    assert (status, value["status"], value["peak"]) == (0, "proved optimal", [1, 1, 1])
    assert value["makespan"] == 2 * 7


@pytest.mark.parametrize("arguments", [("--p", "6", "--mem-cap", "4"), ("--p", "4", "--placement", "vee"), SMALL])
def test_no_time_is_time_for_a_schedule_and_a_bound(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit of 0 seconds gives a schedule above a bound and status 3, or both meet."""
    status, value = answered((*arguments, "--time-limit", "0"), capsys)
    assert value["source"] and Fraction(value["lower_bound"]) <= Fraction(value["makespan"])
    assert (status, value["status"]) in ((0, "proved optimal"), (3, "best found"))
    assert (status == 0) == (value["gap"] == 0)


def test_a_range_prints_a_line_a_cap_with_what_is_infeasible(capsys: pytest.CaptureFixture[str]) -> None:
    """Both ends are included; makespans fall; the line of a cap that is too small tells that."""
    assert main(["optimize", *SMALL, "--mem-cap", "1/2..3:1/2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines[2:]]
    assert [row[0] for row in rows] == ["0.5", "1", "1.5", "2", "2.5", "3"]
    assert "infeasible: rank 0 must be able to hold 1" in lines[2]
    spans = [int(row[1]) for row in rows[1:]]
    assert spans == sorted(spans, reverse=True)
    status, value = answered((*SMALL, "--mem-cap", "1/2..3:1/2"), capsys)
    assert status == 0 and [one["makespan"] for one in value["frontier"]] == [None, *spans]


def test_a_range_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    """An SVG that is well-formed, and names each cap and the cap's unit."""
    assert main(["optimize", *SMALL, "--mem-cap", "1..3", "--plot", "caps.svg"]) == 0
    text = Path("caps.svg").read_text("utf-8")
    words = " ".join(ElementTree.fromstring(text).itertext())
    assert "memory cap (microbatches)" in words and all(cap in words.split() for cap in ("1", "2", "3"))
    assert "proved optimal" in capsys.readouterr().out


def test_an_answer_for_every_m_is_of_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """It has m0, the step, the makespan at m0 and its growth, which is the work of a microbatch, 3."""
    status, value = answered(("--p", "2", "--mem-cap", "2", "--all-m"), capsys)
    assert status == 0
    assert value["every"]["growth"] == 3 and value["every"]["value"] <= value["makespan"]


def test_every_way_to_write_the_schedule_writes_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """The file is the same below the verdict, with -o to a file or to stdout, and in --json; it verifies."""
    assert main(["optimize", *SMALL, "-o", "best.ps"]) == 0
    verdict = capsys.readouterr().out
    text = Path("best.ps").read_text()
    assert main(["optimize", *SMALL]) == 0
    assert capsys.readouterr().out == f"{verdict}\n{text}"
    assert main(["optimize", *SMALL, "-o", "-"]) == 0
    assert capsys.readouterr().out == text
    assert answered(SMALL, capsys)[1]["source"] == text
    assert main(["optimize", *SMALL, "--json", "-o", "again.json"]) == 0
    assert capsys.readouterr().out == verdict
    assert json.loads(Path("again.json").read_text())["source"] == text
    assert main(["verify", "best.ps"]) == 0
    assert "claims 3 of 3 hold" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["concise", "github"])
def test_other_forms_say_the_verdict(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Other forms print one line: the verdict, or the finding that there is no schedule."""
    assert main(["optimize", *SMALL, "--format", form]) == 0
    assert capsys.readouterr().out == "proved optimal: makespan 10\n"
    assert main(["optimize", *SMALL, "--format", form, "--mem-cap", "0.1"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert "PS701" in line and "rank 0 must be able to hold 1" in line


@pytest.mark.parametrize("arguments", [("--p", "3", "--m", "5", "--mem-cap", "2"), ("--p", "2", "--mem-cap", "2")])
def test_a_written_proof_convinces_a_checker(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Everything below the optimum is refuted in two files, which the tests' checker accepts step by step."""
    assert main(["optimize", *arguments, "--proof", "why"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("proved optimal") and "a proof that no schedule" in out and "why.cnf and why.lrat" in out
    cnf, lrat = (Path(f"why.{end}").read_text() for end in ("cnf", "lrat"))
    assert refusal(cnf, drat(lrat)) == ""


def test_operations_without_duration_have_proofs_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Also for an optimum of 0, the tests' checker accepts the written files."""
    for costs in ("F=0,I=0,W=0", "F=0"):
        assert main(["optimize", *SMALL, "--cost", costs, "--proof", "why"]) == 0
        assert "note: a proof that no schedule" in capsys.readouterr().out
        assert refusal(Path("why.cnf").read_text(), drat(Path("why.lrat").read_text())) == ""


# Real processes


def test_every_baseline_is_named_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table has seven rows, sorted by makespan, with the answer and what answers the question; the others are named
    below it.
    """
    assert main(["optimize", "--p", "3", "--m", "6", "--mem-cap", "2", "-o", "best.ps"]) == 0
    shown = capsys.readouterr().out.partition("unit of time")[2].splitlines()
    rows = {line[4:18].strip(): Fraction(line[18:].split()[0]) for line in shown[2:] if not line.startswith("    and ")}
    ((count, below),) = re.findall(r"^    and (\d+) more: (.*)", "\n".join(shown), re.MULTILINE)
    assert main(["optimize", "--p", "3", "--m", "6", "--mem-cap", "2", "--json"]) == 0
    known = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["known"]}
    assert len(rows) == 7 and list(rows.values()) == sorted(rows.values()) and int(count) == len(below.split(", "))
    assert sorted([*rows, *below.split(", ")]) == sorted([*known, "this schedule"])
    answers = sorted((entry["makespan"], name) for name, entry in known.items() if entry["fits"])
    assert {name for _, name in answers[:3]} <= set(rows)
