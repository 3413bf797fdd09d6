"""The proof that is asked of an answer: options that the optimizer adds to `verify`, as one value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """require_proof: an answer that is not proved optimal is an error. proof: the PATH of its clauses in PATH.cnf and
    of their refutation in PATH.lrat.
    """

    require_proof: bool = False
    proof: str | None = None
