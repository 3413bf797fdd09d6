"""What a schedule can do that is made in a layer above it: a picture, a graph, a table.

The noun stays below its pictures; `pipesched.api`, which sees both, says here who makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipesched.diagnostics import Code, fail

_makers: dict[str, Callable[..., Any]] = {}


def provide(**makers: Callable[..., Any]) -> None:
    """Who makes what; each takes the object, and the costs and the release rule to draw it at, or None."""
    _makers.update(makers)


def known(name: str) -> bool:
    """Whether somebody makes it."""
    return name in _makers


def make(name: str, *arguments: object) -> Any:
    """What is made of the arguments.

    Raises:
        PipeschedError: PS820, nobody makes it: `pipesched.api` was never imported.
    """
    if name not in _makers:
        raise fail(Code.NEEDS, f"nothing here makes a {name}", help="import pipesched.api first")
    return _makers[name](*arguments)
