"""The refutation checker that these tests use (`oracles/rup.py`) accepts only valid refutations."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import pytest

from tests.depth import in_usual_run
from tests.oracles.rup import refusal


def test_the_checker_refuses_whatever_has_a_model() -> None:
    """Of all formulas of two clauses over two variables, one with a model has no short proof, and one without is
    refuted by the empty clause after some unit.
    """
    literals = (1, -1, 2, -2)
    some = [(a,) for a in literals] + [(1, 2), (1, -2), (-1, 2), (-1, -2)]
    proofs = ["0\n", *(f"{a} 0\n0\n" for a in literals), *(f"{a} 0\n{b} 0\n0\n" for a in literals for b in literals)]
    for formula in combinations_with_replacement(some, 4) if in_usual_run() else product(some, repeat=4):
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
