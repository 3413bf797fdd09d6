"""A certificate is accepted only if it is true."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.idle import idle
from pipesched.analysis.timeline import timeline
from pipesched.check.rows import CheckCode
from pipesched.diagnostics import Code, PipeschedError
from pipesched.model.numbers import plain
from pipesched.model.ops import Compute, Op
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.proof.judge import judge
from pipesched.optimizer.proof.judgement import Judgement
from pipesched.optimizer.solve.bounds.lower_bound import lower_bound
from pipesched.optimizer.solve.certificate import certify
from pipesched.optimizer.verdict import Terms, on_the_word
from tests.depth import deep
from tests.makers.instances import given, placement_of, problem_of, schedule_of, simulated, some_orders
from tests.oracles.brute import Instance, optimum, random_instance, steps

Orders = list[list[Compute]]


class Case:
    """An instance, orders for it, and a certificate."""

    def __init__(self, instance: Instance, orders: Orders, certificate: dict[str, Any]) -> None:
        self.instance, self.orders, self.certificate = instance, orders, certificate

    def judged(self) -> Judgement:
        """Return the result of the checker."""
        return judge(schedule_of(self.instance, self.orders), terms_of(self.instance), self.certificate)

    def codes(self) -> set[str]:
        """Return the codes of the checker."""
        return {str(found.code) for found in self.judged().findings}

    def concluded(self) -> Case:
        """Add the verdict that follows."""
        verdict = self.judged().verdict
        assert verdict is not None, self.judged()
        told = {"verdict": verdict.status, "lower_bound": plain(verdict.lower), "gap": plain(verdict.gap)}
        return Case(self.instance, self.orders, json.loads(json.dumps({**self.certificate, **told})))

    def true(self, best: int | None) -> bool:
        """Return True if the schedule is right, has the stated figures, and the statements about the optimum hold. An
        engine's refutation may be false, and then nothing is proved; it is about the instance, and below the schedule's
        objective.
        """
        told = self.certificate
        value = simulated(self.instance, self.orders)
        kinds = {one.op for order in self.orders for one in order}
        if value is None or best is None or told["schedule"] != value or told["objective"] != "makespan":
            return False
        if told["backward"] != ("fused" if Op.B in kinds else "split"):
            return False
        lower, refuted = told["lower_bound"], told["refuted"]
        worded = told["verdict"].startswith("optimal on the word of") or lower > best
        if worded and (not refuted or refuted["value"] + 1 != lower or refuted["ranks"] in ([], [99])):
            return False
        if (lower > best and "proved" in told["verdict"]) or lower > value:
            return False
        gap = Fraction(value - lower, lower) if lower else Fraction(0)
        return (told["verdict"] == "best found") == (value > lower) and Fraction(told["gap"]) == gap


def good(seed: int, *, ranks: int = 2, microbatches: int = 3) -> Case | None:
    """Return a schedule and its certificate; for some with a refutation of everything below the optimum."""
    rng = random.Random(seed)
    x = random_instance(seed, ranks=ranks, microbatches=microbatches)
    orders = some_orders(x, rng, 20 if ranks == 2 else 3)
    if orders is None:
        return None
    problem, value = problem_of(x), simulated(x, orders)
    assert value is not None
    bound = lower_bound(problem)
    refuted = None
    if ranks == 2 and rng.random() < 0.3:
        best = optimum(x) if len(steps(x)) <= 14 else None
        refuted = (best - 1, "cadical", rng.choice([None, (0,)])) if best else None
    return Case(x, orders, certify(problem, value, bound, refuted, terms_of(x).to_json())).concluded()


def terms_of(x: Instance) -> Terms:
    """Return the terms of a verdict, and of a refutation."""
    return Terms(placement_of(x), *given(x), x.fused, x.objective)


def told_otherwise(case: Case, rng: random.Random) -> None:
    """Change one number of the statement, or of the bound, by one."""
    part = rng.choice([case.certificate, case.certificate["bound"] or case.certificate])
    part[rng.choice([key for key, x in part.items() if isinstance(x, int)])] += rng.choice([-1, 1])


def higher(case: Case, rng: random.Random) -> None:
    """Raise the bound, with a matching verdict."""
    bound = case.certificate["bound"] or {"rank": 0, "head": 0, "tail": 0}
    bound[rng.choice(["head", "tail"])] += 1
    case.certificate["bound"] = bound
    concluded(case, case.certificate["lower_bound"] + 1)


def refuted(case: Case, rng: random.Random) -> None:
    """Refute the schedule's own objective, without an engine, or for missing ranks; or drop a needed refutation."""
    value = case.certificate["schedule"] + rng.choice([-1, 0, 1])
    told = {"value": value, "engine": rng.choice(["cadical", "oracle"]), "ranks": rng.choice([None, [0], [99], []])}
    told["terms"] = json.loads(json.dumps(terms_of(case.instance).to_json()))
    case.certificate["refuted"] = rng.choice([None, told])
    if rng.random() < 0.5:
        concluded(case, value + 1)


def concluded(case: Case, lower: int) -> None:
    """Return the verdict that follows from a lower bound."""
    told = case.certificate
    gap = Fraction(told["schedule"] - lower, lower) if lower else Fraction(0)
    told["lower_bound"], told["gap"] = lower, int(gap) if gap.denominator == 1 else str(gap)
    optimal = random.Random(lower).choice(["proved optimal", "optimal on the word of CaDiCaL, not checked"])
    told["verdict"] = optimal if lower == told["schedule"] else "best found"


def elsewhere(case: Case, rng: random.Random) -> None:
    """Change a rank, entry, objective, backward, verdict or gap."""
    told, bound = case.certificate, case.certificate["bound"] or {}
    choices: list[Callable[[], None]] = [
        lambda: bound.update(rank=bound.get("rank", 0) + rng.choice([-1, 1, 5])),
        lambda: bound.update(frame=0),
        lambda: told.update(objective="span"),
        lambda: told.update(backward="fused" if told["backward"] == "split" else "split"),
        lambda: told.update(verdict="best found" if told["verdict"] == "proved optimal" else "proved optimal"),
        lambda: told.update(gap=rng.choice(["1/7", 0, 1, "x", None])),
    ]
    rng.choice(choices)()


def lost(case: Case, rng: random.Random) -> None:
    """Drop an entry, or change its type."""
    part = rng.choice([case.certificate, case.certificate["bound"] or case.certificate])
    key = rng.choice(list(part))
    part[key] = rng.choice([None, "many", [], {}, True, 1.5, "1/0"])


def order(case: Case, rng: random.Random) -> None:
    """Swap two operations; drop, repeat or move one to another rank."""
    some = [one for one in case.orders if len(one) > 1]
    if not some:
        return told_otherwise(case, rng)
    one = rng.choice(some)
    at, how = rng.randrange(len(one) - 1), rng.randrange(4)
    if how == 0:
        one[at], one[at + 1] = one[at + 1], one[at]
    elif how == 1:
        one.pop(at)
    elif how == 2:
        one.insert(at, one[at + 1])
    else:
        case.orders[rng.randrange(len(case.orders))].append(one.pop(at))
    return None


def less_memory(case: Case, rng: random.Random) -> None:
    """Lower a rank's cap below the schedule's memory."""
    rank = rng.randrange(case.instance.ranks)
    caps = [cap // 3 if r == rank else cap for r, cap in enumerate(case.instance.cap)]
    case.instance = replace(case.instance, cap=caps)


SLIPS = [told_otherwise, higher, refuted, elsewhere, lost, order, less_memory]


def cases() -> Iterator[tuple[int, Case]]:
    for seed in range(deep(80)):
        small = len(steps(random_instance(seed, ranks=2, microbatches=3))) <= 14
        case = good(seed) if small else None
        if case is not None:
            yield seed, case


def test_no_false_certificate_is_accepted() -> None:
    """Each of hundreds of slips in certificates, schedules and caps is found, or leaves only true statements."""
    rejected, codes = 0, set()
    for seed, case in cases():
        rng = random.Random(seed + 1)
        for slip in SLIPS:
            bad = deepcopy(case)
            slip(bad, rng)
            found = bad.codes()
            if found:
                rejected += 1
                codes |= found
            else:
                assert bad.true(optimum(bad.instance)), (seed, slip.__name__, bad.certificate)
    assert rejected > deep(165)
    assert {
        str(OptimizerCode.CERTIFICATE),
        str(OptimizerCode.VERDICT),
        str(CheckCode.OVER_CAP),
        str(CheckCode.MISSING),
    } <= codes


def test_what_the_optimizer_says_is_accepted() -> None:
    """Larger instances of all placements, fused and split, with all release rules, uneven costs and caps; the bound of
    most is derived.
    """
    found = [case for seed in range(deep(40, usual=24)) if (case := good(seed, ranks=4, microbatches=6)) is not None]
    assert [case.instance for case in found if case.codes()] == []
    least = [(case.certificate["lower_bound"], lower_bound(problem_of(case.instance)).value) for case in found]
    assert len(found) > deep(20) and sum(a >= b for a, b in least) > 0.7 * len(found)


@pytest.mark.parametrize("seed", range(0, 200, 5))
def test_a_span_is_told_from_where_ranks_begin(seed: int) -> None:
    """With the span as objective a certificate is accepted, and one that claims a tick more is not."""
    x = replace(random_instance(seed, microbatches=2), objective="span")
    orders = some_orders(x, random.Random(seed))
    if orders is None or len(steps(x)) > 14:
        return
    try:
        problem = problem_of(x)
    except PipeschedError:
        return
    best = optimum(x)
    assert best is not None
    bound = lower_bound(problem)
    assert bound.value <= best
    value = _span(x, orders)
    case = Case(x, orders, certify(problem, value, bound)).concluded()
    assert case.codes() == set()
    higher(case, random.Random(seed))
    assert case.codes()


def _span(x: Instance, orders: Orders) -> int:
    schedule, ticks = schedule_of(x, orders), given(x)[0].ticks(x.stages)
    return int(idle(schedule, timeline(schedule, Dependencies.of(schedule), ticks), ticks).span * ticks.scale)


@pytest.mark.parametrize("word", ["lattice", "cadical", "ranks"])
def test_what_ranks_show_is_proved_whoever_says_it(word: str) -> None:
    """A verdict that the ranks show is proved, from an older version, an engine or the optimizer; a claim of less than
    its own terms give is refused."""
    x = random_instance(186, ranks=2, microbatches=3)
    best, orders = optimum(x), some_orders(x, random.Random(3), 5)
    assert best is not None and orders is not None and simulated(x, orders) == best
    bound, terms = lower_bound(problem_of(x)), terms_of(x).to_json()
    assert bound.value < best
    case = Case(x, orders, certify(problem_of(x), best, bound, (best - 1, word, None), terms))
    made = case.judged()
    assert made.verdict is not None and made.verdict.proved and not made.findings
    case.certificate |= {"verdict": "best found", "lower_bound": best, "gap": 0}
    assert case.codes() == {str(OptimizerCode.VERDICT)}


TINY: dict[str, Any] = {
    "objective": "makespan",
    "release": "W",
    "mem_cap": [1, 1],
    "source": "schedule two(p = 2, m = 1)\nstage s in 0 .. p on rank s\nrank r { F I W }\n",
    "certificate": {
        "objective": "makespan",
        "backward": "split",
        "schedule": 5,
        "verdict": "proved optimal",
        "lower_bound": 5,
        "gap": 0,
        "refuted": None,
        "bound": {"rank": 0, "head": 0, "tail": 4},
    },
}


def verified(answer: object, folder: Path) -> list[str]:
    """Return the codes of ``pipesched verify`` for an answer."""
    file = folder / "answer.json"
    file.write_text(json.dumps(answer), encoding="utf-8")
    return [str(d.code) for d in pipesched.verify(file).diagnostics]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, None),
        ({"mem_cap": None}, None),
        ({"mem_cap": ["1/2", 1]}, CheckCode.OVER_CAP),
        ({"mem_cap": [True, 1]}, OptimizerCode.CERTIFICATE),
        ({"mem_cap": [1]}, OptimizerCode.CERTIFICATE),
        ({"mem_cap": ["1e999999999", 1]}, OptimizerCode.CERTIFICATE),
        ({"certificate": TINY["certificate"] | {"gap": "1e999999999"}}, OptimizerCode.VERDICT),
        (
            {"certificate": TINY["certificate"] | {"bound": {"rank": 0, "head": "1e999999999", "tail": 4}}},
            OptimizerCode.CERTIFICATE,
        ),
        ({"release": "never"}, OptimizerCode.CERTIFICATE),
        ({"objective": "span"}, OptimizerCode.CERTIFICATE),
        ({"objective": "Span", "certificate": TINY["certificate"] | {"objective": "Span"}}, OptimizerCode.CERTIFICATE),
        ({"certificate": TINY["certificate"] | {"schedule": 10**400, "schedule_decimal": 5.0}}, Code.BUDGET),
        ({"source": None}, OptimizerCode.CERTIFICATE),
        ({"certificate": None}, OptimizerCode.CERTIFICATE),
        ({"source": "schedule two(p = 2, m = 1)\nstage s in 0 .. p on rank s\nrank r { F I }\n"}, CheckCode.MISSING),
        ({"certificate": TINY["certificate"] | {"verdict": "best found"}}, OptimizerCode.VERDICT),
        ({"certificate": TINY["certificate"] | {"schedule": 4}}, OptimizerCode.CERTIFICATE),
    ],
)
def test_an_answer_can_be_verified_by_others(change: dict[str, Any], code: Code | None, tmp_path: Path) -> None:
    """The JSON of an answer is an input: its schedule is checked like any other, and its certificate too."""
    assert set(verified(TINY | change, tmp_path)) == (set() if code is None else {str(code)})


def test_the_verdict_of_an_answer_is_a_claim(tmp_path: Path) -> None:
    """The verdict of a certificate is shown as one more claim of the file."""
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(TINY), encoding="utf-8")
    assert [(c.text, c.holds) for c in pipesched.verify(file).claims] == [("certificate: proved optimal", True)]


@pytest.mark.parametrize("engine", ["lattice", ""])
def test_a_word_of_an_older_version_is_the_optimizers(engine: str, tmp_path: Path) -> None:
    """A statement that nothing derives rests on the engine's unchecked word; so does one without a name."""
    page = (Path(pipesched.__file__).parent / "explain" / "pages" / "PS908.md").read_text("utf-8")
    told = json.loads(page.split("```json")[1].split("```")[0])
    told["certificate"]["refuted"]["engine"] = engine
    told["certificate"]["verdict"] = on_the_word("the optimizer")
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(told), encoding="utf-8")
    report = pipesched.verify(file)
    (found,) = report.diagnostics
    assert report.ok and found.code is OptimizerCode.ON_THE_WORD and "on the word of the optimizer" in found.message
