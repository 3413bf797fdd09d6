"""A written refutation convinces an independent checker."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from pipesched.optimizer.solve.engines.decide import clauses, decide, task
from pipesched.optimizer.solve.problem import Problem, Question
from tests.makers.instances import linear
from tests.oracles.rup import refusal

REFUTED = {
    "linear": (linear(4, 8, 3), 30, None),
    "vee": (linear(3, 5, 3, folded=True), 43, None),
    "one rank": (linear(3, 6, 4, folded=True), 38, (2,)),
    "no time at all": (linear(3, 3, 3), 5, None),
}
"""No schedule is so short: that is an engine's word, and the proof is what makes it more."""


def written(folder: Path, problem: Problem, bound: int, ranks: tuple[int, ...] | None) -> tuple[str, str]:
    path = folder / "refutation"
    answer = decide(Question(problem, bound, ranks=ranks, proof=str(path)))
    assert answer.verdict == "unsat"
    assert sorted(x.name for x in folder.iterdir()) == ["refutation.cnf", "refutation.drat"]
    return (folder / "refutation.cnf").read_text(), (folder / "refutation.drat").read_text()


@pytest.mark.parametrize("name", REFUTED)
def test_the_proof_of_a_refutation_is_accepted(name: str, tmp_path: Path) -> None:
    """Every line follows from the clauses by unit propagation, and the last is empty."""
    assert refusal(*written(tmp_path, *REFUTED[name])) == ""


def test_a_proof_cut_short_or_changed_is_refused(tmp_path: Path) -> None:
    """Without its last line a proof proves nothing; a negated forced literal does not follow, nor does an empty proof's
    end.
    """
    cnf, drat = written(tmp_path, *REFUTED["vee"])
    lines = drat.splitlines(keepends=True)
    assert "empty clause" in refusal(cnf, "".join(lines[:-1]))
    assert "empty clause" in refusal(cnf, "".join(lines[: len(lines) // 2]))
    unit = next(i for i, line in enumerate(lines) if re.fullmatch(r"-?\d+ 0\n", line))
    turned = str(-int(lines[unit].split()[0])) + " 0\n"
    assert "does not follow" in refusal(cnf, "".join([*lines[:unit], turned, *lines[unit + 1 :]]))
    assert "does not follow" in refusal(cnf, "0\n")
    assert "does not follow" in refusal(cnf, lines[-2] + "0\n")


def test_what_can_be_has_no_refutation(tmp_path: Path) -> None:
    """A possible objective gets no files, and the proof that C is out of reach does not refute C + 1."""
    problem, bound, ranks = REFUTED["vee"]
    _, drat = written(tmp_path, problem, bound, ranks)
    assert decide(Question(problem, bound + 1, proof=str(tmp_path / "none"))).verdict == "sat"
    assert not (tmp_path / "none.cnf").exists() and not (tmp_path / "none.drat").exists()
    reachable = clauses(task(Question(problem, bound + 1))).clauses
    assert refusal("".join(reachable.dimacs()), drat)


def test_the_checker_refuses_whatever_has_a_model() -> None:
    """Of all formulas of two clauses over two variables, one with a model has no short proof, and one without is
    refuted by the empty clause after some unit.
    """
    literals = (1, -1, 2, -2)
    some = [(a,) for a in literals] + [(1, 2), (1, -2), (-1, 2), (-1, -2)]
    proofs = ["0\n", *(f"{a} 0\n0\n" for a in literals), *(f"{a} 0\n{b} 0\n0\n" for a in literals for b in literals)]
    for formula in product(some, repeat=4):
        model = any(
            all(any((x > 0) == values[abs(x) - 1] for x in clause) for clause in formula)
            for values in product((True, False), repeat=2)
        )
        text = "p cnf 2 4\n" + "".join(" ".join(map(str, (*clause, 0))) + "\n" for clause in formula)
        assert any(refusal(text, proof) == "" for proof in proofs) is not model


def test_a_deleted_clause_proves_nothing_more() -> None:
    """A clause deleted before it forced a literal is not used again."""
    formula = "p cnf 2 4\n1 2 0\n1 -2 0\n-1 2 0\n-1 -2 0\n"
    assert refusal(formula, "1 0\n0\n") == ""
    assert refusal(formula, "d 1 -2 0\n1 0\n0\n") == "line 2 does not follow"


@pytest.mark.parametrize("cnf", ["", "p cnf 1 2\n1 0\n", "p cnf 1 1\n2 0\n", "p cnf 1 1\n1\n", "p dnf 0 0\n"])
def test_a_formula_that_is_none_is_refused(cnf: str) -> None:
    """A formula must match its first line."""
    assert refusal(cnf, "0\n")


def test_the_comments_tell_every_variable_of_a_start(tmp_path: Path) -> None:
    """The comments have one line per operation, with consecutive variables from 1."""
    problem, bound, _ = REFUTED["linear"]
    cnf, _ = written(tmp_path, problem, bound, None)
    line = re.compile(r"c   (\w) (\d+) (\d+) (\d+) (\d+): starts (\d+) \.\. (\d+), takes 1; variables (\d+) \.\. (\d+)")
    told = [(m[1], [int(x) for x in m.groups()[1:]]) for m in map(line.fullmatch, cnf.splitlines()) if m]
    assert {(op, stage, i) for op, (_, stage, i, *_) in told} == set(product("FIW", range(4), range(8)))
    next_free = 1
    for _, (_, stage, _, rank, low, high, first, last) in told:
        assert stage == rank and first == next_free and last - first + 1 == high - low
        next_free = last + 1
    assert "makespan at most 30 " in cnf
