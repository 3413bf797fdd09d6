"""The proof that a user demands: the options that `optimize` adds to `verify`, as one value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """require_proof: an answer that is not proved optimal is an error. proof: PATH; the clauses go to PATH.cnf, their
    refutation to PATH.lrat.
    """

    require_proof: bool = False
    proof: str | None = None
