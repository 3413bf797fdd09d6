"""Transports messages on torch.distributed: posts them, keeps handles, and waits.

    gloo    unique tags: delivery does not depend on the order of posts; a send meets its receive (rendezvous);
            GPU tensors go through the host, so several ranks may share a GPU
    others  no tags: sends and receives of a channel are posted in list order, which pairs them as verified;
            one process group per channel (two ranks, own stream), so that channels do not block each other; if a
            communicator carries batches, one group of all ranks for all its messages, including single ones

A channel is a direction between two ranks on a communicator of the program. A batch of the program is one call to
batch_isend_irecv per communicator in it. Posting never blocks, and a message waits only for earlier messages of its
channel. This is the model `async`, under which a receive may be posted earlier within its channel without changing the
verdict. If a process group carries batches without tags, all posts of a rank in it form one queue: the model
`one-stream`.

Dropping a Work handle may drop its message, so every handle is kept with its tensors until the message is done.
How this is detected depends on the backend: `sweep` polls NCCL's handles at every instruction; a gloo handle reports
completion only after a wait, so one thread per target rank waits for the sends to that rank, in the order of posts.

With `blocking`, for tests, every SEND and RECV blocks in list order until its partner has posted: the model `strict` on
a real transport.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

import torch
import torch.distributed as dist
from torch import Tensor

from pipesched.runtime.execute.exchange import everybody
from pipesched.runtime.execute.messages import Message, Tags
from pipesched.runtime.execute.shapes import Boundary, TensorSpec

Channel = tuple[int, int, int]
"""Communicator, source rank, target rank."""
Label = tuple[int, ...]
"""The label of a process group: its channel or its communicator."""
Group = tuple[tuple[int, ...], Label]
"""The processes of a group, by their numbers in the job, and the group's label."""


@dataclass(frozen=True, slots=True)
class Transport:
    """The properties of a backend.

    tagged: the backend honours tags. host: the backend transfers host memory, and its `wait` blocks until the message
    has arrived; otherwise `wait` only orders the queues of the GPU, and a handle can be polled.
    """

    tagged: bool
    host: bool


TRANSPORTS = {"gloo": Transport(tagged=True, host=True)}
OTHERS = Transport(tagged=False, host=False)  # also correct on a backend with tags


@dataclass(eq=False, slots=True)
class _Posted:
    """A message in transit; its tensors live as long as the handles. left: a lock released when the send ends."""

    tensors: tuple[Tensor, ...]
    works: list[dist.Work]
    left: threading.Lock | None = None
    error: RuntimeError | None = None

    def wait(self) -> None:
        for work in self.works:
            work.wait()


class Channels:
    """The messages of one rank. waited: total seconds spent waiting for messages."""

    def __init__(
        self,
        rank: int,
        group: dist.ProcessGroup | None,
        device: torch.device,
        tags: Tags,
        channels: Collection[Channel],
        *,
        shared: Collection[int] = (),
        blocking: bool = False,
    ) -> None:
        """Create the process groups. channels: the channels of the program, the same on every rank. shared: the
        communicators that carry batches.
        """
        self.rank, self.group, self.device, self.tags, self.blocking = rank, group, device, tags, blocking
        self.waited = 0.0
        self._waiting: Message | None = None
        self._received: dict[Message, _Posted] = {}
        self._sent: dict[Message, _Posted] = {}
        self._queued: deque[tuple[Message, list[dist.Work]]] = deque()
        self._threads: dict[int, SimpleQueue[Message | None]] = {}
        backend = backend_of(group, device)
        self._transport = TRANSPORTS.get(backend, OTHERS)
        self.wire = torch.device("cpu") if self._transport.host else device  # the device of tensors in transit
        self._shared = shared
        self._groups = self._process_groups(channels)

    @property
    def waiting(self) -> Message | None:
        """The message that this rank is waiting for, as read by a watchdog.

        If a wait only orders the queues of the GPU (`queues`), this is the first message in these queues.
        """
        queued = (message for message, works in list(self._queued) if not done(works))
        return self._waiting or next(queued, None)

    @property
    def queues(self) -> bool:
        """True if a wait returns immediately, and instructions are enqueued behind the message."""
        return not self._transport.host

    @property
    def posted(self) -> tuple[Message, ...]:
        """The receives that have been posted but not yet taken, oldest first."""
        return tuple(self._received)

    def receive(self, message: Message, boundary: Boundary) -> None:
        """Post a receive; with `blocking`, also wait for it."""
        self.post({}, {message: boundary})

    def take(self, message: Message) -> tuple[Tensor, ...]:
        """Return the tensors of a message, once they have arrived.

        Raises:
            LookupError: if no receive was posted, or the message was already taken.
        """
        posted = self._received.get(message)
        if posted is None:
            raise LookupError(f"no receive is posted for {message}")
        self._await(message, posted)
        del self._received[message]
        return tuple(tensor.to(self.device) for tensor in posted.tensors)

    def post(self, sends: Mapping[Message, Sequence[Tensor]], receives: Mapping[Message, Boundary]) -> None:
        """Post messages; several messages on one communicator form a batch. With `blocking`, wait for them.

        The tensors must not change afterwards.
        """
        self._post(sends, receives)
        for message in receives if self.blocking else ():
            self._await(message, self._received[message])
        for message in sends if self.blocking else ():
            self.sent(message)

    def deliver(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """Send a message, and wait until it is received."""
        self._post({message: tensors}, {})
        self.sent(message)

    def exchange(self, outgoing: Message, incoming: Message, tensor: Tensor) -> Tensor:
        """Swap tensors with another rank: post both, then wait for both."""
        self._post({outgoing: (tensor,)}, {incoming: (TensorSpec.of(tensor),)})
        (theirs,) = self.take(incoming)
        self.sent(outgoing)
        return theirs

    def sweep(self) -> None:
        """Release arrived messages; only the oldest to each target is polled, since they arrive in order."""
        if not self._transport.host:
            _drop_done(self._sent)
            while self._queued and done(self._queued[0][1]):
                self._queued.popleft()

    def finish(self) -> None:
        """Wait until all sent messages have been received."""
        for message in list(self._sent):
            self.sent(message)

    def _post(self, sends: Mapping[Message, Sequence[Tensor]], receives: Mapping[Message, Boundary]) -> None:
        made: dict[Message, _Posted] = {}
        for message, boundary in receives.items():
            made[message] = self._received[message] = _Posted(tuple(spec.empty(self.wire) for spec in boundary), [])
        for message, tensors in sends.items():
            ready = tuple(tensor.detach().to(self.wire).contiguous() for tensor in tensors)
            made[message] = self._sent[message] = _Posted(ready, [])
        for label in dict.fromkeys(map(self._label, made)):
            together = {message: posted for message, posted in made.items() if self._label(message) == label}
            if len(together) > 1 or any(map(self.in_line, together)):
                self._as_batch(together)
            else:
                self._singly(*next(iter(together.items())))
        for message in sends if self._transport.host and not self.blocking else ():
            posted = self._sent[message]
            posted.left = threading.Lock()
            posted.left.acquire()
            self._thread(message.target).put(message)

    def _singly(self, message: Message, posted: _Posted) -> None:
        call = dist.isend if message.source == self.rank else dist.irecv
        for index, tensor in enumerate(posted.tensors):
            work = call(tensor, self._peer(message), self._groups[self._label(message)], self._tag(message, index))
            posted.works.append(_kept(work))

    def _as_batch(self, together: Mapping[Message, _Posted]) -> None:
        """Post all messages in one call. Some backends return one handle per tensor, others one handle for all."""
        calls, owners = [], []
        for message, posted in together.items():
            call, group = dist.isend if message.source == self.rank else dist.irecv, self._groups[self._label(message)]
            for index, tensor in enumerate(posted.tensors):
                calls.append(dist.P2POp(call, tensor, self._peer(message), group, self._tag(message, index)))
                owners.append(posted)
        works = dist.batch_isend_irecv(calls) if calls else []
        for number, posted in enumerate(owners):
            posted.works += works[number : number + 1] if len(works) == len(owners) else works

    def sent(self, message: Message) -> None:
        """Wait until a message has been received, if it is still in transit, and release its tensors."""
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
        """Record the message for which this rank waits, while it waits."""
        began = time.monotonic()
        self._waiting = message
        yield
        self._waiting = None
        self.waited += time.monotonic() - began

    def _thread(self, target: int) -> SimpleQueue[Message | None]:
        """Return the queue of the thread that waits for sends to a rank; the thread ends with these channels."""
        if target not in self._threads:
            queue = self._threads[target] = SimpleQueue()
            name = f"pipesched sends to rank {target}"
            threading.Thread(target=_wait_in_order, args=(queue, self._sent), name=name, daemon=True).start()
            weakref.finalize(self, queue.put, None)
        return self._threads[target]

    def in_line(self, message: Message) -> bool:
        """Return True if a message queues behind all posts on its communicator, not only on its channel.

        This is the case if a process group without tags carries batches. Such a message is posted at its place in the
        list.
        """
        return message.communicator in self._shared and not self._transport.tagged

    def _label(self, message: Message) -> Label:
        """Return the label of a message's process group."""
        communicator = message.communicator
        one = self._transport.tagged or communicator in self._shared
        return (communicator,) if one else (communicator, message.source, message.target)

    def _tag(self, message: Message, index: int) -> int:
        return self.tags.of_tensor(message, index) if self._transport.tagged else 0

    def _peer(self, message: Message) -> int:
        return self._global(message.target if message.source == self.rank else message.source)

    def _global(self, rank: int) -> int:
        return rank if self.group is None else dist.get_global_rank(self.group, rank)

    def _process_groups(self, channels: Collection[Channel]) -> dict[Label, dist.ProcessGroup | None]:
        """Create the process groups of this rank. With tags, communicator 0 uses the program's own group.

        torch requires every process of the job to take part in every `new_group`, in the same order: a process that
        skips one numbers the next groups differently, and if NCCL splits communicators off the default one
        (``device_id``) the others wait for it. gloo requires only the members of the group. The first operation on a
        communicator waits for the other ranks, so all are used once here: creation can never be part of a later cycle.
        """
        made: dict[Label, dist.ProcessGroup | None] = {(0,): self.group} if self._transport.tagged else {}
        labels = {
            self._label(Message("", 0, 0, 0, source, target=target, communicator=c)) for c, source, target in channels
        } - {*made}
        mine = {(tuple(sorted(map(self._global, self._members(label)))), label) for label in labels}
        local = self._transport.tagged
        new_group = partial(dist.new_group, use_local_synchronization=True) if local else dist.new_group
        for members, label in sorted(mine if local else self._of_all_pipelines(mine)):
            group = new_group(list(members))
            if (members, label) in mine and dist.get_rank() in members:
                assert isinstance(group, dist.ProcessGroup)
                dist.all_reduce(torch.zeros(1, device=self.wire), group=group)
                made[label] = group
        return made

    def _members(self, label: Label) -> Sequence[int]:
        """Return the ranks of a process group."""
        return label[1:] or range(dist.get_world_size(self.group))

    def _of_all_pipelines(self, groups: set[Group]) -> set[Group]:
        """Return the process groups of all programs that the processes of the job run, including replicas."""
        if self.group is None:
            return groups
        every = everybody(sorted(groups))
        return {(tuple(members), tuple(label)) for some in every for members, label in some}


def _drop_done(sent: dict[Message, _Posted]) -> None:
    """Forget completed sends, the oldest to each target first."""
    held = set()
    for message, posted in list(sent.items()):
        if message.target not in held and done(posted.works):
            posted.wait()  # returns immediately, and torch releases its own references
            del sent[message]
        else:
            held.add(message.target)


def _wait_in_order(queue: SimpleQueue[Message | None], sent: dict[Message, _Posted]) -> None:
    """Wait for each send of a queue in turn and release its tensors; the body of a thread."""
    while (message := queue.get()) is not None:
        posted = sent[message]
        assert posted.left is not None
        try:
            posted.wait()
        except RuntimeError as error:  # the rank's main thread raises it again when it asks
            posted.error = error
        else:
            del sent[message]
        posted.left.release()
        del posted  # frees the tensors while the thread waits for the next message


def done(works: Sequence[dist.Work]) -> bool:
    return all(work.is_completed() for work in works)


def backend_of(group: dist.ProcessGroup | None, device: torch.device) -> str:
    """Return the backend that carries a device's tensors; gloo if they can only be copied through the host."""
    if not dist.is_initialized():
        return "gloo"
    by_device = dict(part.split(":") for part in str(dist.get_backend_config(group)).split(","))
    return by_device.get(device.type, "gloo")


def _kept(work: dist.Work | None) -> dist.Work:
    """Return a handle; raise an error if torch returned none because the rank is not in the group."""
    if work is None:
        raise RuntimeError("this process does not belong to the given process group")
    return work
