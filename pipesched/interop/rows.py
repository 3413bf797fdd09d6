"""Other people's schedules: frameworks, trainers, recorded runs."""

from pipesched.extension import Lazy, Verb

ROWS = (
    Verb(
        "check",
        "Other people's",
        "Check a trainer's configuration: schedule, sizes, CSV.",
        Lazy("interop.check_command:check"),
        place=30,
    ),
)
