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
from pipesched.safe import STEERING
from pipesched.source import Source

if TYPE_CHECKING:
    from lark import Lark

NESTED = 100  # brackets inside one another
WORDS = 100_000  # names, numbers, signs and strings of a file
OPS_A_WORD = 20  # --max-ops allows more words too: one for so many operations

_WORD = re.compile(r'[A-Za-z_0-9.]+|"[^"]*"?|#[^\r\n]*|[^\s"#A-Za-z_0-9.]')


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


def parse(source: Source, words: int = WORDS) -> ast.File:
    """The tree of a file of so many words at most.

    Raises PipeschedError with all independent mistakes of the file, 20 at most: PS101 to PS104, PS210, PS219.
    """
    _refuse_long(source, words)
    _refuse_steering(source)
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


def _refuse_long(source: Source, words: int) -> None:
    """Whether a file can be read in a few seconds."""
    if len(source.text) <= words:
        return
    count = 0
    for found in _WORD.finditer(source.text):
        count += not found.group().startswith("#")
        if count > words:
            raise fail(
                Code.TOO_MANY_OPERATIONS,
                f"the file has more than {words:,} words; the limit is one for {OPS_A_WORD} operations of --max-ops",
                Label(source.span(found.start(), found.end()), f"word {words + 1:,}"),
                help="say it with loops; an order that has none is shorter as text (`rank 0: F0.0 …`) or torch CSV; "
                "--max-ops raises the limit",
            )


def _refuse_steering(source: Source) -> None:
    """Characters that steer a terminal, or make a line look other than it is read, wherever they stand."""
    found = STEERING.search(source.text, source.text.startswith("\ufeff"))
    if found is not None:
        point = f"U+{ord(found.group()):04X}"
        raise fail(
            Code.CHARACTER,
            f"the file has the character {point}, which a terminal would obey and nobody can see",
            Label(source.span(found.start(), found.end()), point),
            help="remove it; comments and documentation have none either",
        )


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
