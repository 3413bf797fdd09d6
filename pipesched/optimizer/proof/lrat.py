"""Checks a refutation: a list of clauses, each of which follows from earlier ones, and the last of which is empty.

    7 -3 5 0 2 4 6 0       clause 7, "not 3, or 5", follows from clauses 2, 4 and 6, its hints, in this order:

all its literals are assumed false; then each hint has at most one literal that is not false, which must be true; the
last hint has none. So any assignment that satisfies clauses 2, 4 and 6 also satisfies clause 7. Since no assignment
satisfies the empty clause, the initial clauses contradict each other. This is LRAT text in which every step is of this
kind and no clause is deleted, so any LRAT checker can read it.

`clauses` derives the initial clauses from the terms, so the proof refutes exactly these terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from pipesched.common.budget import Budget
from pipesched.optimizer.proof.clauses import Clauses, Numbered, TooManyError
from pipesched.optimizer.proof.problem import Problem
from pipesched.support.budget import numbers

_EACH = 2  # most literals of hinted clauses per byte of a proof; CaDiCaL's proofs have a third of a literal per byte
Step: TypeAlias = tuple[int, list[int], list[int]]
"""Number, literals and hints."""


def unproved(text: bytes, problem: Problem, bound: int) -> str:
    """Return the reason why the steps do not prove that no objective is at most `bound` ticks, or an empty string.

    Raises:
        Spent: following the steps exceeds the budget for a text of this length.
    """
    return refutes(text, lambda steps: begun(steps, problem, bound))


def refutes(text: bytes, begin: Callable[[Sequence[Step]], Numbered]) -> str:
    """Return the reason why the steps are not a proof, or an empty string. begin: function that builds the initial
    clauses.
    """
    numbers(text)
    try:
        made = begin(steps := steps_of(text))
    except ValueError:
        return "its proof is not LRAT text"
    except TooManyError as error:
        return str(error)
    if steps and steps[0][0] <= made.count:
        return f"its proof belongs to other terms: these result in {made.count:,} clauses"
    found = unfollowed(made.known, steps, Budget(len(text), _EACH))
    return f"its proof is not valid: {found}" if found else ""


def begun(steps: Sequence[Step], problem: Problem, bound: int, *, whole: bool = False) -> Clauses:
    """Return the clauses with which a proof begins: the clauses of narrowed time windows if the step numbers continue
    their numbering, otherwise the clauses of longest paths. whole: True for all clauses, False for only the clauses
    that a step names.

    Raises:
        TooManyError: there are too many clauses.
    """
    wanted = None if whole else hinted(steps)
    narrow = Clauses(problem, bound, wanted=wanted, narrow=True)
    if not steps or steps[0][0] <= narrow.count + 1:
        return narrow
    made = Clauses(problem, bound, wanted=wanted)
    return made if steps[0][0] > made.count else narrow


def hinted(steps: Sequence[Step]) -> set[int]:
    """Return the numbers of the clauses that the steps name as hints."""
    return {hint for _, _, hints in steps for hint in hints}


def steps_of(text: bytes) -> list[Step]:
    """Read the steps of a proof. Raises ValueError if a line is not a step."""
    return list(map(_step, text.splitlines()))


def _step(line: bytes) -> Step:
    number, *rest = map(int, line.split())
    end = rest.index(0)
    literals, hints = rest[:end], rest[end + 1 : -1]
    if rest[-1] or not hints or min(hints) < 1:
        raise ValueError
    return number, literals, hints


def unfollowed(clauses: Mapping[int, list[int]], steps: Sequence[Step], left: Budget) -> str:
    """Return a message on the first step that does not follow from its hints, or an empty string.

    Raises:
        Spent: the hinted clauses contain more literals than the budget allows.
    """
    known = dict(clauses)
    for number, literals, hints in steps:
        false = set(literals)
        for hint in hints:
            if hint not in known:
                return f"clause {number} has the hint {hint}, which is not a clause"
            left.spend(len(known[hint]), "hints")
            open = [x for x in known[hint] if x not in false]
            if not open:
                break
            if len(open) > 1:
                return f"clause {number} does not follow: clause {hint} has more than one literal left"
            false.add(-open[0])
        else:
            return f"clause {number} does not follow from its hints"
        if number in known:
            return f"clause {number} already exists"
        known[number] = literals
        if not literals:
            return ""
    return "it does not end in the empty clause"
