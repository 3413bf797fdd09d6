"""Observes at torch's own functions which buffers a rank passes to the transport, without the runtime's own
counters."""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipesched.runtime import Runtime
from pipesched.runtime.execute import transport as channels
from pipesched.stream import Instruction, Stream
from tests.runtime.models import batch, blocks, copies, error, squared, undivided

LIMIT = 20.0  # seconds until a received buffer is freed; it takes a few microseconds
SENDS = ("SEND_F", "SEND_B")


@dataclass
class Call:
    """An isend or irecv. tensor: a weak reference, None once the buffer is freed."""

    receive: bool
    tensor: weakref.ref[Tensor]
    tag: int


@contextmanager
def watched() -> Iterator[list[Call]]:
    """Sends and receives that are posted in this context."""
    calls: list[Call] = []
    own = dist.isend, dist.irecv

    def noting(call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(tensor: Tensor, peer: int, group: Any, tag: int) -> Any:
            calls.append(Call(call is own[1], weakref.ref(tensor), tag))
            return call(tensor, peer, group, tag)

        return noted

    dist.isend, dist.irecv = noting(own[0]), noting(own[1])
    try:
        yield calls
    finally:
        dist.isend, dist.irecv = own


def built(rank: int, stream: Stream, early: int) -> tuple[Runtime, Callable[[], float]]:
    """Return a runtime of single-tensor stages; a call trains one step and returns the error of the gradients."""
    whole = blocks(stream.stages)
    inputs, targets = batch(stream.microbatches)
    undivided(whole, inputs.chunk(stream.microbatches), targets.chunk(stream.microbatches), squared)
    mine = {held: copies(whole)[held[1]] for held in stream.held_by(rank)}
    example = inputs[: len(inputs) // stream.microbatches]
    runtime = Runtime(stream, mine, squared, rank=rank, example=example, early_receives=early)

    def train() -> float:
        runtime.step(inputs, targets)
        return max(error(module, whole[stage]) for (_, stage), module in mine.items())

    return runtime, train


def held(rank: int, stream: Stream, early: int, bounds: list[Counter[str]]) -> dict[str, Any]:
    """Run one step that pauses after every instruction until the rank holds no more than allowed.

    bounds: by instruction, the sends that cannot have arrived, by name. Returns how many more were held all the same;
    the most receives posted and not yet used, and the most of them beyond those that the list had had.
    """
    runtime, train = built(rank, stream, early)
    mine = stream.ranks[rank]
    names = {receive: [x.op for x in mine if x.op.startswith("RECV" if receive else "SEND")] for receive in (0, 1)}
    listed, used, most, beyond = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    excess = 0

    def alive() -> Counter[str]:
        sent = [call.tensor() is not None for call in calls if not call.receive]
        return Counter(name for name, living in zip(names[0], sent, strict=False) if living)

    def after(x: Instruction, index: int) -> None:
        nonlocal excess
        listed[x.op] += 1
        used.update(uses(stream, rank, x))
        posted = Counter(names[1][: sum(call.receive for call in calls)])
        for name in ("RECV_F", "RECV_B"):
            most[name] = max(most[name], posted[name] - used[name])
            beyond[name] = max(beyond[name], posted[name] - listed[name])
        until = time.monotonic() + LIMIT
        while alive() - bounds[index] and time.monotonic() < until:
            time.sleep(0.0005)
        excess += (alive() - bounds[index]).total()

    runtime.after = after
    with watched() as calls:
        wrong = train()
    return {"excess": excess, "most": most, "beyond": beyond, "error": wrong, "left": alive().total()}


def uses(stream: Stream, rank: int, x: Instruction) -> Iterator[str]:
    """Yield the receives that an instruction uses up."""
    for part in x.parts or (x,):
        ranks = stream.placement[part.route].ranks
        if part.op == "F" and part.stage and ranks[part.stage - 1] != rank:
            yield "RECV_F"
        if part.op in ("B", "I") and part.stage + 1 < stream.stages and ranks[part.stage + 1] != rank:
            yield "RECV_B"


def posted(rank: int, stream: Stream, early: int) -> list[tuple[bool, int]]:
    """Return the posts of one step, in order: whether it is a receive, and the tag, which is unique to a message."""
    _, train = built(rank, stream, early)
    with watched() as calls:
        train()
    return [(call.receive, call.tag) for call in calls]


def communicators(rank: int, stream: Stream) -> tuple[float, list[list[int]]]:
    """Run one step without tags; return the error of the gradients, and the groups that this rank helped to create."""
    transport, own = channels.TRANSPORTS["gloo"], dist.new_group
    made: list[list[int]] = []

    def noted(ranks: list[int], **options: Any) -> Any:
        assert not options, "every process makes every group"
        made.append(ranks)
        return own(ranks)

    channels.TRANSPORTS["gloo"], dist.new_group = replace(transport, tagged=False), noted
    try:
        _, train = built(rank, stream, 2)
        return train(), made
    finally:
        channels.TRANSPORTS["gloo"], dist.new_group = transport, own


def tied(rank: int, stream: Stream) -> float:
    """Return two weights of one stage, each tied to one of another: every gradient is the sum of both ends'."""
    torch.manual_seed(1)
    whole = [nn.Sequential(*(nn.Linear(6, 6, bias=False, dtype=torch.float64) for _ in range(2))) for _ in range(2)]
    whole[1].load_state_dict(whole[0].state_dict())
    inputs, targets = batch(stream.microbatches)
    undivided(whole, inputs.chunk(stream.microbatches), targets.chunk(stream.microbatches), squared)
    mine = {held: copies(whole)[held[1]] for held in stream.held_by(rank)}
    groups = [[(0, name), (1, name)] for name in ("0.weight", "1.weight")]
    runtime = Runtime(stream, mine, squared, rank=rank, example=inputs[:3], tied=groups)
    runtime.step(inputs, targets)
    total = {name: sum(stage.get_parameter(name).grad for stage in whole) for _, name in (g[0] for g in groups)}  # type: ignore[misc]
    found = [mine[0, rank].get_parameter(name).grad for name in total]
    return max(float((f - t).abs().max()) for f, t in zip(found, total.values(), strict=True) if f is not None)
