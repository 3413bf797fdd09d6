"""Bytes of a transformer."""

from pipesched.extension import Lazy, Overlay

ROWS = (
    Overlay(
        "model",
        {name: Lazy(f"planning.stacked:draw_{name}") for name in ("text", "svg", "html")},
        without=("style", "messages", "memory", "measured"),
        why="is for operations; with --model bytes are drawn",
    ),
)
