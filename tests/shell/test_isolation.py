"""No code in the current folder is executed, even if the folder contains modules with the names that our processes
import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from pipesched.command import flags
from pipesched.shell.app import commands

PROGRAM = Path(sys.executable).with_name("pipesched")
THEIRS = (
    "click",
    "graphviz",
    "networkx",
    "numpy",
    "ortools",
    "pipesched",
    "pysat",
    "torch",
    "yaml",
    "z3",
)
PLANTED = sorted({*THEIRS, *sys.stdlib_module_names} - {"sitecustomize", "usercustomize"})
SIZE = ("--p", "2", "--m", "3")

# In this order, in one folder: later ones read what earlier ones wrote. `optimize` asks an engine, in its own process.
COMMANDS = {
    "verify": ("1f1b", *SIZE),
    "show": ("1f1b", *SIZE, "-o", "1f1b.dot"),
    "prove": ("1f1b", "--p", "2"),
    "compare": ("1f1b", "zb_h1", *SIZE),
    "plan": ("--model", "megatron-1.7b", "--gpus", "4", "--device", "a100", "--executor", "processes:1"),
    "diff": ("1f1b", "1f1b", *SIZE),
    "optimize": ("--p", "2", "--m", "3", "--mem-cap", "2", "--time-limit", "5"),
    "emit": ("1f1b", *SIZE, "-o", "mine.ps"),
    "run": ("1f1b", *SIZE, "--pace", "0", "--steps", "1", "--trace", "run.json"),
    "calibrate": ("run.json",),
    "check": ("trainer.toml",),
    "fmt": ("--check", "mine.ps"),
    "list": (),
    "play": ("--p", "2", "-o", "page"),
    "explain": ("PS401",),
}


@pytest.fixture(scope="module")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of modules, each of which records its execution and ends the process."""
    folder = tmp_path_factory.mktemp("trap")
    (folder / "trainer.toml").write_text("[parallelism]\npipeline_parallel_degree = 2\n")
    for name in PLANTED:
        (folder / f"{name}.py").write_text(
            f"open({str(folder / 'RUN')!r}, 'a').write('{name} ')\nraise SystemExit(99)\n"
        )
    return folder


def begun(trap: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Start a process in that folder."""
    done = subprocess.run(command, cwd=trap, capture_output=True, text=True, check=False, timeout=120)
    ran = trap / "RUN"
    assert not ran.exists(), f"{' '.join(command)} ran {ran.read_text()}"
    assert "ended with status 99" not in done.stderr, done.stderr
    return done


def other_commands() -> list[str]:
    """Return the commands that take one schedule; `lsp` serves until its client leaves."""
    return [name for name in commands() if name not in COMMANDS and name != "lsp"]


def test_every_command_is_tried() -> None:
    """A command that has no call here takes one argument, a schedule."""
    for name in other_commands():
        arguments = [x for x in commands()[name].params if isinstance(x, click.Argument)]
        assert [(x.nargs, x.type) for x in arguments] == [(1, flags.target)], name
    assert COMMANDS.keys() <= commands().keys()


# In one process, as the console script begins it: without the folder on the path. Ranks have one supervisor.
EVERY = """
import json, sys
from contextlib import nullcontext
from pipesched.__main__ import main
from pipesched.runtime.execute import launch
with launch.Launcher() as one:
    launch.Launcher = lambda: nullcontext(one)
    print(json.dumps([main(words) for words in json.loads(sys.argv[1])]), file=sys.stderr)
"""


@pytest.mark.nightly
def test_no_command_runs_what_is_there(trap: Path) -> None:
    """Neither a command nor its processes run it: engines, generators, ranks, rehearsals."""
    pytest.importorskip("torch", reason="one of the commands is `run`")
    calls = COMMANDS | dict.fromkeys(other_commands(), ("1f1b", *SIZE))
    words = [[name, *given] for name, given in calls.items()]
    done = begun(trap, sys.executable, "-P", "-c", EVERY, json.dumps(words))
    statuses = dict(zip(calls, json.loads(done.stderr.splitlines()[-1]), strict=True))
    assert statuses.pop("optimize") in (0, 3) and set(statuses.values()) == {0}, done.stderr


@pytest.mark.parametrize("name", ["verify"])
def test_nor_does_the_console_script(name: str, trap: Path) -> None:
    """The console script, started as by users, does not run it either."""
    assert begun(trap, str(PROGRAM), name, *COMMANDS[name]).returncode == 0


def test_python_m_runs_it_neither(tmp_path: Path) -> None:
    """With -m Python itself looks for pipesched in the folder; later imports do not come from there."""
    for name in THEIRS:
        if name != "pipesched":
            (tmp_path / f"{name}.py").write_text("raise SystemExit(99)\n")
    (tmp_path / "json.py").write_text("raise SystemExit(99)\n")

    assert begun(tmp_path, sys.executable, "-m", "pipesched", "verify", "1f1b", *SIZE, "--json").returncode == 0


def test_an_empty_entry_of_the_path_is_not_handed_on() -> None:
    """``PYTHONPATH=$PYTHONPATH:/there`` puts the current folder before the standard library."""
    asked = "from pipesched.common import child; print(repr(child.environment()['PYTHONPATH']))"
    for given, handed_on in ((":/there", "/there"), ("/a::/b:", "/a:/b"), ("", "")):
        found = subprocess.run(
            [sys.executable, "-P", "-c", asked],
            env={**os.environ, "PYTHONPATH": given.replace(":", os.pathsep)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == repr(handed_on.replace(":", os.pathsep))
