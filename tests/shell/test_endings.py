"""The extension of the `-o` file selects the output form, and an extension that contradicts the options is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipesched.__main__ import main

OPTIMIZE = ["optimize", "--p", "2", "--m", "3"]
SIZE = ["--p", "2", "--m", "3"]


def holds(path: Path) -> str:
    """Return the form of a file, by its first characters."""
    text = path.read_text("utf-8", "surrogateescape")
    begins = {"{": "json", "schedule ": "ps", "<svg": "svg", "<!doctype": "html", "0F0,": "csv", "F = [": "costs"}
    begins |= {"digraph": "dot", "rank,step": "table", '"""': "python", "[": "json", "# fitted": "costs"}
    return next((kind for begin, kind in begins.items() if text.startswith(begin)), "text")


def written(tmp_path: Path, name: str, *line: str) -> str | None:
    """Return the content of the file; None if refused, with exit status 2 and no file."""
    path = tmp_path / name
    status = main([*line, "-o", str(path)])
    assert (status == 2) == (not path.exists())
    return holds(path) if path.exists() else None


NAMED = {
    ("verify 1f1b --p 2", "a.json"): "json",
    ("verify 1f1b --p 2", "a.txt"): "text",
    ("verify 1f1b --p 2", "a"): "text",
    ("verify 1f1b --p 2", "a.result"): "text",
    ("verify 1f1b --p 2", "a.csv"): None,
    ("verify 1f1b --p 2", "a.html"): None,
    ("verify 1f1b --p 2 --json", "a.json"): "json",
    ("verify 1f1b --p 2 --json", "a"): "json",
    ("verify 1f1b --p 2 --json", "a.txt"): None,
    ("verify 1f1b --p 2 --format json", "A.JSON"): "json",
    ("verify 1f1b --p 2 --format concise", "a.json"): None,
    ("verify 1f1b --p 2 --format concise", "a.txt"): "text",
    ("why 1f1b --p 2", "a.json"): "json",
    ("why 1f1b --p 2", "a.svg"): None,
    ("compare 1f1b --p 2", "a.json"): "json",
    ("compare 1f1b --p 2 --json", "a.csv"): None,
    ("list", "a.json"): "json",
    ("list 1f1b", "a.ps"): "text",
    ("explain PS401", "a.json"): "json",
    ("emit 1f1b --p 2 --target ps", "a.ps"): "ps",
    ("emit 1f1b --p 2 --target ps", "a.csv"): None,
    ("emit 1f1b --p 2 --target order", "a.json"): None,
    ("emit 1f1b --p 2", "a.json"): "json",
    ("emit 1f1b --p 2", "a.csv"): "csv",
    ("emit 1f1b --p 2", "a.py"): "python",
    ("emit 1f1b --p 2", "a.ps"): "ps",
    ("emit 1f1b --p 2", "a.svg"): None,
    ("emit 1f1b --p 2 --target torch-csv", "a.csv"): "csv",
    ("emit 1f1b --p 2 --target torch-csv", "a.json"): None,
    ("emit 1f1b --p 2 --target stream", "a.csv"): None,
    ("emit 1f1b --p 2 --target torch-csv", "a.schedule"): "csv",
    ("show 1f1b --p 2", "a.svg"): "svg",
    ("show 1f1b --p 2", "a.txt"): "text",
    ("show 1f1b --p 2", "a.csv"): "table",
    ("show 1f1b --p 2 --format svg", "a.svg"): "svg",
    ("show 1f1b --p 2 --format svg", "a.html"): None,
    ("show 1f1b --p 2 --format trace", "a.json"): "json",
    ("show 1f1b --p 2 --format trace", "a.csv"): None,
    ("show 1f1b --p 2 --json", "a.json"): "json",
    ("show 1f1b --p 2 --json", "a.svg"): None,
    ("plan --model llama3-70b --gpus 64 --device h100 --batch 64 --only t=8,p=8,schedule=1f1b", "a.html"): "html",
    ("plan --model llama3-70b --gpus 64 --device h100 --batch 64 --only t=8,p=8,schedule=1f1b --json", "a.html"): None,
}


@pytest.mark.parametrize(("line", "name"), NAMED, ids=lambda text: text[:50])
def test_the_ending_says_what_a_file_holds(line: str, name: str, tmp_path: Path) -> None:
    """The verb, the request and the ending decide; an unknown ending takes any form."""
    assert written(tmp_path, name, *line.split()) == NAMED[line, name]


def test_an_answer_is_what_verify_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The guide's two steps work: the answer is in its file, and the verdict on stdout; also with --json, and by the
    name alone."""
    for line in ([*OPTIMIZE, "--json"], OPTIMIZE):
        file = tmp_path / "ans.json"
        assert main([*line, "-o", str(file)]) == 0
        assert capsys.readouterr().out.startswith("proved optimal: makespan ")
        assert json.loads(file.read_text("utf-8"))["proved"] is True
        assert main(["verify", str(file)]) == 0
        assert "proved optimal" in capsys.readouterr().out
        file.unlink()
    assert main([*OPTIMIZE, "--json", "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["proved"] is True
    assert main([*OPTIMIZE, "-o", "-"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("schedule optimum") and "proved optimal" in told.err


@pytest.mark.parametrize(
    ("more", "name", "kind"),
    [
        ([], "best.ps", "ps"),
        ([], "best", "ps"),
        (["--json"], "best", "json"),
        (["--json"], "best.ps", None),
        ([], "best.csv", None),
        (["--format", "concise"], "best.ps", "ps"),
        (["--mem-cap", "1..2"], "best.json", "json"),
        (["--mem-cap", "1..2"], "best.txt", "text"),
        (["--mem-cap", "1..2"], "best.ps", None),
    ],
)
def test_optimize_writes_the_schedule_or_the_answer(
    more: list[str], name: str, kind: str | None, tmp_path: Path
) -> None:
    """A range of caps gives a table, and no schedule."""
    assert written(tmp_path, name, *OPTIMIZE, *more) == kind


def test_a_refused_name_says_what_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PS225, and its remedy works to the letter."""
    for line, name in (("verify 1f1b --p 2 --json", "a.csv"), ("emit 1f1b --p 2 --target torch-csv", "a.json")):
        assert main([*line.split(), "--color", "never", "-o", str(tmp_path / name)]) == 2
        told = capsys.readouterr()
        said = told.err + told.out
        assert "PS225" in said and "contradicts" in said
        right = said.split("name it ")[1].replace('"', ",").split(",")[0].split()[0]
        assert main([*line.split(), "-o", right]) == 0 and Path(right).exists()


def test_no_result_is_lost_where_a_file_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result goes to stdout: a disk that is full when the work is done."""
    from pipesched.support import files

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "replace", full)
    for line, begins in ((OPTIMIZE, "schedule "), (["verify", "1f1b", "--p", "2", "--json"], "{")):
        assert main([*line, "-o", str(tmp_path / "x")]) == 2
        told = capsys.readouterr()
        assert told.out.startswith(begins)
        assert "No space left on device" in told.err + told.out
