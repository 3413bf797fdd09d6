"""A schedule that code produces is read as its order in any accepted form, and every mistake in the code is a finding.

The generators are in `generators/slips.py`; the oracle for their orders is the library's own gpipe.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.check.rows import CheckCode
from pipesched.diagnostics import Code
from pipesched.interop.codes import InteropCode

SLIPS = Path(__file__).parents[1] / "generators" / "slips.py"
LINES = {
    line.rpartition("# ")[2].split()[0]: n
    for n, line in enumerate(SLIPS.read_text().splitlines(), 1)
    if "marks" in line
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with slips.py; if the sandbox fails, the code writes here, not into a real home."""
    shutil.copy(SLIPS, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def found(name: str, **given: object) -> pipesched.Diagnostic:
    """Return the one error of a generator."""
    report = pipesched.verify(f"python:slips:{name}", **given)
    (only,) = report.diagnostics
    return only


def labels(diagnostic: pipesched.Diagnostic) -> list[str]:
    return [str(label.span) for label in diagnostic.labels]


SHAPES = ("rows", "lists", "by_rank", "steps", "Held", "whole", "prints")


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_the_order_that_it_says(shape: str) -> None:
    """Texts, lists, a dict, a generator, an object, one text, much printing: gpipe, operation for operation."""
    made = pipesched.load(f"python:slips:{shape}", p=3, m=4)
    meant = pipesched.load("gpipe", p=3, m=4)
    for column in ("op", "stage", "microbatch", "start"):
        assert (getattr(made, column) == getattr(meant, column)).all()


def test_a_file_may_be_named_and_a_file_of_that_name_wins(folder: Path) -> None:
    """`python:path/to/file.py:function` works from anywhere; an existing file of that whole name is read, not
    executed."""
    assert pipesched.verify(f"python:{folder}/slips.py:rows", p=2, m=2).ok
    (folder / "python:slips:raises").write_text("rank 0: F0.0 B0.0\n")
    assert pipesched.verify("python:slips:raises").operations == 2


def test_the_file_that_is_named_is_the_one_that_runs(folder: Path) -> None:
    """Neither a package of its name beside it runs, nor a module of the standard library if the file is missing."""
    (folder / "two.parts").mkdir()
    (folder / "slips").mkdir()
    (folder / "slips" / "__init__.py").write_text("def rows(p, m): return ['nonsense']\n")
    shutil.copy(SLIPS, folder / "two.parts" / "of.it.py")
    assert pipesched.verify("python:slips.py:rows", p=2, m=2).ok
    assert pipesched.verify("python:two.parts/of.it.py:rows", p=2, m=2).ok
    (only,) = pipesched.verify("python:there/queue.py:Queue").diagnostics
    assert only.code is InteropCode.FRAMEWORK and "there/queue.py" in only.message


def test_no_option_has_a_name_of_ours(folder: Path) -> None:
    """The option `most` reaches a function, though a limit of ours once had the name."""
    (folder / "own.py").write_text("def order(p, most): return [' '.join(f'F0.{i} B0.{i}' for i in range(most))]\n")
    assert pipesched.verify("python:own:order", p=1, most=3).operations == 6


def test_time_without_a_limit() -> None:
    """A huge number of seconds is not an error."""
    assert pipesched.verify("python:slips:rows", p=2, m=2, framework_time=float("inf")).ok


@pytest.mark.nightly
def test_every_verb_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Every verb that takes a schedule takes a call."""
    name, sizes = "python:slips:rows", {"p": 2, "m": 2}
    assert "same order" in str(pipesched.diff(name, "gpipe", **sizes))
    assert pipesched.emit(name, "torch-csv", **sizes) == pipesched.emit("gpipe", "torch-csv", **sizes)
    assert [row.makespan for row in pipesched.compare(name, "gpipe", **sizes).rows] == [9, 9]
    assert str(pipesched.show(name, **sizes)) and str(pipesched.why(name, **sizes))
    assert pipesched.optimize(name, **sizes).proved
    for command in (["emit", "--target", "order"], ["verify"]):
        assert main([*command, name, "--p", "2", "--m", "2"]) == 0
    assert "F1.0 F1.1 B1.0 B1.1" in capsys.readouterr().out


def test_a_framework_is_verified_at_many_sizes_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints one line for each size, equal to the single call, and the number of sizes that hold."""
    generator = Path(__file__).parents[1] / "generators" / "mine.py"
    assert main(["verify", f"python:{generator}:order", "--p", "2", "--m", "2,4", "-D", "left=0,1"]) == 1
    told = capsys.readouterr()
    grid = [(p, m, left) for p in (2,) for m in (2, 4) for left in (0, 1)]
    for (p, m, left), line in zip(grid, told.out.splitlines(), strict=True):
        assert line.startswith("fail" if left else "ok") and f"p={p} m={m} left={left}" in line
        assert f"python:{generator}:order" in line and ("PS301" in line) == bool(left)
    assert told.err == "2 of 4 hold\n"


def test_a_finding_names_the_line_that_yielded(folder: Path) -> None:
    """The label, and so the JSON, names the line; the line is in the generator's own file."""
    report = pipesched.verify("python:slips:forgets", p=2, m=3)
    assert [d.code for d in report.diagnostics] == [CheckCode.MISSING] * 2
    assert f"(slips.py:{LINES['forgets']})" in report.diagnostics[0].labels[0].message


def test_options_reach_the_function() -> None:
    """A boolean, a word and a decimal reach it, from Python and from the command line; other targets refuse them."""
    given = {"deep": True, "kind": "half", "share": 0.5}
    report = pipesched.verify("python:slips:options", p=2, m=2, **given)
    assert report.ok and report.notes == ("executed: slips:options with deep=true kind=half share=0.5",)
    words = [f"-D{name}={str(x).lower()}" for name, x in given.items()]
    assert main(["verify", "python:slips:options", "--p", "2", "--m", "2", *words]) == 0
    assert main(["verify", "1f1b", "--p", "2", "--m", "2", "-D", "deep=true"]) == 2


WRONG = {
    "number": (InteropCode.NO_ORDER, "42 of type int"),
    "no_rank_one": (InteropCode.NO_ORDER, "without rank 1"),
    "endless": (InteropCode.NO_ORDER, "has more than 1,000 actions"),
    "dies": (InteropCode.NO_ORDER, "ended with status 0"),
    "crashes": (InteropCode.NO_ORDER, "ended with signal 11"),
    "raises": (InteropCode.GENERATOR, "KeyError: 'no schedule'"),
    "leaves": (InteropCode.GENERATOR, "SystemExit: 3"),
    "needs": (InteropCode.FRAMEWORK, "No module named 'no_such_package'"),
    "opens_a_socket": (InteropCode.FENCE, "opens a socket"),
    "interrupts": (InteropCode.GENERATOR, "KeyboardInterrupt"),
    "rows_": (InteropCode.FRAMEWORK_NAME, "slips has no rows_"),
    "steps": (InteropCode.FRAMEWORK_NAME, "requires m, which is not given"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_what_goes_wrong_is_told(name: str) -> None:
    """The error has a code, the event, the line of the generator if known, and its output."""
    code, said = WRONG[name]
    one = found(name, p=2, max_ops=1000) if name in ("endless", "steps") else found(name)
    assert one.code is code and said in one.message and "\n" not in one.message
    if name in LINES:
        assert f"slips.py:{LINES[name]}:" in labels(one)[0]
    assert (("it printed:\n| about to raise",) if name == "raises" else ()) == one.notes


def test_an_option_that_is_not_taken_and_a_module_that_is_not_there() -> None:
    """Both end with status 2: the command line is at fault."""
    assert found("rows", p=2, m=2, v=2).code is InteropCode.FRAMEWORK_NAME
    report = pipesched.verify("python:nowhere:rows", p=2)
    assert report.diagnostics[0].code is InteropCode.FRAMEWORK and report.exit_status == 2


def test_words_that_are_none_are_cells_that_are_wrong() -> None:
    """Invalid cells in a valid shape are reported one by one."""
    report = pipesched.verify("python:slips:words")
    assert [d.code for d in report.diagnostics] == [Code.CELL] * 2


@pytest.mark.parametrize("name", ["never_ends", "deaf"])
def test_what_never_ends_is_ended(name: str) -> None:
    """A generator ends within its time limit, even if it ignores signals."""
    begin = time.monotonic()
    one = found(name, framework_time=0.4)
    assert one.code is InteropCode.GENERATOR_TIME and time.monotonic() - begin < 5


def test_nothing_is_written_outside(folder: Path) -> None:
    """Home and current folder are temporary and removed afterwards; writing and removing elsewhere are refused."""
    (folder / "mine").write_text("mine")
    before = sorted(folder.iterdir())
    assert pipesched.verify("python:slips:writes_home", p=2, m=2).ok
    for name in ("writes_away", "removes"):
        one = found(name, file=str(folder / "mine"))
        assert one.code is InteropCode.FENCE and str(folder / "mine") in one.message
    assert (folder / "mine").read_text() == "mine" and sorted(folder.iterdir()) == before


def test_a_refusal_that_it_survives_is_named() -> None:
    """The order counts, and the refused action is reported with its line."""
    report = pipesched.verify("python:slips:tries_a_socket", p=2, m=2)
    assert report.ok and any("opens a socket, which was refused, at slips.py:" in note for note in report.notes)


WAYS = ("sqlite", "sqlite_name", "times", "shell", "spawn", "process", "fork", "library", "folder")


def landlock() -> bool:
    """Return True if the kernel can restrict child processes."""
    return sys.platform.startswith("linux") and ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) > 0


@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_to_a_file_elsewhere(way: str, folder: Path) -> None:
    """After an attempt by a database, a process, a library or an open folder, the file is unchanged, and there is no
    other one."""
    if way in ("library", "folder") and not landlock():
        pytest.skip("the kernel has no Landlock")
    mine = folder / "mine"
    mine.write_text("mine")
    os.utime(mine, (1, 1))
    before = sorted(folder.iterdir())
    one = found(f"by_{way}", file=str(mine))
    assert one.code in (InteropCode.FENCE, InteropCode.GENERATOR)
    assert one.code is InteropCode.FENCE or way not in ("sqlite", "sqlite_name", "times")
    assert mine.read_text() == "mine" and mine.stat().st_mtime == 1 and sorted(folder.iterdir()) == before
    if f"by_{way}" in LINES:
        assert f"slips.py:{LINES[f'by_{way}']}:" in labels(one)[0]


def test_a_database_of_its_own_is_no_harm() -> None:
    """A generator may use a database in memory and in its folder."""
    assert pipesched.verify("python:slips:in_memory", p=2, m=2).ok


@pytest.mark.parametrize(
    ("name", "said"), [("takes_memory", "MemoryError: a process is limited to 4 GiB"), ("takes_disk", "OSError")]
)
def test_memory_and_files_have_a_limit(name: str, said: str) -> None:
    """Exceeding the limit is an error of the generator's code."""
    one = found(name)
    assert one.code is InteropCode.GENERATOR and said in one.message


def named(word: str) -> list[int]:
    """Return the processes with a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def gone(word: str) -> bool:
    """Return True if all of them end within two seconds."""
    until = time.monotonic() + 2
    while named(word) and time.monotonic() < until:
        time.sleep(0.02)
    return not named(word)


def above(process: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("name", ["orphans", "waits_with_orphans"])
def test_what_it_leaves_behind_is_ended(name: str, folder: Path) -> None:
    """A process in another session ends with the code, whether the code ends or is ended."""
    word = str(folder / name)
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(pipesched.verify, f"python:slips:{name}", file=word, framework_time=1.5)
        assert seen(word)
        asked.result()
    assert gone(word)


def seen(word: str) -> list[int]:
    """Return the processes with that word, once there are some."""
    until = time.monotonic() + 20
    while not (found := named(word)) and time.monotonic() < until:
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("killed", ["command", pytest.param("keeper", marks=pytest.mark.nightly)])
def test_nothing_outlives_what_is_killed(killed: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the command or its supervisor is killed, the generator, its processes, and its folder go too."""
    temporary, word = folder / "temporary", str(folder / killed)
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    command = [sys.executable, "-m", "pipesched", "verify", "python:slips:waits_with_orphans", "-D", f"file={word}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        (orphan,) = seen(word)
        os.kill(process.pid if killed == "command" else above(above(orphan)), signal.SIGKILL)
        assert gone(word)
    time.sleep(0.3)
    assert not list(temporary.iterdir())


def test_it_does_not_end_its_keeper() -> None:
    """An attempt is reported, by the kernel or by the end of the supervisor."""
    assert found("ends_its_keeper").code in (InteropCode.GENERATOR, InteropCode.NO_ORDER)


@pytest.mark.parametrize("path", ["nowhere", "broken"])
def test_where_there_is_no_framework(path: str, folder: Path) -> None:
    """A missing folder, and an environment whose interpreter cannot be started."""
    (folder / "broken" / "bin").mkdir(parents=True)
    (folder / "broken" / "bin" / "python").write_text("no program")
    one = found("rows", p=2, m=2, framework_path=str(folder / path))
    assert one.code is InteropCode.FRAMEWORK and path in one.message


@pytest.mark.parametrize("typed", ["pytorch:1F1B", "Torch:1F1B"])
def test_a_framework_that_is_nearly_named_is_suggested(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A near miss is not taken for a size, though it looks like one."""
    assert main(["verify", typed, "--p", "2"]) == 2
    assert "did you mean `torch:1F1B`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "begins",
    ["subprocess.run(['true'])", "os.system('true')", "os.fork()", "os.posix_spawn('/bin/true', ['true'], {})"],
)
def test_where_nothing_would_hold_it_no_process_is_begun(begins: str, tmp_path: Path) -> None:
    """On a kernel without Landlock, child processes are refused, by name."""
    program = f"""
import os, subprocess
from pipesched.interop.frameworks import fence
def refuse(what):
    raise PermissionError(what)
fence._landlock = lambda folder: False
fence.close({str(tmp_path)!r}, refuse)
{begins}
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1 and "PermissionError: starts a process" in done.stderr
