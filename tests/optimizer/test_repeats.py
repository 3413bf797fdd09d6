"""A file that is written for every m repeats the same kernel at each m."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest

import pipesched
from pipesched import compile
from pipesched.examine import Options
from pipesched.language.parser import parse
from pipesched.optimizer.proof.repeats import unrepeated
from pipesched.optimizer.solve.seam import _repeats
from pipesched.support.source import Source

HEAD = "schedule one(p = 2, m = 6)\nstage s in 0 .. {stages} on rank s % p\nrank r {{ {program} }}\n"

REPEATED = [
    ("repeat m { F I W }", 1, 2),
    ("for i in r .. m + r { F I W }", 1, 2),
    ("F repeat m - 1 { F I W } I drain W", 1, 2),
    ("if r < 1 { F repeat m - 1 { F I W } I W } else { F F I repeat m - 2 { F I W } I drain W }", 1, 2),
    ("F F repeat (m - 2) // 2 { F F I W I W } repeat 2 { I W }", 2, 2),
    ("repeat r { F } repeat (2 + m) - 2 - r { F I W } repeat r { I W }", 1, 2),
    ("for i in 0 .. 2 { F } repeat m - 2 { F I W } I I W W", 1, 2),
    ("F[0] F[1] repeat m - 1 { F[0] F[1] I[1] I[0] W[0] W[1] } I[1] W[1] I[0] W[0]", 1, 4),
]
OTHERS = {
    "m determines more": [
        ("for i in 0 .. m { if i < 9 { F I W } }", 1, 2),
        ("repeat m { F } repeat m { I W }", 1, 2),
        ("repeat 2 * m - m { F I W }", 1, 2),
        ("repeat 6 - m { F I W } repeat m { F I W }", 1, 2),
        ("repeat m { F I if m > 7 { W } } drain W", 1, 2),
        ("if m > 6 { repeat m { F I W } } else { repeat m { F I } drain W }", 1, 2),
        ("let n = m repeat n { F I W }", 1, 2),
        ("F F repeat (m - 2) // 2 { F F I W I W } repeat 2 { I W }", 1, 2),
    ],
    "names its microbatch": [("F(1) F(0) repeat m - 2 { F I W } I I W W", 1, 2)],
    "a W does not name its stage": [
        ("repeat m { F[0] F[1] I[1] I[0] W W }", 1, 4),
        ("repeat m { F[0] F[1] I[1] I[0] } drain W", 1, 4),
    ],
    "depends on earlier ones": [("repeat m { F I if pending > 2 { W } } drain W", 1, 2)],
    "calls": [("let f(k) = k  repeat m + f(r) - r { F I W }", 1, 2)],
}


def said(program: str, step: int, stages: int) -> str:
    """Return the reason why a program is not a repeated part."""
    return unrepeated(parse(Source("one.ps", HEAD.format(program=program, stages=stages))), step, [stages // 2] * 2)


@pytest.mark.parametrize(("program", "step", "stages"), REPEATED)
def test_a_part_is_repeated_at_each_m(program: str, step: int, stages: int) -> None:
    """The orders of m0 + jK are x b^j y, read as text, for the x, b and y of j = 0 and 1."""
    assert said(program, step, stages) == ""
    text = HEAD.format(program=program, stages=stages)
    words = [orders(text, 6 + j * step) for j in range(6)]
    for rank in (0, 1):
        first, second = words[0][rank], words[1][rank]
        size = len(second) - len(first)
        at = next(i for i in range(len(first) + 1) if first[:i] + second[i : i + size] + first[i:] == second)
        part = second[at : at + size]
        assert part and [word[rank] for word in words] == [first[:at] + part * j + first[at:] for j in range(6)]


def orders(text: str, m: int) -> list[list[str]]:
    """Return the letters of every rank: kinds and stages."""
    schedule = compile.load(Source("one.ps", text), Options({"m": m})).schedule
    return [[f"{one.op.name}{one.stage}" for one in schedule.order(rank)] for rank in range(schedule.ranks)]


@pytest.mark.parametrize("why", OTHERS)
def test_what_is_no_repeated_part_is_named(why: str) -> None:
    """An order that may be different at some m is not accepted as copies of a part."""
    assert all(why in said(*case) for case in OTHERS[why]), [said(*case) for case in OTHERS[why]]


@pytest.mark.parametrize("line", ["stage s in 0 .. p on rank (s + m) % p", "costs F = m", "slices 2", "let a = m"])
def test_m_is_nowhere_else(line: str) -> None:
    """m is not in the placement, the costs, or a name."""
    text = HEAD.format(program="repeat m { F I W }", stages=2).replace("stage", line + "\nstage", 1)
    assert "line 2" in unrepeated(parse(Source("one.ps", text)), 1, [1, 1])


@pytest.mark.parametrize(
    ("condition", "step", "holds"),
    [
        ("m >= 4", 1, True),
        ("m > p and m - 1 >= 3", 1, True),
        ("m >= 4 and m % 3 == 0", 3, True),
        ("m % 3 == 0", 2, False),
        ("m <= 50", 1, False),
        ("m >= 4 and m != 50", 1, False),
        ("p * m >= 2 * m", 1, False),
    ],
)
def test_a_file_of_every_m_is_for_every_m(condition: str, step: int, holds: bool) -> None:
    """A file that may refuse a larger m is not for every m; any other one is for all m that were tried."""
    text = HEAD.format(program="repeat m { F I W }", stages=2).replace("stage", f"require {condition}\nstage", 1)
    wrong = unrepeated(parse(Source("one.ps", text)), step, [1, 1])
    assert wrong == ("" if holds else "line 2 does not allow every m")
    if holds:
        assert all(orders(text, 6 + j * step) for j in range(20))


def test_no_size_at_which_it_is_another_order_is_overlooked() -> None:
    """An answer for every m whose file differs at a single, distant size is refused."""
    answer = pipesched.optimize(p=2, mem_cap=2, all_m=True).to_json()
    source = str(answer["source"])
    changed = re.sub(r"\n  W\n}", "\n  W  if m == 97 { F }\n}", source, count=1)
    assert changed != source
    for text, codes in ((source, []), (changed, ["PS715"])):
        report = pipesched.verify(Source("answer.json", json.dumps({**answer, "source": text})))
        assert [str(found.code) for found in report.diagnostics] == codes


@pytest.mark.parametrize("seed", range(60))
def test_where_starts_repeat_is_found_however_fine_ticks_are(seed: int) -> None:
    """All ranges of t in which every table has K more starts a period later, by counting at each t; and stretched by a
    hundred million, where no memory holds all t.
    """
    draw, (every, period) = random.Random(seed), [(1, 3), (1, 4), (2, 5), (1, 1)][seed % 4]
    tables = [sorted(draw.sample(range(24), draw.randint(2, 9))) for _ in range(draw.randint(1, 3))]
    if seed % 2:  # else hardly any repeats
        tables = [sorted(draw.randint(0, 2) + period // every * n for n in range(9)) for _ in tables]
    last = max(table[-1] for table in tables) + 1
    good = [
        all(sum(x <= t + period for x in table) == sum(x <= t for x in table) + every for table in tables)
        for t in range(-1, last + 1)
    ]
    runs, begin = [], None
    for t, holds in zip(range(-1, last + 2), [*good, False], strict=True):
        if holds and begin is None:
            begin = t
        if not holds and begin is not None:
            runs.append((begin, t - 1))
            begin = None
    runs.sort(key=lambda run: run[0] - run[1])
    assert [*_repeats([np.array(table) for table in tables], every, period)] == runs
    fine = 10**8
    found = [*_repeats([np.array(table) * fine for table in tables], every, period * fine)]
    inside = [(max(low, 0) * fine, high * fine) for low, high in runs if high > low >= 0 and high < last]
    assert all(any(low <= a and b <= high for low, high in found) for a, b in inside)
