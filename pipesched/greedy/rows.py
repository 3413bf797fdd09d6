"""The row that adds orders by a rule."""

from pipesched.extension import Decider, Lazy, Row

ROWS: tuple[Row, ...] = (Decider(Lazy("greedy.decide:decide")),)
