"""`check` of a script: what bash makes of it, or that it is not read; no default where its option stands unread."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pipesched
from tests.depth import deep
from tests.makers.shell_scripts import OPTIONS, RUN, script

if TYPE_CHECKING:
    from pipesched import Checked

COMMAND = "torchrun --nproc_per_node 8 pretrain_gpt.py --use-mcore-models --num-layers 24 --micro-batch-size 1"
UNREAD = {  # scripts with 4 ranks, of which a reader of texts need not know: that it does not is said with its line
    "a variable that another file reads": ("PP_SIZE=4\nexport PP_SIZE\nsource rest.sh\n" + COMMAND + " $REST\n", 1),
    "an option that a program writes": (COMMAND + " $(sed s/x// --pipeline-model-parallel-size=4)\n", 1),
    "a file that is written": (
        "cat > in.sh <<EOF\nrun --pipeline_model_parallel_size 4\nEOF\n" + COMMAND + " $REST\n",
        2,
    ),
    "another spelling": (COMMAND + ' $(printf "%s%s" --pipeline_model_parallel_size =4)\n', 1),
    "a variable without a value": (COMMAND + " $PARALLEL_ARGS\n", 1),
    "a function that nobody calls": (
        f"add() {{ ARGS=--pipeline-model-parallel-size=4; }}\n. rest.sh\n{COMMAND} $ARGS\n",
        1,
    ),
    "a loop without a known end": (
        f"while next; do ARGS=$ARGS' --pipeline-model-parallel-size 4'; done\n{COMMAND} $ARGS\n",
        1,
    ),
    "a default that is none": (f"{COMMAND} --pipeline-model-parallel-size ${{PP:4}}\n", 1),
}


@pytest.mark.parametrize("name", UNREAD)
def test_no_default_is_told_of_what_stands_unread(name: str) -> None:
    """The status is 4, the line is named, and nothing is said of p: neither a number nor that there is no pipeline."""
    text, line = UNREAD[name]
    made = pipesched.check(pipesched.Source("a.sh", text))
    assert made.exit_status == 4 and not made.ok and made.plan.off is None and made.plan.ranks is None, str(made)
    assert line in {x.where.line for x in made.diagnostics if str(x.code) == "PS882" and x.where}, str(made)
    assert "no pipeline" not in str(made) and "pipesched check -- " in str(made)


Size = tuple[int, int, int]


def sizes(words: list[str]) -> Size:
    """p, v and m of recorded arguments: the last of each option counts."""
    given = {"pipeline-model-parallel-size": 1}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and (value if equals else following).lstrip("-").isdigit():
            given[name] = int(value if equals else following)
    p = given["pipeline-model-parallel-size"]
    each = given.get("num-layers-per-virtual-pipeline-stage")
    v = given["num-layers"] // p // each if each else 1
    return p, v, given["global-batch-size"] // (8 // p)


def truth(text: str, folder: Path) -> set[Size]:
    """What bash starts."""
    programs, records = folder / "bin", folder / "records"
    for x in (programs, records):
        x.mkdir(exist_ok=True)
    for old in records.iterdir():
        old.unlink()
    recorder = programs / "torchrun"
    recorder.write_text(f'#!/bin/bash\nprintf "%s\\0" "$@" > {records}/$$\n', "utf-8")
    recorder.chmod(0o755)
    (folder / "script.sh").write_text(text, "utf-8")
    environment = {"PATH": f"{programs}:{os.defpath}"}
    subprocess.run(["bash", "script.sh"], cwd=folder, env=environment, capture_output=True, timeout=20, check=False)
    return {sizes(x.read_text("utf-8").split("\0")) for x in records.iterdir()}


def told(made: Checked) -> list[Size]:
    """The sizes that are told; without a pipeline p is 1, and m is not told."""
    plans = [x.plan for x in (made.commands or (made,))]
    said = [(1, 1, 0) if x.off else (x.ranks or 0, x.chunks or 0, x.microbatches or 0) for x in plans]
    return [x for x in said if x[0]]


def agrees(said: Size, true: set[Size]) -> bool:
    """Whether what is told is so, as far as it is told."""
    return any(all(a in (0, b) for a, b in zip(said, one, strict=True)) for one in true)


def test_what_is_told_of_a_script_is_what_bash_starts(tmp_path: Path) -> None:
    """p, v and m, of scripts made by chance; what is not told is not judged; most are."""
    chance = random.Random(8)
    judged = 0
    texts = [script(chance) for _ in range(deep(60))]
    for text in texts:
        true = truth(text, tmp_path)
        (tmp_path / "a.sh").write_text(text, "utf-8")
        made = pipesched.check_config(tmp_path / "a.sh")
        said = told(made)
        assert all(agrees(x, true) for x in said), (text, said, true)
        assert said or made.exit_status == 4, text
        judged += made.exit_status != 4 and {x[0] for x in said} == {x[0] for x in true}
    assert judged >= len(texts) * 0.7, judged


@pytest.mark.parametrize("template", OPTIONS)
def test_a_dry_run_tells_what_bash_starts(template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way of passing options: the sizes that bash starts, all of them, and no others."""
    options = "--pipeline-model-parallel-size 4 --global-batch-size 16 --num-layers 8 --micro-batch-size 1"
    text = template.replace("OPTS", options).replace("RUN", RUN)
    true = truth(text, tmp_path)
    monkeypatch.chdir(tmp_path)
    made = pipesched.check_config(tmp_path / "script.sh", dry_run_script=True)
    assert set(told(made)) == true, str(made)
