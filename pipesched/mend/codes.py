"""The code of a repair."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class MendCode(AnyCode):
    """The code of the finding that says what a repair changed."""

    MENDED = "PS910"
