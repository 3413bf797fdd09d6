"""Codes of explain's findings."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class ExplainCode(AnyCode):
    """The kinds of findings of explain."""

    NO_SCHEDULE = "PS842"
