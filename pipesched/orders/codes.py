"""Codes of findings on a file's own instructions."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class OrdersCode(AnyCode):
    """The kinds of findings on a file's own instructions."""

    NOT_RECEIVED = "PS308"
    NOT_PRODUCED = "PS309"
    NOT_UNDER_WAY = "PS406"
    NO_REDUCTION = "PS601"
    REDUCED_TWICE = "PS602"
    REDUCED_EARLY = "PS603"
    SYNC = "PS605"
    STEP = "PS606"
    ONLY_TRAINING = "PS607"
    BUFFERS = "PS906"
