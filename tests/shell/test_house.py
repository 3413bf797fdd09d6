"""The core stays small and well structured: its number of lines, its folders, and the order of imports are checked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pipesched.extension import registered

pytestmark = pytest.mark.quick

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "pipesched"
EXTENSIONS = {"shell", *registered}
MOST_LINES = 14_000  # a change that needs more makes room for it
ROOMS, AT_THE_ROOT, FLOORS = 12, 10, 15


def layers() -> list[str]:
    contracts = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (core,) = (one for one in contracts if one["name"] == "Core and extensions")
    assert "ignore_imports" not in core
    return list(core["layers"])


def folders() -> set[str]:
    return {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}


def test_the_core_is_small() -> None:
    """The core has a bounded number of lines, folders, and modules at the root."""
    root = [*PACKAGE.glob("*.py")]
    rooms = folders() - EXTENSIONS
    files = [*root, *(path for room in rooms for path in (PACKAGE / room).rglob("*.py"))]
    lines = sum(path.read_text("utf-8").count("\n") for path in files)
    assert lines <= MOST_LINES, f"the core has {lines:,} lines: take {lines - MOST_LINES} elsewhere"
    assert len(rooms) <= ROOMS and len(root) <= AT_THE_ROOT


def test_the_core_lies_below_every_extension() -> None:
    """The contract of layers has no exception, lists the whole core from `verbs` down, and above that only extensions.

    An extension that the contract does not list is above all others: nothing imports it.
    """
    floors = [{name.strip() for name in floor.split("|")} for floor in layers()]
    first = floors.index({"verbs"})
    above, core = set().union(*floors[:first]) - {"__main__"}, set().union(*floors[first:])
    modules = {path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")}
    assert core == (folders() - EXTENSIONS) | modules and len(floors) - first <= FLOORS
    assert above <= EXTENSIONS, "an extension is in `_EXTENSIONS` of pipesched/__init__.py"
    others = {name: re.compile(rf"^\s*(from|import) pipesched\.{name}\b", re.M) for name in EXTENSIONS - above}
    for path in PACKAGE.rglob("*.py"):
        for name, imported in others.items():
            if path.relative_to(PACKAGE).parts[0] != name:
                assert not imported.search(path.read_text("utf-8")), f"{path} imports {name}, which needs a layer"


def test_the_page_shows_the_layers() -> None:
    """The list in CONTRIBUTING has a paragraph for each layer of extensions, in the order of the contract."""
    page = (TOP / ".github" / "CONTRIBUTING.md").read_text("utf-8")
    listed = page.partition("```text\nshell/")[2].partition("\n---")[0]
    paragraphs = [set(re.findall(r"^(\w+)/", paragraph, re.M)) for paragraph in f"shell/{listed}".split("\n\n")]
    floors = [{name.strip() for name in floor.split("|")} for floor in layers()]
    assert paragraphs == floors[1 : floors.index({"verbs"})]


def test_an_extension_says_what_it_adds() -> None:
    """Every extension but the shell has rows, which import only kinds of row."""
    for name in EXTENSIONS - {"shell"}:
        text = (PACKAGE / name / "rows.py").read_text("utf-8")
        ours = [line for line in text.splitlines() if line.startswith(("import pipesched", "from pipesched"))]
        kinds = {"pipesched.extension", *(f"pipesched.{one}.rows" for one in EXTENSIONS)}
        assert {line.split()[1] for line in ours} <= kinds, name
