"""``emit --mend`` repairs an order in which only the places of instructions are wrong, and changes nothing else.

A right program of each family gets slips that move instructions: within a list, or both ends of a message. Judges that
know nothing of the repair decide on the result: a slow rendezvous, and an interpreter on symbols that compares
gradients with those of the undivided model. The makespan of the right program is the best known. More by hand:

    python -m tests.mend.test_mend --cases 300
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.model.costs import Costs
from pipesched.model.ops import Instruction
from pipesched.model.schedule import Program
from tests.core.test_mutants import FAMILIES, program, right
from tests.depth import deep
from tests.makers.mutate import SLIPS, Lists
from tests.makers.mutate_more import MUTATIONS
from tests.makers.programs import of_instructions
from tests.oracles import simulate

MOVES = ("move", "move an ending", "swap neighbours", "swap any two", "swap computes", "swap sends", "swap receives")
FIXTURES = Path(__file__).parents[1] / "torch_fixtures"
CASES = deep(40, usual=5)


def broken(seed: int) -> tuple[Program, Program]:
    """Return a right program, and the same one with one to three slips that break it."""
    rng = random.Random(seed)
    family = rng.choice(sorted(FAMILIES.keys() - {"random"}))
    before = program(family, rng.randrange(len(FAMILIES[family])))
    while True:
        lists: Lists = [before.instructions(rank) for rank in range(before.ranks)]
        for _ in range(rng.randint(1, 3)):
            (SLIPS | MUTATIONS)[rng.choice(MOVES)](rng, lists)
        now = of_instructions(lists, before.placement)
        codes = {str(found.code) for found in pipesched.verify(now).diagnostics if found.severity == "error"}
        if codes and pairs(lists) == pairs([before.instructions(rank) for rank in range(before.ranks)]):
            return before, now


def pairs(lists: Lists) -> list[Counter[tuple[int, ...]]]:
    """Return the overlap pairs of each rank: a pair that lost a part, or got another, is no matter of places."""
    return [
        Counter(
            (*_compute(a), *_compute(b)) for a, b in pairwise(row) if b.second and (a.op.compute or not b.op.compute)
        )
        for row in lists
    ]


def _compute(x: Instruction) -> tuple[int, int, int]:
    return int(x.op), x.stage, x.microbatch


def computes(made: Program) -> list[Counter[tuple[int, ...]]]:
    """Return the computes of each rank, in no order."""
    return [
        Counter((x.op, x.stage, x.microbatch) for x in made.instructions(r) if x.op.compute) for r in range(made.ranks)
    ]


def makespan(made: Program) -> Fraction:
    """Return the makespan at unit costs, by the slow simulation."""
    return simulate.run(made.computes, simulate.rows(Costs(), made.stages)).makespan


def longer(seed: int, folder: Path, cap: Fraction | None = None) -> Fraction:
    """Mend a broken program; return the ratio of its makespan to the makespan of the right program.

    cap: the most activations that the mended program may hold; by default as many as the broken one.

    Raises:
        AssertionError: it is wrong, or has other computes.
    """
    before, now = broken(seed)
    file = folder / "mended.json"
    file.write_text(pipesched.emit(now, mend=True, mem_cap=cap), "utf-8")
    made = pipesched.load(file).program
    assert made is not None and right(made), seed
    assert computes(made) == computes(before), seed
    return makespan(made) / makespan(before)


def held(seed: int) -> Fraction:
    """Return the most activations of a rank in the right and the broken program."""
    return max(peak for made in broken(seed) for peak in pipesched.verify(made.computes).memory.peak)


@pytest.mark.parametrize("first", range(0, CASES, 5))
def test_a_moved_instruction_is_put_right(first: int, tmp_path: Path) -> None:
    """Each broken program becomes right, with the same computes on each rank."""
    for seed in range(first, first + 5):
        longer(seed, tmp_path)


@pytest.mark.parametrize("seed", [28, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (81, 271, 282))])
def test_a_moved_compute_costs_no_time(seed: int, tmp_path: Path) -> None:
    """A repair that only unblocks the ranks is 4 to 10 % longer than the right order; single moves close that gap."""
    assert longer(seed, tmp_path) == 1


@pytest.mark.parametrize("seed", [40, 134])
def test_more_memory_is_used_where_it_is_allowed(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The right order takes 15 and holds 2; the broken one holds 3/2, with which 18 is the least. PS910 says so."""
    before, now = broken(seed)
    assert (makespan(before), longer(seed, tmp_path), longer(seed, tmp_path, Fraction(2))) == (15, Fraction(18, 15), 1)
    (tmp_path / "broken.txt").write_text(pipesched.emit(now, "program"), "utf-8")
    assert main(["emit", str(tmp_path / "broken.txt"), "--mend"]) == 0
    assert "makespan 15 is possible with peak 2" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["d_deferred_interleaved", "d_deferred_zbv", "c15_both_send_first", "a04_ranks_wait"])
def test_what_was_mended_verifies(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of torch that hangs does not verify; the mended one does, with the same makespan of its computes."""
    file, mended = FIXTURES / f"{name}.csv", tmp_path / "mended.csv"
    assert main(["verify", str(file)]) == 1
    assert main(["emit", str(file), "--mend", "--target", "torch-comms", "-o", str(mended)]) == 0
    assert main(["verify", str(mended)]) == 0
    assert "mended: " in capsys.readouterr().err


@pytest.mark.parametrize(("name", "code"), [("a05_first_forward_twice", "PS302"), ("c10_no_reduction", "")])
def test_no_compute_is_invented(name: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An order with an operation twice stays wrong, and nothing is written; a missing reduction is no compute."""
    out = tmp_path / "mended.json"
    status = main(["emit", str(FIXTURES / f"{name}.csv"), "--mend", "-o", str(out)])
    assert (status, out.exists()) == ((1, False) if code else (0, True))
    assert code in capsys.readouterr().err


def test_a_right_file_is_written_as_it_is(tmp_path: Path) -> None:
    """The text is that without the option."""
    file = tmp_path / "right.csv"
    file.write_text(pipesched.emit("interleaved", "torch-comms", p=2, v=2, m=4), "utf-8")
    for target in ("stream", "torch-comms", "torch-csv"):
        assert pipesched.emit(file, target, mend=True) == pipesched.emit(file, target)


def cli() -> int:
    parser = argparse.ArgumentParser(description="Mended programs before two judges.")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--hold", action="store_true", help="--mem-cap: as many activations as the right program")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seeds = range(asked.first, asked.first + asked.cases)
        found = sorted(longer(seed, Path(folder), held(seed) if asked.hold else None) for seed in seeds)
    slow = sum(x > Fraction(105, 100) for x in found)
    middle, worst, best = (float(found[i]) for i in (len(found) // 2, -1, 0))
    print(f"{len(found)} mended, all right; makespan over that of the right program:")
    print(f"median {middle:.3f}, worst {worst:.3f}, best {best:.3f}; {slow} more than 5 % longer")
    return 0


if __name__ == "__main__":
    sys.exit(cli())
