"""CUDA streams and events of one rank on tokens: records which call waits for which, as the code records events and
waits for them.

A stream runs its calls in order. An event stores the calls that a stream has issued so far; a stream that waits for the
event begins later calls only when these have ended. A message is posted from the current stream: it begins after the
calls that this stream has issued, and its `wait` delays later calls of the stream that is then current. `calls` writes
the record as pipesched's calls on engines, for two pipelines whose ranks at the same position are expert peers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipesched.interop.frameworks.megatron_rank import Event as Message
    from pipesched.interop.frameworks.megatron_rank import Lines

OWN, COMM, POSTED = "compute", "comm", "p2p"


@dataclass(eq=False)
class Issued:
    """A call that a rank has issued. after: the calls for which it waits. meets: True if it is a collective of the
    expert peers. message: the post, if the call is a message.
    """

    name: str
    stream: str
    after: list[Issued]
    place: Lines
    meets: bool = False
    message: Message | None = None


@dataclass(eq=False)
class Stream:
    """A CUDA stream. last: its latest call; waits: the calls for which its next call waits."""

    name: str
    streams: Streams
    last: Issued | None = None
    waits: dict[Issued, None] = field(default_factory=dict)

    @property
    def past(self) -> list[Issued]:
        """The calls that must have ended before the next call of the stream begins."""
        return [*([] if self.last is None else [self.last]), *self.waits]

    def wait(self, calls: Iterable[Issued]) -> None:
        """Delay all later calls of this stream until `calls` have ended."""
        self.waits.update(dict.fromkeys(calls))

    def wait_stream(self, other: Stream) -> None:
        """Wait for the calls that another stream has issued."""
        self.wait(other.past)

    def wait_event(self, event: Event) -> None:
        """Wait for an event."""
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        """Return an event that stores the calls that the stream has issued."""
        made = event or Event(self.streams)
        made.record(self)
        return made


@dataclass(eq=False)
class Event:
    """A CUDA event. past: the calls that the latest `record` stored."""

    streams: Streams
    past: list[Issued] = field(default_factory=list)

    def record(self, stream: Stream | None = None) -> None:
        """Store the calls that a stream has issued."""
        self.past = (stream or self.streams.current).past

    def wait(self, stream: Stream | None = None) -> None:
        """Make a stream wait for the calls that the latest `record` stored."""
        (stream or self.streams.current).wait(self.past)


class Streams:
    """torch.cuda of one rank, with all calls that the rank issues."""

    def __init__(self) -> None:
        self.every = [Stream(OWN, self)]
        self.current = self.every[0]
        self.calls: list[Issued] = []
        self.posted: dict[Message, Issued] = {}

    def made(self, *given: object, **named: object) -> Stream:
        """Return a new stream: torch.cuda.Stream."""
        self.every.append(Stream(COMM + str(len(self.every))[len(self.every) < 2 :], self))
        return self.every[-1]

    @contextmanager
    def entered(self, stream: Stream) -> Iterator[Stream]:
        """Make a stream the current one: torch.cuda.stream."""
        before, self.current = self.current, stream
        try:
            yield stream
        finally:
            self.current = before

    def issue(self, name: str, place: Lines, *, meets: bool) -> None:
        """Issue a call on the current stream."""
        stream = self.current
        call = Issued(name, stream.name, [x for x in stream.waits if x.stream != stream.name], place, meets)
        stream.last, stream.waits = call, {}
        self.calls.append(call)

    def post(self, message: Message) -> None:
        """Post a message from the current stream."""
        self.posted[message] = Issued("", POSTED, self.current.past, message.place, message=message)
        self.calls.append(self.posted[message])

    def wait(self, message: Message) -> None:
        """Make the current stream wait for a message."""
        self.current.wait([self.posted[message]])

    def synchronize(self) -> None:
        """Make every stream wait for all issued calls."""
        past = [x for stream in self.every for x in stream.past]
        for stream in self.every:
            stream.wait(past)


def calls(ranks: Sequence[tuple[Streams, Sequence[str]]], pipelines: int) -> list[tuple[str, list[Lines]]]:
    """Return the lines of a file of calls, each with the source lines of its words.

    ranks: the ranks of all pipelines, one pipeline after another, each with the names of its messages in order.
    """
    if not ranks:
        return []
    size = len(ranks) // pipelines
    whole = [[*range(at * size, (at + 1) * size)] for at in range(pipelines)]
    found: list[tuple[str, list[Lines]]] = []
    for at, members in enumerate(whole):
        found.append((f"pipeline {_letter(at)}: {_row(members)}", []))
    for place, peers in enumerate(zip(*whole, strict=True)):
        found.append((f"group ep{place}: {_row(peers)}", []))
    over = {x.message.communicator for streams, _ in ranks for x in streams.calls if x.message is not None}
    found += [(f"group {_over(c, at)}: {_row(row)}", []) for c in sorted(over) for at, row in enumerate(whole) if c]
    for number, (streams, names) in enumerate(ranks):
        pipeline, here = divmod(number, size)
        words = [*_words(streams, names, here, pipeline, size)]
        found.append((f"rank {number}: {' '.join(words)}", [x.place for x in streams.calls]))
    return found


def _words(streams: Streams, names: Sequence[str], here: int, pipeline: int, size: int) -> Iterator[str]:
    said, left = dict[Issued, str](), iter(names)
    for before, call in pairwise([None, *streams.calls]):
        assert call is not None
        text, message = call.name, call.message
        if message is not None:
            way = ">" if message.what == "send" else "<"
            text = f"{next(left)}{way}{message.peer + pipeline * size}"
        said[call] = text
        if call.stream != OWN:
            text += f"@{call.stream}"
        if call.meets:
            text += f"*ep{here}"
        if message is not None and message.communicator:
            text += f"*{_over(message.communicator, pipeline)}"
        last = None if before is None else before.message
        joined = message is not None and last is not None and message.batch >= 0 and message.batch == last.batch
        yield "&" * joined + text + "".join(f"+{said[x]}" for x in dict.fromkeys(call.after))


def _row(members: Sequence[int]) -> str:
    return " ".join(map(str, members))


def _letter(at: int) -> str:
    return "abcdefgh"[at]


def _over(communicator: int, pipeline: int) -> str:
    return f"over{communicator}{_letter(pipeline)}"
