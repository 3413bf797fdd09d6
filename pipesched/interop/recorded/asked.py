"""The recorded run that a schedule is held against: an option that interop adds to `verify`, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipesched.command.options import request


@dataclass(frozen=True)
class Run:
    """recorded: the folder of what its ranks posted."""

    recorded: str = ""


def run(own: Mapping[str, object], given: dict[str, object]) -> Run:
    """The run that options name."""
    return request(Run, own)
