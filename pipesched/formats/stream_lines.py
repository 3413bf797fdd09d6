"""The lines of a rank as columns: for text laid out as `pipesched.stream.dumps` does, one instruction a line.

    {"op":"SEND_F","stage":0,"microbatch":7,"peer":1}      the word after "op", and the numbers in their order
    {"op":"OVERLAP","parts":[{…},{…}]}                     two lines, of which the second one begins with +

What else stands in a line is not looked at here. Who reads this way writes the columns again and compares the text,
so nothing but a right text passes (`stream_read`).
"""

from __future__ import annotations

import numpy as np

from pipesched.model.columns import Column
from pipesched.model.ops import Op
from pipesched.stream import FIELDS, Instruction, instruction_text

_BETWEEN = ",\n      "
_OPEN, _ = instruction_text(Instruction("OVERLAP"), 1).split("]")
_DIGITS = bytes(c if chr(c).isdigit() and c < 128 else ord(" ") for c in range(256))
_PLAIN = {op.name: int(op) for op in Op if op.name in FIELDS}


def columns(lines: str, routes: int) -> Column | None:
    """op, stage, microbatch, peer and second of a rank, shape (5, instructions); None if a line cannot be read."""
    if not lines:
        return np.zeros((5, 0), dtype=np.int32)
    if _OPEN in lines:
        lines = lines.replace(_OPEN, "").replace('},{"op"', f'}}{_BETWEEN}+"op"')
    rows = lines.split(_BETWEEN)
    try:
        op = np.array([_PLAIN[row[7 : row.index('"', 7)]] for row in rows], dtype=np.int32)
        digits = lines.encode("ascii").translate(_DIGITS).strip()
        numbers = np.fromstring(digits, dtype=np.int64, sep=" ") if digits else np.zeros(0, dtype=np.int64)
    except (KeyError, ValueError):
        return None
    made = np.full((5, len(rows)), -1, dtype=np.int64)
    made[0] = op
    made[4] = [row[0] == "+" for row in rows]
    return made if _fill(made, numbers, routes) and int(made.max()) < 2**31 else None


def _fill(made: Column, numbers: Column, routes: int) -> bool:
    """Puts the numbers into the columns of stage, microbatch and peer; whether there are as many as fields."""
    names = {op: [name for name in FIELDS[Op(op).name] if name != "route" or routes > 1] for op in np.unique(made[0])}
    count = np.array([len(names.get(op, ())) for op in range(len(Op))])
    begin = np.cumsum(count[made[0]]) - count[made[0]]
    if int(count[made[0]].sum()) != len(numbers):
        return False
    for op, fields in names.items():
        at = np.flatnonzero(made[0] == op)
        for offset, name in enumerate(fields):
            if name != "route":
                made[{"stage": 1, "microbatch": 2, "peer": 3}[name], at] = numbers[begin[at] + offset]
    return True
