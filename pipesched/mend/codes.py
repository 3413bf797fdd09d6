"""The code of a repair."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class MendCode(AnyCode):
    """The code of the finding that lists the changes of a repair."""

    MENDED = "PS910"
