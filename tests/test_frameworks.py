"""A schedule that code gives: whatever its shape it is the order that it says, and no slip of it does any harm.

The generators are those of `generators/slips.py`; the oracle for their orders is the library's own gpipe.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.diagnostics import Code

SLIPS = Path(__file__).parent / "generators" / "slips.py"
LINES = {
    line.rpartition("# ")[2].split()[0]: n
    for n, line in enumerate(SLIPS.read_text().splitlines(), 1)
    if "marks" in line
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with slips.py; a fence that fails to hold writes here, not into anybody's home."""
    shutil.copy(SLIPS, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def found(name: str, **given: object) -> pipesched.Diagnostic:
    """The one error of a generator."""
    report = pipesched.verify(f"python:slips:{name}", **given)
    (only,) = report.diagnostics
    return only


def labels(diagnostic: pipesched.Diagnostic) -> list[str]:
    return [str(label.span) for label in diagnostic.labels]


SHAPES = ("rows", "lists", "by_rank", "steps", "Held", "whole", "prints")


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_the_order_that_it_says(shape: str) -> None:
    """Texts, lists, a dict, a generator, an object, one text, a great deal of print: gpipe, operation for operation."""
    made = pipesched.load(f"python:slips:{shape}", p=3, m=4)
    meant = pipesched.load("gpipe", p=3, m=4)
    for column in ("op", "stage", "microbatch", "start"):
        assert (getattr(made, column) == getattr(meant, column)).all()


def test_a_file_may_be_named_and_a_file_of_that_name_wins(folder: Path) -> None:
    """`python:path/to/file.py:function` from anywhere; and a file called like the call is read, not executed."""
    assert pipesched.verify(f"python:{folder}/slips.py:rows", p=2, m=2).ok
    (folder / "python:slips:raises").write_text("rank 0: F0.0 B0.0\n")
    assert pipesched.verify("python:slips:raises").operations == 2


def test_the_file_that_is_named_is_the_one_that_runs(folder: Path) -> None:
    """Not a package of its name beside it, nor a module of the standard library where there is no such file."""
    (folder / "two.parts").mkdir()
    (folder / "slips").mkdir()
    (folder / "slips" / "__init__.py").write_text("def rows(p, m): return ['nonsense']\n")
    shutil.copy(SLIPS, folder / "two.parts" / "of.it.py")
    assert pipesched.verify("python:slips.py:rows", p=2, m=2).ok
    assert pipesched.verify("python:two.parts/of.it.py:rows", p=2, m=2).ok
    (only,) = pipesched.verify("python:there/queue.py:Queue").diagnostics
    assert only.code is Code.FRAMEWORK and "there/queue.py" in only.message


def test_no_option_has_a_name_of_ours(folder: Path) -> None:
    """`most` reaches a function, which was how the limit of operations was called between processes."""
    (folder / "own.py").write_text("def order(p, most): return [' '.join(f'F0.{i} B0.{i}' for i in range(most))]\n")
    assert pipesched.verify("python:own:order", p=1, most=3).operations == 6


def test_time_without_a_limit() -> None:
    """More seconds than any clock has are no error."""
    assert pipesched.verify("python:slips:rows", p=2, m=2, framework_time=float("inf")).ok


def test_every_verb_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    """What takes a schedule takes a call."""
    name, sizes = "python:slips:rows", {"p": 2, "m": 2}
    assert "same order" in str(pipesched.diff(name, "gpipe", **sizes))
    assert pipesched.emit(name, "torch-csv", **sizes) == pipesched.emit("gpipe", "torch-csv", **sizes)
    assert [row.makespan for row in pipesched.compare(name, "gpipe", **sizes).rows] == [9, 9]
    assert str(pipesched.show(name, **sizes)) and str(pipesched.why(name, **sizes))
    assert pipesched.optimize(name, **sizes).proved
    for command in ("order", "verify"):
        assert main([command, name, "--p", "2", "--m", "2"]) == 0
    assert "F1.0 F1.1 B1.0 B1.1" in capsys.readouterr().out


def test_a_finding_names_the_line_that_yielded(folder: Path) -> None:
    """In the label, and so in JSON; a line of the generator's own file."""
    report = pipesched.verify("python:slips:forgets", p=2, m=3)
    assert [d.code for d in report.diagnostics] == [Code.MISSING] * 2
    assert f"(slips.py:{LINES['forgets']})" in report.diagnostics[0].labels[0].message


def test_options_reach_the_function() -> None:
    """A boolean, a word and a decimal, from Python and from the command line; nothing else takes them."""
    given = {"deep": True, "kind": "half", "share": 0.5}
    report = pipesched.verify("python:slips:options", p=2, m=2, **given)
    assert report.ok and report.notes == ("executed: slips:options with deep=true kind=half share=0.5",)
    words = [f"-D{name}={str(x).lower()}" for name, x in given.items()]
    assert main(["verify", "python:slips:options", "--p", "2", "--m", "2", *words]) == 0
    assert main(["verify", "1f1b", "--p", "2", "--m", "2", "-D", "deep=true"]) == 2


WRONG = {
    "number": (Code.NO_ORDER, "42 of type int"),
    "no_rank_one": (Code.NO_ORDER, "none of them for rank 1"),
    "endless": (Code.NO_ORDER, "goes on after"),
    "dies": (Code.NO_ORDER, "ended with status 0"),
    "crashes": (Code.NO_ORDER, "ended with signal 11"),
    "raises": (Code.GENERATOR, "KeyError: 'no schedule'"),
    "leaves": (Code.GENERATOR, "SystemExit: 3"),
    "needs": (Code.FRAMEWORK, "No module named 'no_such_package'"),
    "opens_a_socket": (Code.FENCE, "opens a socket"),
    "interrupts": (Code.GENERATOR, "KeyboardInterrupt"),
    "rows_": (Code.FRAMEWORK_NAME, "slips has no rows_"),
    "steps": (Code.FRAMEWORK_NAME, "takes m, which is not given"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_what_goes_wrong_is_told(name: str) -> None:
    """A code, what happened, and the line of the generator where there is one; what it printed beside it."""
    code, said = WRONG[name]
    one = found(name, p=2, max_ops=1000) if name in ("endless", "steps") else found(name)
    assert one.code is code and said in one.message and "\n" not in one.message
    if name in LINES:
        assert f"slips.py:{LINES[name]}:" in labels(one)[0]
    assert (("it printed:\n| about to raise",) if name == "raises" else ()) == one.notes


def test_an_option_that_is_not_taken_and_a_module_that_is_not_there() -> None:
    """Both end with status 2: the command line is at fault."""
    assert found("rows", p=2, m=2, v=2).code is Code.FRAMEWORK_NAME
    report = pipesched.verify("python:nowhere:rows", p=2)
    assert report.diagnostics[0].code is Code.FRAMEWORK and report.exit_status == 2


def test_words_that_are_none_are_cells_that_are_wrong() -> None:
    """Nonsense of the right shape is told cell by cell."""
    report = pipesched.verify("python:slips:words")
    assert [d.code for d in report.diagnostics] == [Code.CELL] * 2


@pytest.mark.parametrize("name", ["never_ends", "deaf"])
def test_what_never_ends_is_ended(name: str) -> None:
    """In the time that it may take, whatever it ignores."""
    begin = time.monotonic()
    one = found(name, framework_time=0.4)
    assert one.code is Code.GENERATOR_TIME and time.monotonic() - begin < 5


def test_nothing_is_written_outside(folder: Path) -> None:
    """Home and current folder are temporary and gone afterwards; elsewhere a write and a removal are refused."""
    (folder / "mine").write_text("mine")
    before = sorted(folder.iterdir())
    assert pipesched.verify("python:slips:writes_home", p=2, m=2).ok
    for name in ("writes_away", "removes"):
        one = found(name, file=str(folder / "mine"))
        assert one.code is Code.FENCE and str(folder / "mine") in one.message
    assert (folder / "mine").read_text() == "mine" and sorted(folder.iterdir()) == before


def test_a_refusal_that_it_survives_is_named() -> None:
    """The order counts, and what was refused stands beside it, with its line."""
    report = pipesched.verify("python:slips:tries_a_socket", p=2, m=2)
    assert report.ok and any("opens a socket and was refused, at slips.py:" in note for note in report.notes)


def still(file: Path) -> bool:
    """Whether nobody writes to a file any more."""
    size = file.stat().st_size
    time.sleep(0.25)
    return file.stat().st_size == size


@pytest.mark.parametrize("name", ["orphans", "waits_with_orphans"])
def test_what_it_leaves_behind_is_ended(name: str, folder: Path) -> None:
    """A process in another session ends with it, whether it ends by itself or is ended."""
    beat = folder / "beat"
    pipesched.verify(f"python:slips:{name}", file=str(beat), framework_time=1.0)
    assert beat.stat().st_size and still(beat)


def test_it_ends_with_its_parent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is killed outright takes the generator, what that began, and its folder along."""
    beat, temporary = folder / "beat", folder / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    command = [sys.executable, "-m", "pipesched", "verify", "python:slips:waits_with_orphans", "-D", f"file={beat}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 20
        while not beat.exists() and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    time.sleep(0.3)
    assert beat.stat().st_size and still(beat) and not list(temporary.iterdir())


@pytest.mark.parametrize("path", ["nowhere", "broken"])
def test_where_there_is_no_framework(path: str, folder: Path) -> None:
    """A folder that is not there, and an environment whose interpreter cannot be started."""
    (folder / "broken" / "bin").mkdir(parents=True)
    (folder / "broken" / "bin" / "python").write_text("no program")
    one = found("rows", p=2, m=2, framework_path=str(folder / path))
    assert one.code is Code.FRAMEWORK and path in one.message


@pytest.mark.parametrize("typed", ["pytorch:1F1B", "Torch:1F1B"])
def test_a_framework_that_is_nearly_named_is_suggested(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is no size, though it looks like one."""
    assert main(["verify", typed, "--p", "2"]) == 2
    assert "did you mean `torch:1F1B`?" in capsys.readouterr().err
