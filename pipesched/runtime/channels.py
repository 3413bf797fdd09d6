"""Messages on torch.distributed: posted, kept, awaited.

    gloo   unique tags: delivery does not depend on the order of posts; a send meets its receive (rendezvous);
           tensors of a GPU go through the host, so several ranks may share one
    NCCL   no tags: on each direction sends and receives are posted in list order, which pairs them as verified;
           one communicator (two ranks, own stream) per direction, so that the two directions do not block each other

A Work handle that is dropped may take its message with it, so every handle is kept, with its tensors, until it has
been awaited. An activation has arrived for sure once its gradient comes back: then its send is awaited, at no cost,
and its memory goes.

`blocking` is a discipline for tests: every SEND and RECV blocks in list order until its partner is there, which is the
model `strict` on a real transport.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from pipesched.runtime.messages import ACTIVATION, GRADIENT, Message, Tags
from pipesched.runtime.shapes import Boundary, TensorSpec

UNTAGGED = ("nccl",)  # backends that ignore tags

Pair = tuple[int, int]


@dataclass(eq=False, slots=True)
class _Posted:
    """What is under way. The tensors live as long as the handles."""

    tensors: tuple[Tensor, ...]
    works: list[dist.Work]


class Channels:
    """The messages of one rank.

    waiting: the message that it waits for at this moment, for a watchdog to read. waited: seconds spent so, in all.
    """

    def __init__(
        self,
        rank: int,
        group: dist.ProcessGroup | None,
        device: torch.device,
        tags: Tags,
        pairs: Iterable[Pair],
        *,
        blocking: bool = False,
    ) -> None:
        """pairs: every (source, target) of the program that this rank is part of."""
        self.rank, self.group, self.device, self.tags, self.blocking = rank, group, device, tags, blocking
        self.waiting: Message | None = None
        self.waited = 0.0
        self._received: dict[Message, _Posted] = {}
        self._sent: dict[Message, _Posted] = {}
        pairs = sorted(pairs)
        backend = backend_of(group, device)
        self.wire = torch.device("cpu") if backend == "gloo" else device  # where tensors are while they travel
        self._tagged = backend not in UNTAGGED
        self._directions = {} if self._tagged else self._communicators(pairs)

    @property
    def posted(self) -> tuple[Message, ...]:
        """Receives posted and not yet taken, oldest first."""
        return tuple(self._received)

    def receive(self, message: Message, boundary: Boundary) -> None:
        """Post a receive; with `blocking`, wait for it too."""
        posted = self._post_receive(message, boundary)
        if self.blocking:
            self._await(message, posted)

    def take(self, message: Message) -> tuple[Tensor, ...]:
        """The tensors of a message, once they are there.

        Raises:
            LookupError: no receive was posted for it, or it was taken before.
        """
        posted = self._received.get(message)
        if posted is None:
            raise LookupError(f"no receive is posted for {message}")
        self._await(message, posted)
        del self._received[message]
        if message.kind == GRADIENT:
            maker, there, here = message.stage - 1, message.source, message.target
            self._release(Message(ACTIVATION, message.route, maker, message.microbatch, here, there))
        return tuple(tensor.to(self.device) for tensor in posted.tensors)

    def send(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """Post a send; with `blocking`, wait until it is received. The tensors must not change afterwards."""
        self._post_send(message, tensors)
        if self.blocking:
            self._release(message)

    def exchange(self, outgoing: Message, incoming: Message, tensor: Tensor) -> Tensor:
        """Give a tensor to another rank and get that rank's: both are posted, then both awaited."""
        self._post_receive(incoming, (TensorSpec.of(tensor),))
        self._post_send(outgoing, (tensor,))
        (theirs,) = self.take(incoming)
        self._release(outgoing)
        return theirs

    def _post_receive(self, message: Message, boundary: Boundary) -> _Posted:
        buffers = tuple(spec.empty(self.wire) for spec in boundary)
        posted = self._received[message] = _Posted(buffers, [])
        for index, buffer in enumerate(buffers):
            posted.works.append(self._irecv(message, index, buffer))
        return posted

    def _post_send(self, message: Message, tensors: Sequence[Tensor]) -> None:
        ready = tuple(tensor.detach().to(self.wire).contiguous() for tensor in tensors)
        posted = self._sent[message] = _Posted(ready, [])
        for index, tensor in enumerate(ready):
            posted.works.append(self._isend(message, index, tensor))

    def finish(self) -> None:
        """Wait until everything that was sent has been received."""
        for message in list(self._sent):
            self._release(message)

    def _release(self, message: Message) -> None:
        """Wait for a send, if it is still known, and let its tensors go."""
        posted = self._sent.get(message)
        if posted is not None:
            self._await(message, posted)
            del self._sent[message]

    def _await(self, message: Message, posted: _Posted) -> None:
        began = time.monotonic()
        self.waiting = message
        for work in posted.works:
            work.wait()
        posted.works.clear()
        self.waiting = None
        self.waited += time.monotonic() - began

    def _isend(self, message: Message, index: int, tensor: Tensor) -> dist.Work:
        return _kept(dist.isend(tensor, self._global(message.target), *self._way(message, index)))

    def _irecv(self, message: Message, index: int, tensor: Tensor) -> dist.Work:
        return _kept(dist.irecv(tensor, self._global(message.source), *self._way(message, index)))

    def _way(self, message: Message, index: int) -> tuple[dist.ProcessGroup | None, int]:
        """The group and the tag of a tensor."""
        if self._tagged:
            return self.group, self.tags.of_tensor(message, index)
        return self._directions[message.source, message.target], 0

    def _global(self, rank: int) -> int:
        return rank if self.group is None else dist.get_global_rank(self.group, rank)

    def _communicators(self, pairs: Sequence[Pair]) -> dict[Pair, dist.ProcessGroup]:
        """A communicator per direction.

        The first operation on a communicator waits for the other rank, so all are used once here, in one order that
        is the same everywhere: creation can never be part of a circle later.
        """
        made: dict[Pair, dist.ProcessGroup] = {}
        for pair in pairs:
            ranks = sorted(map(self._global, pair))
            group = dist.new_group(ranks, use_local_synchronization=True)
            assert isinstance(group, dist.ProcessGroup)
            dist.all_reduce(torch.zeros(1, device=self.wire), group=group)
            made[pair] = group
        return made


def backend_of(group: dist.ProcessGroup | None, device: torch.device) -> str:
    """What carries the tensors of a device; gloo if there is nothing for them but the way through the host."""
    if not dist.is_initialized():
        return "gloo"
    by_device = dict(part.split(":") for part in str(dist.get_backend_config(group)).split(","))
    return by_device.get(device.type, "gloo")


def _kept(work: dist.Work | None) -> dist.Work:
    """A handle; torch gives none to a rank outside of the group."""
    if work is None:
        raise RuntimeError("this process is not part of the group it was given")
    return work
