"""The tests are in order: oracles share no code with the product, and the list in this README matches the docstrings.

After a test file came, went, or changed its first sentence: ``python -m tests.shell.test_map`` writes the map anew. A
file stays in the section where it is listed; a new one comes at the end, from where its line may be moved.
"""

from __future__ import annotations

import ast
import re
import textwrap
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

TESTS = Path(__file__).resolve().parents[1]
README = TESTS / "README.md"
LISTED = re.compile(r"^- `([\w/]+\.py)`: .*\n(?:  .*\n)*", re.MULTILINE)
COMMAND = re.compile(r"python -m tests\.([\w.]+)")
FILES = sorted(str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py") if path.parent.name != "typing")
ORACLES = [name for name in FILES if name.startswith("oracles/")]

# Where a question is written down. An oracle reads these values; it may ask the product for nothing else.
NOUNS = {
    "pipesched.model.costs": {"Costs"},
    "pipesched.model.ops": {"Compute", "Instruction", "Op"},
    "pipesched.model.placement": {"Placement"},
    "pipesched.model.schedule": {"Program", "Schedule"},
}


@cache
def docstring(name: str) -> str:
    """Return the docstring of a file, which begins with it; parsing the rest takes longer."""
    found = re.match(r'r?"""(?:[^"\\]|\\.|"(?!""))*"""', (TESTS / name).read_text("utf-8"), re.DOTALL)
    return ast.get_docstring(ast.parse(found[0])) or "" if found else ""


def line(name: str) -> str:
    """Return the line of a file in the map: the first paragraph of its docstring."""
    said = docstring(name).partition("\n\n")[0].replace("\n", " ").removesuffix(".")
    return textwrap.fill(f"- `{name}`: {said}", 120, subsequent_indent="  ", break_on_hyphens=False) + "\n"


def mapped(text: str) -> str:
    """Return the README with an up-to-date map."""
    listed = LISTED.sub(lambda found: line(found[1]) if found[1] in FILES else "", text)
    known = {found[1] for found in LISTED.finditer(listed)}
    return listed + "".join(line(name) for name in FILES if name not in known)


def test_the_map_says_what_the_docstrings_say() -> None:
    """Every Python file of the tests has one line: the current first sentence of its docstring."""
    text = README.read_text("utf-8")
    listed = [found[1] for found in LISTED.finditer(text)]

    assert sorted(listed) == FILES and text == mapped(text), "python -m tests.shell.test_map"


@pytest.mark.parametrize("name", ORACLES)
def test_an_oracle_shares_no_code_with_the_product(name: str) -> None:
    """From the product it imports only the nouns, by name; from the tests, only other oracles."""
    for node in ast.walk(ast.parse((TESTS / name).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            modules = {alias.name: {alias.name} for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            modules = {node.module or "": {alias.name for alias in node.names}}
        else:
            continue
        for module, names in modules.items():
            if module.startswith("pipesched"):
                assert names <= NOUNS.get(module, set()), f"line {node.lineno}: {module}, {names}"
            if module.startswith("tests"):
                assert module.startswith("tests.oracles."), f"line {node.lineno}"


def test_every_command_that_is_named_runs_a_module() -> None:
    """``python -m tests.…``, in a docstring or in the README, names a file that can be run."""
    named = {
        found[1] for text in (README.read_text("utf-8"), *map(docstring, FILES)) for found in COMMAND.finditer(text)
    }

    assert len(named) > 8
    for name in named:
        text = (TESTS / (name.replace(".", "/") + ".py")).read_text("utf-8")
        assert 'if __name__ == "__main__":' in text, name


if __name__ == "__main__":
    README.write_text(mapped(README.read_text("utf-8")), "utf-8")
