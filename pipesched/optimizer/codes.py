"""The codes of findings that the optimizer reports."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class OptimizerCode(AnyCode):
    """The codes of findings that the optimizer reports."""

    STATES_OVER_CAP = "PS503"
    NO_ROOM = "PS504"
    INFEASIBLE = "PS701"
    NOT_OPTIMIZED = "PS702"
    CERTIFICATE = "PS710"
    VERDICT = "PS711"
    NO_PROOF = "PS712"
    ANSWER = "PS714"
    EVERY = "PS715"
    DECISION = "PS716"
    ON_THE_WORD = "PS908"
