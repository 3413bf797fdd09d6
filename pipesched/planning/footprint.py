"""The bytes that every rank holds at each operation, for a model and its training.

    parameters, gradients, optimizer    of every stage with a copy on the rank, throughout the step
    activations                         by `planning.transformer.activations`, in the running sum of `analysis.holdings`
    for W                               gradients of the weights' outputs, from I to W
    versions                            older ones, of weights, if STEPs are inside the order
    messages                            received but not yet used, or made but not yet sent
    working                             only while the operation runs: gradients inside a layer, a layer that is
                                        recomputed, parameters that ZeRO gathers
    reserve                             of the trainer, if one is given: context, communicators, buckets, allocator

Like activations, these bytes depend only on the order of the rank's own list, not on a clock. For a file without
messages, the schedule is lowered with unit costs to determine its messages. Freed bytes are counted until the next
operation begins, together with messages posted in between. Sizes are whole bytes, rounded up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil

import numpy as np

from pipesched.analysis.holdings import Memory, in_hand, memory
from pipesched.diagnostics import fail
from pipesched.model.columns import Bools, Ints, computes, makes, running_sum
from pipesched.model.costs import TIMES, Costs
from pipesched.model.grid import Grid, spread
from pipesched.model.numbers import ranges
from pipesched.model.ops import Result, making
from pipesched.model.release import AT_W, Release
from pipesched.model.schedule import Program, Schedule
from pipesched.planning.byte_counts import gigabytes
from pipesched.planning.codes import PlanningCode
from pipesched.planning.transformer import activations, parameters
from pipesched.planning.transformer.config import OWN, Trained, Training, Transformer
from pipesched.planning.transformer.state import State, copies, state, undivided
from pipesched.planning.transformer.trainers import Reserve, reserve_of, settled, whole_gradients
from pipesched.planning.workload import Workload
from pipesched.schedule_analysis import Analysis
from pipesched.versions.facts import Versions

STATES = ("parameters", "gradients", "optimizer")
CHANGING = ("activations", "for W", "versions", "messages", "working")
RESERVE = "reserve"
KINDS = (*STATES, *CHANGING, RESERVE)


@dataclass(frozen=True, eq=False)
class Footprint:
    """The memory of a schedule, in bytes. states: parameters, gradients and optimizer state of each rank. held: for
    each kind in `CHANGING` and for the reserve, the peak bytes while each operation runs. live: the activations held at
    each operation. assumed: the assumptions behind the figures, as text.
    """

    schedule: Schedule
    trained: Trained
    states: tuple[State, ...]
    held: Mapping[str, Ints]
    live: Memory
    assumed: tuple[str, ...]

    @property
    def host(self) -> tuple[int, ...] | None:
        """For each rank, the peak bytes of activations in host memory; None without offloading."""
        even = Fraction(self.schedule.ranks, self.schedule.stages)
        return None if self.live.host is None else tuple(ceil(most / even) for most in self.live.host)

    @cached_property
    def total(self) -> Ints:
        """For each operation, the bytes that its rank holds."""
        static = np.array([sum(self.at(rank, -1).values()) for rank in range(len(self.states))], dtype=np.int64)
        return np.asarray(static[self.schedule.rank] + sum(self.held.values()))

    @cached_property
    def peak_at(self) -> tuple[int, ...]:
        """For each rank, the index of the first operation at its peak; -1 for a rank without operations."""
        total, starts = self.total, self.schedule.start.tolist()
        return tuple(low + int(np.argmax(total[low:high])) if high > low else -1 for low, high in pairwise(starts))

    @property
    def peaks(self) -> tuple[dict[str, int], ...]:
        """For each rank, the bytes of each kind at its peak."""
        return tuple(self.at(rank, at) for rank, at in enumerate(self.peak_at))

    def at(self, rank: int, index: int) -> dict[str, int]:
        """Return the bytes of each kind that a rank holds at operation `index`; -1: without any operation."""
        one = self.states[rank]
        fixed = {"parameters": one.parameters, "gradients": one.gradients, "optimizer": one.optimizer}
        return {kind: _whole(size) for kind, size in fixed.items()} | {
            kind: int(column[index]) if index >= 0 else 0 for kind, column in self.held.items()
        }

    def first_over(self, rank: int, cap: Fraction) -> int:
        """Return the index of the first operation at which a rank holds more than `cap` bytes, or -1."""
        low, high = int(self.schedule.start[rank]), int(self.schedule.start[rank + 1])
        over = np.flatnonzero(self.total[low:high] > int(cap))
        return low + int(over[0]) if len(over) else -1


def footprint(made: Analysis) -> Footprint | None:
    """Return the bytes that every rank holds at each operation, which do not depend on times; None without a model.

    Raises:
        PipeschedError: PS222; PS235 if the model's layers cannot be divided among the stages.
    """
    trained = made.of(Workload).model
    if trained is None:
        return None
    timeless = made.own is not None or not made.costs.given.keys() & set(TIMES)
    program = made.program if timeless else Analysis(made.schedule).program
    return counted(made.schedule, program, trained, made.release, made.costs)


def counted(schedule: Schedule, program: Program | None, trained: Trained, release: Release, costs: Costs) -> Footprint:
    """Count the bytes of every rank in O(instructions). The model determines the bytes of a stage; an M that differs
    between microbatches multiplies them. A slice of a sequence is treated like a rank's share under context
    parallelism.

    Raises:
        PipeschedError: PS222, PS235.
    """
    a, x = trained[0], settled(trained[1])
    trained = a, x
    of_slice = replace(x, context=x.context * schedule.slices)
    stages, parts = activations.by_stage(a, of_slice, schedule.stages), parameters.by_stage(a, x, schedule.stages)
    times = costs.held(schedule.stages, schedule.microbatches)
    if times.even:
        times = spread((Fraction(1),) * schedule.stages)
    again, stored = (_table([getattr(stage, name) for stage in stages], times) for name in ("input", "stored"))
    held_by = zip(stages, schedule.keeps.tolist(), strict=True)
    saved = _table([stage.saved if keeps else stage.alone for stage, keeps in held_by], times)
    working = [_table([stage.working[i] for stage in stages], times) for i in range(len(_BACKWARDS))]
    if "K" in costs.given:
        small = costs.kept(schedule.stages, schedule.microbatches)
        kept = _table([stage.saved for stage in stages], small)
    else:
        kept = np.minimum(again, saved)
    by_layer = release.name in _BY_LAYER
    live = memory(schedule, AT_W if by_layer else release, Grid(saved, 1), Grid(kept, 1))
    share = Fraction(schedule.ranks, schedule.stages) / live.part
    held = {
        "activations": np.maximum(-(-live.held // int(share)), _before(schedule, -(-live.kept // int(share)))),
        "for W": _until_w(schedule, stored if by_layer else np.zeros_like(stored)),
        "versions": _versions(schedule, trained, parts),
        "messages": _messages(schedule, program, _table(activations.edges(a, of_slice, schedule.stages), times)),
        "working": sum(
            np.where(schedule.op == op, _of(schedule, x), 0) for op, x in zip(_BACKWARDS, working, strict=True)
        )
        + _undivided(schedule, undivided(a, x, schedule.stages)),
    }
    states = tuple(_state(schedule, trained, parts, rank) for rank in range(schedule.ranks))
    held[RESERVE] = _reserve(schedule, reserve_of(x), states, held)
    counted = _Counted(schedule, *trained, release, costs)
    assumed = tuple(says(counted) for when, says in _ASSUMED if when(counted))
    return Footprint(schedule, trained, states, held, live, assumed)


_BY_LAYER = ("W", "torch")
_INPUT, _WEIGHTS = making({Result.GRADIENT}), making({Result.WEIGHTS})
_BACKWARDS = (making({Result.GRADIENT, Result.WEIGHTS}), _INPUT, _WEIGHTS)  # as in `StageBytes.working`


_MOST = 2**52  # most bytes of a stage, for one microbatch or for all states: sums of thousands fit in 64 bits


def _whole(size: Fraction) -> int:
    """Round up to whole bytes; raise PipeschedError with PS233 if no machine has that many."""
    if size >= _MOST:
        message = f"a stage needs {gigabytes(size)}, which is too much to count"
        raise fail(PlanningCode.MODEL_VALUE, message, help="check whether a size has too many digits")
    return ceil(size)


def _table(by_stage: list[Fraction], times: Grid) -> Ints:
    """Return a table of bytes, rounded up, indexed by stage and microbatch."""
    size = np.array([_whole(one) for one in by_stage], dtype=np.int64)[:, None]
    return np.asarray(-(-size * times.whole // times.scale))


def _of(schedule: Schedule, table: Ints) -> Ints:
    """Return, for each operation, the table's entry for its stage and microbatch, clipped to the table's range."""
    stage, microbatch = np.clip(schedule.stage, 0, len(table) - 1), np.clip(schedule.microbatch, 0, table.shape[1] - 1)
    return np.asarray(table[stage, microbatch])


def _before(schedule: Schedule, kept: Ints) -> Ints:
    """Return, for each operation, the bytes kept when it begins. kept: the bytes kept after it."""
    before = np.concatenate([np.zeros(1, dtype=np.int64), kept])[: len(kept)]
    before[schedule.start[:-1][schedule.start[:-1] < len(kept)]] = 0
    return before


def _until_w(schedule: Schedule, stored: Ints) -> Ints:
    """Return, for each operation, the bytes kept for W that its rank holds while the operation runs."""
    trained = schedule.placement.wants[Result.WEIGHTS][np.clip(schedule.stage, 0, schedule.stages - 1)]
    sign = np.where(trained, (schedule.op == _INPUT).astype(np.int64) - (schedule.op == _WEIGHTS), 0)
    kept = running_sum(sign * _of(schedule, stored), schedule.start)
    return np.maximum(kept, _before(schedule, kept))


def _versions(schedule: Schedule, trained: Trained, parts: tuple[tuple[parameters.Part, ...], ...]) -> Ints:
    """Return, for each operation, the bytes of older weight versions that its rank holds, in the dtype of compute."""
    found = Versions.of(Analysis(schedule))
    if found is None:
        return np.zeros(len(schedule), dtype=np.int64)
    whole = whole_gradients(trained[1], schedule.stages)
    weights = [_whole(state(*trained, part, whole=whole).parameters) for part in parts]
    newest = [sum(weights[stage] for _, stage in schedule.placement.chunks(rank)) for rank in range(schedule.ranks)]
    return np.asarray(found.held(weights) - np.array(newest, dtype=np.int64)[schedule.rank])


def _messages(schedule: Schedule, program: Program | None, message: Ints) -> Ints:
    """Return the peak bytes of messages held from each operation until the next one begins."""
    if program is None or not len(schedule):
        return np.zeros(len(schedule), dtype=np.int64)
    stage, microbatch = (
        np.clip(column, 0, size - 1)
        for column, size in zip((program.stage, program.microbatch), message.shape, strict=True)
    )
    received, unsent = in_hand(program, message[stage, microbatch])
    total = running_sum(received + unsent, program.start)
    at = np.flatnonzero(computes(program.op))
    begun = np.cumsum(computes(program.op)) > np.searchsorted(at, program.start)[program.rank]
    return np.asarray(np.maximum.reduceat(np.where(begun, total, 0), at))


def _undivided(schedule: Schedule, by_stage: Sequence[tuple[Fraction, Fraction]]) -> Ints:
    """Return, for each operation, the bytes held unsharded under ZeRO: a layer's parameters, and its gradients while
    they are computed.
    """
    sizes = np.array([[_whole(one) for one in row] for row in by_stage], dtype=np.int64)
    parameters, gradients = sizes[np.clip(schedule.stage, 0, len(sizes) - 1)].T
    return np.asarray(parameters + np.where(makes(schedule.op, Result.WEIGHTS), gradients, 0))


def _state(schedule: Schedule, trained: Trained, parts: tuple[tuple[parameters.Part, ...], ...], rank: int) -> State:
    """Return the bytes of parameters, gradients and optimizer on a rank; untrained stages have only parameters."""
    held = sorted({stage for _, stage in schedule.placement.chunks(rank)})
    whole = whole_gradients(trained[1], schedule.stages)
    states = [state(*trained, parts[stage], whole=whole) for stage in held]
    wants = schedule.placement.wants[Result.WEIGHTS] & (not schedule.forward_only)
    kept = [
        one if wants[stage] else State(one.parameters, Fraction(0), Fraction(0))
        for stage, one in zip(held, states, strict=True)
    ]
    return sum(kept, State(Fraction(0), Fraction(0), Fraction(0)))


def _reserve(schedule: Schedule, of: Reserve | None, states: Sequence[State], held: Mapping[str, Ints]) -> Ints:
    """Return, for each operation, the bytes that the trainer takes in addition to the counted tensors."""
    if of is None:
        return np.zeros(len(schedule), dtype=np.int64)
    fixed = [_whole(of.fixed + of.state * (one.parameters + one.gradients)) for one in states]
    changing = sum(held[kind] for kind in CHANGING)
    share = of.changing
    return np.array(fixed, dtype=np.int64)[schedule.rank] + -(-changing * share.numerator // share.denominator)


@dataclass(frozen=True)
class _Counted:
    """A schedule with its model and costs, for the texts of the assumptions."""

    schedule: Schedule
    a: Transformer
    x: Training
    release: Release
    costs: Costs

    @property
    def again(self) -> int:
        """The number of forwards that the schedule recomputes."""
        return int(makes(self.schedule.op, Result.RECOMPUTED).sum())

    @property
    def by_layer(self) -> bool:
        """True if I leaves as many bytes for W as in torch."""
        return self.releases and self.release.name in _BY_LAYER

    @property
    def releases(self) -> bool:
        """True if the schedule has a W, so that bytes are kept from I to W."""
        return bool((self.schedule.op == _WEIGHTS).any())

    @property
    def partly(self) -> Bools:
        """A mask of the stages that keep activations after F but have no weight gradients."""
        return self.schedule.keeps & ~self.schedule.placement.wants[Result.WEIGHTS]


def _recomputation(s: _Counted) -> str:
    inside, whole = " inside a backward" * (s.again > 0), "; the working set is one layer" * (s.x.recompute == "full")
    return f"recomputation{inside}: {s.x.recompute}{whole}"


def _run_again(s: _Counted) -> str:
    edge = gigabytes(activations.boundary(s.a, replace(s.x, context=s.x.context * s.schedule.slices)))
    kept = "the fraction K of its activations" if "K" in s.costs.given else f"its stage's input, {edge}"
    return f"the schedule recomputes {s.again:,} forwards of whole stages (R); until its R, each such F keeps {kept}"


def _types(a: Transformer, x: Training) -> str:
    if not x.autocast:
        return f"{a.dtype}: {a.dtype_bytes} bytes per parameter and activation"
    return (
        "autocast: 4 bytes per parameter and residual, 2 per entry between norms and per weight copied by a microbatch"
    )


def _reserved(x: Training) -> str:
    of = reserve_of(x)
    assert of is not None
    return (
        f"{x.trainer}'s reserve for context, communicators, buckets and the allocator: {gigabytes(of.fixed)} plus "
        f"{float(of.changing):.0%} of activations and temporary bytes and {float(of.state):.0%} of parameters and "
        f"gradients; its standard deviation is {gigabytes(of.spread)} ({of.source})"
    )


_ADAPTED = {"all": "all matrices", "attention": "q, k, v and the projection", "qv": "q and v"}
_ASSUMED: tuple[tuple[Callable[[_Counted], object], Callable[[_Counted], str]], ...] = (
    (
        lambda s: True,
        lambda s: (
            f"{_types(s.a, s.x)}, {s.x.gradient_bytes} per gradient, "
            f"{s.x.optimizer_bytes} of optimizer state; ZeRO {s.x.zero} over {copies(s.x)}"
        ),
    ),
    (
        lambda s: True,
        lambda s: (
            f"t = {s.x.tensor}{' with sequence parallelism' * s.x.sequence_parallel}, c = {s.x.context}; "
            f"microbatch of {s.x.microbatch} x {s.a.length} tokens; {s.x.attention} attention: "
            f"{'no scores' if s.x.attention == 'flash' else 'scores'} are kept"
        ),
    ),
    (
        lambda s: s.x.lora,
        lambda s: (
            f"LoRA of rank {s.x.lora} on {_ADAPTED[s.x.lora_on]} of each layer: only the adapters have W, gradients "
            "and optimizer state; LoRA's dropout is not counted"
        ),
    ),
    (lambda s: True, _recomputation),
    (lambda s: s.again, _run_again),
    (
        lambda s: s.schedule.slices > 1,
        lambda s: (
            f"a microbatch of the schedule is one of {s.schedule.slices} slices of a sequence, "
            f"{s.a.sequence / s.schedule.slices:,g} tokens, with 1/{s.schedule.slices} of the activations and messages"
        ),
    ),
    (
        lambda s: s.schedule.slices > 1,
        lambda s: "gradients of keys and values that are summed over slices of a sequence are not counted",
    ),
    (
        lambda s: "M" in s.costs.by_microbatch,
        lambda s: "each microbatch takes M times the bytes of activations, messages and working set in the model",
    ),
    (
        lambda s: "M" not in s.costs.by_microbatch and s.costs.scalar("M") != 1,
        lambda s: "M of each stage comes from the model; M in the costs counts activations, not bytes",
    ),
    (
        lambda s: not s.schedule.keeps.all(),
        lambda s: (
            f"{_passing(s.schedule)} nothing: while it runs, it holds at most the tensors of the stage's largest layer"
        ),
    ),
    (
        lambda s: s.partly.any(),
        lambda s: (
            f"frozen {_listed(s.partly)}: until its I, an F is counted as on a trained stage, which is an upper bound"
        ),
    ),
    (
        lambda s: s.x.layout is None and s.a.layers % s.schedule.stages,
        lambda s: "the layers do not divide evenly among the stages: the stages at the ends have one layer fewer",
    ),
    (
        lambda s: s.by_layer,
        lambda s: "from I to W a layer keeps its activations and the gradient of each weight's output, as in torch",
    ),
    (
        lambda s: s.by_layer and s.x.recompute == "full",
        lambda s: (
            "a layer that I runs again is kept until W. torch's checkpointing frees it and runs it again in W for "
            "every weight, which takes up to twice the bytes: `run --rank` counts them"
        ),
    ),
    (
        lambda s: s.releases and not s.by_layer,
        lambda s: f"release rule {s.release.name}: nothing additional is kept from I to W",
    ),
    (
        lambda s: s.x.keep_outputs,
        lambda s: (
            "as in torch, the output of a stage is kept until its backward; cross entropy makes two gradients in fp32"
        ),
    ),
    (
        lambda s: not s.x.keep_outputs,
        lambda s: (
            "as in Megatron-LM, the output of a stage is kept until it is sent, and the loss makes no gradient in fp32"
        ),
    ),
    (lambda s: s.a.experts, lambda s: "tokens are assumed to be spread evenly over experts"),
    (
        lambda s: s.schedule.placement.bidirectional,
        lambda s: "every rank holds the weights of its stages on all routes",
    ),
    (
        lambda s: s.a.gated and s.x.kernels not in OWN,
        lambda s: (
            "a layer keeps gate, value and product, as fused kernels do; with kernels = eager (torch uncompiled), it "
            "also keeps the gate's SiLU and the norms in fp32"
        ),
    ),
    (
        lambda s: s.x.kernels in OWN,
        lambda s: (
            f"torch's own kernels{' on a CPU' * (s.x.kernels == 'cpu')} keep keys and values repeated for every head, "
            "RMS norms in fp32, and the gate's SiLU"
        ),
    ),
    (lambda s: s.x.zero >= 2, lambda s: f"ZeRO {s.x.zero} gathers one layer at a time and prefetches none"),
    (
        lambda s: s.x.trainer,
        lambda s: _reserved(s.x),
    ),
    (
        lambda s: not s.x.trainer,
        lambda s: (
            "not counted: weight gradients in transit, workspace, CUDA context, NCCL's buffers, fragmentation; with "
            "trainer = megatron, torch or deepspeed a reserve covers them"
        ),
    ),
)
"""Assumptions about the byte counts, each as its condition and its text."""


def _passing(schedule: Schedule) -> str:
    return "without a backward an F keeps" if schedule.forward_only else f"an F of {_listed(~schedule.keeps)} keeps"


def _listed(stages: Bools) -> str:
    return f"stage {ranges(np.flatnonzero(stages).tolist())}"
