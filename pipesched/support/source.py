"""Named texts, and places in them.

A `Source` is a name and a text; a `Span` is a half-open range of the text. Lines and columns count from 1,
columns in characters, as editors do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import ClassVar

from pipesched.support.foreign import mark


@dataclass(frozen=True)
class Source:
    """A named text, as the user gave it. made_at: for each offset, the program line that generated the text there.

    origin: for text that did not come from a file, the name of its row in `extension.Names`.
    """

    name: str
    text: str
    made_at: Mapping[int, str] = field(default_factory=dict, compare=False, repr=False)
    origin: ClassVar[str] = ""

    def __post_init__(self) -> None:
        mark(self, "name")

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset at which each line begins. Lines end at ``\\n``; a ``\\r`` before it belongs to the end."""
        return [*accumulate((len(line) + 1 for line in self.text.split("\n")), initial=0)][:-1]

    def __repr__(self) -> str:
        return f"<Source {self.name!r}: {len(self.text)} characters>"

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset, both from 1."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return the text of a line, without its end."""
        starts = self.line_starts
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r\n")

    def span(self, start: int, end: int) -> Span:
        """Return the range from `start` to `end`, exclusive."""
        return Span(self, start, end)


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of a source."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def __repr__(self) -> str:
        return f"<Span {str(self)!r}: {self.text[:40]!r}>"

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"
