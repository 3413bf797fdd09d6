"""The built-in transformers in the output of `list`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pipesched.planning.transformer import model_file, parameters
from pipesched.support.source import Source

_WIDTH = 120  # most characters of a line


def entries() -> list[dict[str, object]]:
    """Return the name, parameters, parameters per token, and source of each model, sorted by family, then by size."""
    made = list[dict[str, object]]()
    for name in model_file.built_in():
        (a, _), first = model_file.read(name), model_file.source(name).line(1)
        counts = {"parameters": parameters.total(a), "active": parameters.active(a)}
        made.append({"name": name, **counts, "source": first.removeprefix("# ")})
    return sorted(made, key=lambda model: (str(model["name"]).partition("-")[0], model["parameters"]))


def lines() -> Iterator[str]:
    """Yield a line per transformer, with its parameters in billions."""
    yield ""
    yield "--model NAME, billions of parameters:"
    listed = entries()
    width = max(len(str(model["name"])) for model in listed)
    for model in listed:
        said = textwrap.shorten(str(model["source"]), _WIDTH - width, placeholder=" …")
        yield f"  {model['name']:<{width}}  {float(str(model['parameters'])) / 1e9:6.1f}  {said}"


def source(name: str) -> Source | None:
    """Return the file of a built-in transformer."""
    return model_file.source(name) if name in model_file.built_in() else None
