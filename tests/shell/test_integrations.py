"""Hooks, the GitHub action and shell completion work when they are run as their own tools run them.

The YAML of hooks and action is read line by line here, as far as it is used: names, and the scripts of the steps.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
CSV = TOP / "tests" / "torch_fixtures" / "c15_both_send_first.csv"
UNTIDY = (
    "schedule two(p, m = p)\nstage s in 0 .. p on rank s\nrank r { repeat m { F }   repeat m {B} }\nclaim peak == 1\n"
)


def bash(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a shell, with our commands on its path."""
    path = f"{BIN}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def hook(name: str) -> dict[str, str]:
    """Return the keys of a hook of `.pre-commit-hooks.yaml`."""
    (found,) = re.findall(rf"^- id: {name}\n((?:  .+\n)+)", (TOP / ".pre-commit-hooks.yaml").read_text("utf-8"), re.M)
    return dict(line.strip().split(": ", 1) for line in found.splitlines())


def commit(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a hook as pre-commit does: the entry, its arguments, and its files of the repository."""
    about = hook(name)
    assert about["language"] == "python"
    listed = subprocess.run(["git", "ls-files"], cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    files = [file for file in listed.stdout.splitlines() if re.search(about["files"], file)]
    return bash(" ".join((about["entry"], *arguments, *files)), folder)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a schedule that holds, one that is untidy and has a false claim, and a text."""
    (tmp_path / "1f1b.ps").write_text((TOP / "schedules" / "1f1b.ps").read_text("utf-8"), "utf-8")
    (tmp_path / "two.ps").write_text(UNTIDY, "utf-8")
    (tmp_path / "notes.txt").write_text("no schedule\n", "utf-8")
    subprocess.run("git init -q && git add .", shell=True, cwd=tmp_path, check=True, timeout=60)
    return tmp_path


def test_a_commit_is_verified(repository: Path) -> None:
    """`pipesched-verify` fails if a schedule is wrong, with one line per file, and passes once it is repaired."""
    wrong = commit(repository, "pipesched-verify", "--p", "2")
    assert wrong.returncode == 1 and "two.ps:4:1: error[PS221]" in wrong.stdout and "ok  1f1b.ps" in wrong.stdout
    (repository / "two.ps").write_text(UNTIDY.replace("peak == 1", "peak == m"), "utf-8")
    assert commit(repository, "pipesched-verify", "--p", "2").returncode == 0


def test_a_csv_of_a_commit_is_verified(repository: Path) -> None:
    """`pipesched-verify-csv` fails for a torch CSV that hangs, and looks at no other file."""
    for name, status in (("c15_both_send_first", 1), ("a13_rows_swapped", 0)):
        (repository / "order.csv").write_text(
            (TOP / "tests" / "torch_fixtures" / f"{name}.csv").read_text("utf-8"), "utf-8"
        )
        subprocess.run(["git", "add", "."], cwd=repository, check=True, timeout=60)
        done = commit(repository, "pipesched-verify-csv")
        assert done.returncode == status and "two.ps" not in done.stdout


def test_a_commit_is_tidied(repository: Path) -> None:
    """`pipesched-fmt` rewrites files that are not canonical, which fails a commit, and leaves all others."""
    assert commit(repository, "pipesched-fmt").returncode == 0
    changed = subprocess.run(["git", "diff", "--name-only"], cwd=repository, capture_output=True, text=True, check=True)
    assert changed.stdout == "two.ps\n"
    once = (repository / "two.ps").read_text("utf-8")
    assert commit(repository, "pipesched-fmt").returncode == 0 and (repository / "two.ps").read_text("utf-8") == once


def steps() -> list[str]:
    """Return the scripts of the action's steps."""
    text = (TOP / ".github" / "actions" / "verify" / "action.yml").read_text("utf-8")
    return [re.sub(r"^ {8}", "", found, flags=re.M) for found in re.findall(r"run: \|\n((?: {8}.+\n)+)", text)]


def test_an_action_installs_what_it_came_with(tmp_path: Path) -> None:
    """The action installs the package of its own repository, in an environment of its own."""
    (tmp_path / "python3").write_text('#!/bin/sh\nmkdir -p "$3/bin"; cp "$(dirname "$0")/pip" "$3/bin/"\n')
    (tmp_path / "pip").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    for name in ("python3", "pip"):
        (tmp_path / name).chmod(0o755)
    action = TOP / ".github" / "actions" / "verify"
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = bash(steps()[0], tmp_path, RUNNER_TEMP=str(tmp_path / "runner"), GITHUB_ACTION_PATH=str(action), PATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    *words, package = done.stdout.splitlines()
    assert words == ["install", "--quiet"] and Path(package).resolve() == TOP


def test_an_action_annotates(tmp_path: Path) -> None:
    """Each finding is an annotation at its line, and the step fails; inputs are patterns and options."""
    (tmp_path / "pipesched").mkdir()
    (tmp_path / "pipesched" / "bin").symlink_to(BIN)
    (tmp_path / "mine.csv").write_text(CSV.read_text("utf-8"), "utf-8")
    inputs = {"FILES": "*.csv", "ARGUMENTS": "--torch-version 2.13", "RUNNER_TEMP": str(tmp_path)}
    done = bash(steps()[1], tmp_path, **inputs)
    assert done.returncode == 1
    assert re.match(r"::error file=mine\.csv,line=1,col=44,title=PS401::deadlock: ranks 0 and 1 wait", done.stdout)
    assert bash(steps()[1], tmp_path, **inputs | {"ARGUMENTS": "--comm async"}).returncode == 0


def test_github_is_told_what_the_files_are(tmp_path: Path) -> None:
    """Schedules are not PostScript, and pictures are generated, by git's own rules."""
    (tmp_path / ".gitattributes").write_text((TOP / ".gitattributes").read_text("utf-8"), "utf-8")
    asked = "git init -q && git check-attr linguist-language linguist-detectable linguist-generated -- "
    found = bash(asked + "schedules/1f1b.ps schedules/pictures/1f1b.svg", tmp_path).stdout
    kinds = {tuple(line.split(": ")[:2]): line.split(": ")[2] for line in found.splitlines()}
    assert kinds["schedules/1f1b.ps", "linguist-language"] not in ("unspecified", "PostScript")
    assert kinds["schedules/1f1b.ps", "linguist-detectable"] == "unset"
    assert kinds["schedules/pictures/1f1b.svg", "linguist-generated"] == "set"


def test_the_citation_is_that_of_the_project() -> None:
    """The required fields are there; version, license and keywords are those of pyproject.toml."""
    text = (TOP / "CITATION.cff").read_text("utf-8")
    about = dict(re.findall(r"^([a-z-]+): (.+)$", text, re.M))
    project = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
    assert about["cff-version"] == "1.2.0" and about["message"] and project["name"] in about["title"]
    assert "\nauthors:\n  - name: " in text
    assert (about["version"], about["license"]) == (project["version"], project["license"])
    assert re.findall(r"^  - (?!name)(.+)$", text, re.M) == project["keywords"]


COMPLETED = {
    "pipesched ver": ["verify"],
    "pipesched verify zb": ["zb_h1", "zb_h2", "zb_v"],
    "pipesched verify zb_h1 --mem": ["--mem-cap"],
    "pipesched show zb_h1 --style m": ["megatron"],
    "pipesched explain makes": ["makespan"],
    "pipesched explain PS40": ["PS401", "PS402", "PS403", "PS404", "PS405", "PS406", "PS407", "PS408"],
}


def test_bash_completes(tmp_path: Path) -> None:
    """Bash completes commands, schedules, options, choices, codes and words, with the guide's line that enables it."""
    guide = (TOP / "pipesched" / "README.md").read_text("utf-8")
    (switch,) = re.findall(r'`(eval "\$\(_PIPESCHED_COMPLETE=bash_source pipesched\)")`', guide)
    asked = "".join(
        f"COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()\n"
        '_pipesched_completion pipesched; echo "${COMPREPLY[@]}"\n'
        for line in COMPLETED
    )
    done = bash(f"compopt() {{ :; }}\n{switch}\n{asked}", tmp_path)  # compopt is a builtin of a terminal's line
    assert [line.split() for line in done.stdout.splitlines()] == list(COMPLETED.values()) and not done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script(shell: str, tmp_path: Path) -> None:
    """The script asks this program for completions."""
    done = bash("pipesched", tmp_path, _PIPESCHED_COMPLETE=f"{shell}_source")
    assert done.returncode == 0 and f"_PIPESCHED_COMPLETE={shell}_complete" in done.stdout
