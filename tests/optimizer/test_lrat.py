"""A proof is accepted only if its clauses are true of every schedule and each of its steps follows from them.

python -m tests.optimizer.test_lrat --cases 1000    instances against trying all schedules, in any order of microbatches
python -m tests.optimizer.test_lrat --mutants 10000 damaged proofs, and whole ones under other terms
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import sys
from base64 import b64decode, b64encode
from collections import Counter
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pysat.solvers import Glucose4  # type: ignore[import-untyped]

import pipesched
from pipesched.common.budget import Budget
from pipesched.diagnostics import PipeschedError
from pipesched.model.costs import Costs
from pipesched.model.ops import Op
from pipesched.model.release import AT_W, Release
from pipesched.optimizer.answer_read import read
from pipesched.optimizer.optimize_certify import confirmed
from pipesched.optimizer.optimize_report import Optimum
from pipesched.optimizer.proof.clauses import Clauses
from pipesched.optimizer.proof.entries import unpacked
from pipesched.optimizer.proof.lrat import Step, steps_of, unfollowed, unproved
from pipesched.optimizer.proof.problem import Problem, floored, problem
from pipesched.optimizer.proof.ranks import too_busy
from pipesched.optimizer.solve.engines.lrat import refutation
from pipesched.optimizer.solve.meter import SECOND, Meter
from pipesched.optimizer.verdict import Terms
from pipesched.optimizer.verify_answer import write_proof
from pipesched.report.report import Report
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers.placements import linear
from tests.optimizer.test_optimum_bounds import OBJECTIVES, instances, problem_of
from tests.oracles.foreign import accepts, drat, installed
from tests.oracles.rup import refusal

LOOP: dict[str, Any] = {
    "p": 2, "v": 2, "m": 3, "placement": "loop", "mem_cap": "3/2", "costs": "F=[1,3,2,2],I=[4,3,3,4],W=[4,1,1,4]",
}  # fmt: skip
"""Its optimum is beyond formulas and ranks taken one by one."""


def terms(p: int = 4, m: int = 8, cap: int = 3, costs: str = "F=1,I=2,W=1", objective: str = "makespan") -> Problem:
    return problem(Terms(linear(p, m), Costs.parse(costs), AT_W, (Fraction(cap),) * p, False, objective))


def clauses(made: Problem, bound: int) -> dict[int, list[int]]:
    return Clauses(made, bound).known


def proved(made: Problem, bound: int) -> bytes:
    """Return CaDiCaL's proof that no objective is at most the given ticks; empty if there is a schedule."""
    written = Clauses(made, bound)
    text = refutation(written.known, written.count, Meter(30 * SECOND))
    return text or b""


def best(made: Problem) -> int:
    """Return the least objective that the clauses allow."""
    return next(bound for bound in range(1000) if not proved(made, bound))


def possible(made: Problem, bound: int, *, narrow: bool = False) -> bool:
    """Return True if the clauses can hold, by an engine that does not write the proofs."""
    solver = Glucose4()
    known = Clauses(made, bound, narrow=narrow).known
    for literals in known.values():
        solver.add_clause(literals)
    holds = all(known.values()) and bool(solver.solve())
    solver.delete()
    return holds


def compare(first: int, count: int, objective: str) -> Counter[str]:
    """Raise AssertionError if the least objective of the clauses differs from the best schedule's, or is larger with
    costs rounded down.
    """
    seen: Counter[str] = Counter()
    for x, optimum in instances(first, count, objective):
        made = problem_of(x)
        late = objective == "span" and max(x.route_of) > 0  # its order does not say when a route begins
        for narrow in (False, True):
            assert possible(made, optimum, narrow=narrow), x
            assert late or not possible(made, optimum - 1, narrow=narrow), x
        for grid in (2, 3) if all(gain <= 0 for line, gain in made.gains.items() if line.op != Op.F) else ():
            rounded = floored(made, grid)
            assert possible(rounded, optimum // grid, narrow=True), x
            assert too_busy(rounded, optimum // grid) is None, x
            seen["rounded"] += optimum // grid > 0 and not possible(rounded, optimum // grid - 1)
        seen.update(["all", "fused" if x.fused else "split", f"{max(x.route_of) + 1} routes"])
    return seen


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_clauses_hold_of_exactly_what_can_be_done(objective: str) -> None:
    """The clauses can hold at the best of all schedules, but not one tick below."""
    seen = compare(0, deep(80), objective)
    assert min(seen["all"], seen["fused"], seen["split"], 2 * seen["2 routes"], seen["rounded"]) > deep(4)


def damaged(steps: list[Step], rng: random.Random) -> list[Step]:
    """Change or drop one literal, hint, number or step."""
    made = [(number, list(literals), list(hints)) for number, literals, hints in steps]
    at = rng.randrange(len(made))
    number, literals, hints = made[at]
    part = rng.choice([literals or hints, hints])
    where, how = rng.randrange(len(part)), rng.randrange(6)
    if how == 0:
        part[where] = -part[where] if part is literals else max(1, part[where] + rng.choice([-1, 1]))
    elif how == 1:
        del part[where]
    elif how == 2:
        part.insert(where, rng.choice([1, -1]) * rng.randint(1, number) if part is literals else rng.randint(1, number))
    elif how == 3:
        del made[at]
    elif how == 4:
        made[at] = (number + rng.choice([-1, 1]), literals, hints)
    else:
        made = [*made[:at], (number, [], hints)]
    return made


def look(count: int) -> Counter[str]:
    """Return the verdicts on damaged proofs, and on whole ones under other terms; raises AssertionError if a false one
    is accepted.
    """
    made, seen = terms(), Counter[str]()
    least = best(made)
    whole, below, at = proved(made, least - 1), clauses(made, least - 1), clauses(made, least)
    assert not unproved(whole, made, least - 1)
    for other in (terms(m=7), terms(m=5), terms(cap=4), terms(cap=5), terms(costs="F=1,I=1,W=1"), terms(p=3)):
        assert best(other) < least and unproved(whole, other, least - 1)
    for seed in range(count):
        steps = damaged(steps_of(whole), random.Random(seed))
        assert unfollowed(at, steps, Budget(10**6)), seed  # there is a schedule
        seen["refused" if unfollowed(below, steps, Budget(10**6)) else "harmless"] += 1
    return seen


def test_a_damaged_proof_proves_nothing_false() -> None:
    """However the proof that C - 1 is out of reach is changed, it does not refute C; unchanged it does not refute terms
    that allow C - 1.
    """
    seen = look(deep(50))
    assert seen["refused"] > seen["harmless"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certified")


@pytest.fixture(scope="module")
def answer(folder: Path) -> Optimum:
    return pipesched.optimize(**LOOP, certify=True, proof=str(folder / "x"))


def judged(answer: Optimum, entry: object) -> Report:
    """Return an answer with another proof."""
    told = json.loads(json.dumps(answer.to_json()))
    told["certificate"]["refuted"]["proof"] = entry
    return pipesched.verify(Source("answer.json", json.dumps(told)))


def own(answer: Optimum) -> Any:
    return json.loads(json.dumps(answer.certificate))["refuted"]["proof"]


def test_what_rests_on_a_word_is_proved_when_asked(answer: Optimum) -> None:
    """With --certify the answer is proved, which verify confirms; without its proof its verdict does not follow."""
    assert answer.proved and "checked one by one" in answer.proved_by
    verdict = judged(answer, own(answer)).verdict
    assert verdict is not None and verdict.proved
    assert "PS711" in str(judged(answer, None))


def test_a_proof_that_is_damaged_proves_nothing(answer: Optimum) -> None:
    """A proof that is cut short, empty, not LRAT, or has another entry is reported as such."""
    text = unpacked(b64decode(own(answer)["lrat"]))
    for lines, said in (
        (text.splitlines(keepends=True)[:-1], "does not end in the empty clause"),
        (text.splitlines(keepends=True)[1:], "which is not a clause"),
        ([b"1 0 1 0\n"], "other terms"),
        ([], "does not end in the empty clause"),
        ([b"x"], "not LRAT text"),
    ):
        report = str(judged(answer, {"lrat": b64encode(lzma.compress(b"".join(lines))).decode("ascii")}))
        assert "PS710" in report and said in report
    for entry in ({}, {"lrat": "AAAA"}, {"lrat": "-"}, {**own(answer), "more": 1}, 7, []):
        assert "PS710" in str(judged(answer, entry))


def test_the_files_for_other_checkers_are_the_clauses_and_the_proof(answer: Optimum, folder: Path) -> None:
    """After optimize --certify --proof PATH, every line of PATH.lrat follows from PATH.cnf, by unit propagation. verify
    --proof PATH writes the same two files, or reports that the answer has no proof.
    """
    assert any("x.cnf" in note for note in answer.notes)
    cnf, lrat = (folder / "x.cnf").read_text(), (folder / "x.lrat").read_text()
    assert refusal(cnf, drat(lrat)) == "" and refusal(cnf, "0") != ""
    told = Source("answer.json", json.dumps(answer.to_json()))
    assert pipesched.verify(told, proof=str(folder / "y")).ok
    assert [(folder / f"y.{end}").read_text() for end in ("cnf", "lrat")] == [cnf, lrat]
    formula = pipesched.optimize(p=2, m=3, mem_cap=2)
    for other in (Source("answer.json", json.dumps(formula.to_json())), "1f1b"):
        sizes = {} if isinstance(other, Source) else {"p": 2}
        assert "PS712" in str(pipesched.verify(other, proof=str(folder / "z"), **sizes))
    assert not list(folder.glob("z.*"))


@pytest.mark.parametrize("name", ["cake_lpr", "lrat-check", "drat-trim", "dratify"])
def test_another_checker_accepts_the_files(name: str, answer: Optimum, folder: Path) -> None:
    """An independent checker accepts them; without its last step it refuses the proof."""
    if name not in installed():
        pytest.skip(f"{name} is not installed")
    cnf, lrat = folder / "x.cnf", folder / "x.lrat"
    assert answer.proved and accepts(name, cnf, lrat)
    (folder / "cut.lrat").write_text("".join(lrat.read_text().splitlines(keepends=True)[:1]))
    assert not accepts(name, cnf, folder / "cut.lrat")


@pytest.mark.nightly
def test_a_proof_of_the_least_m_is_one_for_every_m(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If paths keep its microbatches a period apart, and for a bound that equals the value. Without its proof, or with
    a damaged one or another period, the verdict does not follow; other checkers get the files of the least m.
    """
    paths = pipesched.optimize(p=3, mem_cap=2, all_m=True, costs="C=1")
    assert paths.proved and paths.every == (6, 2) and "proof" not in str(paths.certificate["every"])
    monkeypatch.setattr("pipesched.optimizer.solve.certificate.lower_bound", lambda problem: SimpleNamespace(value=0))
    monkeypatch.setattr("pipesched.optimizer.proof.judge.too_busy", lambda problem, bound: None)
    made = pipesched.optimize(p=3, mem_cap=2, all_m=True, costs="C=1", certify=True)
    assert made.proved and made.every == (6, 2) and made.value == 36
    told = json.loads(json.dumps(made.to_json()))
    report = pipesched.verify(Source("answer.json", json.dumps(told)), m=300, proof=str(tmp_path / "x"))
    assert report.ok and report.verdict is not None and report.verdict.proved and report.verdict.value == 36 + 11 * 147
    assert refusal((tmp_path / "x.cnf").read_text(), drat((tmp_path / "x.lrat").read_text())) == ""
    every = told["certificate"]["every"]
    lines = unpacked(b64decode(every["proof"]["lrat"])).splitlines(keepends=True)
    cut = {"lrat": b64encode(lzma.compress(b"".join(lines[:-1]))).decode("ascii")}
    for change in ({"proof": None}, {"proof": cut}, {"proof": 7}, {"growth": 6}, {"step": 1}, {"value": 37}):
        told["certificate"]["every"] = every | change
        damaged = pipesched.verify(Source("answer.json", json.dumps(told)))
        assert not damaged.ok or (damaged.verdict is not None and not damaged.verdict.proved), change


def test_z3_is_a_second_voice(answer: Optimum) -> None:
    """z3 confirms a schedule, and no bound below it; a disagreement prevents the answer. It gets slow questions only on
    request.
    """
    assert [note for note in answer.notes if note == "Z3 agrees: 57 can be reached, at most 56 cannot"]
    for value, below in ((56, 55), (58, 57)):
        with pytest.raises(RuntimeError, match="does not agree"):
            confirmed(answer.instance, Fraction(value), Fraction(below), asked=False)
    large = answer.instance.at(300)
    assert confirmed(large, Fraction(5000), Fraction(4999), asked=False) == ""
    assert "reached no verdict" in confirmed(large, Fraction(50000), Fraction(49999), asked=True)


def test_a_solver_that_writes_no_proof_is_named_before_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A python-sat without that call, or with another output, gives PS820 at once."""
    for broken in ({}, {"cadical195_tracepr": lambda solver, file: None}):
        monkeypatch.setitem(
            sys.modules, "pysolvers", SimpleNamespace(cadical195_del=lambda solver, file: None, **broken)
        )
        with pytest.raises(PipeschedError, match="PS820"):
            pipesched.optimize(**LOOP, certify=True)


@pytest.mark.nightly
def test_a_proof_for_costs_rounded_down_is_a_bound(answer: Optimum, folder: Path) -> None:
    """Costs of about a thousand times the costs of an answer: its proof shows a thousand times its bound, and is
    written to the same files. It is no proof for another grid or a larger value, and costs are not rounded down if
    ends of operations take memory.
    """
    near = {"costs": "F=[1001,3002,2003,2000],I=[4001,3000,3002,4003],W=[4000,1001,1000,4002]", "time_limit": 1}
    found = pipesched.optimize(**LOOP | near)
    told = json.loads(json.dumps(found.to_json()))
    least, refuted = answer.value, told["certificate"]["refuted"]
    assert least is not None
    gap = Fraction(told["certificate"]["schedule"], int(least) * 1000) - 1
    told["certificate"] |= {"lower_bound": int(least) * 1000, "gap": str(gap)}
    refuted |= {"value": int(least) * 1000 - 1, "engine": "cadical", "grid": 1000, "proof": own(answer)}
    for part in (told["certificate"], refuted):
        for name in [name for name in part if name.endswith("_decimal")]:
            del part[name]
    whole = str(pipesched.verify(Source("answer.json", json.dumps(told))))
    assert "PS710" not in whole and "multiples of 1000, the rules of a schedule contradict each other" in whole
    write_proof(str(folder / "r"), read(Source("answer.json", json.dumps(told))), found.instance, lambda m, step: ())
    assert all((folder / f"r.{end}").read_text() == (folder / f"x.{end}").read_text() for end in ("cnf", "lrat"))
    for name, other in (("grid", 999), ("grid", 1), ("grid", 0), ("value", int(least) * 1000)):
        forged = json.loads(json.dumps(told))
        forged["certificate"]["refuted"][name] = other
        assert "PS710" in str(pipesched.verify(Source("answer.json", json.dumps(forged))))
    torch = problem(Terms(linear(2, 4), Costs(), Release.parse("torch"), (Fraction(3),) * 2, False, "makespan"))
    with pytest.raises(ValueError, match="takes memory"):
        floored(torch, 2)


@pytest.mark.nightly
def test_what_is_too_large_is_said() -> None:
    """With more clauses than the limit of one proof, none is made or checked, with that reason."""
    asked = Terms(linear(32, 512), Costs.parse("F=100,I=1,W=1"), AT_W, (Fraction(16),) * 32, False, "makespan")
    assert "more than 2,500,000 clauses" in unproved(b"10000000 0 1 0", problem(asked), 200_000)


def main() -> None:
    parser = argparse.ArgumentParser(description="Clauses against all schedules, and damaged proofs.")
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--mutants", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    for objective in OBJECTIVES if asked.cases else ():
        print(objective, dict(compare(asked.first, asked.cases, objective)))
    if asked.mutants:
        print(dict(look(asked.mutants)))


if __name__ == "__main__":
    main()
