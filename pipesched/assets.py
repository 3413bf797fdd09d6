"""Finds the data that ships with the package: the grammar, the schedules, the stream schema.

In a wheel they lie in ``pipesched/_assets``; in a checkout, at the top of the repository.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def asset(*parts: str) -> Traversable:
    """The file or folder at `parts`, for example ``asset("grammars", "pipesched.lark")``."""
    checkout = Path(__file__).resolve().parent.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "grammars").is_dir():
        return checkout.joinpath(*parts)
    return files("pipesched").joinpath("_assets", *parts)
