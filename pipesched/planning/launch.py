"""The interface between trainers and plans: the choices that a trainer can run, and the files that run a choice.

The package `interop` provides the trainers through the service ``launcher``; planning uses only this interface.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, cast

from pipesched.common.rows import service
from pipesched.diagnostics import fail
from pipesched.planning.codes import PlanningCode

if TYPE_CHECKING:
    from pipesched.model.schedule import Schedule
    from pipesched.planning.layouts.space import Choice, Space
    from pipesched.planning.transformer.config import Training


@dataclass(frozen=True)
class Launch:
    """A configuration for a trainer. files: contents by file name; ``pipesched check`` reads the first file.

    options: the options of ``pipesched check`` for that file. left_out: settings that the files leave to the user.
    """

    files: Mapping[str, str]
    options: str
    left_out: str

    @property
    def main(self) -> str:
        """The name of the first file."""
        return next(iter(self.files))

    def check(self, name: str = "") -> str:
        """Return the command that checks the file; `name` replaces the file's name."""
        return f"pipesched check {name or self.main} {self.options}"


class Launcher(Protocol):
    """A release of a trainer."""

    @property
    def named(self) -> str:
        """The name and release, as in ``megatron 0.16``."""

    def training(self, training: Training) -> Training:
        """Return the training with the settings that this trainer always uses."""

    def refuses(self, space: Space, choice: Choice) -> str:
        """Return the reason why the trainer cannot run a choice; empty if it can."""

    def launch(self, space: Space, choice: Choice, order: Schedule | None = None) -> Launch:
        """Return the configuration of a supported choice. order: replaces the choice's order, if the trainer can load
        one.
        """

    def judged(self, launch: Launch) -> str:
        """Return the first error that `check` finds in a configuration, or an empty string."""


@lru_cache(maxsize=8)
def launcher(text: str) -> Launcher:
    """Parse a trainer and release such as ``megatron==0.16``.

    Raises:
        PipeschedError: PS225, PS250.
    """
    if (offered := service("launcher")) is None:
        raise fail(PlanningCode.TRAINER, "no installed extension supports trainers")
    return cast("Launcher", offered(text))
