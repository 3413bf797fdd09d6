"""What people write from the habit of another language is one finding, at its place, with a remedy that works.

A case is what stands in a right file in the place of its own line; the remedy is applied as it is told: what a label
says to write, to put or to take away is done at that label, or else what the help says to write at the first.
"""

from __future__ import annotations

import re

import pytest

import pipesched
from pipesched.diagnostics import Diagnostic
from pipesched.source import Source

pytestmark = pytest.mark.quick

HEAD = "schedule x(p, m = 2 * p)"
STAGE = "stage s in 0 .. p on rank s"
BODY = "  repeat m { F }\n  repeat m { B }"


def text(head: str = HEAD, stage: str = STAGE, top: str = "", first: str = "", body: str = BODY) -> str:
    """A right file, of which a part may be another."""
    return "\n".join(filter(None, (head, stage, top, "rank r {", first, body, "}\n")))


def looped(body: str) -> str:
    return text(body=body)


CASES = {  # a habit: the file, and the first line that is at fault
    "4p": (text(first="  let w = 4p"), 4),
    "2(p - r)": (text(first="  let w = 2(p - r)"), 4),
    "(p)(r)": (text(first="  let w = (p)(r)"), 4),
    "no let": (text(first="  warmup = 3"), 4),
    "no let above": (text(top="warmup = p - 1"), 3),
    "int": (text(first="  int warmup = 3"), 4),
    ":=": (text(first="  let w := 3"), 4),
    "let ==": (text(first="  let w == 3"), 4),
    "let a, b": (text(first="  let a = 1, b = 2"), 4),
    "comma": (looped("  repeat m { F, B }"), 4),
    "bar": (looped("  repeat m { F | B }"), 4),
    "arrow": (looped("  repeat m { F -> B }"), 4),
    "semicolons": (looped("  repeat m { F; }\n  repeat m { B; }"), 4),
    "forward": (looped("  repeat m { forward }\n  repeat m { backward }"), 4),
    "forward()": (looped("  repeat m { forward() }\n  repeat m { backward() }"), 4),
    "fwd": (looped("  repeat m { fwd }\n  repeat m { bwd }"), 4),
    "Megatron": (looped("  repeat m { forward_step }\n  repeat m { backward_step }"), 4),
    "input and weight": (looped("  repeat m { F }\n  repeat m { backward_input backward_weight }"), 5),
    "lower case": (looped("  repeat m { f }\n  repeat m { b }"), 4),
    "FB": (looped("  repeat m { FB }"), 4),
    "BW": (looped("  repeat m { F }\n  repeat m { BW }"), 5),
    "1F1B": (looped("  repeat m { 1F1B }"), 4),
    "2 F": (text(body="  2 F\n  repeat m - 2 { F }\n  repeat m { B }"), 4),
    "2F": (text(body="  2F\n  repeat m - 2 { F }\n  repeat m { B }"), 4),
    "F x 2": (text(body="  F x 2\n  repeat m - 2 { F }\n  repeat m { B }"), 4),
    "F*2": (text(body="  F*2\n  repeat m - 2 { F }\n  repeat m { B }"), 4),
    "F^2": (text(body="  F^2\n  repeat m - 2 { F }\n  repeat m { B }"), 4),
    "F0.0": (text(body="  F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3"), 4),
    "0F1": (text(body="  0F0 0F1 0F2 0F3\n  repeat m { B }"), 4),
    "F{0}": (text(body="  F{0} F{1} F{2} F{3}\n  repeat m { B }"), 4),
    "F(0, 1)": (text(body="  for k in 0 .. m { F(0, k) }\n  repeat m { B }"), 4),
    "F[0][1]": (text(body="  for k in 0 .. m { F[0][k] }\n  repeat m { B }"), 4),
    "overlap F B": (looped("  F\n  repeat m - 1 { overlap F B }\n  B"), 5),
    "overlap[F, B]": (looped("  F\n  repeat m - 1 { overlap[F, B] }\n  B"), 5),
    "F+B": (looped("  F\n  repeat m - 1 { F+B }\n  B"), 5),
    "F & B": (looped("  F\n  repeat m - 1 { F & B }\n  B"), 5),
    "drain": (looped("  repeat m { F }\n  repeat m { I }\n  drain"), 6),
    "messages": (looped("  repeat m { recv F send }\n  repeat m { B }"), 4),
    "step": (text(body=f"{BODY}\n  step"), 6),
    "Python's for": (looped("  for i in range(m):\n    F\n  for i in range(m):\n    B"), 4),
    "colon": (looped("  for i in 0 .. m:\n    F\n  repeat m { B }"), 4),
    "repeat colon": (looped("  repeat m:\n    F\n    B"), 4),
    "one line": (looped("  for i in 0 .. m: F\n  repeat m { B }"), 4),
    "if, else": (looped("  if r == 0:\n    repeat m { F }\n  else:\n    repeat m { F }\n  repeat m { B }"), 4),
    "if, elif, else": (
        looped(
            "  if r == 0:\n    repeat m { F }\n  elif r == 1:\n    repeat m { F }\n  else:\n    F\n  repeat m { B }"
        ),
        4,
    ),
    "rank r:": (f"{HEAD}\n{STAGE}\nrank r:\n{BODY}\n", 3),
    "no braces": (f"{HEAD}\n{STAGE}\nrank r\n{BODY}\n", 3),
    "colon and brace": (looped("  repeat m: { F }\n  repeat m { B }"), 4),
    "elif": (looped("  if r == 0 { repeat m { F } } elif r > 0 { repeat m { F } }\n  repeat m { B }"), 4),
    "range(m)": (looped("  for k in range(m) { F }\n  repeat m { B }"), 4),
    "range(0, p)": (text(stage="stage s in range(0, p) on rank s"), 2),
    "in m": (looped("  for k in m { F }\n  repeat m { B }"), 4),
    "0 to m": (looped("  for k in 0 to m { F }\n  repeat m { B }"), 4),
    "0:m": (looped("  for k in 0:m { F }\n  repeat m { B }"), 4),
    "..=": (looped("  for k in 0 ..= m - 1 { F }\n  repeat m { B }"), 4),
    "..<": (looped("  for k in 0 ..< m { F }\n  repeat m { B }"), 4),
    ".. m": (looped("  for k in .. m { F }\n  repeat m { B }"), 4),
    "for k = ": (looped("  for k = 0 .. m { F }\n  repeat m { B }"), 4),
    "for ( )": (looped("  for (k in 0 .. m) { F }\n  repeat m { B }"), 4),
    "C's for": (looped("  for (i = 0; i < m; i++) { F }\n  repeat m { B }"), 4),
    "loop": (looped("  loop m { F }\n  repeat m { B }"), 4),
    "times": (looped("  repeat m times { F }\n  repeat m { B }"), 4),
    "// above": (text(top="// the program"), 3),
    "// behind": (looped("  repeat m { F }  // the forwards\n  repeat m { B }"), 4),
    "// behind a value": (text(first="  let w = 3  // what comes first"), 4),
    "/* */": (text(top="/* the program */"), 3),
    "--": (text(top="-- the program"), 3),
    "% comment": (text(top="% the program"), 3),
    "digit": (text(head="schedule 1f1b(p, m = 2 * p)"), 1),
    "hyphen": (text(head="schedule zb-h1(p, m = 2 * p)"), 1),
    "dot": (text(head="schedule my.order(p, m = 2 * p)"), 1),
    "string": (text(head='schedule "1F1B"(p, m = 2 * p)'), 1),
    "no parameters": (text(head="schedule x"), 1),
    "types": (text(head="schedule x(p: int, m: int = 4)"), 1),
    "schedule:": (text(head="schedule: x(p, m = 4)"), 1),
    "def": (text(head="def x(p, m = 4):"), 1),
    "import": ("import pipesched\n" + text(), 1),
    "100%": (text(top="claim idle / makespan <= 100%"), 3),
    "20%": (text(top="claim idle / makespan == 20%"), 3),
    "rank in a value": (text(first="  let w = p - 1 - rank"), 4),
    "repeat rank": (looped("  repeat p - 1 - rank { F }\n  repeat m - p + 1 + r { F }\n  repeat m { B }"), 4),
    "stage:": (text(stage="stage s in 0 .. p: on rank s"), 2),
    "stage: rank": (text(stage="stage s in 0 .. p: rank s"), 2),
    "stage on device": (text(stage="stage s in 0 .. p on device s"), 2),
    "stage list": (text(stage="stage s on rank [0, 1]"), 2),
    "each rank": (f"{HEAD}\n{STAGE}\neach rank r {{\n{BODY}\n}}\n", 3),
    "rank in": (f"{HEAD}\n{STAGE}\nrank r in 0 .. p {{\n{BODY}\n}}\n", 3),
    "device": (f"{HEAD}\n{STAGE}\ndevice r {{\n{BODY}\n}}\n", 3),
    "costs { }": (text(top="costs { F = 1, B = 2 }"), 3),
    "costs :": (text(top="costs F: 1, B: 2"), 3),
    "assert": (text(top="assert m >= p"), 3),
    "let f { }": (text(top="let f(x) { x + 1 }"), 3),
    "def f": (text(top="def f(x): return x + 1"), 3),
    "? :": (text(first="  let w = r == 0 ? 1 : 2"), 4),
    "if else": (text(first="  let w = 1 if r == 0 else 2"), 4),
    "2 ** 3": (text(first="  let w = 2 ** 3"), 4),
    "p ^ 2": (text(first="  let w = p ^ 2"), 4),
    "1_000": (text(first="  let w = 1_000"), 4),
    "1e3": (text(first="  let w = 1e3"), 4),
    "mod": (text(first="  let w = p mod 2"), 4),
    "max of a list": (text(first="  let w = max([1, 2])"), 4),
    "quotes": (text(head=f"{HEAD}\n“The documentation.”"), 2),
    "apostrophes": (text(head=f"{HEAD}\n'The documentation.'"), 2),
    "wide letter": (looped("  repeat m { Ｆ }\n  repeat m { B }"), 4),
    "=": (looped("  if r = 0 { repeat m { F } } else { repeat m { F } }\n  repeat m { B }"), 4),
    "&&": (looped("  if r == 0 && m > 1 { repeat m { F } } else { repeat m { F } }\n  repeat m { B }"), 4),
    "||": (looped("  if r == 0 || m > 1 { repeat m { F } } else { repeat m { F } }\n  repeat m { B }"), 4),
    "!": (looped("  if !(r == 0) { repeat m { F } } else { repeat m { F } }\n  repeat m { B }"), 4),
    "on rank s + 1": (text(stage="stage s in 0 .. p on rank s + 1"), 2),
    "on rank p - s": (text(stage="stage s in 0 .. p on rank p - s"), 2),
    "F[1]": (looped("  repeat m { F[1] }\n  repeat m { B }"), 4),
    "True": (looped("  if True { repeat m { F } } else { repeat m { F } }\n  repeat m { B }"), 4),
    "P": (text(first="  let w = P - 1"), 4),
    "num_microbatches": (looped("  repeat num_microbatches { F }\n  repeat m { B }"), 4),
    "rank_id": (text(first="  let w = rank_id"), 4),
    "stage s on rank s": (text(stage="stage s on rank s"), 2),
    "p / 2": (text(first="  let w = p / 2"), 4),
}
WORDS = {  # what cannot be put right by an edit: words of the help
    "while": (looped("  while i < m { F }\n  repeat m { B }"), 4, "repeat n"),
    "++": (text(first="  let w = 2\n  w++"), 5, "keeps its value"),
    "+=": (text(first="  let w = 2\n  w += 1"), 5, "keeps its value"),
    "2 ^ r": (text(first="  let w = 2 ^ r"), 4, "no power"),
    "2 ** r": (text(first="  let w = 2 ** r"), 4, "no power"),
    "len": (text(first="  let w = len(m)"), 4, "no lists"),
    "B and W": (looped("  repeat m { F }\n  repeat m { B W }"), 5, "write `I` for `B`"),
    "0.5": (text(first="  let w = p * 0.5"), 4, "`p // 2`"),
    "1 .. p": (text(stage="stage s in 1 .. p on rank s"), 2, "0 .. p"),
}


def errors(file: str) -> list[Diagnostic]:
    return [found for found in pipesched.verify(Source("x.ps", file), p=2).diagnostics if found.severity == "error"]


def applied(file: str, finding: Diagnostic) -> str:
    """The file after what the labels say, or the help at the first of them."""
    edits = []
    for label in finding.labels:
        assert label.span is not None
        new = re.fullmatch(r"(?:write|put) `(.*?)`(?: here)?|take it away", label.message, re.DOTALL)
        if new is None and not edits:
            new = re.search(r"(?:write|did you mean) `(.*?)`|take it away", finding.help or "", re.DOTALL)
            assert new is not None, finding.help
        if new is not None:
            edits.append((label.span.start, label.span.end, new[1] or ""))
    for start, end, new in sorted(edits, reverse=True):
        file = file[:start] + new + file[end:]
    return file


@pytest.mark.parametrize("case", CASES)
def test_a_habit_is_one_finding_and_its_remedy_works(case: str) -> None:
    """One error, on its line; and what it says to write makes a file in which nothing of the kind is wrong."""
    file, line = CASES[case]
    found = errors(file)
    assert len(found) == 1, [str(x) for x in found]
    assert found[0].labels[0].span is not None and found[0].labels[0].span.line == line
    left = errors(applied(file, found[0]))
    assert [x.code for x in left if not x.code.startswith(("PS3", "PS21"))] == []


@pytest.mark.parametrize("case", WORDS)
def test_what_there_is_not_is_said_with_what_there_is(case: str) -> None:
    """One error, on its line, whose help says how the language does it."""
    file, line, words = WORDS[case]
    (found,) = errors(file)
    assert found.labels[0].span is not None and found.labels[0].span.line == line
    assert words in (found.help or "")


def test_two_habits_are_two_findings() -> None:
    """Each with its own remedy, at once."""
    file = text(first="  let w = 4p", body="  for i in range(m):\n    forward\n  repeat m { B }")
    assert [(x.labels[0].span.line, x.code) for x in errors(file) if x.labels[0].span] == [
        (4, "PS101"),
        (5, "PS101"),
        (6, "PS101"),
    ]


def test_a_habit_beside_another_mistake_hides_it_not() -> None:
    """The rest of the file is read as it is meant, and the mistake keeps its place and its words."""
    (first, second) = errors(text(top="let a = 4p", body="  repeat m { F }\n  repaet m { B }"))
    assert "`4 * p`" in (first.help or "") and "did you mean `repeat`?" in (second.help or "")
    assert second.labels[0].span is not None and second.labels[0].span.line == 6
