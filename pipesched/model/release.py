"""Release rules: when an activation is freed. The literature often confuses the first three; the fourth is torch's.

    W          all at the end of W or B                 controllable-memory papers, our default
    I          all at the end of I                      a common assumption
    split:x    1 - x at I, x at W                       zero-bubble paper: M_W / M_B = x
    torch      nothing at I, 0.6 more held until W      measured on a transformer block, torch 2.13
    I=a,W=b    a at I, b at W; a + b = 1

A B frees everything at its end, and so does the I of a frozen stage. Amounts are relative to what the F of the same
stage allocates.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.model.numbers import number
from pipesched.model.ops import Op, Result

_HELP = "a release rule is W, I, torch, split:x with 0 <= x <= 1, or I=a,W=b with a + b = 1"


@dataclass(frozen=True, slots=True)
class Release:
    """The fractions of an activation that I and W free; their sum is 1. A negative fraction allocates memory."""

    name: str
    at_input: Fraction
    at_weight: Fraction

    def change(self, op: Op, *, trained: bool = True) -> Fraction:
        """Return how an operation changes a rank's activations: an F adds one, each gradient frees its share.

        trained: whether its stage is trained; on other stages the gradient for the input frees everything.
        """
        at_input, at_weight = (self.at_input, self.at_weight) if trained else (Fraction(1), Fraction(0))
        changes = {Result.ACTIVATION: Fraction(1), Result.GRADIENT: -at_input, Result.WEIGHTS: -at_weight}
        return sum((changes.get(result, Fraction(0)) for result in op.kind.makes), Fraction(0))

    @classmethod
    def parse(cls, text: str) -> Release:
        """Parse a rule as written on the command line.

        Raises:
            PipeschedError: PS225: the text is not a rule.
        """
        rule = text.replace(" ", "")
        if rule in _NAMED:
            return cls(rule, 1 - _NAMED[rule], _NAMED[rule])
        try:
            if rule.startswith("split:"):
                weight = number(rule[6:], "the share of W")
                if weight <= 1:
                    return cls._checked(rule, 1 - weight, weight)
            shares = sorted(part.partition("=")[::2] for part in rule.split(","))
            if [of for of, _ in shares] == ["I", "W"]:
                return cls._checked(rule, *(_signed(share) for _, share in shares))
        except PipeschedError:
            pass
        raise fail(Code.USAGE, f"not a release rule: {text!r}", help=_HELP)

    @classmethod
    def _checked(cls, name: str, at_input: Fraction, at_weight: Fraction) -> Release:
        if at_input + at_weight != 1 or at_weight < 0:
            raise fail(Code.USAGE, f"release rule {name!r} does not free exactly what F took", help=_HELP)
        return cls(name, at_input, at_weight)


_NAMED = {"W": Fraction(1), "I": Fraction(0), "torch": Fraction(8, 5)}


def _signed(text: str) -> Fraction:
    return -number(text[1:], "a share") if text.startswith("-") else number(text, "a share")


AT_W = Release.parse("W")


def caps_by_rank(asked: tuple[Fraction, ...] | None, ranks: int, *, zero: bool = True) -> tuple[Fraction, ...] | None:
    """Return a cap per rank, from one cap for all ranks or one for each; None without caps. zero: whether 0 is
    allowed.

    Raises:
        PipeschedError: PS225: a cap is too small, or the number of caps is neither 1 nor the number of ranks.
    """
    if asked is None:
        return None
    least = min(asked, default=Fraction(0))
    if least < 0 or not (least or zero):
        raise fail(Code.USAGE, f"a cap is {least}", help=f"it must be {'at least 0' if zero else 'above 0'}, e.g. 5.5")
    if len(asked) not in (1, ranks):
        raise fail(Code.USAGE, f"{len(asked)} caps for {ranks} ranks", help="give one cap, or one per rank")
    return asked * (ranks // len(asked))
