"""Public annotations are correct: typical user code, and the code in every README, passes mypy --strict.

The files of `typing/` are such programs. mypy uses the repository's cache, as CI does, so a second run is cheap.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pipesched
from tests.shell.test_readme import READMES, blocks

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "tests" / "typing").glob("*.py"))


def program(block: str) -> str:
    """Return the lines of a doctest without its prompts and answers."""
    return "".join(line[4:] + "\n" for line in block.splitlines() if line.startswith((">>> ", "... ")))


@pytest.mark.nightly
def test_users_code_passes_mypy(tmp_path: Path) -> None:
    """Every file of `typing/` and every Python block of a README, in one run of mypy."""
    pytest.importorskip("torch", reason="the programs need its types")
    files = [str(path) for path in PROGRAMS]
    for readme in READMES:
        if readme == "emit/torchtitan.md":
            continue  # its scripts are for torchtitan, which is not installed here: `.ci/run --trainers`
        programs = [program(block) for block in blocks(readme, "python")] + blocks(readme, "py")
        for number, text in enumerate(programs):
            name = "readme_" + "_".join(Path(readme).with_suffix("").parts).replace(".", "_") + f"_{number}.py"
            (tmp_path / name).write_text(text, encoding="utf-8")
            files.append(str(tmp_path / name))
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--config-file",
        "pyproject.toml",
        *files,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_what_passes_mypy_runs(path: Path) -> None:
    """The annotated values exist, and have these types."""
    space: dict[str, object] = {"__name__": path.stem}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), space)
    if path.stem == "verify":
        assert space["errors"](ROOT / "tests" / "torch_fixtures" / "ok_1f1b.csv") == []  # type: ignore[operator]
        assert 0 < space["bubble"]("1f1b", 2) < 1  # type: ignore[operator]
        assert space["peaks"]("1f1b", caps=[2, 1]) == [2.0, 1.0]  # type: ignore[operator]
    elif path.stem == "optimize":
        assert all(isinstance(best, pipesched.Optimum) for best in space["asked"]())  # type: ignore[operator]
        assert "True" in space["told"]("zb_h1")  # type: ignore[operator]
    elif path.stem == "functions":
        assert space["asked"]("1f1b")[0] == "5/2"  # type: ignore[operator]
        assert all(value["ok"] in (True, None) for value in space["values"]("1f1b"))  # type: ignore[operator]
        assert space["messages"](pipesched.Source("x.json", pipesched.emit("1f1b", p=2, m=3))) == 6  # type: ignore[operator]
    else:
        assert all(report.ok for report in space["reports"])  # type: ignore[attr-defined]
