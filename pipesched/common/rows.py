"""No rows: other extensions import the modules of this folder."""

from pipesched.extension import Row

ROWS: tuple[Row, ...] = ()
