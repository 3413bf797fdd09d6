"""What people type for a schedule, an option or a unit is understood, or answered with what to type instead."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.aliases import NEAR, ROWS, plain
from pipesched.assets import built_in
from pipesched.compile import Options, read
from pipesched.source import Source
from pipesched.verbs.order import order
from tests.torch_fixtures import make

NAMES = {
    "gpipe": ("ScheduleGPipe", "GPipe", "F-then-B"),
    "1f1b": ("Schedule1F1B", "1F1B", "dapple", "DAPPLE", "PipeDream-flush", "pipedream_flush"),
    "interleaved": ("ScheduleInterleaved1F1B", "Interleaved1F1B", "interleaved-1f1b", "1F1B-I"),
    "zb_h1": ("ZB-H1", "ZBH1", "zbh1", "zb-h1", "ZB1P"),
    "zb_h2": ("ZB-H2", "ZBH2"),
    "zb_v": ("ZB-V", "ZBV", "ScheduleZBVZeroBubble", "ZBVZeroBubble"),
    "interleaved_zb": ("ScheduleInterleavedZeroBubble", "InterleavedZeroBubble"),
    "looped_bfs": ("ScheduleLoopedBFS", "LoopedBFS", "breadth-first"),
    "dualpipe": ("DualPipe",),
    "dualpipev": ("ScheduleDualPipeV", "DualPipeV"),
}
TORCH = {  # torch's own classes: stages of a rank, the parameters of ours
    "ScheduleGPipe": (1, {}),
    "Schedule1F1B": (1, {}),
    "ScheduleInterleaved1F1B": (2, {"v": 2}),
    "ScheduleInterleavedZeroBubble": (2, {"v": 2}),
    "ScheduleLoopedBFS": (2, {"v": 2}),
    "ScheduleZBVZeroBubble": (2, {}),
    "ScheduleDualPipeV": (2, {}),
}


@pytest.mark.parametrize("own", NAMES)
def test_a_schedule_is_known_by_its_other_names(own: str) -> None:
    """As the file of the library."""
    assert all(read(name) == read(own) for name in NAMES[own])


@pytest.mark.parametrize("name", TORCH)
def test_what_torch_calls_so_is_that_order(name: str) -> None:
    """Operation for operation, at several sizes, wherever the class tells its order before it runs."""
    stages, own = TORCH[name]
    for ranks, microbatches in ((2, 4), (4, 8)):
        try:
            text, _ = make.torch_class(name, ranks, stages, microbatches)
        except AttributeError:
            continue
        asked = Options({"p": ranks, "m": microbatches, **own})
        theirs = order(Source("x.csv", text), Options(), program=False)[0]
        assert order(read(name), asked, program=False)[0] == theirs


def test_names_are_different() -> None:
    """No name stands in two rows or is said to be near besides, and no row has two files, so that none shadows one."""
    every = [plain(name) for row in ROWS for name in row]
    assert len(every) == len(set(every)) and not set(every) & set(NEAR)
    assert all(plain(name) == name for name in NEAR)
    files = [plain(name) for name in built_in()]
    assert len(files) == len(set(files)) and all(sum(name in map(plain, row) for name in files) <= 1 for row in ROWS)


def test_a_file_of_that_name_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever stands in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dapple").write_text("rank 0: F0.0 B0.0\n")
    assert main(["verify", "dapple"]) == 0
    shown = capsys.readouterr()
    assert "p=1 m=1" in shown.out and shown.err == ""


@pytest.mark.parametrize(("name", "own"), [("dapple", "1f1b"), ("ScheduleInterleavedZeroBubble", "interleaved_zb")])
def test_what_a_name_is_taken_for_is_said(name: str, own: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, where the name does not tell; not where only its marks differ."""
    assert main(["verify", name, "--p", "2"]) == 0
    assert capsys.readouterr().err.startswith(f"{name} is {own} here")
    assert main(["verify", "ZB-H1", "--p", "2"]) == 0
    assert capsys.readouterr().err == ""


MISTAKES = (  # a command line, and words of its help
    ("verify 1f1b p=4", "`--p 4`"),
    ("verify 1f1b --m 8 p=4", "`--p 4`"),
    ("optimize m=8", "`--m 8`"),
    ("verify 1f1b -p 4", "`--p 4`"),
    ("verify 1f1b --p 4 -m 8", "`--m 8`"),
    ("verify 1f1b --pp 4", "`--p 4`"),
    ("verify 1f1b --p 4 --num-microbatches=8", "`--m 8`"),
    ("verify 1f1b --p 4 --depth 2", "`-D depth=2`"),
    ("verify 1f1b --p 4 --depth=2", "`-D depth=2`"),
    ("verify 1f1b --p 4 depth=2", "`-D depth=2`"),
    ("verify 1f1b 4", "`--p 4`"),
    ("verify 1f1b --p 4 --mem-cpa 3", "--mem-cap"),
    ("verify 1f1b --p 4 --comm nccl", "pair-stream"),
    ("verify 1f1b --p 4 --comm NCCL", "one-stream"),
    ("verify 1f1b --p 4 --comm gloo", "strict"),
    ("verify 1f1b --p 4 --comm one_stream", "did you mean one-stream?"),
    ("verify 1f1b --p 4 --mem-cap 80GB", "not bytes"),
    ("optimize --mem-cap 80GB", "`--mem-cap 8`"),
    ("optimize --mem-cap 40GiB..80GiB", "not bytes"),
    ("verify 1f1b --p 4 --mem-cap 50%", "activations"),
    ("verify 1f1b --p 4 --mem-cap none", "leave the cap out"),
    ("verify PipeDream --p 4", "with a flush it is `1f1b`"),
    ("verify zerobubble --p 4", "zb_h1"),
)


@pytest.mark.parametrize(("line", "words"), MISTAKES)
def test_what_was_typed_is_told_as_it_is_to_be(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, one finding, and the words to type."""
    assert main(line.split()) == 2
    shown = capsys.readouterr()
    assert words in shown.err and len(re.findall(r"error\[PS\d+\]", shown.err)) == 1 and shown.out == ""


def test_the_functions_know_the_names_too() -> None:
    """As the command line."""
    with mock.patch("sys.stdout", None):
        assert pipesched.verify("ScheduleGPipe", p=2).name == pipesched.load("GPipe", p=2).name == "gpipe"
