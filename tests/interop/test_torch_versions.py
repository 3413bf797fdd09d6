"""One row of a table adds support for a version of torch everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pipesched.diagnostics import PipeschedError
from pipesched.model.torch_versions import NEWEST, OLDEST, VERSIONS, parse_version

ROOT = Path(__file__).parents[2]

ADDED = """
import dataclasses, sys
from pipesched.model import torch_versions as table
source = open(table.__file__, encoding="utf-8").read()
last = [line for line in source.splitlines() if line.startswith("    TorchVersion(")][-1]
row = last.replace("(2, 15)", "(2, 16)")
assert row != last
exec(compile(source.replace(last, last + chr(10) + row), table.__file__, "exec"), table.__dict__)
from pipesched.__main__ import main
main()
"""


def with_2_16(*arguments: str, given: str = "") -> str:
    """Return the output of a command in a process whose table has a row for 2.16, a copy of 2.15."""
    command = [sys.executable, "-c", ADDED, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, cwd=ROOT)
    return re.sub(r"\s+", " ", done.stdout + done.stderr)


@pytest.mark.nightly
def test_a_row_supports_a_version() -> None:
    """Every part takes 2.16 from the table: help, limits, emission, reading, the checks and their messages."""
    assert "2.10..2.16" in with_2_16("verify", "--help")
    assert "from 2.10 to 2.16" in with_2_16("verify", "1f1b", "--p", "2", "--torch-version", "2.17")
    csv = with_2_16("emit", "1f1b", "--p", "2", "--m", "2", "--target", "torch-comms", "--torch-version", "2.16")
    assert "0WAIT_SEND_F0" in csv
    rows = "\n".join(row for row in csv.split(" ") if re.fullmatch(r"(\d+[A-Z_]+\d*,?)+", row))
    assert "ok" in with_2_16("verify", "-", "--torch-version", "2.16", given=rows)
    without = re.sub(r"\d+WAIT_SEND_[FB]\d+,?", "", rows).replace(",\n", "\n").rstrip(",")
    refused = with_2_16("verify", "-", "--torch-version", "2.16", given=without)
    assert "PS808" in refused
    assert "torch 2.16 refuses the file" in refused


@pytest.mark.parametrize("text", ["2.13", "2.13.1", "2.13.0+cpu"])
def test_a_patch_number_is_dropped(text: str) -> None:
    """The rules of the minor version apply."""
    assert str(parse_version(text)) == "2.13"


@pytest.mark.parametrize("text", ["", "2", "2.", "2.9", "2.16", "3.0", "1.13", "2.13a", "v2.13", " 2.13", "2.１３"])
def test_what_is_not_supported_is_refused_with_the_range(text: str) -> None:
    """The message names the oldest and the newest."""
    with pytest.raises(PipeschedError, match=r"from 2\.10 to 2\.15"):
        parse_version(text)


def test_the_package_installs_the_versions_of_the_table() -> None:
    """pyproject.toml requires a torch from the oldest version to below the one after the newest."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert extras["runtime"] == [f"torch>={OLDEST},<2.{NEWEST.number[1] + 1}"]


def test_rows_are_in_order() -> None:
    """The table has each version once, oldest first."""
    numbers = [version.number for version in VERSIONS]
    assert numbers == sorted(set(numbers))
