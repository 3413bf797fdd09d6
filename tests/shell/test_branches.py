"""No function has more than 15 branches: variants and refusals are rows of tables."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

MOST = 15
TREE = Path(__file__).parents[2] / "pipesched"
ONE = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.match_case)


def decisions(function: ast.AST) -> int:
    """Return the number of branches, loops, and conditions of choices and comprehensions, with inner functions."""
    count = 0
    for node in ast.walk(function):
        count += isinstance(node, ONE)
        count += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        count += 1 + len(node.ifs) if isinstance(node, ast.comprehension) else 0
    return count


def over(text: str) -> list[str]:
    """Return the functions of a text that decide too often."""
    found = (x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef))
    return [f"{x.name}: {count}" for x in found if (count := decisions(x)) > MOST]


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
