"""The parts of F, I and W, each on an engine, and the times of slots that follow from them.

    F   attn 4.36   dispatch 6.69 on comm   mlp 4.60   combine 8.68 on comm
    I   combine 5.77 on comm   mlp 5.31   dispatch 7.49 on comm   attn 9.34
    W   mlp 6.38   attn 2.39

of one layer; a stage repeats them. F and I are chains: each part waits for the one before it. A part of W waits only
for the part of I that has its name, in its layer. An engine runs its parts one at a time, in the order in which they
are issued; parts that name no engine are on the rank's own, `compute`.

    F, I, W    their parts in a row
    B          as issued: I_1 W(I_1) I_2 W(I_2) ...
    F + B      as issued: I_1 F_1 W(I_1) I_2 F_2 W(I_2) ..., the order of Megatron-core's combined 1F1B

where W(x) is the part of W with the name of x, and I_k, F_k are the k-th parts over all layers. No order of F + B is
shorter than its fullest engine, nor than F + I alone (`pair`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import zip_longest
from math import lcm
from os import PathLike
from typing import TypeAlias

from pipesched.engines.pair import pair
from pipesched.model.units import NO_UNIT, Unit

OWN = "compute"
Step: TypeAlias = tuple[str, int, "Piece"]
"""A part as it is issued: its letter, its layer, the part."""


@dataclass(frozen=True)
class Piece:
    """A part of an operation: its name, its time, its engine."""

    name: str
    time: Fraction
    engine: str = OWN


@dataclass(frozen=True)
class Parts:
    """The parts of a layer by letter. layers: those of 1/p of the model; a stage of S has layers * p / S of them.

    name: their source, for people.
    """

    layers: int = 0
    letters: Mapping[str, tuple[Piece, ...]] = field(default_factory=dict)
    unit: Unit = NO_UNIT
    name: str = ""

    def of_stage(self, ranks: int, stages: int) -> Fraction:
        """Return the layers of a stage."""
        return Fraction(self.layers * ranks, max(stages, 1))


PartsLike: TypeAlias = "str | PathLike[str] | Parts | None"
"""Parts, the path of their file, or the name of a file that ships with pipesched."""


@dataclass(frozen=True)
class Slots:
    """The times of the slots of a stage with a number of layers."""

    letters: Mapping[str, tuple[Piece, ...]]
    layers: int

    def row(self, letter: str) -> Fraction:
        """Return the time of all parts of a letter in a row."""
        return self.layers * sum((part.time for part in self.letters.get(letter, ())), Fraction(0))

    def load(self, letters: str, engine: str = OWN) -> Fraction:
        """Return the time for which the parts of some letters use an engine."""
        parts = (part for letter in letters for part in self.letters.get(letter, ()) if part.engine == engine)
        return self.layers * sum((part.time for part in parts), Fraction(0))

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines of all parts, sorted."""
        return tuple(sorted({part.engine for parts in self.letters.values() for part in parts}))

    @cached_property
    def backward(self) -> Fraction:
        """The time of B as issued."""
        return fifo(self.issued(""))

    @cached_property
    def overlap(self) -> Fraction:
        """The time of an overlap pair of F and B as issued."""
        return fifo(self.issued("F"))

    @cached_property
    def least(self) -> Fraction:
        """A time below which no order of the parts of F and B ends."""
        scale = lcm(*(part.time.denominator for parts in self.letters.values() for part in parts))
        forward, back = ([(int(x.time * scale), x.engine) for _, _, x in self._chain(letter)] for letter in "FI")
        return max(Fraction(pair(forward, back), scale), *(self.load("FIW", engine) for engine in self.engines))

    def issued(self, forward: str) -> Iterator[Step]:
        """Yield the parts of a B in the order in which the rank issues them, beside the parts of `forward`."""
        weights = {part.name: part for part in self.letters.get("W", ())}
        for back, ahead in zip_longest(self._chain("I"), self._chain(forward)):
            yield from (step for step in (back, ahead) if step is not None)
            if back is not None and back[2].name in weights:
                yield "W", back[1], weights[back[2].name]

    def _chain(self, letter: str) -> list[Step]:
        return [(letter, layer, part) for layer in range(self.layers) for part in self.letters.get(letter, ())]


def fifo(issued: Iterator[Step] | Sequence[Step]) -> Fraction:
    """Return the end of the last part, if each engine runs its parts in the order in which they are issued."""
    free: dict[str, Fraction] = {}
    ended: dict[str, Fraction] = {}
    inputs: dict[tuple[int, str], Fraction] = {}
    for letter, layer, part in issued:
        after = inputs[layer, part.name] if letter == "W" else ended.get(letter, Fraction(0))
        free[part.engine] = max(free.get(part.engine, Fraction(0)), after) + part.time
        ended[letter] = free[part.engine]
        if letter == "I":
            inputs[layer, part.name] = free[part.engine]
    return max(free.values(), default=Fraction(0))
