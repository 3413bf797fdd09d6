"""No regular expression needs a feature that the `re` module of an older Python gets wrong.

Python 3.11 before 3.11.5 backtracks into possessive quantifiers (CPython issue 106052) and so takes texts that do not
match: what such a pattern guards is then wrong on some machines and right on others.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipesched.language.grammar import grammar

ROOT = Path(__file__).parents[2]

_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(\(\?>)|((?:[?*+]|\{[0-9]*,?[0-9]*\})\+)|.", re.DOTALL)
_BETWEEN = r"(?:[\s\\\"'()]|[a-z]{1,2}(?=[\"']))*"
_POSSIBLE = re.compile(rf"[?*+}}]{_BETWEEN}\+|\?{_BETWEEN}>")


def forbidden(pattern: str) -> list[str]:
    """Return the atomic groups and possessive quantifiers of a pattern; escapes and classes have none."""
    return [found[1] or found[2] for found in _PIECE.finditer(pattern) if found[1] or found[2]]


def strings(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a piece of code without its documentation; a placeholder counts as a letter."""
    said = {id(x.value) for x in ast.walk(tree) if isinstance(x, ast.Expr)}
    said |= {id(part) for x in ast.walk(tree) if isinstance(x, ast.JoinedStr) for part in x.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(x.value) if isinstance(x, ast.Constant) else "x" for x in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in said:
            yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def given_to_re(tree: ast.AST) -> Iterator[str]:
    """Yield the strings in calls of `re`: tests also have texts of other languages, in which ``++`` is right."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(of := node.func, ast.Attribute) and ast.unparse(of.value) == "re":
            yield from strings(node)


def possible(code: str) -> bool:
    """Return False if code has no such piece, whatever quotes and line ends are within one: parsing takes longer."""
    return _POSSIBLE.search(code) is not None


@pytest.mark.quick
def test_no_pattern_is_possessive() -> None:
    """No string of the tree is a pattern with an atomic group or a possessive quantifier."""
    found = [
        f"{path.relative_to(ROOT)}: {piece} in {text[:60]!r}"
        for folder, read in (("pipesched", strings), ("tests", given_to_re))
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__) and possible(code := path.read_text("utf-8"))
        for text in read(ast.parse(code))
        for piece in forbidden(text)
    ]
    assert found == []


def test_no_terminal_is_possessive() -> None:
    """No terminal of the grammar is such a pattern either."""
    assert [kind for kind, pattern in grammar().words.patterns if forbidden(pattern)] == []


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ('re.compile(r"a?+b")', 1),
        ('re.compile(rb"[0-9]*+,(?:x|y)++")', 2),
        ('re.compile(rf"(?:{name}{{1,8}}+)?+")', 2),
        ('f = rf"{name}+"', 0),
        ('re.compile("(?>a|ab)c")', 1),
        (r're.compile(r"\++[?+]+\\*+\(?>")', 1),
        (r're.compile(r"[]?+]")', 0),
        (r're.compile(r"[^]\]*+]")', 0),
        ('"""counts with w++"""', 0),
    ],
)
def test_rule_finds_them(code: str, count: int) -> None:
    """Each of these strings has this number of them, as bytes, as a format, or escaped."""
    assert sum(len(forbidden(text)) for text in strings(ast.parse(code))) == count


@pytest.mark.parametrize(
    "text", ["a?+", "(?:ab)*+", "a{2,}+", "a{,3}+", "(?>a)", "[+]+", r"\++", "(?:a+)+", "a{1}b+", "a{x}+"]
)
def test_rule_is_that_of_python(text: str) -> None:
    """Python's own parser finds the same."""
    tree = str(re._parser.parse(text))  # type: ignore[attr-defined]
    assert ("POSSESSIVE" in tree or "ATOMIC" in tree) == bool(forbidden(text))
