"""Bytes of a transformer."""

from pipesched.extension import Lazy, Overlay, Verb

ROWS = (
    Verb(
        "plan",
        "Make",
        "Find the layout of a training step over a cluster that is fastest and fits.",
        Lazy("planning.plan_command:plan"),
        place=11,
    ),
    Overlay(
        "model",
        {name: Lazy(f"planning.stacked:draw_{name}") for name in ("text", "svg", "html")},
        without=("style", "messages", "memory", "measured"),
        why="is for operations; with --model bytes are drawn",
    ),
)
