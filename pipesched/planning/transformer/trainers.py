"""The time and memory of a step that depend on the trainer, not on the model or the device.

    host       seconds per layer and microbatch on the host, in addition to times by shape
    adds       gradients are added up in a pass of their own, not in the product that computes them
    cuts       a message between stages is split over the ranks of a layer, and gathered after it
    overlapped whether messages between copies overlap compute
    zero       ZeRO stages that it runs without a pipeline, and with one
    reserve    bytes in addition to the counted tensors: context, communicators, buckets, unused memory of the allocator

A reserve is `fixed` bytes, plus the fraction `changing` of the activations and the working set, and the fraction
`state` of the parameters and gradients. `spread` is one standard deviation of measurements from the reserve; a plan
must also fit with the spread added. Time constants are given as names of rows of constants.toml, so that one fit
determines all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from pipesched.planning.transformer.config import Training

GIB = 2**30


@dataclass(frozen=True)
class Reserve:
    """Bytes in addition to the counted tensors of a rank. source: the measurements from which the numbers follow."""

    fixed: Fraction
    changing: Fraction
    state: Fraction
    spread: Fraction
    source: str


@dataclass(frozen=True)
class Trainer:
    """A trainer. parallel: its reserve if ranks share a layer; sharded: its reserve with ZeRO 3; otherwise `reserve`
    applies. live: limits on the parameters and on the gradients that are held unsharded at a time, never below one
    matrix; 0: no limit, so the largest layer is held whole. host, flash, between, gathers: names of constants; if
    empty, the host takes no time and messages have the rate of the link.

    zero: the ZeRO stages that it supports without a pipeline, and with one. whole_gradients: whether gradients stay
    unsharded until the last backward of a pipeline. keep_outputs: see `Training.keep_outputs`.
    """

    name: str
    about: str
    reserve: Reserve
    flash: str
    gathers: str
    between: str = ""
    host: str = ""
    adds: bool = False
    cuts: bool = True
    overlapped: bool = True
    whole_gradients: bool = False
    keep_outputs: bool = False
    parallel: Reserve | None = None
    sharded: Reserve | None = None
    live: tuple[int, int] = (0, 0)
    zero: tuple[tuple[int, ...], tuple[int, ...]] = ((0, 1), (0, 1))


def _reserve(fixed: str, changing: str, state: str, spread: str, source: str) -> Reserve:
    return Reserve(Fraction(fixed) * GIB, Fraction(changing), Fraction(state), Fraction(spread) * GIB, source)


TRAINERS: Mapping[str, Trainer] = {
    row.name: row
    for row in (
        Trainer(
            "megatron",
            "Megatron-core and NVIDIA frameworks that use it (NeMo, Megatron-Bridge); Megatron-LM of 2021-22 on A100",
            _reserve("3", "0", "0", "1", "not measured; the smallest reserve with which every published run starts"),
            flash="flash_megatron",
            gathers="gather_torch",
        ),
        Trainer(
            "torch",
            "torch's FSDP and pipelining: torchtitan, llm-foundry",
            _reserve("4.6", "0", "0", "2", "torchtitan, peak reserved of 8B on 8 H100"),
            flash="flash_torch",
            gathers="gather_torch",
            cuts=False,
            whole_gradients=True,
            zero=((0, 2, 3), (0, 1)),
            keep_outputs=True,
            parallel=_reserve("10", "0.18", "0.14", "2", "torchtitan, peak reserved of 70B and 405B with t = 8"),
        ),
        Trainer(
            "deepspeed",
            "Megatron-DeepSpeed and ZeRO-3 of 2021-22 on A100; current versions have not been measured here",
            _reserve("8.6", "0.18", "0.14", "1.9", "nvidia-smi of 20 runs of BigScience on A100"),
            flash="flash_a100",
            gathers="gather_deepspeed",
            between="reduce_deepspeed",
            host="host_deepspeed",
            adds=True,
            overlapped=False,
            sharded=_reserve("4.6", "0", "0.14", "1.9", "529.6B with ZeRO 3: on 640 A100 it ran, on 560 it did not"),
            live=(10**9, 5 * 10**8),
            zero=((0, 1, 2, 3), (0, 1)),
        ),
    )
}
DEFAULT = "megatron"
"""The trainer that a plan assumes for a model without `trainer`."""


def settled(x: Training) -> Training:
    """Return the training with `keep_outputs` set, by default as the trainer sets it."""
    if x.keep_outputs is not None:
        return x
    return replace(x, keep_outputs=bool(x.trainer) and TRAINERS[x.trainer].keep_outputs)


def reserve_of(x: Training) -> Reserve | None:
    """Return the reserve of the trainer; None without a trainer."""
    if not x.trainer:
        return None
    row = TRAINERS[x.trainer]
    apart = (row.sharded, x.zero == 3), (row.parallel, x.tensor > 1)
    return next((reserve for reserve, holds in apart if reserve and holds), row.reserve)


def whole_gradients(x: Training, stages: int) -> bool:
    """Return True if gradients stay whole until the last backward, and ZeRO divides them only then."""
    return bool(x.trainer) and TRAINERS[x.trainer].whole_gradients and stages > 1


def row_of(trainer: str) -> str:
    """Return the key in `TRAINERS` for a text such as ``torchtitan==0.2``; empty if there is none."""
    name = trainer.partition("==")[0].strip().lower()
    return "torch" if name == "torchtitan" else name if name in TRAINERS else ""
