"""`pipesched fmt` writes every file in one canonical form and loses nothing."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings

from pipesched.diagnostics import PipeschedError
from pipesched.explain.words import scan
from pipesched.language import ast
from pipesched.language.grammar import grammar
from pipesched.language.parser import parse
from pipesched.lift.printer import format_source
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers.chunks import fences
from tests.makers.ps_trees import written

ROOT = Path(__file__).parents[2]
SCHEDULES = sorted((ROOT / "schedules").glob("*.ps"))
BLOCKS = [block.source.text for block in fences(ROOT / "grammars" / "README.md") if not block.expected]


def formatted(text: str) -> str:
    return format_source(Source("x.ps", text))


def comments(text: str) -> list[str]:
    return [token.text.rstrip() for token in scan(grammar().words, text) if token.kind == "COMMENT"]


def bare(text: str) -> str:
    """Return a text with emptied strings and comments."""
    for token in reversed(scan(grammar().words, text)):
        if token.kind in ("COMMENT", "STRING", "TEXT"):
            text = text[: token.start] + ("#" if token.kind == "COMMENT" else '""') + text[token.end :]
    return text


def laws(text: str) -> None:
    """Laws of every text and its canonical form."""
    form = formatted(text)
    assert parse(Source("x.ps", form)) == parse(Source("x.ps", text))
    assert formatted(form) == form
    assert comments(form) == comments(text)
    assert not re.search(r"[ \t\r]\n|\t|\r|\n\n\n|\A\n|\n\n\Z|\{\n\n|\n\n *\}", bare(form))
    assert form.endswith("\n")


@settings(max_examples=deep(25, usual=13), deadline=None)
@given(written())
def test_laws_hold_for_any_file(case: tuple[ast.File, str]) -> None:
    """The form means the same, is its own form, keeps the comments, and has no needless blank."""
    laws(case[1])


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_laws_hold_for_the_library(path: Path) -> None:
    """The laws hold for the published schedules."""
    laws(path.read_text("utf-8"))


@pytest.mark.parametrize("text", BLOCKS, ids=range(len(BLOCKS)))
def test_laws_hold_for_the_reference(text: str) -> None:
    """The laws hold for the blocks of the language reference."""
    laws(text)


@settings(max_examples=deep(12, usual=6), deadline=None)
@given(written())
def test_every_line_stands_as_deep_as_its_braces(case: tuple[ast.File, str]) -> None:
    """A line is indented by two for each brace around it, and by two more if it continues the line before."""
    depth = 0
    for line in bare(formatted(case[1])).splitlines():
        code = line.strip()
        expected = 2 * (depth - code.startswith("}"))
        if code:
            assert len(line) - len(line.lstrip()) in (expected, expected + 2)
        depth += code.count("{") - code.count("}")
    assert depth == 0


def test_a_file_that_does_not_parse_is_left_alone() -> None:
    """A text that is not in the language has no canonical form."""
    with pytest.raises(PipeschedError):
        formatted("schedule f(p) rank r { F")


FORMS = {
    "a line of a rule is an operation with its condition": (
        "schedule f(p) rank r { greedy { B F when held<p W } }",
        """
        schedule f(p)
        rank r { greedy { B  F when held < p  W } }
        """,
    ),
    "items have lines of their own": (
        "schedule f(p,m=2*p)'D'require p>=1,'why' stage s in 0..p on rank s costs F=1,FB=[1,2] claim idle>=0 when p==0",
        """
        schedule f(p, m = 2 * p)
        'D'
        require p >= 1, 'why'
        stage s in 0 .. p on rank s
        costs F = 1, FB = [1, 2]
        claim idle >= 0 when p == 0
        """,
    ),
    "fixed blanks between words": (
        """
        schedule f( p )
        claim - a*( b+-c )//min( a,b )%2 ==fwd(  1 )/2 release split : 1 / 2
        rank r{F[ c ]( i )W drain W[0]overlap( F ,B[ 1 ] )}
        """,
        """
        schedule f(p)
        claim -a * (b + -c) // min(a, b) % 2 == fwd(1) / 2 release split:1/2
        rank r { F[c](i)  W  drain W[0]  overlap(F, B[1]) }
        """,
    ),
    "a block on one line stays there": (
        """
        schedule f(p)
        rank r
        { repeat p{F B} }
        rank 0 {
        repeat p { F
        } }
        rank 1 {
        }
        """,
        """
        schedule f(p)
        rank r { repeat p { F  B } }
        rank 0 {
          repeat p {
            F
          }
        }
        rank 1 {}
        """,
    ),
    "operations keep their lines, blocks have their own": (
        """
        schedule f(p)
        rank r {
        F B
        B let x = 1 F repeat x { F } B
        W
        }
        """,
        """
        schedule f(p)
        rank r {
          F  B
          B
          let x = 1
          F
          repeat x { F }
          B
          W
        }
        """,
    ),
    "else follows its brace": (
        """
        schedule f(p)
        rank r {
        if a { F }
        else if b { F } else { B }
        if a {
        F }
        else { B }
        }
        """,
        """
        schedule f(p)
        rank r {
          if a { F } else if b { F } else { B }
          if a {
            F
          } else {
            B
          }
        }
        """,
    ),
    "neighbours stand below one another": (
        """
        schedule f(p)
        route up:stage 0 on rank 0 for microbatch 0 .. 1
        route down:stage s in 0 .. 1 on rank p for microbatch 1 .. 2
        rank r {
        let a=1# one
        let bcd=2# two
        repeat a { F }
        repeat bcd { B }

        repeat abcdef { B }
        }
        """,
        """
        schedule f(p)
        route up:   stage 0 on rank 0            for microbatch 0 .. 1
        route down: stage s in 0 .. 1 on rank p  for microbatch 1 .. 2
        rank r {
          let a   = 1  # one
          let bcd = 2  # two
          repeat a   { F }
          repeat bcd { B }

          repeat abcdef { B }
        }
        """,
    ),
    "blank lines: one at most, none at the ends of a block": (
        "\n\nschedule f(p)\n\n\n\nlet x = 1\nrank r {\n\n\nF\n\n\n\nB\n\n}\n\n\n",
        """
        schedule f(p)

        let x = 1
        rank r {
          F

          B
        }
        """,
    ),
    "an expression keeps its breaks beside operators": (
        """
        schedule
        f(
        p)
        claim idle ==
            a +
          b
         when tC == 0
        """,
        """
        schedule f(p)
        claim idle ==
          a +
          b
          when tC == 0
        """,
    ),
    "comments stay where they are": (
        """
        # top
        schedule f(p) # head

        # before
        rank r { # opens
        # inside
        F # op
        # last
        } # closes
        # end
        """,
        """
        # top
        schedule f(p)  # head

        # before
        rank r {  # opens
          # inside
          F  # op
          # last
        }  # closes
        # end
        """,
    ),
    "documentation is left as it is": ("schedule f(p) 'a\n   b'", "schedule f(p)\n'a\n   b'\n"),
}


@pytest.mark.parametrize(("text", "form"), FORMS.values(), ids=FORMS.keys())
def test_form(text: str, form: str) -> None:
    """The printed form follows the rules, tried one by one; `'` represents `"`."""
    assert formatted(text.replace("'", '"')) == dedent(form).lstrip().replace("'", '"')


def test_long_lines_are_broken() -> None:
    """A block too wide for 100 columns is opened, and operations fill its lines up to 100 columns."""
    form = formatted(f"schedule f(p) rank r {{ {' '.join(f'F({i})' for i in range(60))} }}")
    lines = form.splitlines()
    assert lines[1] == "rank r {" and lines[-1] == "}"
    assert all(len(line) <= 100 for line in lines)
    assert all(len(line) + len("  F(00)") > 100 for line in lines[2:-2])
