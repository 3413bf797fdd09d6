"""The evidence of a proof: guessed expressions, and decided inclusions of sets.

A prover makes guesses and keeps them; a checker takes the evidence of a certificate, and makes no guesses. Both decide
the same inclusions, and only inclusions justify conclusions from a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pipesched.prover.presburger import PwAff, Set, Space, UnionMap, UnionSet, spend
from pipesched.prover.written import cases, expression

Points: TypeAlias = Set | UnionSet | UnionMap


@dataclass(frozen=True, eq=False)
class Shown:
    """A decided inclusion, or a decided equality of two products. what: the statement, as text. left, right: the sets
    of the inclusion, if a second opinion is requested. factors: a, b, c and d of ``a b == c d``, each with one digit,
    or with two in base p.
    """

    what: str
    left: Points = None
    right: Points = None
    factors: Sequence[Sequence[PwAff]] = ()


@dataclass(eq=False)
class Evidence:
    """The guesses and inclusions for the questions on one file. known: the guesses of a certificate, or None to make
    guesses.

    where: the sizes of a restricted question, as text. keeps: whether each inclusion is stored with its sets.
    """

    known: Mapping[str, object] | None = None
    place: str = ""
    keeps: bool = False
    where: str = ""
    made: dict[str, tuple[PwAff, Space]] = field(default_factory=dict)
    taken: dict[str, object] = field(default_factory=dict)
    shown: list[Shown] = field(default_factory=list)

    def under(self, where: str) -> Evidence:
        """Return evidence for a question about fewer sizes; its guesses and inclusions are recorded here too."""
        where = " and ".join(filter(None, [self.where, where]))
        return replace(self, where=where)

    def _named(self, what: str) -> str:
        return f"{what} where {self.where}" if self.where else what

    def guess(self, of: str, space: Space, make: Callable[[], PwAff | None]) -> PwAff | None:
        """Return a guess at an expression; None if there is no guess.

        Raises:
            Damaged: the certificate's guess is not an expression.
        """
        name = self._named(of)
        if self.known is None:
            found = make()
            if found is not None:
                self.made[name] = found, space
            return found
        if name not in self.known:
            return None
        self.taken[name] = self.known[name]
        return expression(self.known[name], space, f"{self.place}.guesses[{name}]")

    def holds(self, what: str, left: Points, right: Points) -> bool:
        """Return True if one set is within another set, and record the inclusion.

        Raises:
            TooHard: the question takes too many steps or too much memory.
        """
        spend(1)
        if not left.is_subset(right):
            return False
        name = self._named(what)
        self.shown.append(Shown(name, left, right) if self.keeps else Shown(name))
        return True

    def equal(self, what: str, factors: Callable[[], Sequence[Sequence[PwAff]]]) -> None:
        """Record that two products are equal."""
        self.shown.append(Shown(self._named(what), factors=factors() if self.keeps else ()))

    def guesses(self) -> dict[str, object]:
        """Return all guesses in the form that a certificate uses."""
        return dict(self.taken) if self.known is not None else {of: cases(*made) for of, made in self.made.items()}

    def obligations(self) -> list[str]:
        """Return the inclusions as text."""
        return [*dict.fromkeys(shown.what for shown in self.shown)]
