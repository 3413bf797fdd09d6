"""Values of interop's options: variables of a script, a folder, a recorded run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fsdecode

from pipesched.command.values import Not, text
from pipesched.common.values import texts


@dataclass(frozen=True)
class Run:
    """The option for a recorded run. recorded: the folder with the records of the ranks; empty without the option."""

    recorded: str = ""


def variable(value: object) -> tuple[str, str]:
    """Parse a string such as ``PP=4`` as a name and its value."""
    name, equals, given = text(value).partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise Not(value, "NAME=VALUE")
    return name, given


def variables(value: object) -> tuple[tuple[str, str], ...]:
    """Parse a mapping such as ``{"PP": 4}``, or strings such as ``PP=4``, as pairs of a name and its value."""
    given = [f"{name}={x}" for name, x in value.items()] if isinstance(value, Mapping) else texts(value)
    return tuple(map(variable, given))


def folder(value: object) -> str:
    """Return a path."""
    if isinstance(value, str | PathLike):
        return fsdecode(value)
    raise Not(value, "a path")
