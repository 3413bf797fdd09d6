"""`verify` prints results and findings in every output format, and reports wrong arguments with a code and a hint."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pipesched.__main__ import main
from pipesched.insight import compare
from pipesched.library.assets import asset
from pipesched.runtime import run
from pipesched.shell import app

pytestmark = pytest.mark.quick

GOLDEN = Path(__file__).parents[1] / "golden"
VALIDATOR = Draft202012Validator(json.loads(asset("emit", "report.schema.json").read_text("utf-8")))

GOOD = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
TWICE = "0F0,0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "PIPESCHED_DEBUG"):
        monkeypatch.delenv(name, raising=False)


# Output of verify


def test_a_verified_schedule_prints_the_sample_of_the_design(capsys: pytest.CaptureFixture[str]) -> None:
    """The output has a few lines, with every number of the published schedule."""
    assert main(["verify", "interleaved", "--p", "4", "--v", "2"]) == 0
    assert capsys.readouterr().out == (GOLDEN / "verify_interleaved.txt").read_text("utf-8")


def test_a_deadlock_prints_the_cycle(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each waiting rank with its row and cell, the models that hold and fail, and the count."""
    (folder / "mine.csv").write_text(
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n"
    )
    assert main(["verify", "mine.csv"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("error[PS401]: ") and shown.endswith("\n\n1 error in mine.csv\n")
    assert " --> mine.csv:1:" in shown and " ::: mine.csv:2:" in shown and "holds under" in shown


def test_json_is_valid_for_good_and_bad(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The output is one object, valid by the published schema, for any verdict; several files give a list."""
    (folder / "good.csv").write_text(GOOD)
    (folder / "bad.csv").write_text(TWICE)
    for arguments, status in (
        (["good.csv"], 0),
        (["bad.csv"], 1),
        (["none.csv"], 2),
        (["good.csv", "bad.csv", "none.csv"], 2),
        (["1f1b", "--p", "2..4"], 0),
        (["zb_h1", "--p", "4", "--cost", "F=1.5,I=2,W=1/3,C=1/7", "--mem-cap", "9/2"], 0),
        (["1f1b", "--p", "3", "--cost", "M=[1,1/2,7]", "--mem-cap", "7"], 0),
    ):
        assert main(["verify", *arguments, "--json"]) == status, arguments
        value = json.loads(capsys.readouterr().out)
        VALIDATOR.validate(value)
        assert value["ok"] == (status == 0)


def test_json_tells_what_the_literature_says(capsys: pytest.CaptureFixture[str]) -> None:
    """1F1B at p = 4, m = 8 has 64 operations, 2 (p - 1) m messages, peaks min(p - r, m) and idle (p - 1) (tF + tB)."""
    assert main(["verify", "1f1b", "--p", "4", "--m", "8", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["operations"], report["slots"], report["messages"]) == (64, 64, 48)
    assert (report["ranks"], report["stages"], report["microbatches"]) == (4, 4, 8)
    assert report["parameters"] == {"p": 4, "m": 8}
    assert report["memory"]["peak"] == [4, 3, 2, 1] and report["memory"]["cap"] is None
    assert report["time"]["idle"] == [9] * 4 and report["time"]["makespan"] == 33
    assert report["communication"]["capacity"] == 0 and report["communication"]["fails"] == []
    assert [claim["holds"] for claim in report["claims"]] == [True] * len(report["claims"]) != []


def test_many_sizes_print_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Files times sizes, the last size fastest, the worst status, and the count on stderr."""
    assert main(["verify", "gpipe", "1f1b", "--p", "2..4", "--m", "4,8"]) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert len(lines) == 12 and all(line.startswith("ok  ") for line in lines)
    assert [re.findall(r"p=\d+|m=\d+", line) for line in lines[:3]] == [["p=2", "m=4"], ["p=2", "m=8"], ["p=3", "m=4"]]
    assert told.err == "12 of 12 hold\n"
    assert main(["verify", "interleaved", "--p", "4", "--v", "2", "--m", "8..10"]) == 1
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()] == ["ok", "fail", "fail"]
    assert "PS209" in told.out and told.err == "1 of 3 hold\n"


def test_too_many_sizes_are_refused_before_they_are_counted_out(capsys: pytest.CaptureFixture[str]) -> None:
    """A range of a trillion sizes is a mistake, reported at once."""
    assert main(["verify", "1f1b", "--p", "4", "--m", "1..1000000000000"]) == 2
    assert "PS225" in capsys.readouterr().err


def test_findings_a_line_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Findings are ``file:line:column`` for editors, and annotations for GitHub."""
    (folder / "bad.csv").write_text(TWICE)
    assert main(["verify", "bad.csv", "--format", "concise"]) == 1
    assert re.fullmatch(r"bad\.csv:1:5: error\[PS302\]: [^\n]+\n", capsys.readouterr().out)
    assert main(["verify", "bad.csv", "--format", "github"]) == 1
    assert re.fullmatch(r"::error file=bad\.csv,line=1,col=5,title=PS302::[^\n]+\n", capsys.readouterr().out)
    assert main(["verify", "none.csv", "--format", "github"]) == 2
    assert re.fullmatch(r"::error file=none\.csv,title=PS809::[^\n]+\n", capsys.readouterr().out)


def test_the_options_reach_the_checks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each option changes its verdict or numbers."""
    (folder / "good.csv").write_text(GOOD)
    (folder / "costs.toml").write_text("F = 2\nB = [4, 4, 4, 4]\n")
    cases: list[tuple[list[str], int, str]] = [
        (["1f1b", "--p", "4", "--m", "8", "--mem-cap", "3"], 1, "PS501"),
        (["1f1b", "--p", "4", "--m", "8", "--mem-cap", "4,3,2,1"], 0, "of cap 4"),
        (["1f1b", "--p", "4", "--m", "8", "--max-ops", "10"], 1, "PS210"),
        (["1f1b", "--p", "4", "--m", "8", "--cost", "F=2,B=4"], 0, "makespan 66"),
        (["1f1b", "--p", "4", "--m", "8", "--costs", "costs.toml"], 0, "makespan 66"),
        (["1f1b", "--p", "4", "--m", "8", "--costs", "costs.toml", "--cost", "F=1,B=2"], 0, "makespan 33"),
        (["1f1b", "--p", "4", "--m", "8", "--release", "I"], 0, "(release I)"),
        (["1f1b", "--p", "4", "--m", "8", "--comm", "async"], 0, "(async; under every model)"),
        (["1f1b", "--p", "4", "-D", "m=8"], 0, "m=8"),
        (["good.csv", "--stages", "4"], 2, "PS803"),
        (["good.csv", "--m", "4"], 2, "PS803"),
        (["good.csv", "--p", "4"], 2, "PS803"),
        (["good.csv", "--placement", "1,0"], 2, "PS803"),
        (["good.csv", "--placement", "0,1", "--stages", "2", "--m", "2", "--p", "2"], 0, "ok  good"),
        (["good.csv", "-D", "x=1"], 2, "PS208"),
    ]
    for arguments, status, said in cases:
        assert main(["verify", *arguments]) == status, arguments
        told = capsys.readouterr()
        assert said in told.out + told.err, arguments


# Mistakes on the command line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verfy", "1f1b"], "did you mean `verify`?"),
        (["mine.ps", "--p", "4"], "did you mean `pipesched verify mine.ps`?"),
        (["verify", "1f1b", "--mem-cpa", "3"], "did you mean --mem-cap?"),
        (["verify", "interleved", "--p", "4"], "interleaved"),
        (["verify", "1f1b", "--p", "4", "-D", "mm=3"], "did you mean `m`?"),
        (["verify"], "missing argument"),
        (["verify", "1f1b", "--p", "four"], "'four' is not a whole number"),
        (["verify", "1f1b", "--p", "8..2"], "write 2..8"),
        (["verify", "1f1b", "--p", "4", "-D", "p=3"], "given twice"),
        (["verify", "1f1b", "--p", "4", "--m", "8", "--p=5"], "option --p is given twice"),
        (["optimize", "--lost", "1", "--lost", "2"], "option --lost is given twice"),
        (["diff", "-", "-"], "stdin, `-`, is given twice"),
        (["verify", "1f1b", "--p", "4", "--stages", "4"], "--stages applies only to a torch CSV"),
        (["show", "1f1b", "--p", "4", "--placement", "0,1,2,3"], "--placement applies only to a torch CSV"),
        (["verify", "1f1b", "--p", "4", "--max-ops", "0"], "from 1 up"),
        (["show", "1f1b", "--p", "4", "--width", "0"], "from 1 up"),
        (["verify", "1f1b", "--p", "4", "-o", ""], "the name is empty"),
        (["optimize", "--p", "2", "--m", "2", "-o", "best/"], "it is a folder"),
        (["verify", "1f1b", "--p", "4", "-D", "2m=8"], "name=value"),
        (["verify", "1f1b", "--p", "4", "--mem-cap", "-1"], "is not a nonnegative number"),
        (["verify", "1f1b", "--p", "4", "--mem-cap", "1/0"], "is not a nonnegative number"),
        (["verify", "1f1b", "--p", "4", "--torch-version", "2.9"], "2.10 to 2.15"),
        (["verify", "1f1b", "--p", "4", "--placement", "a"], "0,1,1,0"),
        (["verify", "1f1b", "--p", "4", "--comm", "rendezvous"], "strict"),
        (["verify", "1f1b", "--p", "4", "--release", "X"], "release rule"),
        (["verify", "1f1b", "--p", "4", "--costs", "none.toml"], "none.toml"),
        (["verify", "1f1b", "--p", "4", "-o", "no/such/folder/x"], "cannot write"),
        (["emit", "1f1b", "--p", "2,4"], "one size at a time"),
        (["explain", "PS999"], "is neither a code nor a word in the glossary"),
        (["order", "1f1b", "--p", "2"], "write `pipesched emit FILE --target order`"),
        (["rehearse", "1f1b", "--p", "2"], "write `pipesched run FILE --rank R --stages FILE.py:FUNCTION`"),
        (["survey", "torch", "--p", "2..4"], "write `pipesched verify FRAMEWORK:NAME --p 2..8 --m 4,8`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_ends_with_status_2_a_code_and_a_hint(
    arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mistake is on stderr, with the nearest valid input; with --json an object is on stdout."""
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert said in told.err and told.out == "" and re.search(r"error\[PS\d{3}\]", told.err)
    assert main([*arguments, "--json"]) == 2
    value = json.loads(capsys.readouterr().out)
    VALIDATOR.validate(value)
    assert not value["ok"] and value["diagnostics"]


@pytest.mark.parametrize("command", ["check", "calibrate", "fmt"])
def test_a_remedy_is_of_the_kind_of_file_that_was_asked_for(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder instead of a trace or a configuration does not get the list of schedules as a remedy."""
    assert main([command, str(folder)]) == 2
    said = capsys.readouterr().err
    assert "is a directory" in said and "pipesched list" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "1f1b", "--p", "2", "--trace", "no/such/run.json"],
        ["run", "1f1b", "--p", "2", "-o", "no/such/run.txt"],
        ["compare", "1f1b", "--p", "2", "--plot", "no/such/plot.svg"],
        ["compare", "1f1b", "--p", "2", "-o", "no/such/table.txt"],
    ],
    ids=" ".join,
)
def test_a_place_that_is_not_there_is_said_before_the_work(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No training or comparing for a result that cannot be written."""
    for module, name in ((run, "run"), (compare, "compare")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("it has begun"))
    assert main(arguments) == 2
    assert "cannot write no/such/" in capsys.readouterr().err


def test_the_commands_are_listed_by_what_they_are_for(capsys: pytest.CaptureFixture[str]) -> None:
    """There are four groups, and each command is in one of them."""
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    groups = re.findall(r"^(Look|Make|Run|Other people's):\n((?:  .*\n)+)", shown, re.M)
    assert [title for title, _ in groups] == ["Look", "Make", "Run", "Other people's"]
    listed = [name for _, lines in groups for name in re.findall(r"^  (\w+)", lines, re.M)]
    assert sorted(listed) == sorted(app.commands()) and len(groups[0][1].splitlines()) >= 7


@pytest.mark.parametrize("name", sorted(app.commands()))
def test_help_keeps_its_lines(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The mark before lines that must not be wrapped (U+0008) is alone on its line; elsewhere it would be printed."""
    assert main([name, "--help"]) == 0
    assert "\b" not in capsys.readouterr().out


def test_no_command_is_a_request_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Without arguments the program shows its commands and examples to paste."""
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name}" in shown for name in app.commands())
    examples = re.findall(r"pipesched (verify \w+ .*)", shown)
    assert examples and all(main(example.split()) == 0 for example in examples if ".ps" not in example)
