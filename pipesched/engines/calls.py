"""The calls that a framework's code issues on the engines of every rank, in the order of issue.

    pipeline a: 0 1
    pipeline b: 2 3
    group ep: 0 2
    rank 0: F0.attn F0.dispatch@comm*ep+F0.attn F0.mlp+F0.dispatch F0>1@comm+F0.mlp
    rank 1: F0<0@comm ...

A `group` line gives the members of a communicator. The `pipeline` lines are optional; with them, expert peers must have
equal positions in their pipelines. A rank issues its calls in the order of its line: NAME is a part; NAME>1 sends a
message to rank 1 and NAME<0 receives one from rank 0; @ENGINE is the engine that runs it, `compute` by default; *GROUP
makes it a collective call of all members of the group, or names the communicator of a message; +NAME is a call of the
same rank that must end before it; &NAME>1 is posted in one batch with the message before it. An engine runs its calls
one at a time, in the order in which they are issued; messages of a batch begin together, in any order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeAlias

from pipesched.diagnostics import Code, Label, PipeschedError, fail
from pipesched.engines.codes import EngineCode
from pipesched.engines.parts import OWN
from pipesched.model.numbers import interval
from pipesched.support.source import Source, Span

_NAME = r"[A-Za-z_][\w.]{0,60}"
_CALL = re.compile(
    rf"(&?)({_NAME})(?:([<>])(\d{{1,6}}))?(?:@({_NAME}))?(?:\*({_NAME}))?((?:\+{_NAME}(?:[<>]\d{{1,6}})?)*)"
)
_LINE = re.compile(r"[ \t]*(?:(rank)[ \t]+(\d{1,6})|(group|pipeline)[ \t]+(\w{1,60}))[ \t]*:([^\n]*)")
_ONE_ENGINE = "let each member call the group on only one engine"
Fault: TypeAlias = "tuple[str, str]"
"""A message and its remedy."""
_MOST, _RANKS = 2_000_000, 10_000
_FORM = (
    "a call is NAME, NAME>RANK or NAME<RANK, then @ENGINE, *GROUP and +NAME as needed; & before every call of a "
    "batch but the first"
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a rank. way: ``>`` for a send to the rank `peer`, ``<`` for a receive from it, empty for other calls.

    group: the communicator of a collective call, or of a message. needs: the text of each call of this rank that must
    have ended before this one begins. joined: whether the message is in the same batch as the call before it.
    """

    name: str
    engine: str = OWN
    group: str = ""
    way: str = ""
    peer: int = -1
    needs: tuple[str, ...] = ()
    joined: bool = False

    @property
    def meets(self) -> str:
        """The group of a collective call; empty for other calls."""
        return "" if self.way else self.group

    def __str__(self) -> str:
        return f"{self.name}{self.way}{self.peer}" if self.way else self.name


@dataclass(frozen=True)
class Calls:
    """The calls of each rank, and the members of each group. places: the source position of each call, by rank; empty
    if the calls were not read from text.
    """

    ranks: tuple[tuple[Call, ...], ...] = ()
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    places: tuple[tuple[Span, ...], ...] = ()

    def __post_init__(self) -> None:
        """Check groups and calls.

        Raises:
            PipeschedError: PS266 for a group with one member, a call on a group by a rank outside it or on two engines,
                a message to the rank itself or to no rank, a batch that is not made of messages on one engine, or a
                call that waits for a name that does not occur exactly once.
        """
        for group, members in self.groups.items():
            if len(set(members)) < 2 or len(set(members)) < len(members) or max(members) >= len(self.ranks):
                many = "one member" if len(members) < 2 else f"members {', '.join(map(str, members))}"
                raise wrong(f"group {group} has {many}; ranks are {interval(0, len(self.ranks))}")
        for rank, calls in enumerate(self.ranks):
            self._check(rank, calls)

    def _check(self, rank: int, calls: Sequence[Call]) -> None:
        engines: dict[str, str] = {}
        times = Counter(map(str, calls))
        for at, call in enumerate(calls):
            faults = (
                self._misplaced(rank, call, calls[at - 1] if at else None),
                _between(rank, call, engines.setdefault(call.group, call.engine) if call.meets else call.engine),
                _unmet(rank, call, times),
            )
            if fault := next(filter(None, faults), None):
                raise wrong(fault[0], *self.label(rank, at), help=fault[1])

    def _misplaced(self, rank: int, call: Call, before: Call | None) -> Fault | None:
        """Return the fault if a message or batch is invalid, or if a call's group does not contain its rank."""
        here = f"{call} on rank {rank}"
        if call.way and not (0 <= call.peer < len(self.ranks) and call.peer != rank):
            return f"{here} does not name another rank of the file", f"ranks are {interval(0, len(self.ranks))}"
        if call.joined and not (call.way and before is not None and before.way and before.engine == call.engine):
            return f"{here} is in a batch without a message before it", "omit the &, or put a message before it"
        return self._foreign(rank, call) if call.group else None

    def _foreign(self, rank: int, call: Call) -> Fault | None:
        """Return the fault if a call's group does not contain its rank, or the rank at the other end of its message."""
        members = self.groups.get(call.group, ())
        other = next((x for x in (rank, call.peer) if x >= 0 and x not in members), None)
        if other is None:
            return None
        near = get_close_matches(call.group, self.groups, 1)
        known = f"group {call.group} has no rank {other}" if members else "there is no such group"
        help = f"did you mean {near[0]}?" if near and not members else f"groups are {', '.join(self.groups) or '-'}"
        return f"{call} on rank {rank} uses group {call.group}: {known}", help

    def label(self, rank: int, at: int, message: str = "here") -> list[Label]:
        """Return a label at a call, if its position is known, with the line of code that issued the call, if known."""
        if not self.places:
            return []
        span = self.places[rank][at]
        by = span.source.made_at.get(span.start)
        return [Label(span, f"{message} ({by})" if by else message)]


def _between(rank: int, call: Call, engine: str) -> Fault | None:
    """Return the fault if a rank calls a group on two engines. engine: the engine on which the rank first calls the
    group.
    """
    if engine == call.engine:
        return None
    both = (
        f"rank {rank} calls group {call.group} on two engines, {engine} and {call.engine}: the order of these calls is "
        f"undecided"
    )
    return both, _ONE_ENGINE


def _unmet(rank: int, call: Call, times: Counter[str]) -> Fault | None:
    """Return the fault if a call waits for a name that does not occur exactly once."""
    missing = next((need for need in call.needs if times[need] != 1), None)
    if missing is None:
        return None
    what = "does not occur" if not times[missing] else f"occurs {times[missing]} times"
    near = [] if times[missing] else get_close_matches(missing, times, 1)
    help = (
        f"did you mean +{near[0]}?" if near else "after +, write the whole text of one call of this rank, such as +F0<1"
    )
    return f"{call} on rank {rank} waits for {missing}, which {what}", help


def wrong(message: str, *labels: Label, help: str = _ONE_ENGINE) -> PipeschedError:
    """Return the error PS266 about calls."""
    return fail(EngineCode.CALLS_WRONG, message, *labels, help=help)


def read(source: Source) -> Calls:
    """Parse a file of calls.

    Raises:
        PipeschedError: PS265 for a line or a call that cannot be read; PS266 for calls that contradict each other.
    """
    groups: dict[str, tuple[int, ...]] = {}
    pipelines: dict[str, tuple[int, ...]] = {}
    ranks: dict[int, list[tuple[Call, Span]]] = {}
    places: dict[str, Span] = {}
    for start, line in _lines(source.text):
        found = _LINE.fullmatch(line)
        here = Label(source.span(start, start + len(line)), "here")
        if found is None:
            message = "a line begins with `group NAME:`, `pipeline NAME:` or `rank NUMBER:`"
            raise fail(EngineCode.CALLS_SYNTAX, message, here, help=_FORM)
        _, rank, kind, name, rest = found.groups()
        if rank:
            if int(rank) in ranks:
                raise fail(EngineCode.CALLS_SYNTAX, f"rank {int(rank)} is given twice", here)
            ranks[int(rank)] = list(_read(source, start + found.start(5), rest))
        else:
            into = groups if kind == "group" else pipelines
            if name in into:
                raise fail(EngineCode.CALLS_SYNTAX, f"{kind} {name} is given twice", here)
            if not re.fullmatch(r"(?:\s*\d{1,6}\b)+\s*", rest):
                raise fail(EngineCode.CALLS_SYNTAX, "the members of a group are rank numbers", here)
            into[name], places[name] = tuple(map(int, rest.split())), source.span(start, start + len(line))
    _require_size(source, ranks)
    rows = [tuple(zip(*ranks[rank], strict=True)) or ((), ()) for rank in range(len(ranks))]
    calls, spans = zip(*rows, strict=True)
    _require_members(groups, pipelines, places, {call.meets for row in calls for call in row})
    return Calls(calls, groups, spans)


def _require_members(
    groups: Mapping[str, Sequence[int]],
    pipelines: Mapping[str, Sequence[int]],
    places: Mapping[str, Span],
    met: Collection[str],
) -> None:
    """Raise PipeschedError, PS266, for a group with one member, or with members at different positions in their
    pipelines.
    """
    for name, members in groups.items():
        if len(members) < 2:
            help = "name the expert peers of all pipelines, or omit the group"
            raise wrong(
                f"group {name} has one member",
                Label(places[name], ("a collective call needs at least two members")),
                help=help,
            )
        if name in met:
            _require_one_place(name, members, pipelines, places[name])


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield every nonblank line without its comment, and the offset of the line."""
    for found in re.finditer(r"[^\r\n]+", text.lstrip("\ufeff")):
        line = found[0].partition("#")[0].rstrip()
        if line.strip():
            yield found.start() + len(text) - len(text.lstrip("\ufeff")), line


def _read(source: Source, begin: int, text: str) -> Iterator[tuple[Call, Span]]:
    for word in re.finditer(r"\S+", text):
        at = source.span(begin + word.start(), begin + word.end())
        found = _CALL.fullmatch(word[0])
        if found is None:
            raise fail(EngineCode.CALLS_SYNTAX, f"{word[0][:60]!r} is not a call", Label(at, "here"), help=_FORM)
        batch, name, way, peer, engine, group, needs = found.groups()
        after = tuple(filter(None, needs.split("+")))
        yield Call(name, engine or OWN, group or "", way or "", int(peer or -1), after, bool(batch)), at


def _require_size(source: Source, ranks: Mapping[int, Sequence[object]]) -> None:
    if sorted(ranks) != [*range(len(ranks))] or not ranks or len(ranks) > _RANKS:
        message = f"{source.name} has ranks {', '.join(map(str, sorted(ranks)[:8])) or '-'}: list every rank from 0"
        raise fail(EngineCode.CALLS_SYNTAX, message)
    if (count := sum(map(len, ranks.values()))) > _MOST:
        raise fail(Code.TOO_MANY_OPERATIONS, f"{source.name} has {count:,} calls; the limit is {_MOST:,}")


def _require_one_place(name: str, members: Sequence[int], pipelines: Mapping[str, Sequence[int]], at: Span) -> None:
    """Raise PipeschedError, PS266, if members are at different positions in their pipelines."""
    found = {rank: (place, line) for line, ranks in pipelines.items() for place, rank in enumerate(ranks)}
    places = {rank: found[rank][0] for rank in members if rank in found}
    if len(set(places.values())) > 1 or (places and len(places) < len(members)):
        said = ", ".join(
            f"rank {rank} is at position {found[rank][0]} in {found[rank][1]}"
            if rank in found
            else f"rank {rank} is not in any pipeline"
            for rank in members
        )
        message = f"members of group {name} are at different positions in their pipelines"
        raise fail(EngineCode.CALLS_WRONG, message, Label(at, said), help="expert peers must run the same stages")


def schedule(source: Source, **_: object) -> object:
    """Refuse a file of calls where a schedule is needed.

    Raises:
        PipeschedError: PS265.
    """
    raise fail(
        EngineCode.CALLS_SYNTAX,
        f"{source.name} contains calls on engines, not an order of stages",
        help="`pipesched verify` judges it",
    )
