"""A minimal checker of refutations, in which every clause follows by unit propagation.

A clause follows (it is RUP, "reverse unit propagation") if assigning false to all its literals propagates to a clause
with no literal left. A proof is a list of such clauses, and of clauses no longer needed. It ends in the empty clause,
and so shows that the formula has no model. Goldberg and Novikov, DATE 2003; Wetzler, Heule and Hunt, SAT 2014.
"""

from __future__ import annotations

from collections import Counter, defaultdict


def refusal(cnf: str, drat: str) -> str:
    """Return the reason why the proof is invalid, empty if it is valid.

    Args:
        cnf: a DIMACS file.
        drat: a proof as text, `d` before a clause that is deleted, 0 after each.
    """
    try:
        formula, proof = _formula(cnf), _steps(drat)
    except ValueError as error:
        return str(error)
    known = _Known()
    for clause in formula:
        known.add(clause)
    for number, (deleted, clause) in enumerate(proof, start=1):
        if deleted:
            known.delete(clause)
        elif not known.implies(clause):
            return f"line {number} does not follow"
        elif not clause:
            return ""
        else:
            known.add(clause)
    return "the proof does not end in the empty clause"


def _formula(text: str) -> list[tuple[int, ...]]:
    lines = [line for line in text.splitlines() if line and not line.startswith("c")]
    word, kind, variables, count = lines[0].split() if lines else ("", "", "0", "0")
    if (word, kind) != ("p", "cnf"):
        raise ValueError("not a DIMACS file")
    clauses = [_clause(line) for line in lines[1:]]
    if len(clauses) != int(count) or any(abs(x) > int(variables) for clause in clauses for x in clause):
        raise ValueError("the formula is not what its first line says")
    return clauses


def _steps(text: str) -> list[tuple[bool, tuple[int, ...]]]:
    return [(line.startswith("d"), _clause(line.removeprefix("d"))) for line in text.splitlines()]


def _clause(line: str) -> tuple[int, ...]:
    *literals, end = map(int, line.split() or ["1"])
    if end or 0 in literals:
        raise ValueError(f"not a clause: {line!r}")
    return tuple(sorted(set(literals)))


class _Known:
    """The current clauses, with the literals that they force. Forced literals stay, as they have been implied."""

    def __init__(self) -> None:
        self.clauses: dict[int, list[int]] = {}
        self.numbers: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        self.watched: defaultdict[int, set[int]] = defaultdict(set)
        self.true: set[int] = set()
        self.refuted = False
        self.made: Counter[str] = Counter()

    def add(self, clause: tuple[int, ...]) -> None:
        self.made["clauses"] += 1
        number = self.made["clauses"]
        self.numbers[clause].append(number)
        # Literals that are not false come first, so that two of them are watched.
        literals = sorted(clause, key=lambda x: -x in self.true)
        self.clauses[number] = literals
        for x in literals[:2]:
            self.watched[x].add(number)
        left = [x for x in literals if -x not in self.true]
        if not left:
            self.refuted = True
        elif len(left) == 1:
            self.refuted |= not self.propagate(left)

    def delete(self, clause: tuple[int, ...]) -> None:
        if self.numbers[clause]:
            number = self.numbers[clause].pop()
            for x in self.clauses.pop(number)[:2]:
                self.watched[x].discard(number)

    def implies(self, clause: tuple[int, ...]) -> bool:
        """Return True if the clause follows; leaves no trace."""
        if self.refuted or any(x in self.true for x in clause):
            return True
        before = set(self.true)
        follows = not self.propagate([-x for x in clause])
        self.true = before
        return follows

    def propagate(self, literals: list[int]) -> bool:
        """Make the literals true, and all that follows; False on a conflict."""
        todo = list(literals)
        while todo:
            x = todo.pop()
            if -x in self.true:
                return False
            if x in self.true:
                continue
            self.true.add(x)
            for number in list(self.watched[-x]):
                forced = self._look(number, -x)
                if forced is not None:
                    if -forced in self.true:
                        return False
                    todo.append(forced)
        return True

    def _look(self, number: int, false: int) -> int | None:
        """Return the watch another literal of a clause instead of a false one; returns the only literal left, if there
        is just one."""
        literals = self.clauses[number]
        if len(literals) == 1:
            return literals[0]
        if literals[0] == false:
            literals[0], literals[1] = literals[1], literals[0]
        for place in range(2, len(literals)):
            if -literals[place] not in self.true:
                literals[1], literals[place] = literals[place], literals[1]
                self.watched[false].discard(number)
                self.watched[literals[1]].add(number)
                return None
        return literals[0] if literals[0] not in self.true else None
