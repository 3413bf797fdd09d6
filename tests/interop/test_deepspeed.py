"""A PipeSchedule of DeepSpeed is read as the order that its stages run, and its buffers contain the values that the
engine needs.

The oracle is the installed DeepSpeed, or `generators/stand_in` without it. `oracles/deepspeed_engine.py` predicts its
engine.
"""

from __future__ import annotations

import random
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.interop.frameworks import pipe_instructions
from pipesched.interop.frameworks.kept import check_kept
from pipesched.orders import order_text
from pipesched.support.source import Source
from tests.depth import deep
from tests.interop.test_trainer_targets import order_text as any_order
from tests.interop.test_trainer_targets import words
from tests.oracles import deepspeed_engine

GENERATORS = Path(__file__).parents[1] / "generators"
REAL = find_spec("deepspeed")
TOP = Path(str(REAL.origin)).parents[1] if REAL else GENERATORS / "stand_in"
WHERE: dict[str, Any] = {"framework_path": str(TOP)}
OPERAND = re.compile(r"(?<=\()\d+(?=\))")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with pipe_schedules.py."""
    shutil.copy(GENERATORS / "pipe_schedules.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def same(one: pipesched.Schedule, other: pipesched.Schedule) -> bool:
    return all((getattr(one, x) == getattr(other, x)).all() for x in ("op", "stage", "microbatch", "start"))


@pytest.mark.parametrize(("p", "m"), [(2, 8), (4, 3), (8, 16), pytest.param(64, 8, marks=pytest.mark.nightly)])
def test_its_training_is_1f1b(p: int, m: int) -> None:
    """TrainSchedule agrees with 1F1B, operation for operation."""
    assert same(pipesched.load("deepspeed:TrainSchedule", p=p, m=m, **WHERE), pipesched.load("1f1b", p=p, m=m))


def test_every_word_has_the_line_that_made_it() -> None:
    """A finding names the file and the line that made the instruction."""
    report = pipesched.verify("deepspeed:pipe_schedules.py:Fewer", p=4, m=8, **WHERE)
    places = re.findall(r"step \d+ \((\S+):(\d+)\)", str(report))
    lines = {
        name: (TOP / name if "/" in name else Path(name)).read_text().splitlines()
        for name in {name for name, _ in places}
    }

    assert len(places) > 2
    assert all(re.search(r"\b[A-Z]\w+\(\w+\)", lines[name][int(line) - 1]) for name, line in places)


def test_one_buffer_fewer_is_one_microbatch_too_many() -> None:
    """PS865 on every rank that needs all its buffers."""
    report = pipesched.verify("deepspeed:pipe_schedules.py:Fewer", p=4, m=8, **WHERE)
    found = [x for x in report.diagnostics if str(x.code) == "PS865"]

    assert [int(x.message.split()[1]) for x in found] == [0, 1, 2]
    assert [x.help and x.help.split()[-2] for x in found] == ["4", "3", "2"]


def test_one_loss_is_for_one_microbatch() -> None:
    """In plain GPipe F 1 of the last stage comes before B 0, so the engine would use the wrong loss."""
    report = pipesched.verify("deepspeed:pipe_schedules.py:Forwards", p=3, m=4, **WHERE)
    (found,) = report.diagnostics

    assert str(found.code) == "PS865" and "rank 2 puts microbatch 1 into the loss" in found.message


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_what_is_emitted_is_read_back(name: str) -> None:
    """The module of `emit --target deepspeed` reads back as that order, with its messages, without a finding."""
    Path("mine.py").write_text(pipesched.emit(name, to="deepspeed", p=3, m=4))
    read = pipesched.verify("deepspeed:mine.py:Schedule", p=3, m=4, **WHERE)

    assert read.ok and read.messages == pipesched.verify(name, p=3, m=4).messages
    assert same(pipesched.load("deepspeed:mine.py:Schedule", p=3, m=4, **WHERE), pipesched.load(name, p=3, m=4))


def recorded(module: dict[str, Any]) -> tuple[Any, Any]:
    """Return the program of a loaded module, and its buffers."""
    stages = module["STAGES"]
    made = pipe_instructions.recorded([[(one, None) for one in stages[rank]] for rank in range(len(stages))], "")
    text = "".join(f"rank {rank}: {' '.join(row)}\n" for rank, row in enumerate(made.rows))
    return order_text.read(Source("a.txt", text)), made


@pytest.mark.parametrize("seed", range(deep(20)))
def test_a_finding_is_what_the_engine_meets(seed: int) -> None:
    """With two buffers merged, `Keep` or `Take` dropped, or neither, PS865 is reported exactly if the engine fails."""
    rng = random.Random(seed)
    text = any_order(seed)
    expected = words(text)
    head, mark, rows = pipesched.emit(Source("a.txt", text), to="deepspeed").partition("STAGES = ")
    parts = re.split(r"(?=    \d: \[)", rows)
    if rng.random() < 0.5:
        parts = [re.sub(r"(Keep|Take)\(\d+\), ?", "", part) for part in parts]
    if "Keep(" not in "".join(parts) and rng.random() < 0.7:
        at = rng.randrange(1, len(parts))
        one, other = rng.choices(OPERAND.findall(parts[at]), k=2)
        parts[at] = OPERAND.sub(lambda x: one if x[0] == other else x[0], parts[at])
    module = deepspeed_engine.loaded(head + mark + "".join(parts))
    try:
        ran = deepspeed_engine.trained(module, len(expected), len(expected[0]) // 2)
        right = [row[:-3] for row in ran] == expected
    except deepspeed_engine.Stop:
        right = False
    order, made = recorded(module)

    assert right is not bool([*check_kept(order, made.kept)])
    if right:
        assert [[(x.op.name, x.microbatch) for x in order.order(r)] for r in range(order.ranks)] == expected


def test_instructions_of_any_function() -> None:
    """`python:` accepts them too, by the names of their classes; other objects are ignored."""
    Path("own.py").write_text(
        "class One:\n    def __init__(self, buffer_id=None):\n        self.buffer_id = buffer_id\n"
        "LoadMicroBatch, ForwardPass, BackwardPass, Other = (\n"
        "    type(name, (One,), {}) for name in ('LoadMicroBatch', 'ForwardPass', 'BackwardPass', 'Other'))\n"
        "def step(rank):\n    yield [LoadMicroBatch(0), ForwardPass(0), BackwardPass(0), Other()]\n"
    )
    report = pipesched.verify("python:own.py:step", p=1)

    assert report.ok and report.operations == 2
    assert any("omitted" in note and "Other" in note for note in report.notes)


@pytest.mark.parametrize(
    ("name", "given", "code", "said"),
    [
        ("TrainSchedul", {"p": 2, "m": 2}, "PS855", "no schedule TrainSchedul"),
        ("TrainSchedule", {"p": 2}, "PS855", "m is not given"),
        ("TrainSchedule", {"p": 2, "m": 2, "phase": 1}, "PS855", "has no phase"),
        ("pipe_schedules.py:Engine", {"p": 2, "m": 2}, "PS855", "not a subclass of DeepSpeed's PipeSchedule"),
        ("pipe_schedules.py:Nothing", {"p": 1, "m": 2}, "PS853", "BackwardPass(0) of stage 0 uses an empty buffer"),
        (
            "pipe_schedules.py:Unnamed",
            {"p": 1, "m": 2},
            "PS853",
            "ForwardPass names an invalid buffer or phase: buffer None",
        ),
        ("pipe_schedules.py:Endless", {"p": 1, "m": 2, "max_ops": 1000}, "PS853", "does not end after"),
        ("no_such.py:Schedule", {"p": 1, "m": 2}, "PS850", "no_such"),
    ],
)
def test_what_is_no_schedule_is_said(name: str, given: dict[str, Any], code: str, said: str) -> None:
    """Each error has its own message, and is not an internal error."""
    (found,) = pipesched.verify(f"deepspeed:{name}", **given, **WHERE).diagnostics

    assert str(found.code) == code and said in found.message


@pytest.mark.skipif(REAL, reason="DeepSpeed is installed")
def test_without_deepspeed() -> None:
    """Without deepspeed, PS850 names the package to install."""
    (found,) = pipesched.verify("deepspeed:TrainSchedule", p=2, m=2).diagnostics

    assert str(found.code) == "PS850" and "pip install deepspeed" in str(found.help)
