"""Recognizes a configuration's trainer by marks that only this trainer's configurations have.

    a mark of a project that has no rules here     not judged; the project is named
    a mark of a trainer                            that trainer
    no mark                                        not judged: four projects have a pretrain_gpt.py

The marks are rows of `marks.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipesched.interop.trainers.settings import Setting, Settings
from pipesched.interop.trainers.tables import data


@dataclass(frozen=True)
class Mark:
    """The mark of a project's configurations; the fields are the keys of a row of `marks.toml`."""

    project: str
    texts: Sequence[str]
    keys: Sequence[str] = ()
    all: Sequence[str] = ()
    words: Sequence[str] = ()
    text: Sequence[str] = ()

    def of(self, settings: Settings) -> Setting | str | None:
        """Return the setting or word that identifies a configuration as the project's, or None."""
        if settings.kind not in self.texts:
            return None
        keys = [(x, x.key.replace("_", "-")) for x in settings]
        if not all(any(re.fullmatch(one, key) for _, key in keys) for one in self.all):
            return None
        found = next((x for x, key in keys if re.fullmatch(_any(self.keys), key)), None)
        if found is not None:
            return found
        word = next((x for x in settings.words if re.search(_any(self.words), x)), None)
        text = re.search(_any(self.text), settings.source.text) if settings.kind == "shell" else None
        return word or (text and text[0]) or None


def _any(patterns: Sequence[str]) -> str:
    """Return a pattern that matches if one of the patterns matches; without patterns, a pattern that never matches."""
    return "|".join(patterns) or r"\b\B"


_MADE = data("marks")
OTHERS, OWN = ([Mark(**row) for row in _MADE[name]] for name in ("others", "own"))


def others(settings: Settings) -> tuple[str, Setting | str] | None:
    """Return the project without rules to which the settings belong, and the setting or word that shows it."""
    return next(((mark.project, found) for mark in OTHERS if (found := mark.of(settings))), None)


def own(settings: Settings) -> str | None:
    """Return the name of the trainer to which the configuration belongs, None if it has no trainer's mark."""
    return next((mark.project for mark in OWN if mark.of(settings)), None)
