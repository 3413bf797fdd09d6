"""The rows that add the verb `fmt` and the target `ps`."""

from pipesched.extension import TEXTS, Lazy, Target, Verb

ROWS = (
    Verb(
        "fmt",
        "Make",
        "Rewrite .ps files in their canonical form.",
        Lazy("lift.fmt_command:fmt"),
        Lazy("lift.fmt_command:OPTIONS"),
        {**TEXTS, "text": (".ps", ".txt", ".diff")},
        place=13,
    ),
    Target(
        "ps",
        "the compute operations as a .ps file with loops, even for an order with errors",
        ".ps",
        Lazy("lift.writer:LANGUAGE"),
        messages=False,
        judged=False,
        place=60,
    ),
)
