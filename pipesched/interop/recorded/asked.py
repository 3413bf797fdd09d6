"""The options that interop adds to `verify`: the recorded run with which a schedule is compared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """The option for a recorded run. recorded: the folder with the records of its ranks; empty without the option."""

    recorded: str = ""
