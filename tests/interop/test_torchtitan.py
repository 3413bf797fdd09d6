"""The page on torchtitan is true for this version: its files are complete, and its numbers follow from these CSVs.

The trainer itself runs by ``.ci/run --trainers``; its output is ``tests/data/torchtitan.json``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import pipesched
from tests.readers.typed import typed
from tests.trainers import torchtitan

RECORDED: dict[str, Any] = json.loads(torchtitan.RECORDED.read_text("utf-8"))
PROJECT = tomllib.loads((torchtitan.TOP / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.mark.parametrize(("ours", "own"), torchtitan.OURS.items())
def test_the_recorded_figures_are_of_the_csv_that_is_emitted_now(ours: str, own: str) -> None:
    """Otherwise `.ci/run --trainers --record` must run again. The figures belong to torchtitan's schedule."""
    emitted = typed("emit", ours, "--p", "2", "--m", "8", "--target", "torch-csv").out.decode("utf-8")

    assert RECORDED["csv"][f"{ours}.csv"] == emitted
    assert RECORDED["runs"][f"{ours}.csv"] == RECORDED["runs"][own]


def test_what_is_refused_trains_something_else() -> None:
    """The CSV that `verify` refuses has other gradients from the first step; four runs agree in pairs."""
    right, wrong = RECORDED["runs"]["1F1B"], RECORDED["runs"][torchtitan.SWAPPED.name]

    assert all(one != other for one, other in zip(right, wrong, strict=True))
    assert not pipesched.verify(torchtitan.SWAPPED).ok


def test_the_settings_of_the_page_are_those_that_are_printed_with_the_file() -> None:
    """Ranks, microbatches and the name of the schedule are equal, key for key; the versions equal the versions of the
    extra."""
    settings = tomllib.loads(torchtitan.scripts()["debug.toml"])
    printed = typed("emit", "zb_h1", "--p", "2", "--m", "8", "--target", "torch-csv").err.decode("utf-8")
    wanted = tomllib.loads(printed.partition("TOML file:\n")[2].partition("torchtitan 0.3.0")[0])
    wanted["parallelism"].pop("pipeline_parallel_schedule_csv")
    pinned = set(PROJECT["optional-dependencies"]["torchtitan"])

    assert all(settings[section].items() >= keys.items() for section, keys in wanted.items())
    assert pinned >= {f"{name}=={RECORDED[name].partition('+')[0]}" for name in ("torch", "torchtitan")}
    assert all(name in torchtitan.PAGE.read_text("utf-8") for name in pinned)


def test_the_scripts_of_the_page_are_python() -> None:
    """Each script compiles, and a command of the page uses it."""
    scripts = {name: text for name, text in torchtitan.scripts().items() if name.endswith(".py")}

    assert {*re.findall(r"\w+\.py", torchtitan.commands())} == {*scripts}
    for name, text in scripts.items():
        compile(text, name, "exec")


RUN = """
import sys
from pathlib import Path
from tests.trainers.processes import finished
finished([sys.executable, "-c", sys.argv[1]], Path(sys.argv[2]), limit=1)
"""
APART = """
import subprocess, time
from pathlib import Path
Path("pid").write_text(str(subprocess.Popen(["sleep", "600"], start_new_session=True).pid))
print("said", flush=True)
time.sleep(600)
"""


def test_a_run_leaves_no_process(tmp_path: Path) -> None:
    """After the time limit all descendants of the command end, in sessions of their own too."""
    command = [sys.executable, "-c", RUN, APART, str(tmp_path)]
    done = subprocess.run(command, cwd=torchtitan.TOP, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode and "said\nnot over after 1 s" in done.stderr
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()
