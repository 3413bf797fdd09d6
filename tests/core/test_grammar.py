"""The grammar's tables equal the tables that lark generates, and our parser accepts the same texts as lark's.

After a change of the grammar: ``python -m tests.core.test_grammar`` writes the tables.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesched.language import ast, grammar
from pipesched.language.grammar import Children
from tests.depth import deep
from tests.makers.grammar_tables import written as tables
from tests.makers.ps_trees import written

ROOT = Path(__file__).parents[2]
GRAMMAR, TABLES = ROOT / "grammars" / "pipesched.lark", ROOT / "grammars" / "pipesched.lalr.json"
TEXTS = sorted([*(ROOT / "schedules").glob("*.ps"), *(ROOT / "tests" / "language").glob("*.ps")])


class Derivation:
    """A builder that keeps the name and the children of each rule."""

    def __getattr__(self, rule: str) -> Callable[[Children], Any]:
        return lambda children: (rule, *children)


def plain(value: Any) -> Any:
    """Return a derivation as tuples and texts, from either parser; its places are the places of its tokens."""
    if hasattr(value, "data"):
        return (str(value.data), *map(plain, value.children))
    if hasattr(value, "start_pos"):
        return value.type, str(value), value.start_pos
    if hasattr(value, "kind"):
        return value.kind, value.text, value.start
    return (value[0], *map(plain, value[1:]))


@cache
def lark() -> Any:
    from lark import Lark

    options = {"parser": "lalr", "lexer": "basic", "start": "file", "keep_all_tokens": True}
    return Lark(GRAMMAR.read_text("utf-8"), maybe_placeholders=False, **options)


def as_lark_reads(text: str) -> Any:
    from lark.exceptions import UnexpectedInput

    try:
        return plain(lark().parse(text))
    except UnexpectedInput as error:
        ended = getattr(getattr(error, "token", None), "type", "") == "$END"
        return len(text) if ended else error.pos_in_stream


def as_we_read(text: str) -> Any:
    read = grammar.grammar().read(text, Derivation())
    return read.start if hasattr(read, "start") else plain(read)


@pytest.mark.quick
def test_the_tables_are_those_of_the_grammar() -> None:
    """The shipped tables equal the tables that lark generates for the current grammar."""
    assert TABLES.read_text("utf-8") == tables(GRAMMAR.read_text("utf-8")), "python -m tests.core.test_grammar"


def test_the_tables_depend_on_no_order_of_a_set() -> None:
    """Processes with different hash seeds write the same bytes."""
    code = (
        "import pathlib, sys; from tests.makers.grammar_tables import written;"
        f"sys.stdout.write(written(pathlib.Path({str(GRAMMAR)!r}).read_text('utf-8')))"
    )
    for seed in ("1", "2"):
        run = [sys.executable, "-c", code]
        done = subprocess.run(
            run, env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}, capture_output=True, check=True
        )
        assert done.stdout == TABLES.read_bytes()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_files_are_read_as_lark_reads_them(path: Path) -> None:
    """Each file has lark's derivation, or fails where lark fails; so does each prefix."""
    text = path.read_text("utf-8")
    for end in {len(text), *range(0, len(text), max(1, len(text) // deep(5)))}:
        assert as_we_read(text[:end]) == as_lark_reads(text[:end])


@settings(max_examples=deep(20), deadline=None)
@given(written(), st.randoms())
def test_random_texts_are_read_as_lark_reads_them(case: tuple[ast.File, str], random: Any) -> None:
    """Random files of every form, with a moved piece, are read as lark reads them."""
    _, text = case
    low, high, at = sorted(random.randrange(len(text)) for _ in range(3))
    for said in (text, text[:low] + text[high:at] + text[low:high] + text[at:]):
        assert as_we_read(said) == as_lark_reads(said)


def test_a_file_is_read_without_lark() -> None:
    """A file is read without lark, right or wrong."""
    code = (
        "import sys; sys.modules['lark'] = None; from pipesched.__main__ import main;"
        "sys.exit(main(['verify', '1f1b', '--p', '4']) * 10 + main(['fmt', '-']))"
    )
    done = subprocess.run([sys.executable, "-c", code], input=b"schedule x(p", capture_output=True, check=False)
    assert (done.returncode, done.stderr.count(b"error[PS101]")) == (1, 1)


if __name__ == "__main__":
    TABLES.write_text(tables(GRAMMAR.read_text("utf-8")), "utf-8")
