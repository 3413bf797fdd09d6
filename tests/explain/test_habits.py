"""Syntax that is common in other languages is reported with a remedy, and any other mistake at its position.

A case replaces one line of a right file.
"""

from __future__ import annotations

import pytest

import pipesched
from pipesched.diagnostics import Diagnostic
from pipesched.support.source import Source

pytestmark = pytest.mark.quick

HEAD = "schedule x(p, m = 2 * p)"
STAGE = "stage s in 0 .. p on rank s"
BODY = "  repeat m { F }\n  repeat m { B }"


def text(head: str = HEAD, stage: str = STAGE, top: str = "", first: str = "", body: str = BODY) -> str:
    """Return a right file with one part replaced."""
    return "\n".join(filter(None, (head, stage, top, "rank r {", first, body, "}\n")))


def looped(body: str) -> str:
    return text(body=body)


CASES = {  # a habit: the file, and its first line at fault
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
    "=>": (text(first="  let w = if r => 1 then 1 else 0"), 4),
}
REMEDIES = {  # a habit: the text at fault, and the text that the help proposes
    "4p": ("4p", "4 * p"),
    "2(p - r)": ("2(p - r)", "2 * (p - r)"),
    "no let": ("warmup =", "let warmup ="),
    "int": ("int warmup =", "let warmup ="),
    "no let above": ("warmup =", "let warmup ="),
    "forward": ("forward", "F"),
    "forward()": ("forward()", "F"),
    "fwd": ("fwd", "F"),
    "Megatron": ("forward_step", "F"),
    "range(m)": ("range(m)", "0 .. m"),
    "range(0, p)": ("range(0, p)", "0 .. p"),
    "// above": ("//", "#"),
    "// behind": ("//", "#"),
    "// behind a value": ("//", "#"),
    "--": ("--", "#"),
    "% comment": ("%", "#"),
    "digit": ("1f1b", "s1f1b"),
    "hyphen": ("zb-h1", "zb_h1"),
    "dot": ("my.order", "my_order"),
    "string": ('"1F1B"', "s1F1B"),
    "elif": ("elif", "else if"),
    "&&": ("&&", "and"),
    "||": ("||", "or"),
    "!": ("!", "not "),
    "=": ("r = 0", "r == 0"),
    "wide letter": ("Ｆ", "F"),
    "p / 2": ("p / 2", "p // 2"),
    "=>": ("=>", ">="),
    "True": ("True", "true"),
}
WORDS = {  # a habit that no word puts right: words of the help
    "comma": (CASES["comma"][0], 4, "remove `,`"),
    "bar": (CASES["bar"][0], 4, "remove `|`"),
    "arrow": (CASES["arrow"][0], 4, "remove `->`"),
    "F+B": (CASES["F+B"][0], 5, "`overlap(F, B)`"),
    "F & B": (CASES["F & B"][0], 5, "`overlap(F, B)`"),
    "2F": (CASES["2F"][0], 4, "`repeat 2 { F }`"),
    "1F1B": (CASES["1F1B"][0], 4, "one letter"),
    "0F1": (CASES["0F1"][0], 4, "`F(1)`"),
    "FB": (CASES["FB"][0], 4, "one letter"),
    "C's for": (CASES["C's for"][0], 4, "`for k in low .. high"),
    "one line": (CASES["one line"][0], 4, "a block is written in braces"),
    "repeat colon": (CASES["repeat colon"][0], 4, "a block is written in braces"),
    "? :": (CASES["? :"][0], 4, "`if c then a else b`"),
    "if else": (CASES["if else"][0], 4, "`if c then a else b`"),
    "while": (looped("  while i < m { F }\n  repeat m { B }"), 4, "repeat n"),
    "++": (text(first="  let w = 2\n  w++"), 5, "never changes"),
    "+=": (text(first="  let w = 2\n  w += 1"), 5, "never changes"),
    "2 ^ r": (text(first="  let w = 2 ^ r"), 4, "no power"),
    "2 ** r": (text(first="  let w = 2 ** r"), 4, "no power"),
    "len": (text(first="  let w = len(m)"), 4, "only parameters"),
    "B and W": (looped("  repeat m { F }\n  repeat m { B W }"), 5, "write `I` for `B`"),
    "0.5": (text(first="  let w = p * 0.5"), 4, "`p // 2`"),
    "1 .. p": (text(stage="stage s in 1 .. p on rank s"), 2, "0 .. p"),
}


def errors(file: str) -> list[Diagnostic]:
    return [found for found in pipesched.verify(Source("x.ps", file), p=2).diagnostics if found.severity == "error"]


def line(finding: Diagnostic) -> int:
    assert finding.labels[0].span is not None
    return finding.labels[0].span.line


@pytest.mark.parametrize("case", CASES)
def test_a_habit_is_a_mistake_at_its_place(case: str) -> None:
    """The first finding is on its line, with a code of the language; each remedy is reported once per line."""
    file, at = CASES[case]
    found = errors(file)
    assert line(found[0]) == at and found[0].code.startswith(("PS1", "PS2"))
    assert len({(line(x), x.help or x.message) for x in found}) == len(found)


@pytest.mark.parametrize("case", REMEDIES)
def test_the_remedy_of_a_habit_works(case: str) -> None:
    """Writing the help's text leaves no mistake on the line."""
    file, at = CASES[case]
    (old, new), first = REMEDIES[case], errors(file)[0]
    assert old in file and f"`{new.strip()}`" in (first.help or "").replace("write `==`", "`r == 0`")
    assert [x for x in errors(file.replace(old, new)) if line(x) <= at and x.code.startswith("PS10")] == []


@pytest.mark.parametrize("case", WORDS)
def test_a_habit_that_no_word_puts_right_is_told_what_there_is(case: str) -> None:
    """The only error is on the line of the habit, and its help shows the form of the language."""
    file, at, words = WORDS[case]
    (found,) = errors(file)
    assert line(found) == at and words in (found.help or "")


def test_blocks_and_ranges_of_python_are_told_together() -> None:
    """`for i in range(m):` has two mistakes, and so has every similar line."""
    found = errors(CASES["Python's for"][0])
    assert [line(x) for x in found] == [4, 6]
    for words in ("write `0 .. m`", "a block is written in braces"):
        assert all(words in (x.help or "") for x in found)


def test_two_habits_are_two_findings() -> None:
    """Each mistake has its own remedy, in one run."""
    file = text(first="  let w = 4p", body="  repeat m { forward }\n  repeat m { B }")
    assert [(line(x), x.help) for x in errors(file)] == [
        (4, "a product needs a `*`: write `4 * p`"),
        (5, "write `F`"),
    ]


def test_a_habit_beside_another_mistake_hides_it_not() -> None:
    """The other mistake keeps its place and its message."""
    (first, second) = errors(text(top="let a = 4p", body="  repeat m { F }\n  repaet m { B }"))
    assert "`4 * p`" in (first.help or "") and "did you mean `repeat`?" in (second.help or "")
    assert line(second) == 6


def test_a_right_division_beside_a_mistake_is_no_comment() -> None:
    """A pattern elsewhere on the line is not an explanation."""
    (found,) = errors(text(first="  let w = p // 2  let v = = 1"))
    assert found.help is None
