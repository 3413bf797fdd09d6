"""Codes of what explain finds."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class ExplainCode(AnyCode):
    """Kinds of finding of explain."""

    NO_SCHEDULE = "PS842"
