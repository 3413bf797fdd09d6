"""Many schedules at once; other extensions import the rest that is here."""

from pipesched.extension import Lazy, Row, Together

ROWS: tuple[Row, ...] = (Together(Lazy("common.side_by_side:settle")),)
