"""A printed syntax tree parses back to the same tree, and every mistake in a text is reported."""

from __future__ import annotations

import logging
import re
import sys
from dataclasses import fields, is_dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesched.diagnostics import Code, Diagnostic, PipeschedError
from pipesched.explain.words import scan
from pipesched.language import ast
from pipesched.language.grammar import grammar
from pipesched.language.parser import parse
from pipesched.language.tokens import SOFT
from pipesched.lift.printer import format_source
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers.chunks import Chunk, check, chunks
from tests.makers.ps_trees import LEVEL, written

ROOT = Path(__file__).parents[2]
SCHEDULES = sorted((ROOT / "schedules").glob("*.ps"))
CHUNKS = [chunk for path in sorted((ROOT / "tests" / "language").glob("*.ps")) for chunk in chunks(path)]
HEAD = "schedule f(p)\n"


def tree(text: str) -> ast.File:
    return parse(Source("x.ps", text))


def wrong(text: str) -> tuple[Diagnostic, ...]:
    """Return the findings in a text; none exactly if it parses."""
    try:
        tree(text)
    except PipeschedError as error:
        return error.diagnostics or pytest.fail("refused without a reason")
    return ()


def lines(text: str) -> list[int]:
    """Return the lines of the findings in a text."""
    return [finding.labels[0].span.line for finding in wrong(text) if finding.labels[0].span]


def inside(node: Any) -> list[ast.Node]:
    """Return a node and all nodes in it."""
    if isinstance(node, tuple):
        return [found for part in node for found in inside(part)]
    if not is_dataclass(node) or not isinstance(node, ast.Node):
        return []
    return [node, *(found for part in fields(node) for found in inside(getattr(node, part.name)))]


# Right files


@settings(max_examples=deep(25), deadline=None)
@given(written())
def test_words_are_read_as_the_tree_that_they_say(case: tuple[ast.File, str]) -> None:
    """The words of a tree read back as the tree, with any blanks, line ends and comments between them."""
    file, text = case
    assert tree(text) == file


ITEMS = (ast.Require, ast.Stages, ast.Frozen, ast.Slices, ast.Versions, ast.Rank, ast.Costs, ast.Parts, ast.Claim)
STATEMENTS = (ast.Let, ast.Operation, ast.Overlap, ast.Drain, ast.Step, ast.For, ast.Repeat, ast.If, ast.Greedy)


@settings(max_examples=deep(6), deadline=None)
@given(written())
def test_every_node_knows_its_place(case: tuple[ast.File, str]) -> None:
    """The source text of an expression, a statement or an item is exactly that node."""
    _, text = case
    file = tree(text)
    for node in inside(file)[1:]:
        said = node.span.text
        if isinstance(node, ITEMS):
            assert tree(f"{HEAD}{said}").items == (node,)
        elif isinstance(node, STATEMENTS):
            rank = tree(f"{HEAD}rank 0 {{ {said} }}").items[0]
            assert isinstance(rank, ast.Rank) and rank.body == (node,)
        elif isinstance(node, ast.Line):
            rank = tree(f"{HEAD}rank 0 {{ greedy {{ {said} }} }}").items[0]
            assert isinstance(rank, ast.Rank) and rank.body == (ast.Greedy(node.span, (node,)),)
        elif not isinstance(node, ast.Parameter | ast.Cost | ast.Part):
            claim = tree(f"{HEAD}claim {said}").items[0]
            assert isinstance(claim, ast.Claim) and claim.claim == node


def test_operators_of_a_row_group_from_the_left() -> None:
    """a - b - c is (a - b) - c, for every operator but the comparisons."""
    for operator, level in LEVEL.items():
        if operator != "not" and level != LEVEL["=="]:
            both = [
                tree(f"{HEAD}claim {said}")
                for said in (f"a {operator} b {operator} c", f"(a {operator} b) {operator} c")
            ]
            assert both[0] == both[1]


@pytest.mark.parametrize("text", ["\ufeff" + HEAD, HEAD.replace("\n", "\r\n"), HEAD.replace("\n", "\r"), HEAD[:-1]])
def test_marks_and_line_ends_mean_nothing(text: str) -> None:
    """A byte-order mark and the kind of line end do not change the tree."""
    assert tree(text) == tree(HEAD)


def test_documentation_has_one_kind_of_line_end() -> None:
    """A documentation of several lines is the same text with either line end."""
    assert tree('schedule f(p) "a\r\nb"').documentation == tree('schedule f(p) "a\nb"').documentation == "a\nb"


def test_every_quoted_word_of_the_grammar_is_reserved() -> None:
    """Exactly the words that the rule for names lists can be names."""
    text = re.sub(r"//.*", "", (ROOT / "grammars" / "pipesched.lark").read_text("utf-8"))
    (names,) = re.findall(r"^name: (.*)", text, re.MULTILINE)
    words = set(re.findall(r'"([A-Za-z]+)"', text)) - set(SOFT)
    assert {"repeat", "F", "true"} <= words and set(re.findall(r'"(\w+)"', names)) == set(SOFT)
    for word in words:
        assert wrong(f"{HEAD}let {word} = 1")
        assert not wrong(f"{HEAD}let {word}_ = {word}1 + {word.swapcase() if len(word) > 1 else word.lower()}")


@pytest.mark.parametrize("word", SOFT)
def test_a_soft_word_is_a_name_too(word: str) -> None:
    """A file that uses such a word as a name, wherever a name can be, means the same as with another name."""
    text = (
        f"schedule {word}({word}, m = {word}) let x = {word} require {word} - 1 < -{word} "
        f"route {word}: stage {word} in 0 .. {word} on rank {word}({word}) for microbatch 0 .. {word} "
        f"rank {word} {{ let {word}(k) = {word}(k) repeat {word} {{ F[{word}]({word}) }} W "
        f"for {word} in {word} .. m {{ B }} }} "
        f"let {word} = 3 claim {word} == {word} when {word}"
    )
    said, other = str(tree(text)), str(tree(re.sub(rf"\b{word}\b", "another", text)))
    assert said == other.replace("another", word)
    assert format_source(Source("x.ps", text)) == format_source(
        Source("x.ps", re.sub(rf"\b{word}\b", "Z" * len(word), text))
    ).replace("Z" * len(word), word)


def test_the_grammar_has_no_conflict(caplog: pytest.LogCaptureFixture) -> None:
    """The grammar is LALR(1) without silently resolved conflicts."""
    from lark import Lark

    text = (ROOT / "grammars" / "pipesched.lark").read_text("utf-8")
    with caplog.at_level(logging.DEBUG, "lark"):
        Lark(text, parser="lalr", lexer="basic", start="file", debug=True)
    assert not [record for record in caplog.records if "onflict" in record.getMessage()]


# Wrong files


@pytest.mark.parametrize("chunk", CHUNKS, ids=str)
def test_mistakes_are_told_where_they_are(chunk: Chunk) -> None:
    """Each chunk has the findings that its lines announce, and no others."""
    check(chunk)


def test_every_syntax_code_has_a_chunk() -> None:
    """PS101 to PS104 and the too long number are each shown, and the parser has no other finding."""
    shown = {code for chunk in CHUNKS for _, code, _ in chunk.expected}
    assert shown == {Code.SYNTAX, Code.CHARACTER, Code.NESTING, Code.EMPTY, Code.OVERFLOW}


def mutants(text: str) -> list[tuple[int, str]]:
    """Drop or move a word of a text: (line, text). Braces and `rank` have chunks of their own."""
    return [
        (text.count("\n", 0, token.start) + 1, text[: token.start] + instead + text[token.end :])
        for token in scan(grammar().words, text)
        if token.kind != "COMMENT" and token.text not in ("{", "}", "rank") and "\n" not in token.text
        for instead in (" " * len(token.text), f"on {token.text}", f") {token.text}", f"{token.text} §")
    ]


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_one_mistake_is_told_once(path: Path) -> None:
    """A missing or extra word in a right file is one finding, on its line, if the file is wrong at all."""
    for line, text in mutants(path.read_text("utf-8"))[:: max(1, 193 // deep(1))]:
        assert lines(text) in ([], [line])


def test_three_mistakes_are_told_as_three() -> None:
    """Mistakes of different kinds in different statements neither hide nor multiply one another."""
    right = [
        "schedule f(p, m = 2 * p)",
        "require m >= 1",
        "stage s in 0 .. p on rank s",
        "rank r {",
        "  let warmup = min(p - 1 - r, m)",
        "  repeat warmup { F }",
        "  for k in 0 .. m - warmup { F[k]  overlap(F, B) }",
        "  if r == 0 { drain W } else { B(1) }",
        "}",
        "claim idle == (p - 1) * tF when tC == 0",
    ]
    mistakes = {
        2: "require m = 1",
        3: "stage s in 0 to p on rank s",
        5: "  let warmup min(p - 1 - r, m)",
        6: "  repaet warmup { F }",
        7: "  for k in 0 .. m - warmup { F[k}  overlap(F, B) }",
        8: "  if r == 0 { drain W } els { B(1) }",
        10: "clam idle == (p - 1) * tF when tC == 0",
    }
    assert not wrong("\n".join(right))
    for chosen in combinations(mistakes, 3):
        text = "\n".join(mistakes[at] if at in chosen else line for at, line in enumerate(right, 1))
        assert lines(text) == list(chosen)


@settings(max_examples=deep(37), deadline=None)
@given(written(), st.data())
def test_any_text_is_read_or_refused_with_reasons(case: tuple[ast.File, str], data: st.DataObject) -> None:
    """A damaged file gives a tree, or at most 20 findings with places in the text, in order."""
    text = case[1]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 5))
        text = (
            text[:at]
            + data.draw(st.sampled_from(["", "{", "}", "(", "]", '"', "rank", "§", "=", "\0"]))
            + text[at + gone :]
        )
    refused(text)


@settings(max_examples=deep(37), deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_read_or_refused_with_reasons(raw: bytes) -> None:
    """Any other content of a file is read, or refused with reasons."""
    refused(raw.decode("utf-8", "replace"))


def refused(text: str) -> None:
    found = wrong(text)
    labels = [label.span for finding in found for label in finding.labels]
    starts = [finding.labels[0].span.start for finding in found if finding.labels[0].span]
    assert len(found) <= 20 and len(starts) == len(found) and starts == sorted(starts)
    assert all(span and 0 <= span.start <= span.end <= len(text) for span in labels)
    assert {finding.code for finding in found} <= {"PS101", "PS102", "PS103", "PS104", "PS219"}


DEEP = {
    "braces": "rank 0 " + "{" * 3_000,
    "blocks": "rank 0 " + "{ repeat 2 " * 3_000 + "}" * 3_000,
    "brackets": "let x = " + "(" * 3_000 + "1" + ")" * 3_000,
    "signs": "let x = " + "-" * 3_000 + "1",
    "negations": "require " + "not " * 3_000 + "true",
    "sum": "let x = 1" + " + 1" * 3_000,
    "choices": "let x = " + "if true then 1 else " * 3_000 + "1",
    "else ifs": "rank 0 { if true { }" + " else if true { }" * 3_000 + " }",
}


@pytest.mark.parametrize("item", DEEP.values(), ids=DEEP.keys())
def test_nesting_has_an_end(item: str) -> None:
    """Text that nests too deeply to be walked is refused with its code."""
    assert [finding.code for finding in wrong(HEAD + item)] == [Code.NESTING]


def test_a_hundred_brackets_are_not_too_many() -> None:
    """The limit is on nesting, not on the total."""
    assert not wrong(f"{HEAD}let x = {'(' * 100}1{')' * 100}")
    assert wrong(f"{HEAD}let x = {'(' * 101}1{')' * 101}")
    assert not wrong(HEAD + "let x = (1 + 2)\n" * 300)


LARGE = {
    "names": "x\n",
    "odd words": "§ ",
    "strings": '"\n',
    "closers": ")(",
    "blocks": "{}",
    "repeats": "repeat\n",
    "items": "let x = 1\n",
}


@pytest.mark.parametrize("part", LARGE.values(), ids=LARGE.keys())
def test_the_time_to_refuse_grows_with_the_text(part: str) -> None:
    """Ten times the text takes about ten times the work, counted in tokens, not in seconds."""
    looks = [looked_at(HEAD + part * n + " )") for n in (50, 500)]
    assert looks[1] <= 15 * looks[0]


def looked_at(text: str) -> int:
    """Return the number of lines of the language's code that run until a text is refused."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        if "pipesched" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        wrong(text)
    finally:
        sys.settrace(None)
    return count
