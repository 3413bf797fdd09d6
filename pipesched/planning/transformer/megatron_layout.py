"""Megatron's layout string: ``Et|(tt|)*6mL``, stages separated by bars, beginning with the first chunk of every rank.

    E embedding   t decoder layer   m prediction layer (MTP)   L loss      (x)*n and x*n repeat; commas are ignored

Source: Megatron-core 0.14.0 to 0.19.0, core/transformer/pipeline_parallel_layer_layout.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

_GROUP, _ONE = re.compile(r"\(([^)]+)\)\*([0-9]{1,4})"), re.compile(r"(.)\*([0-9]{1,4})")
_MOST = 100_000


def stages_of(layout: str) -> list[str] | str:
    """Return the letters of each stage, or the error in the string."""
    text = layout.replace(",", "")
    for pattern in (_GROUP, _ONE):
        size = len(text) + sum(len(found[1]) * int(found[2]) for found in pattern.finditer(text))
        if size > _MOST:
            return "is longer than any model"
        text = pattern.sub(lambda found: found[1] * int(found[2]), text)
    unknown = next((letter for letter in text if letter not in "EtmL|"), None)
    return text.split("|") if unknown is None else f"has {unknown!r}, which is not one of E, t, m, L"


def layout_of(counts: Sequence[int]) -> str:
    """Return the string for the layers of each stage: ``Et*4|(t*5|)*6t*4L``."""
    *many, last = [f"t*{count}" if count > 1 else "t" * count for count in counts]
    runs = ((len(list(alike)), f"{stage}|") for stage, alike in groupby(many))
    stages = "".join(f"({stage})*{count}" if count > 1 else stage for count, stage in runs)
    return f"E{stages}{last}L" if not stages.startswith("(") else f"E{many[0]}|{layout_of(counts[1:])[1:]}"


@dataclass(frozen=True)
class Layout:
    """The stages of a layout on `ranks` ranks. layers, predicted: the model's numbers of layers and of prediction
    layers; None if unknown.
    """

    stages: list[str]
    ranks: int
    layers: int | None
    predicted: int | None

    @property
    def letters(self) -> str:
        """The letters of all stages, concatenated."""
        return "".join(self.stages)

    @property
    def predicting(self) -> list[int]:
        """The indices of the stages that contain an m."""
        return [number for number, stage in enumerate(self.stages) if "m" in stage]

    def ends(self, letter: str, end: str) -> bool:
        """Return True if `end`, the first or last of all letters, is this letter and is its only occurrence."""
        return end == letter and self.letters.count(letter) == 1


_RULES: tuple[tuple[Callable[[Layout], object], Callable[[Layout], str]], ...] = (
    (lambda x: not x.ends("E", x.letters[:1]), lambda x: "does not begin with the single E of the embedding"),
    (lambda x: not x.ends("L", x.letters[-1:]), lambda x: "does not end with the single L of the loss"),
    (
        lambda x: x.layers is not None and x.letters.count("t") != x.layers,
        lambda x: f"has {x.letters.count('t')} t; the model has {x.layers} layers",
    ),
    (
        lambda x: x.letters.count("m") != (x.predicted or 0),
        lambda x: f"has {x.letters.count('m')} m; the model has {x.predicted or 0} prediction layers",
    ),
    (lambda x: re.search("m.*t", x.letters), lambda x: "has a t after an m"),
    (lambda x: not _in_one_last(x), lambda x: "has m in several stages, or outside the last chunk of a rank"),
    (
        lambda x: _in_one_last(x) and [n for n in x.predicting if n % x.ranks == 0 and len(x.stages) > x.ranks],
        lambda x: "has an m on rank 0",
    ),
)


def _in_one_last(x: Layout) -> bool:
    """Return True if all prediction layers (`m`) are in one stage, which is the last chunk of its rank."""
    return len(x.predicting) <= 1 and all(number >= len(x.stages) - x.ranks for number in x.predicting)


def faults(stages: list[str], ranks: int, layers: int | None, predicted: int | None) -> Iterator[str]:
    """Yield the reasons why the stages do not fit a model with these numbers of layers and prediction layers."""
    if len(stages) % ranks:
        yield f"has {len(stages)} stages, not a multiple of {ranks} ranks"
        return
    x = Layout(stages, ranks, layers, predicted)
    yield from (says(x) for broken, says in _RULES if broken(x))
