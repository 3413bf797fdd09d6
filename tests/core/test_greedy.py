"""An order that a rule determines equals the order in a slow simulation at the costs in the file, whatever the other
options are."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

import pipesched
from pipesched.diagnostics import Code
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source
from tests.depth import deep

PLACEMENTS = {
    "stage s in 0 .. p on rank s": lambda p: list(range(p)),
    "stage s in 0 .. 2 * p on rank s % p": lambda p: [*range(p), *range(p)],
    "stage s in 0 .. 2 * p on rank min(s, 2 * p - 1 - s)": lambda p: [*range(p), *reversed(range(p))],
}
Line = tuple[str, int, str, Fraction]


def order(text: str, **sizes: int) -> list[list[str]]:
    """Return the order of every rank."""
    schedule = pipesched.load(Source("x.ps", text), **sizes)
    assert isinstance(schedule, Schedule)
    return [[str(operation) for operation in schedule.order(rank)] for rank in range(schedule.ranks)]


def clocked(ranks: list[int], m: int, rules: list[list[Line]], costs: dict[str, int]) -> list[list[str]] | None:
    """Return the operations that the rules give, by checking every rank at every instant; None for a standstill.

    ranks: of the stages. A line is a letter, a chunk, what its condition counts ("", "held" or "pending"), and how much
    of that there may be less than.
    """
    p, stages = max(ranks) + 1, len(ranks)
    chunks = [[s for s in range(stages) if ranks[s] == r] for r in range(p)]
    written: list[list[str]] = [[] for _ in range(p)]
    free, ended = [0] * p, dict[tuple[str, int, int], int]()
    run = {(kind, s): 0 for kind in "FGW" for s in range(stages)}
    pending: list[list[tuple[int, int]]] = [[] for _ in range(p)]
    held = [Fraction(0)] * p

    def come(kind: str, s: int, i: int, r: int, now: int) -> bool:
        late = 0 if ranks[s] == r else costs["C"]
        return (kind, s, i) in ended and ended[kind, s, i] + late <= now

    def upcoming(r: int, letter: str, s: int, now: int) -> int | None:
        """Return the next microbatch, if it can run."""
        if letter == "W":
            return next((i for t, i in pending[r] if t == s), None)
        i = run["F" if letter == "F" else "G", s]
        if i == m:
            return None
        if letter == "F":
            return i if s == 0 or come("F", s - 1, i, r, now) else None
        return i if (come("F", s, i, r, now) if s == stages - 1 else come("G", s + 1, i, r, now)) else None

    now = 0
    while now <= max(free) + max(costs.values()):
        for r in range(p):
            for letter, chunk, counted, less in rules[r] if free[r] <= now else ():
                s = chunks[r][chunk]
                i = upcoming(r, letter, s, now)
                allowed = {"": True, "held": held[r] < less, "pending": len(pending[r]) < less}[counted]
                if i is None or not allowed:
                    continue
                written[r].append(f"{letter}{s}.{i}")
                free[r] = now + costs[letter]
                if letter == "W":
                    pending[r].remove((s, i))
                else:
                    run["F" if letter == "F" else "G", s] += 1
                if letter == "I":
                    pending[r].append((s, i))
                if letter in "IB":
                    ended["G", s, i] = free[r]
                if letter == "F":
                    ended["F", s, i] = free[r]
                held[r] += {"F": Fraction(p, stages), "I": Fraction(0)}.get(letter, -Fraction(p, stages))
                break
        now += 1
    left = any(x < m for (kind, s), x in run.items() if kind != "W")
    waiting = any(pending[r] and any(line[0] == "W" for line in rules[r]) for r in range(p))
    return None if left or waiting else written


@pytest.mark.parametrize("seed", range(deep(15)))
def test_a_rule_writes_what_a_slow_clock_writes(seed: int) -> None:
    """For any lines in any order, any placement and any costs, both give the same operations in the same order, or both
    come to a standstill.
    """
    rng = random.Random(seed)
    p, m = rng.randint(1, 4), rng.randint(1, 6)
    placement = rng.choice(list(PLACEMENTS))
    ranks = PLACEMENTS[placement](p)
    costs = {key: rng.randint(1, 4) for key in "FIWB"} | {"C": rng.randint(0, 3)}
    rules: list[list[Line]] = []
    for _ in range(p):
        split = rng.random() < 0.5
        lines: list[Line] = []
        for chunk in range(len(ranks) // p):
            for letter in ("F", "I", "W") if split else ("F", "B"):
                limited = rng.random() < 0.5
                counted = "held" if letter == "F" and limited else "pending" if letter == "I" and limited else ""
                lines.append((letter, chunk, counted, Fraction(rng.randint(1, 2 * p + 1), rng.choice([1, 1, 2]))))
        rules.append(rng.sample(lines, len(lines)))
    said = [
        "  ".join(f"{x}[{c}]" + (f" when {counted} < {less}" if counted else "") for x, c, counted, less in lines)
        for lines in rules
    ]
    given = ", ".join(f"{key} = {cost}" for key, cost in costs.items())
    programs = "\n".join(f"rank {r} {{ greedy {{ {lines} }} }}" for r, lines in enumerate(said))
    text = f"schedule x(p, m)\n{placement}\ncosts {given}\n{programs}\n"
    expected = clocked(ranks, m, rules, costs)
    found = pipesched.verify(Source("x.ps", text), p=p, m=m)
    if expected is None:
        assert [x.code for x in found.diagnostics] == ["PS229"]
    else:
        assert order(text, p=p, m=m) == expected


PUBLISHED = {
    "1f1b": "rank r { greedy { B  F when held < p - r } }",
    "gpipe": "rank r { greedy { F  B } }",
}


@pytest.mark.parametrize("p", [1, 2, 5])
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_orders_follow_from_rules(name: str, p: int) -> None:
    """1F1B runs a backward if possible, else a forward while fewer than p - r are held; GPipe likewise."""
    text = f"schedule x(p, m)\nstage s in 0 .. p on rank s\ncosts B = 2\n{PUBLISHED[name]}"
    published = pipesched.load(name, p=p, m=3 * p)
    assert isinstance(published, Schedule)
    assert order(text, p=p, m=3 * p) == [[str(x) for x in published.order(r)] for r in range(p)]


WAVE = """schedule wave(p, m = 6, b = 2)
stage s in 0 .. 2 * p on rank min(s, 2 * p - 1 - s)
costs B = b
rank r { greedy { B[1]  B[0]  F[1]  F[0] when held < p } }
"""


def test_costs_of_the_command_line_change_no_order() -> None:
    """--cost changes the times of the order; the order follows from the costs in the file, parameters included."""
    source, costs = Source("x.ps", WAVE), "F=7,B=1,C=9"
    plain, asked = pipesched.verify(source, p=3), pipesched.verify(source, p=3, costs=costs)
    listed = "".join(f"rank {r}: {' '.join(line)}\n" for r, line in enumerate(order(WAVE, p=3)))
    same = pipesched.verify(Source("x.txt", listed), costs=costs)
    assert plain.time is not None and asked.time is not None and same.time is not None
    assert plain.time.makespan != asked.time.makespan == same.time.makespan
    assert order(WAVE, p=3, b=2) != order(WAVE, p=3, b=0)
    for report in (plain, asked):
        assert "ordered by `greedy` with the costs in the file: B=2" in str(report)


def test_a_list_before_a_rule_and_ranks_without_one_share_the_clock() -> None:
    """Operations before the rule run first, and ranks with a plain list share the clock."""
    text = """schedule x(p, m)
stage s in 0 .. p on rank s
rank 0 { F  F  greedy { B  F when held < p } }
rank r { let warmup = min(p - 1 - r, m)  repeat warmup { F }  repeat m - warmup { overlap(F, B) }  repeat warmup { B } }
"""
    text = text.replace("overlap(F, B)", "F  B")
    published = pipesched.load("1f1b", p=4, m=7)
    assert isinstance(published, Schedule)
    assert order(text, p=4, m=7) == [[str(x) for x in published.order(r)] for r in range(4)]


def test_frozen_stages_want_less_of_a_rule() -> None:
    """A line whose operation is not needed takes no time and writes nothing."""
    text = """schedule x(p, m, e = 1)
stage s in 0 .. p on rank s
frozen s in 0 .. e
rank r { greedy { B  F when held < p - r } }
"""
    found = order(text, p=3, m=4)
    assert found[0] == ["F0.0", "F0.1", "F0.2", "F0.3"]
    assert found[2] == ["F2.0", "B2.0", "F2.1", "B2.1", "F2.2", "B2.2", "F2.3", "B2.3"]
    assert pipesched.verify(Source("x.ps", text), p=3, m=4).ok


HEAD = "schedule x(p, m)\nstage s in 0 .. 2 * p on rank s % p\n"
WRONG = {
    "not the last": ("rank r { greedy { F[0] } B[0] }", 3, "PS229"),
    "in a loop": ("rank r { repeat m { greedy { F[0] } } }", 3, "PS229"),
    "in a choice": ("rank r { if r == 0 { greedy { F[0] } } }", 3, "PS229"),
    "twice": ("rank r { greedy { F[0] }\n greedy { F[1] } }", 3, "PS229"),
    "a microbatch": ("rank r { greedy { F[0](1) } }", 3, "PS229"),
    "an overlap": ("rank r { greedy { overlap(F, B) } }", 3, "PS101"),
    "a loop inside": ("rank r { greedy { repeat 2 { F[0] } } }", 3, "PS101"),
    "no chunk": ("rank r { greedy { F[0]  B[2] } }", 3, "PS212"),
    "which chunk": ("rank r { greedy { F } }", 3, "PS217"),
    "held outside": ("rank r { if held < 2 { F[0] } }", 3, "PS201"),
    "held of no chunk": ("rank r { greedy { F[0] when held(2) < 1 } }", 3, "PS212"),
    "held of two": ("rank r { greedy { F[0] when held(0, 1) < 1 } }", 3, "PS204"),
    "a number": ("rank r { greedy { F[0] when held } }", 3, "PS205"),
    "by zero": ("rank r { greedy { F[0] when 1 // pending > 1 } }", 3, "PS206"),
    "an unknown name": ("rank r { greedy { F[0] when hold < 1 } }", 3, "PS201"),
    "a standstill": ("rank r { greedy { B[1]  B[0]  F[1]\n F[0] when held < 0 } }", 4, "PS229"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_rule_is_told_where_it_is(case: str) -> None:
    """The only finding has the code of the case, at its line."""
    program, line, code = WRONG[case]
    found = pipesched.verify(Source("x.ps", HEAD + program), p=2, m=4).diagnostics
    assert [(x.code, x.where.line) for x in found if x.where] == [(code, line)]


def test_a_rule_for_too_much_is_refused() -> None:
    """Too much work is refused within seconds, at its line, with the option that raises the limit."""
    source = Source("x.ps", WAVE)
    (found,) = pipesched.verify(source, p=4, m=40, max_ops=700).diagnostics
    assert found.code == "PS211" and found.where is not None and found.where.line == 4
    assert "--max-ops" in (found.help or "") and pipesched.verify(source, p=4, m=40, max_ops=70_000).ok


OWN = {
    "a parameter": "schedule x(p, m, greedy = 3, held = 0)\nstage 0 on rank 0\nrank 0 { repeat greedy + held { F } }",
    "a value": "schedule x(p, m)\nlet greedy = 3\nlet held = 0\nstage 0 on rank 0\nrank 0 { repeat greedy { F } }",
    "a function": "schedule x(p, m)\nlet greedy(k) = k\nstage 0 on rank 0\nrank 0 { repeat greedy(3) { F } }",
    "in a program": "schedule x(p, m)\nstage 0 on rank 0\nrank 0 { let greedy = 3  repeat greedy { F } }",
    "a loop": "schedule x(p, m)\nstage 0 on rank 0\nrank 0 { for greedy in 0 .. 3 { F(greedy) } }",
    "the rank": "schedule x(p, m)\nstage 0 on rank 0\nrank greedy { repeat greedy + 3 { F } }",
    "the schedule": "schedule greedy(p, m)\nstage held in 0 .. p on rank held\nrank held { repeat held + 3 { F } }",
}


@pytest.mark.parametrize("text", OWN.values(), ids=OWN.keys())
def test_the_meaning_of_the_file_comes_first(text: str) -> None:
    """In a file that defines `greedy` or `held`, the name has that meaning."""
    assert order(text, p=1, m=4) == [["F0.0", "F0.1", "F0.2"]]


def test_a_condition_knows_a_file_s_own_held() -> None:
    """The file's own definition wins in conditions too."""
    text = "schedule x(p, m, held = 5)\nstage 0 on rank 0\nrank 0 { greedy { F when held < 9  B } }"
    assert order(text, p=1, m=3) == [["F0.0", "F0.1", "F0.2", "B0.0", "B0.1", "B0.2"]]


@pytest.mark.parametrize("head", ["greedi {", "greedy"])
def test_a_head_that_is_wrong_is_one_finding(head: str) -> None:
    """The conditions below it are not reported as well; a second `rank` is read as usual."""
    brace = "  }\n" if "{" in head else ""
    text = f"""schedule w(p, m)
stage s in 0 .. p on rank s
rank 0 {{
  {head}
    B
    F when held < 2
{brace}}}
rank 1 {{ F B when }}
"""
    found = pipesched.verify(Source("w.ps", text), p=2, m=2).diagnostics
    assert [(x.code, x.where and x.where.line) for x in found] == [(Code.SYNTAX, 4), (Code.SYNTAX, 8 + bool(brace))]


def test_a_pair_of_f_and_i_takes_the_time_of_both() -> None:
    """On the clock of a rule as in `verify`: FB applies to F and B only, so an I can end before the last F."""
    text = """schedule x(p, m)
stage s in 0 .. 2 on rank s
costs F = 1, I = 1, W = 1, FB = 10
rank 0 { greedy { I  F  W } }
rank 1 { F  repeat m - 1 { overlap(F, I) }  I  drain W }
"""
    assert order(text, p=2, m=6)[0][:6] == ["F0.0", "F0.1", "F0.2", "F0.3", "I0.0", "F0.4"]
