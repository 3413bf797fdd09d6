"""Charts in characters: every slot stands where it runs, idle time is counted in dots, and no line is too long.

The oracle is the slow simulation (`oracles/simulate.py`) and what it says of each rank, instant by instant; the text is
read back character by character.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.chart.axis import Viewport
from pipesched.chart.chart import chart
from pipesched.chart.slots import phases
from pipesched.chart.text import Text, render
from pipesched.model.costs import Costs
from pipesched.model.ops import Compute, Op
from pipesched.model.schedule import Schedule
from tests.depth import deep
from tests.makers import strategies
from tests.oracles import simulate
from tests.oracles.simulate import Played, rows, slots

CALM = settings(derandomize=True, deadline=None, max_examples=deep(20))
SIZES = [
    ("gpipe", {"p": 4, "m": 8}),
    ("1f1b", {"p": 4, "m": 8}),
    ("zb_h1", {"p": 4, "m": 8}),
    ("zb_h2", {"p": 4, "m": 8}),
    ("interleaved", {"p": 4, "v": 2, "m": 8}),
    ("dualpipe", {"p": 8, "m": 20}),
]
ANSI = re.compile(r"\x1b\[[0-9;]*m")
SPARKS = " ▁▂▃▄▅▆▇"


def played(schedule: Schedule, costs: Costs | None = None) -> Played:
    return simulate.run(schedule, rows(costs or Costs(), schedule.stages))


def rank_rows(text: str) -> tuple[list[str], list[str]]:
    """The rows of the chart and those of the memory, without the names of the ranks. A title may name ranks too."""
    text = text.partition("\n\n")[2]
    named = [re.match(r"(rank \d+ +)(?!stops)\S", line) for line in text.splitlines()]
    gutter = next(len(match[1]) for match in named if match)
    found = [line[gutter:] for line in text.splitlines() if re.match(r"rank \d+ (?! *stops)", line)]
    half = len(found) // 2
    return found[:half], found[half:]


def label(x: Compute, chunk: int) -> str:
    return f"{x.op.name.lower() if chunk % 2 else x.op.name}{x.microbatch}"


def drawn(schedule: Schedule, run: Played, rank: int, columns: int) -> Iterator[tuple[int, str]]:
    """The column and the label of every slot of a rank, at so many columns a unit, by the simulation."""
    held = schedule.placement.chunks(rank)
    order = run.orders[rank]
    for slot in slots(order):
        parts = []
        for i in slot:
            route = int(schedule.placement.route_of[order[i].microbatch])
            parts.append(label(order[i], held.index((route, order[i].stage))))
        column = run.start[rank, slot[0]] * columns
        assert column.denominator == 1
        yield int(column), "+".join(parts)


@pytest.mark.parametrize(("name", "sizes"), SIZES, ids=[name for name, _ in SIZES])
def test_every_slot_stands_at_its_start(name: str, sizes: dict[str, int]) -> None:
    """Where a letter, a number and a blank fit in a unit, the row is the order, each slot at its time."""
    schedule = pipesched.load(name, **sizes)
    wide = len(str(sizes["m"] - 1)) + 2
    run = played(schedule)
    width = wide * int(run.makespan) + 20
    text, _ = rank_rows(render(chart(schedule), Text(width)))

    assert f"{wide} columns = 1 unit of time" in render(chart(schedule), Text(width))
    for rank, row in enumerate(text):
        expected = [" "] * wide * int(run.makespan)
        busy = {
            instant
            for slot in slots(run.orders[rank])
            for instant in range(int(run.start[rank, slot[0]]), int(run.end[rank, slot[0]]))
        }
        for instant in set(range(int(run.makespan))) - busy:
            expected[wide * instant] = "·"
        for column, words in drawn(schedule, run, rank, wide):
            expected[column : column + len(words)] = words
        assert row == "".join(expected).rstrip()


BROKEN = st.builds(strategies.broken_schedule, strategies.SEEDS)


@CALM
@given(strategies.schedules() | BROKEN, st.integers(24, 220), st.booleans(), st.data())
def test_no_line_is_too_long(schedule: Schedule, width: int, ascii: bool, data: st.DataObject) -> None:
    """At any width and any costs, for right schedules and broken ones, all the ranks are there and no line is cut."""
    costs = data.draw(strategies.costs(schedule.stages))
    text = render(chart(schedule, costs), Text(width, ascii=ascii))
    rows = [line for line in text.partition("\n\n")[2].splitlines() if re.match(r"rank \d+ +(?!stops)", line)]

    assert len(rows) == 2 * schedule.ranks
    assert max(map(len, text.splitlines())) <= width
    assert text.isascii() or not ascii


@CALM
@given(strategies.schedules(), st.integers(24, 160))
def test_colour_changes_no_column(schedule: Schedule, width: int) -> None:
    """A coloured row has its slots and its idle time where the plain one has them; only names differ."""
    plain, _ = rank_rows(render(chart(schedule), Text(width)))
    coloured, _ = rank_rows(ANSI.sub("", render(chart(schedule), Text(width, color=True))))

    for one, two in zip(plain, coloured, strict=True):
        assert [mark == "·" for mark in one.ljust(len(two))] == [mark == "·" for mark in two.ljust(len(one))]


def test_every_kind_has_a_colour() -> None:
    """Forward, backward and its parts each have a background of their own, and the parts of an overlap have theirs."""
    text = render(chart(pipesched.load("dualpipe", p=4, m=8)), Text(200, color=True))
    found = {letter.upper(): re.findall(rf"48;5;(\d+)m{letter}\d ", text) for letter in ("F", "I", "W", "B")}
    assert all(found.values())
    assert len({colours[0] for colours in found.values()}) == 4
    pair = re.search(r"48;5;(\d+)mF\d\x1b\[0m\x1b\[[\d;]*48;5;(\d+)m\+b\d", text)
    assert pair is not None and pair[1] == found["F"][0] and pair[2] != found["B"][0]


@CALM
@given(strategies.schedules(), st.data())
def test_dots_are_idle_time(schedule: Schedule, data: st.DataObject) -> None:
    """With all of the time on whole columns, the dots of a rank are its idle time in units."""
    costs = data.draw(strategies.costs(schedule.stages))
    run = played(schedule, costs)
    assume(run.makespan > 0)
    text = render(chart(schedule, costs), Text(20_000))
    scale = re.search(r"columns? = (\S+) units? of time", text)
    assert scale is not None
    every, _ = rank_rows(text)
    for rank, row in enumerate(every):
        work = sum(run.end[rank, slot[0]] - run.start[rank, slot[0]] for slot in slots(run.orders[rank]))
        assert row.count("·") * Fraction(scale[1]) == run.makespan - work


def columns_of(row: str, columns: int) -> Counter[str]:
    """How many columns each kind has; idle time is a dot. A name goes on until the next letter or dot."""
    found: Counter[str] = Counter()
    kind = ""
    for mark in row.ljust(columns):
        kind = mark.upper() if mark.upper() in set("FIWB·+") else kind
        found[kind] += 1
    return found


def share_of(
    schedule: Schedule, run: Played, rank: int, part: tuple[int, Fraction], step: Fraction
) -> dict[str, Fraction]:
    """How many columns each kind would have in a part of time if columns could be cut."""
    found = dict.fromkeys("FIWB+·", Fraction(0))
    order = run.orders[rank]
    for slot in slots(order):
        kind = "+" if len(slot) == 2 else order[slot[0]].op.name
        begin, end = max(run.start[rank, slot[0]], part[0]), min(run.end[rank, slot[0]], part[1])
        found[kind] += max(end - begin, Fraction(0)) / step
    found["·"] = -(-(part[1] - part[0]) // step) - sum(found.values())
    return found


def scaled(text: str) -> Fraction:
    """Units of time a column."""
    found = re.search(r"(\d+) columns? = (\S+) units? of time", " ".join(text.split()))
    assert found is not None
    return Fraction(found[2]) / int(found[1])


@settings(CALM, max_examples=deep(37))
@given(strategies.schedules(), st.integers(24, 160), st.data())
def test_columns_are_shares_of_time(schedule: Schedule, width: int, data: st.DataObject) -> None:
    """At any scale, for all time or a part, on every rank: each kind has its share of it in columns, idle time too, to
    within one.
    """
    costs = data.draw(strategies.costs(schedule.stages))
    run = played(schedule, costs)
    begin = data.draw(st.integers(0, int(run.makespan) // 2))
    part = (begin, run.makespan if begin % 2 else Fraction(begin + int(run.makespan) // 2 + 1))
    assume(part[1] <= run.makespan)
    text = render(chart(schedule, costs), Text(width, Viewport(Fraction(begin), part[1])))
    mixed = "a column shows one of the kinds" in " ".join(text.split())
    assume(run.makespan > 0 and (mixed or not schedule.second.any()))  # a name such as F2b1 cannot be read back
    step = scaled(text)
    columns = -int(-(part[1] - begin) // step)
    every, _ = rank_rows(text)
    for rank, row in enumerate(every):
        shares = share_of(schedule, run, rank, part, step)
        drawn = columns_of(row, columns)
        assert sum(drawn.values()) == columns
        assert all(abs(drawn[kind] - share) < 1 for kind, share in shares.items()), (rank, drawn, shares)


@pytest.mark.parametrize("end", [3, 4, 5, 7])
def test_a_part_may_end_within_a_unit(end: int) -> None:
    """F=2, B=4 is drawn by twos: a part that ends at an odd time has half of a unit's columns there, and no more."""
    schedule, costs = pipesched.load("1f1b", p=2, m=3), Costs.parse("F=2,B=4")
    text = render(chart(schedule, costs), Text(80, Viewport(Fraction(0), Fraction(end))))
    columns = -int(-end // scaled(text))
    every, _ = rank_rows(text)
    run = played(schedule, costs)
    for rank, row in enumerate(every):
        drawn = columns_of(row, columns)
        shares = share_of(schedule, run, rank, (0, Fraction(end)), scaled(text))
        assert sum(drawn.values()) == columns
        assert all(abs(drawn[kind] - share) < 1 for kind, share in shares.items())


def test_a_column_shows_what_runs_in_it() -> None:
    """The example of the issue, 1F1B on 8 ranks: 32 forwards of 1 and 32 backwards of 2 on columns of 2 are 16 columns
    and 32; each column shows something that runs in it.
    """
    schedule = pipesched.load("1f1b", p=8, m=32)
    run = played(schedule)
    every, _ = rank_rows(render(chart(schedule), Text(80)))
    for rank, row in enumerate(every):
        assert Counter(row.upper().replace("·", ""))["F"] == 16 and row.upper().count("B") == 32
        for column, mark in enumerate(row):
            begin, end = 2 * column, min(2 * column + 2, int(run.makespan))
            there = {
                run.orders[rank][i].op.name
                for i in range(len(run.orders[rank]))
                if run.start[rank, i] < end and run.end[rank, i] > begin
            }
            assert mark.upper() in there or mark == "·"


@pytest.mark.parametrize("costs", ["F=1", "F=2,B=7", "F=3,I=4,W=1"])
@pytest.mark.parametrize("name", ["1f1b", "zb_h1"])
def test_a_row_names_like_things_alike(name: str, costs: str) -> None:
    """In colour every slot bears letter and number, or its number alone, or no number: at any width one of these."""
    picture = chart(pipesched.load(name, p=4, m=12), Costs.parse(costs))
    seen = set()
    for width in range(70, 260, 10):
        text = render(picture, Text(width, color=True))
        rows = [line for line in text.splitlines() if line.startswith("rank") and "\x1b" in line]
        names = [name.strip() for row in rows for name in re.findall(r"48;5;\d+m([^\x1b]+)", row)]
        forms = {(name[0].isalpha(), name[-1].isdigit()) for name in names}
        assert len(forms) == 1, (width, forms)
        seen |= forms
    assert len(seen) > 1


def test_later_chunks_have_colours_of_their_own() -> None:
    """Four chunks of a rank are four backgrounds, of forwards and of backwards, slot by slot and where columns mix."""
    for width in (240, 100):
        text = render(chart(pipesched.load("interleaved", p=4, v=4, m=8)), Text(width, color=True))
        rows = "".join(line for line in text.splitlines() if "\x1b" in line and line.startswith("rank"))
        colours = {int(colour) for colour in re.findall(r"48;5;(\d+)m", rows)}
        assert len(colours) == 2 * 4


def holding(run: Played, rank: int, begin: Fraction, end: Fraction) -> int:
    """Most that a rank holds from `begin` up to, not including, `end`; of the steps at `begin` the last one counts."""
    change = {Op.F: 1, Op.I: 0, Op.W: -1, Op.B: -1}
    now, before, inside = 0, 0, [0]
    for i, x in enumerate(run.orders[rank]):
        when = run.start[rank, i] if x.op is Op.F else run.end[rank, i]
        now += change[x.op]
        before = now if when <= begin else before
        inside += [now] if begin < when < end else []
    return max(before, *inside)


@pytest.mark.parametrize(("name", "sizes"), SIZES[:4], ids=[name for name, _ in SIZES[:4]])
def test_the_spark_line_is_what_is_held(name: str, sizes: dict[str, int]) -> None:
    """The height of a column is the most that the rank holds in it, a full block the largest peak of all ranks."""
    schedule = pipesched.load(name, **sizes)
    run = played(schedule)
    columns = 3
    _, sparks = rank_rows(render(chart(schedule), Text(columns * int(run.makespan) + 20)))
    top = max(simulate.held(run, Fraction(0), Fraction(1)))
    for rank, line in enumerate(sparks):
        body, peak = line[: columns * int(run.makespan)], line.split()[-1]
        assert Fraction(peak) == simulate.held(run, Fraction(0), Fraction(1))[rank]
        for column, mark in enumerate(body):
            if mark == "│":
                continue
            most = holding(run, rank, Fraction(column, columns), Fraction(column + 1, columns))
            assert mark == SPARKS[-(-most * 7 // int(top))]


@CALM
@given(strategies.schedules())
def test_phases_are_first_backward_and_last_forward(schedule: Schedule) -> None:
    """Warm-up ends where the first backward starts, cool-down begins where the last forward has ended."""
    run, picture = played(schedule), chart(schedule)
    found = phases(schedule, picture.times)
    for rank, order in enumerate(run.orders):
        backward = [run.start[rank, i] for i, x in enumerate(order) if x.op in (Op.I, Op.B)]
        forward = [run.end[rank, i] for i, x in enumerate(order) if x.op is Op.F]
        if not backward:
            assert (found.steady[rank], found.cooling[rank]) == (-1, -1)
            continue
        assert picture.time(int(found.steady[rank])) == min(backward)
        assert picture.time(int(found.cooling[rank])) == max([min(backward), *forward])


def test_bars_stand_between_the_phases() -> None:
    """1F1B, rank 0 of four: the first backward starts at 10, the last forward of eight ends at 22."""
    _, sparks = rank_rows(render(chart(pipesched.load("1f1b", p=4, m=8)), Text(120)))
    assert [column for column, mark in enumerate(sparks[0]) if mark == "│"] == [3 * 10, 3 * 22]


def test_a_window_is_a_part_of_the_whole() -> None:
    """What a viewport shows is what the whole shows there, at the same scale."""
    picture = chart(pipesched.load("zb_h1", p=4, m=8))
    whole, _ = rank_rows(render(picture, Text(100)))
    part, _ = rank_rows(render(picture, Text(100, Viewport(Fraction(7), Fraction(19)))))
    assert part == [row[3 * 7 : 3 * 19].rstrip() for row in whole]
    assert "time 7 to 19 of 27" in render(picture, Text(100, Viewport(Fraction(7), Fraction(19))))


def test_many_chunks_are_named_by_stage() -> None:
    """With more than two chunks on a rank, and room, a label is stage and microbatch, as the order notation says."""
    schedule = pipesched.load("interleaved", p=2, v=3, m=2)
    every, _ = rank_rows(render(chart(schedule), Text(200)))
    for rank, row in enumerate(every):
        assert re.findall(r"[FBfb]\d+\.\d+", row) == [
            (str(x).lower() if (x.stage // 2) % 2 else str(x)) for x in schedule.order(rank)
        ]


@pytest.mark.parametrize("v", [3, 4])
def test_the_width_that_names_stages_is_told(v: int) -> None:
    """Two cases are too few for more chunks: the legend says from which width on stages are named, and they are."""
    picture = chart(pipesched.load("interleaved", p=2, v=v, m=4))
    wide = int(re.findall(r"stages\s+named\s+at\s+--width\s+(\d+)", render(picture, Text(80)))[0])
    assert "microbatch 5;" in render(picture, Text(wide)) and "--width" not in render(picture, Text(wide))
    assert f"--width {wide}" in render(picture, Text(wide - 1))


def test_the_width_that_numbers_microbatches_is_told() -> None:
    """Where a column is a slot and no number has room, the legend says so, and at the width that it names they are."""
    picture = chart(pipesched.load("zb_v", p=4, m=8))
    narrow = render(picture, Text(70))
    assert not re.search(r"\d", "".join(rank_rows(narrow)[0])) and "the number is" not in narrow
    wide = int(re.findall(r"microbatches are numbered at --width (\d+)", narrow)[0])
    assert "the number is the microbatch" in render(picture, Text(wide))
    assert re.search(r"F7", "".join(rank_rows(render(picture, Text(wide)))[0]))


def test_forwards_alone_have_no_phases() -> None:
    """Without a backward there is no warm-up to end: no bar, and no word of phases."""
    schedule = pipesched.load("gpipe", p=3, m=4)
    forwards = [[x for x in schedule.order(rank) if x.op is Op.F] for rank in range(3)]
    text = render(chart(Schedule.from_orders(forwards, schedule.placement)))
    assert "phase" not in text and "│" not in text and "F0 F1" in text
