"""Recognizes a CSV with another layout than torch's: one finding for the whole file instead of one per cell.

    0,0F0,0F1,0B0,0B1     column 1 is an index

A layout is named only if the repaired text can be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import combinations
from pathlib import PurePath
from typing import NamedTuple

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError
from pipesched.explain.codes import ExplainCode
from pipesched.support.source import Source

LONGEST = 100_000  # most characters of a file that is read repeatedly


class Shape(NamedTuple):
    """A wrong layout: the message, the remedy, and the replacement for every match of a pattern."""

    said: str
    help: str
    pattern: str
    meant: str


_PANDAS = "write only the rows of the ranks: to_csv(header=False, index=False)"
SHAPES = (
    Shape("line 1 is a header", _PANDAS, r"\A(?!#|[^\n]*\d[A-Za-z])[^\n]*\n", ""),
    Shape("column 1 is an index", _PANDAS, r'(?m)^"?(?:rank|stage)?[ _]?\d{0,9}"?[,;\t]', ""),
    Shape("a bubble is written as a word", 'leave bubbles empty: to_csv(na_rep="")', r"(?i)\b(?:nan|none|idle)\b", ""),
    Shape("cells are not separated by commas", 'put a comma between actions: to_csv(sep=",")', "[;\t ]+", ","),
)


def meant(found: Sequence[Diagnostic], source: Source, read: Callable[[Source], object]) -> Sequence[Diagnostic]:
    """Return PS801 at the first mistake, for the fewest wrong layouts whose repair makes a CSV readable."""
    counts = range(1, 4 if len(source.text) <= LONGEST else 1)
    for chosen in (chosen for count in counts for chosen in combinations(SHAPES, count)):
        try:
            read(Source(source.name, reduce(lambda text, x: re.sub(x.pattern, x.meant, text), chosen, source.text)))
        except PipeschedError:
            continue
        said, help = " and ".join(x.said for x in chosen), "; ".join(dict.fromkeys(x.help for x in chosen))
        return [Diagnostic(Code.CELL, said, (Label(found[0].where, said),), (), help)]
    return found


_KINDS = {".md": "Markdown", ".html": "HTML", ".py": "Python", ".toml": "TOML", ".yaml": "YAML", ".sh": "a script"}


def not_a_schedule(found: Sequence[Diagnostic], source: Source, _: object) -> Sequence[Diagnostic]:
    """Return PS842 for a file whose name has the ending of another kind."""
    if kind := _KINDS.get(PurePath(source.name).suffix.lower()):
        here = Label(source.span(0, len(source.text.partition("\n")[0])), f"this is {kind}")
        help = "give a .ps file, a torch CSV, an order, a stream, or a name of `pipesched list`"
        return [Diagnostic(ExplainCode.NO_SCHEDULE, f"{source.name} is {kind}, not a schedule", (here,), (), help)]
    return found
