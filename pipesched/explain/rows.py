"""The rows that add codes, words, the list of schedules, and explanations of mistakes."""

from pipesched.extension import TEXTS, Codes, Hint, Lazy, Verb

ROWS = (
    Codes(Lazy("explain.codes:ExplainCode")),
    Verb(
        "explain",
        "Look",
        "Explain a diagnostic code or a word, or list them all.",
        Lazy("explain.explain_command:explain"),
        Lazy("command.options:OUTPUT"),
        place=5,
    ),
    Verb(
        "list",
        "Look",
        "Show the built-in schedules, or the file of one.",
        Lazy("explain.list_command:list_schedules"),
        Lazy("command.options:OUTPUT"),
        {**TEXTS, "text": (".txt", ".ps", ".toml")},
        place=6,
    ),
    *(Hint(on, Lazy(f"explain.schedule_names:{on}")) for on in ("schedule", "path", "target")),
    Hint("syntax", Lazy("explain.recover:mistakes")),
    *(Hint(on, Lazy(f"explain.names:{on}")) for on in ("name", "parameter", "model", "sizes", "ranks")),
    Hint("ps", Lazy("explain.misread:not_a_schedule")),
    Hint("torch-csv", Lazy("explain.misread:meant")),
    Hint("order", Lazy("explain.misread:one_slip")),
    Hint("cell", Lazy("explain.cells:cell")),
    *(Hint(on, Lazy(f"explain.remedies:{on}")) for on in ("cycle", "deadlock")),
)
