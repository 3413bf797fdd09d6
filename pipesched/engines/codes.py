"""Codes of the findings on parts."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class EngineCode(AnyCode):
    """The codes of findings about parts and calls."""

    PARTS_SYNTAX = "PS261"
    PARTS_WRONG = "PS262"
    PARTS_LAYERS = "PS263"
    PARTS_PAIR = "PS264"
    CALLS_SYNTAX = "PS265"
    CALLS_WRONG = "PS266"
    MEETING_DIFFERS = "PS407"
    MEETING_CYCLE = "PS408"
