"""Converts schedules to .ps text and back, for the tests of the printer."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pipesched.diagnostics import Code, PipeschedError
from pipesched.explain.words import scan
from pipesched.language.evaluate import Unit
from pipesched.language.grammar import grammar
from pipesched.language.parser import parse
from pipesched.lift import writer
from pipesched.lift.printer import format_source
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source
from tests.makers.chunks import evaluate

COLUMNS = ("op", "stage", "microbatch", "second", "start")


def read(text: str, **sizes: int) -> Unit:
    return evaluate(parse(Source("x.ps", text)), sizes)


def laws(schedule: Schedule, text: str, **sizes: int) -> None:
    """Laws of every schedule and its text."""
    assert format_source(Source("x.ps", text)) == text
    again = read(text, **sizes).schedule
    for column in COLUMNS:
        assert np.array_equal(getattr(again, column), getattr(schedule, column)), column
    assert np.array_equal(again.placement.table, schedule.placement.table)
    assert again.ranks == schedule.ranks


def tokens(text: str) -> int:
    """Return the words of the programs, from the first `rank` on."""
    words = [token.text for token in scan(grammar().words, text)]
    return len(words) - next(i for i, (a, b) in enumerate(pairwise(words)) if a == "rank" and b != "s" and i > 8)


def written(schedule: Schedule) -> str | list[Code]:
    """Return the text, or the codes of the refusal."""
    try:
        return writer.write(schedule)
    except PipeschedError as error:
        return [diagnostic.code for diagnostic in error.diagnostics]
