"""The rows that add `verify --format sarif` and `--format junit`."""

from pipesched.extension import Format, Lazy, Row

ROWS: tuple[Row, ...] = (
    Format("sarif", ".sarif", Lazy("publish.sarif:text")),
    Format("junit", ".xml", Lazy("publish.junit:text")),
)
