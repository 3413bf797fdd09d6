"""The code of a repair."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class MendCode(AnyCode):
    """The code of the finding that lists a repair's changes."""

    MENDED = "PS910"
