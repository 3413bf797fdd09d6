"""A circular wait is shown as a cycle: for each rank the operation, the line in the file, and the awaited operation.

Cycles of known length are planted in a .ps file, in a torch CSV and in rings of ranks.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pipesched
from pipesched import compile as compiler
from pipesched.model.ops import Compute, Instruction, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Program, Schedule
from pipesched.support.source import Source
from tests.makers.programs import of_instructions
from tests.oracles import simulate
from tests.readers.cycles import closed, hops, stopped

pytestmark = pytest.mark.quick

PLANTED = """\
# Interleaved 1F1B; rank 3 runs its first backward right after the forward of the same microbatch.
schedule planted(p, v = 2, m = 2 * p)
stage s in 0 .. p * v on rank s % p
rank r {
  let warmup = min(2 * (p - 1 - r) + (v - 1) * p, v * m)
  let fwd(k) = k // p % v
  let bwd(k) = v - 1 - fwd(k)
  let early = if r == 3 then 1 else 0
  for k in 0 .. warmup {
    F[fwd(k)]
    if early == 1 and k == p { B[1] }
  }
  for k in 0 .. v * m - warmup             { F[fwd(warmup + k)]  if k + early < v * m { B[bwd(k + early)] } }
  for k in v * m - warmup + early .. v * m { B[bwd(k)] }
}
"""


def test_a_cycle_of_computes_planted_in_a_file(tmp_path: Path) -> None:
    """At p = 8, v = 2, m = 64, ranks 3 and 4 are named, each with file, line, bindings, step, and what it waits for."""
    file = tmp_path / "planted.ps"
    file.write_text(PLANTED, encoding="utf-8")
    report = pipesched.verify(file, p=8, v=2, m=64)
    assert [d.code for d in report.diagnostics] == ["PS306"]
    cycle = hops(report, "PS306")
    assert report.diagnostics[0].message == "the compute orders of ranks 3 and 4 wait for each other"
    assert [(hop.rank, hop.step, hop.other, hop.there) for hop in cycle] == [(3, 10, 4, 16), (4, 10, 3, 11)]
    spans = [hop.label.span for hop in cycle]
    assert [(span.line, span.text) for span in spans if span] == [(11, "B[1]"), (10, "F[fwd(k)]")]
    assert [re.findall(r"\((k = \d+)\)", hop.label.message) for hop in cycle] == [["k = 8"], ["k = 9"]]
    for shown in (f"{file}:11:32", "rank 3, step 10 (k = 8): B11.0 waits for B12.0, which rank 4 runs at step 16"):
        assert shown in report.text()
    schedule = pipesched.load(file, p=8, v=2, m=64)
    closed(cycle, stopped(schedule)[0])


RING = """\
schedule ring(p, v = 2, m = 2 * p)
stage s in 0 .. p * v on rank s % p
rank r { repeat m { F[1] }  repeat m { F[0] }  repeat m { B[1] }  repeat m { B[0] } }
"""


def test_a_ring_of_all_ranks_planted_in_a_file() -> None:
    """Each of 8 ranks begins with its second chunk: the cycle is all 8 of them, on 8 lines, and no more."""
    report = pipesched.verify(Source("ring.ps", RING), p=8, v=2, m=64)
    cycle = hops(report, "PS306")
    assert sorted(hop.rank for hop in cycle) == list(range(8))
    assert {hop.label.span.text for hop in cycle if hop.label.span} == {"F[1]"}


def ring(length: int, ranks: int) -> Schedule:
    """Return the stages go twice round the first ranks, then on; these ranks begin with the second round: a cycle of
    that length.
    """
    rank_of = [*range(length), *range(length), *range(length, ranks)]
    lists: list[list[Compute]] = [[] for _ in range(ranks)]
    for stage, rank in enumerate(rank_of):
        forwards = [Compute(Op.F, stage, i) for i in range(2)]
        lists[rank] = forwards + lists[rank] if stage < 2 * length else lists[rank] + forwards
    for stage, rank in reversed(list(enumerate(rank_of))):
        lists[rank] += [Compute(Op.B, stage, i) for i in range(2)]
    placement = Placement(np.array([rank_of], dtype=np.int32), np.zeros(2, dtype=np.int32), ranks)
    return Schedule.from_orders(lists, placement, "ring")


@pytest.mark.parametrize("length", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("more", [0, 2])
def test_a_planted_cycle_of_computes_has_its_length(length: int, more: int) -> None:
    """The cycle has one label for each rank of the ring, whatever other ranks wait for."""
    schedule = ring(length, length + more)
    cycle = hops(pipesched.verify(schedule), "PS306")
    assert sorted(hop.rank for hop in cycle) == list(range(length))
    closed(cycle, stopped(schedule)[0])


def torch_rows(program: Program) -> list[list[str]]:
    return [[str(x) for x in program.instructions(rank) if x.op is not Op.STEP] for rank in range(program.ranks)]


def test_a_deadlock_of_messages_planted_in_a_torch_file(tmp_path: Path) -> None:
    """p = 8, v = 2, m = 64, a receive of rank 5 moved behind a send: two labels with row, cell, rank and step."""
    program = compiler.lower(_load("interleaved", p=8, v=2, m=64))
    rows = torch_rows(program)
    lists = [program.instructions(rank) for rank in range(8)]
    early, late = next((i, j) for i, j in _crossings(lists[4], lists[5]) if not _needed(lists[5], i, j))
    rows[5].insert(late, rows[5].pop(early))
    file = tmp_path / "planted.csv"
    file.write_text("".join(",".join(row) + "\n" for row in rows), encoding="utf-8")
    report = pipesched.verify(file)
    assert [d.code for d in report.diagnostics] == ["PS401"]
    cycle = hops(report, "PS401")
    assert sorted(hop.rank for hop in cycle) == [4, 5]
    assert report.diagnostics[0].help == f"on rank 5, put {rows[5][late]} before {_sent_first(rows[5], late)}: {HOLDS}"
    for hop in cycle:
        span, cell = hop.label.span, rows[hop.rank][hop.step - 1]
        assert span is not None and (span.line, span.text) == (hop.rank + 1, cell)
        assert span.column == len(",".join(rows[hop.rank][: hop.step - 1])) + 2
        assert f"{file}:{hop.rank + 1}:{span.column}" in report.text()
    moved = of_instructions([_moved(x, early, late) if r == 5 else x for r, x in enumerate(lists)], program.placement)
    stands = simulate.rendezvous(moved)
    closed(cycle, dict(enumerate(stands)))
    assert report.communication is not None and report.communication.capacity == 1


def _load(name: str, **sizes: int) -> Schedule:
    return pipesched.load(name, **sizes)


def _crossings(here: list[Instruction], there: list[Instruction]) -> list[tuple[int, int]]:
    """Return (RECV, later SEND) of the upper rank with the lower one, which sends the one before it receives the
    other."""
    found = []
    for i, x in enumerate(there):
        for j, y in enumerate(there[i + 1 : i + 4], i + 1):
            if x.op is Op.RECV_F and y.op is Op.SEND_B and x.peer == y.peer:
                sent = here.index(Instruction(Op.SEND_F, x.stage - 1, x.microbatch, 5))
                taken = here.index(Instruction(Op.RECV_B, y.stage - 1, y.microbatch, 5))
                found += [(i, j)] if sent < taken else []
    return found


def _needed(listed: list[Instruction], i: int, j: int) -> bool:
    return any(x.op is Op.F and x.microbatch == listed[i].microbatch for x in listed[i : j + 1])


HOLDS = "then the program completes under strict"


def _sent_first(row: list[str], received: int) -> str:
    """Return the last SEND_B before a place in a row."""
    return [cell for cell in row[:received] if "SEND_B" in cell][-1]


def _moved(listed: list[Instruction], i: int, j: int) -> list[Instruction]:
    return [*listed[:i], *listed[i + 1 : j + 1], listed[i], *listed[j + 1 :]]


def ring_of_sends(length: int, more: int) -> Program:
    """Return a program where each of the first ranks sends to the next one before it receives; others wait for rank
    0."""
    lists = [
        [Instruction(Op.SEND_F, r, 0, (r + 1) % length), Instruction(Op.RECV_F, r, 0, (r - 1) % length)]
        for r in range(length)
    ]
    for other in range(length, length + more):
        lists.append([Instruction(Op.RECV_F, other, 0, 0)])
        lists[0].append(Instruction(Op.SEND_F, other - 1, 0, other))
    placement = Placement(np.arange(length + more, dtype=np.int32)[None], np.zeros(1, dtype=np.int32), length + more)
    return of_instructions(lists, placement)


@pytest.mark.parametrize("length", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("more", [0, 2])
def test_a_planted_cycle_of_messages_has_its_length(length: int, more: int) -> None:
    """The cycle has one label for each rank that sends to the next one first, and none for the other ranks."""
    program = ring_of_sends(length, more)
    cycle = hops(pipesched.verify(program), "PS401")
    assert sorted(hop.rank for hop in cycle) == list(range(length))
    closed(cycle, dict(enumerate(simulate.rendezvous(program))))


def test_of_two_cycles_the_shorter_one_is_shown() -> None:
    """Ranks 0 to 2 wait for each other; so do 4 and 5, for which rank 3 waits."""
    three, two, new = ring_of_sends(3, 0), ring_of_sends(2, 1), (4, 5, 3)
    lists = [three.instructions(rank) for rank in range(3)]
    renamed = [[replace(x, stage=x.stage + 3, peer=new[x.peer]) for x in two.instructions(rank)] for rank in (2, 0, 1)]
    lists += renamed
    placement = Placement(np.arange(6, dtype=np.int32)[None], np.zeros(1, dtype=np.int32), 6)
    cycle = hops(pipesched.verify(of_instructions(lists, placement)), "PS401")
    assert sorted(hop.rank for hop in cycle) == [4, 5]
