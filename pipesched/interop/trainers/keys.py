"""Checks settings by the table of a trainer's keys: the releases of each key, allowed values, and replacements.

An unknown key is an error in a section in which the trainer refuses unknown keys. In other sections it is an error only
if it resembles the name of a pipeline key; all other unknown keys are not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from pipesched.diagnostics import Diagnostic
from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers.case import Case, Findings, Note, NotJudged, wrong
from pipesched.interop.trainers.settings import Setting, Unread, Unset, short

_LONGER = 3  # most characters by which a misspelled name is longer or shorter
_NEAR = 0.88  # none of the other 1,047 options of Megatron-LM is so similar to a pipeline key


@dataclass(frozen=True)
class Kind:
    """The kind of a value. what: its name in messages. holds: returns True if a value is of this kind. samples:
    examples of its values.
    """

    what: str
    holds: Callable[[object], bool]
    samples: tuple[object, ...] = ()


def _whole(least: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def one_of(*names: str) -> Kind:
    """Return the kind of settings whose value is one of a few names."""
    return Kind(f"one of {', '.join(names)}", lambda value: value in names)


FLAG = Kind("true or false", lambda value: isinstance(value, bool), (True, False))
ANY = Kind("anything", lambda value: True)
KINDS = {
    "count": Kind("a positive whole number", _whole(1), (1, 2, 3, 4, 6, 8, 16, 64, 1024)),
    "from 0": Kind("a nonnegative whole number", _whole(0), (0, 1, 2)),
    "rest": Kind(
        "a positive whole number, or -1 for the rest", lambda value: value == -1 or _whole(1)(value), (1, 2, 4, 8)
    ),
    "flag": FLAG,
    "text": Kind("a string", lambda value: isinstance(value, str)),
    "parts": Kind("a list of lists of names", lambda value: isinstance(value, list | str)),
    "any": ANY,
}
"""The kinds by their names in the tables."""


@dataclass(frozen=True)
class Key:
    """A key of a trainer's settings. first, last: the first and the last release that has it. none: True if no known
    release has it. telling: True if its presence shows that the configuration is for an unknown release. elsewhere: the
    replacement in other releases, in words. optional: True if the value can be null or empty. minor: True if p, v and m
    do not depend on it; a similar name is then not taken for a misspelling.
    """

    kind: Kind = ANY
    default: object = None
    first: str | None = None
    last: str | None = None
    elsewhere: str = ""
    optional: bool = False
    none: bool = False
    telling: bool = False
    minor: bool = False


def known(case: Case, key: Key) -> bool:
    """Return True if the release of the case has the key."""
    return known_in(case.releases, case.release, key)


def known_in(releases: tuple[str, ...], release: str, key: Key) -> bool:
    """Return True if `release`, one of `releases`, has the key."""
    if key.none:
        return False
    order = releases.index
    low = order(key.first) if key.first else 0
    high = order(key.last) if key.last else len(releases)
    return low <= order(release) <= high


def judge(
    case: Case, keys: Mapping[str, Key], source: str, *, closed: Collection[str] = (), refuses: str = "refuses it"
) -> Findings:
    """Judge every setting by the table of keys.

    closed: sections in which every unknown key is an error. refuses: what the trainer does with such a key, in words.
    """
    own = [name for name, key in keys.items() if known(case, key) and not key.minor]
    strangers = [x for x in case.settings if x.key not in keys]
    wanted = () if case.assumed else closed
    found = {x.key: _stranger(case, x, own, source, wanted, refuses) for x in strangers}
    for setting in case.settings:
        key = keys.get(setting.key)
        one = found[setting.key] if key is None else _judged(case, setting, key, source)
        if one is not None:
            yield one
    for setting in case.settings.repeated:
        if setting.key in keys:
            yield Note(f"{setting.at}: {setting.written} is given again later; the later value counts")
    aside = tuple(x.written for x in strangers if found[x.key] is None)
    if aside:
        yield NotJudged(aside)


def _stranger(
    case: Case, setting: Setting, own: list[str], source: str, closed: Collection[str], refuses: str
) -> Diagnostic | None:
    """Return the diagnostic on a setting whose key is not in the table, None if it is not judged."""
    scalar = isinstance(setting.value, str | int | float | list) and not isinstance(setting.value, bool)
    near = nearest(setting.key, own, _NEAR)
    if scalar and any(name.startswith(f"{setting.key}.") for name in own):
        message = f"{setting.written} is {short(setting.value)}, not a section of settings"
        return wrong(InteropCode.CONFIG_VALUE, message, source, setting)
    if near or setting.key.rpartition(".")[0] in closed:
        meant = near or _same_name(setting, own)
        help = f"did you mean {case.settings.spelled(meant[0])}?" if meant else None
        message = f"{case.trainer} has no {setting.written}, and {refuses}"
        return wrong(InteropCode.CONFIG_KEY, message, source, setting, help=help)
    return None


def _judged(case: Case, setting: Setting, key: Key, source: str) -> Diagnostic | Note | None:
    """Return the finding on a setting from the row of its key, None if it is correct."""
    if key.none and case.assumed:
        return Note(f"no known release has {setting.written}: {key.elsewhere}")
    if not known(case, key):
        help = key.elsewhere or f"it exists {_when(key)}"
        return wrong(InteropCode.CONFIG_RELEASE, f"{case.named} has no {setting.written}", source, setting, help=help)
    if isinstance(setting.value, Unset):
        said = Note(f"{setting.written} is {setting.value.text}: settings that depend on it are not judged")
        return None if isinstance(setting.value, Unread) else said
    if key.kind.holds(setting.value) or (key.optional and setting.value in (None, "")):
        return None
    message = f"{setting.written} is {short(setting.value)}, not {key.kind.what}"
    return wrong(InteropCode.CONFIG_VALUE, message, source, setting)


@lru_cache(maxsize=20_000)
def _close(key: str, names: tuple[str, ...], least: float) -> list[str]:
    return get_close_matches(key, names, 3, least)


def nearest(key: str, names: Collection[str], least: float) -> list[str]:
    """Return a list with one name whose parts all resemble the parts of the key, or an empty list."""
    parts = key.split(".")
    close = _close(key, tuple(names), least)
    for name in (x for x in close if abs(len(x) - len(key)) <= _LONGER):
        pairs = [*zip(parts, others, strict=True)] if len(others := name.split(".")) == len(parts) else []
        if pairs and all(get_close_matches(part, [other], 1, 0.8) for part, other in pairs):
            return [name]
    return []


def _same_name(setting: Setting, own: Collection[str]) -> list[str]:
    """Return a list with the key whose last part resembles the last part of the setting, or an empty list."""
    names = {name.rpartition(".")[2]: name for name in own}
    return [names[name] for name in get_close_matches(setting.key.rpartition(".")[2], names, 1, 0.7)]


def _when(key: Key) -> str:
    if key.first and key.last:
        return f"from {key.first} to {key.last}"
    return f"from {key.first} on" if key.first else f"up to {key.last}"
