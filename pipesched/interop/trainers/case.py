"""A configuration, the release that it is for, and what is said of it: facts that hold, notes, and diagnostics.

A rule is a function from a case to what it finds. What it finds wrong has the place of every setting that takes part,
and its source as a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipesched.diagnostics import Code, Diagnostic
from pipesched.interop.trainers.settings import Setting, Settings
from pipesched.model.torch_versions import TorchVersion


@dataclass(frozen=True)
class Plan:
    """The schedule of a configuration, as far as it says so. None: it does not.

    name: as the trainer has it. chunks: stages of each rank. placement: ``loop`` or ``vee``. csv: the file that has
    the order instead. options: of the trainer's own code, where its order or its messages are not the usual ones. off:
    there is no pipeline, and why.
    """

    name: str | None = None
    ranks: int | None = None
    chunks: int | None = None
    microbatches: int | None = None
    microbatch_size: int | None = None
    placement: Literal["loop", "vee"] = "loop"
    csv: Setting | None = None
    options: tuple[str, ...] = ()
    off: str | None = None

    @property
    def stages(self) -> int | None:
        """All stages of the model."""
        return None if self.ranks is None or self.chunks is None else self.ranks * self.chunks


@dataclass(frozen=True)
class Case:
    """What is judged. torch: the version that runs it, where that matters. processes: of all, if it is known.

    size: the key of p. assumed: nothing says which release it is for.
    """

    settings: Settings
    trainer: str
    release: str
    releases: tuple[str, ...]
    torch: TorchVersion
    ranks: int | None = None
    processes: int | None = None
    size: str | None = None
    assumed: bool = False

    @property
    def named(self) -> str:
        """``torchtitan 0.2.2``."""
        return f"{self.trainer} {self.release}"

    def since(self, release: str) -> bool:
        """Whether it is for this release or a later one."""
        return self.releases.index(self.release) >= self.releases.index(release)


@dataclass(frozen=True)
class Fact:
    """What holds, by what it is about."""

    about: str
    text: str


@dataclass(frozen=True)
class Note:
    """What a person should know and is no mistake, or could not be judged."""

    text: str


@dataclass(frozen=True)
class NotJudged:
    """Settings that no rule knows."""

    names: tuple[str, ...]


Finding: TypeAlias = Diagnostic | Fact | Note | NotJudged
Findings: TypeAlias = Iterator[Finding]


def samples(count: int | None) -> str:
    """``1 sample``."""
    return f"{count} sample{'s' * (count != 1)}"


def wrong(code: Code, message: str, source: str, *settings: Setting, help: str | None = None) -> Diagnostic:
    """A diagnostic at the places of settings: those that are written first."""
    placed = sorted(settings, key=lambda setting: setting.at is None)
    return Diagnostic(code, message, tuple(x.label for x in placed), (f"source: {source}",), help)
