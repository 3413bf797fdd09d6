"""The error bar of a predicted time: the errors of predictions in its class, with each source left out of the fit.

The classes come from constants.toml: dense models, sequences above 16,384 tokens, ZeRO 3 on several nodes of A100, and
experts. A class whose errors exceed 30 % in one run of ten has no time by shape; a request for such a time is answered
with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from pipesched.planning.transformer.config import Training, Transformer
from pipesched.planning.transformer.shapes import Machine

LIMIT = 0.30
LONG = 16_384
_NAMES = {
    "dense": "dense models",
    "long": "sequences above 16,384 tokens",
    "zero3_a100": "ZeRO 3 over nodes of A100",
    "experts": "models with experts",
}


@dataclass(frozen=True)
class Trust:
    """The error bar of a time in percent, None if unknown. why: the published runs behind the error bar, or the reason
    why there is no time. timed: whether to show a time.
    """

    percent: int | None
    why: str
    timed: bool = True


def trust(a: Transformer, x: Training, on: Machine | None, gpus: int) -> Trust:
    """Return the error bar of a time on `gpus` GPUs. on: the machine for times by shape; None with an efficiency."""
    if on is None:
        return Trust(None, "")
    kind = _kind(a, x, on, gpus)
    row = on.constants.errors.get(kind)
    if row is None:
        return Trust(None, "")
    nine, runs = row["most_of_them"], int(row["runs"])
    if nine > LIMIT:
        half, worst = 100 * row["median"], 100 * row["worst"]
        missed = f"{runs} published runs have a median error of {half:.0f} %, at worst {worst:.0f} %"
        return Trust(None, f"no times for {_NAMES[kind]}: {missed}", False)
    behind = (
        f"{_NAMES[kind]}: covers the errors of 9 in 10 of {runs} published runs, with each source left out of the fit "
        "in turn"
    )
    if a.encoder is not None or x.lora:
        what = "an encoder with a decoder" if a.encoder else "LoRA"
        return Trust(None, f"no error bar: no published run of {what} is among the data")
    return Trust(ceil(100 * nine), behind)


def _kind(a: Transformer, x: Training, on: Machine, gpus: int) -> str:
    if a.experts is not None:
        return "experts"
    if x.zero == 3 and on.device.gemm == "gemm_a100" and gpus > on.device.node_size:
        return "zero3_a100"
    return "long" if a.sequence > LONG else "dense"
