"""The wheel contains every asset, importing the package loads nothing heavy, and the version is the same everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pipesched
from pipesched.library.assets import asset
from tests.shell.distributions import faults

TOP = Path(__file__).resolve().parents[2]


def test_the_version_is_that_of_the_project() -> None:
    """The installed metadata agree with pyproject.toml."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]

    assert version("pipesched") == project["version"]


def test_what_is_named_is_what_is_tried() -> None:
    """The lowest Python is the first named one, and each dependency has a lower bound, which CI installs."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
    named = [line.rpartition(" :: ")[2] for line in project["classifiers"] if " Python :: 3." in line]

    assert project["requires-python"] == f">={named[0]}"
    assert all(re.fullmatch(r"[\w-]+>=[\w.]+", line) for line in project["dependencies"])


def test_every_asset_is_in_the_wheel() -> None:
    """The wheel has every asset of a checkout under ``_assets``."""
    included = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    targets = included["force-include"]

    assert {"grammars", "schedules", "emit"} <= set(targets)
    assert all(target == f"pipesched/_assets/{source}" for source, target in targets.items())
    assert asset("grammars", "pipesched.lark").is_file()
    assert asset("grammars", "pipesched.lalr.json").is_file()


def test_metadata_without_a_shown_text_are_refused() -> None:
    """An index takes the metadata if they are valid, and have a description of a known type."""
    good = "Metadata-Version: 2.4\nName: a\nVersion: 1\nDescription-Content-Type: text/markdown\n\n# a\n"
    assert [*faults(good.encode())] == []
    for old, new in (
        ("\n# a", ""),
        ("text/markdown", "text/odd"),
        ("Version: 1\n", "Version: one\n"),
        ("Name: a\n", ""),
    ):
        assert [*faults(good.replace(old, new).encode())], old


def test_importing_the_package_imports_nothing_heavy() -> None:
    """`import pipesched` is cheap: numpy, lark, z3, torch and rich are imported at their first use."""
    heavy = "numpy lark click rich z3 torch networkx graphviz"
    code = f"import sys, pipesched; print([x for x in {heavy.split()!r} if x in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    """Every listed name can be used, and an unknown name is an AttributeError that names it."""
    assert all(getattr(pipesched, name) is not None for name in pipesched.__all__)
    assert set(pipesched.__all__) <= set(dir(pipesched))
    assert not hasattr(pipesched, "no_such_name")


def test_schedules_are_short() -> None:
    """A published schedule is at most 40 lines."""
    lengths = {path.name: len(path.read_text("utf-8").splitlines()) for path in (TOP / "schedules").glob("*.ps")}

    assert lengths
    assert max(lengths.values()) <= 40


def test_the_top_level_is_the_one_that_was_agreed() -> None:
    """There are four files and five folders; everything else begins with a dot or is not ours."""
    listed = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=False, timeout=60)
    top = {line.split("/")[0] for line in listed.stdout.splitlines()} or {path.name for path in TOP.iterdir()}
    agreed = {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff"}
    agreed |= {"pipesched", "grammars", "schedules", "tests", "emit"}

    assert {name for name in top if not name.startswith(".")} - {"build", "dist"} <= agreed


def test_the_tests_readme_names_every_file() -> None:
    """Each file has a line with its purpose."""
    text = (TOP / "tests" / "README.md").read_text("utf-8")
    files = {path.name for path in (TOP / "tests").glob("*.py")}

    assert {name for name in files if f"`{name}`" not in text} == set()
