"""The command line as a user meets it: results, statuses, streams, suggestions."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pipesched.__main__ import main
from pipesched.assets import asset
from pipesched.cli import app

GOLDEN = Path(__file__).parent / "golden"
VALIDATOR = Draft202012Validator(json.loads(asset("emit", "v1", "report.schema.json").read_text("utf-8")))
COMMAND = [sys.executable, "-m", "pipesched"]

GOOD = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
TWICE = "0F0,0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
UGLY = "schedule  s( p,m )\nstage s in 0..p on rank s\nrank r{repeat m{F}\nrepeat m {B}} # both\n"


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "PIPESCHED_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, env={**os.environ, **environment}, timeout=60, check=False
    )


# What verify prints


def test_a_verified_schedule_prints_the_sample_of_the_design(capsys: pytest.CaptureFixture[str]) -> None:
    """Few lines, and among them every number that the published schedule has."""
    assert main(["verify", "interleaved", "--p", "4", "--v", "2"]) == 0
    assert capsys.readouterr().out == (GOLDEN / "verify_interleaved.txt").read_text("utf-8")


def test_a_deadlock_prints_the_circle(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    """One object, by the published schema, whatever the verdict; other files in the same call make it a list."""
    (folder / "good.csv").write_text(GOOD)
    (folder / "bad.csv").write_text(TWICE)
    for arguments, status in (
        (["good.csv"], 0),
        (["bad.csv"], 1),
        (["none.csv"], 2),
        (["good.csv", "bad.csv", "none.csv"], 2),
        (["1f1b", "--p", "2..4"], 0),
        (["zb_h1", "--p", "4", "--cost", "F=1.5,I=2,W=1/3,C=1/7", "--mem-cap", "9/2"], 0),
    ):
        assert main(["verify", *arguments, "--json"]) == status, arguments
        value = json.loads(capsys.readouterr().out)
        VALIDATOR.validate(value)
        assert value["ok"] == (status == 0)


def test_json_tells_what_the_literature_says(capsys: pytest.CaptureFixture[str]) -> None:
    """1F1B at p = 4, m = 8: 64 operations, 2 (p - 1) m messages, peaks min(p - r, m), idle (p - 1) (tF + tB)."""
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
    """A range of a trillion sizes is a mistake, told at once."""
    begin = time.monotonic()
    assert main(["verify", "1f1b", "--p", "4", "--m", "1..1000000000000"]) == 2
    assert time.monotonic() - begin < 1
    assert "PS225" in capsys.readouterr().err


def test_findings_a_line_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``file:line:column`` for editors, annotations for GitHub."""
    (folder / "bad.csv").write_text(TWICE)
    assert main(["verify", "bad.csv", "--format", "concise"]) == 1
    assert re.fullmatch(r"bad\.csv:1:5: error\[PS302\]: [^\n]+\n", capsys.readouterr().out)
    assert main(["verify", "bad.csv", "--format", "github"]) == 1
    assert re.fullmatch(r"::error file=bad\.csv,line=1,col=5,title=PS302::[^\n]+\n", capsys.readouterr().out)
    assert main(["verify", "none.csv", "--format", "github"]) == 2
    assert re.fullmatch(r"::error file=none\.csv,title=PS809::[^\n]+\n", capsys.readouterr().out)


def test_the_options_reach_the_checks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each option changes the verdict or the numbers that it is about."""
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
        (["good.csv", "--stages", "4"], 1, "PS803"),
        (["good.csv", "--m", "4"], 1, "PS803"),
        (["good.csv", "--p", "4"], 1, "PS803"),
        (["good.csv", "--placement", "1,0"], 1, "PS803"),
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
        (["verify", "1f1b", "--p", "4", "--mem-cap", "-1"], "is not a number from 0 up"),
        (["verify", "1f1b", "--p", "4", "--mem-cap", "1/0"], "is not a number from 0 up"),
        (["verify", "1f1b", "--p", "4", "--torch-version", "2.9"], "2.10 to 2.15"),
        (["verify", "1f1b", "--p", "4", "--placement", "a"], "0,1,1,0"),
        (["verify", "1f1b", "--p", "4", "--comm", "rendezvous"], "strict"),
        (["verify", "1f1b", "--p", "4", "--release", "X"], "release rule"),
        (["verify", "1f1b", "--p", "4", "--costs", "none.toml"], "none.toml"),
        (["verify", "1f1b", "--p", "4", "-o", "no/such/folder/x"], "cannot write"),
        (["order", "1f1b", "--p", "2,4"], "one size at a time"),
        (["explain", "PS999"], "no code is called"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_ends_with_status_2_a_code_and_a_hint(
    arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, with the nearest right thing; with --json an object on stdout."""
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert said in told.err and told.out == "" and re.search(r"error\[PS\d{3}\]", told.err)
    assert main([*arguments, "--json"]) == 2
    value = json.loads(capsys.readouterr().out)
    VALIDATOR.validate(value)
    assert not value["ok"] and value["diagnostics"]


def test_no_command_is_a_request_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Alone, the program shows its commands and examples that can be pasted."""
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name}" in shown for name in app.app.commands)
    examples = re.findall(r"pipesched (verify \w+ .*)", shown)
    assert examples and all(main(example.split()) == 0 for example in examples if ".ps" not in example)


# Streams


def test_a_file_of_results_is_what_stdout_would_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``-o`` writes whole files through a rename, keeps mode and links, and ``-o -`` is stdout."""
    main(["verify", "1f1b", "--p", "4"])
    shown = capsys.readouterr().out
    (folder / "real").write_text("old")
    (folder / "real").chmod(0o640)
    (folder / "link").symlink_to("real")
    for name in ("new", "link"):
        assert main(["verify", "1f1b", "--p", "4", "-o", name]) == 0
        assert capsys.readouterr().out == ""
        assert (folder / name).read_text("utf-8") == shown
    assert stat.S_IMODE((folder / "real").stat().st_mode) == 0o640 and (folder / "link").is_symlink()
    assert main(["verify", "1f1b", "--p", "4", "-o", "-"]) == 0 and capsys.readouterr().out == shown
    assert main(["verify", "1f1b", "--p", "4", "-o", "/dev/null"]) == 0
    assert main(["verify", "1f1b", "-o", "new"]) == 2 and (folder / "new").read_text("utf-8") == shown
    assert sorted(path.name for path in folder.iterdir()) == ["link", "new", "real"]


@pytest.mark.parametrize(
    ("choice", "environment", "coloured"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "always"], {"TERM": "dumb"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--color", "always", "--json"], {}, False),
        (["--color", "always", "--format", "concise"], {}, False),
    ],
)
def test_colour_is_for_terminals_and_for_who_asks(
    choice: list[str],
    environment: dict[str, str],
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The option wins over NO_COLOR, which wins over FORCE_COLOR; a pipe has none; data formats never have."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    main(["verify", "1f1b", "--p", "4", *choice])
    assert ("\x1b[" in capsys.readouterr().out) == coloured


def test_a_stream_that_is_not_utf8_gets_ascii(folder: Path) -> None:
    """The verdict, the help and the list can be read under any encoding."""
    for arguments in (
        ("verify", "interleaved", "--p", "4"),
        ("--help",),
        ("verify", "--help"),
        ("list",),
        ("explain",),
    ):
        done = process(*arguments, PYTHONIOENCODING="ascii")
        assert done.returncode == 0 and done.stderr == b"" and done.stdout.isascii()
    done = process("verify", "interleaved", "--p", "4", PYTHONIOENCODING="latin-1")
    assert b"complete, data flow, channels FIFO" in done.stdout


def test_a_reader_that_goes_away_is_no_error() -> None:
    """``pipesched order … | head -1``: nothing on stderr, and the status of a filter whose pipe was closed."""
    arguments = [*COMMAND, "order", "1f1b", "--p", "64", "--m", "512"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline().startswith(b"rank 0:")
        running.stdout.close()
        assert (running.stderr.read(), running.wait(60)) == (b"", 141)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_is_told_in_a_line() -> None:
    """What cannot be written was not said: one line, status 2."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, "list"], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 2 and re.fullmatch(rb"error: cannot write: [^\n]+\n", done.stderr)


def test_an_interrupt_is_status_130_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C in the middle of a command: no traceback, no word."""
    monkeypatch.setattr("pipesched.cli.app.app.make_context", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    assert main(["list"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_fault_of_ours_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 70 and a request to report it; the traceback only for who sets PIPESCHED_DEBUG."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the sky\nfalls")

    monkeypatch.setattr("pipesched.cli.app.app.make_context", broken)
    assert main(["list"]) == 70
    assert re.fullmatch(
        r"error: internal: RuntimeError: the sky falls; please report [^\n]+\n", capsys.readouterr().err
    )
    monkeypatch.setenv("PIPESCHED_DEBUG", "1")
    with pytest.raises(RuntimeError):
        main(["list"])


def test_help_starts_fast_and_loads_nothing_heavy() -> None:
    """Help imports click and our own modules only; the best of five takes at most 0.15 s of processor."""
    heavy = "numpy lark rich z3 torch networkx importlib.metadata"
    loaded = f"set({heavy.split()!r}) & set(sys.modules)"
    probe = f"import sys; from pipesched.__main__ import main; main(['--help']); sys.exit(str({loaded}))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, timeout=60, check=False)
    assert done.stderr.decode().strip() == "set()"
    assert min(_processor_time("--help") for _ in range(5)) <= 0.15


def _processor_time(*arguments: str) -> float:
    """What a process costs, whoever else is busy on the machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# The other commands


def test_order_prints_each_rank(capsys: pytest.CaptureFixture[str]) -> None:
    """1F1B on two ranks: the first warms up with one forward, the last alternates from the start."""
    assert main(["order", "1f1b", "--p", "2", "--m", "2"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert rows == ["rank 0: F0.0 F0.1 B0.0 B0.1", "rank 1: F1.0 B1.0 F1.1 B1.1"]
    assert main(["order", "1f1b", "--p", "2", "--m", "2", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["ok"] and value["order"] == [row.split()[2:] for row in rows]
    assert main(["order", "1f1b", "--p", "2", "--m", "2", "--program"]) == 0
    shown = capsys.readouterr().out
    assert "send:F0.0>1" in shown and "recv:F0.0<0" in shown and "reduce:0" in shown


def test_order_of_a_broken_file_is_its_diagnostics(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, with the status of what is wrong; nothing on stdout."""
    (folder / "bad.ps").write_text("schedule s(p)\nrank r { G }\n")
    assert main(["order", "bad.ps", "--p", "2"]) == 1
    told = capsys.readouterr()
    assert told.out == "" and "bad.ps:2:" in told.err


def test_list_names_every_schedule_and_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each file of schedules/, and every name works."""
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines]
    assert set(names) == {
        file.name.removesuffix(".ps") for file in asset("schedules").iterdir() if file.name.endswith(".ps")
    }
    assert all(len(line.split()) > 3 for line in lines)
    assert main(["verify", *names, "--p", "4", "--m", "8"]) == 0
    capsys.readouterr()
    assert main(["list", "--json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)["schedules"]] == names


def test_fmt_rewrites_in_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file keeps its mode and its comments, and what is canonical is left alone."""
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
    """Names or differences, status 1, nothing written; status 0 once all is canonical."""
    file = folder / "ugly.ps"
    file.write_text(UGLY)
    assert main(["fmt", "--check", "ugly.ps"]) == 1 and capsys.readouterr().out == "ugly.ps\n"
    assert main(["fmt", "--diff", "ugly.ps"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("--- ugly.ps\n+++ ugly.ps\n@@") and "\n+schedule s(p, m)\n" in shown
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
    """A file that does not parse stays, the others are written; built-in names and CSV files are no targets."""
    (folder / "bad.ps").write_text("schedule (")
    (folder / "ugly.ps").write_text(UGLY)
    assert main(["fmt", "bad.ps", "ugly.ps"]) == 1
    assert "bad.ps:1:" in capsys.readouterr().err and (folder / "bad.ps").read_text() == "schedule ("
    assert (folder / "ugly.ps").read_text() != UGLY
    (folder / "x.csv").write_text(GOOD)
    for target, code in (("1f1b", "PS809"), ("x.csv", "PS225"), ("none.ps", "PS809")):
        assert main(["fmt", target]) == 2 and code in capsys.readouterr().err


def test_output_is_the_same_every_time() -> None:
    """Hash seeds and folders leave no trace in any format."""
    for arguments in (("verify", "dualpipe", "--p", "4", "--m", "8"), ("verify", "zb_h2", "--p", "4", "--json")):
        first, second = (process(*arguments, PYTHONHASHSEED=seed) for seed in ("1", "2"))
        assert first.returncode == 0 and first.stdout == second.stdout
