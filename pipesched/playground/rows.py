"""The row that adds `play`."""

from pipesched.extension import Lazy, Row, Verb

ROWS: tuple[Row, ...] = (
    Verb(
        "play",
        "Look",
        "Write a browser page that plays the built-in schedules.",
        Lazy("playground.play_command:play"),
        Lazy("playground.play_command:OPTIONS"),
        place=7,
    ),
)
