"""The TextMate grammar, with which editors colour `.ps` files, agrees with the grammar of the language.

Its patterns are simple enough for `re`: this file has an interpreter for the forms that it uses, matches and one kind
of begin and end. Real editors use vscode-textmate, which gave the same scopes for the library.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from lark import Lark, Token

from tests.depth import deep

TOP = Path(__file__).parents[2]
FILES = sorted((TOP / "schedules").glob("*.ps"))
Scope = tuple[int, int, str]


@cache
def patterns() -> list[tuple[re.Pattern[str], dict[str, str]]]:
    grammar = json.loads((TOP / "grammars" / "pipesched.tmLanguage.json").read_text("utf-8"))
    (included,) = grammar["patterns"]
    listed = grammar["repository"][included["include"].removeprefix("#")]["patterns"]
    return [(re.compile(one.get("match") or one["begin"]), one) for one in listed]


def scopes(text: str) -> Iterator[Scope]:
    """Yield the scopes of a text: at each place the scopes of the first pattern that matches; strings span lines."""
    at = 0
    while at < len(text):
        match, one = next(((found, one) for known, one in patterns() if (found := known.match(text, at))), (None, {}))
        if match is None:
            at += 1
            continue
        end = match.end()
        if "end" in one:
            closing = re.compile(one["end"]).search(text, end)
            end = closing.end() if closing else len(text)
        groups = range(1, match.re.groups + 1) if "captures" in one else [0]
        yield from (
            (match.start(group), max(match.end(group), end if not group else 0), one["name"]) for group in groups
        )
        assert end > at
        at = end


@cache
def lexer() -> Lark:
    """The lexer that lark makes of the language's own grammar."""
    return Lark((TOP / "grammars" / "pipesched.lark").read_text("utf-8"), parser="lalr", lexer="basic", start="file")


def agrees(token: Token, name: str) -> bool:
    """Return True if a scope suits a token: its kind by the grammar of the language."""
    kind = str(token.type)
    if kind in ("STRING", "TEXT"):
        return name.startswith("string.")
    if kind == "NUMBER":
        return name.startswith("constant.numeric.")
    if kind == "NAME":
        return name.startswith(("variable.", "entity.name.", "support.function.", "meta.schedule."))
    if str(token).isalpha():
        return name.startswith(("keyword.", "constant.language.", "meta.schedule."))
    return name.startswith(("keyword.operator.", "punctuation."))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_token_of_the_library_has_a_scope(file: Path) -> None:
    """The scopes are cut where the tokens are, and each suits the kind of its token."""
    text = file.read_text("utf-8")
    found = {(start, end): name for start, end, name in scopes(text)}
    tokens = list(lexer().lex(text))
    assert len(tokens) > 20
    for token in tokens:
        place = token.start_pos, token.end_pos
        assert place in found, (str(token), token.line)
        assert agrees(token, found[place]), (str(token), token.line, found[place])


@pytest.mark.parametrize("seed", range(deep(10)))
def test_broken_text_keeps_its_colours(seed: int) -> None:
    """A slip in a file changes no colour before it, and colouring ends."""
    rng = random.Random(seed)
    text = rng.choice(FILES).read_text("utf-8")
    at = rng.randrange(len(text))
    broken = text[:at] + rng.choice(["", "$", '"', "#", "{", "..", "0.", "schedule"]) + text[at + rng.randrange(3) :]
    before = [scope for scope in scopes(text) if scope[1] < at][:-1]  # a call is one by what follows its name
    assert list(scopes(broken))[: len(before)] == before
