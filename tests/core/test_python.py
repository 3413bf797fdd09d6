"""A script can use the package's names, arguments and results, and errors have a place and a remedy."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.command.terminal import Output
from pipesched.diagnostics import PipeschedError
from pipesched.planning.progress import watched

TEXT = "\n# mine\nschedule a(p, m = 2 * p)\nstage s in 0 .. p on rank s\nrank r { repeat m { F }  repeat m { B } }\n"


def test_the_version_is_that_of_the_project() -> None:
    """`pipesched.__version__` equals the version in pyproject."""
    said = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    found = re.search(r'^version = "(.*)"', said, re.MULTILINE)
    assert found is not None and pipesched.__version__ == found[1]


@pytest.mark.parametrize("first", ["", "import pipesched.check.checks; "])
def test_check_is_a_function_whatever_was_imported(first: str) -> None:
    """The imported folder of that name can be called like the function."""
    code = f'{first}import pipesched; print(pipesched.check(pipesched.Source("a.json", "{{}}"), p=1).exit_status)'
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.strip().isdigit(), done.stderr


def test_a_report_has_the_bubble() -> None:
    """The report of GPipe has the bubble (p - 1) / (m + p - 1)."""
    assert pipesched.verify("gpipe", p=4, m=8).bubble == Fraction(3, 11)


def test_an_error_has_place_and_remedy() -> None:
    """`str(error)` has the code, the message, the place and the help."""
    with pytest.raises(PipeschedError) as found:
        pipesched.load(TEXT.replace("{ F }", "{ F[3] }"), p=2)
    (diagnostic,) = found.value.diagnostics
    text = str(found.value)
    assert text.startswith(f"{diagnostic.code}: {diagnostic.message} (<text>:5:")
    assert text.endswith(f"help: {diagnostic.help}")


@pytest.mark.parametrize(
    ("given", "said"),
    [({"mem_capp": 3}, "`mem_cap`"), ({"max_op": 9}, "`max_ops`"), ({"cost": "F=1"}, "`costs`")],
)
def test_an_unknown_keyword_has_the_nearest_one(given: dict[str, object], said: str) -> None:
    """PS225 is reported; the keyword is not taken for a parameter of the schedule."""
    with pytest.raises(PipeschedError, match="takes no keyword") as found:
        pipesched.verify("1f1b", p=4, **given)  # type: ignore[arg-type]
    assert found.value.diagnostics[0].help == f"did you mean {said}?"
    own = TEXT.replace("a(p,", f"a(p, {next(iter(given))} = 1,")
    assert pipesched.verify(own, p=2, **{next(iter(given)): 2}).ok  # type: ignore[arg-type]


def test_a_text_is_a_schedule() -> None:
    """The text of a .ps file, with comments before its head, needs no file."""
    report = pipesched.verify(TEXT, p=3)
    assert report.ok and report.operations == 36


def test_a_table_is_an_order() -> None:
    """A DataFrame without a header, with NaN for a bubble, is an order; one whose header is a row is refused with the
    remedy."""
    pandas = pytest.importorskip("pandas")
    text = "0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n"
    report = pipesched.verify(pandas.read_csv(io.StringIO(text), header=None))
    assert report.ok and (report.ranks, report.microbatches, report.makespan) == (2, 2, 9)
    with pytest.raises(PipeschedError, match="header=None"):
        pipesched.verify(pandas.read_csv(io.StringIO(text)))


GENERATORS = {
    "rows": 'def order(p, m):\n    yield "0F0,0B0"\n    yield "1F0,1B0"\n',
    "words": 'def order(p, m, rank):\n    yield f"F{rank}.0"\n    yield f"B{rank}.0"\n',
    "lists": 'def order(p, m):\n    for rank in range(p):\n        yield [f"F{rank}.0", f"B{rank}.0"]\n',
}


@pytest.mark.parametrize(("kind", "line"), [("rows", 2), ("words", 2), ("lists", 3)])
def test_a_generator_that_gives_another_size_is_shown_where_it_yields(
    kind: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PS803 names the file and line of the yield, and the arguments of the function."""
    (tmp_path / "gen.py").write_text(GENERATORS[kind])
    monkeypatch.chdir(tmp_path)
    report = pipesched.verify("python:gen.py:order", p=2, m=2)
    (found,) = report.diagnostics
    assert found.code == "PS803" and f"gen.py:{line}" in found.labels[0].message
    assert found.help == "it was called with p = 2, m = 2; correct the value it returns"


def test_work_that_tells_nothing_is_visible_after_a_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line within two seconds, even if the work never reports; nothing for quick work."""
    monkeypatch.setattr("pipesched.planning.progress.EVERY", 1.0)
    with watched(Output(), "sleeping") as tell:
        tell("still asleep")
        time.sleep(1.6)
    first = capsys.readouterr().err.splitlines()
    with watched(Output(), "quick"):
        pass
    assert len(first) == 1 and first[0].endswith("s  still asleep") and capsys.readouterr().err == ""


@pytest.mark.skipif(os.name != "posix", reason="a timer of the system")
def test_a_plan_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line prints the progress that the search reports."""
    for name in ("EVERY", "EVERY_LINE"):
        monkeypatch.setattr(f"pipesched.planning.progress.{name}", 0.02)
    asked = "plan --model megatron-1.7b --gpus 4 --device a100 --batch 32 --executor here --only p=2"
    assert main(asked.split()) == 0
    assert re.search(r"^\d+\.\ds  [\d,]+ of [\d, at most]+ choices (bounded|timed)$", capsys.readouterr().err, re.M)
