"""Runs of a schedule: its measured times under its plan."""

from pipesched.extension import Lazy, Overlay

ROWS = (
    Overlay(
        "measured",
        {"text": Lazy("runtime.measured.laid:text"), "svg": Lazy("runtime.measured.laid:svg")},
        Lazy("runtime.measured.laid:lay"),
        ("messages",),
        "is for a plan alone, not with --measured",
    ),
)
