"""Idle time, and differences between schedules."""

from pipesched.extension import Lazy, Verb

ROWS = (
    Verb(
        "why",
        "Look",
        "Say where the idle time of a schedule comes from.",
        Lazy("insight.why_command:why"),
        Lazy("insight.options:WHY"),
        place=2,
    ),
    Verb(
        "compare",
        "Look",
        "Compare schedules and sizes in one table.",
        Lazy("insight.compare_command:compare"),
        Lazy("insight.options:COMPARE"),
        place=3,
    ),
    Verb(
        "diff",
        "Look",
        "Say what differs between two orders, and what it costs.",
        Lazy("insight.diff_command:diff"),
        Lazy("insight.options:DIFF"),
        place=4,
    ),
)
