"""Faults of a running program, as values that can be sent between processes.

    error[PS822]: no progress: no rank finished an instruction for 3 s
     --> rank 0, step 1, instruction 5 (0B0): waits for gradient 0 of stage 1, rank 1 to rank 0
      = rank 1, step 1, instruction 4 (1F1): waits for activation 1 of stage 0, rank 0 to rank 1

All ranks end with the same fault: the first one seen, with the position of each rank at the time when it learned of the
fault. The codes are listed by ``pipesched explain``; apart from these codes, the runtime does not depend on the
compiler.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass

NEEDS = "PS820"  # torch, a backend, a device or a route to another rank is missing
STREAMS_DIFFER = "PS821"
STALLED = "PS822"
RANK_LOST = "PS823"
BOUNDARY = "PS824"  # shapes or dtypes differ between two stages
RAISED = "PS825"
NOT_FINITE = "PS826"
UNSUPPORTED = "PS831"  # a module that would be trained wrongly, or not trained
STEPS_DIFFER = "PS836"
OUTSIDE = "PS837"  # a collective that is not part of the pipeline


LONGEST = 500  # most characters of a text from another process
NOTES = 1000  # most notes of a fault
_CODE = re.compile(r"PS\d{3}")


def printable(text: object, longest: int = LONGEST) -> str:
    """Make text from another process safe to print: bounded in length, without control characters.

    Raises:
        TypeError: if the value is not a string.
    """
    if not isinstance(text, str):
        raise TypeError(f"{type(text).__name__} instead of a string")
    kept = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(x if x.isprintable() else "?" for x in kept)


def table(data: object) -> Mapping[str, object]:
    """Require a JSON object.

    Raises:
        TypeError: if the value is not a JSON object.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"{type(data).__name__} instead of an object")
    return data


def fields(data: object, *names: str) -> list[object]:
    """Return the named fields of a JSON object.

    Raises:
        TypeError, KeyError: if the value is not an object, or lacks a field.
    """
    known = table(data)
    return [known[name] for name in names]


def whole(number: object) -> int:
    """Require a JSON integer.

    Raises:
        TypeError: if the value is not an integer.
    """
    if not isinstance(number, int):
        raise TypeError(f"{type(number).__name__} instead of a whole number")
    return number


@contextmanager
def _read(what: str) -> Iterator[None]:
    """Raise a ValueError in place of any error that invalid data from another process cause."""
    try:
        yield
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ValueError(f"this is not {what}") from error


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a rank. step and instruction count from 1; 0 means none. text: the instruction. waits: the
    message that the rank waits for, or empty.
    """

    rank: int
    step: int = 0
    instruction: int = 0
    text: str = ""
    waits: str = ""

    @classmethod
    def of(cls, data: object) -> Place:
        """Read a place from JSON data. The result is safe to print, even from an untrusted sender.

        Raises:
            ValueError: if the data are not a place.
        """
        with _read("a place"):
            rank, step, instruction, text, waits = fields(data, "rank", "step", "instruction", "text", "waits")
            return cls(whole(rank), whole(step), whole(instruction), printable(text), printable(waits))

    def __str__(self) -> str:
        """Return ``rank 0, step 1, instruction 7 (0RECV_B0): waits for …``."""
        return self.name + (f": {self.waits}" if self.waits else "")

    @property
    def name(self) -> str:
        """The place, without the message that the rank waits for: ``rank 0, step 1, instruction 7 (0RECV_B0)``."""
        step = f", step {self.step}" if self.step else ""
        return f"rank {self.rank}{step}" + (
            f", instruction {self.instruction} ({self.text})" if self.instruction else ""
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a run. place: where the fault began. notes: the evidence, and the places of the other ranks."""

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
        """Return the fault as one line of JSON, which `loads` reads."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> Fault:
        """Read a fault from a line that `dumps` wrote. The result is safe to print, even from an untrusted sender.

        Raises:
            ValueError: if the text is not a fault.
        """
        return cls.of(json.loads(text))

    @classmethod
    def of(cls, data: object) -> Fault:
        """Read a fault from JSON data, as `loads` does."""
        with _read("a fault"):
            code, message, place, notes, help = fields(data, "code", "message", "place", "notes", "help")
            if not isinstance(code, str) or not _CODE.fullmatch(code) or not isinstance(notes, list | tuple):
                raise ValueError(code)
            at, shown = None if place is None else Place.of(place), tuple(map(printable, notes[:NOTES]))
            return cls(code, printable(message), at, shown, None if help is None else printable(help))


class RunError(RuntimeError):
    """Raised when a run ends with a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault
