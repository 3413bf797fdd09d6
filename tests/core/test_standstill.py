"""Every picture draws a deadlock up to the point where execution stops under the failing model, and does not mark it
by colour alone.

What runs is what the explorer of all interleavings, or one random run of its machines, can finish; cycles are walked.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.analysis.communication import parse_model
from pipesched.analysis.standstill import Link, Standstill, of_program
from pipesched.compile import lower
from pipesched.model.ops import Instruction, Op
from pipesched.model.schedule import Program, Schedule
from pipesched.schedule_analysis import Analysis
from pipesched.views import graph, html, svg, trace
from pipesched.views.chart import text
from pipesched.views.chart.chart import Chart, chart
from tests.depth import deep
from tests.makers.placements import linear
from tests.makers.programs import of_instructions
from tests.makers.random_programs import random_program
from tests.oracles import explorer
from tests.oracles.explorer import MODELS
from tests.oracles.explorer_machines import machine
from tests.oracles.explorer_script import Script
from tests.oracles.trace_rules import violations
from tests.readers.pages import Opened, colours
from tests.views.test_show import ANSI, rank_rows

FIXTURE = Path(__file__).parents[1] / "torch_fixtures" / "c15_both_send_first.csv"
SIZES = [("1f1b", {"p": 3, "m": 5}), ("interleaved", {"p": 2, "v": 2, "m": 4}), ("dualpipe", {"p": 4, "m": 8})]


def lists(program: Program) -> list[list[Instruction]]:
    return [program.instructions(rank) for rank in range(program.ranks)]


def ended(program: Program, stops: Sequence[int]) -> list[bool]:
    """Return, for each compute, True if it comes before its rank's stop."""
    return [
        stop < 0 or i < stop
        for instructions, stop in zip(lists(program), stops, strict=True)
        for i, x in enumerate(instructions)
        if x.op <= Op.B
    ]


def shuffled(name: str, sizes: dict[str, int], seed: int) -> Program:
    """Return a program of the library with swapped neighbouring messages."""
    schedule, rng = pipesched.load(name, **sizes), random.Random(seed)
    assert isinstance(schedule, Schedule)
    made = lower(schedule)
    rows = lists(made)
    for _ in range(rng.randint(1, 3)):
        row = rng.choice(rows)
        i = rng.choice([i for i, x in enumerate(row) if x.op.send or x.op.receive])
        j = min(i + rng.randint(1, 4), len(row) - 1)
        row.insert(j, row.pop(i))
    return of_instructions(rows, made.placement, name)


def walked(stop: Standstill, program: Program, stops: Sequence[int]) -> None:
    """The cycle closes: each rank is blocked at its stop, and waits for an instruction that the next one has not
    reached.
    """
    for link, after in zip(stop.cycle, stop.cycle[1:] + stop.cycle[:1], strict=True):
        assert link.other == after.blocked.rank
        mine = program.instructions(link.blocked.rank)
        assert str(mine[link.blocked.step - 1]) == link.blocked.at
        if not link.queue:  # of a fused batch any member may be told
            group = {mine[link.blocked.step - 1].group, mine[stops[link.blocked.rank]].group}
            assert link.blocked.step - 1 == stops[link.blocked.rank] or (len(group) == 1 and -1 not in group)
        if link.until:
            assert str(program.instructions(link.other)[link.until_step - 1]) == link.until
        assert link.direction == 0 or mine_sends(link, mine) == (link.direction > 0)


def mine_sends(link: Link, mine: list[Instruction]) -> bool:
    """Return True if the rank has the sending end of the message at which it waits."""
    end = link.needs or link.blocked.at
    return next(x for x in mine if str(x) == end).op.send


@pytest.mark.parametrize("first", range(0, deep(50), 25))
def test_what_runs_is_what_every_interleaving_runs(first: int) -> None:
    """Random programs under every model run the computes that the explorer finds before the stop, and stop on its
    ranks."""
    for seed in range(first, first + 25):
        case = random_program(random.Random(seed))
        script = Script(case)
        for model in MODELS:
            stops = explorer.stops(script, model)
            found = of_program(case, parse_model(model))
            assert (found is None) == (set(stops) <= {-1})
            if found is not None:
                assert found.ran.tolist() == ended(case, stops)
                assert [x.rank for x in found.blocked] == [rank for rank, stop in enumerate(stops) if stop >= 0]
                walked(found, case, stops)


@pytest.mark.parametrize(("name", "sizes"), SIZES, ids=[name for name, _ in SIZES])
def test_a_picture_ends_where_the_program_does(name: str, sizes: dict[str, int]) -> None:
    """The drawing of a library program with moved messages never has more than a random run computes, and has all of it
    if no input is missing.
    """
    stopped = 0
    for seed in range(deep(5)):
        case = shuffled(name, sizes, seed)
        for model in ("strict", "buffered(1)", "one-stream", "pair-stream", "async"):
            stops = explorer.walk(machine(Script(case), model), random.Random(seed))
            stop = of_program(case, parse_model(model))
            drawn = Chart(Analysis(case.schedule, model=parse_model(model)))
            ran = ended(case, stops)
            seen = (drawn.times.start >= 0).tolist()
            assert all(not one or two for one, two in zip(seen, ran, strict=True))
            whole = chart(case.computes)
            if whole.analysis.standstill is None:
                assert seen == closed(drawn.analysis.dependencies.producer.tolist(), ran, case.computes)
            stopped += stop is not None
    assert stopped > deep(4)


def closed(needs: list[int], ran: list[bool], schedule: Schedule) -> list[bool]:
    """Return the operations that ran, without operations whose input did not run: they have no time in a picture."""
    while True:
        kept = [one and (needs[i] < 0 or ran[needs[i]]) for i, one in enumerate(ran)]
        for low, high in zip(schedule.start[:-1].tolist(), schedule.start[1:].tolist(), strict=True):
            for i in range(low + 1, high):
                kept[i] = kept[i] and kept[i - 1]
        if kept == ran:
            return ran
        ran = kept


def of_fixture(model: str = "strict") -> tuple[Program, Standstill | None]:
    program = pipesched.load(FIXTURE).program
    assert isinstance(program, Program)
    return program, of_program(program, parse_model(model))


TITLE = "deadlock PS401 under strict: ranks 0 and 1 wait for each other; stops at 7"


def test_the_text_marks_what_waits() -> None:
    """A sign and the instruction at the end of each row of the cycle, and the wait in words; red if there is colour."""
    program, _ = of_fixture()
    drawn = chart(program.schedule)
    plain = text.render(drawn, text.Text(80))
    every, _ = rank_rows(plain)
    assert every == ["F0 F1 ·  ·  B0    F2 ✗0SEND_F2", "·  F0 B0    F1 B1    ✗1SEND_B1"]
    assert TITLE in " ".join(plain.split())
    wait = "✗ rank 0 stops at 0SEND_F2 (step 8): waits until rank 1 reaches 1RECV_F2 (step 9)"
    assert wait in " ".join(plain.split())
    red = re.findall(r"48;5;160m([^\x1b]+)", text.render(drawn, text.Text(80, color=True)))
    assert red == ["✗0SEND_F2", "✗1SEND_B1", "✗", "✗"]
    assert "X0SEND_F2" in text.render(drawn, text.Text(80, ascii=True))
    for width in range(24, 130, 3):
        shown = ANSI.sub("", text.render(drawn, text.Text(width, color=True)))
        assert max(map(len, shown.splitlines())) <= width and shown.count("✗") == 4


@pytest.mark.parametrize("style", ["default", "zero-bubble", "megatron"])
def test_the_figure_marks_what_waits(style: str) -> None:
    """Hatched rows with a cross and the words of the wait, and an arrow from each sender to its receiver."""
    program, _ = of_fixture()
    made = svg.render(chart(program.schedule), svg.Svg(style=style))
    root = ElementTree.fromstring(made)
    name = "{http://www.w3.org/2000/svg}"
    words = [x.text for x in root.iter(f"{name}text") if x.attrib.get("class") == "v"]
    assert words == [TITLE, "0SEND_F2 waits for 1RECV_F2", "1SEND_B1 waits for 0RECV_B1"]
    hatched = [x for x in root.iter(f"{name}rect") if x.attrib.get("class") == "x"]
    pattern = next(x.attrib["id"] for x in root.iter(f"{name}pattern"))
    assert len(hatched) == 2 and all(f"#{pattern}" in x.attrib["style"] for x in hatched)
    paths = [x.attrib for x in root.iter(f"{name}path")]
    assert sum(x.get("class") == "u" for x in paths) == 2
    rows = {float(x.attrib["y"]): rank for rank, x in enumerate(hatched)}
    ends = [
        tuple(next(rank for y, rank in rows.items() if y <= float(at) <= y + 24) for at in found)
        for x in paths
        if x.get("class") == "r" and "marker-end" in x
        for found in [re.fullmatch(r"M\S+ (\S+?)H\S+?V(\S+?)H\S+", x["d"]).groups()]  # type: ignore[union-attr]
    ]
    assert sorted(ends) == [(0, 1), (1, 0)]


def test_the_page_marks_what_waits(opened: Opened) -> None:
    """Both rows are hatched red after their last operation, to the edge, and the pointer shows why."""
    program, _ = of_fixture()
    page = opened(chart(program.schedule))
    assert TITLE in page.evaluate("document.getElementById('facts').textContent")
    above = page.evaluate("document.getElementById('stage').getBoundingClientRect().top")
    for rank in (0, 1):
        end, y, bar = page.evaluate(f"[pipesched.xOf(7), pipesched.yOf({rank}), pipesched.barHeight()]")
        points = [(end + dx, above + y + dy) for dx in range(4, 160, 3) for dy in range(4, int(bar) - 4, 3)]
        red = [r > 150 and g < 60 and b < 80 for r, g, b in colours(page, points)]
        assert 0.05 < sum(red) / len(red) < 0.6  # stripes, no area
        page.mouse("mouseMoved", end + 40, above + y + bar / 2)
        told = page.evaluate("document.getElementById('tip').textContent")
        assert f"rank {rank} waits forever" in told and f"waits until rank {1 - rank} reaches" in told


def test_traces_and_graphs_mark_what_waits() -> None:
    """A trace has a red slice for each rank and an arrow for each message; GraphML and DOT mark the nodes and edges of
    the cycle."""
    program, _ = of_fixture()
    drawn = chart(program.schedule)
    made = json.loads(trace.render(drawn))
    assert violations(made) == []
    slices = [x["name"] for x in made["traceEvents"] if x["ph"] == "X" and x.get("cname") == "terrible"]
    assert slices == ["stops at 0SEND_F2", "stops at 1SEND_B1"]
    arrows = [(x["pid"], x["ph"]) for x in made["traceEvents"] if x["name"] == "never"]
    assert sorted(arrows) == [(0, "f"), (0, "s"), (1, "f"), (1, "s")]
    made = graph.graph(drawn)
    cycle = [(a, b) for a, b, about in made.edges(data=True) if about["kind"] == "cycle"]
    assert sorted(cycle) == [("r0stop", "r1stop"), ("r1stop", "r0stop")] and made.graph["stopped"] == TITLE
    dot = graph.dot(drawn)
    assert dot.count("octagon") == 2 and TITLE in dot and dot.count('"never runs"') == 4


@pytest.mark.parametrize(
    ("model", "stops"), [("strict", True), ("one-stream", True), ("pair-stream", True), ("buffered(1)", False)]
)
def test_show_draws_under_the_model_that_is_asked_for(
    model: str, stops: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example of the issue is drawn complete under a model that holds, and stopped under the others."""
    status = main(["show", str(FIXTURE), "--comm", model, "--width", "120", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert status == int(stops) and (told["stopped"] is not None) == stops
    title = told["picture"].splitlines()[0]
    assert (f"deadlock PS401 under {model}:" in title) == stops != ("makespan 12" in title)
    if stops:
        assert told["stopped"]["model"] == model
        assert [(x["rank"], x["at"], x["other"]) for x in told["stopped"]["cycle"]] == [
            (0, "0SEND_F2", 1),
            (1, "1SEND_B1", 0),
        ]


def test_what_nobody_sends_is_waited_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A message without its other end is not a cycle: the rank stops there, dependents stop later, and none is red."""
    (folder / "lost.csv").write_text("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n")
    assert main(["show", "lost.csv", "--color", "always"]) == 1
    told = capsys.readouterr().out
    assert "…0RECV_B0" in told and "48;5;160" not in told and "deadlock" not in told
    assert "stops at 4 under strict: rank 0 never finishes; wrong: PS402" in " ".join(told.split())


def test_a_notebook_shows_a_deadlock() -> None:
    """A program and a report display themselves as far as they run."""
    program, _ = of_fixture()
    assert TITLE in (program._repr_svg_() or "")
    assert TITLE in pipesched.verify(FIXTURE)._repr_html_()
    assert "deadlock" not in pipesched.verify(FIXTURE, comm="async")._repr_html_().split("<pre>")[0]


def test_a_cycle_of_many_ranks_is_drawn() -> None:
    """Every rank of a ring of 40 sends first: all are marked, in every picture, and lanes keep messages apart."""
    ring, ends = 40, ((Op.SEND_F, 1), (Op.RECV_F, -1))
    rows = [
        [Instruction(Op.F, r, 0), *(Instruction(op, r, 0, (r + way) % ring) for op, way in ends)] for r in range(ring)
    ]
    program = of_instructions(rows, linear(ring, 1))
    drawn = chart(program.schedule)
    assert drawn.analysis.standstill is not None and len(drawn.analysis.standstill.cycle) == ring
    figure = svg.render(drawn)
    assert figure.count('class="r"') == ring and "40 ranks wait in a cycle" in figure
    assert text.render(drawn, text.Text(60)).count("✗") == ring + 8
    assert html.render(drawn) and json.loads(trace.render(drawn))
