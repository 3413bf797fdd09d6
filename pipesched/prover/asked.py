"""The option that certificates add to `verify`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Opinion:
    """The option `--second-opinion`: whether Z3 also checks the inclusions of a certificate."""

    second_opinion: bool = False
