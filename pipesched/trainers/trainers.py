"""TRAINERS: every trainer whose configuration is judged, a row each.

    name             typed as     texts            known by
    torchtitan       torchtitan   toml, shell      the most of its keys in the text
    NeMo AutoModel   automodel    yaml
    Megatron-core    megatron     shell, yaml
    DeepSpeed        deepspeed    json
    gpt-neox         gpt-neox     yaml, json

To add one is to add its file, with its table of keys and its rules, and its row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

from pipesched.diagnostics import Code, fail
from pipesched.model.torch_versions import TorchVersion
from pipesched.trainers import automodel, deepspeed, megatron, megatron_keys, torchtitan, torchtitan_keys
from pipesched.trainers.case import Case, Findings, Plan
from pipesched.trainers.keys import Key, nearest
from pipesched.trainers.settings import Setting, Settings


@dataclass(frozen=True)
class Trainer:
    """A trainer. typed: its name on a command line. texts: the kinds that it is read from.

    canonical: the name of a key as the table has it. keys: the table for these settings. release_of, torch_of: what is
    assumed where it is not said; None: torch has no part in its order. plan: what the
    settings say of the schedule. check: every rule. part: the settings that count.
    """

    name: str
    typed: str
    texts: tuple[str, ...]
    releases: tuple[str, ...]
    canonical: Callable[[str], str]
    keys: Callable[[Settings], Mapping[str, Key]]
    release_of: Callable[[Settings], str]
    torch_of: Callable[[str], TorchVersion] | None
    plan: Callable[[Case], Plan]
    check: Callable[[Case, Plan], Findings]
    part: Callable[[Settings], Settings] = lambda settings: settings

    def settled(self, settings: Settings) -> Settings:
        """The settings by the names of the table, with its defaults."""
        part = self.part(settings)
        keys = self.keys(part)
        renamed = (replace(x, key=self.canonical(x.key), written=x.key) for x in part)
        again = tuple(replace(x, key=self.canonical(x.key), written=x.key) for x in part.repeated)
        defaults = {name: key.default for name, key in keys.items()}
        return replace(part, given={x.key: x for x in renamed}, repeated=again, defaults=defaults)

    def known(self, settings: Settings) -> int:
        """How many of its keys a text has, 0 of a kind that it is not read from."""
        if settings.kind not in self.texts:
            return 0
        keys = self.keys(settings)
        return sum(self.canonical(setting.key) in keys for setting in settings)


TRAINERS = (
    Trainer(
        torchtitan.NAME,
        "torchtitan",
        ("toml", "shell"),
        torchtitan_keys.RELEASES,
        torchtitan.canonical,
        lambda _: torchtitan_keys.KEYS,
        torchtitan.release_of,
        torchtitan.torch_of,
        torchtitan.plan,
        torchtitan.check,
        torchtitan.part,
    ),
    Trainer(
        automodel.NAME,
        "automodel",
        ("yaml",),
        automodel.RELEASES,
        automodel.canonical,
        lambda _: automodel.KEYS,
        automodel.release_of,
        automodel.torch_of,
        automodel.plan,
        automodel.check,
    ),
    Trainer(
        megatron.NAME,
        "megatron",
        ("shell", "yaml"),
        megatron_keys.RELEASES,
        megatron.canonical,
        megatron.keys_of,
        megatron.release_of,
        None,
        megatron.plan,
        megatron.check,
        megatron.part,
    ),
    Trainer(
        deepspeed.NAME,
        "deepspeed",
        ("json",),
        deepspeed.RELEASES,
        deepspeed.canonical,
        lambda _: deepspeed.KEYS,
        deepspeed.release_of,
        None,
        deepspeed.plan,
        deepspeed.check,
        deepspeed.part,
    ),
    Trainer(
        deepspeed.NEOX,
        "gpt-neox",
        ("yaml", "json"),
        deepspeed.NEOX_RELEASES,
        deepspeed.neox_canonical,
        lambda _: deepspeed.NEOX_KEYS,
        deepspeed.neox_release_of,
        None,
        deepspeed.plan,
        deepspeed.check,
        deepspeed.part,
    ),
)
NOT_KNOWN = {"actor_rollout_ref.": "verl, which sets Megatron's messages by itself"}
"""Configurations that look like those of a row, by how a key begins."""

NAMES = tuple(row.typed for row in TRAINERS)


def named(text: str) -> tuple[Trainer, str | None]:
    """The row and the release of ``torchtitan==0.2.2``; a patch number that is not in the table is dropped.

    Raises:
        PipeschedError: PS225, there is none.
    """
    name, _, release = text.partition("==")
    row = next((row for row in TRAINERS if row.typed == name.strip().lower()), None)
    if row is None:
        near = get_close_matches(name.lower(), NAMES, 1)
        help = f"did you mean {near[0]}?" if near else None
        raise fail(Code.USAGE, f"no trainer is called {name[:40]!r}; there are {', '.join(NAMES)}", help=help)
    asked = release.strip().removeprefix("core_").removeprefix("v")
    found = next((x for x in row.releases if asked == x or asked.startswith(f"{x}.")), None)
    if asked and found is None:
        known = ", ".join(row.releases)
        raise fail(Code.USAGE, f"the rules of {row.name} {asked[:20]} are not known; those of {known} are")
    return row, found


def trainer_of(settings: Settings) -> Trainer:
    """The row whose keys a text has most of.

    Raises:
        PipeschedError: PS871, it has none of any.
    """
    for setting in settings:
        for begin, other in NOT_KNOWN.items():
            if setting.key.startswith(begin):
                message = f"{settings.source.name} is for {other}: its rules are not known here"
                raise fail(Code.CONFIG_UNKNOWN, message, setting.label)
    row = max(TRAINERS, key=lambda row: row.known(settings))
    if row.known(settings):
        return row
    near = next((pair for setting in settings if (pair := _near(settings, setting))), None)
    name = settings.source.name
    if near is None:
        known = ", ".join(row.name for row in TRAINERS)
        raise fail(
            Code.CONFIG_UNKNOWN,
            f"{name} has no setting of the pipeline of a trainer that is known: {known}",
            help="--trainer NAME says which it is for",
        )
    setting, meant = near
    raise fail(Code.CONFIG_UNKNOWN, f"{name} has no setting of a trainer that is known", setting.label, help=meant)


def _near(settings: Settings, setting: Setting) -> tuple[Setting, str] | None:
    """A setting that is nearly one of a trainer, and that one."""
    for row in TRAINERS:
        if settings.kind in row.texts:
            close = nearest(row.canonical(setting.key), row.keys(settings), 0.75)
            if close:
                return setting, f"did you mean {close[0]}, of {row.name}?"
    return None
