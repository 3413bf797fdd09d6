"""The start-up cost of a command is measured in modules and instructions, which do not depend on the machine's load.

Instructions are those of CPython 3.11 as valgrind counts them, of files that are compiled.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipesched.extension import registered
from tests.depth import deep
from tests.readers.typed import typed

TOP = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "pipesched"]
HEAVY = {"graphviz", "lark", "networkx", "ortools", "pandas", "pysat", "rich", "torch", "yaml", "z3"}
NUMPY = {"numpy", "importlib.metadata"}
ROWS = {f"pipesched.{name}.rows" for name in registered}


def loaded(*command: str) -> set[str]:
    """Return the modules that a command line has imported at its end."""
    told = "assert not main(sys.argv[1:]); sys.stderr.write(' '.join(sys.modules))"
    run = [sys.executable, "-c", f"import sys; from pipesched.__main__ import main; {told}", *command]
    return set(subprocess.run(run, capture_output=True, text=True, timeout=60, check=True).stderr.split())


def of_extensions(modules: set[str]) -> set[str]:
    """Return the modules in the folders of extensions, except their rows."""
    folders = tuple(f"pipesched.{name}." for name in registered)
    return {module for module in modules if module.startswith(folders)} - ROWS


def test_help_imports_rows_and_click() -> None:
    """Help imports only our rows, their registry, and the group of commands, and no heavy module."""
    modules = loaded("--help")
    ours = {module for module in modules if module.startswith("pipesched.")}
    folders = {module.rpartition(".")[0] for module in ours}
    core = {f"pipesched.{name}" for name in ("__main__", "extension", "shell.app", "support.record", "verbs.rows")}
    assert ours - folders == ROWS | core
    assert not modules & (HEAVY | NUMPY)


@pytest.mark.parametrize("verb", ["verify", "emit"])
def test_a_verb_of_the_core_imports_no_extension(verb: str) -> None:
    """A verb of the core imports only the rows of extensions, and no heavy module but numpy; `verify` of a library file
    also the module that looks for its certificate, and `emit` the checks of instructions.
    """
    modules = loaded(verb, "1f1b", "--p", "4")
    extra = "pipesched.prover.shipped" if verb == "verify" else "pipesched.orders."
    assert {name for name in of_extensions(modules) if not f"{name}.".startswith(extra)} == set()
    assert not modules & HEAVY


def test_a_chart_imports_no_extension_but_views() -> None:
    """A picture in the terminal imports no other extension's modules, and none of other pictures."""
    modules = loaded("show", "1f1b", "--p", "4")
    of_views = {f"pipesched.views.{name}" for name in ("options", "show", "show_command", "drawn")}
    others = of_extensions(modules) - of_views
    assert {name for name in others if not name.startswith("pipesched.views.chart")} == set()
    assert not modules & HEAVY


def test_only_an_answer_is_verified_by_the_optimizer(tmp_path: Path) -> None:
    """A schedule, an order, a CSV and a stream are verified without it; an answer is not."""
    (tmp_path / "answer.json").write_bytes(typed("optimize", "--p", "2", "--m", "3", "--mem-cap", "2", "--json").out)
    assert "pipesched.optimizer.proof" in loaded("verify", str(tmp_path / "answer.json"))
    for target, name in (("order", "a.order"), ("torch-csv", "a.csv"), ("stream", "a.json")):
        assert typed("emit", "1f1b", "--p", "2", "--target", target, "-o", str(tmp_path / name)).status == 0
        assert not [x for x in of_extensions(loaded("verify", str(tmp_path / name))) if ".optimizer." in x]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which all imports of a command are compiled."""
    folder = str(tmp_path_factory.mktemp("compiled"))
    made = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": folder, "PYTHONPATH": str(TOP)}
    made.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([*COMMAND, "verify", "1f1b", "--p", "4"], env=made, capture_output=True, timeout=100, check=True)
    return made


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind counts the instructions")
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the numbers are those of CPython 3.11")
@pytest.mark.parametrize(("command", "millions"), [("--help", 300), ("verify 1f1b --p 4", 1510)][-deep(1) :])
def test_a_command_begins_at_once(command: str, millions: int, compiled: dict[str, str]) -> None:
    """The instructions of a whole process are below a limit; those of help, of which the modules are known above, with
    ``--depth 2``."""
    counted = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    run = [*counted, *COMMAND, *command.split()]
    told = subprocess.run(run, env=compiled, capture_output=True, text=True, timeout=300, check=True).stderr
    (instructions,) = re.findall(r"I +refs: +([\d,]+)", told)
    assert int(instructions.replace(",", "")) <= millions * 1_000_000
