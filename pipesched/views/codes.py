"""Codes of the findings that views report."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class ViewsCode(AnyCode):
    """The kinds of findings that views report."""

    TOO_LARGE = "PS815", 2
