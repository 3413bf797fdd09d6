"""`pipesched show` draws a wrong file as far as it runs, refuses what cannot be drawn, and takes the format from the
suffix."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.model.numbers import shown
from pipesched.views.chart.chart import chart
from pipesched.views.chart.text import Text, render
from tests.views.test_show import rank_rows


def test_a_schedule_that_stops_is_drawn_until_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Operations that run are drawn, each stopped rank is named, stderr has one line, and the status is 1."""
    (folder / "stuck.txt").write_text("rank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.1 B1.1 F1.0 B1.0\n")
    assert main(["show", "stuck.txt"]) == 1
    told = capsys.readouterr()
    every, _ = rank_rows(told.out)
    assert every == ["F0 ✗B0.0", "✗F1.1"]
    assert "deadlock PS306 under every model: ranks 0 and 1 wait for each other; stops at 1" in " ".join(
        told.out.split()
    )
    assert "✗ rank 0 stops at B0.0 (step 2): waits until rank 1 reaches B1.0 (step 4)\n" in told.out
    assert "✗ rank 1 stops at F1.1 (step 1): waits until rank 0 reaches F0.1 (step 3)\n" in told.out
    assert told.err.count("\n") == 1 and "PS306" in told.err and "pipesched verify" in told.err


def test_an_incomplete_file_is_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing backward is reported on stderr; everything else is drawn."""
    (folder / "short.csv").write_text("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n")
    assert main(["show", "short.csv", "--ascii"]) == 1
    told = capsys.readouterr()
    assert "F0 F1 .  .  B0" in told.out and told.out.isascii()
    assert "PS301" in told.err and told.err.count("\n") == 1


def test_streams_and_orders_look_like_their_schedule(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A schedule, its stream, its CSV and its order make the same chart below the title."""

    def charted(*arguments: str) -> str:
        assert main([*arguments, "--width", "100"]) == 0
        return capsys.readouterr().out.split("\n", 1)[1]

    expected = charted("show", "1f1b", "--p", "3", "--m", "4")
    for target, file in (("stream", "a.json"), ("torch-csv", "a.csv")):
        assert main(["emit", "1f1b", "--p", "3", "--m", "4", "--target", target, "-o", file]) == 0
        capsys.readouterr()
        assert charted("show", file) == expected
    assert main(["emit", "1f1b", "--p", "3", "--m", "4", "-o", "a.txt"]) == 0
    assert charted("show", "a.txt") == expected


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--width", "10"], "10 columns are too few"),
        (["--from", "40"], "the makespan is 33"),
        (["--from", "9", "--to", "3"], "nothing to draw from 9 on"),
        (["--cost", "F=1.000000001", "--to", "9999999999"], "too far to draw"),
        (["--to", "x"], "not a nonnegative number"),
        (["--messages"], "--messages applies to svg, not to text"),
        (["--format", "svg", "--width", "90"], "--width applies to text, not to svg"),
        (["-o", "picture.bmp"], "no format has the suffix .bmp"),
        (["--m", "4,8"], "one size at a time"),
        (["--cost", "F=[1,2]"], "the schedule has 4"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    arguments: list[str], told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option without effect is refused: status 2, nothing on stdout, no file."""
    assert main(["show", "1f1b", "--p", "4", *arguments]) == 2
    out = capsys.readouterr()
    assert told in out.err and out.out == "" and not list(folder.iterdir())


def test_json_holds_the_picture(capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` is one object with the picture and the findings."""
    assert main(["show", "1f1b", "--p", "2", "--m", "2", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["ok"] and value["format"] == "text" and value["parameters"] == {"p": 2, "m": 2}
    assert (value["name"], value["title"]) == ("one_f_one_b", "1F1B")
    assert main(["show", "1f1b", "--p", "2", "--m", "2"]) == 0
    assert capsys.readouterr().out == value["picture"]


def test_a_pipe_gets_80_columns_and_no_colour() -> None:
    """Without a terminal the chart is 80 columns wide, or as COLUMNS says; always the same bytes."""

    def piped(**environment: str) -> str:
        command = [sys.executable, "-m", "pipesched", "show", "dualpipe", "--p", "8", "--m", "20"]
        env = {"PYTHONIOENCODING": "utf-8", "PATH": "/usr/bin:/bin", **environment}
        return subprocess.run(command, env=env, capture_output=True, check=True, timeout=60).stdout.decode("utf-8")

    first = piped(PYTHONHASHSEED="1")
    assert first == render(chart(pipesched.load("dualpipe", p=8, m=20)), Text(80)) and "\x1b" not in first
    assert piped(PYTHONHASHSEED="2", COLUMNS="120") == render(chart(pipesched.load("dualpipe", p=8, m=20)), Text(120))


def test_a_thousand_microbatches_fit_a_screen() -> None:
    """Half a million operations are rows of 80 characters; the peak of rank 0 is the published one."""
    schedule = pipesched.load("interleaved", p=64, v=4, m=1024)
    text = render(chart(schedule), Text(80))
    every, sparks = rank_rows(text)
    assert len(every) == len(sparks) == 64 and all(len(row) <= 80 - 8 for row in every)
    assert sparks[0].split()[-1] == shown(Fraction(2 * 63 + 3 * 64 + 1, 4))
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("suffix", "begins"),
    [
        (".txt", "1F1B  p=2 m=2"),
        (".svg", "<svg "),
        (".html", "<!doctype html>"),
        (".json", '{"displayTimeUnit"'),
        (".csv", "rank,step,op"),
        (".dot", "digraph"),
        (".gv", "digraph"),
        (".graphml", "<graphml"),
    ],
)
def test_the_suffix_tells_the_format(suffix: str, begins: str, folder: Path) -> None:
    """A file has the format of its suffix, and nothing else is printed or left."""
    assert main(["show", "1f1b", "--p", "2", "--m", "2", "-o", f"figure{suffix}"]) == 0
    assert [file.name for file in folder.iterdir()] == [f"figure{suffix}"]
    text = (folder / f"figure{suffix}").read_text("utf-8")
    assert re.sub(r"^//.*\n+", "", text).lower().startswith(begins.lower())


def test_a_graph_without_dot_is_written_as_dot(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the program its input is written, and one line shows how to get it: PS820, status 2."""
    monkeypatch.setenv("PATH", str(folder / "nowhere"))
    command = ["show", "1f1b", "--p", "2", "--m", "2", "--format", "dag"]
    assert main([*command, "-o", "graph.svg"]) == 2
    told = capsys.readouterr().err
    assert "PS820" in told and "graphviz" in told.lower() and "graph.dot contains the graph" in told
    assert [file.name for file in folder.iterdir()] == ["graph.dot"]
    assert main(command) == 0
    assert capsys.readouterr().out == (folder / "graph.dot").read_text("utf-8")


def test_graphml_is_asked_for_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """`--format dag --to graphml` writes GraphML; for other formats --to is a time."""
    assert main(["show", "1f1b", "--p", "2", "--m", "2", "--format", "dag", "--to", "graphml"]) == 0
    assert capsys.readouterr().out.startswith("<graphml")
    assert main(["show", "1f1b", "--p", "2", "--m", "2", "--to", "graphml"]) == 2
    assert "--to graphml applies to dag, not to text" in capsys.readouterr().err


def test_a_png_keeps_its_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that `dot` makes are written unchanged."""
    picture = b"\x89PNG\r\n\x1a\n\x00\xff\xfe\xc3"
    monkeypatch.setattr("pipesched.views.graph.drawn", lambda chart, form, force: picture)
    command = ["show", "1f1b", "--p", "2", "--m", "2", "--format", "dag", "-o"]
    assert main([*command, "graph.png"]) == 0
    assert (folder / "graph.png").read_bytes() == picture


def test_a_deadlock_of_messages_is_not_hidden_by_the_picture(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both ranks send first: the part that runs under the model is drawn, as stderr reports; `why` explains it."""
    first = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    other = "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"
    (folder / "both.csv").write_text(first + other)
    assert main(["show", "both.csv"]) == 1
    told = capsys.readouterr()
    assert "PS401" in told.err and "; drawn as far as it runs under strict; `pipesched verify`" in told.err
    assert "deadlock PS401 under strict" in told.out and "makespan" not in told.out
    assert main(["why", "both.csv"]) == 1
    told = capsys.readouterr()
    assert "PS401" in told.err and "; explained as if no send blocked, `pipesched verify`" in told.err
    assert "makespan 9" in told.out and told.out.splitlines()[0].endswith("; wrong: PS401")
    (folder / "stuck.txt").write_text("rank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.1 B1.1 F1.0 B1.0\n")
    for command, verb in (("show", "drawn"), ("why", "explained")):
        assert main([command, "stuck.txt"]) == 1
        told = capsys.readouterr()
        assert f"; {verb} as far as it runs" in told.err and "makespan" not in told.out
        assert "stops at 1" in " ".join(told.out.split())


@pytest.mark.parametrize("name", ["a.svg", "a.html", "a.json", "a.txt"])
def test_a_picture_of_a_wrong_file_says_so_itself(name: str, folder: Path) -> None:
    """A picture may be sent on alone, so a wrong file's code is in it; a right file's has none."""
    (folder / "short.csv").write_text("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n")
    (folder / "right.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    assert main(["show", "short.csv", "-o", name]) == 1
    assert "wrong: PS301" in (folder / name).read_text("utf-8")
    assert main(["show", "right.csv", "-o", name]) == 0
    assert "wrong: PS" not in (folder / name).read_text("utf-8")
