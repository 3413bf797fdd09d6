"""Reads many words that differ only in their numbers, without a Python step per word.

    word      F0.17        send:F0.17>1        (3F0;2B1)OVERLAP_F_B
    shape     F0.00        send:F0.00>0        (0F0;0B0)OVERLAP_F_B      every digit is a zero
    numbers   0 17         0 17 1              3 0 2 1

A million words have a few dozen shapes. A notation reads each shape once: the entries of a word of that shape, and the
meaning of its numbers from left to right. Columns are gathered from the numbers. A line of a stream is also such a
word. The module `numbered` does the reverse: it writes words.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pipesched.model.columns import Column, Ints
from pipesched.model.lists import Place
from pipesched.orders.limits import LARGEST
from pipesched.support.source import Source

Entry: TypeAlias = tuple[int, Sequence[str]]
"""An `Op`, or another code of a notation, and the fields to which its numbers belong."""

_PATIENCE = 100  # shapes without a meaning, after which all new shapes count as meaningless
_ZEROS = bytes(ord("0") if chr(byte).isdigit() and byte < 128 else byte for byte in range(256))
_DIGITS = bytes(byte if _ZEROS[byte] == ord("0") else ord(" ") for byte in range(256))


@dataclass(frozen=True)
class Words:
    """The entries of a line of words.

    columns: op, the entry's place in its word, then a row for each field. word: the index of each entry's word. shapes:
    the shape of each word. silent: the words without entries. bad: words without a meaning, or with a number beyond
    LARGEST.
    """

    columns: Column
    word: Ints
    shapes: Sequence[bytes]
    silent: Ints
    bad: Ints


class Notation(dict[bytes, int]):
    """The shapes of the words of a file, each numbered when it is first seen.

    fields: the columns, each with its default value. meaning: returns the entries of a shape, None if it is not a word.
    """

    def __init__(self, fields: Mapping[str, int], meaning: Callable[[str], Sequence[Entry] | None]) -> None:
        super().__init__()
        self._fields, self._meaning = fields, meaning
        self._entries: list[tuple[int, ...]] = [(0,) * (2 + len(fields))]  # op, place, index of each field's number
        self._spans: list[tuple[int, int, int, bool]] = [(0, 0, 0, True)]  # a shape: first entry, entries, numbers, bad
        self._patience = _PATIENCE

    def __missing__(self, shape: bytes) -> int:
        if not self._patience:
            return 0  # enough errors precede it
        meaning, first, at = self._meaning(shape.decode()), len(self._entries), 0
        for place, (op, fields) in enumerate(meaning or ()):
            here = {field: at + i for i, field in enumerate(fields)}
            self._entries.append((op, place, *(here.get(field, -1) for field in self._fields)))
            at += len(fields)
        numbers = len(re.findall(b"0+", shape))
        self._patience -= meaning is None
        self[shape] = len(self._spans)
        self._spans.append((first, len(meaning or ()), numbers, meaning is None))
        return self[shape]

    def read(self, text: str, separator: str) -> Words:
        """Split text at its separators into words."""
        self._patience = _PATIENCE
        coded = text.encode("utf-8", "replace")
        shapes = coded.translate(_ZEROS).split(separator.encode())
        kind = np.fromiter(map(self.__getitem__, shapes), dtype=np.int32, count=len(shapes))
        first, entries, taken, bad = (each.take(kind) for each in np.array(self._spans, dtype=np.int32).T.copy())
        before = np.cumsum(taken) - taken
        numbers = np.fromstring(coded.translate(_DIGITS), dtype=np.int64, sep=" ")[: int(taken.sum())]
        beyond = np.repeat(np.arange(len(kind)), taken)[numbers > LARGEST]
        wrong = np.union1d(np.flatnonzero(bad), beyond)
        number = np.append(numbers, 0).astype(np.int32)

        word = np.repeat(np.arange(len(kind)), entries)
        within = np.arange(len(word)) - (np.cumsum(entries) - entries).take(word)
        op, place, *wheres = np.array(self._entries, dtype=np.int32).T.copy().take(first.take(word) + within, axis=1)
        at = before.take(word)
        given = zip(wheres, self._fields.values(), strict=True)
        fields = [np.where(where < 0, default, number.take(at + where)) for where, default in given]
        return Words(np.array([op, place, *fields]), word, shapes, np.flatnonzero(entries == 0), wrong)


class TextOrigin:
    """Finds the text of an operation on demand: the n-th of a rank is the n-th match of a pattern in the rank's text.

    start: the first operation of each rank. within: returns the start and end offsets of a rank's text.
    """

    def __init__(
        self, source: Source, start: Ints, pattern: re.Pattern[str], within: Callable[[int], tuple[int, int]]
    ) -> None:
        self._source, self._start, self._pattern, self._within = source, start.tolist(), pattern, within
        self._found: dict[int, Ints] = {}

    def place(self, index: int) -> Place:
        rank = bisect_right(self._start, index) - 1
        if rank not in self._found:
            matches = self._pattern.finditer(self._source.text, *self._within(rank))
            self._found[rank] = np.fromiter((match.start() for match in matches), dtype=np.int64)
        begin = int(self._found[rank][index - self._start[rank]])
        match = self._pattern.match(self._source.text, begin)
        made, text = self._source.made_at, self._source.text
        return Place(
            self._source.span(begin, match.end() if match else begin),
            made.get(max(text.rfind(mark, 0, begin) for mark in " ,\n") + 1, "") if made else "",
        )
