"""The least bubble under a memory cap."""

from pipesched.extension import Lazy, Verb

ROWS = (
    Verb(
        "optimize",
        "Make",
        "Find the least bubble under a memory cap, with a proof.",
        Lazy("optimizer.optimize_command:optimize"),
        place=10,
    ),
)
