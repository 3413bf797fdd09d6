"""No function has more than 15 branches, since variants and refusals are rows of tables."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

MOST = 15
TREE = Path(__file__).parents[2] / "pipesched"
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
ONE = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.match_case)
DEF = re.compile(r"^( *)(?:async )?def ", re.MULTILINE)
WORD = re.compile(r"\b(?:if|elif|for|while|except|case|and|or)\b")


def decisions(function: ast.AST) -> int:
    """Return the number of branches, loops, and conditions of choices and comprehensions, with inner functions."""
    count = 0
    for node in ast.walk(function):
        count += isinstance(node, ONE)
        count += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        count += 1 + len(node.ifs) if isinstance(node, ast.comprehension) else 0
    return count


def functions(text: str) -> Iterator[str]:
    """Yield the functions of a text, inner ones too, that have enough words of decisions; parsing all takes longer."""
    for found in DEF.finditer(text):
        ends = re.compile(rf"^ {{0,{len(found[1])}}}[^\s)#]|\Z", re.MULTILINE).finditer(text, found.end())
        bodies = (text[found.start() : end.start()] for end in ends)
        body = next(x for x in bodies if x.count('"""') % 2 == 0)  # a line of a text may stand at the margin
        if len(WORD.findall(body)) > MOST:
            yield textwrap.dedent(body)


def over(text: str) -> list[str]:
    """Return the functions of a text that decide too often."""
    found = (ast.parse(one).body[0] for one in functions(text))
    return [f"{x.name}: {n}" for x in found if isinstance(x, FUNCTIONS) and (n := decisions(x)) > MOST]


def test_no_function_decides_more_than_15_times() -> None:
    """`ruff` counts only branches; ladders of conditions and comprehensions are as hard to read."""
    found = {
        str(file.relative_to(TREE)): names for file in TREE.rglob("*.py") if (names := over(file.read_text("utf-8")))
    }
    assert not found


@pytest.mark.parametrize(
    "more", ["    if x: pass\n", "    y = 1 if x else 2\n", "    y = [z for z in x]\n", "    y = x and x\n"]
)
def test_each_kind_of_decision_counts(more: str) -> None:
    """Fifteen pass, and the sixteenth is reported with the name of its function."""
    text = "def f(x):\n" + "    if x: pass\n" * MOST
    assert over(text) == [] and over(text + more) == ["f: 16"]
