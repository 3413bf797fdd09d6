"""Imitated neighbours: sent messages are dropped, and received ones are filled with random numbers.

This lets one rank of a large pipeline run in one process, without a process group. The rank uses the same memory as in
the pipeline: it keeps a message's buffer from the time the receive is posted, and an output until its SEND. The weights
become meaningless.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pipesched.runtime.execute.messages import Message
from pipesched.runtime.execute.shapes import Boundary
from pipesched.runtime.execute.transport import TRANSPORTS, Channels, _Posted


class Imitated(Channels):
    """The channels of a rank whose neighbours are imitated."""

    def __init__(self, rank: int, device: torch.device) -> None:
        self.rank, self.group, self.device, self.blocking = rank, None, device, False
        self.wire, self.waited, self._waiting, self._shared = device, 0.0, None, ()
        self._transport = TRANSPORTS["gloo"]
        self._received, self._sent, self._queued = {}, {}, deque()

    def take(self, message: Message) -> tuple[Tensor, ...]:
        """Fill the posted buffers with random numbers.

        Raises:
            LookupError: if no receive was posted, or the message was already taken.
        """
        if message not in self._received:
            raise LookupError(f"no receive is posted for {message}")
        return tuple(map(drawn, self._received.pop(message).tensors))

    def exchange(self, outgoing: Message, incoming: Message, tensor: Tensor) -> Tensor:
        """Imitate the gradient of the other copy."""
        return torch.randn_like(tensor)

    def _post(self, sends: Mapping[Message, Sequence[Tensor]], receives: Mapping[Message, Boundary]) -> None:
        for message, boundary in receives.items():
            self._received[message] = _Posted(tuple(spec.empty(self.device) for spec in boundary), [])

    def sent(self, message: Message) -> None:
        pass


def drawn(buffer: Tensor) -> Tensor:
    """Fill a buffer with random numbers, or with zeros if its dtype cannot have a gradient."""
    with torch.no_grad():
        return buffer.normal_() if buffer.is_floating_point() else buffer.zero_()
