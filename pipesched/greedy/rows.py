"""The registry row that adds orders that follow from a rule."""

from pipesched.extension import Decider, Lazy, Row

ROWS: tuple[Row, ...] = (Decider(Lazy("greedy.decide:decide")),)
