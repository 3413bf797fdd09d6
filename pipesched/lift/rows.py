"""The rows that add the target `ps`."""

from pipesched.extension import Lazy, Target

ROWS = (
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
