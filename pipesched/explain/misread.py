"""Recognize a mistake that runs through a whole file, and report it once instead of once per cell or operation.

    0,0F0,0F1,0B0,0B1     Column 1 is an index, unlike in torch's CSV.
    F0.0 B0.0 W0.0        These are the letters of the zero-bubble papers, where B is our I.

A mistake is reported only if the repaired file can be read, or is complete and does not deadlock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from pipesched.check.checks import Subject
from pipesched.check.complete import check_complete
from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError
from pipesched.explain.codes import ExplainCode
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source

LONGEST = 100_000  # most characters of a file that is read repeatedly


class Shape(NamedTuple):
    """A wrong layout: the message, the remedy, and a pattern with the replacement for each of its matches."""

    said: str
    help: str
    pattern: str
    meant: str


_PANDAS = "write only one row per rank: to_csv(header=False, index=False)"
SHAPES = (
    Shape("line 1 is a header", _PANDAS, r"\A(?!#|\s*\n|[^\n]*\d[A-Za-z])[^\n]*\n", ""),
    Shape("column 1 is an index", _PANDAS, r'(?m)^"?(?:rank|stage)?[ _]?\d{0,9}"?[,;\t]', ""),
    Shape("a bubble is written as a word", 'leave bubbles empty: to_csv(na_rep="")', r"(?i)\b(?:nan|none|idle)\b", ""),
    Shape("cells are not separated by commas", 'put a comma between actions: to_csv(sep=",")', "[;\t ]+", ","),
)


def meant(found: Sequence[Diagnostic], source: Source, read: Callable[[Source], object]) -> Sequence[Diagnostic]:
    """Return PS801 at the first mistake, for the fewest layout mistakes whose repair makes the CSV readable."""
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
    """Return PS842 for a file whose extension belongs to another kind of file."""
    if kind := _KINDS.get(PurePath(source.name).suffix.lower()):
        here = Label(source.span(0, len(source.text.partition("\n")[0])), f"this is {kind}")
        help = "give a .ps file, a torch CSV, an order, a stream, or a name from `pipesched list`"
        return [Diagnostic(ExplainCode.NO_SCHEDULE, f"{source.name} is {kind}, not a schedule", (here,), (), help)]
    return found


_HELP = "in zero-bubble papers, B is the backward for the input; here that is I, and B is I and W: write I for every B"


def one_slip(found: Sequence[Diagnostic], schedule: Schedule) -> Sequence[Diagnostic]:
    """Replace the findings by a single finding if the file writes B instead of I throughout."""
    op, letters = schedule.op, set(np.unique(schedule.op).tolist())
    if not found or len(schedule) > 20_000 or not letters >= {Op.B, Op.W} or Op.I in letters:
        return found
    made = Analysis(replace(schedule, op=np.where(op == Op.B, Op.I, op).astype(op.dtype)))
    if any(check_complete(Subject(made))) or not made.finished:
        return found
    place = schedule.origin.place(int(np.argmax(op == Op.W))).span
    return [replace(next((x for x in found if place and x.where == place), found[0]), notes=(), help=_HELP)]
