"""Costs and release rules have their documented meaning; invalid costs and rules are refused with a code."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.__main__ import main
from pipesched.analysis.timeline import costs_used
from pipesched.diagnostics import PipeschedError
from pipesched.model.costs import Costs
from pipesched.model.ops import LETTERS, Compute, Op
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers import strategies
from tests.makers.placements import linear
from tests.oracles.simulate import rows

KEYS = ("F", "I", "W", "B", "FB", "C")
"""The times; M is what one F holds."""
FOLLOW = KEYS[:-1]


def refused(error: pytest.ExceptionInfo[PipeschedError]) -> str:
    (found,) = error.value.diagnostics
    return str(found.code)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("F=1", {"F": Fraction(1)}),
        (" F = 3/2 , I=0.25,", {"F": Fraction(3, 2), "I": Fraction(1, 4)}),
        ("F=[1,2.5, 7/3],C=0", {"F": (Fraction(1), Fraction(5, 2), Fraction(7, 3)), "C": Fraction(0)}),
        ("FB=3,B=2,W=999999999999999", {"FB": Fraction(3), "B": Fraction(2), "W": Fraction(10**15 - 1)}),
        ("M=[0,1, 3/2]", {"M": (Fraction(0), Fraction(1), Fraction(3, 2))}),
        ("", {}),
    ],
)
def test_costs_are_read_exactly(text: str, expected: dict[str, Fraction | tuple[Fraction, ...]]) -> None:
    """Integers, decimals and fractions stay exact; a list is by stage."""
    assert dict(Costs.parse(text).given) == expected


NO_COSTS = """F|F=|F=-1|F=1e3|F=1/0|F=1/|F=.5|F=nan|F=inf|F=0x1|F=١|F=1 2|G=1|f=1|F=1,F=2|F=[]|F=[1|F=1]
F=[1,,2]|F=[[[1]]]|=1|F==1|F=1;I=2|F=9999999999999999|F=1/9999999999|M=-1|M=[1,-2]|M=[]|m=1|M=1,M=1"""


@pytest.mark.parametrize("text", re.split(r"[|\n]", NO_COSTS))
def test_what_is_no_cost_is_refused(text: str) -> None:
    """PS222 refuses unknown or repeated keys, and values other than numbers from 0 up with at most 15 digits."""
    with pytest.raises(PipeschedError) as error:
        Costs.parse(text)
    assert refused(error) == "PS222"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("F = 1.5\nI = [1, 2.25]\nC = 0\n", "F=1.5,I=[1,2.25],C=0"),
        ('F = "3/2"  # exact\nW = 0.1', "F=3/2,W=1/10"),
        ("M = [1, 1.25]", "M=[1,5/4]"),
        ("", ""),
    ],
)
def test_a_costs_file_says_the_same(text: str, same: str) -> None:
    """A TOML file keeps decimals as written, not their nearest binary fraction."""
    assert Costs.from_toml(text) == Costs.parse(same)


NO_FILES = (
    """F|F =|F = 1;F = 2|F = true|F = inf|F = nan|F = -1|F = 1e3|G = 1|[F];a = 1|F = [[[1]]]|F = 2020-01-01|F = {a = 1}
F = [1, true]|F = \0|F = []|{"F": NaN}|{"F": 1, "F": 2}|{"F": null}|{"F": [{}]}|[1, 2]""".replace("\n", "|")
    .replace(";", "\n")
    .split("|")
)
HUGE = {"digits": "F = " + "1" * 5000, "hex": "F = 0x" + "f" * 5000, "brackets": "F = " + "[" * 9000}


@pytest.mark.parametrize("text", [*NO_FILES, *HUGE.values()], ids=[*map(repr, NO_FILES), *HUGE])
def test_what_is_no_costs_file_is_refused(text: str) -> None:
    """PS222 refuses it; PS843 refuses numbers and brackets on which TOML's own reader fails."""
    with pytest.raises(PipeschedError) as error:
        Costs.from_toml(text)
    assert refused(error) == ("PS843" if text in HUGE.values() else "PS222")


@pytest.mark.parametrize("cost", [Fraction(-1), 0.5, "1", None, (Fraction(1), Fraction(-2)), [1, 2]])
def test_costs_that_are_made_by_a_program_are_checked_too(cost: object) -> None:
    """PS222 refuses negative and inexact numbers."""
    with pytest.raises(PipeschedError) as error:
        Costs({"F": cost})  # type: ignore[dict-item]
    assert refused(error) == "PS222"


@settings(derandomize=True, deadline=None, max_examples=deep(25))
@given(st.data())
def test_ticks_are_the_costs_and_nothing_is_rounded(data: st.DataObject) -> None:
    """ticks / scale is each cost, by stage, with the default costs; the scale is the least possible."""
    stages = data.draw(st.integers(1, 5))
    costs = data.draw(strategies.costs(stages))
    ticks, known = costs.ticks(stages), rows(costs, stages)
    made = {**dict(zip(LETTERS, ticks.compute.tolist(), strict=True)), "C": ticks.message.tolist()}
    made["FB"] = ticks.pair["FB"].tolist() if "FB" in ticks.pair else None
    for key, row in known.items():
        assert made[key] == (None if row is None else [x * ticks.scale for x in row])
    numbers = [x for row in known.values() if row is not None for x in row]
    assert all(any((x * ticks.scale / n).denominator > 1 for x in numbers) for n in (2, 3, 5) if ticks.scale % n == 0)


@settings(derandomize=True, deadline=None, max_examples=deep(25))
@given(st.data())
def test_a_cost_is_one_number_or_none(data: st.DataObject) -> None:
    """scalar: the number if all stages have the same, else None; FB by default is F + B."""
    stages = data.draw(st.integers(1, 4))
    costs = data.draw(strategies.costs(stages))
    known = rows(costs, stages)
    f, b = known["F"], known["B"]
    assert f is not None and b is not None
    sums = [x + y for x, y in zip(f, b, strict=True)]
    for key in KEYS:
        values = set(known[key] or sums)
        assert costs.scalar(key) == (values.pop() if len(values) == 1 else None)


@settings(derandomize=True, deadline=None, max_examples=deep(12))
@given(strategies.costs(3), strategies.costs(3))
def test_costs_over_others(first: Costs, second: Costs) -> None:
    """The first costs take precedence, key by key; keys in neither keep their defaults."""
    both = first.over(second)
    assert all(both.given.get(key) == first.given.get(key, second.given.get(key)) for key in KEYS)
    assert first.over(Costs()) == first == Costs().over(first)


@pytest.mark.parametrize("text", ["F=[1,2]", "FB=[1,2,3,4]", "I=[1,2,3],W=[1,2]", "C=[1]", "M=[1,2]"])
def test_a_list_has_one_entry_a_stage(text: str) -> None:
    """PS222 shows both numbers; a wrong list on the command line is the command line's fault."""
    with pytest.raises(PipeschedError, match=r"lists \d stages; the schedule has 3") as error:
        Costs.parse(text).sizes(3) if text.startswith("M") else Costs.parse(text).ticks(3)
    assert refused(error) == "PS222"
    assert pipesched.verify("1f1b", p=3, costs=text).exit_status == 2


@settings(derandomize=True, deadline=None, max_examples=deep(12))
@given(strategies.costs(3), st.none() | strategies.sizes(3), st.booleans())
def test_what_a_stage_holds_is_beside_the_times(costs: Costs, sizes: list[Fraction] | None, alike: bool) -> None:
    """sizes: M by stage, 1 by default; the times are those without M, and JSON shows M unless it is 1."""
    given = None if sizes is None else sizes[0] if alike else tuple(sizes)
    both = costs if given is None else Costs({"M": given}).over(costs)
    row = [Fraction(1)] * 3 if given is None else sizes[:1] * 3 if alike and sizes else sizes
    assert list(both.sizes(3)) == row
    assert both.ticks(3).scale == costs.ticks(3).scale
    assert (both.ticks(3).compute == costs.ticks(3).compute).all()
    shown = both.to_json()
    assert {key: value for key, value in shown.items() if key != "M"} == costs.to_json()
    assert ("M" in shown) == (row != [1, 1, 1])


@pytest.mark.parametrize("text", ["F=1/999999937,I=1/999999929,W=1", "F=999999999999999,I=1/1000"])
def test_costs_too_fine_for_exact_sums_are_refused(text: str) -> None:
    """PS222 rather than a rounded time, also if only a sum of many is too large."""
    with pytest.raises(PipeschedError) as error:
        Costs.parse(text).ticks(3)
    assert refused(error) == "PS222"
    report = pipesched.verify("1f1b", p=4, m=4000, costs="F=999999999999999")
    assert [d.code for d in report.diagnostics] == ["PS222"]


def test_costs_in_json_are_whole_numbers_or_exact_strings() -> None:
    """JSON has all six times, with defaults; M only if it is not 1."""
    assert Costs.parse("F=3/2,I=[1,0.5],W=1,C=2").to_json() == {
        "F": "3/2",
        "I": [1, "1/2"],
        "W": 1,
        "B": [2, "3/2"],
        "FB": ["7/2", 3],
        "C": 2,
    }


def test_the_command_line_wins_over_the_file() -> None:
    """`costs` in a .ps file are defaults, key by key; B still follows I and W."""
    text = "schedule x(p = 2, m = 2)\ncosts F = 10, I = 12, W = 8\nstage s in 0 .. p on rank s\n"
    source = pipesched.Source("x.ps", text + "rank r { repeat m { F }  repeat m { B } }\n")
    alone, changed = pipesched.verify(source).time, pipesched.verify(source, costs="W=1,C=1/2").time
    assert alone is not None and changed is not None
    assert [alone.costs["B"], alone.makespan] == [20, 3 * (10 + 20)]
    assert [changed.costs["F"], changed.costs["B"], changed.makespan] == [10, 13, 3 * (10 + 13) + 1]


RULES = {"W": ("0", "1"), "I": ("1", "0"), "torch": ("-3/5", "8/5"), "split:1/4": ("3/4", "1/4"), "split:0": ("1", "0")}
RULES |= {"I=0.2,W=0.8": ("1/5", "4/5"), "W=1.5, I=-0.5": ("-1/2", "3/2"), "I=1/3,W=2/3": ("1/3", "2/3")}


@pytest.mark.parametrize("text", RULES)
def test_a_release_rule_frees_exactly_what_the_forward_took(text: str) -> None:
    """The shares of I and W add up to 1; torch's I takes 0.6 more."""
    rule = Release.parse(text)
    assert (rule.at_input, rule.at_weight) == tuple(map(Fraction, RULES[text]))
    assert rule.at_input + rule.at_weight == 1


NO_RULES = """|w|B|split|split:|split:2|split:-1|split:x|I=1|I=0.5,W=0.6|I=2,W=-1|I=1,W=0,B=1|I=1,W=0,junk
I=0,I=1,W=0|I=1,W=0,|I=--1,W=2|torch:2|I=1;W=0"""


@pytest.mark.parametrize("text", re.split(r"[|\n]", NO_RULES))
def test_what_is_no_release_rule_is_refused(text: str) -> None:
    """PS225 refuses it, from the class and from the Python API."""
    with pytest.raises(PipeschedError) as error:
        Release.parse(text)
    assert refused(error) == "PS225"
    with pytest.raises(PipeschedError) as error:
        pipesched.verify("1f1b", p=2, release=text)
    assert refused(error) == "PS225"


ASSUMED = [
    # the costs given, F I W B, the assumptions
    ("", "1 1 1 2", ""),
    ("C=3,M=2,FB=5", "1 1 1 2", ""),
    ("F=10,B=20", "10 10 10 20", "I: B / 2, W: B / 2, FB: F + B"),
    ("F=10,B=20,FB=25", "10 10 10 20", "I: B / 2, W: B / 2"),
    ("F=10,B=20,I=12", "10 12 8 20", "W: B - I, FB: F + B"),
    ("F=10,B=20,W=20", "10 0 20 20", "I: B - W, FB: F + B"),
    ("F=1,I=2,W=3", "1 2 3 5", "B: I + W, FB: F + B"),
    ("F=7", "7 7 7 14", "I: F, W: F, B: I + W, FB: F + B"),
    ("I=3", "3 3 3 6", "F: I, W: I, B: I + W, FB: F + B"),
    ("W=3", "3 3 3 6", "F: B / 2, I: W, B: I + W, FB: F + B"),
    ("F=1,W=3", "1 3 3 6", "I: W, B: I + W, FB: F + B"),
    ("B=5", "5/2 5/2 5/2 5", "F: B / 2, I: B / 2, W: B / 2, FB: F + B"),
    ("B=5,W=1", "5/2 4 1 5", "F: B / 2, I: B - W, FB: F + B"),
    ("B=5,I=1", "1 1 4 5", "F: I, W: B - I, FB: F + B"),
    ("F=1,I=2,W=3,B=4", "1 2 3 4", "FB: F + B"),
    ("I=2,W=3,B=5", "2 2 3 5", "F: I, FB: F + B"),
    ("F=1,B=0", "1 0 0 0", "I: B / 2, W: B / 2, FB: F + B"),
]


@pytest.mark.parametrize(("text", "expected", "assumed"), ASSUMED)
def test_what_is_not_given_follows_from_what_is(text: str, expected: str, assumed: str) -> None:
    """Each missing cost follows from its rule; with lists, or scaled costs, the rule applies stage by stage."""
    costs = Costs.parse(text)
    assert [costs.scalar(key) for key in "FIWB"] == list(map(Fraction, expected.split()))
    assert ", ".join(f"{key}: {words}" for key, words in costs.assumed_of(FOLLOW).items()) == assumed
    listed = Costs({key: (x, x * 3) if isinstance(x, Fraction) else x for key, x in costs.given.items()})
    first = [x for key in "FIWB" for x in [costs.scalar(key)]]
    if assumed:
        assert [listed[key] for key in "FIWB"] == [(x, x * 3) if x is not None else None for x in first]
    assert costs.scaled(Fraction(2, 3)).assumed_of(FOLLOW) == costs.assumed_of(FOLLOW) or not assumed
    assert [costs.scaled(Fraction(2, 3)).scalar(key) for key in "FIWB"] == [x and x * 2 / 3 for x in first]


def test_costs_beyond_what_is_counted_are_refused() -> None:
    """16,000 operations of 3 or 6 * 10^14 exceed 2^62 together, and so may long messages; K is part of M."""
    for costs in ("F=300000000000000", "F=1,C=999999999999999"):
        (found,) = pipesched.verify("1f1b", p=4, m=2000, costs=costs).diagnostics
        assert (found.code, found.message) == ("PS222", "the times exceed 64 bits")
    text = pipesched.Source("-", "rank 0: F0.0 R0.0 B0.0\n")
    (found,) = pipesched.verify(text, costs="M=1,K=2").diagnostics
    assert found.code == "PS222" and "cost K exceeds M" in found.message


def test_times_of_computes_scale_and_others_do_not() -> None:
    """A factor applies to operations and pairs; messages and memory stay."""
    given = Costs.parse("F=1,O=4,FB=3,IW=2,C=5,M=7").scaled(Fraction(1, 2)).given
    assert given == {"F": Fraction(1, 2), "O": 2, "FB": Fraction(3, 2), "IW": 1, "C": 5, "M": 7}


@pytest.mark.parametrize("text", ["B=1,I=2", "B=1,W=2,F=9", "B=[3,3,1],I=2", "B=3,W=[1,2,4]"])
def test_no_cost_that_follows_is_negative(text: str) -> None:
    """PS222 refuses it, with the stage of a list; also if the command line and the file are valid on their own."""
    with pytest.raises(PipeschedError, match=r"B - [IW] is negative") as error:
        Costs.parse(text).ticks(3)
    assert refused(error) == "PS222" and ("on stage 2" in str(error.value)) == ("[" in text)
    file = (
        "schedule f(p = 3, m = 3)\nstage s in 0 .. p on rank s\ncosts B = 1\nrank r { repeat m { F } repeat m { B } }"
    )
    report = pipesched.verify(Source("f.ps", file), costs="I=2")
    assert [str(found.code) for found in report.diagnostics] == ["PS222"]
    assert pipesched.verify(Source("f.ps", file), costs="I=2,B=3").ok


SAID = [
    # schedule, costs, the notes on them
    ("1f1b", "F=10,B=20", ""),
    ("zb_h1", "F=10,B=20", "assumed: I = W = B / 2 = 10"),
    ("zb_h1", "F=1,B=[2,2,2,4]", "assumed: I = W = B / 2"),
    ("1f1b", "F=1,I=1,W=1", "assumed: B = I + W = 2"),
    ("1f1b", "F=1,I=2,W=2,B=3", "B = 3 differs from I + W = 4: each is used as given"),
    ("1f1b", "F=1,I=2,W=2,B=[4,4,4,3]", "B differs from I + W = 4: each is used as given"),
    ("1f1b", "F=1,I=2,W=[2,2,2,2],B=4", ""),
    ("1f1b", "FB=3", "the cost FB is not used: no F overlaps a B"),
    ("dualpipe", "FB=3", ""),
    ("dualpipe", "F=1,B=2,FB=3", "assumed: I = W = B / 2 = 1"),
    ("dualpipe", "F=1,I=1,W=1,B=2", "assumed: FB = F + B = 3"),
    ("gpipe", "C=2", ""),
]


@pytest.mark.parametrize(("name", "costs", "said"), SAID)
def test_what_was_assumed_and_is_used_is_told(name: str, costs: str, said: str) -> None:
    """In text, on one line, in JSON, and by every command that shows times; unused costs are not named."""
    report = pipesched.verify(name, p=4, m=8, costs=costs)
    assert report.time is not None and report.time.remarks == tuple(filter(None, [said]))
    assert said in str(report) and said in report.line()
    time = report.to_json()["time"]
    assert isinstance(time, dict) and time["cost_remarks"] == list(report.time.remarks)
    assert bool(time["assumed_costs"]) == said.startswith("assumed")
    if not said:
        assert "assumed" not in str(report)


@pytest.mark.parametrize("command", ["verify", "compare", "why", "show", "diff", "optimize"])
def test_every_command_tells_what_it_assumed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For a zero-bubble order at the costs of F and B, the output says that I and W are halves."""
    names = ["zb_h1", "1f1b"] if command in ("diff", "compare") else ["zb_h1"]
    main([command, *names, "--p", "2", "--m", "4", "--cost", "F=10,B=20"])
    assert "assumed: I = W = B / 2" in " ".join(capsys.readouterr().out.split())
    main([command, *names, "--p", "2", "--m", "4", "--cost", "F=10,B=20", "--json"])
    assert "I = W = B / 2" in capsys.readouterr().out


def test_the_loop_optimizes_at_the_costs_that_were_measured() -> None:
    """F and B of a fused run, then the best split order: not faster than its work, which equals the work of the fused
    order."""
    measured = "F=[1000,1000],B=[2000,2000],C=[0,0]"
    fused = pipesched.verify("1f1b", p=2, m=6, costs=measured)
    best = pipesched.optimize(p=2, m=6, mem_cap=2, costs=measured)
    assert fused.time is not None and best.work == fused.time.work[0] == 18_000
    assert best.makespan is not None and 18_000 < best.makespan < fused.time.makespan == 21_000
    assert "(assumed: I = W = B / 2)" in best.terms and "assumed: I = W = B / 2" in " ".join(best.source.split())
    again = pipesched.verify(Source("best.ps", best.source))
    assert again.ok and again.time is not None and again.time.makespan == best.makespan
    assert dict(again.time.assumed) == {"I": "B / 2", "W": "B / 2"} == best.to_json()["assumed_costs"]


@pytest.mark.parametrize(("backward", "said"), [("fused", ""), ("split", " (assumed: I = W = B / 2)")])
def test_an_answer_names_what_its_own_times_assume(backward: str, said: str) -> None:
    """The terms name the requested kind of backward; schedules of the other kind are listed with their own kind."""
    best = pipesched.optimize(p=2, m=4, mem_cap=2, costs="F=10,B=20", backward=backward)
    assert f",C=0{said}, release W" in best.terms and ("assumed" in best.source) == bool(said)
    if backward == "fused":
        assert "assumed for other kinds of backward: I = W = B / 2 = 10" in str(best)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("order", "given", "used"),
    [
        ("F B", "FB", {"FB"}),
        ("F B . B", "FB", {"B", "FB"}),
        ("F B . F", "FB", {"F", "FB"}),
        ("F B", "FI", {"F", "B", "FB"}),
        ("F I", "FB", {"F", "I"}),
        ("F I", "FI", {"FI"}),
    ],
)
def test_an_operation_of_a_pair_counts_once(order: str, given: str, used: set[str]) -> None:
    """Some operations overlap with the previous one; the cost of a pair is the cost of both, and of no other pair. FB
    is named, given or not, since it is assumed to be the sum."""
    first, _, rest = order.partition(".")
    parts = [(name, at > 0) for at, name in enumerate(first.split())] + [(name, False) for name in rest.split()]
    records = [Compute(Op[name], 0, number, second) for number, (name, second) in enumerate(parts)]
    schedule = Schedule.from_orders([records], linear(1, len(records)))
    assert costs_used(schedule, Costs({given: Fraction(3)})) == used
