"""Finds the data that ships with the package: the grammar, the schedules, the published schemas.

In a wheel they lie in ``pipesched/_assets``; in a checkout, at the top of the repository.
"""

from __future__ import annotations

from pathlib import Path


def asset(*parts: str) -> Path:
    """The file or folder at `parts`, for example ``asset("grammars", "pipesched.lark")``."""
    here = Path(__file__).resolve().parent
    checkout = here.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "grammars").is_dir():
        return checkout.joinpath(*parts)
    return here.joinpath("_assets", *parts)
