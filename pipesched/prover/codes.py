"""Codes of the findings on certificates of proofs."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class ProverCode(AnyCode):
    """Codes of the findings on certificates of proofs."""

    DAMAGED = "PS720"
    NOT_IMPLIED = "PS721"
    OTHER_TEXT = "PS722"
