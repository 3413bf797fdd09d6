"""The rows of the core's verbs."""

from pipesched.extension import Lazy, Verb

ROWS = (
    Verb(
        "verify",
        "Look",
        "Check schedules: order, deadlock, memory, claims.",
        Lazy("verbs.verify_command:verify"),
        place=0,
    ),
    Verb(
        "emit",
        "Make",
        "Write the programs that run: instruction streams, torch's CSV, or the order.",
        Lazy("verbs.emit_command:emit"),
        place=12,
    ),
)
