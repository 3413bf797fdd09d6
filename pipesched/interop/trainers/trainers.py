"""TRAINERS: a row for every trainer whose configuration is judged.

    name             typed as     texts                    recognized by
    torchtitan       torchtitan   toml, shell, python      `marks`: settings that no other project has
    Megatron-core    megatron     shell, yaml
    DeepSpeed        deepspeed    json

A new trainer needs a TOML file with its keys and rules, a module with the facts that the rules name, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

from pipesched.diagnostics import Code, Label, fail
from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers import deepspeed, megatron, megatron_sizes, torchtitan
from pipesched.interop.trainers.case import Case, Findings, Plan
from pipesched.interop.trainers.keys import Key, known_in, nearest
from pipesched.interop.trainers.marks import others, own
from pipesched.interop.trainers.settings import Setting, Settings, Unread, Unset
from pipesched.model.torch_versions import DEFAULT, VERSIONS, TorchVersion


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """A trainer. typed: its name on a command line. texts: the kinds of files from which its settings are read.

    canonical: returns the table's name for a key. keys: returns the table for these settings. releases_of: returns the
    releases that read such settings; None if all do. torch_least: returns the first version of torch that runs a
    release; None if torch does not matter. plan: returns the schedule that the settings request. check: yields the
    findings of every rule. part: selects the settings that count. ranks: the key that sets p, which a variable of a
    script may also set. forked: True if other projects, for which there are no rules, share its options.
    """

    name: str
    typed: str
    texts: tuple[str, ...]
    releases: tuple[str, ...]
    keys: Callable[[Settings], Mapping[str, Key]]
    plan: Callable[[Case], Plan]
    check: Callable[[Case, Plan], Findings]
    part: Callable[[Settings], Settings]
    ranks: str | None = None
    forked: bool = False
    canonical: Callable[[str], str] = str
    releases_of: Callable[[Settings], tuple[str, ...]] | None = None
    torch_least: Callable[[str], tuple[int, int]] | None = None

    def settled(self, settings: Settings) -> Settings:
        """Return the settings under the table's names and with its defaults."""
        part = self.part(settings)
        keys = self.keys(part)
        renamed = (replace(x, key=self.canonical(x.key), written=x.key) for x in part)
        again = tuple(replace(x, key=self.canonical(x.key), written=x.key) for x in part.repeated)
        defaults = {name: key.default for name, key in keys.items()}
        given = {x.key: _from_elsewhere(x, keys.get(x.key), settings.kind) for x in renamed}
        return replace(part, given={**given, **self._unread(part, keys, given)}, repeated=again, defaults=defaults)

    def _unread(self, settings: Settings, keys: Mapping[str, Key], given: Mapping[str, Setting]) -> dict[str, Setting]:
        """Return the settings whose names are in unread parts of the file: neither value nor default is known."""
        found: dict[str, Setting] = {}
        for mention in settings.mentions:
            option = mention.name.startswith("--")
            key = self.canonical(mention.name) if option else self.ranks
            if key and key in keys and (option or key not in given):
                unread = Unread(mention.at)
                value = Unset(unread.text) if keys[key].minor else unread
                found.setdefault(key, Setting(key, value, mention.at, mention.name))
        return found

    def torches(self, release: str) -> tuple[TorchVersion, ...]:
        """Return the versions of torch that can run a release."""
        if self.torch_least is None:
            return (DEFAULT,)
        least = self.torch_least(release)
        return tuple(x for x in VERSIONS if x.number >= least)

    def torch(self, release: str) -> TorchVersion:
        """Return the version of torch that is assumed for a release."""
        able = self.torches(release)
        return DEFAULT if DEFAULT in able else able[-1]

    def candidates(self, settings: Settings) -> tuple[str, ...]:
        """Return the possible releases of a configuration: all that have its keys, or else all that read it."""
        table, keys = self.releases, self.keys(settings)
        read = self.releases_of(settings) if self.releases_of else table
        own = [keys[x.key] for x in settings if x.key in keys]
        return tuple(release for release in read if all(known_in(table, release, key) for key in own)) or read

    def known(self, settings: Settings) -> int:
        """Return the number of given keys that the trainer has, 0 if the trainer does not read files of this kind."""
        if settings.kind not in self.texts:
            return 0
        keys = self.keys(settings)
        return sum(self.canonical(setting.key) in keys for setting in settings)


TRAINERS = (
    Trainer(
        name=torchtitan.NAME,
        typed="torchtitan",
        texts=("toml", "shell", "python"),
        releases=torchtitan.RELEASES,
        keys=lambda _: torchtitan.KEYS,
        plan=torchtitan.plan,
        check=torchtitan.check,
        part=torchtitan.part,
        canonical=torchtitan.canonical,
        releases_of=torchtitan.releases_of,
        torch_least=torchtitan.torch_least,
    ),
    Trainer(
        name=megatron.NAME,
        typed="megatron",
        texts=("shell", "yaml"),
        releases=megatron_sizes.TABLES.releases,
        keys=megatron.keys_of,
        plan=megatron.plan,
        check=megatron.check,
        part=megatron.part,
        canonical=megatron.canonical,
        ranks=megatron_sizes.PP,
        forked=True,
    ),
    Trainer(
        name=deepspeed.NAME,
        typed="deepspeed",
        texts=("json",),
        releases=deepspeed.TABLES.releases,
        keys=lambda _: deepspeed.KEYS,
        plan=deepspeed.plan,
        check=deepspeed.check,
        part=deepspeed.part,
    ),
)

NAMES = tuple(row.typed for row in TRAINERS)


def _from_elsewhere(setting: Setting, key: Key | None, kind: str) -> Setting:
    """Mark a setting as unknown if its value (null, or -1 in YAML) shows that it is set elsewhere."""
    if kind == "shell" or key is None:
        return setting
    absent = setting.value is None and not key.optional
    if absent or (kind == "yaml" and setting.value == -1 and not key.kind.holds(-1)):
        return replace(setting, value=Unset(f"{'null' if absent else '-1'}, so the value is set elsewhere"))
    return setting


def named(text: str) -> tuple[Trainer, str | None]:
    """Parse a trainer and release such as ``torchtitan==0.2.2``; a patch number that no release has is dropped.

    Raises:
        PipeschedError: PS225 if the trainer or release is unknown.
    """
    name, _, release = text.partition("==")
    row = next((row for row in TRAINERS if row.typed == name.strip().lower()), None)
    if row is None:
        near = get_close_matches(name.lower(), NAMES, 1)
        help = f"did you mean {near[0]}?" if near else None
        raise fail(Code.USAGE, f"no trainer is called {name[:40]!r}; known trainers: {', '.join(NAMES)}", help=help)
    asked = release.strip().removeprefix("core_").removeprefix("v")
    found = next((x for x in row.releases if asked == x or asked.startswith(f"{x}.")), None)
    if found is None and "==" in text:
        known = ", ".join(row.releases)
        raise fail(Code.USAGE, f"pipesched has no rules for {row.name} {asked[:20]!r}; it has rules for {known}")
    return row, found


def like(settings: Settings) -> Trainer | None:
    """Return the trainer whose options a command has, if its forks read p, v and m in the same way; otherwise None."""
    forked = settings.kind == "shell" and others(settings) is None and own(settings) is None
    return next((row for row in TRAINERS if row.forked and row.known(settings)), None) if forked else None


def trainer_of(settings: Settings) -> Trainer:
    """Return the trainer of a configuration, by a mark that only this trainer's configurations have.

    Raises:
        PipeschedError: PS871 if the configuration has no mark, or a mark of another project.
    """
    name = settings.source.name
    if (other := others(settings)) is not None:
        project, shown = other
        label = (
            shown.label if isinstance(shown, Setting) else Label(None, (f"it has {shown[:60]}, a setting of {project}"))
        )
        message = f"{name} belongs to {project}, for which pipesched has no rules"
        raise fail(InteropCode.CONFIG_UNKNOWN, message, label)
    found = own(settings)
    row = next((row for row in TRAINERS if row.name == found), None)
    if row is not None:
        return row
    alike = [row for row in TRAINERS if row.known(settings)]
    if alike:
        kinds = " or ".join(f"--trainer {row.typed}==RELEASE" for row in alike)
        message = f"{name} has settings of {alike[0].name}, but none that is unique to {alike[0].name}"
        shared = "forks have the same options" if settings.kind == "shell" else ("other projects also have them")
        raise fail(InteropCode.CONFIG_UNKNOWN, f"{message}: {shared}", help=f"{kinds} selects the trainer")
    known = ", ".join(row.name for row in TRAINERS)
    near = next((pair for setting in settings if (pair := _near(settings, setting))), None)
    if near is None:
        message = f"{name} does not contain a pipeline setting of a known trainer: {known}"
        raise fail(InteropCode.CONFIG_UNKNOWN, message, help="--trainer NAME selects the trainer")
    setting, meant = near
    raise fail(InteropCode.CONFIG_UNKNOWN, f"{name} has no setting of a known trainer", setting.label, help=meant)


def _near(settings: Settings, setting: Setting) -> tuple[Setting, str] | None:
    """Return the setting and a help text if its key resembles a key of a trainer; otherwise None."""
    for row in TRAINERS:
        if settings.kind in row.texts:
            close = nearest(row.canonical(setting.key), row.keys(settings), 0.75)
            if close:
                return setting, f"did you mean {close[0]}, of {row.name}?"
    return None
