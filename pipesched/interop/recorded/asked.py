"""Options that interop adds to `verify`: the recorded run with which a schedule is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipesched.command.options import request


@dataclass(frozen=True)
class Run:
    """A recorded run. recorded: folder with the records of its ranks, empty if none is given."""

    recorded: str = ""


def run(own: Mapping[str, object], given: dict[str, object]) -> Run:
    """Read the recorded run from the options."""
    return request(Run, own)
