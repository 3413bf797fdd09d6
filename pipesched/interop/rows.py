"""Other people's schedules: frameworks, trainers, recorded runs."""

from pipesched.extension import Later, Lazy, Names, Verb

ROWS = (
    Later(("recorded",), Lazy("interop.recorded.judged:judged"), place=10),
    Names(
        "framework",
        Lazy("interop.frameworks.frameworks:call"),
        Lazy("interop.frameworks.frameworks:meant"),
        Lazy("interop.frameworks.frameworks:names"),
        Lazy("interop.frameworks.loaded:read"),
        ("parameters", "settings", "max_ops", "framework_path", "framework_time"),
    ),
    Verb(
        "check",
        "Other people's",
        "Check a trainer's configuration: schedule, sizes, CSV.",
        Lazy("interop.check_command:check"),
        place=30,
    ),
)
