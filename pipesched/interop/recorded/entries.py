"""The entries of a dump of torch's flight recorder, of all groups: read in runs where torch itself pickled them.

    } ( h record_id K 7 h pg_id K 1 … u        an entry whose texts have all occurred before: matched as bytes
    } ( h record_id K 8 … X "nccl:send 0->1"   an entry with a new text: read opcode by opcode

In torch's pickles an entry is a table whose keys, after the first entry, are references to earlier texts. A pattern
made of the keys of the first entry matches the next ones, twenty times as fast as reading their opcodes. What it does
not match, such as an entry of another writer, is read opcode by opcode.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import TypeAlias, cast

import numpy as np

from pipesched.common.budget import Budget
from pipesched.diagnostics import budgeted
from pipesched.interop.recorded import flight_recorder as recorder
from pipesched.interop.recorded.pickles import Reader
from pipesched.interop.recorded.recorded_run import STATES
from pipesched.model.columns import Column

Named: TypeAlias = tuple[str, str, str]
"""The process group, the call as torch names it, and its first tensor."""

_NUMBER, _TEXT = rb"(?:K.|M..|J....|\x8a\x08.{8})", rb"(?:h.|j....)"
_LIST = rb"\](?:\((?:%s)*e|(?!\())"
_FRAME = rb"\}\((?:" + _TEXT + rb"(?:" + _TEXT + rb"|" + _NUMBER + rb"))*u"
_ANY = [rb"[N\x88\x89]", _NUMBER, _TEXT + _TEXT + rb"\x86", _TEXT, _LIST % (_LIST % _NUMBER), _LIST % _TEXT]
_VALUE = rb"(?:" + rb"|".join((*_ANY, _LIST % _FRAME)) + rb")"
_WANTED = {
    "record_id": _NUMBER,
    "collective_seq_id": _NUMBER,
    "p2p_seq_id": _NUMBER,
    "state": _TEXT,
    "process_group": _TEXT + _TEXT + rb"\x86",
    "profiling_name": _TEXT,
    "input_sizes": _LIST % (_LIST % _NUMBER),
    "input_dtypes": _LIST % _TEXT,
}
"""The fields that are read, each with the form of its value."""
_OPTIONAL = rb"(?:N|" + _NUMBER + rb")"
_LIKE = {bool: rb"[\x88\x89]", int: _OPTIONAL, type(None): _OPTIONAL, str: _TEXT}
"""The forms of other fields, by the type of the first entry's value."""
_INTS = ("record_id", "collective_seq_id", "p2p_seq_id")


@dataclass(frozen=True, slots=True)
class Log:
    """The calls of one rank, in the order in which they were recorded. groups: the process groups that the rank knows.

    named: the distinct calls; call: index into it. collective, p2p: torch's sequence numbers of the group. state:
    index into `STATES`. record: torch's number of the entry.
    """

    groups: Mapping[str, recorder.Group]
    named: tuple[Named, ...]
    call: Column
    collective: Column
    p2p: Column
    state: Column
    record: Column


def read(name: str, data: bytes, known: Numbers) -> Log:
    """Read a dump. known: the numbers of dumps that were read before.

    Raises:
        PipeschedError: PS891, the file is cut off, is not plain data, or is not a dump; PS843, it exceeds the budget.
    """
    memo: list[object] = []
    with budgeted(name):
        value, left = recorder.dump(name, data, lambda given: _Runs(given, memo)), Budget(len(data))
        with recorder.not_a_dump(name):
            about = value.get("pg_config", {})
            groups = {key: recorder.group_of(key, one, left) for key, one in about.items()}
            entries: Sequence[object] = value["entries"] if groups else value.get("entries", ())
            left.spend(recorder.ENTRY * len(entries), "entries")
            return _log(
                groups, [x if type(x) is tuple else _row(cast("Mapping[str, object]", x)) for x in entries], memo, known
            )


def _row(entry: Mapping[str, object]) -> tuple[object, ...]:
    """Return the fields of an entry that was read opcode by opcode, in the order of `_WANTED`."""
    recorder.require_types(zip(recorder.FIELDS(entry), strict=True))
    numbers, group = [entry[key] for key in _INTS], cast("Sequence[object]", entry["process_group"])
    if not {*map(type, numbers)} <= {int} or not group:
        raise TypeError("an entry has no number or no process group")
    kinds, sizes = (cast("Sequence[object]", entry[key]) for key in ("input_dtypes", "input_sizes"))
    tensor = recorder.size_of(*recorder.tensor(kinds, sizes))[0]
    return (*numbers, entry["state"], recorder.text(group[0]), entry["profiling_name"], tensor, None)


class Numbers(dict[object, int]):
    """The numbers encoded in a pickle, each decoded once; other numbers are kept."""

    def __missing__(self, raw: object) -> int:
        if not isinstance(raw, bytes):
            assert isinstance(raw, int)
            return raw
        signed = raw[:1] in b"J\x8a"
        self[raw] = made = int.from_bytes(raw[1 + (raw[:1] == b"\x8a") :], "little", signed=signed)
        return made


def _log(
    groups: Mapping[str, recorder.Group], rows: Sequence[tuple[object, ...]], memo: list[object], known: Numbers
) -> Log:
    distinct = dict[object, int]()
    if not rows:
        none = np.zeros(0, dtype=np.int32)
        return Log(groups, (), none, none, none, none, none)
    *numbers, states, pgs, names, sizes, kinds = zip(*rows, strict=True)
    calls = [distinct.setdefault(call, len(distinct)) for call in zip(pgs, names, sizes, kinds, strict=True)]
    record, collective, p2p = ([known[x] for x in column] for column in numbers)
    at_state = {raw: STATES.index(cast("str", _value(raw, memo))) for raw in {*states}}
    columns = [calls, collective, p2p, [at_state[x] for x in states], record]
    made = [np.array(column, dtype=np.int32) for column in columns]
    if (np.diff(made[-1]) < 0).any():
        made = [column[np.argsort(made[-1], kind="stable")] for column in made]
    return Log(groups, tuple(_named(call, memo) for call in distinct), *made)


def _value(raw: object, memo: list[object]) -> object:
    return Reader(raw + b".", memo).value() if isinstance(raw, bytes) else raw


def _named(call: object, memo: list[object]) -> Named:
    """Describe a distinct call."""
    pg, name, sizes, kinds = cast("tuple[object, ...]", call)
    if kinds is None:
        return cast("Named", (pg, name, sizes))
    group, lengths, types = (cast("Sequence[object]", _value(x, memo)) for x in (pg, sizes, kinds))
    tensor = recorder.size_of(*recorder.tensor(types, lengths))[0]
    return recorder.text(group[0]), recorder.text(_value(name, memo)), tensor


class _Runs(Reader):
    """A reader that matches runs of entries as bytes; an entry is a tuple of fields, in the order of `_WANTED`."""

    def value(self) -> object:
        """Read the value of the file, as `Reader.value` does."""
        self.entry: re.Pattern[bytes] | None = None
        return super().value()

    def table(self) -> None:
        """Complete a table, and match the entries that follow if it is one."""
        super().table()
        if not self.marks or (base := self.marks[-1]) < 2 or len(self.stack) <= base:
            return
        if type(self.stack[base - 2]) is not str or self.stack[base - 2] != "entries":
            return
        if self.entry is None:
            self.entry = self._pattern(self.stack[base])
        if self.entry is not None:
            at, rows = self.at, []
            for found in self.entry.finditer(self.data, at):
                if found.start() != at:
                    break
                rows.append(found.groups())
                at = found.end()
            place = [self.entry.groupindex[key] - 1 for key in _WANTED]
            self.stack += map(itemgetter(*place), rows)
            self.at = at

    def _pattern(self, first: object) -> re.Pattern[bytes] | None:
        """Return the pattern of an entry with the keys of the first one; None if they cannot be referred to."""
        if type(first) is not dict or not _WANTED.keys() <= first.keys():
            return None
        numbers = {text: i for i, text in enumerate(self.memo) if type(text) is str}
        if not first.keys() <= numbers.keys():
            return None
        return _compiled(tuple((key, numbers[key], type(value)) for key, value in first.items()))


@cache
def _compiled(keys: tuple[tuple[str, int, type], ...]) -> re.Pattern[bytes]:
    parts = [rb"\}\("]
    for key, number, kind in keys:
        at = b"h" + bytes([number]) if number < 256 else b"j" + number.to_bytes(4, "little")
        parts.append(re.escape(at))
        parts.append(rb"(?P<%s>%s)" % (key.encode(), _WANTED[key]) if key in _WANTED else _LIKE.get(kind, _VALUE))
    return re.compile(b"".join(parts) + b"u", re.DOTALL)
