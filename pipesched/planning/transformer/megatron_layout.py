"""The layout string of Megatron: ``Et|(tt|)*6mL``, a stage between bars, stages of the first chunk of all ranks first.

    E embedding   t decoder layer   m prediction layer (MTP)   L loss      (x)*n and x*n repeat; commas are cosmetic

Source: Megatron-core 0.14.0 to 0.19.0, core/transformer/pipeline_parallel_layer_layout.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_GROUP, _ONE = re.compile(r"\(([^)]+)\)\*([0-9]{1,4})"), re.compile(r"(.)\*([0-9]{1,4})")
_MOST = 100_000


def stages_of(layout: str) -> list[str] | str:
    """The letters of each stage; or what is wrong with the string."""
    text = layout.replace(",", "")
    for pattern in (_GROUP, _ONE):
        size = len(text) + sum(len(found[1]) * int(found[2]) for found in pattern.finditer(text))
        if size > _MOST:
            return "is longer than any model"
        text = pattern.sub(lambda found: found[1] * int(found[2]), text)
    unknown = next((letter for letter in text if letter not in "EtmL|"), None)
    return text.split("|") if unknown is None else f"has {unknown!r}, which is none of E, t, m, L"


def faults(stages: list[str], ranks: int, layers: int | None, predicted: int | None) -> Iterator[str]:
    """What keeps the stages from being those of a model with so many layers, and so many for prediction."""
    if len(stages) % ranks:
        yield f"has {len(stages)} stages, which do not go onto {ranks} ranks in equal numbers"
        return
    every = "".join(stages)
    if every[:1] != "E" or every.count("E") != 1:
        yield "does not begin with the one E of the embedding"
    if every[-1:] != "L" or every.count("L") != 1:
        yield "does not end with the one L of the loss"
    if layers is not None and every.count("t") != layers:
        yield f"has {every.count('t')} t; the model has {layers} layers"
    if every.count("m") != (predicted or 0):
        yield f"has {every.count('m')} m; the model has {predicted or 0} layers for prediction"
    if "t" in every[every.find("m") :] and "m" in every:
        yield "has a t behind an m"
    at = [number for number, stage in enumerate(stages) if "m" in stage]
    if at and (len(at) > 1 or at[0] < len(stages) - ranks):
        yield "has an m outside one stage of the last chunk of a rank"
    elif at and at[0] % ranks == 0 and len(stages) > ranks:
        yield "has an m on rank 0"
