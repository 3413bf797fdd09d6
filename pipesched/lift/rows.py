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
        "the computes in the language, with loops, likewise",
        ".ps",
        Lazy("lift.target:LANGUAGE"),
        messages=False,
        judged=False,
        place=60,
    ),
)
