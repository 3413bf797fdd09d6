"""A diagnostic keeps its form in every output, whatever the input contains."""

from __future__ import annotations

import json
import re
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipesched import render
from pipesched.check.rows import CheckCode
from pipesched.diagnostics import Code, Diagnostic, Label
from pipesched.interop.codes import InteropCode
from pipesched.support.source import Source, Span
from tests.depth import deep

CSV = Source("mine.csv", "0F0,0SEND_F1,0RECV_B0\n1F0,1SEND_B0,1RECV_F1\n")


def at(source: Source, word: str, occurrence: int = 0) -> Span:
    """Return the span of a word in a source."""
    start = [match.start() for match in re.finditer(re.escape(word), source.text)][occurrence]
    return source.span(start, start + len(word))


DEADLOCK = Diagnostic(
    Code.DEADLOCK,
    "deadlock: ranks 0 and 1 wait for each other",
    (
        Label(at(CSV, "0SEND_F1"), "rank 0, step 2: waits until rank 1 reaches 1RECV_F1"),
        Label(at(CSV, "1SEND_B0"), "rank 1, step 2: waits until rank 0 reaches 0RECV_B0"),
    ),
    ("holds under: async, buffered(1);  fails under: strict",),
    "receive F1 on rank 1 before sending B0",
)


def drawn(text: str) -> str:
    return dedent(text).strip("\n")


def test_a_cycle_reads_as_the_design_draws_it() -> None:
    """The first place is an arrow and carets, later ones are colons and dashes, then proof and remedy."""
    assert render.text(DEADLOCK) == drawn("""
        error[PS401]: deadlock: ranks 0 and 1 wait for each other
         --> mine.csv:1:5
          |
        1 | 0F0,0SEND_F1,0RECV_B0
          |     ^^^^^^^^ rank 0, step 2: waits until rank 1 reaches 1RECV_F1
         ::: mine.csv:2:5
          |
        2 | 1F0,1SEND_B0,1RECV_F1
          |     -------- rank 1, step 2: waits until rank 0 reaches 0RECV_B0
          = holds under: async, buffered(1);  fails under: strict
          = help: receive F1 on rank 1 before sending B0
    """)


def test_labels_of_one_line_share_its_picture_and_wide_line_numbers_share_a_gutter() -> None:
    """Neighbours on a line are drawn once, each with its own words; all bars of a finding are in one column."""
    source = Source("x.ps", "\n" * 8 + "let a = 1\nrepeat a { F B }\n")
    labels = (
        Label(at(source, "let"), "here"),
        Label(at(source, "F"), "one"),
        Label(at(source, "B"), "two"),
    )
    assert render.text(Diagnostic(Code.TYPE, "odd", labels)) == drawn("""
        error[PS205]: odd
          --> x.ps:9:1
           |
         9 | let a = 1
           | ^^^ here
          ::: x.ps:10:12
           |
        10 | repeat a { F B }
           |            - one
           |              - two
    """)


def test_what_has_no_place_is_told_by_words() -> None:
    """A label without a span, a note of two lines and a help are below the head, in this order."""
    diagnostic = Diagnostic(
        CheckCode.OVER_CAP, "rank 0 holds 6", (Label(None, "rank 0, step 9: F5"),), ("live:\nF0 F1",), "more"
    )
    assert render.text(diagnostic) == drawn("""
        error[PS501]: rank 0 holds 6
          = rank 0, step 9: F5
          = live:
            F0 F1
          = help: more
    """)


def test_a_warning_says_so() -> None:
    """Codes of the nine hundreds are warnings in every form."""
    diagnostic = Diagnostic(CheckCode.IDLE_RANK, "rank 3 does nothing")
    assert render.text(diagnostic) == "warning[PS902]: rank 3 does nothing"
    assert render.concise(diagnostic, "a.csv") == "a.csv: warning[PS902]: rank 3 does nothing"
    assert render.github(diagnostic, "a.csv") == "::warning file=a.csv,title=PS902::rank 3 does nothing"


@pytest.mark.parametrize("cell", [0, 1, 37, 9_999, 19_998, 19_999])
def test_a_row_of_many_cells_is_cut_around_the_label(cell: int) -> None:
    """For a row of any length, the picture is short, shows where it was cut, and marks exactly the cell."""
    row = ",".join(f"0F{i}" for i in range(20_000))
    source = Source("big.csv", row)
    word = f"0F{cell}"
    start = 0 if cell == 0 else row.index(f",{word}" + ("," if cell < 19_999 else "")) + 1
    text = render.text(Diagnostic(CheckCode.TWICE, "twice", (Label(source.span(start, start + len(word)), "here"),)))
    _, _, _, picture, marks = text.split("\n")
    assert len(picture) < 120
    assert picture.startswith("1 | ...,") == (cell > 1) and picture.endswith(",...") == (cell < 19_000)
    caret = marks.index("^")
    assert picture[caret : caret + len(word)] == word and marks.count("^") == len(word)
    assert caret == 4 or picture[caret - 1] == ","


def test_far_labels_of_a_long_row_have_a_picture_each() -> None:
    """Two cells too far apart for one picture are drawn one after the other."""
    row = ",".join(f"0F{i}" for i in range(1000))
    source = Source("big.csv", row)
    labels = tuple(Label(at(source, word), word) for word in ("0F200", "0F201", "0F900"))
    text = render.text(Diagnostic(CheckCode.TWICE, "twice", labels))
    assert text.count("-->") == 1 and text.count(":::") == 1
    assert [line.split()[-1] for line in text.split("\n") if re.search(r"\| +[-^]", line)] == [
        "0F200",
        "0F201",
        "0F900",
    ]


def test_tabs_and_wide_characters_keep_the_marks_in_place() -> None:
    """A tab is four columns and a wide character two, in the picture and under it."""
    source = Source("t.ps", "\tlet 漢字 = a")
    text = render.text(
        Diagnostic(Code.UNKNOWN_NAME, "no a", (Label(at(source, "a"), ""), Label(at(source, "漢字"), "")))
    )
    assert text.split("\n")[3:] == ["1 |     let 漢字 = a", "  |                ^", "  |         ----"]


def test_the_end_of_a_file_can_be_marked() -> None:
    """An empty span, after the last character or in an empty file, is one caret."""
    for content, picture in (("", "1 |\n  | ^ end"), ("ab", "1 | ab\n  |   ^ end"), ("ab\n", "2 |\n  | ^ end")):
        source = Source("e.ps", content)
        label = Label(source.span(len(content), len(content)), "end")
        assert render.text(Diagnostic(Code.EMPTY, "empty", (label,))).endswith(picture)


def test_a_span_of_several_lines_is_marked_on_its_first() -> None:
    """The marks end with the line."""
    source = Source("m.ps", "rank r {\n F\n}\n")
    assert "1 | rank r {\n  | ^^^^^^^^ whole" in render.text(
        Diagnostic(Code.RANK_PROGRAM, "x", (Label(source.span(0, len(source.text)), "whole"),))
    )


def test_a_file_cannot_steer_the_terminal() -> None:
    """Escape sequences in a file, a name or a message are shown as replacement characters."""
    source = Source("a\x1b[2Jb.ps", "let \x1b[31m\u202ex")
    diagnostic = Diagnostic(Code.CHARACTER, "bad \x1b[0m\x07", (Label(source.span(4, 9), "\x9b"),), ("\x1bn",), "\x1bh")
    for shown in (render.text(diagnostic), render.concise(diagnostic)):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)


def test_brackets_are_not_markup() -> None:
    """``[rank 0]`` is printed as it is written."""
    assert "deadlock at [rank 0] [bold]" in render.text(Diagnostic(Code.DEADLOCK, "deadlock at [rank 0] [bold]"))


def test_colour_changes_no_word() -> None:
    """Without its ANSI codes the coloured text equals the plain text; it has some ANSI codes."""
    coloured = render.text(DEADLOCK, color=True)
    assert "\x1b[1;31merror[PS401]\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render.text(DEADLOCK)


def test_one_line_names_the_first_place() -> None:
    """The line is ``file:line:column: error[code]: message``, for editors and grep."""
    assert (
        render.concise(DEADLOCK, "other") == "mine.csv:1:5: error[PS401]: deadlock: ranks 0 and 1 wait for each other"
    )


def test_annotations_escape_what_github_would_read() -> None:
    """Per cent signs and line ends, and in properties colons and commas, are escaped as the runner requires."""
    source = Source("a,b:c%.ps", "x")
    diagnostic = Diagnostic(Code.CLAIM, "50 % of it", (Label(source.span(0, 1), "here: a, b"),), (), "do\nthis")
    assert render.github(diagnostic) == (
        "::error file=a%2Cb%3Ac%25.ps,line=1,col=1,title=PS221::"
        "50 %25 of it%0Aa,b:c%25.ps:1:1: here: a, b%0Ahelp: do%0Athis"
    )


def test_json_tells_every_place() -> None:
    """Places count from 1; a label without a place has nulls."""
    diagnostic = Diagnostic(CheckCode.ORDER, "m", (Label(at(CSV, "1RECV_F1"), "x"), Label(None, "y")), ("n",))
    assert json.loads(json.dumps(render.as_json(diagnostic))) == {
        "code": "PS305",
        "severity": "error",
        "message": "m",
        "labels": [
            {"file": "mine.csv", "line": 2, "column": 14, "message": "x"},
            {"file": None, "line": None, "column": None, "message": "y"},
        ],
        "notes": ["n"],
        "help": None,
    }


def test_a_tally_counts_by_severity() -> None:
    """Errors come first, plurals are right, and an empty report has an empty tally."""
    error, warning = Diagnostic(CheckCode.TWICE, ""), Diagnostic(InteropCode.TWO_RANKS, "")
    assert render.tally([]) == ""
    assert render.tally([warning, error, error]) == "2 errors, 1 warning"


def test_ascii_keeps_the_sense() -> None:
    """On an ASCII stream the typography falls back, and nothing fails."""
    assert render.plain("complete · data flow, 1 … 2 → 3 漢") == "complete, data flow, 1 ... 2 -> 3 ?"


@settings(
    deadline=None, max_examples=deep(50), suppress_health_check=[HealthCheck.too_slow]
)  # characters of all kinds, on a busy machine
@given(st.text(max_size=400), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=5), st.booleans())
def test_any_text_and_any_spans_can_be_drawn(content: str, places: list[tuple[int, int]], color: bool) -> None:
    """Every form accepts every source and every span inside it; marks are below the first character of the label."""
    source = Source("any.ps", content)
    labels = []
    for start, length in places:
        start = min(start, len(content))
        labels.append(Label(source.span(start, min(start + length, len(content))), "here"))
    diagnostic = Diagnostic(Code.SYNTAX, "m", tuple(labels))
    text = render.text(diagnostic, color=color)
    assert len([line for line in text.split("\n") if line.endswith(("here", "here\x1b[0m"))]) == len(labels)
    assert "\n" not in render.concise(diagnostic) and "\n" not in render.github(diagnostic)
    json.dumps(render.as_json(diagnostic))
