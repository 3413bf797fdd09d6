"""FRAMEWORKS: a row for each framework whose schedules are named ``FRAMEWORK:NAME``, with options given by ``-D``.

    torch:Interleaved1F1B       a schedule class of the installed torch
    megatron:interleaved        Megatron-core's own pipeline code, on stand-ins for tensors
    deepspeed:TrainSchedule     a schedule class of DeepSpeed's pipeline engine, or your own class
    python:module:function      your own function, from the current folder or a package

The rows are tables of `frameworks.toml`. A row's recorder is a module that runs in a separate process (`recording`),
with the framework and without the rest of pipesched. A new framework needs a recorder and a row.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar

from pipesched.support.source import Source


@dataclass(frozen=True)
class Framework:
    """A framework that generates schedules. title: a description of the code that is executed. package: the package
    that must be installed, or empty. recorder: the name of the module that runs the framework. tried: prefixes of the
    tested version numbers. names: known schedule names. options: the meaning of each ``-D`` option besides p, v and m.
    open: True if the recorder takes further options.
    """

    name: str
    title: str
    recorder: str
    package: str = ""
    tried: Sequence[str] = ()
    names: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    open: bool = False


@dataclass(frozen=True, repr=False)
class Call(Source):
    """A source that names a schedule of a framework; its text is that name."""

    origin: ClassVar[str] = "framework"

    @property
    def framework(self) -> Framework:
        """The framework that the text names."""
        return FRAMEWORKS[self.text.partition(":")[0]]


def call(target: str) -> Call | None:
    """Parse a name such as ``torch:GPipe`` as a call; return None if it does not name a framework."""
    name, colon, _ = target.partition(":")
    return Call(target, target) if colon and name in FRAMEWORKS else None


def entries() -> list[dict[str, object]]:
    """Return the rows of all frameworks for the JSON of `list`."""
    rows = FRAMEWORKS.values()
    return [{"name": x.name, "title": x.title, "schedules": x.names, "tried": x.tried} for x in rows]


def lines() -> Iterator[str]:
    """Yield the lines of `list`: all frameworks with their schedules."""
    for row in FRAMEWORKS.values():
        yield f"{row.name}:NAME  {row.title}"
        yield f"    {', '.join(row.names)}"


def names() -> list[str]:
    """Return the known schedule names of all frameworks, as ``FRAMEWORK:NAME``."""
    return [f"{row.name}:{name}" for row in FRAMEWORKS.values() for name in row.names]


def meant(target: str) -> str | None:
    """Return the help for a target that names an unknown framework; None if it does not have the form ``NAME:NAME``."""
    name, colon, rest = target.partition(":")
    if not (colon and rest and name.isidentifier()) or len(name) == 1:  # a drive of Windows
        return None
    near = get_close_matches(name.lower(), FRAMEWORKS, 1, 0.8)
    return f"did you mean `{near[0]}:{rest}`?" if near else f"frameworks are {', '.join(FRAMEWORKS)}"


_TABLES = tomllib.loads(Path(__file__).with_name("frameworks.toml").read_text("utf-8"))
FRAMEWORKS: Mapping[str, Framework] = {name: Framework(name, **fields) for name, fields in _TABLES.items()}
