"""In every command one table, which emit/README.md shows, determines the exit status from the diagnostic codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pipesched.__main__ import main
from pipesched.explain.explain_command import codes as every_code
from tests.depth import some

ROOT = Path(__file__).parents[2]
GOOD = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
HALF = (
    "schedule half(p, m)\nrequire m % 2 == 0\nstage s in 0 .. p on rank s\nrank r { repeat m { F } repeat m { B } }\n"
)
FILES = {
    "good.csv": GOOD,
    "hang.csv": "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
    "cell.csv": GOOD.replace("1B0", "1X0"),
    "half.ps": HALF,
    "costs.ps": HALF + "costs F = 0 - 1\n",
    "empty.ps": "",
    "bad.toml": "F = [1,",
}
ONE_FILE = ("verify", "show", "why", "emit", "emit --target order", "compare", "optimize")
TIMED = ("verify", "show", "why", "emit", "compare", "optimize")
SLIPS = {  # the arguments, their code, and the commands that can find it
    "1f1b --p 0": ("PS225", (*ONE_FILE, "run", "diff gpipe")),
    "1f1b --p 4 --m 0": ("PS225", ONE_FILE),
    "1f1b --p 4 -D m=0": ("PS225", ONE_FILE),
    "half.ps --p 2 --m 3": ("PS209", ONE_FILE),
    "good.csv --p 4": ("PS803", ONE_FILE),
    "good.csv --m 4": ("PS803", ONE_FILE),
    "cell.csv": ("PS801", ONE_FILE),
    "hang.csv": ("PS306", TIMED),
    "empty.ps": ("PS104", ONE_FILE),
    "costs.ps --p 2 --m 2": ("PS222", ONE_FILE),
    "none.csv": ("PS809", ONE_FILE),
    "none": ("PS810", ONE_FILE),
    "1f1b": ("PS207", ONE_FILE),
    "1f1b --p 2 -D x=1": ("PS208", ONE_FILE),
    "1f1b --p 2 --cost F=x": ("PS225", TIMED),
    "1f1b --p 2 --cost F=[1,2,3]": ("PS225", TIMED),
    "1f1b --p 2 --costs bad.toml": ("PS225", TIMED),
    "1f1b --p 2 --frobnicate": ("PS225", ONE_FILE),
}
CASES = [(command, slip) for slip, (_, commands) in SLIPS.items() for command in commands]


def documented() -> dict[str, int]:
    """Return the table of emit/README.md: the status of every code that it names, and of the others."""
    rows = re.findall(r"^\| ([0124]) \|[^|]*\|([^|]*)\|$", (ROOT / "emit" / "README.md").read_text("utf-8"), re.M)
    named = {code: int(status) for status, codes in rows for code in re.findall(r"PS\d{3}", codes)}
    return {str(code): 0 if code.value.startswith("PS9") else named.get(str(code), 1) for code in every_code()}


STATUS = documented()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def codes(value: object) -> list[str]:
    """Return every code in the JSON output of a command."""
    if isinstance(value, dict):
        own = [str(value["code"])] if {"code", "severity"} <= value.keys() else []
        return own + [code for entry in value.values() for code in codes(entry)]
    return [code for entry in value for code in codes(entry)] if isinstance(value, list) else []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("command", "slip"), some(CASES, 2), ids=str)
def test_every_command_ends_as_the_table_says(command: str, slip: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A slip has the same code in every other command (``--depth 2``: in each); the status is that of its codes."""
    status = main([*command.split(), *slip.split(), "--json"])
    found = codes(json.loads(capsys.readouterr().out))
    assert SLIPS[slip][0] in found
    assert status == max(STATUS[code] for code in found)


def test_the_documented_table_is_the_table() -> None:
    """The status of every code follows from the table."""
    assert {str(code): code.status for code in every_code()} == STATUS


def test_explain_tells_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    """Every page ends with the exit status."""
    for code in every_code():
        assert main(["explain", str(code)]) == 0
        assert capsys.readouterr().out.endswith(f"\n\nExit status {STATUS[str(code)]}.\n")
