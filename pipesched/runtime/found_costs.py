"""Writes the costs that a command has computed to the file given by `-o`: in the format of `--costs`, or as JSON."""

from __future__ import annotations

from typing import Protocol

from pipesched.command import endings
from pipesched.command.terminal import Output, dumps, put, writable

_FORMS: endings.Forms = {"costs": (".toml",), "json": (".json",)}


class Found(Protocol):
    """The costs that a command has computed. toml: the costs in the format that `--costs` reads."""

    def toml(self) -> str: ...

    def text(self) -> str: ...

    def to_json(self) -> dict[str, object]: ...


def output(as_json: bool, color: str, path: str | None) -> Output:
    """Return the output destination for costs. path: the file given by `-o`.

    Raises:
        PipeschedError: PS225 if the file extension contradicts the options, or if the file cannot be written.
    """
    holds = endings.form(path, "json" if as_json else None, "costs", _FORMS)
    if path and path != "-":
        writable(path)
    return Output("json" if holds == "json" else "text", color)


def tell(out: Output, found: Found, path: str | None) -> int:
    """Write the costs as `--costs` reads them or as JSON, to ``-o`` or stdout; then write the notes about them."""
    as_json = dumps(found.to_json() | {"file": path}) + "\n"
    if path and path != "-":
        put(path, as_json if out.format == "json" else found.toml())
        out.line(found.text())
    elif out.format == "json":
        out.write(as_json)
    elif path == "-":
        out.write(found.toml())
        out.complain(found.text())
    else:
        out.line(found.text())
    return 0
