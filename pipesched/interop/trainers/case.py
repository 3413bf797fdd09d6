"""Data types of a check: the configuration with its release (Case), its schedule (Plan), and findings.

A rule is a function from a case to findings. A diagnostic has labels at all settings involved, and the source of the
rule as a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipesched.diagnostics import AnyCode, Diagnostic
from pipesched.interop.trainers.settings import Setting, Settings
from pipesched.model.torch_versions import TorchVersion


@dataclass(frozen=True)
class Plan:
    """The schedule of a configuration. A field is None if the settings do not determine it.

    name: the trainer's name for the schedule. chunks: the stages per rank. microbatch_size: in samples. csv: the
    setting that names a file whose order replaces the schedule's. options: ``-D`` options for the trainer's own code,
    if its order or messages differ from the library's. off: the reason why there is no pipeline.
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
        """The total number of stages of the model."""
        return None if self.ranks is None or self.chunks is None else self.ranks * self.chunks


@dataclass(frozen=True)
class Case:
    """A configuration to be checked. torch: the version of torch that runs it, if it matters. processes: the number of
    processes of the whole job, if known. size: the key of the setting that determines p. assumed: True if the release
    is assumed, since neither the user nor the settings name it.
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
        """Trainer and release, as in ``torchtitan 0.2.2``."""
        return f"{self.trainer} {self.release}"

    def since(self, release: str) -> bool:
        """Return True if the case is for this release or a later one."""
        return self.releases.index(self.release) >= self.releases.index(release)


@dataclass(frozen=True)
class Fact:
    """A fact about a configuration. about: its subject, such as ``microbatches``."""

    about: str
    text: str


@dataclass(frozen=True)
class Note:
    """A remark that is not an error, or that names a part that could not be judged."""

    text: str


@dataclass(frozen=True)
class NotJudged:
    """The settings that no rule covers."""

    names: tuple[str, ...]


Finding: TypeAlias = Diagnostic | Fact | Note | NotJudged
Findings: TypeAlias = Iterator[Finding]


def samples(count: int | None) -> str:
    """Return a count of samples in words, as in ``1 sample``."""
    return "an unknown number of samples" if count is None else f"{count} sample{'s' * (count != 1)}"


def wrong(code: AnyCode, message: str, source: str, *settings: Setting, help: str | None = None) -> Diagnostic:
    """Return a diagnostic with labels at settings; given settings come before defaults."""
    placed = sorted(settings, key=lambda setting: setting.at is None)
    return Diagnostic(code, message, tuple(x.label for x in placed), (f"source: {source}",), help)
