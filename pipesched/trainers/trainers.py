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
from pipesched.model.torch_versions import DEFAULT, TorchVersion
from pipesched.trainers import automodel, deepspeed, megatron, megatron_keys, torchtitan, torchtitan_keys
from pipesched.trainers.case import Case, Findings, Plan
from pipesched.trainers.keys import Key, nearest
from pipesched.trainers.settings import Setting, Settings, Unread


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """A trainer. typed: its name on a command line. texts: the kinds that it is read from.

    canonical: the name of a key as the table has it. keys: the table for these settings. release_of, torch_of: what is
    assumed where it is not said, the newest release unless there is a rule; None: torch has no part in its order. plan:
    what the settings say of the schedule. check: every rule. part: the settings that count. ranks: the key of p, which
    variables of a script may hold.
    """

    name: str
    typed: str
    texts: tuple[str, ...]
    releases: tuple[str, ...]
    keys: Callable[[Settings], Mapping[str, Key]]
    plan: Callable[[Case], Plan]
    check: Callable[[Case, Plan], Findings]
    part: Callable[[Settings], Settings] = lambda settings: settings
    ranks: str | None = None
    canonical: Callable[[str], str] = str
    release_of: Callable[[Settings], str] | None = None
    torch_of: Callable[[str], TorchVersion] | None = None

    def settled(self, settings: Settings) -> Settings:
        """The settings by the names of the table, with its defaults."""
        part = self.part(settings)
        keys = self.keys(part)
        renamed = (replace(x, key=self.canonical(x.key), written=x.key) for x in part)
        again = tuple(replace(x, key=self.canonical(x.key), written=x.key) for x in part.repeated)
        defaults = {name: key.default for name, key in keys.items()}
        given = {x.key: x for x in renamed}
        return replace(part, given={**given, **self._unread(part, keys, given)}, repeated=again, defaults=defaults)

    def _unread(self, settings: Settings, keys: Mapping[str, Key], given: Mapping[str, Setting]) -> dict[str, Setting]:
        """The settings whose names stand in the text unread: their values are not known, nor are their defaults."""
        found: dict[str, Setting] = {}
        for mention in settings.mentions:
            option = mention.name.startswith("--")
            key = self.canonical(mention.name) if option else self.ranks
            if key and key in keys and (option or key not in given):
                found.setdefault(key, Setting(key, Unread(mention.at), mention.at, mention.name))
        return found

    def known(self, settings: Settings) -> int:
        """How many of its keys a text has, 0 of a kind that it is not read from."""
        if settings.kind not in self.texts:
            return 0
        keys = self.keys(settings)
        return sum(self.canonical(setting.key) in keys for setting in settings)


TRAINERS = (
    Trainer(
        name=torchtitan.NAME,
        typed="torchtitan",
        texts=("toml", "shell"),
        releases=torchtitan_keys.RELEASES,
        keys=lambda _: torchtitan_keys.KEYS,
        plan=torchtitan.plan,
        check=torchtitan.check,
        part=torchtitan.part,
        canonical=torchtitan.canonical,
        release_of=torchtitan.release_of,
        torch_of=torchtitan.torch_of,
    ),
    Trainer(
        name=automodel.NAME,
        typed="automodel",
        texts=("yaml",),
        releases=("0.7.0",),
        keys=lambda _: automodel.KEYS,
        plan=automodel.plan,
        check=automodel.check,
        torch_of=lambda _: DEFAULT,  # it takes 2.8 and later
    ),
    Trainer(
        name=megatron.NAME,
        typed="megatron",
        texts=("shell", "yaml"),
        releases=megatron_keys.RELEASES,
        keys=megatron.keys_of,
        plan=megatron.plan,
        check=megatron.check,
        part=megatron.part,
        canonical=megatron.canonical,
        ranks=megatron_keys.PP,
    ),
    Trainer(
        name=deepspeed.NAME,
        typed="deepspeed",
        texts=("json",),
        releases=("0.19.8",),
        keys=lambda _: deepspeed.KEYS,
        plan=deepspeed.plan,
        check=deepspeed.check,
        part=deepspeed.part,
    ),
    Trainer(
        name=deepspeed.NEOX,
        typed="gpt-neox",
        texts=("yaml", "json"),
        releases=("2026-05-20",),
        keys=lambda _: deepspeed.NEOX_KEYS,
        plan=deepspeed.plan,
        check=deepspeed.check,
        part=deepspeed.part,
        canonical=lambda key: key.replace("-", "_"),
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
