"""Bubbles, percentages, and the decimals next to exact JSON numbers have the same value in every output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.__main__ import main
from pipesched.analysis.idle import bubble
from pipesched.model.numbers import percent, share, significant
from pipesched.optimizer.verdict import Verdict
from pipesched.views.tables import ratio
from tests.depth import deep
from tests.makers import strategies
from tests.oracles import simulate

UNEVEN = "F=[1,1,2,2.5],B=[2,2,4,5]"
SIZE = ["--p", "4", "--m", "8"]
FILE = """schedule uneven(p = 4, m = 8)
stage s in 0 .. p on rank s
costs F = [1, 1, 2, 2.5], B = [2, 2, 4, 5]
rank r { repeat m { F }  repeat m { B } }
"""


def told(command: str, capsys: pytest.CaptureFixture[str]) -> Any:
    main([*command.split(), "--json"])
    return json.loads(capsys.readouterr().out)


@settings(derandomize=True, deadline=None, max_examples=deep(7, usual=4))
@given(st.data())
def test_the_bubble_is_what_of_the_machine_does_not_compute(data: st.DataObject) -> None:
    """The bubble is the idle time of all ranks, counted second by second, over the time of all ranks; by span it is
    over ranks x the largest span."""
    schedule = data.draw(strategies.schedules())
    costs = data.draw(strategies.costs(schedule.stages))
    played = simulate.run(schedule, simulate.rows(costs, schedule.stages))
    time = pipesched.verify(schedule, costs=costs).parts.time
    assume(time is not None)
    assert time is not None
    spots = [(r, slot[0]) for r, order in enumerate(played.orders) for slot in simulate.slots(order)]
    work = sum(played.end[spot] - played.start[spot] for spot in spots)
    whole, by_span = (schedule.ranks * length for length in (played.makespan, time.span))
    assert time.bubble == (1 - work / whole if whole else 0)
    assert time.span_bubble == (1 - work / by_span if by_span else 0)


def test_every_command_tells_the_same_bubble(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With uneven stages and makespan 72, rank 0 idles 48 and rank 3 idles 12; all ranks idle 132 of 4 x 72, which is
    45.8 %."""
    one = [f"{command} 1f1b --p 4 --m 8 --cost {UNEVEN}" for command in ("verify", "compare", "why", "show")]
    values = [told(command, capsys) for command in one]
    found = [values[0]["time"], values[1]["rows"][0], values[2], values[3]]
    assert {(value["bubble"], value["bubble_decimal"]) for value in found} == {("11/24", 11 / 24)}
    figures = told(f"diff 1f1b gpipe --p 4 --m 8 --cost {UNEVEN}", capsys)["figures"]
    assert figures["bubble"][0] == "11/24"
    for command in one:
        main(command.split())
        shown = " ".join(capsys.readouterr().out.split())
        assert "11/24 = 45.8 %" in shown if "compare" in command else "bubble 45.8 %" in shown
    line = "makespan 72   bubble 45.8 % (idle 12 on rank 3 to 48 on rank 0)"
    assert line in str(pipesched.verify("1f1b", p=4, m=8, costs=UNEVEN))
    (tmp_path / "uneven.ps").write_text(FILE)
    best = pipesched.optimize(tmp_path / "uneven.ps", mem_cap=4)
    work = [24, 24, 48, 60]
    assert best.bubble == 1 - Fraction(sum(work)) / (4 * best.makespan) and f"bubble {percent(best.bubble)}" in str(
        best
    )
    again = pipesched.verify(pipesched.Source("best.ps", best.source))
    assert again.time is not None and again.time.bubble == best.bubble


def test_even_work_is_told_as_a_sum() -> None:
    """The bubble is idle / makespan of any rank; zero-bubble schedules show theirs by span too."""
    assert "makespan 33 = 24 work + 9 idle   bubble 27.3 % (3/11)\n" in str(pipesched.verify("1f1b", p=4, m=8))
    line = "makespan 27 = 24 work + 3 idle   bubble 11.1 % (1/9);  span 24, bubble by span 0 %"
    assert line in str(pipesched.verify("zb_h2", p=4, m=8))
    assert bubble(Fraction(0), ()) == bubble(Fraction(0), (Fraction(0),)) == 0


CLAIMS = [
    ("claim bubble == (p - 1) / (m + p - 1)", True),
    ("claim bubble == idle / makespan and span_bubble == bubble", True),
    ("claim bubble == (p - 1) / m", False),
]


@pytest.mark.parametrize(("claim", "holds"), CLAIMS)
def test_the_bubble_is_a_name_in_claims(claim: str, holds: bool) -> None:
    """GPipe's formula holds; the other definition of the literature is another number."""
    (found,) = pipesched.verify(gpipe(claim)).claims
    assert found.holds is holds


OWN = [
    ("let bubble = 7", "bubble"),
    ("let bubble(k) = k + 6", "bubble(1)"),
    ("let span_bubble = 7", "span_bubble"),
    ("let twice(k) = 2 * k + m - 3", "twice(1)"),
]


@pytest.mark.parametrize(("definition", "use"), OWN)
def test_a_file_may_give_the_name_another_meaning(definition: str, use: str) -> None:
    """Older files that define `bubble` keep their meaning: a value or a function."""
    report = pipesched.verify(gpipe(f"{definition}\nclaim {use} == 7"))
    assert report.ok and report.claims[0].holds


def test_a_parameter_or_a_rank_may_have_the_name() -> None:
    """A parameter keeps its value in claims, and a claim with the rank variable is checked for each rank."""
    text = gpipe("claim bubble == 7 or bubble == 3").text
    assert pipesched.verify(pipesched.Source("g.ps", text.replace("m = 8", "m = 8, bubble = 3"))).claims[0].holds
    ranks = gpipe("claim bubble < p and peak(bubble) == m").text.replace("rank r", "rank bubble")
    assert pipesched.verify(pipesched.Source("g.ps", ranks)).claims[0].holds


def test_an_unknown_name_in_a_claim_lists_those_that_there_are() -> None:
    """The names of claims, then the names of the file; and the nearest name."""
    (found,) = pipesched.verify(gpipe("let share = 1\nclaim bubbel == share")).diagnostics
    assert found.code == "PS201" and found.help is not None
    assert found.help.startswith("did you mean `bubble`? a claim may use makespan, span, bubble, span_bubble, work(r)")
    assert found.help.endswith("tM, tK, p, m, share")


def gpipe(more: str) -> pipesched.Source:
    text = "schedule g(p = 4, m = 8)\nstage s in 0 .. p on rank s\nrank r { repeat m { F }  repeat m { B } }\n"
    return pipesched.Source("g.ps", text + more + "\n")


def test_a_gap_is_never_rounded_to_none() -> None:
    """A schedule above its bound shows a gap; relative to a bound of 0 there is none."""
    for value, lower, said in (
        (103, 100, "gap 3.0 %, bound 100"),
        (100_001, 100_000, "gap 0.001 %"),
        (3, 0, "3, bound 0"),
    ):
        line = Verdict("makespan", Fraction(value), Fraction(lower), "a bound", "a bound").line
        assert line.startswith("best found: makespan") and said in line and "gap 0 " not in line and "0.0 %" not in line


def test_per_cent_has_the_digits_that_are_asked_for() -> None:
    """A percentage has one decimal, or the given digits, and no trailing zeros; a large fraction is not shown."""
    third = Fraction(1, 3)
    assert [percent(x) for x in (third, Fraction(1, 5), Fraction(1), Fraction(0))] == ["33.3 %", "20 %", "100 %", "0 %"]
    for digits, shown in ((1, "33 %"), (2, "33 %"), (4, "33.33 %"), (9, "33.3333333 %")):
        with significant(digits):
            assert percent(third) == shown
            assert percent(third / 1000) == {1: "0.03 %", 2: "0.033 %", 4: "0.03333 %", 9: "0.0333333333 %"}[digits]
    assert percent(third) == "33.3 %"
    near = (Fraction(1, 400_000), Fraction(399_999, 400_000), Fraction(-1, 4000), Fraction(1999, 2000))
    assert [percent(x) for x in near] == ["0.0003 %", "99.9998 %", "-0.03 %", "99.95 %"]
    assert (ratio(third), share(third)) == ("1/3 = 33.3 %", "33.3 % (1/3)")
    assert ratio(Fraction(65873, 427073)) == share(Fraction(65873, 427073)) == "15.4 %"


@pytest.mark.parametrize("command", ["verify", "compare", "why", "show", "diff", "optimize"])
def test_digits_are_an_option_of_every_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The first command shows 11.11 % for 1/9, and the next one 11.1 %."""
    names = ["zb_h1", "1f1b"] if command == "diff" else ["zb_h1"]
    main([command, *names, *SIZE, "--digits", "4"])
    assert "11.11 %" in capsys.readouterr().out
    main([command, *names, *SIZE])
    assert "11.11 %" not in capsys.readouterr().out
    assert main([command, *names, *SIZE, "--digits", "0"]) == 2


JSON = [
    "verify 1f1b zb_v --p 4 --m 8 --cost F=1/3,B=2/3,M=1/2 --mem-cap 7/2",
    "verify interleaved --p 2 --v 3 --m 4 --cost F=[1,2,3,1/2,1,1] --mem-cap 5,9/2",
    "verify broken.ps",
    "compare zb_h2 zb_v dualpipe --p 4 --m 8 --cost C=1/3",
    "why zb_h1 --p 4 --m 8 --cost F=[1,1,1,2],C=1/2",
    "diff zb_h1 zb_h2 --p 3 --m 6 --cost F=1/2",
    "show zb_h1 --p 2 --m 2 --cost F=1/2",
    "optimize --p 2 --m 3 --mem-cap 3/2 --cost F=1/2,B=1",
    "optimize --p 2 --m 3 --mem-cap 1..2 --cost F=1/2,B=1",
    "optimize --p 2 --m 4 --mem-cap 2 --cost F=1/2,B=1 --all-m",
]


@pytest.mark.parametrize("command", JSON)
def test_decimals_stand_beside_every_number_that_may_be_a_fraction(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KEY_decimal is KEY as a JSON number; a key has it in every object or in none."""
    monkeypatch.chdir(tmp_path)
    Path("broken.ps").write_text("schedule broken(")
    pairs = [*walked(told(command, capsys))]
    assert pairs or "broken" in command
    for key, exact, decimal in pairs:
        assert as_floats(exact) == decimal, key


NUMBERS = {"makespan", "span", "bubble", "span_bubble", "work", "idle", "span_idle", "peak", "cap", "mem_cap", "costs"}
NUMBERS |= {"lower_bound", "gap", "value", "growth", "overhead", "parameters_per_rank", "split", "instead", "figures"}
NUMBERS |= {"start", "end", "begin", "common"}


def walked(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield every number that may be a fraction, with its decimal."""
    if isinstance(value, list):
        for entry in value:
            yield from walked(entry)
    if isinstance(value, dict):
        for key in (key for key in value if not key.endswith("_decimal")):
            if f"{key}_decimal" in value:
                yield key, value[key], value[f"{key}_decimal"]
            else:
                assert not is_number(value[key]) or key not in NUMBERS, key
                assert not isinstance(value[key], str) or not re.fullmatch(r"-?\d+/\d+", value[key]), key
                yield from walked(value[key])


def is_number(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and re.fullmatch(r"-?\d+/\d+", value) is not None)


def as_floats(value: Any) -> Any:
    if isinstance(value, list):
        return [as_floats(entry) for entry in value]
    if isinstance(value, dict):
        return {key: as_floats(entry) for key, entry in value.items()}
    return None if value is None else float(Fraction(value))


def test_a_decimal_of_an_answer_is_compared_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bound given as 22.5 and as 20 is two bounds: no answer with both is right."""
    answer = told("optimize --p 2 --m 3 --mem-cap 2 --cost F=1/2,B=1", capsys)
    file = tmp_path / "answer.json"
    places = [(answer, "lower_bound_decimal"), (answer["costs_decimal"], "F"), (answer["certificate"], "gap_decimal")]
    for inside, key in [*places, (answer["certificate"]["bound_decimal"], "tail"), (answer, "peak_decimal")]:
        right, inside[key] = inside[key], 0.25
        file.write_text(json.dumps(answer))
        assert main(["verify", str(file)]) == 1
        inside[key] = right
    file.write_text(json.dumps(answer))
    assert main(["verify", str(file)]) == 0


def test_large_fractions_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """After `calibrate` a bubble is 65873/427073: the table and the verdict show per cent."""
    costs = "F=10007,I=10009,W=9973,C=13"
    for command in ("verify 1f1b", "compare 1f1b zb_h1", "why 1f1b", "show 1f1b"):
        main([*command.split(), *SIZE, "--cost", costs])
        shown = capsys.readouterr().out
        assert re.search(r"\d %", shown) and not re.search(r"\d{4,}/\d{4,}", shown)


def test_a_schedule_in_memory_has_the_same_bubble() -> None:
    """The report on an object equals the report on its file."""
    schedule = pipesched.load("zb_v", p=4, m=8)
    one, two = pipesched.verify(schedule).time, pipesched.verify("zb_v", p=4, m=8).time
    assert one is not None and two is not None and (one.bubble, one.span_bubble) == (two.bubble, two.span_bubble)
