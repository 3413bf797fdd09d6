"""Habits from other languages, one per row, with the equivalent in this language. They explain errors, but never cause
an error. The pattern of a row is searched for in the line with the syntax error; if the match includes the position of
the error, the row's text is the remedy.

    let w = 4p                   a product needs a `*`: write `4 * p`
    repeat 2 * p { forward }     write `F`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from pipesched.diagnostics import Diagnostic
from pipesched.model.ops import KIND

_LONGEST = 500  # most characters of a line that is searched

Remedy: TypeAlias = str | Callable[[re.Match[str]], str]


@dataclass(frozen=True)
class Habit:
    """The pattern of a habit, and the remedy: a template for the match, or a function of the match."""

    pattern: re.Pattern[str]
    remedy: Remedy

    def remedies(self, line: str, start: int, end: int) -> Iterator[str]:
        """Yield the remedy of every match that overlaps a range of the line."""
        for found in self.pattern.finditer(line):
            if found.start() <= end and start <= found.end():
                yield found.expand(self.remedy) if isinstance(self.remedy, str) else self.remedy(found)


def _row(pattern: str, remedy: Remedy) -> Habit:
    """Make a row; KIND in its pattern stands for the letter of an operation."""
    return Habit(re.compile(pattern.replace("KIND", KIND)), remedy)


def _range(found: re.Match[str]) -> str:
    low, high = (found[1], found[2]) if found[2] else ("0", found[1])
    return f"a range is written `low .. high`; it ends before high: write `{low.strip()} .. {high.strip()}`"


def _letter(found: re.Match[str]) -> str:
    word = found[0].lower()
    halves = {"input": "I", "dgrad": "I", "weight": "W", "wgrad": "W"}
    half = next((letter for part, letter in halves.items() if part in word), "B")
    return f"write `{'F' if word[0] == 'f' else half}`"


def _name(found: re.Match[str]) -> str:
    name = re.sub(r"\W+", "_", found[1]).strip("_")
    return (
        "a name consists of letters, digits and `_`, and does not begin with a digit: write "
        f"`{'s' if name[:1].isdigit() else ''}{name}`"
    )


_ARGUMENT = r"((?:[^(),]|\([^()]*\))+)"

HABITS = (
    _row(r"(?<!=)=([<>])", r"a comparison is written `\1=`"),
    _row(
        r"(?:^|[{}]|\bKIND\b)[ \t]*(?://|/\*|(?:--|%)(?=[ \t]*\w)).*"
        r"|//+[ \t]*[A-Za-z']+ +(?!(?:let|and|or|then|else|when)\b)[A-Za-z'].*",
        "a comment begins with `#`: write `#`",
    ),
    _row(r'^[ \t]*schedule[ \t]+("[^"]*"|[\w.-]*[.-][\w.-]*|\d\w*)', _name),
    _row(r"\bfor[ \t]*\(.*", "a loop is written `for k in low .. high { … }`"),
    _row(rf"\brange[ \t]*\({_ARGUMENT}(?:,{_ARGUMENT})?\)[ \t]*", _range),
    _row(
        r"^[ \t]*(?:\}[ \t]*)?(?:for|if|elif|else|while|repeat|rank)\b[^{}:]*:(?=[ \t]*(?:$|#|\{|KIND\b))",
        "a block is written in braces: `for k in 0 .. m { … }`, `if r == 0 { … } else if m > 1 { … } else { … }`",
    ),
    _row(
        r"(?:^|[{}])[ \t]*(?:(?:int|var|const|auto)[ \t]+)?(?!KIND\b)([A-Za-z_]\w*)[ \t]*:?=(?!=)",
        r"a name is defined by `let` and never changes: write `let \1 =`",
    ),
    _row(
        r"\b(?i:forward|backward|fwd|bwd|fprop|bprop|[dw]grad)(?:_\w+)?(?:\([ \t]*\))?",
        _letter,
    ),
    _row(
        r"(?:(?<![\[(\w])KIND|[\])])[ \t]*(,|\||&|\+|-?>|-)[ \t]*(?=KIND\b|\})",
        r"operations need no separator: remove `\1`; to run two in one slot, write `overlap(F, B)`",
    ),
    _row(
        r"(?<![\w.\"])(?:\d+[ \t]?(?:KIND\d*)+|KIND{2,})\b",
        "an operation is one letter: `F` runs the next microbatch, `F(1)` runs microbatch 1, `repeat 2 { F }` runs the "
        "next two",
    ),
    _row(
        r"(?<![\w.])(?<!schedule )(\d+)(?!KIND|[eE]\d|_)([A-Za-z]\w*|\([^()]*\))",
        r"a product needs a `*`: write `\1 * \2`",
    ),
    _row(
        r"=(?![ \t]*if\b)[^={}][^{}]*\bif\b[^{}]*\belse\b.*|=[^?]*\?.*:.*",
        "a conditional value is written `if c then a else b`",
    ),
)
"""The most common habits from Python and C."""


def explained(finding: Diagnostic) -> Diagnostic:
    """Add to a finding the remedies for the habits at its position."""
    where = finding.where
    if where is None or len(line := where.source.line(where.line)) > _LONGEST:
        return finding
    start = where.column - 1
    found = [remedy for habit in HABITS for remedy in habit.remedies(line, start, start + len(where.text))]
    return replace(finding, help="; ".join(dict.fromkeys(found))) if found else finding
