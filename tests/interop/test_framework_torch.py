"""torch's schedule classes are judged correctly: they pass by default, and fail with deferred receives.

The oracles: `swapped` pairs the sends and receives of torch's own actions by position, `stands` lets every rank run
down its list with rendezvous. With ``--depth 3`` the environments of PIPESCHED_TORCHES, as paths with colons between
them, are tried at more sizes and with every option.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from importlib.metadata import version as installed
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.check.rows import CheckCode
from pipesched.common.in_memory import written
from pipesched.diagnostics import Code
from pipesched.interop.codes import InteropCode
from tests.depth import deep

TORCH = find_spec("torch")
pytestmark = pytest.mark.skipif(TORCH is None, reason="torch is executed")

GRID = Path(__file__).parents[1] / "generators" / "torch_grid.py"
FLAGS: list[dict[str, Any]] = [{}, {"defer_pp_recv": True}, {"lowered": False}]
NEWEST: list[dict[str, Any]] = [
    {"scale_grads": False},
    {"max_active_stages": 2, "unshard_lookahead": "auto"},
    {"defer_reduce_grad_wait": True},
    {"max_outstanding_sends": 1},
]


def recorded(interpreter: str, depth: int, flags: list[dict[str, Any]]) -> tuple[list[Any], list[str]]:
    command = [interpreter, str(GRID), str(depth), json.dumps(flags)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    cases, refused = json.loads(done.stdout)
    return cases, refused


MESSAGE = re.compile(r"(\d+)(SEND|RECV)_([FB])(\d+)")
COMPUTE = re.compile(r"\(?(\d+)[FBI]\d")


def messages(rows: Sequence[Sequence[str]]) -> Iterator[tuple[int, bool, int, tuple[str, int, str]]]:
    """Yield the rank, direction, peer and name of each message, by torch's rules, from the rows alone."""
    computes = [(COMPUTE.match(cell), rank) for rank, row in enumerate(rows) for cell in row]
    rank_of = {int(found[1]): rank for found, rank in computes if found}
    for rank, row in enumerate(rows):
        for match in filter(None, map(MESSAGE.fullmatch, row)):
            stage, sends, kind = int(match[1]), match[2] == "SEND", match[3]
            other = stage + (1 if (kind == "F") == sends else -1)
            yield rank, sends, rank_of[other], (kind, stage if sends else other, match[4])


def swapped(rows: Sequence[Sequence[str]]) -> bool:
    """Return True if a message is received as another one: the i-th send of a pair is its i-th receive."""
    sent, taken = defaultdict(list), defaultdict(list)
    for rank, sends, other, which in messages(rows):
        (sent[rank, other] if sends else taken[other, rank]).append(which)
    return any(sent[pair] != taken[pair] for pair in sent.keys() | taken.keys())


def stands(rows: Sequence[Sequence[str]]) -> bool:
    """Return True if a rank waits forever, if each continues when both ends of its message are reached."""
    left: list[deque[tuple[bool, int]]] = [deque() for _ in rows]
    for rank, sends, other, _ in messages(rows):
        left[rank].append((sends, other))
    moved = True
    while moved:
        moved = False
        for rank, mine in enumerate(left):
            while mine and left[mine[0][1]] and left[mine[0][1]][0] == (not mine[0][0], rank):
                left[mine.popleft()[1]].popleft()
                moved = True
    return any(left)


def hold(cases: list[Any]) -> dict[str, tuple[int, int]]:
    """Check that every verdict equals the oracles'. Return the counts of right and of all verdicts, by option."""
    count: dict[str, tuple[int, int]] = {}
    for name, options, rows, places, version in cases:
        single, option = name in ("GPipe", "1F1B"), ",".join(key for key in options if key not in "pvm")
        text = written(rows)
        assert text is not None
        report = pipesched.verify(text, torch_version=version[:4] if text.name.endswith(".csv") else None)
        found = {d.code for d in report.diagnostics if d.severity == "error"}
        if single:  # the order that Schedule1F1B prints is not the one that it runs: its last rank has F4 of four
            meant = {CheckCode.MISSING, Code.OUT_OF_RANGE} & found if (name, option) == ("1F1B", "lowered") else set()
            assert report.ok or meant
        else:
            meant = ({CheckCode.SWAPPED} if swapped(rows) else set()) | ({Code.DEADLOCK} if stands(rows) else set())
        assert found == meant, (name, options, version)
        if places:
            assert [len(row) for row in places] == [len(row) for row in rows]
        right, every = count.get(option, (0, 0))
        count[option] = (right + (not found), every + 1)
    return count


@pytest.mark.nightly
def test_every_class_is_judged_as_the_oracles_judge_it() -> None:
    """Unchanged, all are right; with deferred receives all are wrong, except breadth first on three ranks.

    A refusal of torch is quoted, and an unknown class is answered with the known ones.
    """
    cases, refused = recorded(sys.executable, 1, FLAGS)
    assert hold(cases) == {"": (20, 20), "defer_pp_recv": (2, 16), "lowered": (18, 20)}
    assert [said.partition("(")[0] for said in refused] == [
        "Unknown: torch has no schedule class Interleave",
        "ValueError: Number of microbatches ",
        "Unknown: m is not given",
    ]


@pytest.mark.skipif(deep(1) < 3, reason="with --depth 3")
def test_every_release_at_more_sizes() -> None:
    """The installed torch, and the releases in PIPESCHED_TORCHES: all are right, except with deferred receives."""
    paths = os.environ.get("PIPESCHED_TORCHES", "").split(":")
    for interpreter in (sys.executable, *(f"{path}/bin/python" for path in paths if path)):
        asked = [interpreter, "-c", "import torch; print(torch.__version__)"]
        version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        flags = FLAGS + (NEWEST if version.startswith("2.15") else [])
        for option, (right, every) in hold(recorded(interpreter, 2, flags)[0]).items():
            print(version, option or "as they are", right, "of", every)
            assert option in ("lowered", "defer_pp_recv") or right == every


@pytest.mark.nightly
def test_as_a_command_it_points_into_torch() -> None:
    """PS403, at the pass that moved the receive and the line that made the send, with the version."""
    report = pipesched.verify("torch:ZBVZeroBubble", p=2, m=4, defer_pp_recv=True)
    swap = next(d for d in report.diagnostics if d.code is CheckCode.SWAPPED)
    places = [re.search(r"\((\S+/schedules\.py):(\d+)\)", label.message) for label in swap.labels]
    assert TORCH is not None and TORCH.origin is not None
    lines = [(Path(TORCH.origin).parents[1] / found[1]).read_text().splitlines() for found in places if found]
    said = [source[int(found[2]) - 1] for source, found in zip(lines, places, strict=True) if found]
    assert "def _defer_recv_ops" in said[0] and "_Action(" in said[1] and "SEND_F" in said[1]
    assert report.notes[:1] == (f"executed: torch {installed('torch').partition('+')[0]} with defer_pp_recv=true",)


FAKE = """
from typing import Any, NamedTuple

class _Action(NamedTuple):
    stage_index: int
    kind: str
    microbatch_index: int
    def __str__(self):
        return f"{self.stage_index}{self.kind}{self.microbatch_index}"

class _PipelineSchedule: ...
class PipelineScheduleSingle(_PipelineSchedule): ...
class PipelineScheduleMulti(_PipelineSchedule): ...

class ScheduleNew(PipelineScheduleMulti):
    def __init__(self, stages, n_microbatches, loss_fn, twice: bool = False, defer_pp_recv: bool = False):
        ranks = range(stages[0].group_size)
        self.pipeline_order_with_comms = self.pipeline_order = {
            r: [_Action(r, k, i) for k in "FB" for i in range(n_microbatches)] * (1 + twice) for r in ranks
        }
"""


@pytest.fixture
def other_torch(tmp_path: Path) -> Path:
    """A torch of an unknown release, with an unknown class."""
    folder = tmp_path / "torch" / "distributed" / "pipelining"
    folder.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '9.1.0'\nfrom . import nn\n")
    (tmp_path / "torch" / "nn.py").write_text("class Identity: ...\n")
    (folder / "schedules.py").write_text(FAKE)
    return tmp_path


def test_a_release_that_is_not_known_is_tried(other_torch: Path) -> None:
    """Its new class is executed with its new option, and the report says that the release is untested."""
    path = str(other_torch)
    report = pipesched.verify("torch:New", p=2, v=1, m=3, framework_path=path)
    assert report.ok and report.operations == 12
    assert report.notes[0] == "executed: torch 9.1.0" and "is untested" in report.notes[1]
    twice = pipesched.verify("torch:New", p=2, v=1, m=3, twice=True, framework_path=path)
    (first, *_) = (d for d in twice.diagnostics if d.code is CheckCode.TWICE)
    assert "(torch/distributed/pipelining/schedules.py:" in first.labels[0].message


def test_what_it_needs_and_does_not_find_is_named(other_torch: Path) -> None:
    """The error shows the line that imports it; status 2, as for a missing folder."""
    (other_torch / "torch" / "nn.py").write_text("import no_such_library\n")
    report = pipesched.verify("torch:New", p=2, m=3, framework_path=str(other_torch))
    (found,) = report.diagnostics
    assert found.code is InteropCode.FRAMEWORK and "no_such_library" in found.message and report.exit_status == 2
    assert str(found.labels[0].span) == "torch/nn.py:1:1" and "pip install torch" in str(found.help)
    (found,) = pipesched.verify("torch:New", p=2, m=3, framework_path="nowhere").diagnostics
    assert found.code is InteropCode.FRAMEWORK


@pytest.mark.parametrize("option", ["lowered", "defer_pp_recv"])
def test_what_is_neither_true_nor_false_is_refused(option: str, other_torch: Path) -> None:
    """Any word is true in Python; `maybe` cannot mean that."""
    asked = {option: "maybe", "framework_path": str(other_torch)}
    (only,) = pipesched.verify("torch:New", p=2, v=2, m=2, **asked).diagnostics
    assert only.code is InteropCode.FRAMEWORK_NAME and f"{option} must be true or false, not maybe" in only.message
