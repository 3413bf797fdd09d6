"""In charts made of characters every slot is drawn at its time, idle time is drawn as dots, and no line is too long.

The oracle is the slow simulation (`oracles/simulate.py`) and its state of each rank, instant by instant; the text is
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
from pipesched.model.costs import Costs
from pipesched.model.ops import Compute, Op
from pipesched.model.schedule import Schedule
from pipesched.views.chart.axis import Viewport
from pipesched.views.chart.chart import chart
from pipesched.views.chart.text import Text, render
from tests.depth import deep
from tests.makers import strategies
from tests.oracles import simulate
from tests.oracles.simulate import Played, rows, slots

CALM = settings(derandomize=True, deadline=None, max_examples=deep(10, usual=5))
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
    """Return the rows of the chart and of the memory, without the names of the ranks."""
    text = text.partition("\n\n")[2]
    named = [re.match(r"(rank \d+ +)(?!stops)\S", line) for line in text.splitlines()]
    gutter = next(len(match[1]) for match in named if match)
    found = [line[gutter:] for line in text.splitlines() if re.match(r"rank \d+ (?! *stops)", line)]
    half = len(found) // 2
    return found[:half], found[half:]


def label(x: Compute, chunk: int) -> str:
    return f"{x.op.name.lower() if chunk % 2 else x.op.name}{x.microbatch}"


def drawn(schedule: Schedule, run: Played, rank: int, columns: int) -> Iterator[tuple[int, str]]:
    """Yield the column and the label of every slot of a rank, at a number of columns per unit, by the simulation."""
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
    """If a letter, a number and a blank fit in a unit, the row is the order, each slot at its time."""
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
    """At any width and costs, for right and broken schedules, all ranks are drawn and no line is cut."""
    costs = data.draw(strategies.costs(schedule.stages))
    text = render(chart(schedule, costs), Text(width, ascii=ascii))
    rows = [line for line in text.partition("\n\n")[2].splitlines() if re.match(r"rank \d+ +(?!stops)", line)]

    assert len(rows) == 2 * schedule.ranks
    assert max(map(len, text.splitlines())) <= width
    assert text.isascii() or not ascii


def columns_of(row: str, columns: int) -> str:
    """Return the kind of each column; idle time is a dot. A name extends to the next letter or dot."""
    found = ""
    for mark in row.ljust(columns):
        found += mark.upper() if mark.upper() in set("FIWB·+") else found[-1]
    return found


def share_of(
    schedule: Schedule, run: Played, rank: int, part: tuple[int, Fraction], step: Fraction
) -> dict[str, Fraction]:
    """Return the exact share of columns of each kind in a part of time."""
    found = dict.fromkeys("FIWB+·", Fraction(0))
    order = run.orders[rank]
    for slot in slots(order):
        kind = "+" if len(slot) == 2 else order[slot[0]].op.name
        begin, end = max(run.start[rank, slot[0]], part[0]), min(run.end[rank, slot[0]], part[1])
        found[kind] += max(end - begin, Fraction(0)) / step
    found["·"] = -(-(part[1] - part[0]) // step) - sum(found.values())
    return found


def rounded(schedule: Schedule, run: Played, rank: int, part: tuple[int, Fraction], step: Fraction) -> str:
    """Return the kind of each column where every slot has the columns from its rounded start to its rounded end."""
    found = ["·"] * -int(-(part[1] - part[0]) // step)
    for i, x in enumerate(run.orders[rank]):
        ends = (min(max(instant, part[0]), part[1]) for instant in (run.start[rank, i], run.end[rank, i]))
        first, last = (int((instant - part[0]) / step + Fraction(1, 2)) for instant in ends)
        found[first:last] = x.op.name * (last - first)
    return "".join(found)


def scaled(text: str) -> Fraction:
    """Return the units of time per column."""
    found = re.search(r"(\d+) columns? = (\S+) units? of time", " ".join(text.split()))
    assert found is not None
    return Fraction(found[2]) / int(found[1])


@settings(CALM, max_examples=deep(18, usual=9))
@given(strategies.schedules(), st.integers(24, 160), st.data())
def test_columns_are_shares_of_time(schedule: Schedule, width: int, data: st.DataObject) -> None:
    """At any scale, for all or a part of the time, on every rank: a slot begins and ends within half a column of its
    time; where columns hold several slots, those of each kind are its share of the time, idle time too, within three
    halves of a column.
    """
    costs = data.draw(strategies.costs(schedule.stages))
    run = played(schedule, costs)
    begin = data.draw(st.integers(0, int(run.makespan) // 2))
    part = (begin, run.makespan if begin % 2 else Fraction(begin + int(run.makespan) // 2 + 1))
    assume(part[1] <= run.makespan)
    text = render(chart(schedule, costs), Text(width, Viewport(Fraction(begin), part[1])))
    mixed = "a column covers several slots" in " ".join(text.split())
    assume(run.makespan > 0 and (mixed or not schedule.second.any()))  # a name such as F2b1 cannot be read back
    step = scaled(text)
    columns = -int(-(part[1] - begin) // step)
    every, _ = rank_rows(text)
    for rank, row in enumerate(every):
        drawn = columns_of(row, columns)
        if not mixed:
            assert drawn == rounded(schedule, run, rank, part, step), rank
            continue
        shares, count = share_of(schedule, run, rank, part, step), Counter(drawn)
        assert len(drawn) == columns
        assert all(2 * abs(count[kind] - share) < 3 for kind, share in shares.items()), (rank, drawn, shares)


def holding(run: Played, rank: int, begin: Fraction, end: Fraction) -> int:
    """Return the most that a rank holds from `begin` up to, not including, `end`; of several steps at `begin` the last
    one counts.
    """
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
    """The height of a column is the most that the rank holds in it; a full block is the largest peak of all ranks."""
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
