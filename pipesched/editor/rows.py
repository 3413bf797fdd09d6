"""The row that adds `lsp`."""

from pipesched.extension import Lazy, Row, Verb

ROWS: tuple[Row, ...] = (
    Verb(
        "lsp",
        "Make",
        "Serve an editor: findings, explanations, names, repairs.",
        Lazy("editor.lsp_command:lsp"),
        Lazy("editor.lsp_command:OPTIONS"),
        place=17,
    ),
)
