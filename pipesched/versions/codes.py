"""Codes of the findings on weight versions."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class VersionCode(AnyCode):
    """The codes of the findings on STEPs inside an order."""

    CROSSED = "PS611"
    NOT_MADE = "PS612"
    TAKES_NOTHING = "PS613"
    BATCHES = "PS614"
    LEFT_OVER = "PS615"
    NO_STEP_HERE = "PS616"
