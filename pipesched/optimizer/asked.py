"""The user's requests for proofs: the options that the optimizer adds to `verify`, as one value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """The options for proofs. require_proof: whether an answer that is not proved optimal is an error. proof: PATH; the
    clauses are written to PATH.cnf, and their refutation to PATH.lrat.
    """

    require_proof: bool = False
    proof: str | None = None
