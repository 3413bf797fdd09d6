"""The parts of F, I and W, each on an engine, and the times of slots derived from them.

    F   attn 4.36   dispatch 6.69 on comm   mlp 4.60   combine 8.68 on comm
    I   combine 5.77 on comm   mlp 5.31   dispatch 7.49 on comm   attn 9.34
    W   mlp 6.38   attn 2.39

These are the parts of one layer; a stage repeats them. F and I are chains: each part waits for the one before it. A
part of W waits only for the part of I with the same name, in the same layer. An engine runs its parts one at a time, in
the order in which they are issued; parts that name no engine run on the rank's own engine, `compute`.

    F, I, W:               the parts one after the other.
    B:                     the order of issue, I_1 W(I_1) I_2 W(I_2) ...
    F + I, F + W, I + W:   the shortest of all orders of two chains (`pair`); W is a chain in its written order.
    F + B:                 I_1 F_1 W(I_1) I_2 F_2 W(I_2) ..., the order of issue in Megatron-core's combined 1F1B.

Here W(x) is the part of W with the name of x, and I_k, F_k are the k-th parts over all layers. No order of F + B is
shorter than the time of its busiest engine, or than F + I alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import zip_longest
from math import lcm
from os import PathLike
from typing import TypeAlias

from pipesched.engines.pair import TooLong, begun, pair
from pipesched.model.cost_values import Cost
from pipesched.model.costs import PAIRS
from pipesched.model.units import NO_UNIT, Unit

OWN = "compute"
LETTERS = ("F", "I", "W")
MORE = ("C", "M", "K", *PAIRS)
"""The costs that parts do not determine, and the costs of pairs, which replace the derived costs."""
Step: TypeAlias = tuple[str, int, "Piece"]
"""An issued part, with its letter and its layer."""


@dataclass(frozen=True)
class Piece:
    """A part of an operation, with its time and its engine."""

    name: str
    time: Fraction
    engine: str = OWN


@dataclass(frozen=True)
class Chain:
    """The parts of a letter in each of a stage's `layers` layers, in order."""

    layers: int = 0
    each: tuple[Piece, ...] = ()

    def load(self, engine: str | None = None) -> Fraction:
        """Return how long the parts of a letter use an engine; for None, the sum over all engines."""
        return self.layers * sum((x.time for x in self.each if engine in (None, x.engine)), Fraction(0))

    def steps(self, letter: str) -> list[Step]:
        """Return the chain's parts over all layers, each with its letter and layer."""
        return [(letter, layer, part) for layer in range(self.layers) for part in self.each]


@dataclass(frozen=True)
class Stage:
    """The parts of F, I and W of a stage."""

    F: Chain
    I: Chain
    W: Chain

    def chains(self, kind: str) -> list[Chain]:
        """Return the chains of the parts of F, I, W or B."""
        return [getattr(self, letter) for letter in kind.replace("B", "IW")]


@dataclass(frozen=True)
class Parts:
    """The parts of a layer by letter. layers: the number of layers in 1/p of the model; each of S stages has layers * p
    / S. unit: the unit of times. name: the source of the parts, as shown to users. stages: the parts of each stage of
    one schedule, which replace layers and letters. costs: further costs in the file of parts. of_model: whether the
    parts follow from --model and --device.
    """

    layers: int = 0
    letters: Mapping[str, tuple[Piece, ...]] = field(default_factory=dict)
    unit: Unit = NO_UNIT
    name: str = ""
    stages: tuple[Stage, ...] = ()
    costs: Mapping[str, Cost] = field(default_factory=dict)
    of_model: bool = False

    @property
    def given(self) -> bool:
        """True if there are any parts; the default value has none."""
        return bool(self.letters or self.stages or self.of_model)

    def of_stage(self, ranks: int, stages: int) -> Fraction:
        """Return the number of layers in a stage."""
        return Fraction(self.layers * ranks, max(stages, 1))


PartsLike: TypeAlias = "str | PathLike[str] | Parts | None"
"""Parts, the path of their file, the name of a file that ships with pipesched, or ``model`` for --model's layers."""


@lru_cache(maxsize=1024)
def slot(kinds: str, first: Stage, second: Stage) -> Fraction:
    """Return the time of a slot. kinds: F, I, W or B of the stage `first`; or FB, FI, FW or IW, whose second operation
    is of the stage `second`.

    Raises:
        TooLong: the chains of FI, FW or IW are too long to compute their least time.
    """
    if kinds in LETTERS:
        return first.chains(kinds)[0].load()
    if kinds == "B":
        return fifo(issued(Chain(), first))
    return (
        fifo(issued(first.F, second)) if kinds == "FB" else _shortest(first.chains(kinds[0]), second.chains(kinds[1]))
    )


def least(first: Stage, second: Stage) -> Fraction:
    """Return a lower bound on the time of an F and a B, for any order of their parts."""
    chains = [first.F, *second.chains("B")]
    engines = {part.engine for chain in chains for part in chain.each}
    bounds = [sum((chain.load(engine) for chain in chains), Fraction(0)) for engine in engines]
    with suppress(TooLong):
        bounds.append(_shortest([first.F], [second.I]))
    return max(*bounds, first.F.load(), second.I.load())


def _shortest(*both: Sequence[Chain]) -> Fraction:
    """Return the least time of two chains that run side by side."""
    rows = [[part for chain in chains for _, _, part in chain.steps("")] for chains in both]
    scale = lcm(*(part.time.denominator for row in rows for part in row))
    one, other = ([(int(part.time * scale), part.engine) for part in row] for row in rows)
    return Fraction(pair(one, other), scale)


def issued(forward: Chain, back: Stage) -> Iterator[Step]:
    """Yield the parts of a B in the order in which the rank issues them, together with the parts of a forward."""
    weights = {part.name: part for part in back.W.each}
    for own, ahead in zip_longest(back.I.steps("I"), forward.steps("F")):
        yield from (step for step in (own, ahead) if step is not None)
        if own is not None and own[2].name in weights:
            yield "W", own[1], weights[own[2].name]


@dataclass(frozen=True)
class Placed:
    """A part of a slot, and when it runs, measured from the start of the slot."""

    letter: str
    layer: int
    part: Piece
    begin: Fraction
    end: Fraction


def fifo(issued: Iterable[Step]) -> Fraction:
    """Return the end of the last part, if each engine runs its parts in the order in which they are issued."""
    return max((x.end for x in queued(issued)), default=Fraction(0))


def queued(issued: Iterable[Step]) -> Iterator[Placed]:
    """Yield the times of the parts, if each engine runs its parts in the order in which they are issued."""
    free: dict[str, Fraction] = {}
    ended: dict[str, Fraction] = {}
    inputs: dict[tuple[int, str], Fraction] = {}
    for letter, layer, part in issued:
        after = inputs[layer, part.name] if letter == "W" else ended.get(letter, Fraction(0))
        begin = max(free.get(part.engine, Fraction(0)), after)
        ended[letter] = free[part.engine] = end = begin + part.time
        if letter == "I":
            inputs[layer, part.name] = end
        yield Placed(letter, layer, part, begin, end)


def placed(kinds: str, first: Stage, second: Stage) -> list[Placed]:
    """Return when each part of a slot runs; the arguments are those of `slot`.

    Raises:
        TooLong: as for `slot`.
    """
    if kinds in ("B", "FB"):
        return list(queued(issued(first.F if kinds == "FB" else Chain(), second)))
    rows = [
        chain.steps(kind) for kind, stage in zip(kinds, (first, second), strict=False) for chain in stage.chains(kind)
    ]
    rows = [[step for step in row if step[2].time] for row in rows]
    scale = lcm(*(part.time.denominator for row in rows for _, _, part in row))
    ticks = [[(int(part.time * scale), part.engine) for _, _, part in row] for row in [*rows, []][:2]]
    _, *starts = begun(*ticks)
    return [
        Placed(*step, Fraction(start, scale), Fraction(start, scale) + step[2].time)
        for row, begins in zip(rows, starts, strict=False)
        for step, start in zip(row, begins, strict=True)
    ]


def critical(runs: Sequence[Placed]) -> list[Placed]:
    """Return a critical path through a slot: each part begins when the one before it ends."""
    at = max(runs, key=lambda x: x.end, default=None)
    path: list[Placed] = []
    while at is not None:
        path.append(at)
        now = at
        before = [x for x in runs if x.end == now.begin and x.part.time and now.begin]
        ours = [x for x in before if x.letter == now.letter or x.part.engine == now.part.engine or now.letter == "W"]
        at = next(iter([*ours, *before]), None)
    return path[::-1]
