"""Codes of the findings that `explain` adds."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class ExplainCode(AnyCode):
    """The codes of the findings that `explain` adds."""

    NO_SCHEDULE = "PS842"
