"""torch.distributed for one rank, on tokens: records each post, wait and operation with its line of code. A tensor
is a token that gets its label when it is used, so the record shows the message for which the schedule *uses* a tensor,
not the message that arrives. The record is then written in the order notation, one word per event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, count
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from pipesched.interop.frameworks.fakes import Fake, Undecided, lines
from pipesched.interop.frameworks.recording import Nonsense, Place, shown
from pipesched.interop.frameworks.streams import Streams

if TYPE_CHECKING:
    from pipesched.interop.frameworks.megatron import Module


@dataclass(eq=False)
class Token:
    """A stand-in for a tensor. label: the operation that made it, as in ("F", stage, microbatch); a received tensor is
    labelled when it is used.

    of: the tensor whose shape this one holds, if any. shape: the received shape with which this one was created, if
    any.
    """

    label: tuple[str, int, int] | None = None
    of: Token | None = None
    shape: Token | None = None
    device = dtype = _base = data = None
    grad: Token | None = None

    def retain_grad(self) -> None:
        """Do nothing: the code that computes a gradient sets it."""

    def size(self) -> Size:
        return Size(self)

    def tolist(self) -> Dimensions:
        return Dimensions(self)


class Size(tuple[int, ...]):
    """A torch.Size that remembers its tensor."""

    def __new__(cls, of: Token | None = None) -> Size:
        made = super().__new__(cls, (1, 1, 1))
        made.of = of
        return made

    of: Token | None


class Dimensions(list[int]):
    """Dimensions read from a received tensor of three numbers; they remember the tensor."""

    def __init__(self, token: Token) -> None:
        super().__init__((1, 1, 1))
        self.token = token


def empty(shape: object = None, *given: object, **named: object) -> Token:
    made = Token()
    if isinstance(shape, Dimensions):
        made.shape = shape.token
        shape.token.of = made
    return made


def tensor(value: object, *given: object, **named: object) -> object:
    return Token(of=value.of) if isinstance(value, Size) else Fake("torch.tensor")


@dataclass(frozen=True)
class Group:
    """A process group as seen by one of its ranks."""

    name: str
    members: int = 1
    here: int = 0

    def size(self) -> int:
        return self.members

    def rank(self) -> int:
        return self.here


PIPELINE, WORLD = "pipeline", "world"
COMMUNICATORS = {PIPELINE: 0, WORLD: 1}


Lines: TypeAlias = "tuple[tuple[str, int], ...]"
Op: TypeAlias = "tuple[str, object, int, object, Lines]"


@dataclass(eq=False)
class Event:
    """An action of a rank. what: compute, send, recv, wait or reduce. place: lines as in `Rank.place`."""

    what: str
    place: Lines = ()
    label: tuple[str, int, int] | None = None  # for a compute
    beside: tuple[str, int, int] | None = None  # for an overlap, its second part
    token: Token | None = None
    peer: int = -1
    communicator: int = 0
    batch: int = -1
    awaited: Event | None = None
    stage: int = -1  # for a reduction


class Request:
    """The Work object that a post returns."""

    def __init__(self, rank: Rank, posts: list[Event]) -> None:
        self.rank, self.posts = rank, posts

    def wait(self) -> None:
        self.rank.wait(self.posts)

    def __getattr__(self, name: str) -> NoReturn:
        raise Undecided(f"Work.{name}")


@dataclass(eq=False)
class Rank:
    """torch.distributed for one rank, with a record of its calls. under_way: the posts that no wait has completed.
    issued: the parts that the rank's first combined pass launches, in order.
    """

    folder: str
    ranks: int
    here: int
    events: list[Event] = field(default_factory=list)
    under_way: dict[Event, None] = field(default_factory=dict)
    batches: Iterator[int] = field(default_factory=count)
    issued: list[str] = field(default_factory=list)
    streams: Streams = field(default_factory=Streams)

    def place(self) -> Lines:
        """Return the innermost line of the framework, and the line of `schedules.py` that led to it."""
        found: list[tuple[str, int]] = []
        for line in lines(self.folder):
            if line[0].endswith("schedules.py"):
                return (*found[:1], line)
            found.append(line)
        return tuple(found[:1])

    def post(self, what: str, tensor: object, peer: int, group: object, batch: int = -1) -> Event:
        token = tensor[0] if isinstance(tensor, list | tuple) else tensor
        if not isinstance(token, Token):
            raise Undecided(f"a tensor to {what}")
        name = group.name if isinstance(group, Group) else PIPELINE if group is None else str(group)
        if name not in COMMUNICATORS:
            raise Undecided(f"the process group {name}")
        event = Event(what, self.place(), None, None, token, peer, communicator=COMMUNICATORS[name], batch=batch)
        self.events.append(event)
        self.streams.post(event)
        self.under_way[event] = None
        return event

    def isend(self, tensor: object = None, dst: int = -1, group: object = None) -> Request:
        return Request(self, [self.post("send", tensor, dst, group)])

    def irecv(self, tensor: object = None, src: int = -1, group: object = None) -> Request:
        return Request(self, [self.post("recv", tensor, src, group)])

    def p2p_op(self, op: Callable[..., object], tensor: object, peer: int, group: object = None) -> Op:
        return op.__name__[1:], tensor, peer, group, self.place()

    def batch_isend_irecv(self, ops: Iterable[Op]) -> list[Request]:
        batch = next(self.batches)
        posts = []
        for what, tensor, peer, group, place in ops:
            posts.append(self.post(what, tensor, peer, group, batch))
            posts[-1].place = self.streams.calls[-1].place = place
        return [Request(self, posts)]

    def wait(self, posts: Iterable[Event]) -> None:
        for post in posts:
            if post in self.under_way:
                del self.under_way[post]
                self.streams.wait(post)
                self.events.append(Event("wait", self.place(), awaited=post))

    def synchronize(self, *given: object) -> None:
        """Wait for all pending posts."""
        self.wait([*self.under_way])
        self.streams.synchronize()

    def take(self, tensor: object, label: tuple[str, int, int]) -> None:
        """Label the tensor that an operation uses; it must not have a different label already."""
        if tensor is None:
            return
        if not isinstance(tensor, Token):
            raise Undecided("the input of a stage")
        if tensor.label not in (None, label):
            raise Nonsense(f"rank {self.here} uses {_name(tensor.label)} as {_name(label)}, which it did not receive")
        tensor.label = label

    def compute(self, label: tuple[str, int, int], beside: tuple[str, int, int] | None = None) -> None:
        """Record a compute operation, or an overlap of two."""
        self.events.append(Event("compute", self.place(), label, beside))

    def made(self, token: Token) -> None:
        """Handle a token that an operation has made; a hook for subclasses."""

    def finalize(self, model: Iterable[Module], *given: object, **named: object) -> None:
        """Record the reduction of all chunks, whose gradients are complete."""
        for module in model:
            self.events.append(Event("reduce", self.place(), stage=module.chunk * self.ranks + self.here))


@cache
def place_of(found: Lines) -> Place | None:
    """Return the place of an event: file and line, with the schedule's file if a different file posted the event."""
    if not found:
        return None
    (file, line), (outer, at) = found[0], found[-1]
    return (shown(file), line) if len(found) == 1 else (f"{shown(file)}:{line}, from {Path(outer).name}", at)


def words(rank: Rank) -> list[tuple[str, Place | None]]:
    """Return the words of the order notation, one per event, each with its source line, without waits for receives."""
    found: list[tuple[str, Place | None]] = []
    batch = -1
    for event in rank.events:
        inside = event.batch
        if inside != batch:
            found += [(")", None)] * (batch >= 0) + [("(", None)] * (inside >= 0)
            batch = inside
        if word := _word(rank, event):
            found.append((word, place_of(event.place)))
    return found + [(")", None)] * (batch >= 0)


def waits_later(rank: Rank) -> bool:
    """Return True if the rank computes between a post and its wait."""
    computed = list(accumulate(event.what == "compute" for event in rank.events))
    posted = {event: number for event, number in zip(rank.events, computed, strict=True) if event.token is not None}
    return any(x.awaited is not None and posted[x.awaited] < now for x, now in zip(rank.events, computed, strict=True))


def messages(rank: Rank) -> list[str]:
    """Return the name of every message of a rank, in order."""
    posts = [event for event in rank.events if event.what in ("send", "recv")]
    return [_shape(event) + _message(rank, event) for event in posts]


def _word(rank: Rank, event: Event) -> str | None:
    if event.what == "compute":
        return _name(event.label) + (f"+{_name(event.beside)}" if event.beside else "")
    if event.what == "reduce":
        return f"reduce:{event.stage}"
    if event.awaited is not None:
        awaited = event.awaited
        return None if _shape(awaited) or awaited.what == "recv" else f"wait:{_message(rank, awaited)}"
    arrow, at = ">" if event.what == "send" else "<", f"@{event.communicator}" if event.communicator else ""
    return f"{event.what}{_shape(event)}:{_message(rank, event)}{arrow}{event.peer}{at}"


def _shape(event: Event) -> str:
    return "" if event.token is None or event.token.of is None else "shape"


def _message(rank: Rank, event: Event) -> str:
    token = event.token
    label = None if token is None else (token.of or token).label
    if label is None:
        raise Nonsense(f"rank {rank.here} posts a {event.what} whose tensor is never used, at {place_of(event.place)}")
    return _name(label)


def _name(label: tuple[str, int, int] | None) -> str:
    assert label is not None
    kind, stage, microbatch = label
    return f"{kind}{stage}.{microbatch}"
