"""What goes wrong while a program runs, as a value that crosses processes.

    error[PS822]: nothing moves: no rank finished an instruction for 3 s
     --> rank 0, step 1, instruction 5 (0B0): waits for gradient 0 of stage 1, rank 1 to rank 0
      = rank 1, step 1, instruction 4 (1F1): waits for activation 1 of stage 0, rank 0 to rank 1

Every rank ends with the same fault: the first one that was seen, and where each rank was when it learned of it. The
codes are those of ``pipesched explain``; a runtime knows nothing else of the compiler.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

NEEDS = "PS820"  # torch, a backend or a device is not here
STREAMS_DIFFER = "PS821"
STALLED = "PS822"
RANK_LOST = "PS823"
BOUNDARY = "PS824"  # a shape or dtype between two stages
RAISED = "PS825"
NOT_FINITE = "PS826"
GRADIENTS_DIFFER = "PS827"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank is. step and instruction count from 1; 0: none. text: the instruction. waits: for what, or empty."""

    rank: int
    step: int = 0
    instruction: int = 0
    text: str = ""
    waits: str = ""

    def __str__(self) -> str:
        """``rank 0, step 1, instruction 7 (0RECV_B0): waits for …``."""
        return self.name + (f": {self.waits}" if self.waits else "")

    @property
    def name(self) -> str:
        """``rank 0, step 1, instruction 7 (0RECV_B0)``."""
        step = f", step {self.step}" if self.step else ""
        return f"rank {self.rank}{step}" + (
            f", instruction {self.instruction} ({self.text})" if self.instruction else ""
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that went wrong. place: where it began. notes: what proves it, and where the other ranks were."""

    code: str
    message: str
    place: Place | None = None
    notes: tuple[str, ...] = ()
    help: str | None = None

    def __str__(self) -> str:
        place = [f" --> {self.place}"] if self.place else []
        lines = [f"error[{self.code}]: {self.message}", *place, *(f"  = {note}" for note in self.notes)]
        return "\n".join(lines + ([f"  = help: {self.help}"] if self.help else []))

    def dumps(self) -> str:
        """One line of JSON; `loads` reads it."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> Fault:
        """The fault of a text that `dumps` made."""
        data: dict[str, Any] = json.loads(text)
        place = None if data["place"] is None else Place(**data["place"])
        return cls(data["code"], data["message"], place, tuple(data["notes"]), data["help"])


class RunError(RuntimeError):
    """A run that ended with a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault
