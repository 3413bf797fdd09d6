"""Codes of the runtime's findings."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class RuntimeCode(AnyCode):
    """The kinds of findings that the runtime reports."""

    TRACE = "PS816"
    TRACE_DIFFERS = "PS817"
    TRACE_INCOMPLETE = "PS818"
    STREAMS_DIFFER = "PS821"
    STALLED = "PS822"
    RANK_LOST = "PS823"
    BOUNDARY = "PS824"
    STAGE_RAISED = "PS825"
    NOT_FINITE = "PS826"
    GRADIENTS_DIFFER = "PS827"
    FACTORY = "PS828", 2
    NO_STAGE = "PS829", 2
    UNSUPPORTED = "PS831"
    STEPS_DIFFER = "PS836"
    OUTSIDE_COLLECTIVE = "PS837"
