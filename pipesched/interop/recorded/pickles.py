r"""Reads a pickle as plain data (lists, tables, tuples, numbers, strings); nothing in the file can run.

    \x80\x02 }q\x00 X…entries q\x01 ]q\x02 } X…state X…started s a s .        {"entries": [{"state": "started"}]}

Python's own reader calls the functions that a file names, and a file can make it use any amount of time and memory,
through a large index into its memo or keys with equal hashes. Here no opcode calls anything, keys are
strings, numbers have at most 64 bits, the memo grows by one value at a time, and every container is charged to the
budget. A file may still refer to one value from many places, so the code that walks through the values has to count its
steps.

Source: CPython 3.11, Lib/pickletools.py (opcodes of protocols 2 to 5).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TypeAlias

from pipesched.common.budget import Budget

_CONTAINER = 8  # units of work per container; any other value takes at least a byte of the file
_MOST = 8  # most bytes of a number


class NotPlain(Exception):
    """Raised if a file contains more than plain data: one of its opcodes would execute code."""


class Reader:
    """The state of the interpreter. marks: the height of the stack at each open mark. memo: the values by number."""

    def __init__(self, data: bytes, memo: list[object] | None = None) -> None:
        self.data, self.at = data, 0
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: list[object] = [] if memo is None else memo
        self.budget = Budget(len(data))

    def value(self) -> object:
        """Read the value of the file.

        Raises:
            Spent: if reading the file exceeds the budget.
            NotPlain: if an opcode would run something.
            ValueError: if the file is cut off, or is not a pickle of plain data.
        """
        data, opcodes = self.data, _OPCODES
        try:
            while (opcode := data[self.at]) != _STOP:
                self.at += 1
                opcodes[opcode](self)
            (value,) = self.stack
        except IndexError:
            raise ValueError("it ends too early") from None
        except KeyError:
            raise self._unknown(opcode) from None
        return value

    def _unknown(self, opcode: int) -> Exception:
        name = chr(opcode)
        return NotPlain(_RUNS[name]) if name in _RUNS else ValueError(f"dumps never contain the opcode {name!a}")

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes of the file, and skip them."""
        begin, self.at = self.at, self.at + count
        if not 0 <= count <= len(self.data) - begin:
            raise ValueError("a string or a number is longer than the rest of the file")
        return self.data[begin : self.at]

    def number(self, width: int) -> int:
        """Return the next `width` bytes as an unsigned number, and skip them."""
        return int.from_bytes(self.take(width), "little")

    def container(self, value: object) -> None:
        self.budget.spend(_CONTAINER, "lists and tables")
        self.stack.append(value)

    def marked(self) -> list[object]:
        """Pop the values above the last mark, and remove that mark."""
        if not self.marks:
            raise ValueError("a mark is missing")
        height = self.marks.pop()
        values = self.stack[height:]
        del self.stack[height:]
        return values

    def get(self) -> None:
        """Push the memo's value whose number is the next byte."""
        at = self.at
        self.at = at + 1
        self.stack.append(self.memo[self.data[at]])

    def text(self, width: int) -> None:
        self.stack.append(self.take(self.number(width)).decode("utf-8", "surrogatepass"))

    def signed(self, width: int) -> None:
        if width > _MOST:
            raise ValueError(f"a number has {width:,} bytes; the limit is {_MOST}")
        self.stack.append(int.from_bytes(self.take(width), "little", signed=True))

    def put(self, number: int) -> None:
        """Store the last value in the memo under this number, which must be in use or the next free one."""
        if number > len(self.memo):
            raise ValueError(f"memo entry {number:,} is set when the memo has only {len(self.memo):,} entries")
        self.memo[number : number + 1] = self.stack[-1:]

    def append(self, values: list[object]) -> None:
        made = self.stack[-1]
        if type(made) is not list:
            raise ValueError("the pickle appends values to an object that is not a list")
        made.extend(values)

    def insert(self, values: list[object]) -> None:
        """Add keys and values, which alternate in `values`, to the table on top of the stack."""
        names, table = values[::2], self.stack[-1]
        if type(table) is not dict or len(values) % 2 or not all(type(name) is str for name in names):
            raise ValueError("a dict has a key that is not a string")
        table.update(zip(names, values[1::2], strict=True))

    def table(self) -> None:
        """Add the values above the last mark to the table below it."""
        self.insert(self.marked())

    def tuple(self, count: int) -> None:
        values = self.stack[len(self.stack) - count :]
        if len(values) != count or len(self.stack) < count:
            raise ValueError("a tuple has too few values")
        del self.stack[len(self.stack) - count :]
        self.container((*values,))


_Opcode: TypeAlias = Callable[[Reader], object]
_STOP = ord(".")


def _one(value: object) -> _Opcode:
    return lambda reader: reader.stack.append(value)


_NAMED: Mapping[str, _Opcode] = {
    "\x80": lambda reader: reader.take(1),  # the protocol version
    "\x95": lambda reader: reader.take(8),  # a frame: only a hint on how much to read at once
    "(": lambda reader: reader.marks.append(len(reader.stack)),
    "0": lambda reader: reader.stack.pop(),
    "N": _one(None),
    "\x88": _one(True),
    "\x89": _one(False),
    "K": lambda reader: reader.stack.append(reader.number(1)),
    "M": lambda reader: reader.stack.append(reader.number(2)),
    "J": lambda reader: reader.signed(4),
    "\x8a": lambda reader: reader.signed(reader.number(1)),
    "G": lambda reader: reader.stack.append(struct.unpack(">d", reader.take(8))[0]),
    "\x8c": lambda reader: reader.text(1),
    "X": lambda reader: reader.text(4),
    "\x8d": lambda reader: reader.text(8),
    "q": lambda reader: reader.put(reader.number(1)),
    "r": lambda reader: reader.put(reader.number(4)),
    "\x94": lambda reader: reader.put(len(reader.memo)),
    "h": Reader.get,
    "j": lambda reader: reader.stack.append(reader.memo[reader.number(4)]),
    "]": lambda reader: reader.container([]),
    "}": lambda reader: reader.container({}),
    ")": lambda reader: reader.container(()),
    "l": lambda reader: reader.container(reader.marked()),
    "t": lambda reader: reader.container((*reader.marked(),)),
    "\x85": lambda reader: reader.tuple(1),
    "\x86": lambda reader: reader.tuple(2),
    "\x87": lambda reader: reader.tuple(3),
    "a": lambda reader: reader.append([reader.stack.pop()]),
    "e": lambda reader: reader.append(reader.marked()),
    "s": lambda reader: reader.insert([reader.stack.pop(-2), reader.stack.pop()]),
    "u": lambda reader: reader.table(),
}
_OPCODES: Mapping[int, _Opcode] = {ord(name): opcode for name, opcode in _NAMED.items()}
_RUNS: Mapping[str, str] = {
    **dict.fromkeys("ci\x93", "a function that it names"),
    **dict.fromkeys("Ro\x81\x92", "a function"),
    **dict.fromkeys("\x82\x83\x84", "an extension"),
    **dict.fromkeys("PQ", "a reference to another file"),
    "b": "the setting of a state",
}
"""The refused opcodes, with the code that each would run."""
