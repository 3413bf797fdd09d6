"""Recognizes the letters of the zero-bubble papers, which call the backward for the input B; here it is I, and B is I
and W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipesched.check.checks import Subject
from pipesched.check.complete import check_complete
from pipesched.diagnostics import Diagnostic
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.schedule_analysis import Analysis

_HELP = "zero-bubble papers call the backward for the input B; here it is I, and B means I and W: write I for every B"


def one_slip(found: Sequence[Diagnostic], schedule: Schedule) -> Sequence[Diagnostic]:
    """Replace the findings by a single one if the file writes B instead of I throughout."""
    op, letters = schedule.op, set(np.unique(schedule.op).tolist())
    if not found or len(schedule) > 20_000 or not letters >= {Op.B, Op.W} or Op.I in letters:
        return found
    made = Analysis(replace(schedule, op=np.where(op == Op.B, Op.I, op).astype(op.dtype)))
    if any(check_complete(Subject(made))) or not made.finished:
        return found
    place = schedule.origin.place(int(np.argmax(op == Op.W))).span
    return [replace(next((x for x in found if place and x.where == place), found[0]), notes=(), help=_HELP)]
