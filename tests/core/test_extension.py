"""Extensions add rows and values of their own, and the core works without extensions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from pipesched import extension
from pipesched.analysis.idle import Idle
from pipesched.command import options
from pipesched.compile import load, lower, read
from pipesched.examine import Options
from pipesched.extension import Check, Lazy, Option, counting
from pipesched.model.release import AT_W
from pipesched.schedule_analysis import Analysis
from pipesched.shell.app import verbs

ALONE = """
import contextlib, io, json, sys
from pipesched import extension
folders = tuple(f"pipesched.{name}" for name in extension.registered)
extension.register()
from pipesched.compile import load, read
from pipesched.examine import Options
from pipesched.verbs.verify import verify
from pipesched.command import options
report = verify(read("1f1b"), Options({"p": 4, "m": 8}))
from pipesched.verbs.emit_command import emit
with contextlib.redirect_stdout(io.StringIO()) as written:
    emit.main(["1f1b", "--p", "2", "--json"], standalone_mode=False)
others = sorted(name for name in sys.modules if name.startswith(folders))
names = [option.name for option in options.of("verify")]
print(json.dumps([[*json.loads(written.getvalue())], report.ok, names, others, "bytes" in report.to_json()]))
"""


@dataclass(frozen=True)
class Mine:
    """A value of an extension."""

    size: int = 7


class Forgetful(dict[type[extension.Row], Sequence[extension.Row]]):
    """Keeps nothing."""

    def __setitem__(self, *entry: object) -> None:
        pass


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[extension.Row]:
    """Rows of an extension, added to the registered ones."""
    rows: list[extension.Row] = []
    monkeypatch.setattr(extension, "_all", lambda: tuple(rows))
    monkeypatch.setattr(extension, "_of_kind", Forgetful())
    monkeypatch.setattr(options, "of", options.of.__wrapped__)  # which keeps what it has found
    return rows


def test_a_value_of_an_extension_is_one_of_its_class() -> None:
    """Defaults if it is absent; a later value replaces an earlier one of its class only."""
    asked = Options({"p": 2}, owned=(AT_W,))
    assert asked.of(Mine) == Mine(7)
    asked = asked.owning(Mine(1)).owning(Mine(2))
    assert asked.of(Mine) == Mine(2) and len(asked.owned) == 2 and asked.parameters == {"p": 2}


def test_a_row_counts_where_its_owner_has_a_value(added: list[extension.Row]) -> None:
    """Nothing is imported to find out: a missing module does no harm."""
    every = Check("always", ("PS902",), Lazy("nowhere:check"))
    owned = Check("owned", ("PS902",), Lazy("nowhere:check"), owner=Lazy("model.release:Release"))
    added += [every, owned, Check("never", ("PS902",), Lazy("nowhere:check"), owner=Lazy("nowhere:Release"))]
    assert counting(Check, Options()) == [every]
    assert counting(Check, Options(owned=(AT_W,))) == [every, owned]


def test_an_option_follows_the_one_that_it_names(added: list[extension.Row]) -> None:
    """An option may follow one of another row; if that is missing, it comes last, so that no option is lost."""
    plain = [option.name for option in options.of("verify")]
    added += [
        Option("third", on=("verify",), after="second"),
        Option("second", on=("verify",), after="cost"),
        Option("last", on=("verify",), after="nothing"),
        Option("other", on=("show",)),
    ]
    at = plain.index("cost") + 1
    assert [option.name for option in options.of("verify")] == [*plain[:at], "second", "third", *plain[at:], "last"]


@pytest.mark.parametrize("command", sorted(verbs()))
def test_no_command_has_an_option_twice(command: str) -> None:
    """Each name has one row."""
    names = [option.name for option in options.of(command)]
    assert len(names) == len(set(names))


def test_a_fact_is_derived_once_until_another_program_counts() -> None:
    """A fact is found by its function, with the type that it returns."""
    calls: list[Analysis] = []

    def spent(made: Analysis) -> Idle | None:
        calls.append(made)
        return made.idle

    schedule = load(read("1f1b"), Options({"p": 2, "m": 2})).schedule
    made = Analysis(schedule)
    assert made.fact(spent) is made.fact(spent) is made.idle and calls == [made]
    other = made.having(lower(schedule))
    other.fact(spent)
    assert calls == [made, other]


def test_the_core_alone_verifies() -> None:
    """Without extensions it has its own options and parts, and imports no other folder."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    written, ok, names, others, said = json.loads(done.stdout)
    assert ok and "mem_cap" in names and not {"model", "device", "efficiency"} & {*names}
    assert others == [] and not said and {"ok", "text", "diagnostics"} <= {*written}
