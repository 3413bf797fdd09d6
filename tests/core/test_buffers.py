"""The number of messages that a rank holds, which is not part of the peak, follows from the list order alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import pipesched
from pipesched.analysis.holdings import buffers
from pipesched.compile import load, lower
from pipesched.examine import Options
from pipesched.model.ops import Instruction, Op
from pipesched.model.schedule import Program
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers.programs import of_instructions

pytestmark = pytest.mark.quick

HERE = Path(__file__).parents[1]
GOOD = sorted((HERE / "torch_fixtures").glob("ok_*.csv"))
MAKER = {Op.SEND_F: (Op.F,), Op.SEND_B: (Op.I, Op.B), Op.RECV_F: (Op.F,), Op.RECV_B: (Op.I, Op.B)}


def in_hand(instructions: list[Instruction]) -> tuple[int, int]:
    """Walk a list with two sets: received but not yet used, made but not yet sent."""
    come: set[tuple[str, int, int]] = set()
    made: set[tuple[str, int, int]] = set()
    wanted = {(x.op.name[-1], x.stage, x.microbatch) for x in instructions if x.op.send}
    most = [0, 0]
    for x in instructions:
        letter = "F" if x.op is Op.F else "B"
        key = (letter, x.stage, x.microbatch)
        if x.op in (Op.F, Op.I, Op.B):
            come.discard(key)
            if key in wanted:
                made.add(key)
        elif x.op.receive:
            come.add((x.op.name[-1], x.stage, x.microbatch))
        elif x.op.send:
            made.discard((x.op.name[-1], x.stage, x.microbatch))
        most = [max(most[0], len(come)), max(most[1], len(made))]
    return most[0], most[1]


def moved(program: Program, seed: int) -> Program:
    """Receive earlier and send later than the lowering does: the counts cover any list."""
    dice = random.Random(seed)
    lists = []
    for rank in range(program.ranks):
        entries = program.instructions(rank)
        for _ in range(12):
            i = dice.randrange(len(entries))
            if entries[i].op.receive:
                entries.insert(dice.randrange(i + 1), entries.pop(i))
            elif entries[i].op.send:
                entries.insert(dice.randrange(i, len(entries)), entries.pop(i))
        lists.append(entries)
    return of_instructions(lists, program.placement)


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb_h1", "zb_v", "interleaved", "dualpipe"])
def test_the_counts_are_those_of_a_walk(name: str) -> None:
    """The counts of lowered programs, with and without moved messages, equal the counts of a walk."""
    program = lower(pipesched.load(name, p=4, m=8))
    for case in [program, *(moved(program, seed) for seed in range(deep(20)))]:
        found = buffers(case)
        walked = [in_hand(case.instructions(rank)) for rank in range(4)]
        assert list(zip(found.received.most, found.unsent.most, strict=True)) == walked


def collects(m: int) -> str:
    """Rank 1 receives every activation before its first F."""
    first = [f"0F{i},0SEND_F{i}" for i in range(m)] + [f"0RECV_B{i},0B{i}" for i in range(m)]
    second = [f"1RECV_F{i}" for i in range(m)] + [f"1F{i},1B{i},1SEND_B{i}" for i in range(m)]
    return ",".join([*first, "0REDUCE_GRAD"]) + "\n" + ",".join([*second, "1REDUCE_GRAD"]) + "\n"


def hoards(m: int) -> str:
    """Rank 1 sends no gradient before all of them are made."""
    first = [f"0F{i},0SEND_F{i}" for i in range(m)] + [f"0RECV_B{i},0B{i}" for i in range(m)]
    second = [f"1RECV_F{i},1F{i},1B{i}" for i in range(m)] + [f"1SEND_B{i}" for i in range(m)]
    return ",".join([*first, "0REDUCE_GRAD"]) + "\n" + ",".join([*second, "1REDUCE_GRAD"]) + "\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [(collects(64), "received"), (hoards(64), "unsent"), (collects(5), "received"), (hoards(3), "unsent")],
)
def test_a_rank_that_collects_is_named(text: str, what: str) -> None:
    """The rank keeps its cap, but holds m messages: a warning names it, and the counts are in text and JSON."""
    m = text.count("0SEND_F")
    report = pipesched.verify(pipesched.Source("mine.csv", text), mem_cap=[m, 1])

    assert report.ok
    (warning,) = report.diagnostics
    assert warning.code == "PS906" and warning.message.startswith(f"rank 1 has {m} messages")
    assert report.to_json()["memory"][what][1] == m  # type: ignore[index]
    assert "messages, not in the peak" in str(report)


@pytest.mark.parametrize("text", [collects(4), hoards(2)])
def test_some_more_than_the_lowering_is_no_excess(text: str) -> None:
    """By hand: F1 runs after B0, so of four activations three wait; torch may have one more, and a pair makes two."""
    assert pipesched.verify(pipesched.Source("mine.csv", text)).diagnostics == ()


@pytest.mark.parametrize("file", GOOD, ids=lambda file: file.stem)
def test_no_good_file_is_suspected(file: Path) -> None:
    """Programs that torch's own classes lower, and controls made by hand, get no warning."""
    version = "2.15" if "waits" in file.stem else None
    report = pipesched.verify(str(file), torch_version=version)

    assert report.ok and all(d.code != "PS906" for d in report.diagnostics)


def test_a_file_without_messages_has_no_counts() -> None:
    """Without placed messages, the file does not determine when a trainer posts them."""
    report = pipesched.verify("1f1b", p=2, m=2)

    assert report.memory is not None and report.memory.received is None and report.memory.unsent is None
    assert "not in the peak" not in str(report)


def test_what_is_read_by_many_is_not_collected() -> None:
    """Three ranks read a stage, so its F makes three messages at once: its own lowering collects none."""
    text = (
        "schedule fan(p = 4, m = 2) stage s in 0 .. p on rank s stage 2 on rank 2 reads 1, 0 "
        "stage 3 on rank 3 reads 2, 0 rank r { repeat m { F } repeat m { B } }"
    )
    schedule = load(Source("fan.ps", text), Options()).schedule
    assert buffers(lower(schedule)).unsent.most == (3, 1, 2, 2)
    stream = pipesched.emit(Source("fan.ps", text), to="stream")
    assert pipesched.verify(Source("fan.json", stream)).diagnostics == ()
