"""Every block of every README is executed: ```console lines are run and compared, ```python blocks are doctests.

``ps`` and ``text`` blocks of the language reference, ``json`` blocks and ``py`` scripts have tests of their own; the
two ``sh`` lines of the README are run by .ci/run.
After a change of output that is meant: ``python -m tests.test_readme [WORD]`` writes the new output into the blocks,
or into those with WORD in them.
"""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import shlex
import sys
from pathlib import Path
from unittest import mock

import pytest

from tests.readers.typed import typed

TOP = Path(__file__).resolve().parent.parent
READMES = sorted(str(path.relative_to(TOP)) for path in TOP.glob("**/README.md") if ".venv" not in path.parts)
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MEASURED = re.compile(r"[\d.]+(?= ms measured)|(?<=largest error )[\de.-]+(?=,)|(?<= ms )\([+-][\d.]+ %\)")
KNOWN = {"console", "python", "py", "ps", "text", "sh", "json"}


def blocks(readme: str, kind: str) -> list[str]:
    text = (TOP / readme).read_text("utf-8")
    return [match[2] for match in BLOCK.finditer(text) if match[1] == kind]


def run(command: str) -> str:
    """What a command prints, stdout and stderr as a person sees them."""
    words = shlex.split(command)
    if words[0] == "cat":
        return "".join((TOP / name).read_text("utf-8") for name in words[1:])
    assert words[0] == "pipesched", command
    with contextlib.chdir(TOP), mock.patch.dict(os.environ, {"NO_COLOR": "1", "COLUMNS": "100"}):
        return typed(*words[1:]).shown.decode("utf-8")


def replayed(block: str) -> str:
    """The block with the output that its commands print now."""
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"$ {command}\n{run(command)}" for command in commands)


CONSOLE = [(readme, number) for readme in READMES for number in range(len(blocks(readme, "console")))]


@pytest.mark.usefixtures("one_supervisor")
@pytest.mark.parametrize(("readme", "number"), CONSOLE)
def test_console_blocks_show_what_the_commands_print(readme: str, number: int) -> None:
    """A command in a README prints exactly what the README says, but for what was measured."""
    block = blocks(readme, "console")[number]

    assert MEASURED.sub("N", replayed(block)) == MEASURED.sub("N", block)


@pytest.mark.parametrize("readme", [readme for readme in READMES if blocks(readme, "python")])
def test_python_blocks_are_true(readme: str) -> None:
    """The Python of a README runs, and its values are those shown."""
    for block in blocks(readme, "python"):
        example = doctest.DocTestParser().get_doctest(block, {}, readme, readme, 0)

        assert example.examples, "a python block is written as a doctest"
        assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize("readme", READMES)
def test_no_block_goes_untested(readme: str) -> None:
    """A block has a language, and each language has a test."""
    text = (TOP / readme).read_text("utf-8")
    kinds = {match[1] for match in BLOCK.finditer(text)}

    assert text.count("\n```") == 2 * len(list(BLOCK.finditer(text)))
    assert kinds <= KNOWN


def test_the_readme_has_the_two_lines() -> None:
    """One line installs and verifies, one installs and tests; .ci/run runs exactly these."""
    assert [len(block.splitlines()) for block in blocks("README.md", "sh")] == [1, 1]


def update(word: str = "") -> None:
    """Write what the commands print now into the console blocks that have the word."""
    for readme in READMES:
        path = TOP / readme
        text = path.read_text("utf-8")

        def renewed(match: re.Match[str]) -> str:
            chosen = match[1] == "console" and word in match[2]
            return f"```console\n{replayed(match[2])}```" if chosen else match[0]

        path.write_text(BLOCK.sub(renewed, text), "utf-8")


if __name__ == "__main__":
    update(*sys.argv[1:2])
