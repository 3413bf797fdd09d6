"""The option that certificates add to `verify`, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Opinion:
    """second_opinion: whether Z3 is asked the inclusions of a certificate too."""

    second_opinion: bool = False
