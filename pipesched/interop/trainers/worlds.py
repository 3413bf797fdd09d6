"""Judges a configuration in every world that it allows, and reports the findings common to these worlds.

A world is a release that has all of the settings, a version of torch, and a value for each unknown setting. Every
release is tried, but only a sample of the values: agreement over values is evidence, not proof. An error in only some
releases is reported as possible, with these releases.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TypeAlias, TypeVar

from pipesched.diagnostics import Diagnostic
from pipesched.interop.trainers.case import Case, Fact, Finding, Note, NotJudged, Plan
from pipesched.interop.trainers.keys import Key
from pipesched.interop.trainers.settings import Setting, Settings, Unset
from pipesched.interop.trainers.trainers import Trainer
from pipesched.model.torch_versions import TorchVersion

_FILLED = 16  # worlds with sampled values for open settings


@dataclass(frozen=True)
class Possible:
    """An error in only some of the possible releases or versions of torch. where: their names."""

    found: Diagnostic
    where: str


@dataclass(frozen=True)
class Outcome:
    """The plan, facts and errors common to every world; the newest release's notes; the errors of only some worlds."""

    plan: Plan
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    possible: tuple[Possible, ...] = ()


@dataclass(frozen=True)
class _World:
    case: Case
    plan: Plan
    found: tuple[Finding, ...]

    @cached_property
    def errors(self) -> dict[object, Diagnostic]:
        return {_same(x): x for x in self.of(Diagnostic)}

    def of(self, kind: type[Found]) -> tuple[Found, ...]:
        """Return the findings of one kind."""
        return tuple(x for x in self.found if isinstance(x, kind))

    def named(self, more: More) -> _World:
        """Return the world with only the findings of `more`, the rules for a file that its plan names."""
        return replace(self, found=tuple(more(self.case, self.plan)))

    def shared(self, others: Iterable[_World]) -> set[object]:
        """Return the keys of the errors that all other worlds also have."""
        return set(self.errors).intersection(*(x.errors for x in others))


Found = TypeVar("Found")
More: TypeAlias = Callable[[Case, Plan], Iterator[Finding]]


def outcome(row: Trainer, case: Case, worlds: Iterable[tuple[str, TorchVersion]], more: More) -> Outcome:
    """Judge all worlds. worlds: releases and versions of torch. more: rules for a file that a plan names (its CSV)."""
    base = _world(row, case)
    others = [_world(row, replace(case, release=x, torch=y)) for x, y in worlds]
    every = [*others, *(_world(row, replace(case, settings=x)) for x in _fillings(row, case))]
    named = base.named(more)
    again = [world.named(more) for world in others] if named.errors else []
    sure = base.shared(every) | named.shared(again)
    certain = (x for same, x in {**base.errors, **named.errors}.items() if same in sure)
    releases = _span(sorted({case.release, *map(_release, others)}, key=_number))
    several = len(set(map(_release, others))) > 1
    notes = (f"in every known release that has these settings: {releases}",) if several else ()
    return Outcome(
        _agreed([world.plan for world in (base, *every)]),
        (*(x for x in base.of(Fact) if all(x in world.found for world in every)), *named.of(Fact)),
        tuple(x.text for x in base.of(Note)),
        tuple(name for x in base.of(NotJudged) for name in x.names),
        tuple(replace(x, notes=(*x.notes, *notes)) for x in certain),
        (*_possible(others, sure), *_possible(again, sure)),
    )


def _world(row: Trainer, case: Case) -> _World:
    plan = row.plan(case)
    return _World(case, plan, tuple(row.check(case, plan)))


def _same(found: Diagnostic) -> object:
    """Return the identity of a finding across worlds: its code and places."""
    return found.code, tuple((x.span.start, x.span.end) if x.span else x.message for x in found.labels)


def _fillings(row: Trainer, case: Case) -> Iterator[Settings]:
    """Yield settings with a sampled value for each unknown one, and with extra options if a command may hide some."""
    settings = case.settings
    keys = row.keys(settings)
    open = [x for x in settings if isinstance(x.value, Unset) and x.key in keys]
    hidden = [name for name in keys if name not in settings and settings.open_at]
    chance = random.Random(0)
    for _ in range(_FILLED if open or hidden else 0):
        given = {x.key: replace(x, value=_sample(keys[x.key], x, chance)) for x in open}
        added = {name: Setting(name, None) for name in hidden if chance.random() < 1 / 3}
        given |= {name: replace(x, value=_sample(keys[name], x, chance)) for name, x in added.items()}
        yield replace(settings, given={**settings.given, **given})


def _sample(key: Key, setting: Setting, chance: random.Random) -> object:
    return chance.choice(key.kind.samples or (setting.value,))


def _agreed(plans: list[Plan]) -> Plan:
    """Return the fields on which all plans agree; if only some have a pipeline, the first plan's CSV and options."""
    if len({plan.off for plan in plans}) > 1:
        return Plan(csv=plans[0].csv, options=plans[0].options)
    names = (x.name for x in fields(Plan) if x.name not in ("csv", "placement"))
    same = {name: len({getattr(plan, name) for plan in plans}) == 1 for name in names}
    empty = {name: getattr(Plan(), name) for name, agreed in same.items() if not agreed}
    return replace(plans[0], **empty)


def _possible(others: list[_World], sure: set[object]) -> Iterator[Possible]:
    """Yield the errors of only some releases or versions, newest first, each with the releases in which it occurs."""
    found = {same: x for world in others for same, x in world.errors.items()}
    for same, error in reversed(found.items()):
        if same not in sure:
            yield Possible(error, _where(others, [world for world in others if same in world.errors]))


def _where(others: list[_World], having: list[_World]) -> str:
    """Return the releases and versions as text: ``0.9 to 0.12``, ``torch 2.11 to 2.15``, or both."""
    releases, versions = ({f(x) for x in others} for f in (_release, _torch))
    own, mine = (sorted({f(x) for x in having}, key=_number) for f in (_release, _torch))
    trainer = having[0].case.trainer
    parts = [f"{trainer} {_span(own)}"] if set(own) != releases or len(mine) == len(versions) else []
    parts += [f"torch {_span(mine)}"] if set(mine) != versions else []
    return " with ".join(parts)


def _release(world: _World) -> str:
    return world.case.release


def _torch(world: _World) -> str:
    return str(world.case.torch)


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(x) for x in text.split(".") if x.isdigit()) or (10**6,)


def _span(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
