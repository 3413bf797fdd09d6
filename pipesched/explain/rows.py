"""Codes, words, and explanations of mistakes."""

from pipesched.extension import Lazy, Verb

ROWS = (
    Verb(
        "explain",
        "Look",
        "Explain a diagnostic code or a word, or list them all.",
        Lazy("explain.explain_command:explain"),
        place=5,
    ),
)
