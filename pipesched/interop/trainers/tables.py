"""Reads a trainer's tables from its TOML file: releases, keys, and rules as rows.

    releases = ["0.18", "0.19"]
    keys.launcher.micro_batch_size = {kind = "count", first = "0.18"}        a row of `keys`
    places.ends = ["num_layers_in_first_pipeline_stage", …]                  a name for several keys
    sources.config = "Megatron-LM core_v{release}.0, transformer_config.py"
    facts.grouped = "count(num_experts) and on(moe_grouped_gemm)"             a name for an expression

    [[groups]]                                  only the first broken row of a group is reported
    when = "on(moe_shared_expert_overlap)"      the condition shared by its rows; a group without rows is one row
    source = "config"

    [[groups.rows]]
    when = "text(moe_token_dispatcher_type) not in ('alltoall', 'flex')"
    says = "shared experts overlap with the dispatch only with the dispatcher alltoall or flex"
    since = "0.18"

A condition (`when`) is a Python expression. It can use the attributes of `Facts`, the names in the table of facts, and
the names of keys. Messages contain such expressions in braces. An error is reported at the settings `at`, or at the
keys in its condition. A row with `fact` states a fact on that subject instead of an error; `notes` adds a note.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias

from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers.case import Case, Fact, Findings, Note, samples, wrong
from pipesched.interop.trainers.keys import KINDS, Key, one_of
from pipesched.interop.trainers.settings import Setting, Unset

Table: TypeAlias = dict[str, Any]  # a table of a TOML file of this folder
_FILLED = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True)
class Facts:
    """The facts that a trainer's rules use; a trainer adds its own names."""

    case: Case

    def __getitem__(self, key: str) -> Setting:
        return self.case.settings(key)

    @property
    def release(self) -> str:
        """The release of the trainer."""
        return self.case.release

    @property
    def torch(self) -> str:
        """The version of torch."""
        return str(self.case.torch)

    @property
    def processes(self) -> int | None:
        """The number of all processes, None if unknown."""
        return self.case.processes

    def since(self, release: str) -> bool:
        """Return True if the case is for this release or a later one."""
        return self.case.since(release)

    def on(self, *keys: str) -> bool:
        """Return True if all of these flags are set."""
        return all(self[key].value is True for key in keys)

    def given(self, *keys: str) -> list[Setting]:
        """Return the settings of these keys that are given with a value other than false and null."""
        return [self[key] for key in keys if self[key].value not in (None, False) and self[key].at is not None]

    def has(self, *keys: str) -> bool:
        """Return True if any of these keys is given."""
        return any(key in self.case.settings for key in keys)

    def open(self, *keys: str) -> bool:
        """Return True if the value of any of these keys is unknown."""
        return any(isinstance(self[key].value, Unset) for key in keys)

    def whole(self, key: str) -> int | None:
        """Return the value of a key if it is an integer, otherwise None."""
        value = self[key].value
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def count(self, key: str) -> int | None:
        """Return the value of a key if it is a positive integer, otherwise None."""
        value = self.whole(key)
        return value if value is not None and value >= 1 else None

    def value(self, key: str) -> object:
        """Return the value of a key."""
        return self[key].value

    def shown(self, key: str) -> str:
        """Return the name and value of a key."""
        return self[key].shown

    def text(self, key: str) -> str:
        """Return the value of a key if it is a string, otherwise empty."""
        value = self[key].value
        return value if isinstance(value, str) else ""

    def contains(self, key: str, word: str) -> bool:
        """Return True if the value of a key is a list or a string that contains this word."""
        value = self[key].value
        return isinstance(value, list | str) and word in value

    def samples(self, count: int | None) -> str:
        """Return a count of samples in words."""
        return samples(count)

    def absent(self, *keys: str) -> list[str]:
        """Return the keys that are not given."""
        return [key for key in keys if key not in self.case.settings]

    def places(self, keys: tuple[str, ...]) -> list[Setting]:
        """Return the settings at which a rule on these keys is reported: the given ones, or else the first."""
        return [self[key] for key in keys if key in self.case.settings] or [self[key] for key in keys[:1]]


@dataclass(frozen=True)
class Rule:
    """A condition, and the finding if it is true. row: the finding's texts. at: the keys of the settings at which it is
    reported. since, until: the first and the last release with this rule.
    """

    when: CodeType
    row: Mapping[str, str]
    at: tuple[str, ...]
    since: str
    until: str


class _Names(dict[str, object]):
    """The names that a condition can use: keys, which stand for themselves, and facts of the file and of the module."""

    def __init__(self, tables: Tables, facts: Facts) -> None:
        super().__init__((key, key) for key in tables.every)
        self.own, self.facts = tables.facts, facts

    def __missing__(self, name: str) -> object:
        if name in self.own:
            self[name] = eval(self.own[name], self)
            return self[name]
        if not hasattr(self.facts, name):
            raise KeyError(name)  # a function of Python
        return getattr(self.facts, name)

    def filled(self, text: str) -> str:
        """Return a message in which the expressions in braces are replaced by their values."""
        return _FILLED.sub(lambda found: str(eval(found[1], self)), text)


@dataclass(frozen=True)
class Tables:
    """The tables of a trainer. made: the contents of its TOML file."""

    made: Table

    @cached_property
    def releases(self) -> tuple[str, ...]:
        """The known releases, from the first to the last."""
        return tuple(self.made["releases"])

    @cached_property
    def places(self) -> Mapping[str, tuple[str, ...]]:
        """Names for groups of keys."""
        return {name: tuple(keys) for name, keys in self.made.get("places", {}).items()}

    def keys(self, *sections: str) -> dict[str, Key]:
        """Return the keys of these sections, or of all sections if none is named."""
        rows = (row for section in sections or self.made["keys"] for row in self.made["keys"][section].items())
        return {name: _key(**row) for name, row in rows}

    @cached_property
    def every(self) -> dict[str, Key]:
        """The keys of all sections."""
        return self.keys()

    @cached_property
    def facts(self) -> dict[str, CodeType]:
        """The facts of the file by name, each an expression of keys and other facts."""
        return {name: compile(f"({text})", text, "eval") for name, text in self.made.get("facts", {}).items()}

    @cached_property
    def groups(self) -> tuple[tuple[Rule, ...], ...]:
        """The rules by group."""
        return tuple(tuple(self._rule(group, row) for row in group.get("rows", ({},))) for group in self.made["groups"])

    def _rule(self, group: Table, row: Table) -> Rule:
        said = {"since": self.releases[0], "until": self.releases[-1], **self.made.get("defaults", {}), **group, **row}
        asked = " and ".join(f"({x['when']})" for x in (group, row) if "when" in x) or "True"
        when = compile(asked, asked, "eval")
        own = [key for key in when.co_names if key in self.every]
        at = [key for name in said.get("at", own) for key in self.places.get(name, (name,))]
        return Rule(when, said, tuple(at), said["since"], said["until"])

    def findings(self, facts: Facts) -> Findings:
        """Yield a finding for the first broken row of every group."""
        names, order = _Names(self, facts), self.releases.index
        now = order(facts.release)
        for group in self.groups:
            there = (rule for rule in group if order(rule.since) <= now <= order(rule.until))
            broken = next((rule for rule in there if eval(rule.when, names)), None)
            if broken is not None:
                yield from self._told(broken, names)

    def _told(self, rule: Rule, names: _Names) -> Findings:
        row = {name: names.filled(text) for name, text in rule.row.items() if name in ("says", "notes", "help")}
        if "fact" in rule.row:
            yield Fact(rule.row["fact"], row["says"])
        elif "says" in row:
            source = names.filled(self.made["sources"].get(rule.row["source"], rule.row["source"]))
            code = InteropCode(rule.row.get("code", InteropCode.CONFIG_COMBINATION))
            yield wrong(code, row["says"], source, *names.facts.places(rule.at), help=row.get("help"))
        if "notes" in row:
            yield Note(row["notes"])


def _key(kind: str | list[str] = "any", *, minor: bool = False, optional: bool = False, **row: Any) -> Key:
    own = KINDS[kind] if isinstance(kind, str) else one_of(*kind)
    return Key(own, minor=minor, optional=optional or minor, **row)


def data(name: str) -> Table:
    """Return the contents of a TOML file of this folder."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))


def read(trainer: str) -> Tables:
    """Read the tables of a trainer."""
    return Tables(data(trainer))
