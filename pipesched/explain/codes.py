"""Codes of explain's findings."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class ExplainCode(AnyCode):
    """Kinds of finding of explain."""

    NO_SCHEDULE = "PS842"
