"""All ways to distribute a training step over the GPUs of a cluster.

    gpus = p t c d      pipeline, tensor, context and data parallelism; e shares the experts of a stage's t c d ranks
    B = d b m           a batch is m microbatches of b sequences on each of d copies
    S = p v             stages, v on each rank

Layers are divided evenly, and the end stages have fewer if there is a remainder; or with the embedding and the head
counted as one layer each: torchtitan's default, and Megatron's --account-for-embedding-in-pipeline-split with the same
option for the loss. The search tries every v that gives all stages but two the same number of layers in one of these
ways, and 1, 2, 4 or 8 sequences per microbatch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from math import isqrt
from typing import NamedTuple, TypeAlias, TypeVar, cast

from pipesched.language.evaluate import MAX_OPS
from pipesched.planning.launch import launcher
from pipesched.planning.layouts.schedules import SCHEDULES, Row
from pipesched.planning.transformer.config import RECOMPUTE, Training, Transformer
from pipesched.planning.transformer.rules import OF_TRAINING, faults, layers_of
from pipesched.planning.transformer.trainers import TRAINERS

MICROBATCHES = (1, 2, 4, 8)
LETTERS = {"t": "tensor", "c": "context", "d": "data", "e": "expert", "b": "microbatch"}
"""The letters of a choice, each with the key of `Training` that it sets."""
LAYOUT = ("p", "t", "c", "d", "e")
"""The degrees of parallelism."""
NAMES = ("schedule", "p", "t", "c", "d", "e", "v", "b", "recompute", "zero", "split")
SPLITS = ("even", "ends")


Size: TypeAlias = "int | str"
"""A value under one of the `NAMES`."""
Listed = TypeVar("Listed", int, str)


class Cut(NamedTuple):
    """A division of the layers into stages. layout: the number of layers of each stage; None: divided evenly."""

    stages: int
    layout: tuple[int, ...] | None


@dataclass(frozen=True)
class Choice:
    """A schedule on p ranks with v stages each, and the other degrees of parallelism."""

    schedule: str
    p: int
    v: int
    training: Training

    @property
    def row(self) -> Row:
        """The library schedule of the choice."""
        return SCHEDULES[self.schedule]

    @property
    def m(self) -> int:
        """The number of microbatches."""
        return self.training.microbatches or 0

    @property
    def ranks(self) -> tuple[int, ...]:
        """The rank of every stage."""
        return _placed(self.schedule, self.p, self.v)[0]

    @property
    def held(self) -> tuple[tuple[int, ...], ...]:
        """The stages of every rank."""
        return _placed(self.schedule, self.p, self.v)[1]

    @property
    def sizes(self) -> dict[str, int]:
        """The values of the schedule file's parameters: p, v and m."""
        return {"p": self.p, **({} if self.row.chunks else {"v": self.v}), "m": self.m}

    @property
    def cut(self) -> Cut:
        """The division of the layers into stages."""
        return Cut(self.p * self.v, self.training.layout)

    @property
    def split(self) -> str:
        """The division of the layers, one of `SPLITS`."""
        return "even" if self.training.layout is None else "ends"

    def __getitem__(self, name: str) -> Size:
        """Return the value under a name in `NAMES`."""
        noun = self if name in ("schedule", "p", "v", "split") else self.training
        found: Size = getattr(noun, LETTERS.get(name, name))
        return found

    def to_json(self) -> dict[str, Size]:
        """Return the values of all `NAMES`, and m."""
        return {**{name: self[name] for name in NAMES}, "m": self.m}

    @property
    def layout(self) -> str:
        """The degrees of parallelism: ``p=4 t=8 d=2``."""
        return " ".join(f"{name}={self[name]}" for name in LAYOUT if name in "pt" or self[name] != 1)

    def __str__(self) -> str:
        others = {
            "v": (self.row.chunks, self.v),
            "b": (1, self["b"]),
            "recompute": ("none", self["recompute"]),
            "zero": (0, self["zero"]),
            "split": ("even", self.split),
        }
        said = [f"{name}={x}" for name, (usual, x) in others.items() if x != usual]
        return " ".join([self.schedule, self.layout, *said])


@dataclass(frozen=True)
class Space:
    """The choices for a transformer on a number of GPUs; `training` gives the batch and all other settings. node: GPUs
    per node.

    only: the values to try, by name in `NAMES`; all values of a name that is absent. trainer: the trainer and release
    that must run a choice, as in ``megatron==0.16``; empty for any.
    """

    transformer: Transformer
    training: Training
    gpus: int
    node: int
    only: Mapping[str, tuple[Size, ...]] = field(default_factory=dict, compare=False)
    trainer: str = ""

    def __iter__(self) -> Iterator[Choice]:
        """Yield all choices in a fixed order, including choices that do not divide evenly, which `refuses` rejects."""
        batch = self.training.batch or 0
        for p, t, c in product(self._of("p", self.gpus), self._of("t", self.gpus), self._of("c", self.gpus)):
            if self.gpus % (p * t * c):
                continue
            d = self.gpus // (p * t * c)
            if d not in self._listed("d", [d]):
                continue
            zeros = self._listed("zero", range(4) if c * d > 1 else (0,))
            experts = self._of("e", t * c * d if self.transformer.experts else 1)
            sizes = self._listed("b", [b for b in MICROBATCHES if d * b <= batch] or [1])
            made: dict[tuple[Size, Size, Size, Size, tuple[int, ...] | None], Training] = {}  # schedules share them
            for schedule in self._schedules(p):
                cuts = self._cuts(SCHEDULES[schedule], p)
                for e, b, recompute, zero, (v, layout) in product(experts, sizes, self._recompute(), zeros, cuts):
                    own = e, b, recompute, zero, layout
                    if own not in made:
                        degrees = replace(self.training, tensor=t, context=c, data=d, expert=e, microbatch=b)
                        cut = layout or self.training.layout
                        made[own] = replace(degrees, recompute=recompute, zero=zero, layout=cut)
                    yield Choice(schedule, p, v, made[own])

    def _cuts(self, row: Row, p: int) -> list[tuple[int, tuple[int, ...] | None]]:
        """Return every division of the layers: the number of stages per rank, and the layout of all stages."""
        return [(v, layout) for v in self._chunks(row, p) for layout in self._layouts(row, p * v)]

    def _recompute(self) -> list[str]:
        """Return the values of recompute to try; selective recomputation is for scores, which flash attention does not
        keep, and recomputation by operation is only for torch.
        """
        a, x, left = self.transformer, self.training, set[str]()
        if "recompute" not in self.only:
            left = {"selective"} if x.attention == "flash" else left
            left |= {"operations"} if x.trainer != "torch" or a.experts or a.latent else set()
        return self._listed("recompute", [how for how in RECOMPUTE if how not in left])

    def _of(self, name: str, most: int) -> list[int]:
        """Return the values of a degree to try: divisors of `most`, or only the requested ones."""
        return self._listed(name, _divisors(most))

    def _listed(self, name: str, values: Collection[Listed]) -> list[Listed]:
        asked = cast("tuple[Listed, ...]", self.only.get(name, tuple(values)))
        return [x for x in asked if name == "b" or x in values]

    def _schedules(self, p: int) -> list[str]:
        """Return the schedules to try; on one rank all have the same order, so one schedule suffices."""
        named = self._listed("schedule", SCHEDULES)
        return named if p > 1 else named[:1] if "1f1b" not in named else ["1f1b"]

    def _chunks(self, row: Row, p: int) -> list[int]:
        if row.chunks:
            return self._listed("v", [row.chunks])
        most = max(2, (self.transformer.layers + 2) // p)
        return self._listed("v", [v for v in range(2, most + 1) if self._near(p * v)])

    def _near(self, stages: int) -> list[str]:
        """Return the splits that give all stages but two the same number of layers; for `ends`, embedding and head
        count as one layer each.
        """
        counts = {"even": self.transformer.layers, "ends": self.transformer.layers + 2}
        return [how for how, count in counts.items() if -count % stages <= 2 and stages <= count]

    def _layouts(self, row: Row, stages: int) -> list[tuple[int, ...] | None]:
        """Return the layout of every split to try; for looped stages only nearly even splits."""
        splits = self._listed("split", SPLITS if row.chunks or "split" in self.only else self._near(stages))
        ends = _ends(self.transformer, stages) if stages > 1 and not self.transformer.encoder else None
        found = dict.fromkeys(ends if how == "ends" else None for how in splits)
        if stages > self.transformer.layers and ends:
            found.pop(None, None)
        return list(found) or [None]


@lru_cache(maxsize=4096)
def _ends(a: Transformer, stages: int) -> tuple[int, ...] | None:
    """Return the layers by stage if the embedding and the head count as one layer each, with more layers on the first
    stages; None if a middle stage would have no layer, or if the result is the even split.
    """
    each, more = divmod(a.layers + 2, stages)
    counts = tuple(each + (stage < more) - (stage in (0, stages - 1)) for stage in range(stages))
    even = tuple(map(len, layers_of(a, Training(), stages))) if stages <= a.layers else ()
    return None if each == 0 or counts == even else counts


@lru_cache(maxsize=4096)
def _divisors(number: int) -> tuple[int, ...]:
    small = [x for x in range(1, isqrt(number) + 1) if number % x == 0]
    return tuple(dict.fromkeys([*small, *(number // x for x in reversed(small))]))


@lru_cache(maxsize=4096)
def _placed(schedule: str, p: int, v: int) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    row = SCHEDULES[schedule]
    return tuple(row.rank_of(stage, p) for stage in range(p * v)), row.stages(p, v)


def refuses(space: Space, choice: Choice) -> str:
    """Return the reason why a choice's sizes or the trainer rule it out; empty if there is none."""
    if not space.trainer and (reason := _unsplit(space, choice)):
        return reason
    for fault in faults(space.transformer, choice.training, choice.p * choice.v, OF_TRAINING):
        return fault.message
    for ranks, what in (
        (choice.training.tensor, "tensor"),
        (choice.training.tensor * choice.training.context, "t c ="),
    ):
        if max(ranks, space.node) % min(ranks, space.node):
            return f"{what} {ranks}: groups of this many ranks do not fit nodes of {space.node} GPUs evenly"
    if choice.p * choice.v * choice.m * (2 if choice.row.fused else 3) > MAX_OPS:
        return f"its order has more than {MAX_OPS:,} operations"
    if reason := choice.row.refuses(choice.p, choice.v, choice.m):
        return reason
    return launcher(space.trainer).refuses(space, choice) if space.trainer else ""


def _unsplit(space: Space, choice: Choice) -> str:
    """Return why the trainer of the timing model does not support a ZeRO stage; empty for a requested stage."""
    x, row = choice.training, TRAINERS.get(space.training.trainer)
    run = (row.zero if row else ((0, 1, 2, 3), (0, 1)))[choice.p > 1]
    if x.zero in run or "zero" in space.only:
        return ""
    return f"{row.name if row else 'no trainer'} does not support ZeRO {x.zero}{' with p > 1' * (choice.p > 1)}"
