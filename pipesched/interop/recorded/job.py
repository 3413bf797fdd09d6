"""The calls of all ranks of a job, from its readable records: dumps of torch or Megatron, pipesched traces, or orders.

    rank 0   all_reduce in dp | send to +1 in pp | …        a call is named as its rank sees it, so that ranks at the
    rank 4   all_reduce in dp | send to +1 in pp | …        same position in their pipelines make the same calls

Megatron's ``--flight-recorder-dump-path`` sets torch's flight recorder, so its dumps are torch's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from pipesched.diagnostics import Diagnostic, PipeschedError, fail
from pipesched.interop.codes import InteropCode
from pipesched.interop.recorded import recorded_runs
from pipesched.interop.recorded.entries import Log, read
from pipesched.interop.recorded.flight_recorder import RANK, Group, end_of
from pipesched.interop.recorded.recorded_run import COMPLETED
from pipesched.model.columns import Column, Ints, fresh, places, rank_column
from pipesched.planning.executors import executor
from pipesched.support.foreign import foreign

COLLECTIVE, SEND, RECEIVE = range(3)
_LARGE = 1 << 24  # bytes of dumps from which several processes read


@dataclass(frozen=True, slots=True)
class Call:
    """A call as its rank sees it. group: the purpose of its group, with the number of members and the smallest distance
    between two of their ranks. towards: the peer's position in the group minus the rank's; 0 for a collective.
    """

    name: str
    group: str
    members: int
    stride: int
    towards: int
    tensor: str

    def __str__(self) -> str:
        return (
            f"{self.name} in {self.group}"
            if not self.towards
            else f"{self.name} rank {self.towards:+d} in {self.group}"
        )


@dataclass(frozen=True, eq=False)
class Job:
    """The calls of all ranks with a record. ranks: their ranks in the job; start: the index of each rank's first call.

    call: index into `calls`. way: COLLECTIVE, SEND or RECEIVE. peer: the peer's rank in the job. group: index into
    `groups`. number: torch's sequence number in the group; messages posted together share it. over: True if the call
    has completed. record: the recorder's number of the entry. unread: for each rank whose record cannot be read, the
    finding that gives the reason.
    """

    by: str
    ranks: tuple[int, ...]
    start: Ints
    calls: tuple[Call, ...]
    groups: tuple[Group, ...]
    call: Column
    way: Column
    peer: Column
    group: Column
    number: Column
    over: Column
    record: Column
    unread: Mapping[int, Diagnostic] = field(default_factory=dict)

    @cached_property
    def missing(self) -> tuple[int, ...]:
        """The ranks of the job without a readable record."""
        return tuple(sorted({rank for group in self.groups for rank in group.ranks} - {*self.ranks}))

    @cached_property
    def place(self) -> Mapping[int, int]:
        """The index of each rank of the job in `ranks`."""
        return {rank: at for at, rank in enumerate(self.ranks)}

    @cached_property
    def owner(self) -> Column:
        """For each call, the index of its rank in `ranks`."""
        return rank_column(self.start)

    def cut(self, at: int) -> bool:
        """Return True if the first calls of a rank were overwritten."""
        return bool(self.start[at] < self.start[at + 1] and self.record[self.start[at]] > 0)

    @cached_property
    def partnered(self) -> Column:
        """True for each message with a partner; the partner of the i-th send on a channel is the i-th receive."""
        sender = np.where(self.way == SEND, self.member, self.peer).astype(np.int64)
        target = np.where(self.way == SEND, self.peer, self.member)
        most = int(max(sender.max(initial=0), target.max(initial=0))) + 1
        key = ((self.group * np.int64(most) + sender) * most + target) * 2 + (self.way == RECEIVE)
        key[(self.way == COLLECTIVE) | (self.peer < 0)] = -1
        order = np.argsort(key, kind="stable")
        position = np.empty(len(key), dtype=np.int64)
        position[order] = places(fresh(key[order]))
        sides, count = np.unique(key, return_counts=True)
        other = np.minimum(np.searchsorted(sides, key ^ 1), len(sides) - 1)
        found: Column = (key >= 0) & (sides[other] == key ^ 1) & (position < count[other])
        return found

    @cached_property
    def member(self) -> Column:
        """For each call, the rank in the job that made it."""
        return np.array(self.ranks, dtype=np.int32)[self.owner]

    def of(self, at: int) -> slice:
        """Return the range of the calls of a rank. at: the index of the rank in `ranks`."""
        return slice(int(self.start[at]), int(self.start[at + 1]))

    def said(self, i: int) -> str:
        """Describe a call, with its ranks in the job."""
        call, group = self.calls[self.call[i]], self.groups[self.group[i]]
        who = f" {'to' if self.way[i] == SEND else 'from'} rank {self.peer[i]}" if self.way[i] else ""
        many = f"ranks {listed(group.ranks)}" if not self.way[i] else ""
        return f"{call.name}{who} in {group.purpose}" + (f" ({many})" if many else "")


def listed(ranks: Sequence[object]) -> str:
    few = ", ".join(map(str, ranks[:8]))
    return few + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")


def named(ranks: Sequence[object]) -> str:
    """Describe ranks, as in ``ranks 0, 1``."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {listed(ranks)}"


def of_folder(folder: str) -> Job:
    """Return the calls in a folder of records.

    Raises:
        PipeschedError: PS890 if there is no readable record.
    """
    files = recorded_runs.read_files(folder, pickles=False)
    kinds = {name: recorded_runs.kind_of(data) for name, data in files.items()}
    if "dump" in kinds.values():
        kinds |= dict.fromkeys(_damaged(kinds), "dump")
    makes: Mapping[str, Callable[[Mapping[str, bytes]], Job]] = {
        "dump": partial(_dumps, folder),
        "trace": partial(_of_names, posted=False),
        "order": partial(_of_names, posted=True),
    }
    for kind, make in makes.items():
        if kind in kinds.values():
            with recorded_runs.without_cycles():
                return make({name: data for name, data in files.items() if kinds[name] == kind})
    raise fail(InteropCode.NO_RECORD, f"{folder} has no record of a rank", help=recorded_runs.GIVE)


def _damaged(kinds: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the files of unknown kind whose names end in the number of a rank without a dump."""
    ranked = {name: int(found[1]) for name in kinds if (found := RANK.search(name))}
    there = {rank for name, rank in ranked.items() if kinds[name] == "dump"}
    yield from (name for name, rank in ranked.items() if kinds[name] is None and rank not in there)


def _portion(folder: str, names: Sequence[str]) -> list[Log | tuple[Diagnostic, ...]]:
    """Read dumps; for a dump that cannot be read, return its findings instead."""
    made: list[Log | tuple[Diagnostic, ...]] = []
    with recorded_runs.without_cycles():
        for name in names:
            try:
                made.append(_settled(read(name, recorded_runs.file_of(Path(folder, name)))))
            except PipeschedError as error:
                made.append(error.diagnostics)
    return made


def _logs(folder: str, names: Sequence[str]) -> list[Log | tuple[Diagnostic, ...]]:
    """Read all dumps; if they are large, with one process per core."""
    if sum(os.path.getsize(Path(folder, name)) for name in names) < _LARGE or (os.cpu_count() or 1) < 2:
        return _portion(folder, names)
    few = max(1, len(names) // 64)
    portions = [names[at : at + few] for at in range(0, len(names), few)]
    try:
        with executor("processes") as workers:
            return [log for made in workers.map(partial(_portion, folder), portions) for log in made]
    except (PipeschedError, OSError):  # no process can be started, or one was killed: this one reads them all
        return _portion(folder, names)


def _dumps(folder: str, files: Mapping[str, bytes]) -> Job:
    logs, unread = dict[int, Log](), dict[int, Diagnostic]()
    ranked = {name: int(found[1]) for name in files if (found := RANK.search(name))}
    names = sorted(ranked, key=lambda name: ranked[name])
    for name, log in zip(names, _logs(folder, names), strict=True):
        rank = ranked[name]
        if rank in logs or rank in unread:
            first = next(other for other in names if ranked[other] == rank)
            message = f"{name} is a second dump of rank {rank}, in addition to {first}"
            raise fail(InteropCode.RECORD, message, help="give the dumps of one run: remove all others")
        if isinstance(log, Log) and log.groups and not any(rank in group.ranks for group in log.groups.values()):
            message = f"{name} is not the dump of rank {rank}: its process groups do not contain this rank"
            help = "name each dump after the job rank that wrote it"
            unread[rank] = Diagnostic(InteropCode.RECORD, message, help=help)
        elif isinstance(log, Log):
            logs[rank] = log
        else:
            unread[rank] = log[0]
    if not any(len(log.call) for log in logs.values()):
        reasons = tuple(f"{found.code}: {found.message}" for found in unread.values())[:4]
        raise fail(
            InteropCode.NO_RECORD, "none of the dumps has a readable entry", help=recorded_runs.GIVE, notes=reasons
        )
    return _joined(logs, unread)


_END = -2
"""The direction of the entry that ends a batch. The entries of a batch share the batch's number and the state of its
last entry."""


def _settled(log: Log) -> Log:
    """Set the state of each entry to the largest state in its batch, whose entries share one number in the group."""
    groups = {key: i for i, key in enumerate(dict.fromkeys(key for key, *_ in log.named))}
    sided = np.array([message and end_of(name)[0] != -1 for _, name, _, message in log.named], dtype=np.bool_)[log.call]
    group = np.array([groups[key] for key, *_ in log.named], dtype=np.int64)[log.call]
    number = np.where(sided, log.p2p, log.collective)
    key = (group * 2 + sided) * 2**40 + number
    order = np.argsort(key, kind="stable")
    begins = np.flatnonzero(fresh(key[order]))
    state = log.state.copy()
    if len(begins) < len(key):
        times = np.diff(np.append(begins, len(key)))
        state[order] = np.repeat(np.maximum.reduceat(log.state[order], begins), times)
    return replace(log, state=state, number=number.astype(np.int32))


@dataclass(frozen=True, slots=True)
class _Table:
    """The calls and the numbered groups of all ranks; purpose, members and stride identify a group in a call."""

    groups: dict[Group, tuple[int, tuple[str, int, int]]] = field(default_factory=dict)
    calls: dict[Call, int] = field(default_factory=dict)

    def number(self, group: Group) -> tuple[int, tuple[str, int, int]]:
        found = self.groups.get(group)
        if found is None:
            stride = int(np.diff(group.ranks).min()) if len(group.ranks) > 1 else 0
            found = self.groups[group] = len(self.groups), (str(group.purpose), len(group.ranks), stride)
        return found

    def call(
        self, group: Group, numbered: tuple[int, tuple[str, int, int]], rank: int, name: str, tensor: str
    ) -> tuple[int, int, int, int]:
        """Return the index of a call in `calls`, its direction, its peer and the index of its group."""
        (number, shape), (sends, _, other) = numbered, end_of(name)
        if sends < 0 and name.endswith(":coalesced"):
            return -1, _END, -1, number
        if sends < 0:
            made = Call(name.partition(":")[2] or name, *shape, 0, tensor)
            return self.calls.setdefault(made, len(self.calls)), COLLECTIVE, -1, number
        peer = group.ranks[other] if other < len(group.ranks) else -1
        at = group.ranks.index(rank) if rank in group.ranks else 0
        made = Call("send" if sends else "receive", *shape, other - at, tensor)
        return self.calls.setdefault(made, len(self.calls)), SEND if sends else RECEIVE, peer, number

    def rows(self, rank: int, log: Log) -> Column:
        """Return the call, way, peer and group (rows) of each distinct call of a rank (columns)."""
        of = dict(log.groups)
        only = next(iter(of.values())) if len(of) == 1 else None
        for key in [key for key, *_ in log.named if key not in of]:
            of[key] = only or Group(foreign(key), foreign("unnamed"), (rank,))
        numbered = {key: self.number(group) for key, group in of.items()}
        rows = [self.call(of[key], numbered[key], rank, name, tensor) for key, name, tensor, _ in log.named]
        return np.array(rows or np.zeros((0, 4)), dtype=np.int32).reshape(-1, 4).T


def _joined(logs: Mapping[int, Log], unread: Mapping[int, Diagnostic]) -> Job:
    table, columns = _Table(), list[Column]()
    for rank, log in logs.items():
        made = np.stack([*table.rows(rank, log)[:, log.call], log.number, log.state, log.record])
        columns.append(made[:, made[1] >= 0])
    start = np.cumsum([0, *(column.shape[1] for column in columns)], dtype=np.int64)
    call, way, peer, group, number, state, record = np.concatenate(columns, axis=1)
    of = {"call": call, "way": way, "peer": peer, "group": group, "number": number, "record": record}
    of["over"] = state == COMPLETED
    groups = tuple(table.groups)
    return Job("torch's flight recorder", tuple(logs), start, tuple(table.calls), groups, **of, unread=unread)


_POST = re.compile(r"(send|recv):([FB])\d+\.\d+([<>])(\d{1,6})(?:@(\d{1,3}))?")
_EVENT = re.compile(r"(\d{1,6})(SEND|RECV)_([FB])(\d{1,8})(?:[<>]\d{1,8})?")
_Post: TypeAlias = tuple[str, str, int, int]
"""A message in a record with names: send or recv, F or B, the peer, the communicator."""


def _orders(files: Mapping[str, bytes]) -> dict[int, list[_Post]]:
    found: dict[int, list[_Post]] = {}
    for name, data in files.items():
        for line in recorded_runs.decoded(name, data).splitlines():
            if (head := re.match(r"\s*rank\s+(\d{1,6})\s*:", line)) is not None:
                if int(head[1]) in found:
                    raise fail(InteropCode.RECORD, f"rank {head[1]} has several orders", help="give one run")
                posts = _POST.findall(line)
                found[int(head[1])] = [(way, of, int(peer), int(on or 0)) for way, of, _, peer, on in posts]
    return found


def _traces(files: Mapping[str, bytes]) -> dict[int, list[_Post]]:
    """Return the messages of traces. A trace does not name the peer, which is the rank with the neighbouring stage."""
    events = sorted(recorded_runs.events(files))
    owner = {int(head[1]): rank for rank, _, name in events if (head := re.match(r"\(?(\d{1,6})[A-Z]", name))}
    found = dict[int, list[_Post]]()
    for rank, _, name in events:
        mine = found.setdefault(rank, [])
        if event := _EVENT.fullmatch(name):
            ahead = (event[2] == "SEND") == (event[3] == "F")
            peer = owner.get(int(event[1]) + (1 if ahead else -1), -1)
            mine.append((event[2].lower(), event[3], peer, 0))
    return found


def _of_names(files: Mapping[str, bytes], *, posted: bool) -> Job:
    found = _orders(files) if posted else _traces(files)
    every = {*found, *(peer for posts in found.values() for _, _, peer, _ in posts if peer >= 0)}
    group = Group(foreign("pipeline"), foreign("the pipeline"), tuple(range(max(every, default=0) + 1)))
    calls, rows, start = dict[Call, int](), list[tuple[int, int, int, int]](), [0]
    for rank, posts in sorted((found if posted else _expected(found)).items()):
        for word, of, other, number in posts:
            name = f"{'send' if word == 'send' else 'receive'} {of}"
            made = Call(name, "the pipeline", len(group.ranks), 1, other - rank, str(number))
            rows.append((calls.setdefault(made, len(calls)), SEND if word == "send" else RECEIVE, other, number))
        start.append(len(rows))
    call, way, peer, on = np.array(rows or np.zeros((0, 4)), dtype=np.int32).reshape(-1, 4).T
    ends = np.array(start, dtype=np.int64)
    record = np.arange(len(call)) - np.repeat(ends[:-1], np.diff(ends))
    job = Job(
        "orders" if posted else "pipesched's recorder",
        tuple(sorted(found)),
        ends,
        tuple(calls),
        groups=(group,) * (int(on.max(initial=0)) + 1),
        call=call,
        way=way,
        peer=peer,
        group=on,
        number=np.arange(len(call)),
        over=way >= 0,
        record=record,
    )
    return replace(job, over=job.partnered)


def _expected(found: Mapping[int, list[_Post]]) -> dict[int, list[_Post]]:
    """Return the messages of traces. As traces contain only finished messages, the receive that comes next in a rank's
    last step is added.

    Nothing is added if every rank ends with a whole step, or for a rank that has not finished its first step.
    """
    steps = {
        rank: step_of(np.unique([str(post) for post in posts], return_inverse=True)[1]) for rank, posts in found.items()
    }
    if all(period and len(found[rank]) % period == 0 for rank, (period, _) in steps.items()):
        return dict(found)
    made = {rank: [*posts] for rank, posts in found.items()}
    for rank, (period, first) in steps.items():
        if period and first == len(found[rank]) and (after := found[rank][-period])[0] == "recv":
            made[rank].append(after)
    return made


def step_of(row: Ints) -> tuple[int, int]:
    """Return the number of calls in a rank's step, and the index of the first call that differs from the step before.

    The number is 0 if no part of the calls repeats; the index is the number of calls if none differs.
    """
    best = (0.0, 0, 0)
    for period in range(4, 3 * len(row) // 4 + 1):
        same = row[period:] == row[:-period]
        share = float(same.mean())
        if share > best[0] and share > 0.5:
            ends = np.flatnonzero(~np.concatenate([[False], same, [False]]))
            runs = np.diff(ends) - 1
            long = np.flatnonzero(runs >= max(period // 3, 4))
            if len(long):
                best = (share, period, period + int(ends[long[0] + 1]) - 1)
    return best[1], best[2]
