"""Nothing is added: other extensions import what is here."""

from pipesched.extension import Row

ROWS: tuple[Row, ...] = ()
