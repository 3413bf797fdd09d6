"""Output is the same in a file as on stdout, and a process ends cleanly on a closed pipe, a full disk or an
interrupt."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pipesched.__main__ import main
from tests.readers.typed import typed

COMMAND = [sys.executable, "-m", "pipesched"]


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "PIPESCHED_DEBUG"):
        monkeypatch.delenv(name, raising=False)


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, env={**os.environ, **environment}, timeout=60, check=False
    )


def test_a_file_of_results_is_what_stdout_would_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``-o`` writes complete files through a rename, keeps mode and links, and ``-o -`` is stdout."""
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
    """The verdict, the help and the list are readable in any encoding."""
    for arguments in (
        ("verify", "interleaved", "--p", "4"),
        ("--help",),
        ("verify", "--help"),
        ("list",),
        ("explain",),
    ):
        done = typed(*arguments, encoding="ascii")
        assert done.status == 0 and done.err == b"" and done.out.isascii()
    done = process("verify", "interleaved", "--p", "4", PYTHONIOENCODING="latin-1")
    assert b"complete, data flow, channels FIFO" in done.stdout


def test_a_reader_that_goes_away_is_no_error() -> None:
    """``pipesched emit … | head -1`` prints no error, and ends with the usual status of a closed pipe."""
    arguments = [*COMMAND, "emit", "1f1b", "--p", "64", "--m", "512", "--target", "order"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline().startswith(b"rank 0:")
        running.stdout.close()
        assert (running.stderr.read(), running.wait(60)) == (b"", 141)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_is_told_in_a_line() -> None:
    """An output that cannot be written is an error: one line, status 2."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, "explain"], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 2 and re.fullmatch(rb"error: cannot write: [^\n]+\n", done.stderr)


def test_an_interrupt_is_status_130_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C during a command causes no traceback and no message."""
    monkeypatch.setattr("pipesched.shell.app.app.make_context", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    assert main(["list"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_fault_of_ours_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 70 and a request to report it; the traceback only with PIPESCHED_DEBUG."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the sky\nfalls")

    monkeypatch.setattr("pipesched.shell.app.app.make_context", broken)
    assert main(["list"]) == 70
    assert re.fullmatch(
        r"error: internal: RuntimeError: the sky falls; please report [^\n]+\n", capsys.readouterr().err
    )
    monkeypatch.setenv("PIPESCHED_DEBUG", "1")
    with pytest.raises(RuntimeError):
        main(["list"])


def test_output_is_the_same_every_time() -> None:
    """Hash seeds and folders do not affect any format."""
    for arguments in (("verify", "dualpipe", "--p", "4", "--m", "8"), ("verify", "zb_h2", "--p", "4", "--json")):
        first, second = process(*arguments, PYTHONHASHSEED="1"), typed(*arguments)  # by chance, another seed
        assert first.returncode == 0 and first.stdout == second.out
