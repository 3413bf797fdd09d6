"""Reduces summed gradients to the gradients of undivided training.

    during the step    .grad of a weight = sum over this rank's microbatches of one copy
    REDUCE_GRAD        divided by m: the loss is the mean over all m microbatches, of both routes;
                       then the mean over the replicas of the stage, if DistributedDataParallel wraps it
    SYNC               + the gradient of the other copy; both then hold the same sum, bit for bit (a + b = b + a);
                       four copies take two rounds; if the number is not a power of 2, the last copies are
                       added first, and receive the sum in the end
    before STEP        + the gradients of tied weights, + the content of ``.grad`` before the step

A weight that two stages of one rank share (one tensor, both ends of a V) is divided after the last of these stages and
exchanged once. Weights tied across ranks are different tensors; the argument `tied` names them (see `tied.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from pipesched.runtime.execute.messages import SYNC, TIED, Message
from pipesched.runtime.execute.replicas import Held, Replica, replicated, trained
from pipesched.runtime.execute.shapes import TensorSpec
from pipesched.runtime.execute.tied import Tied, Weight
from pipesched.runtime.execute.transport import Channels
from pipesched.stream import Stream


class Reduction:
    """The gradients of one rank's weights during a step."""

    def __init__(
        self, stream: Stream, modules: Mapping[Held, nn.Module], rank: int, channels: Channels, tied: Tied = ()
    ) -> None:
        self._stream, self._modules, self._rank, self._channels, self._tied = stream, modules, rank, channels, tied
        self._replicas = {held: [Replica(x) for x in replicated(module)] for held, module in modules.items()}
        self._holders: dict[nn.Parameter, set[Held]] = {}
        for held, module in modules.items():
            for weight in trained(module):
                self._holders.setdefault(weight, set()).add(held)
        self._unreduced: dict[nn.Parameter, set[Held]] = {}
        self._synced: set[tuple[nn.Parameter, int]] = set()
        self._before: dict[nn.Parameter, Tensor] = {}

    def begin(self) -> None:
        """Set the content of ``.grad`` aside: only gradients of this step are divided and exchanged."""
        self._unreduced = {weight: set(holders) for weight, holders in self._holders.items()}
        self._synced = set()
        self._before = {weight: weight.grad for weight in self._holders if weight.grad is not None}
        for held, parts in self._replicas.items():
            if any(part.views for part in parts):  # the next average will overwrite this memory
                self._before |= {w: self._before[w].clone() for w in trained(self._modules[held]) if w in self._before}
        for weight in self._before:
            weight.grad = None

    @torch.no_grad()
    def reduce(self, stage: int) -> None:
        """Run REDUCE_GRAD: divide and average the gradients of a stage's copies here. A collective of its replicas."""
        for held in [held for held in self._modules if held[1] == stage]:
            for weight in trained(self._modules[held]):
                left = self._unreduced[weight]
                if held in left:
                    left.discard(held)
                    if not left and weight.grad is not None:
                        weight.grad.div_(self._stream.microbatches)
            for part in self._replicas[held]:
                part.average()

    @torch.no_grad()
    def sync(self, stage: int, peer: int) -> None:
        """Run SYNC: add up the gradients of both copies, on both ranks; a missing gradient counts as zero."""
        held = next(held for held in self._modules if held[1] == stage)
        outgoing = Message(SYNC, held[0], stage, -1, self._rank, peer)
        other = next(r for r, route in enumerate(self._stream.placement) if route.ranks[stage] == peer)
        incoming = Message(SYNC, other, stage, -1, peer, self._rank)
        copies = self._stream.copies(stage)
        whole, mine_at, at = 1 << len(copies).bit_length() >> 1, copies.index(self._rank), copies.index(peer)
        takes = max(mine_at, at) >= whole and abs(mine_at - at) != whole  # the higher one takes the sum of the lower
        for weight in trained(self._modules[held]):
            if (weight, peer) not in self._synced:
                self._synced.add((weight, peer))
                mine = torch.zeros_like(weight) if weight.grad is None else weight.grad
                theirs = self._channels.exchange(outgoing, incoming, mine)
                weight.grad = mine + theirs if not takes else mine if mine_at < at else theirs

    @torch.no_grad()
    def finish(self) -> None:
        """Exchange the gradients of tied weights, then add what `begin` set aside."""
        for group in self._tied:
            self._tie(group)
        for weight, before in self._before.items():
            weight.grad = before if weight.grad is None else before.add_(weight.grad)
        self._before = {}
        for part in (part for parts in self._replicas.values() for part in parts):
            part.catch_up()

    def _tie(self, group: Sequence[Weight]) -> None:
        """Give all weights of a group the same gradient: the sum over its stages, in group order.

        If there are several copies, which are equal at this point, the copy of the first route is used. Exchanges
        between two ranks are appended to each rank's list, in the same order of groups, stages and targets everywhere:
        both ends of the first remaining exchange are always free, so this finishes even if sends block.
        """
        mine = {
            (held, name): self._modules[held].get_parameter(name)
            for held in self._modules
            for stage, name in group
            if stage == held[1]
        }
        if not mine:
            return
        pattern = next(iter(mine.values()))
        total = torch.zeros_like(pattern)
        for stage, name in group:
            source = self._stream.placement[0].ranks[stage]
            message = Message(TIED, 0, stage, -1, source, self._rank)
            if source != self._rank:
                self._channels.receive(message, (TensorSpec.of(pattern),))
                total += self._channels.take(message)[0]
                continue
            grad = mine[(0, stage), name].grad
            made = torch.zeros_like(pattern) if grad is None else grad
            for target in holders(self._stream, group):
                if target != self._rank:
                    self._channels.deliver(replace(message, target=target), (made,))
            total += made
        for weight in mine.values():
            weight.grad = total.clone()


def holders(stream: Stream, group: Sequence[Weight]) -> list[int]:
    """Return the ranks that hold a weight of a tied group, ascending."""
    return sorted({route.ranks[stage] for route in stream.placement for stage, _ in group})
