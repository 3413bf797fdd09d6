"""Finds the data that ships with the package: the grammar, the schedules, the published schemas.

In a wheel they are in ``pipesched/_assets``; in a checkout, at the top of the repository.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def built_in() -> list[str]:
    """Return the names of the schedules that ship with pipesched."""
    return sorted(path.name.removesuffix(".ps") for path in asset("schedules").iterdir() if path.name.endswith(".ps"))


def asset(*parts: str) -> Path:
    """Return the file or folder at `parts`, for example ``asset("grammars", "pipesched.lark")``."""
    here = Path(__file__).resolve().parents[1]
    checkout = here.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "grammars").is_dir():
        return checkout.joinpath(*parts)
    return here.joinpath("_assets", *parts)
