"""Splits text into tokens with their offsets; white space and comments are skipped.

rank r { F[0] }    ->   RANK NAME LBRACE F LSQB NUMBER RSQB RBRACE $END
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from pipesched.model.ops import ADDED

LONGEST = 18  # most digits: every such number fits in 64 bits
END, UNKNOWN = "$END", "UNKNOWN"
SOFT = (
    *("frozen", "reads", "slices", "greedy", "backfill", "parts", "of", *(op.name for op in ADDED)),
    *("STEP", "versions", "stash", "latest", "delay"),
)
"""The words that may also serve as names, where a name is allowed."""


class Token(NamedTuple):
    """A word of the text. kind: its terminal in the grammar, END, or UNKNOWN.

    supplied: True if the text lacks it and it was inserted.
    """

    kind: str
    text: str
    start: int
    supplied: bool = False

    @property
    def named(self) -> bool:
        """True if the word may be a name."""
        return self.kind == "NAME" or self.text in SOFT

    @property
    def end(self) -> int:
        return self.start if self.supplied else self.start + len(self.text)


def too_long(number: str) -> bool:
    """Return True if a number has more digits than the language allows."""
    return len(number) - number.count(".") > LONGEST


def known_release(rule: str) -> bool:
    """Return True if a rule of several letters may follow `release`: ``torch``, or ``split:x`` with x from 0 to 1."""
    name, _, share = rule.partition(":")
    try:
        return rule == "torch" or (name == "split" and 0 <= Fraction(share) <= 1)
    except (ValueError, ZeroDivisionError):
        return False


class Words:
    """The terminals of the grammar. kinds: the kind of each token with a fixed text, by that text.

    patterns: pairs of a kind and a regular expression, in the order in which they are tried.
    """

    def __init__(self, patterns: Sequence[tuple[str, str]], kinds: Mapping[str, str], ignored: Container[str]) -> None:
        self.patterns, self.kinds, self._ignored = patterns, kinds, ignored

    @cached_property
    def _known(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in self.patterns))

    def read(self, text: str) -> Iterator[Token]:
        """Yield the tokens of the text, then an END; text that is not in the language ends with an UNKNOWN instead."""
        at = 0
        while found := self._known.match(text, at):
            at = found.end()
            kind, word = str(found.lastgroup), found.group()
            if kind not in self._ignored:
                yield Token(self.kinds.get(word, kind), word, found.start())
        yield Token(UNKNOWN if at < len(text) else END, text[at : at + 1], at)
