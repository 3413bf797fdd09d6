"""`emit --target order` prints each rank, `list` prints each schedule, and `fmt` rewrites only files that it can
read."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pipesched.__main__ import main
from pipesched.interop.frameworks.frameworks import FRAMEWORKS
from pipesched.library.assets import asset
from pipesched.library.inputs import read
from pipesched.planning.transformer.model_file import built_in as transformers

COMMAND = [sys.executable, "-m", "pipesched"]
GOOD = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
UGLY = "schedule  s( p,m )\nstage s in 0..p on rank s\nrank r{repeat m{F}\nrepeat m {B}} # both\n"


def test_order_prints_each_rank(capsys: pytest.CaptureFixture[str]) -> None:
    """In 1F1B on two ranks the first warms up with one forward, the last alternates from the start."""
    assert main(["emit", "1f1b", "--p", "2", "--m", "2", "--target", "order"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert rows == ["rank 0: F0.0 F0.1 B0.0 B0.1", "rank 1: F1.0 B1.0 F1.1 B1.1"]
    assert main(["emit", "1f1b", "--p", "2", "--m", "2", "--target", "order", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["ok"] and value["text"].splitlines() == rows
    assert main(["emit", "1f1b", "--p", "2", "--m", "2", "--target", "program"]) == 0
    shown = capsys.readouterr().out
    assert "send:F0.0>1" in shown and "recv:F0.0<0" in shown and "reduce:0" in shown


@pytest.mark.parametrize(
    ("line", "unsaid"),
    [
        ("", None),
        ("frozen 0", "frozen: 0 (give `--frozen`"),
        ("slices 2", "every 2 microbatches form one sequence (`--target ps`"),
        ("stage 2 on rank 2 reads 1, 0", "stage 2 reads stage 1 and stage 0 (`--target ps`"),
    ],
)
def test_order_says_what_its_words_do_not(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str, unsaid: str | None
) -> None:
    """On stderr, so that an order passed to another command is not taken for the whole file."""
    back = "B(1) B(0)" if line.startswith("slices") else "B(0) B(1)"
    head = "schedule s(p = 3, m = 2)\nstage s in 0 .. p on rank s\n"
    (folder / "some.ps").write_text(f"{head}{line}\nrank r {{ repeat m {{ F }} {back} }}\n")
    assert main(["emit", "some.ps", "--target", "order"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("rank 0: F0.0 F0.1")
    assert told.err == "" if unsaid is None else f"an order cannot express: {unsaid}" in told.err


@pytest.mark.parametrize("target", ["order", "program", "ps"])
@pytest.mark.parametrize("option", ["--mem-cap 4", "--comm async", "--cost F=2", "--release I"])
def test_what_asks_for_a_verdict_is_refused_where_none_is_given(
    target: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An order is written as it is: an option that would judge it is refused."""
    assert main(["emit", "1f1b", "--p", "2", "--m", "2", "--target", target, *option.split()]) == 2
    told = capsys.readouterr()
    assert told.out == "" and f"{option.split()[0]} affects only a verdict" in told.err


def test_a_wrong_order_is_written_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks that wait for each other, and a missing backward: the words of the file; for a runtime it is refused."""
    text = "rank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.1 B1.1 F1.0\n"
    (folder / "wrong.txt").write_text(text)
    assert main(["emit", "wrong.txt", "--target", "order"]) == 0
    assert capsys.readouterr() == (text, "")
    assert main(["emit", "wrong.txt", "-o", "wrong.ps"]) == 0
    assert main(["emit", "wrong.ps", "--target", "order"]) == 0
    assert capsys.readouterr() == (text, "")
    assert main(["emit", "wrong.txt"]) == 1
    assert capsys.readouterr().out == ""


def test_order_of_a_broken_file_is_its_diagnostics(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The diagnostics are on stderr, with the status of the fault; stdout is empty."""
    (folder / "bad.ps").write_text("schedule s(p)\nrank r { G }\n")
    assert main(["emit", "bad.ps", "--p", "2", "--target", "order"]) == 1
    told = capsys.readouterr()
    assert told.out == "" and "bad.ps:2:" in told.err


def test_list_names_every_schedule_and_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    """The list has one line for each file of schedules/ under its group, for each framework and for each transformer;
    every name works; the JSON is sorted by name, with the other names."""
    assert main(["list"]) == 0
    *groups, frameworks, models = capsys.readouterr().out.split("\n\n")
    assert [line.partition(":")[0] for line in frameworks.splitlines()[::2]] == list(FRAMEWORKS)
    assert sorted(line.split()[0] for line in models.splitlines()[1:]) == transformers()
    rows = [line for group in groups for line in group.splitlines() if re.match(r"  \w+  ", line)]
    names = {line.split()[0]: line for line in rows}
    said = {
        name: " ".join(text.split())
        for text in groups
        for name, text in re.findall(r"\n  (\w+) ([^*]*?)(?=\n  \w|$)", text)
    }
    assert set(names) == {
        file.name.removesuffix(".ps") for file in asset("schedules").iterdir() if file.name.endswith(".ps")
    }
    assert len(names) == len(rows) and all(len(line.split()) > 3 for line in rows)
    assert len(groups) > 3 and all(re.match(r"\w.*:\n  \w", group) for group in groups)
    assert main(["verify", *names, "--p", "4", "--m", "8"]) == 0
    capsys.readouterr()
    assert main(["list", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)["schedules"]
    assert [entry["name"] for entry in entries] == sorted(names)
    assert all(entry["documentation"].partition(";")[0] in said[entry["name"]] for entry in entries)
    assert all(read(other) == read(entry["name"]) for entry in entries for other in entry["also"])


def test_list_shows_the_file_of_a_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is listed letter by letter, by any name, in any folder; `explain` mentions the command."""
    (folder / "dapple").write_text("mine")
    assert main(["list", "ScheduleZBVZeroBubble", "-o", "mine.ps"]) == 0
    text = asset("schedules", "zb_v.ps").read_text("utf-8")
    assert (folder / "mine.ps").read_text("utf-8") == text
    capsys.readouterr()
    assert main(["list", "zb_v", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == text
    assert main(["list", "dapple"]) == 0 and "schedule one_f_one_b" in capsys.readouterr().out
    assert main(["list", "nothing"]) == 2 and main(["explain", "ZB-V"]) == 2
    assert "`pipesched list zb_v`" in capsys.readouterr().err


def test_fmt_rewrites_in_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file keeps its mode and its comments, and a canonical file is not touched."""
    file = folder / "ugly.ps"
    file.write_text(UGLY)
    file.chmod(0o600)
    assert main(["fmt", "ugly.ps"]) == 0
    told = capsys.readouterr()
    once = file.read_text()
    assert told.out == "" and told.err == "rewrote ugly.ps\n" and "# both" in once
    assert once.startswith("schedule s(p, m)\n") and stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.stat().st_mtime_ns
    assert main(["fmt", "ugly.ps"]) == 0 and capsys.readouterr().err == "" and file.stat().st_mtime_ns == before
    assert [path.name for path in folder.iterdir()] == ["ugly.ps"]


def test_fmt_can_check_and_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command shows names or differences with status 1 and writes nothing; the status is 0 once all is
    canonical."""
    file = folder / "ugly.ps"
    file.write_text(UGLY)
    assert main(["fmt", "--check", "ugly.ps"]) == 1 and capsys.readouterr().out == "ugly.ps\n"
    assert main(["fmt", "--diff", "ugly.ps"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("--- ugly.ps\n+++ ugly.ps\n") and "\n+schedule s(p, m)\n" in shown
    assert main(["fmt", "--check", "ugly.ps", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"ok": False, "changed": ["ugly.ps"], "diagnostics": []}
    assert file.read_text() == UGLY
    main(["fmt", "ugly.ps"])
    capsys.readouterr()
    assert main(["fmt", "--check", "ugly.ps"]) == 0 and capsys.readouterr().out == ""


def test_fmt_is_a_filter_too(folder: Path) -> None:
    """``-`` reads stdin and writes stdout, also when nothing changes."""
    (folder / "ugly.ps").write_text(UGLY)
    assert main(["fmt", "ugly.ps"]) == 0
    canonical = (folder / "ugly.ps").read_bytes()
    for text in (UGLY.encode(), canonical):
        done = subprocess.run([*COMMAND, "fmt", "-"], input=text, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, canonical, b"")


def test_fmt_leaves_alone_what_it_cannot_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that does not parse is kept, the others are written; built-in names and CSV files are refused."""
    (folder / "bad.ps").write_text("schedule (")
    (folder / "ugly.ps").write_text(UGLY)
    assert main(["fmt", "bad.ps", "ugly.ps"]) == 1
    assert "bad.ps:1:" in capsys.readouterr().err and (folder / "bad.ps").read_text() == "schedule ("
    assert (folder / "ugly.ps").read_text() != UGLY
    (folder / "x.csv").write_text(GOOD)
    for target, code in (("1f1b", "PS809"), ("x.csv", "PS225"), ("none.ps", "PS809")):
        assert main(["fmt", target]) == 2 and code in capsys.readouterr().err
