"""Text -> tree. LALR(1): linear time, one pass, no ambiguity; a file that is right is read once and nothing more.

    text --lark, grammars/pipesched.lark--> reductions --Build--> ast.File
      \\__ not in the language --recover--> every independent mistake, in words

The grammar is loaded with the first file; a program that parses nothing does not import lark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from pipesched.assets import asset
from pipesched.diagnostics import Code, Label, PipeschedError, fail
from pipesched.language import ast
from pipesched.language.build import Build
from pipesched.language.tokens import Words
from pipesched.source import Source

if TYPE_CHECKING:
    from lark import Lark

NESTED = 100  # brackets inside one another


@dataclass(frozen=True)
class Grammar:
    """The grammar, ready to read; one text at a time, for all share the builder."""

    lark: Lark
    words: Words
    build: Build
    lock: Lock


@cache
def grammar() -> Grammar:
    """The grammar of the language. The first call takes some 50 ms, half of it the import of lark."""
    from lark import Lark

    build = Build()
    lark = Lark(
        asset("grammars", "pipesched.lark").read_text("utf-8"),
        parser="lalr",
        lexer="basic",
        start="file",
        keep_all_tokens=True,
        maybe_placeholders=False,
        transformer=build,
    )
    return Grammar(lark, Words(tuple(lark.terminals)), build, Lock())


def parse(source: Source) -> ast.File:
    """The tree of a file.

    Raises PipeschedError with all independent mistakes of the file, 20 at most: PS101 to PS104, PS219.
    """
    _refuse_deep(source)
    tree = _read(source)
    if tree is None:
        from pipesched.language.recover import mistakes

        raise PipeschedError(mistakes(source, grammar().lark, grammar().words))
    return tree


def _read(source: Source) -> ast.File | None:
    """The tree, or None if the text is not in the language."""
    from lark.exceptions import UnexpectedInput

    with grammar().lock:
        grammar().build.begin(source)
        try:
            tree = grammar().lark.parse(source.text)
        except UnexpectedInput:
            return None
        return tree if isinstance(tree, ast.File) and not grammar().build.doubtful else None


def _refuse_deep(source: Source) -> None:
    """One linear look at the brackets, so that ten thousand of them are answered at once."""
    depth = 0
    if sum(source.text.count(bracket) for bracket in "{[(") <= NESTED:
        return
    for found in re.finditer(r'[{\[(]|[}\])]|#[^\r\n]*|"[^"]*"', source.text):
        depth += (found.group() in "{[(") - (found.group() in "}])")
        if depth > NESTED:
            raise fail(
                Code.NESTING,
                f"brackets are nested more than {NESTED} deep",
                Label(source.span(found.start(), found.end()), f"bracket {NESTED + 1}, counted from the outside"),
                help="name inner expressions with `let`; a schedule needs no more than a few nested blocks",
            )
