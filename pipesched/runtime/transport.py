"""Messages on torch.distributed: posted, kept, awaited.

    gloo    unique tags: delivery does not depend on the order of posts; a send meets its receive (rendezvous);
            tensors of a GPU go through the host, so several ranks may share one
    others  no tags: on each direction sends and receives are posted in list order, which pairs them as verified;
            one communicator (two ranks, own stream) per direction, so that the two directions do not block each other

Either way a post waits for nothing, and nothing waits for a post but its own channel: the model `async`. So a receive
that is brought forward within its channel leaves the verdict as it is.

A Work handle that is dropped may take its message with it, so every handle is kept, with its tensors, until it is
done. Who finds that out depends on the backend: a handle of NCCL can be asked, which `sweep` does at every
instruction; one of gloo knows of its end only after a wait, which a thread for each target does in the order of posts.

`blocking` is a discipline for tests: every SEND and RECV blocks in list order until its partner is there, which is the
model `strict` on a real transport.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue

import torch
import torch.distributed as dist
from torch import Tensor

from pipesched.runtime.exchange import everybody
from pipesched.runtime.messages import Message, Tags
from pipesched.runtime.shapes import Boundary, TensorSpec

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Transport:
    """What a backend does.

    tagged: it honours tags. host: it moves the host's memory, and its `wait` blocks the process until the message is
    there; else `wait` only orders the queues of the GPU, and a handle can be asked whether it is done.
    """

    tagged: bool
    host: bool


TRANSPORTS = {"gloo": Transport(tagged=True, host=True)}
OTHERS = Transport(tagged=False, host=False)  # right on a backend that honours tags, too


@dataclass(eq=False, slots=True)
class _Posted:
    """What is under way. The tensors live as long as the handles. left: held by the thread that waits for them."""

    tensors: tuple[Tensor, ...]
    works: list[dist.Work]
    left: threading.Lock | None = None
    error: RuntimeError | None = None

    def wait(self) -> None:
        for work in self.works:
            work.wait()


class Channels:
    """The messages of one rank. waited: seconds spent waiting for them, in all."""

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
        """pairs: every (source, target) of the program, the same on every rank."""
        self.rank, self.group, self.device, self.tags, self.blocking = rank, group, device, tags, blocking
        self.waited = 0.0
        self._waiting: Message | None = None
        self._received: dict[Message, _Posted] = {}
        self._sent: dict[Message, _Posted] = {}
        self._queued: deque[tuple[Message, list[dist.Work]]] = deque()
        self._threads: dict[int, SimpleQueue[Message | None]] = {}
        backend = backend_of(group, device)
        self._transport = TRANSPORTS.get(backend, OTHERS)
        self.wire = torch.device("cpu") if self._transport.host else device  # where tensors are while they travel
        self._directions = {} if self._transport.tagged else self._communicators(pairs)

    @property
    def waiting(self) -> Message | None:
        """The message that this rank waits for at this moment, for a watchdog to read.

        Where a wait only orders the queues of the GPU (`queues`), the first that they wait for.
        """
        queued = (message for message, works in list(self._queued) if not done(works))
        return self._waiting or next(queued, None)

    @property
    def queues(self) -> bool:
        """Whether a wait does not block the process: it continues, and enqueues instructions behind the message."""
        return not self._transport.host

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
        return tuple(tensor.to(self.device) for tensor in posted.tensors)

    def send(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """Post a send; with `blocking`, wait until it is received. The tensors must not change afterwards."""
        self._post_send(message, tensors)
        if self.blocking:
            self._release(message)

    def deliver(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """Send, and wait until it is received."""
        self._post_send(message, tensors)
        self._release(message)

    def exchange(self, outgoing: Message, incoming: Message, tensor: Tensor) -> Tensor:
        """Give a tensor to another rank and get that rank's: both are posted, then both awaited."""
        self._post_receive(incoming, (TensorSpec.of(tensor),))
        self._post_send(outgoing, (tensor,))
        (theirs,) = self.take(incoming)
        self._release(outgoing)
        return theirs

    def sweep(self) -> None:
        """Let go of what has arrived. Of a target only the oldest is asked: a direction keeps its order."""
        if not self._transport.host:
            _drop_done(self._sent)
            while self._queued and done(self._queued[0][1]):
                self._queued.popleft()

    def finish(self) -> None:
        """Wait until everything that was sent has been received."""
        for message in list(self._sent):
            self._release(message)

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
        if self._transport.host and not self.blocking:
            posted.left = threading.Lock()
            posted.left.acquire()
            self._thread(message.target).put(message)

    def _release(self, message: Message) -> None:
        """Wait for a send, if it is still known, and let its tensors go."""
        posted = self._sent.get(message)
        if posted is None:
            return
        if posted.left is None:
            self._await(message, posted)
        else:
            with self._named(message):
                posted.left.acquire()
            if posted.error is not None:
                raise posted.error
        self._sent.pop(message, None)

    def _await(self, message: Message, posted: _Posted) -> None:
        with self._named(message):
            posted.wait()
        if self._transport.host:
            posted.works.clear()
        else:
            self._queued.append((message, posted.works))

    @contextmanager
    def _named(self, message: Message) -> Iterator[None]:
        """For as long as this rank waits for a message."""
        began = time.monotonic()
        self._waiting = message
        yield
        self._waiting = None
        self.waited += time.monotonic() - began

    def _thread(self, target: int) -> SimpleQueue[Message | None]:
        """The queue of the thread that waits for what is sent to a rank. It ends when these channels are gone."""
        if target not in self._threads:
            queue = self._threads[target] = SimpleQueue()
            name = f"pipesched sends to rank {target}"
            threading.Thread(target=_wait_in_order, args=(queue, self._sent), name=name, daemon=True).start()
            weakref.finalize(self, queue.put, None)
        return self._threads[target]

    def _isend(self, message: Message, index: int, tensor: Tensor) -> dist.Work:
        return _kept(dist.isend(tensor, self._global(message.target), *self._way(message, index)))

    def _irecv(self, message: Message, index: int, tensor: Tensor) -> dist.Work:
        return _kept(dist.irecv(tensor, self._global(message.source), *self._way(message, index)))

    def _way(self, message: Message, index: int) -> tuple[dist.ProcessGroup | None, int]:
        """The group and the tag of a tensor."""
        if self._transport.tagged:
            return self.group, self.tags.of_tensor(message, index)
        return self._directions[message.source, message.target], 0

    def _global(self, rank: int) -> int:
        return rank if self.group is None else dist.get_global_rank(self.group, rank)

    def _communicators(self, pairs: Iterable[Pair]) -> dict[Pair, dist.ProcessGroup]:
        """A communicator per direction of this rank, by the ranks of the program.

        torch wants every process of the job in every `new_group`, in one order: a process that leaves one out numbers
        the next ones differently, and where NCCL splits communicators off the default one (``device_id``) the others
        wait for it. The first operation on a communicator waits for the other rank, so all are used once here:
        creation can never be part of a cycle later.
        """
        mine = {(self._global(source), self._global(target)): (source, target) for source, target in pairs}
        made: dict[Pair, dist.ProcessGroup] = {}
        for pair in self._of_all_pipelines(sorted(mine)):
            group = dist.new_group(sorted(pair))
            if dist.get_rank() in pair:
                assert isinstance(group, dist.ProcessGroup)
                dist.all_reduce(torch.zeros(1, device=self.wire), group=group)
                made[mine[pair]] = group
        return made

    def _of_all_pipelines(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs of all programs that the processes of the job run, replicas of each other or not."""
        if self.group is None:
            return pairs
        return sorted({(source, target) for some in everybody(pairs) for source, target in some})


def _drop_done(sent: dict[Message, _Posted]) -> None:
    """Forget the sends that are done, of each target from the oldest on."""
    held = set()
    for message, posted in list(sent.items()):
        if message.target not in held and done(posted.works):
            posted.wait()  # at no cost, and torch lets its own references go
            del sent[message]
        else:
            held.add(message.target)


def _wait_in_order(queue: SimpleQueue[Message | None], sent: dict[Message, _Posted]) -> None:
    """The life of a thread: wait for each send, and let its tensors go."""
    while (message := queue.get()) is not None:
        _wait_for(sent, message)


def _wait_for(sent: dict[Message, _Posted], message: Message) -> None:
    posted = sent[message]
    assert posted.left is not None
    try:
        posted.wait()
    except RuntimeError as error:  # for the rank's own thread to raise when it asks
        posted.error = error
    else:
        del sent[message]
    posted.left.release()


def done(works: Sequence[dist.Work]) -> bool:
    return all(work.is_completed() for work in works)


def backend_of(group: dist.ProcessGroup | None, device: torch.device) -> str:
    """What carries the tensors of a device; gloo if there is nothing for them but the copy through the host."""
    if not dist.is_initialized():
        return "gloo"
    by_device = dict(part.split(":") for part in str(dist.get_backend_config(group)).split(","))
    return by_device.get(device.type, "gloo")


def _kept(work: dist.Work | None) -> dist.Work:
    """A handle; torch gives none to a rank outside of the group."""
    if work is None:
        raise RuntimeError("this process is not part of the group it was given")
    return work
