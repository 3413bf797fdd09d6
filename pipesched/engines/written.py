"""Writes the statements that give the stages of a schedule their parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction

from pipesched.engines.parts import LETTERS, OWN, Parts


def lines(parts: Parts) -> Iterator[str]:
    """Yield ``parts F = 4 of (attn 4.4, dispatch 6.7 on comm)``; by stage if stages differ."""
    for letter in LETTERS:
        chains = [getattr(stage, letter) for stage in parts.stages]
        if not chains or not chains[0].each:
            continue
        by_stage = len(set(chains)) > 1
        each = [
            f"{part.name} {_chosen([chain.each[at].time for chain in chains])}"
            + (f" on {part.engine}" if part.engine != OWN else "")
            for at, part in enumerate(chains[0].each)
        ]
        layers = _chosen([Fraction(chain.layers) for chain in chains])
        yield f"parts {letter}{'[s]' * by_stage} = {layers} of ({', '.join(each)})"


def _chosen(values: Sequence[Fraction]) -> str:
    """Return an expression in the stage s that has these values."""
    text = _number(values[-1])
    for stage in reversed(range(len(values) - 1)):
        if values[stage] != values[stage + 1]:
            text = f"if s <= {stage} then {_number(values[stage])} else {text}"
    return text


def _number(value: Fraction) -> str:
    """Return a number as a decimal if that is exact and short, otherwise as a quotient."""
    digits = next((digits for digits in range(4) if (value * 10**digits).denominator == 1), None)
    if digits is None:
        return f"{value.numerator} / {value.denominator}"
    return str(Decimal(int(value * 10**digits)).scaleb(-digits))
