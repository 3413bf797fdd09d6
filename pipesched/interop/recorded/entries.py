"""Reads the entries of all groups in a dump of torch's flight recorder, as columns if torch itself pickled them.

    } ( h record_id K 7 h pg_id K 1 … u        an entry whose texts have all occurred before: one row of the columns
    } ( h record_id K 8 … X "nccl:send 0->1"   an entry with a new text: read opcode by opcode

In torch's pickles an entry is a table whose keys, after the first entry, are references to earlier texts. All entries
with the keys of the first one are walked through together, key by key, with one array of offsets; any other entry, such
as one by another writer, is read opcode by opcode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias, cast

import numpy as np

from pipesched.common.budget import Budget
from pipesched.diagnostics import budgeted
from pipesched.interop.recorded import flight_recorder as recorder
from pipesched.interop.recorded.pickles import Reader
from pipesched.interop.recorded.recorded_run import STATES
from pipesched.model.columns import Bools, Column, Ints

Named: TypeAlias = tuple[str, str, str, bool]
"""The process group, the call as torch names it, its first tensor, and True for a message or the end of a batch."""

_INTS = ("record_id", "collective_seq_id", "p2p_seq_id")
_WANTED = (*_INTS, "state", "process_group", "profiling_name", "input_sizes", "input_dtypes")
"""The fields that every entry has; ``is_p2p``, which exists since version 2.4, is read if present."""
_MARK, _LIST, _PAIR, _LONG = b"(]\x86\x8a"
_LENGTHS = np.zeros(256, dtype=np.int64)
"""The length in bytes of each opcode with its argument; 0 for an unknown opcode."""
for _names, _bytes in (("N\x88\x89](e}u", 1), ("Kh", 2), ("M", 3), ("Jj", 5), ("G", 9), ("\x8a", 10)):
    _LENGTHS[[*map(ord, _names)]] = _bytes
_SCALARS = b"N\x88\x89KMJhjG\x8a"
_FORMS = 256  # most different lists of a field; entries with others are read opcode by opcode
_PAD = bytes(16)
_SORTED = 1 << 16  # values above this are numbered by sorting, others by a table


@dataclass(frozen=True, slots=True)
class Log:
    """The calls of one rank, in the order in which they were recorded. groups: the rank's process groups.

    named: the distinct calls; call: index into `named`. collective, p2p: torch's two sequence numbers in the group.
    state: index into `STATES`. record: torch's number of the entry. number: the sequence number that applies to the
    call: `p2p` for a message or the end of a batch, `collective` otherwise.
    """

    groups: Mapping[str, recorder.Group]
    named: tuple[Named, ...]
    call: Column
    collective: Column
    p2p: Column
    state: Column
    record: Column
    number: Column = field(default_factory=lambda: np.zeros(0, dtype=np.int32))


def read(name: str, data: bytes) -> Log:
    """Read a dump.

    Raises:
        PipeschedError: PS891 if the file is cut off, not plain data, or not a dump; PS843 if it exceeds the budget.
    """
    memo: list[object] = []
    with budgeted(name):
        value, left = recorder.dump(name, data, lambda given: _Runs(given, memo)), Budget(len(data))
        with recorder.not_a_dump(name, value):
            about = value.get("pg_config", {})
            groups = {key: recorder.group_of(key, one, left) for key, one in about.items()}
            entries: Sequence[object] = recorder.entries_of(value)
            return _log(groups, entries, memo, left)


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive entries that one walk read, as a range of its entries."""

    walk: _Walk
    rows: slice


def _log(groups: Mapping[str, recorder.Group], entries: Sequence[object], memo: list[object], left: Budget) -> Log:
    named = dict[Named, int]()
    walks = dict.fromkeys(one.walk for one in entries if isinstance(one, _Run))
    made = {walk: walk.columns(named, memo) for walk in walks}
    pieces = [
        made[one.walk][:, one.rows] if isinstance(one, _Run) else _row(cast("Mapping[str, object]", one), named)
        for one in entries
    ]
    columns = np.concatenate([*pieces, np.zeros((5, 0), dtype=np.int64)], axis=1).astype(np.int32)
    left.spend(recorder.ENTRY * len(columns[0]), "entries")
    if (np.diff(columns[-1]) < 0).any():
        columns = columns[:, np.argsort(columns[-1], kind="stable")]
    return Log(groups, tuple(named), *columns)


def _row(entry: Mapping[str, object], named: dict[Named, int]) -> Ints:
    """Return the columns of an entry that was read opcode by opcode."""
    recorder.require_types(zip(recorder.FIELDS(entry), strict=True))
    numbers, group = [entry[key] for key in _INTS], cast("Sequence[object]", entry["process_group"])
    if not {*map(type, numbers)} <= {int} or not group:
        raise TypeError("an entry has no number or no process group")
    kinds, sizes = (cast("Sequence[object]", entry[key]) for key in ("input_dtypes", "input_sizes"))
    tensor = recorder.size_of(*recorder.tensor(kinds, sizes))[0]
    call = recorder.text(group[0]), recorder.text(entry["profiling_name"]), tensor, entry.get("is_p2p", True) is True
    record, collective, p2p = cast("tuple[int, int, int]", tuple(numbers))
    state = STATES.index(cast("str", entry["state"]))
    return np.array([[named.setdefault(call, len(named))], [collective], [p2p], [state], [record]])


class _Runs(Reader):
    """A reader that reads each run of entries in one walk."""

    def value(self) -> object:
        """Read the value of the file, as `Reader.value` does."""
        self.keys: dict[str, object] = {}
        self.walk: _Walk | None = None
        return super().value()

    def table(self) -> None:
        """Complete a table; if it is an entry, also read the entries that follow it."""
        super().table()
        if not self.marks or (base := self.marks[-1]) < 2 or len(self.stack) <= base:
            return
        if type(self.stack[base - 2]) is not str or self.stack[base - 2] != "entries":
            return
        entry = self.stack[-1]
        if type(entry) is dict and not entry.keys() <= self.keys.keys() and {*_WANTED, *self.keys} <= entry.keys():
            self.keys, self.walk = entry, self._walk(entry)
        run, self.at = self.walk.run(self.at) if self.walk is not None else (None, self.at)
        self.stack += [run] if run is not None else []

    def _walk(self, entry: Mapping[str, object]) -> _Walk | None:
        """Return a walk through the entries with the keys of this one; None if a key is not in the memo."""
        numbers = {text: i for i, text in enumerate(self.memo) if type(text) is str}
        fields = {key: (numbers.get(key, -1), type(value)) for key, value in entry.items()}
        if any(number < 0 or kind is dict for number, kind in fields.values()):
            return None
        return _Walk(self.data, fields)


class _Walk:
    """A walk through all entries of a file that may have the given fields. fields: for each key, its number in the memo
    and the type of its value. A field that is not read may be missing.
    """

    def __init__(self, data: bytes, fields: Mapping[str, tuple[int, type]]) -> None:
        self.data, self.last = data, len(data) - 1
        self.bytes = np.frombuffer(data + _PAD, dtype=np.uint8)
        self.words = np.ndarray((len(data),), "<i8", self.bytes, strides=(1,))
        begin = b"}(" + _reference(next(iter(fields.values()))[0])
        tables = np.flatnonzero(self.bytes[: len(data)] == begin[0])
        self.starts = tables[self._same(tables, begin)]
        self.good = np.ones(len(self.starts), dtype=np.bool_)
        self.at: dict[str, Ints] = {}
        self.lists: dict[str, tuple[Ints, list[bytes]]] = {}
        at = self.starts + 2
        for key, (number, kind) in fields.items():
            at = self._field(at, key, _reference(number), kind)
        self.good &= self.bytes[at] == ord("u")
        self.ends = at + 1

    def run(self, at: int) -> tuple[_Run | None, int]:
        """Return the consecutive entries that begin at an offset of the file, and the offset after them."""
        first = int(np.searchsorted(self.starts, at))
        if first == len(self.starts) or self.starts[first] != at or not self.good[first]:
            return None, at
        joined = (self.ends[first:-1] == self.starts[first + 1 :]) & self.good[first + 1 :]
        last = first + (int(np.argmin(joined)) if not joined.all() else len(joined)) + 1
        return _Run(self, slice(first, last)), int(self.ends[last - 1])

    def columns(self, named: dict[Named, int], memo: list[object]) -> Ints:
        """Return call, collective, p2p, state and record of all entries, one row each; undefined for bad entries."""
        record, collective, p2p = (self._number(self.at[key]) for key in _INTS)
        texts = (
            np.where(self.good, self._text(self.at[key]), 0) for key in ("process_group", "profiling_name", "state")
        )
        (groups, group), (names, name), (states, state) = (_distinct(places, len(memo)) for places in texts)
        (size, sizes), (kind, kinds) = self.lists["input_sizes"], self.lists["input_dtypes"]
        message = self.bytes[self.at["is_p2p"]] == 0x88 if "is_p2p" in self.at else np.ones(len(size), dtype=np.bool_)
        shape = (len(groups), len(names), len(sizes) + 1, len(kinds) + 1, 2)
        key = np.ravel_multi_index((group, name, size, kind, message * 1), shape)
        distinct, call = _distinct(np.where(self.good, key + 1, 0), int(np.prod(shape)) + 1)
        number, tensors_of = np.zeros(len(distinct), dtype=np.int64), dict[tuple[int, int], str]()
        for i, of in enumerate(distinct.tolist()):
            if of:
                g, n, s, k, flag = (int(x) for x in np.unravel_index(of - 1, shape))
                if (s, k) not in tensors_of:
                    tensors_of[s, k] = _tensor(sizes[s], kinds[k], memo)
                one = recorder.text(memo[groups[g]]), recorder.text(memo[names[n]]), tensors_of[s, k], bool(flag)
                number[i] = named.setdefault(one, len(named))
        good = np.unique(state[self.good]).tolist()
        at_state = np.zeros(len(states), dtype=np.int64)
        at_state[good] = [STATES.index(recorder.text(memo[states[i]])) for i in good]
        return np.stack([number[call], collective, p2p, at_state[state], record])

    def _number(self, at: Ints) -> Ints:
        """Return the numbers that are encoded at these offsets."""
        kind, word = self.bytes[at], self.words[np.minimum(at + 1, self.last)]
        made = np.where(kind == ord("K"), word & 0xFF, np.where(kind == ord("M"), word & 0xFFFF, word << 32 >> 32))
        long = kind == _LONG
        return np.where(long, self.words[np.minimum(at + 2, self.last)], made) if long.any() else made

    def _text(self, at: Ints) -> Ints:
        """Return the memo numbers to which the references at these offsets point."""
        short = self.bytes[at] == ord("h")
        if short.all():
            return self.bytes[at + 1].astype(np.int64)
        word = self.words[np.minimum(at + 1, self.last)]
        return np.where(short, word & 0xFF, word & 0xFFFFFFFF)

    def _field(self, at: Ints, key: str, name: bytes, kind: type) -> Ints:
        """Walk over one field of all entries, keep its offsets if it is read, and return the offsets after it."""
        there = self._same(at, name)
        begin = self._inside(at + len(name))
        if kind is list:
            end, form, forms = self._listed(begin, there)
            self.lists[key] = form, forms
        elif kind is tuple:
            end = self._one(self._one(begin, there, b"hj"), there, b"hj")
            self.good &= (self.bytes[end] == _PAIR) | ~there
            end = self._inside(end + 1)
        else:
            end = self._one(begin, there, b"KMJ\x8a" if key in _INTS else b"hj" if kind is str else _SCALARS)
        if key in _WANTED or key == "is_p2p":
            self.at[key], self.good = begin, self.good & there
        return end if there.all() else np.where(there, end, at)

    def _same(self, at: Ints, text: bytes) -> Bools:
        """Return True for each offset at which the file has this text. For an offset too near the end, the last bytes
        of the file are compared.
        """
        if len(text) == 2:  # a reference; two arrays of bytes take half the time of one of texts
            both: Bools = (self.bytes[at] == text[0]) & (self.bytes[at + 1] == text[1])
            return both
        most = len(self.bytes) - len(text)
        texts = np.ndarray((most + 1,), f"S{len(text)}", self.bytes, strides=(1,))
        found: Bools = texts[np.minimum(at, most)] == text
        return found

    def _inside(self, at: Ints) -> Ints:
        """Return the offsets, limited to the end of the file, and mark entries that are cut off as bad."""
        if len(at) and int(at.max()) > self.last:
            self.good &= at <= self.last
            return np.minimum(at, self.last)
        return at

    def _one(self, at: Ints, there: Bools, allowed: bytes) -> Ints:
        """Return the offsets after the opcodes, and mark entries with an opcode that is not allowed as bad."""
        opcode = self.bytes[at]
        if len(opcode) and opcode[0] in allowed and opcode[0] != _LONG and (opcode == opcode[0]).all():
            return self._inside(at + _LENGTHS[opcode[0]])
        known = _among(allowed)[opcode]
        if ord("h") not in allowed and (long := opcode == _LONG).any():
            known &= ~long | (self.bytes[at + 1] == 8)
        self.good &= known | ~there
        return self._inside(at + _LENGTHS[opcode])

    def _listed(self, begin: Ints, there: Bools) -> tuple[Ints, Ints, list[bytes]]:
        """Return the offsets after the lists, the index of each list among the distinct ones, and these lists."""
        end, form, forms = begin.copy(), np.zeros(len(begin), dtype=np.int64), list[bytes]()
        live = np.flatnonzero(self.good & there)
        while len(live) and len(forms) < _FORMS:
            first = int(begin[live[0]])
            length = self._length(first)
            forms.append(self.data[first : first + length])
            equal = self._same(begin[live], forms[-1]) if length else live == live[0]
            same = live[equal]
            self.good[same] &= length > 0
            end[same], form[same] = begin[same] + length, len(forms) - 1
            live = live[~equal]
        self.good[live] = False
        return self._inside(end), form, forms

    def _length(self, at: int) -> int:
        """Return the length in bytes of the list at an offset; 0 if no known list begins there."""
        data, begin, depth = self.data, at, 0
        while at < self.last and (length := int(_LENGTHS[opcode := data[at]])):
            depth += (opcode == _MARK) - (opcode in b"eu")
            at += length
            if not depth and (opcode != _LIST or data[at] != _MARK):
                return at - begin if data[begin] == _LIST and at <= self.last else 0
        return 0


def _tensor(sizes: bytes, kinds: bytes, memo: list[object]) -> str:
    """Describe the first tensor of a call by its encoded sizes and types."""
    lengths, types = (cast("Sequence[object]", Reader(raw + b".", memo).value()) for raw in (sizes, kinds))
    return recorder.size_of(*recorder.tensor(types, lengths))[0]


def _reference(number: int) -> bytes:
    return b"h" + bytes([number]) if number < 256 else b"j" + number.to_bytes(4, "little")


def _distinct(values: Ints, most: int) -> tuple[Ints, Ints]:
    """Return the distinct values, in ascending order, and the index of each value among them. values: 0 .. most."""
    if most > _SORTED:
        return np.unique(values, return_inverse=True)
    there = np.zeros(most, dtype=np.bool_)
    there[values] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[values]


@cache
def _among(opcodes: bytes) -> Bools:
    made = np.zeros(256, dtype=np.bool_)
    made[[*opcodes]] = True
    return made
