"""For stages that read stages other than the previous one, times, memory, messages and verdicts match a simulation.

The oracle (`oracles/branches.py`) knows names and sets alone; files are written as text (`makers/branches.py`).
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import pipesched
from pipesched.check.checks import Subject
from pipesched.compile import Options, load
from pipesched.diagnostics import PipeschedError
from pipesched.lift import writer
from pipesched.model.release import Release
from pipesched.model.schedule import Program
from pipesched.orders.check.handover import check_handover
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source
from pipesched.views import graph, spreadsheet, svg, trace
from pipesched.views.chart.chart import chart
from tests.core.test_deadlock_explorer import differences
from tests.depth import deep
from tests.makers.branches import random_model, random_orders, text
from tests.makers.programs import of_instructions
from tests.makers.random_programs import whole
from tests.oracles import simulate
from tests.oracles.branches import Model, Slot, Step, peaks, play
from tests.readers.pages import Opened, place, tip

UNET = """\
schedule unet(p, m = 2 * p)
stage s in 0 .. p on rank s
stage s in p .. 2 * p on rank 2 * p - 1 - s reads s - 1, 2 * p - 1 - s
rank r { repeat m { F[0] }  repeat m { F[1] }  repeat m { B[1] }  repeat m { B[0] } }
"""


def sent(program: Program) -> Counter[tuple[str, int, int, int, int, int]]:
    """Return the properties of every SEND: F or B, its source and target stage, microbatch, source and target rank; of
    RECVs likewise.
    """
    found: Counter[tuple[str, int, int, int, int, int]] = Counter()
    for rank in range(program.ranks):
        for x in program.instructions(rank):
            if x.op.send or x.op.receive:
                next_one = x.stage + (1 if x.op.name in ("SEND_F", "RECV_B") else -1)
                other = x.other if x.other >= 0 else next_one
                ends, ranks = (x.stage, other), (rank, x.peer)
                if x.op.receive:
                    ends, ranks = ends[::-1], ranks[::-1]
                found[x.op.name[-1], *ends, x.microbatch, *ranks] += 1
    return found


def compared(model: Model, orders: list[list[Slot]], said: str, at_input: Fraction) -> Analysis:
    """Compare one file with the simulation."""
    release = Release("given", at_input, 1 - at_input)
    loaded = load(Source("branches.ps", said), Options(release=release))
    made = Analysis(loaded.schedule, loaded.costs(None), release)
    played = play(model, orders)
    steps = [(x.op.name, x.stage, x.microbatch) for x in map(loaded.schedule.__getitem__, range(len(loaded.schedule)))]
    assert Counter(steps) == Counter(model.steps())
    for i, step in enumerate(steps):
        begin, end = int(made.timeline.start[i]), int(made.timeline.end[i])
        assert ((made.time(begin), made.time(end)) if end >= 0 else None) == played.get(step), step
    share = Fraction(model.ranks, model.stages)
    assert list(made.memory.peak) == [share * x for x in peaks(model, orders, at_input)]
    if made.finished:
        program = made.program
        assert program is not None and simulate.finishes(program)
        rank_of = model.rank_of
        expected = {(*x[:3], x[3], rank_of[x[1]], rank_of[x[2]]) for x in model.messages()}
        assert sent(program) == Counter(dict.fromkeys(expected, 2))
    return made


@pytest.mark.parametrize("part", range(4))
def test_random_files_run_as_simulated(part: int) -> None:
    """Start and end of every operation, peaks, and one message for each reader on another rank; all of them finish."""
    for seed in range(part * deep(12), (part + 1) * deep(12)):
        rng = random.Random(seed)
        model = random_model(rng)
        orders = random_orders(model, rng)
        said = text(model, orders, rng)
        made = compared(model, orders, said, rng.choice([Fraction(0), Fraction(1, 2), Fraction(1)]))
        report = pipesched.verify(Source("branches.ps", said))
        assert report.ok == made.finished, (seed, str(report))
        assert not made.finished or (made.verdicts is not None and not made.verdicts.fails)


@pytest.mark.parametrize("order", ["F[1] F[2] F[0]", "F[0] F[2] F[1]"])
def test_a_stage_runs_after_all_that_it_reads(order: str) -> None:
    """Stage 2 reads 1 and 0, which both read the input: on one rank either may come too late."""
    text = "schedule join(p, m)\nstage s in 0 .. 3 on rank 0\nstage 1 on rank 0 reads -1\n"
    text += f"stage 2 on rank 0 reads 1, 0\nrank 0 {{ {order}  B[2]  B[1]  B[0] }}\n"
    report = pipesched.verify(Source("join.ps", text), p=1, m=1)
    late = order.split()[-1]
    assert [x.message for x in report.diagnostics] == [f"F2.0 runs before F{late[2]}.0 on rank 0, but needs it"]


def test_orders_by_chance_stop_where_the_simulation_does() -> None:
    """Lists in any order run the operations that the simulation runs, and a wrong order on one rank is found."""
    for seed in range(deep(25)):
        rng = random.Random(seed)
        model = random_model(rng)
        orders = random_orders(model, rng)
        for order in orders:
            i, j = (rng.randrange(len(order)) for _ in range(2))
            order[i], order[j] = order[j], order[i]
        said = text(model, orders, rng)
        made = compared(model, orders, said, Fraction(0))
        place = {step: (rank, i) for rank, order in enumerate(orders) for i, slot in enumerate(order) for step in slot}
        late = {
            step
            for step, (rank, i) in place.items()
            for x in model.inputs(step)
            if place[x][0] == rank and place[x][1] > i
        } | {step for step, (_, i) in place.items() if step[0] in "IB" and place["F", *step[1:]][1] > i}
        report = pipesched.verify(Source("branches.ps", said))
        codes = {str(x.code) for x in report.diagnostics}
        assert ("PS305" in codes) == bool(late), (seed, codes, late)
        assert ("PS306" in codes) == (not made.finished), (seed, codes)


def small(rng: random.Random) -> Analysis:
    """Return a schedule of a few messages, which finishes."""
    while True:
        model = random_model(rng)
        if model.ranks > 1 and 0 < len(model.messages()) <= 7:
            said = text(model, random_orders(model, rng), rng)
            if (made := Analysis(load(Source("branches.ps", said), Options()).schedule)).finished:
                return made


def harmed(made: Analysis, rng: random.Random) -> Program:
    """Return its program with swapped neighbours, or without one end of a message."""
    assert made.program is not None
    lists = [made.program.instructions(rank) for rank in range(made.program.ranks)]
    for _ in range(rng.randint(0, 4)):
        mine = rng.choice(lists)
        i = rng.randrange(len(mine) - 1) if len(mine) > 1 else 0
        mine[i : i + 2] = mine[i : i + 2][::-1]
    if rng.random() < 0.2:
        mine = rng.choice(lists)
        mine[:] = [x for x in mine if not (x.op.send or x.op.receive) or rng.random() < 0.8]
    return of_instructions([whole(mine) for mine in lists], made.schedule.placement)


def test_verdicts_are_those_of_all_interleavings() -> None:
    """The stop of each rank under every model, and the least capacity, for messages in any order."""
    for seed in range(deep(15)):
        rng = random.Random(seed)
        program = harmed(small(rng), rng)
        assert not differences(program), (seed, [program.instructions(r) for r in range(program.ranks)])


def test_what_is_not_received_or_not_yet_made_is_found() -> None:
    """PS308 and PS309 are reported for each message, by the stages at both of its ends."""
    seen: Counter[str] = Counter()
    for seed in range(deep(37, usual=30)):
        rng = random.Random(seed)
        made = small(rng)
        program = harmed(made, rng)
        order = program.computes
        if any(x.second for r in range(order.ranks) for x in order.order(r)):
            continue
        placement = made.schedule.placement
        lists = [[str(x) for x in program.instructions(r)] for r in range(program.ranks)]
        wrong: Counter[str] = Counter()
        for mine in lists:
            for i, name in enumerate(mine):
                if (found := re.fullmatch(r"(\d+)([FIB])(\d+)", name)) is None:
                    continue
                s, letter, mb = int(found[1]), found[2], found[3]
                others = placement.read(s) if letter == "F" else placement.readers[s]
                away = [t for t in others if placement.table[t, int(mb)] != placement.table[s, int(mb)]]
                kind, step = ("F", -1) if letter == "F" else ("B", 1)
                ends = [f"{s}RECV_{kind}{mb}" + ("" if t == s + step else f"<{t}") for t in away]
                wrong["PS308"] += sum(end not in mine[:i] for end in ends)
            for i, name in enumerate(mine):
                if (found := re.fullmatch(r"(\d+)SEND_([FB])(\d+)(>\d+)?", name)) is not None:
                    made_by = [f"{found[1]}{x}{found[3]}" for x in ("F" if found[2] == "F" else "IB")]
                    wrong["PS309"] += not any(x in mine[:i] for x in made_by)
        codes = Counter(str(x.code) for x in check_handover(Subject(Analysis(order.with_program(program)))))
        assert {code for code, count in wrong.items() if count} == codes.keys(), (seed, wrong, codes, lists)
        seen += wrong
    assert seen["PS308"] > 10 and seen["PS309"] > 10


def test_a_written_file_says_the_same() -> None:
    """The printed file of such a schedule evaluates to the same order, placement and readers."""
    for seed in range(deep(15)):
        rng = random.Random(seed)
        model = random_model(rng)
        one = load(Source("a.ps", text(model, random_orders(model, rng), rng)), Options()).schedule
        again = load(Source("b.ps", writer.write(one)), Options()).schedule
        assert again.placement.reads == one.placement.reads
        assert np.array_equal(again.placement.rank_of, one.placement.rank_of)
        assert [again.order(r) for r in range(again.ranks)] == [one.order(r) for r in range(one.ranks)]


def test_a_skip_costs_its_messages_and_no_memory() -> None:
    """A U-Net folded so that skips stay on their ranks has the messages and the peaks of its chain."""
    report = pipesched.verify(Source("unet.ps", UNET), p=4, m=8)
    chain = pipesched.verify(Source("chain.ps", UNET.replace("reads s - 1, 2 * p - 1 - s", "")), p=4, m=8)
    assert report.ok and report.messages == chain.messages == 2 * 8 * 6
    assert report.peak == chain.peak == (8, 8, 8, 8)


def test_every_picture_shows_every_reader() -> None:
    """Graph, table, trace and figure have an edge or a message for each input of the simulation."""
    for seed in range(deep(7)):
        rng = random.Random(seed)
        model = random_model(rng)
        schedule = load(Source("a.ps", text(model, random_orders(model, rng), rng)), Options()).schedule
        drawn = chart(schedule)
        if not drawn.analysis.finished:
            continue
        wanted = {(name(x), name(y)) for y in model.steps() for x in model.inputs(y)}
        made = graph.graph(drawn)
        label = dict(made.nodes(data="label"))
        inputs = [x for x in made.edges(data="kind") if x[2] in ("needs", "message")]
        assert len(inputs) == len(wanted) and {(label[a], label[b]) for a, b, _ in inputs} == wanted
        assert sum(kind == "message" for _, _, kind in inputs) == len(model.messages())
        rows = [line.split(",") for line in spreadsheet.csv(drawn).splitlines()[1:]]
        assert {(x, f"{row[2]}{row[3]}.{row[4]}") for row in rows for x in row[7].split()} == wanted
        events = json.loads(trace.render(drawn))["traceEvents"]
        arrows = Counter(event["ph"] for event in events if event["ph"] in "sf")
        assert arrows == Counter({"s": len(model.messages()), "f": len(model.messages())})
        figure = svg.render(drawn, svg.Svg(messages=True))
        assert len(re.findall(r'<path class="[fg]"', figure)) == len(model.messages())


def name(step: Step) -> str:
    return f"{step[0]}{step[1]}.{step[2]}"


def test_the_page_says_what_a_reader_waits_for(opened: Opened) -> None:
    """The page lists each input of the operation under the pointer on its own line."""
    drawn = chart(pipesched.load(Source("unet.ps", UNET), p=3, m=2))
    page, schedule = opened(drawn), drawn.schedule
    for index in range(len(schedule)):
        x = schedule[index]
        page.mouse("mouseMoved", *place(page, index))
        told = [line for line in tip(page) if line.startswith("waits for ")]
        if x.op.name == "F":
            others = {(x.stage - 1), 5 - x.stage} if x.stage > 2 else {x.stage - 1} - {-1}
        else:
            others = {t for t in range(6) if x.stage == t - 1 or (t > 2 and x.stage == 5 - t)}
        letter = x.op.name if others else "F"
        names = {f"{letter}{t}.{x.microbatch}" for t in others} or {f"F5.{x.microbatch}"} - {f"F0.{x.microbatch}"}
        if (x.op.name, x.stage) == ("F", 0):
            assert told == ["waits for nothing: the first stage"]
        else:
            assert {line.split()[2] for line in told} == names and len(told) == len(names)


@pytest.mark.parametrize(
    ("line", "where", "said"),
    [
        ("stage s in 0 .. 4 on rank s reads s", "s", "stage 0 reads stage 0"),
        ("stage s in 0 .. 4 on rank s reads s - 1, s + 1", "s + 1", "stage 0 reads stage 1"),
        ("stage s in 0 .. 4 on rank s reads s - 2", "s - 2", "stage 0 reads stage -2"),
        (
            "stage s in 0 .. 4 on rank s stage 3 on rank 3 reads 1",
            "stage s in 0 .. 4 on rank s",
            "no stage reads stage 2",
        ),
        (
            "stage s in 0 .. 4 on rank s stage 3 on rank 3 reads -1",
            "stage s in 0 .. 4 on rank s",
            "no stage reads stage 2",
        ),
        ("stage s in 0 .. 4 on rank s reads 1 // s", "1 // s", "division by zero"),
        ("stage s in 0 .. 4 on rank s reads true", "true", "boolean"),
        ("stage s in 0 .. 4 on rank s reads k", "k", "unknown name `k`"),
        ("stage s in 0 .. 4 on rank s reads", "", "expected an expression after `reads`"),
        ("stage s in 0 .. 4 on rank s reads s - 1,", "", "expected an expression after `,`"),
        ("stage s in 0 .. 4 on rank s read s - 1", "read", "expected"),
    ],
)
def test_what_no_stage_can_read_is_found_at_its_place(line: str, where: str, said: str) -> None:
    """The findings PS1xx and PS2xx have their messages and places."""
    with pytest.raises(PipeschedError) as caught:
        load(Source("a.ps", f"schedule a(m = 2)\n{line}\nrank r {{ repeat m {{ F B }} }}\n"), Options())
    first = caught.value.diagnostics[0]
    assert first.code < "PS3" and said in first.message, first
    span = first.labels[0].span
    assert span is not None and (span.text == where or not where), span.text


def test_what_is_read_is_limited_before_it_is_expanded() -> None:
    """PS210 refuses few operations with more results to send than --max-ops."""
    lines = "".join(f"stage {s} on rank 0 reads {', '.join(map(str, range(s)))}\n" for s in range(1, 20))
    said = f"schedule a(m = 2)\nstage 0 on rank 0\n{lines}rank 0 {{ for c in 0 .. 20 {{ F[c] }} }}\n"
    with pytest.raises(PipeschedError, match="PS210: 189 reads for 2 microbatches are 378 inputs at least"):
        load(Source("a.ps", said), Options(max_ops=100))
    assert load(Source("a.ps", said), Options(max_ops=400)).schedule.placement.read(19) == tuple(range(18, -1, -1))


def test_routes_agree_on_who_reads_whom() -> None:
    """PS216 names both lines where the copies of a stage read different stages."""
    two = (
        "schedule a(m = 2)\nroute one: stage s in 0 .. 3 on rank s{} for microbatch 0 .. 1\n"
        "route two: stage s in 0 .. 3 on rank 2 - s{} for microbatch 1 .. 2\n"
        "route one: stage 2 on rank 2 reads 1, 0\n{}rank r {{ F[0] F[1] B[0] B[1] }}\n"
    )
    again = "route two: stage 2 on rank 0 reads 0, 1\n"
    assert load(Source("a.ps", two.format("", "", again)), Options()).schedule.placement.reads == {2: (1, 0)}
    with pytest.raises(PipeschedError) as caught:
        load(Source("a.ps", two.format("", "", "")), Options())
    assert [str(x.code) for x in caught.value.diagnostics] == ["PS216"]
    assert "stage 2 reads 1, 0 on route one and 1 on route two" in caught.value.diagnostics[0].message


def test_a_later_single_line_replaces_the_whole_line() -> None:
    """Without `reads` the stage reads the one before it again."""
    head = "schedule a(m = 2)\nstage s in 0 .. 3 on rank s reads s - 1, s - 1, -1\n"
    body = "rank r { repeat m { F B } }\n"
    whole = load(Source("a.ps", head + body), Options()).schedule.placement
    assert whole.reads == {1: (0, -1), 2: (1, -1)} and whole.read(2) == (1,)
    line = "stage 2 on rank 0\n"
    alone = load(Source("a.ps", f"{head}{line}rank r {{ drain W }}\n"), Options()).schedule.placement
    assert alone.reads == {1: (0, -1)} and alone.rank_of.tolist() == [[0, 1, 0]]


def test_a_stream_says_who_reads_whom() -> None:
    """The emitted stream reads back as a program with the same messages between the same stages, and no finding."""
    for seed in range(deep(10)):
        rng = random.Random(seed)
        model = random_model(rng)
        source = Source("a.ps", text(model, random_orders(model, rng), rng))
        one = pipesched.verify(source)
        if not one.ok:
            continue
        stream = Source("a.json", pipesched.emit(source))
        again, loaded = pipesched.verify(stream, costs=one.time.costs), load(stream, Options())
        assert again.ok and again.messages == one.messages and again.peak == one.peak, (seed, str(again))
        assert (
            loaded.program is not None
            and loaded.schedule.placement.reads == load(source, Options()).schedule.placement.reads
        )
        rank_of = model.rank_of
        assert sent(loaded.program) == Counter(
            dict.fromkeys(((*x, rank_of[x[1]], rank_of[x[2]]) for x in model.messages()), 2)
        )


@pytest.mark.parametrize("target", ["torch-csv", "torch-comms"])
def test_what_cannot_say_it_refuses_by_name(target: str) -> None:
    """PS814: no wrong file is written."""
    with pytest.raises(PipeschedError, match=r"PS814.*stage 3 reads stage 2 and stage 0"):
        pipesched.emit(Source("unet.ps", UNET), to=target, p=2)
    found = pipesched.verify(Source("unet.ps", UNET), p=2, torch_version="2.13").diagnostics
    assert [str(x.code) for x in found] == ["PS814"]
