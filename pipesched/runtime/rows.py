"""The rows that add `run`, `calibrate` and `show --measured`."""

from pipesched.extension import Codes, Lazy, Option, Reading, Verb
from pipesched.views.rows import Overlay

ROWS = (
    Codes(Lazy("runtime.codes:RuntimeCode")),
    Verb(
        "run",
        "Run",
        "Train a small model with a schedule, or run one rank with your stages.",
        Lazy("runtime.run_command:run"),
        Lazy("runtime.options:RUN"),
        place=20,
    ),
    Verb(
        "calibrate",
        "Run",
        "Fit the costs of every stage to a measured run.",
        Lazy("runtime.calibrate_command:calibrate"),
        Lazy("runtime.options:CALIBRATE"),
        {"costs": (".toml",), "json": (".json",)},
        place=22,
    ),
    Option(
        "measured",
        Lazy[Reading]("runtime.values:files"),
        "Draw a measured run below the plan (text, svg); one file per rank.",
        "TRACE",
        (),
        typed=Lazy("command.values:text"),
        on=("show",),
        after="memory",
    ),
    Overlay(
        "measured",
        {"text": Lazy("runtime.measured.laid:text"), "svg": Lazy("runtime.measured.laid:svg")},
        Lazy("runtime.measured.laid:lay"),
        ("messages",),
        "applies only to a plan, and not with --measured",
    ),
)
