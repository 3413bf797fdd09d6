"""`check` reads a script as bash would run it or reports it as unread, and never assumes a default for an unread
option."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.interop.trainers.dry_run import dry_run
from tests.depth import deep, some
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
    """The status is 4, the line is named, and p is not reported, neither as a number nor as a missing pipeline."""
    text, line = UNREAD[name]
    made = pipesched.check(pipesched.Source("a.sh", text))
    assert made.exit_status == 4 and not made.ok and made.plan.off is None and made.plan.ranks is None, str(made)
    assert line in {x.where.line for x in made.diagnostics if str(x.code) == "PS882" and x.where}, str(made)
    assert "no pipeline" not in str(made) and "pipesched check -- " in str(made)


Size = tuple[int, int, int]


def sizes(words: list[str]) -> Size:
    """Return p, v and m of recorded arguments: the last value of each option counts."""
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
    """Return the commands that bash starts."""
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
    """Return the reported sizes; without a pipeline p is 1, and m is not reported."""
    plans = [x.plan for x in (made.commands or (made,))]
    said = [(1, 1, 0) if x.off else (x.ranks or 0, x.chunks or 0, x.microbatches or 0) for x in plans]
    return [x for x in said if x[0]]


def agrees(said: Size, true: set[Size]) -> bool:
    """Return True if the reported sizes are right."""
    return any(all(a in (0, b) for a, b in zip(said, one, strict=True)) for one in true)


def test_what_is_told_of_a_script_is_what_bash_starts(tmp_path: Path) -> None:
    """The reported p, v and m of random scripts are right; unreported sizes are not judged; most are reported."""
    chance = random.Random(8)
    judged = 0
    texts = [script(chance) for _ in range(deep(20))]
    for text in texts:
        true = truth(text, tmp_path)
        (tmp_path / "a.sh").write_text(text, "utf-8")
        made = pipesched.check_config(tmp_path / "a.sh")
        said = told(made)
        assert all(agrees(x, true) for x in said), (text, said, true)
        assert said or made.exit_status == 4, text
        judged += made.exit_status != 4 and {x[0] for x in said} == {x[0] for x in true}
    assert judged >= len(texts) * 0.7, judged


@pytest.mark.parametrize("template", some(OPTIONS, 5))
def test_a_dry_run_tells_what_bash_starts(template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every way of passing options, the dry run reports exactly the sizes that bash starts."""
    options = "--pipeline-model-parallel-size 4 --global-batch-size 16 --num-layers 8 --micro-batch-size 1"
    text = template.replace("OPTS", options).replace("RUN", RUN)
    true = truth(text, tmp_path)
    monkeypatch.chdir(tmp_path)
    made = pipesched.check_config(tmp_path / "script.sh", dry_run_script=True)
    assert set(told(made)) == true, str(made)


def test_the_words_behind_two_dashes_are_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The words are as the shell made them, with wrappers, assignments and an inner shell; in Python also as a list of
    words."""
    words = f"{COMMAND} --pipeline-model-parallel-size 4 --global-batch-size 16".split()
    inner = " ".join(words)
    for command in (
        words,
        ["A=1", *words],
        ["srun", "--nodes=1", "numactl", "-N", "0", *words],
        ["srun", "bash", "-c", inner],
        ["nsys", "profile", "-o", "x", "env", "B=2", *words],
        ["bash", "-lc", f"P=4; {inner.replace('size 4', 'size $P')}"],
    ):
        assert main(["check", "--processes", "8", "--json", "--", *command]) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["schedule"]["p"], said["schedule"]["m"]) == (4, 8), command
        assert pipesched.check(command, processes=8).to_json() == said
    assert main(["check", "--", *words, "--num-layers", "25"]) == 1
    assert "25 layers cannot be divided evenly among 4 ranks" in capsys.readouterr().out
    assert main(["check", "--"]) == 2 and "there is no FILE" in capsys.readouterr().err
    assert main(["check", "a.sh", "--", *words]) == 2


def test_a_variable_is_set_from_outside(tmp_path: Path) -> None:
    """`-D PP=4` replaces PP everywhere, also where the script sets it; when read, and when executed."""
    file = tmp_path / "a.sh"
    file.write_text(f"{COMMAND} --pipeline-model-parallel-size $PP --global-batch-size ${{GBS:-16}}\n", "utf-8")
    assert pipesched.check(file).exit_status == 4
    for run in (False, True):
        made = pipesched.check(file, variables={"PP": 4, "GBS": 32}, dry_run_script=run)
        assert (made.plan.ranks, made.plan.microbatches, made.exit_status) == (4, 16, 0), str(made)
    file.write_text(f"PP=2\n{COMMAND} --pipeline-model-parallel-size $PP\n", "utf-8")
    assert main(["check", str(file), "-D", "PP=4", "--json"]) == 0
    assert pipesched.check(file, variables=["PP=4"]).plan.ranks == 4
    with pytest.raises(pipesched.PipeschedError):
        pipesched.check(file, variables=["PP"])


CODE = """-c 'open("ran", "w")'"""
INNER = """-c open\\(\\"ran\\",\\"w\\"\\)"""
RUNS = (  # ways of starting a program, each of which would write a file
    "PROGRAM CODE",
    "/usr/bin/env PROGRAM CODE",
    "nohup PROGRAM CODE &",
    "A=1 PROGRAM CODE",
    'RUN="PROGRAM"\n"$RUN" CODE',
    "(PROGRAM CODE) | cat",
    "X=$(PROGRAM CODE)",
    "if ! PROGRAM CODE; then PROGRAM CODE; fi",
    "start() { PROGRAM CODE; }\nstart",
    'start() { "$@"; }\nstart PROGRAM CODE',
    "exec PROGRAM CODE",
    "command PROGRAM CODE",
    "bash -c 'PROGRAM CODE'",
    "sh -c 'PROGRAM CODE'",
    "/bin/sh -c 'PROGRAM CODE'",
    "export PATH=/usr/local/bin:/usr/bin:/bin\nPROGRAM CODE",
    "env -i PROGRAM CODE",
    "printf '#!/bin/sh\\nPROGRAM CODE\\n' > inner.sh\nbash inner.sh",
    "time PROGRAM CODE",
    "set -euo pipefail\nfalse\nPROGRAM CODE",
    "PROGRAM <<EOF\nopen('ran', 'w')\nEOF",
    "timeout 5 PROGRAM CODE",
    "(PROGRAM CODE)",
    "PROGRAM CODE | cat",
    "{ PROGRAM CODE; } &",
    "true && PROGRAM CODE &",
    "coproc PROGRAM CODE",
    "while PROGRAM CODE; do break; done",
    "xargs -n 1 PROGRAM CODE < /dev/null",
    "eval 'PROGRAM CODE'",
)


def test_a_dry_run_without_arguments_blames_nobody(tmp_path: Path) -> None:
    """Options whose values are the script's own arguments have none in the run: they are open, not a mistake."""
    text = "torchrun --nproc_per_node 8 pretrain_gpt.py --use-mcore-models --num-layers 8 --bf16"
    text += " --micro-batch-size $2 --global-batch-size 8 --pipeline-model-parallel-size $1\n"
    (tmp_path / "a.sh").write_text(text, "utf-8")
    made = pipesched.check_config(tmp_path / "a.sh", dry_run_script=True)
    assert [str(x.code) for x in made.diagnostics] == ["PS882"], str(made)
    assert (made.plan.ranks, made.plan.off, made.plan.microbatches) == (None, None, None)


def test_a_dry_run_tells_no_default_of_another_branch(tmp_path: Path) -> None:
    """If the option is in a branch that the run did not take, p is unknown, and a missing pipeline is not concluded."""
    text = 'OWN=()\n# --pipeline-model-parallel-size is for the large one\nif [ "$1" = large ]; then\n'
    text += "  OWN=(\n    --bf16 --pipeline-model-parallel-size 8\n  )\nfi\n"
    text += "torchrun --nproc_per_node 8 pretrain_gpt.py --use-mcore-models --num-layers 8 --micro-batch-size 1"
    (tmp_path / "a.sh").write_text(text + " --global-batch-size 8 ${OWN[@]}\n", "utf-8")
    made = pipesched.check_config(tmp_path / "a.sh", dry_run_script=True)
    assert [(str(x.code), x.where.line if x.where else 0) for x in made.diagnostics] == [("PS882", 5)], str(made)
    assert (made.plan.ranks, made.plan.off) == (None, None)


def test_a_dry_run_judges_nothing_by_an_option_of_another_branch(tmp_path: Path) -> None:
    """A setting that needs an option of a branch that the run did not take is not a mistake."""
    text = 'OWN=""\nif [ "$1" = true ]; then OWN="--use-distributed-optimizer"; fi\n'
    text += "torchrun --nproc_per_node 8 pretrain_gpt.py --use-mcore-models --num-layers 8 --micro-batch-size 1"
    text += " --global-batch-size 8 --pipeline-model-parallel-size 4 --overlap-grad-reduce --overlap-param-gather"
    (tmp_path / "a.sh").write_text(f"{text} $OWN\n", "utf-8")
    made = pipesched.check_config(tmp_path / "a.sh", dry_run_script=True)
    assert (made.diagnostics, made.plan.ranks, made.plan.microbatches) == ((), 4, 4), str(made)


@pytest.mark.parametrize("template", some(RUNS, 4))
@pytest.mark.parametrize("program", ["python3", os.path.realpath(sys.executable)], ids=["name", "path"])
def test_a_dry_run_starts_no_program(
    program: str, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started by name or by path, it is recorded, and does not run."""
    text = template.replace("PROGRAM", program).replace("CODE", INNER if "'" in template else CODE)
    (tmp_path / "a.sh").write_text(text + "\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    made = dry_run("a.sh", {})
    assert not (tmp_path / "ran").exists()
    assert any("python3" in word for words in made.commands for word in words), made


def test_a_dry_run_ends_with_all_that_it_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is removed, an endless loop is ended in time, and no process is left."""
    kept = tmp_path / "kept"
    kept.write_text("x", "utf-8")
    lasting = "tail -f /dev/null"
    text = f"rm -rf kept\nmkdir made\n{lasting} &\necho $! > pid\ntorchrun a.py --x 1\nwhile true; do :; done\n"
    (tmp_path / "a.sh").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    made = dry_run("a.sh", {}, seconds=1.5)
    assert made.status is None and made.commands == (("torchrun", "a.py", "--x", "1"),)
    assert kept.exists() and not (tmp_path / "made").exists()
    left = Path(f"/proc/{(tmp_path / 'pid').read_text('utf-8').strip()}/stat")
    for _ in range(100):  # a killed process takes a moment to end
        if gone := not left.exists() or left.read_text("utf-8").rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    assert gone


@pytest.mark.parametrize(
    "line",
    [
        'HERE="${BASH_SOURCE[0]}"\nsource $(dirname $HERE)/sizes.sh',
        'HERE=$0\n. "$(dirname "$HERE")/sizes.sh"',
        "FOLDER=$(dirname ${BASH_SOURCE})\nsource ${FOLDER}/sizes.sh",
        "source $(dirname -- $0)/inner/../sizes.sh",
    ],
)
def test_a_file_beside_the_script_is_read_by_its_folder(line: str, tmp_path: Path) -> None:
    """The ways in which scripts name their own folder, also by variables, lead to the existing file."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "sizes.sh").write_text("PP=4\n", "utf-8")
    text = f"{line}\ntorchrun --nproc_per_node 8 pretrain_gpt.py --use-mcore-models --num-layers 8 --micro-batch-size 1"
    (tmp_path / "a.sh").write_text(f"{text} --global-batch-size 8 --pipeline-model-parallel-size $PP\n", "utf-8")
    made = pipesched.check_config(tmp_path / "a.sh")
    assert (made.plan.ranks, made.plan.microbatches, made.exit_status) == (4, 4, 0), str(made)


def test_nodes_of_a_job_and_variables_of_a_file_beside_are_read(tmp_path: Path) -> None:
    """`#SBATCH --nodes=4` is the value of Slurm's variable; a sourced file sets its variables."""
    (tmp_path / "sizes.sh").write_text("PP=4\nGBS=64\n", "utf-8")
    text = "#!/bin/bash\n#SBATCH --nodes=4\nsource $(dirname $0)/sizes.sh\nsrun torchrun --nnodes $SLURM_NNODES "
    text += f"{COMMAND.partition(' ')[2]} --pipeline-model-parallel-size $PP --global-batch-size $GBS\n"
    (tmp_path / "job.slurm").write_text(text, "utf-8")
    made = pipesched.check(tmp_path / "job.slurm")
    assert (made.plan.ranks, made.plan.microbatches, made.exit_status) == (4, 8, 0), str(made)
