"""Lists, costs by stage and microbatch, and slices give the right time and memory, and wrong uses are reported at
their place.
"""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import pytest

from pipesched.check.checks import Subject
from pipesched.check.dataflow import check_dataflow
from pipesched.diagnostics import PipeschedError
from pipesched.language.parser import parse
from pipesched.lift.writer import write
from pipesched.model.costs import Costs
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers.chunks import Chunk, check, chunks, evaluate
from tests.makers.ps_programs import Written, program
from tests.makers.ps_slices import sliced
from tests.oracles import packed as oracle
from tests.oracles.simulate import of_stage

DATA = Path(__file__).parents[1] / "data"
RELEASES = {"W": Fraction(0), "I": Fraction(1), "split:1/4": Fraction(3, 4), "torch": Fraction(-3, 5)}


@pytest.mark.parametrize("chunk", chunks(DATA / "forms.ps"), ids=str)
def test_wrong_uses_are_told_where_they_are(chunk: Chunk) -> None:
    """Each wrong line has its finding, and no other line has one."""
    check(chunk)


class Formulas:
    """Random costs of the stage, the microbatch and a list: as a line of a file, as a table, and by name."""

    def __init__(self, seed: int, made: Written) -> None:
        self.rng = rng = random.Random(seed)
        self.stages, self.microbatches = made.stages, made.microbatches
        self.lists = {name: [rng.randint(0, 9) for _ in range(made.microbatches)] for name in ("length", "other")}
        keys = [key for key in ("F", "I", "W", "B", "FB", "C", "M") if rng.random() < 0.7]
        self.terms = {key: [rng.choice((0, 0, 1, 2, 3)) for _ in range(4)] + [rng.choice((1, 2, 6))] for key in keys}

    def table(self, key: str) -> list[list[Fraction]]:
        a, b, c, d, over = self.terms[key]
        length, other = self.lists["length"], self.lists["other"]
        return [
            [Fraction(a * length[i] + b * other[i] + c * s + d, over) for i in range(self.microbatches)]
            for s in range(self.stages)
        ]

    def line(self) -> str:
        said = []
        for key, (a, b, c, d, over) in self.terms.items():
            names = ("x", "y") if self.rng.random() < 0.5 else ("s", "i")
            s, i = names
            said.append(f"{key}[{s}, {i}] = ({a} * length[{i}] + other[{i}] * {b} + {c} * {s} + {d}) / {over}")
        return f"costs {', '.join(said)}" if said else ""

    def text(self, made: Written, *lines: str) -> str:
        head = "schedule random(p, m, length[m] = 1, other[m] = 1)"
        return made.text(self.line(), *lines).replace("schedule random(p, m)", head)

    def toml(self) -> str:
        return "".join(f"{key} = {[list(map(str, row)) for row in self.table(key)]}\n" for key in self.terms)

    def parameters(self, made: Written) -> dict[str, int | tuple[int, ...]]:
        return {"p": made.ranks, "m": made.microbatches, **{name: tuple(x) for name, x in self.lists.items()}}

    def cost(self) -> dict[tuple[str, int, int], Fraction]:
        """Return the cost by key, stage and microbatch, with derived costs; no FB unless given."""
        tables = {key: self.table(key) for key in self.terms}
        made = {}
        for s in range(self.stages):
            for i in range(self.microbatches):
                given = {key: rows[s][i] for key, rows in tables.items()}
                known = {"M": Fraction(1), **given, **of_stage({x: given[x] for x in given if x in "FIWBC"})}
                made |= {(key, s, i): x for key, x in known.items()}
        return made


def steps(schedule: Schedule) -> list[list[oracle.Slot]]:
    orders: list[list[oracle.Slot]] = []
    for rank in range(schedule.ranks):
        orders.append([])
        for x in schedule.order(rank):
            step = (x.op.name, x.stage, x.microbatch)
            if x.second:
                orders[-1][-1] = (*orders[-1][-1], step)
            else:
                orders[-1].append((step,))
    return orders


def compared(found: Analysis, made: Written, cost: oracle.Cost, release: str, q: int) -> None:
    """Compare every instant, the work and the peaks of an analysis with the simulation."""
    schedule, times = found.schedule, found.timeline
    assert steps(schedule) == made.slots
    played = oracle.play(made.slots, made.stages, cost, q)
    for i in range(len(schedule)):
        x = schedule[i]
        assert (found.time(times.start[i]), found.time(times.end[i])) == played[x.op.name, x.stage, x.microbatch]
    assert found.idle is not None
    assert list(found.idle.work) == [sum((oracle.length(x, cost) for x in of), Fraction(0)) for of in made.slots]
    unit = Fraction(made.ranks, made.stages)
    assert list(found.memory.peak) == [unit * oracle.peak(of, cost, RELEASES[release]) for of in made.slots]


def judged(made: Written, seed: int, q: int, *lines: str) -> bool:
    """Check that the costs are valid, and that a B is not less than its parts; then compare everything."""
    formulas, release = Formulas(seed, made), random.Random(seed).choice(sorted(RELEASES))
    cost = formulas.cost()
    file = parse(Source("random.ps", formulas.text(made, *lines)))
    if min(cost.values()) < 0:
        with pytest.raises(PipeschedError, match=r"PS222: .* is negative"):
            evaluate(file, formulas.parameters(made))
        return False
    unit = evaluate(file, formulas.parameters(made))
    compared(Analysis(unit.schedule, unit.costs, Release.parse(release)), made, cost, release, q)
    read = Costs.from_toml(formulas.toml())
    compared(Analysis(unit.schedule, read, Release.parse(release)), made, cost, release, q)
    return True


@pytest.mark.parametrize("block", range(4))
def test_costs_by_microbatch_take_their_time_and_hold_their_part(block: int) -> None:
    """In random programs with random formulas, times, work and peaks equal the simulation's, also for the same costs in
    a file.
    """
    seeds = range(block * deep(12), (block + 1) * deep(12))
    assert sum(judged(program(seed), seed, 1) for seed in seeds) > len(seeds) // 2


@pytest.mark.parametrize("block", range(4))
def test_slices_run_in_turn_and_wait_for_each_other(block: int) -> None:
    """Bare letters give the slices that were written down by hand; a run in the right order never waits for a slice,
    and has the time and the memory of a simulation in which slices wait.
    """
    for seed in range(block * deep(12), (block + 1) * deep(12)):
        made, q = sliced(seed)
        judged(made, seed, q, f"slices {q}")


def test_a_schedule_of_slices_is_written_as_one() -> None:
    """The written file evaluates to the same operations and the same sequences."""
    for seed in range(deep(15)):
        made, q = sliced(seed)
        text = made.text(f"slices {q}")
        schedule = evaluate(parse(Source("x.ps", text)), {"p": made.ranks, "m": made.microbatches}).schedule
        again = evaluate(parse(Source("y.ps", write(schedule))), {}).schedule
        assert steps(again) == steps(schedule) and again.slices == schedule.slices == q


@pytest.mark.parametrize("letter", ["R", "L"])
def test_what_comes_back_for_a_slice_comes_as_its_backward_does(letter: str) -> None:
    """R and L of a sliced sequence run in reverse order, whatever runs in between; such a file is read and written, and
    no value is used before it exists.
    """
    seen = 0
    for seed in range(deep(30)):
        made, q = sliced(seed, recompute=0.7 * (letter == "R"), offload=0.7 * (letter == "L"))
        file = parse(Source("x.ps", made.text(f"slices {q}")))
        schedule = evaluate(file, {"p": made.ranks, "m": made.microbatches}).schedule
        assert steps(schedule) == made.slots, seed
        assert not [*check_dataflow(Subject(Analysis(schedule)))], seed
        again = evaluate(parse(Source("y.ps", write(schedule))), {}).schedule
        assert steps(again) == steps(schedule), seed
        seen += f"{letter}[" in str(made.words) and not made.named
    assert seen > deep(7)
