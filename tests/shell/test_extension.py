"""The extension in CONTRIBUTING runs without changes to the core, and the core works without extensions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
FILES = re.compile(r"^```(?:python|json) (pipesched/\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITH_IT = """\
import sys, pipesched
from pipesched import extension
pipesched.__path__.append(sys.argv.pop(1))
extension.register(*extension.registered, "busy")
from pipesched.__main__ import main
sys.exit(main())
"""
WITHOUT = """\
import sys
from pipesched import extension
extension.register()
from pipesched.__main__ import main
sys.exit(main())
"""


def ran(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=TOP)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Return a folder with the files of the page, and nothing else."""
    page = (TOP / ".github" / "CONTRIBUTING.md").read_text("utf-8")
    files = dict(FILES.findall(page))
    assert len(files) == 3 and sum(text.count("\n") for text in files.values()) <= 96
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return str(tmp_path / "pipesched")


def test_the_extension_of_the_page_has_its_verb(folder: str) -> None:
    """In 1F1B at p = 4, m = 8, F = 1, B = 2, every rank computes m / (m + p - 1) of the time."""
    done = ran(WITH_IT, folder, "busy", "1f1b", "--p", "4", "--m", "8", "--json")
    assert done.returncode == 0, done.stderr
    m, p, forward, backward = 8, 4, 1, 2
    part = Fraction(m * (forward + backward), (m + p - 1) * (forward + backward))
    answer = json.loads(done.stdout)
    assert answer["busy"] == [str(part)] * p
    schema = json.loads((Path(folder) / "busy" / "answers.schema.json").read_text("utf-8"))["$defs"]["busy"]
    assert [*answer] == schema["required"] == [*schema["properties"]]
    assert "rank 3   72.7 %" in ran(WITH_IT, folder, "busy", "1f1b", "--p", "4", "--m", "8").stdout
    assert "busy       Say how much" in ran(WITH_IT, folder, "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("verify", "interleaved", "--p", "4", "--v", "2"), "deadlock-free (strict, so under every model)"),
        (("emit", "1f1b", "--p", "2", "--m", "2"), '"version"'),
        (("--help",), "verify"),
    ],
)
def test_the_core_does_its_work_alone(arguments: tuple[str, ...], said: str) -> None:
    """Without extensions every verb of the core behaves the same."""
    done = ran(WITHOUT, *arguments)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


@pytest.mark.parametrize("verb", ["show", "list", "fmt", "why", "optimize", "plan", "run", "check"])
def test_a_verb_without_its_extension_is_unknown(verb: str) -> None:
    """A missing extension does not crash."""
    done = ran(WITHOUT, verb, "1f1b")
    assert done.returncode == 2 and f"no command is called '{verb}'" in done.stderr
