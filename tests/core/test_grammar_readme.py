"""The language reference is true: every block in it is tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipesched.language.parser import parse
from pipesched.model.schedule import Schedule
from tests.makers.chunks import FENCE, Chunk, check, evaluate, fences

pytestmark = pytest.mark.quick

README = Path(__file__).parents[2] / "grammars" / "README.md"
GRAMMAR = README.with_name("pipesched.lark")
BLOCKS = fences(README)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_is_right_or_wrong_where_it_says(block: Chunk) -> None:
    """A block has the findings that its lines announce, and no others."""
    check(block)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.orders], ids=str)
def test_block_writes_the_order_below_it(block: Chunk) -> None:
    """The order below a block is the block's order at its sizes."""
    schedule = evaluate(parse(block.source), block.parameters or {}).schedule
    for line in block.orders:
        rank, _, order = line.removeprefix("rank ").partition(": ")
        assert " ".join(slots(schedule, int(rank))) == order


def slots(schedule: Schedule, rank: int) -> list[str]:
    """Return the operations of a rank, the parts of an overlap joined by `+`."""
    written: list[str] = []
    for operation in schedule.order(rank):
        if operation.second:
            written[-1] += f"+{operation}"
        else:
            written.append(str(operation))
    return written


def test_every_block_is_a_test() -> None:
    """No fence of the page is skipped: it is a block to run, the order of the block before it, or commands, which
    test_readme.py runs.
    """
    text = README.read_text("utf-8")
    commands = text.count("\n```console\n")
    with_order = sum(1 for found in FENCE.finditer(text) if found[3])
    assert text.count("\n```ps") == len(BLOCKS)
    assert text.count("\n```text") == with_order
    assert text.count("\n```") == 2 * (len(BLOCKS) + with_order + commands)


def test_every_word_of_the_language_is_shown() -> None:
    """Each reserved word of the grammar is listed as reserved, and occurs in a right block."""
    grammar = re.sub(r"//.*", "", GRAMMAR.read_text("utf-8"))
    words = set(re.findall(r'"([A-Za-z]+)"', grammar))
    (names,) = re.findall(r"^name: (.*)", grammar, re.MULTILINE)
    soft = set(re.findall(r'"(\w+)"', names))
    text = README.read_text("utf-8")
    listed = re.search(
        r"These words are reserved:(.*?)\. The following are keywords (.*?)\.\s+Any other", text, re.DOTALL
    )
    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == words - soft
    assert set(re.findall(r"`(\w+)`", listed[2])) == soft
    reserved = words
    right = " ".join(re.sub(r'#.*|"[^"]*"', "", block.source.text) for block in BLOCKS if not block.expected)
    assert reserved <= set(re.findall(r"\w+", right))
