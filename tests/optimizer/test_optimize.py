"""From the command line to the printed file, an answer of `optimize` that claims to be optimal is optimal, and no
answer is below the bound.

The oracles are formulas of the literature, `verify`, and comparisons of answers to related questions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched import Optimum, PipeschedError, Report, Source
from pipesched.__main__ import main
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.proof.judge import judge
from pipesched.optimizer.solve.search.state import State
from pipesched.optimizer.verdict import Verdict
from tests.depth import deep, some
from tests.optimizer.test_optimize_cli import OPTIMUM, ORDERS

TOP = Path(__file__).resolve().parents[2]
SKEWED = "F=3,I=5,W=2,C=1"


def right(answer: Optimum, costs: str | None = None, release: str = "W", **sizes: Any) -> Report:
    """Return the verdict on the printed file, which holds, is within the caps and takes the stated time."""
    report = pipesched.verify(Source("answer.ps", answer.source), release=release, costs=costs, **sizes)
    assert report.ok and report.time is not None and report.memory is not None, str(report)
    assert all(claim.holds is not False for claim in report.claims) and report.claims
    caps = answer.instance.caps or report.memory.peak
    assert all(peak <= cap for peak, cap in zip(report.memory.peak, caps, strict=True))
    if not sizes:
        assert (report.time.makespan, report.time.span) == (answer.makespan, answer.span)
        assert report.memory.peak == answer.peak
    assert answer.value is not None and answer.lower_bound is not None and answer.lower_bound <= answer.value
    assert (answer.exit_status == 0) == (answer.lower_bound == answer.value) or answer.every
    return report


# Results of the literature


@pytest.mark.parametrize(("p", "m"), [(2, 4), (3, 5), (6, 9)])
def test_at_the_memory_of_1f1b_the_optimum_is_that_of_zb_h1(p: int, m: int) -> None:
    """With p microbatches in flight the idle time is (p - 1)(tF + tI - tW) (Zero Bubble, 2.1); here it is the least."""
    answer = pipesched.optimize(p=p, m=m, mem_cap=p, costs="F=4,I=3,W=2")
    assert answer.status == "proved optimal"
    assert answer.makespan == m * 9 + (p - 1) * (4 + 3 - 2)
    right(answer)


@pytest.mark.parametrize(("p", "m"), [(2, 3), (4, 8), (5, 7)])
def test_the_best_full_backward_is_1f1b(p: int, m: int) -> None:
    """With a full backward no order of a linear placement idles less than (p - 1)(tF + tB)."""
    answer = pipesched.optimize(p=p, m=m, backward="fused", costs="F=2,B=5")
    assert answer.status == "proved optimal" and answer.makespan == (m + p - 1) * 7
    right(answer)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8)])
def test_with_memory_for_2p_there_is_no_bubble_in_the_span(p: int, m: int) -> None:
    """With 2p - 1 microbatches in flight the span of ZB-H2 is work alone, the least possible."""
    answer = pipesched.optimize(p=p, m=m, mem_cap=2 * p - 1, objective="span")
    assert answer.status == "proved optimal" and answer.span == 3 * m
    right(answer)


def test_at_the_least_memory_one_microbatch_goes_after_another() -> None:
    """At cap 1 the next F of a rank waits for W, so rank 0 has a round trip of 2p + 1 for each, F to W."""
    for p in (2, 3, 4):
        answer = pipesched.optimize(p=p, m=4, mem_cap=1)
        assert answer.status == "proved optimal" and answer.makespan == 4 * (2 * p + 1)


STUDY = {1: 272, 2: 145, 3: 102, 4: 79, 5: 68, 6: 61, 7: 58, 8: 55, 9: 55}
"""Least makespans at p=8 m=16, unit costs, by cap: Z3 on integers and CP-SAT, each from a model of its own."""


def test_the_optima_of_an_earlier_study() -> None:
    """p=8 m=16, unit costs: the same optima, proved."""
    found = {cap: pipesched.optimize(p=8, m=16, mem_cap=cap) for cap in (3, 4, 6)}
    assert {cap: answer.makespan for cap, answer in found.items()} == {cap: STUDY[cap] for cap in found}
    assert all(answer.status == "proved optimal" for answer in found.values())


# Answers to related questions


QUESTIONS: list[dict[str, Any]] = [
    {"p": 3, "m": 5, "mem_cap": 2},
    {"p": 3, "m": 4, "mem_cap": 3, "costs": SKEWED},
    {"p": 2, "m": 4, "placement": "vee", "mem_cap": "3/2"},
    {"p": 2, "m": 3, "placement": "loop", "mem_cap": 2, "objective": "span"},
    {"p": 2, "m": 4, "placement": "vee", "mem_cap": 2, "backward": "fused"},
    {"p": 3, "m": 4, "mem_cap": [3, 2, 1], "release": "split:1/2"},
    {"p": 3, "m": 4, "mem_cap": "2.6", "release": "torch"},
    {"p": 2, "m": 4, "mem_cap": 2, "release": "I", "objective": "span"},
    {"p": 3, "m": 4, "mem_cap": 3, "costs": "F=[1,2,3/2],I=[2,1,1],W=[1,1,2],C=[1/2,1,0]"},
    {"p": 3, "m": 4, "mem_cap": "7/2", "costs": "F=1.5,I=1,W=0.5,M=[2,1,1/2]"},
    {"p": 2, "m": 3, "mem_cap": 2, "release": "I=1/3,W=2/3"},
    {"p": 2, "m": 3, "mem_cap": 3, "release": "I=-1/2,W=3/2"},
    {"placement": (0, 1, 1, 0), "p": 2, "m": 4, "mem_cap": 2},
    {"placement": (0, 0, 1, 2), "m": 3, "mem_cap": 3},
]


def named(question: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in question.items())


@pytest.mark.parametrize("question", some(QUESTIONS, 2, usual=3), ids=named)
def test_an_answer_beside_those_to_related_questions(question: dict[str, Any]) -> None:
    """The printed file is verified with its own costs; its certificate is accepted, and no other verdict with it. Three
    times the costs give three times the optimum. A larger cap allows every schedule of a smaller one, and no cap allows
    all.
    """
    answer = pipesched.optimize(**question)
    right(answer, release=question.get("release", "W"))
    assert answer.status == "proved optimal" and answer.value is not None
    loaded = pipesched.load(Source("answer.ps", answer.source))
    assert isinstance(loaded, pipesched.Schedule)
    assert judge(loaded, answer.instance, answer.certificate).findings == ()
    worse = {**answer.certificate, "verdict": "best found"}
    assert [found.code for found in judge(loaded, answer.instance, worse).findings] == [OptimizerCode.VERDICT]
    costs = pipesched.Costs.parse(question.get("costs", "F=1,I=1,W=1,C=0"))
    thrice = pipesched.Costs(
        {
            key: cost if key == "M" else tuple(3 * x for x in cost) if isinstance(cost, tuple) else 3 * cost
            for key, cost in costs.given.items()
        }
    )
    given = question["mem_cap"]
    larger = [Fraction(x) + 1 for x in (given if isinstance(given, list) else [given])]
    three, more, free = (
        pipesched.optimize(**{**question, **changed}).value
        for changed in ({"costs": thrice}, {"mem_cap": larger}, {"mem_cap": None})
    )
    assert three == 3 * answer.value
    assert free is not None and more is not None and free <= more <= answer.value


@pytest.mark.parametrize("question", QUESTIONS[:6:3], ids=named)
def test_time_never_makes_it_worse(question: dict[str, Any]) -> None:
    """Even without time there are a schedule and a bound, and the optimum is between them."""
    least = pipesched.optimize(**question).value
    hasty = pipesched.optimize(**question, time_limit=0)
    assert least is not None and hasty.value is not None and hasty.lower_bound is not None
    assert hasty.lower_bound <= least <= hasty.value
    right(hasty, release=question.get("release", "W"))


@pytest.mark.parametrize("engine", ["z3", "sat"])
def test_engines_alone_agree(engine: str) -> None:
    """Without known schedules and heuristics, every engine finds the optimum and refutes everything below."""
    answer = pipesched.optimize(p=3, m=4, mem_cap=2, engine=engine, portfolio=False)
    assert (answer.status, answer.makespan) == ("proved optimal", pipesched.optimize(p=3, m=4, mem_cap=2).makespan)
    right(answer)


# A schedule to improve on


def given() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the library schedules, and files of every kind."""
    yield from (("gpipe", {"p": 3, "m": 4}), ("1f1b", {"p": 3, "m": 5}), ("zb_h1", {"p": 4, "m": 6}))
    yield from (("zb_h2", {"p": 3, "m": 6}), ("interleaved", {"p": 2, "v": 2, "m": 4}), ("zb_v", {"p": 2, "m": 4}))
    for name in ("1f1b_p4_m8", "interleaved_p4_v2_m8", "chimera_p4_d2_m4", "zbv_handcrafted_p4_m8"):
        yield str(ORDERS / f"{name}.txt"), {}
    yield str(TOP / "emit" / "v2" / "zb_h1_p3_m4.json"), {}
    yield str(TOP / "tests" / "torch_fixtures" / "c15_both_send_first.csv"), {}


@pytest.mark.parametrize(("name", "sizes"), list(given()), ids=lambda value: Path(str(value)).stem)
def test_an_answer_is_never_worse_than_what_was_given(name: str, sizes: dict[str, Any]) -> None:
    """With the memory, placement and kind of backward of a schedule, the answer takes at most its makespan."""
    schedule = pipesched.load(name, **sizes)
    computes = schedule.computes if isinstance(schedule, pipesched.Program) else schedule
    before = pipesched.verify(computes)
    assert before.time is not None and before.memory is not None
    answer = pipesched.optimize(name, mem_cap=before.memory.peak, time_limit=5, **sizes)
    assert answer.makespan is not None and answer.makespan <= before.time.makespan
    right(answer)
    row = answer.known[0]
    assert row is answer.given
    assert (row.spent.makespan, row.peak, row.fits) == (before.time.makespan, max(before.memory.peak), True)
    less = before.time.makespan - answer.makespan
    said = f" shorter than {row.name}" if less else f"    as long as {row.name}\n"
    assert said in str(answer) and (not less or f"    {less} (" in str(answer))
    if name in ("zb_h1", "zb_v"):  # the same where it is given as a value
        terms = pipesched.optimize(schedule, mem_cap=before.memory.peak, time_limit=5).terms
        assert terms.split(", ")[2:] == answer.terms.split(", ")[2:]


def test_an_answer_that_holds_more_says_how_to_ask_for_less() -> None:
    """Without a cap it may hold more than the given schedule; with that peak as the cap it does not."""
    held = "    v_half holds less (2): use --mem-cap 2 for the best under that cap\n"
    free, capped = (pipesched.optimize("v_half", p=3, m=4, mem_cap=cap) for cap in (None, 2))
    assert held in str(free) and max(free.peak) > 2
    assert "holds less" not in str(capped) and max(capped.peak) == 2


def test_what_cannot_be_optimized_says_why() -> None:
    """STEPs inside an order are refused; for an order that offloads, requests that do not support it are refused."""
    with pytest.raises(PipeschedError, match=r"PS702.*STEPs inside its order"):
        pipesched.optimize("pipedream", p=4)
    said = "PS702: --"
    with pytest.raises(PipeschedError, match=said + "all-m"):
        pipesched.optimize("pipeoffload", p=4, all_m=True)
    with pytest.raises(PipeschedError, match=said + "confirm"):
        pipesched.optimize("pipeoffload", p=4, confirm=True)
    with pytest.raises(PipeschedError, match=said + "jitter"):
        pipesched.optimize("pipeoffload", p=4, jitter="5%")


# Every number of microbatches


@pytest.mark.parametrize(
    ("question", "optimal"),
    [
        ({"p": 3, "mem_cap": 3}, True),
        ({"p": 2, "v": 2, "placement": "loop", "mem_cap": 2}, False),
        *[({"p": 3, "mem_cap": 5, "costs": SKEWED}, True)][: deep(1) - 1],
        *[({"p": 3, "placement": "vee", "mem_cap": 3}, True)][: deep(1) - 1],
    ],
    ids=str,
)
def test_one_file_for_every_m(question: dict[str, Any], optimal: bool) -> None:
    """The file runs m = m0 + jK microbatches, each K of which add the same time; the optimum of each m if proved."""
    answer = pipesched.optimize(**question, all_m=True)
    assert answer.every is not None and (answer.status == "proved optimal") == optimal
    first, step = answer.every
    sizes = [first + j * step for j in (0, 1, 17)]
    reports = [right(answer, p=question["p"], m=m) for m in sizes]
    times = [report.time.makespan for report in reports if report.parts.time]
    slope = times[1] - times[0]
    assert times == [times[0] + slope * ((m - first) // step) for m in sizes]
    if optimal:
        again = pipesched.optimize(**question, m=first + step)
        assert (again.status, again.makespan) == ("proved optimal", times[1])
    with pytest.raises(PipeschedError):
        pipesched.load(Source("answer.ps", answer.source), p=question["p"], m=first - 1)


def test_the_least_at_one_m_alone_says_so() -> None:
    """An answer for every m that meets its bound at one m, and is not proved for all: no gap of 0 % is shown."""
    verdict = Verdict(
        "makespan", Fraction(44), Fraction(44), "so", "work", every=(12, 3), grown=(Fraction(44), Fraction(10, 3))
    )
    assert verdict.status == "best found" and not verdict.proved
    assert verdict.line == "best found: makespan 44, the least at this m by work; not proved to be the least at every m"
    assert replace(verdict, value=Fraction(66)).line == "best found: makespan 66, gap 50.0 %, bound 44 by work"


# In Python


def test_python_and_the_command_line_give_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """All options have their names; the JSON is the same except for the seconds, and follows the schema."""
    answer = pipesched.optimize(p=3, m=5, mem_cap=[2, 3, "5/2"], costs=SKEWED, release="I", objective="span")
    line = "--p 3 --m 5 --mem-cap 2,3,5/2 --release I --objective span --json --cost"
    assert main(["optimize", *line.split(), SKEWED]) == answer.exit_status
    shown, made = json.loads(capsys.readouterr().out), answer.to_json()
    OPTIMUM.validate(made)
    assert shown == made
    assert str(answer).startswith(answer.verdict)


def test_progress_is_told_and_can_stop_the_search() -> None:
    """The callback sees converging bounds; a KeyboardInterrupt from it ends the search with the best so far."""
    seen: list[tuple[int, int]] = []

    def watch(state: State) -> None:
        if state.value is not None:
            seen.append((state.lower, state.value))

    pipesched.optimize(p=4, m=8, mem_cap=3, costs=SKEWED, progress=watch)
    assert seen and seen == sorted(seen, key=lambda pair: (pair[0], -pair[1]))

    def stop(state: State) -> None:
        if state.value is not None:
            raise KeyboardInterrupt

    answer = pipesched.optimize(p=4, m=8, mem_cap=3, costs=SKEWED, progress=stop)
    assert (answer.status, answer.reason, answer.exit_status) == ("best found", "interrupted", 3)
    right(answer)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("engine", "abacus"),
        ("objective", "bubble"),
        ("backward", "half"),
        ("release", "never"),
        ("mem_cap", 0),
        ("mem_cap", []),
        ("mem_cap", -1),
        ("placement", ()),
        ("placement", (1, 1)),
        ("placement", (0, -1)),
        ("time_limit", -1),
        ("time_limit", float("nan")),
        ("costs", "F=[1,2]"),
        ("p", 0),
    ],
)
def test_an_option_that_means_nothing_is_refused(option: str, value: Any) -> None:
    """PS2xx, with valid values in the message (`mem_cap is -1, not a number …`) or in the help."""
    with pytest.raises(PipeschedError) as caught:
        pipesched.optimize(**{option: value})
    (told,) = caught.value.diagnostics
    assert told.code.startswith("PS2") and (told.help or ", not " in told.message)


def test_the_function_stays_the_function() -> None:
    """`pipesched.optimize` can be called, whatever part of the package was imported before."""
    search = import_module("pipesched.optimizer.solve.search.search")

    assert search.__name__ == "pipesched.optimizer.solve.search.search" and isfunction(pipesched.optimize)


def test_caps_are_rounded_down_to_what_can_be_held() -> None:
    """Only whole activations are held, so a cap between two is the lower one, with a note."""
    answer, lower = (pipesched.optimize(p=3, m=4, mem_cap=cap) for cap in ("2.9", 2))
    assert answer.makespan == lower.makespan and answer.status == "proved optimal"
    assert any("the effective cap is 2" in note for note in answer.notes) and not lower.notes


@pytest.mark.parametrize("costs", ["F=[2,1],I=1,W=1", "F=2,I=1,W=1"])
def test_a_printed_file_holds_at_other_costs(costs: str) -> None:
    """Its claims about times are for its own costs: at others they are not applicable, or there are none."""
    answer = pipesched.optimize(p=2, m=3, mem_cap=2, costs=costs)
    for others in ("F=5", "F=[1,7],C=2"):
        report = pipesched.verify(Source("optimum.ps", answer.source), costs=others)
        assert report.ok and any(claim.holds for claim in report.claims)
    assert pipesched.verify(Source("optimum.ps", answer.source)).ok
    assert ("differ by stage" in answer.source) == ("[" in costs)


def test_little_is_read_only_to_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the best is proved, schedules are read until three are shown; beyond a number of operations, none."""
    question: dict[str, Any] = {"p": 4, "m": 8, "mem_cap": 4, "backward": "fused"}
    split = {**question, "backward": "split"}
    assert [one.name for one in pipesched.optimize(**question).known] == ["zb_h1", "zb_h2", "1f1b"]
    assert [one.name for one in pipesched.optimize(**split).known] == ["zb_h1", "zb_h2", "1f1b"]
    monkeypatch.setattr("pipesched.optimizer.optimize._COMPARED", 100)
    assert [one.name for one in pipesched.optimize(**question).known] == ["zb_h1", "zb_h2", "1f1b"]
    assert [one.name for one in pipesched.optimize(**split).known] == ["zb_h1"]


@pytest.mark.nightly
def test_another_m_of_an_answer_gets_the_best_bound_there() -> None:
    """For a schedule that is not proved for every m: between the work of a rank and the optimum of that m."""
    question: dict[str, Any] = {"p": 2, "v": 2, "placement": "loop", "mem_cap": 2}
    answer = pipesched.optimize(**question, all_m=True)
    assert answer.every is not None and not answer.proved
    m = answer.every[0] + 2 * answer.every[1]
    report = pipesched.verify(Source("answer.json", json.dumps(answer.to_json())), m=m)
    best = pipesched.optimize(**question, m=m)
    assert report.verdict is not None and best.work is not None and best.proved
    assert best.work < report.verdict.lower <= best.value == report.verdict.lower
