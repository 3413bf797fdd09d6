"""Bad input, as a new user might type it, gets a code, a place or a hint, and the right exit status, never a
traceback."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipesched import Source, verify
from pipesched.diagnostics import Code
from tests.readers.typed import typed

SECONDS = 30  # an expansion by mistake takes far longer, and nothing else here does
HEAD = "schedule s(p, m)\nstage s in 0 .. p on rank s\n"
GOOD = HEAD + "rank r {\n  repeat m { F }\n  repeat m { B }\n}\n"
EMPTY_ROUTE = """schedule s(p, m)
route a: stage s in 0 .. p on rank s for microbatch 0 .. m
route b: stage s in 0 .. p on rank s for microbatch 1 .. 1
rank r { repeat m { F[0] } repeat m { B[0] } }
"""
SMALL = ("--p", "2", "--m", "2")
CSV = b"0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    status: int
    text: str
    seconds: float


def pipesched(*arguments: str, stdin: bytes = b"") -> Done:
    """Run a typed command line."""
    begin = time.monotonic()
    done = typed(*arguments, stdin=stdin)
    return Done(done.status, (done.out + done.err).decode("utf-8"), time.monotonic() - begin)


def check(done: Done, status: int, code: Code | None, said: str = "") -> None:
    """Check that an answer satisfies the rules of all answers, and has this code and text."""
    assert "Traceback" not in done.text and "internal" not in done.text, done.text
    assert done.status == status, done.text
    assert done.seconds < SECONDS
    assert (f"[{code}]" in done.text) if code else "error" not in done.text, done.text
    assert said in done.text


@dataclass(frozen=True)
class Case:
    """A file, the further arguments, and the expected answer."""

    name: str
    content: bytes | str
    status: int
    code: Code | None
    said: str = ""
    arguments: tuple[str, ...] = SMALL
    file: str = "mine.ps"


NAMED_M = "schedule s(p{})\n{}stage s in 0 .. p on rank s\nrank r {{ F B }}\n"
CASES = [
    *(
        Case(f"m is {what}", NAMED_M.format(*named), 1, Code.MICROBATCHES_UNKNOWN, "declare the parameter m", SMALL[:2])
        for what, *named in (
            ("a list", ", m[p] = 1", ""),
            ("a truth value", "", "let m = p == 2\n"),
            ("a function", "", "let m(k) = k\n"),
            ("a route", "", "route m: "),
        )
    ),
    Case("a route that no microbatch takes", EMPTY_ROUTE, 0, None),
    Case(
        "no microbatch",
        GOOD.replace("rank s\n", "rank s for microbatch i in m .. m\n", 1),
        1,
        Code.PLACEMENT,
        "no stage",
    ),
    Case("a rank between", GOOD.replace("rank s", "rank 2 * s"), 1, Code.PLACEMENT, "the stages are on ranks 0, 2"),
    Case("a good file", GOOD, 0, None, "ok  s"),
    Case("an empty file", "", 1, Code.EMPTY),
    Case("only comments", "# later\n", 1, Code.EMPTY),
    Case("an empty csv", "", 1, Code.EMPTY, "", (), "mine.csv"),
    Case("a binary file", bytes(range(256)), 2, Code.UNREADABLE, "is not text"),
    Case("a binary file with a good name", b"\x89PNG\r\n\x1a\n\0\0", 2, Code.UNREADABLE, "is not text", (), "mine.csv"),
    Case("another encoding", GOOD.encode("utf-16"), 2, Code.UNREADABLE, "is UTF-16: save it as UTF-8"),
    Case("latin-1", b"# caf\xe9\n" + GOOD.encode(), 2, Code.UNREADABLE, "is not text"),
    Case("a missing parameter", GOOD, 2, Code.PARAMETER_MISSING, "--m N", ("--p", "2")),
    Case("an unknown parameter", GOOD, 2, Code.PARAMETER_UNKNOWN, "its parameters: p, m", (*SMALL, "-D", "n=2")),
    Case("a negative size", GOOD, 2, Code.USAGE, "m is -3", ("--p", "2", "--m", "-3")),
    Case("no ranks", GOOD, 2, Code.USAGE, "p is 0", ("--p", "0", "--m", "2")),
    Case("minus one rank", GOOD, 2, Code.USAGE, "p is -1", ("--p", "-1", "--m", "2")),
    Case("a huge m", GOOD, 1, Code.TOO_MANY_OPERATIONS, "", ("--p", "8", "--m", "1000000000000")),
    Case("a huge p", GOOD, 1, Code.TOO_MANY_OPERATIONS, "", ("--p", "1000000000000", "--m", "8")),
    Case("an absurd m", GOOD, 1, Code.TOO_MANY_OPERATIONS, "", ("--p", "8", "--m", "9" * 30)),
    Case("digits without end", GOOD, 2, Code.USAGE, "", ("--p", "8", "--m", "9" * 5000)),
    Case("no number", GOOD, 2, Code.USAGE, "not a whole number", ("--p", "8", "--m", "many")),
    Case(
        "a division by zero",
        HEAD + "let k = m // (p - 2)\nrank r { repeat m { F } repeat m { B } }",
        1,
        Code.DIVISION,
        ":3:9",
    ),
    Case("a remainder by zero", HEAD + "rank r { repeat m % (p - 2) { F } }", 1, Code.DIVISION, ":3:17"),
    Case("memory of too many stages", GOOD + "costs M = [1, 2, 3]", 1, Code.COSTS, ":7:7"),
    Case("less than no memory", GOOD + "costs M = [1, 0 - 1]", 1, Code.COSTS, "cost M is negative"),
    Case("memory that is twice told", GOOD + "costs M = 1, M = 2", 1, Code.COSTS, "given twice"),
    Case("a microbatch beyond m", HEAD + "rank r { F(m) }", 1, Code.MICROBATCH_RANGE, "microbatch 2"),
    Case("a negative microbatch", HEAD + "rank r { F(0 - 1) }", 1, Code.MICROBATCH_RANGE, "microbatch -1"),
    Case("one microbatch too many", HEAD + "rank r { repeat m + 1 { F } }", 1, Code.PAST_THE_END),
    Case("a chunk that the rank does not hold", HEAD + "rank r { F[1] }", 1, Code.CHUNK, "rank 0 holds only chunk 0"),
    Case("a negative chunk", HEAD + "rank r { F[0 - 1] }", 1, Code.CHUNK),
    Case("recursion", HEAD + "let f(k) = f(k - 1)\nrank r { repeat f(m) { F } }", 1, Code.RECURSION, "`f`"),
    Case("mutual recursion", HEAD + "let f(k) = g(k)\nlet g(k) = f(k)\nrank r { F }", 1, Code.UNKNOWN_NAME, "`g`"),
    Case("10,000 braces", HEAD + "rank r " + "{" * 10_000 + "F" + "}" * 10_000, 1, Code.NESTING),
    Case("10,000 open braces", HEAD + "rank r " + "{ repeat 1 " * 10_000, 1, Code.NESTING),
    Case("10,000 parentheses", HEAD + "let x = " + "(" * 10_000 + "1" + ")" * 10_000, 1, Code.NESTING),
    Case("10,000 signs", HEAD + "let x = " + "-" * 10_000 + "1\nrank r { F B }", 1, Code.NESTING),
    Case("a sum of 10,000", HEAD + "let x = 0" + " + 1" * 10_000 + "\nrank r { F B }", 1, Code.NESTING),
    Case(
        "a power by multiplication",
        HEAD + "let f(k) = k * k * k\nrank r { repeat f(f(f(f(m + 99)))) { F } }",
        1,
        Code.OVERFLOW,
    ),
    Case("a product of 63 bits", HEAD + "let k = 999999999999999999 * 5\nrank r { F B }", 1, Code.OVERFLOW, ":3:9"),
    Case(
        "two programs of a rank",
        HEAD + "rank 1 { F B }\n" * 2 + "rank 0 { F B }",
        1,
        Code.RANK_PROGRAM,
        "rank 1 has two",
    ),
    Case(
        "a loop of nothing", HEAD + "rank r { for i in 0 .. 999999999999 { if false { F } } }", 1, Code.TOO_MANY_STEPS
    ),
    Case(
        "loops in loops",
        HEAD + "rank r { " + "repeat 999 { " * 9 + "if false { F }" + " }" * 10,
        1,
        Code.TOO_MANY_STEPS,
    ),
    Case("CRLF", GOOD.replace("\n", "\r\n"), 0, None),
    Case("CRLF in a csv", CSV.replace(b"\n", b"\r\n"), 0, None, "", (), "mine.csv"),
    Case("a byte order mark", b"\xef\xbb\xbf" + GOOD.encode(), 0, None),
    Case("a byte order mark in a csv", b"\xef\xbb\xbf" + CSV, 1, Code.CELL, "byte order mark", (), "mine.csv"),
    Case(
        "a csv of a spreadsheet", b"\xef\xbb\xbf0F0;0B0\r\n", 1, Code.CELL, "commas between the cells", (), "mine.csv"
    ),
    Case("a csv that is cut off", b"0F0,0B0,0SEN", 1, Code.CELL, "it may be cut off", (), "mine.csv"),
    Case("no end of line", GOOD.rstrip("\n"), 0, None),
    Case("a line of 1 MB", "#" + "x" * 1_000_000 + "\n" + GOOD, 0, None),
    Case("prose", "Dear all,\nhere is the schedule of today.\n", 1, Code.SYNTAX, "mine.txt:1:1", (), "mine.txt"),
    Case("a csv that is none", "rank,op\n0,F0\n", 1, Code.CELL, "mine.csv:1:1", (), "mine.csv"),
    Case("a huge stage", b"99999999999999999999F0\n", 1, Code.OUT_OF_RANGE, "", (), "mine.csv"),
    Case("a large stage", b"9999999F0\n", 1, None, "", (), "mine.csv"),
    Case("a csv with a header", b"r0,r1\n" + CSV, 1, Code.CELL, "", (), "mine.csv"),
    Case("escape codes", HEAD + "rank r { \x1b[31m }", 1, Code.CHARACTER),
]


@pytest.mark.parametrize("dear", ["if k < 0 then 0 else {0}", "if k == 0 then {0} else 0"])
def test_a_condition_is_charged_for_its_dearer_branch(dear: str) -> None:
    """Functions that call each other twice take 2^17 steps, if that branch is taken: more than 1000 operations have."""
    lets = [f"let f{i}(k) = {dear.format(f'f{i - 1}(k) + f{i - 1}(k)' if i else 'k')}\n" for i in range(18)]
    (found,) = verify(
        Source("t.ps", HEAD + "".join(lets) + "rank r { repeat f17(0) { F } }\n"), p=1, m=1, max_ops=1000
    ).diagnostics
    assert found.code == "PS211"


@pytest.mark.parametrize("case", [c for c in CASES if c.name != "a large stage"], ids=lambda case: case.name)
def test_a_bad_file_gets_its_code_at_once(case: Case, tmp_path: Path) -> None:
    """The answer comes within five seconds, with the exit status of file or command line, for any bytes."""
    file = tmp_path / case.file
    file.write_bytes(case.content.encode() if isinstance(case.content, str) else case.content)
    done = pipesched("verify", str(file), *case.arguments)
    check(done, case.status, case.code, case.said)
    assert "\x1b" not in done.text


def test_a_list_has_one_entry_for_each_microbatch() -> None:
    """One too many is as wrong as one too few: the last would never be read."""
    text = Source("t.ps", HEAD.replace("m)", "m, length[m] = 1)") + "rank r { repeat m { F  B } }\n")
    for given, said in (([1], "1 was given"), ([1, 2, 3], "3 were given")):
        (found,) = verify(text, p=2, m=2, length=given).diagnostics
        assert found.code == Code.LIST and said in found.message


def test_a_table_is_never_built_for_a_typo(tmp_path: Path) -> None:
    """Stage 9,999,999 of microbatch 9,999,999 gets an answer, not an allocation of 10^14 entries."""
    file = tmp_path / "mine.csv"
    for content in ("9999999F0\n", "0F9999999\n", "9999999F9999999\n"):
        file.write_text(content)
        done = pipesched("verify", str(file))
        assert done.status == 1 and re.search(r"error\[PS\d{3}\]", done.text) and done.seconds < SECONDS
        assert "Traceback" not in done.text and "internal" not in done.text


def test_stages_are_counted_over_all_routes() -> None:
    """The limit on stages applies to the stages of all routes together, before the second route is placed."""
    routes = "route {}: stage s in 0 .. 60000 on rank 0 for microbatch {} .. {}\n"
    text = f"schedule t(p, m)\n{routes.format('down', 0, 1)}{routes.format('up', 1, 2)}rank r {{ F[0] }}\n"
    (found,) = verify(Source("t.ps", text), p=1, m=2).diagnostics
    assert (found.code, found.message) == ("PS210", "more than 100000 stages, counted over all routes")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing path, a folder, a misspelt name, and a name that resembles no schedule."""
    check(pipesched("verify", str(tmp_path / "none.ps")), 2, Code.UNREADABLE, "none.ps")
    check(pipesched("verify", str(tmp_path)), 2, Code.UNREADABLE, "directory")
    check(pipesched("verify", "interleved", "--p", "4"), 2, Code.UNKNOWN_SCHEDULE, "did you mean `interleaved`?")
    check(pipesched("verify", "xyzzy", "--p", "4"), 2, Code.UNKNOWN_SCHEDULE, "pipesched list")
    check(pipesched("verify", ""), 2, Code.UNREADABLE)
    check(pipesched("verify", "a\udcffb.ps"), 2, Code.UNREADABLE)
    check(pipesched("verify", "x" * 5000 + ".ps"), 2, Code.UNREADABLE)


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    """A denied permission is reported as such."""
    file = tmp_path / "mine.ps"
    file.write_text(GOOD)
    file.chmod(0)
    done = subprocess.run(
        [sys.executable, "-m", "pipesched", "verify", str(file), *SMALL],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=_give_up_root,
    )
    assert (done.returncode, done.stdout) == (Code.UNREADABLE.status, "")
    assert f"[{Code.UNREADABLE}]" in done.stderr and "permission denied" in done.stderr


def _give_up_root() -> None:
    """Root can read everything until its capabilities 1 and 2, which override permissions, are dropped."""
    if os.geteuid() == 0:
        library = ctypes.CDLL(None)
        for capability in (1, 2):
            library.prctl(24, capability, 0, 0, 0)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that fails when it is read")
def test_a_file_that_fails_while_it_is_read() -> None:
    """An error of the device is reported, and is not an internal error."""
    check(pipesched("verify", "/proc/self/mem"), 2, Code.UNREADABLE)


def test_stdin() -> None:
    """``-`` is read like a file, with its kind told by content; an empty or binary one is reported as such."""
    check(pipesched("verify", "-", *SMALL, stdin=GOOD.encode()), 0, None, "ok  s")
    check(pipesched("verify", "-", stdin=CSV), 0, None)
    check(pipesched("verify", "-", *SMALL, stdin=b""), 1, Code.EMPTY)
    check(pipesched("verify", "-", *SMALL, stdin=b"\0\1"), 2, Code.UNREADABLE)
    check(pipesched("verify", "-", *SMALL, stdin=(HEAD + "rank r { G }").encode()), 1, Code.SYNTAX, "<stdin>:3:10")
    check(pipesched("fmt", "-", stdin=b"schedule"), 1, Code.SYNTAX)


def test_every_command_takes_bad_files_like_verify(tmp_path: Path) -> None:
    """``emit`` and ``fmt`` report the same codes and statuses as ``verify``."""
    file = tmp_path / "mine.ps"
    for content, status, code in ((b"", 1, Code.EMPTY), (b"\0", 2, Code.UNREADABLE), (b"\xff", 2, Code.UNREADABLE)):
        file.write_bytes(content)
        check(pipesched("emit", str(file), "--target", "order"), status, code)
        check(pipesched("fmt", str(file)), status, code)
        assert file.read_bytes() == content


def test_bad_options(tmp_path: Path) -> None:
    """Invalid costs, release rules, caps and models: status 2, and the help shows a valid value."""
    toml = tmp_path / "costs.toml"
    toml.write_bytes(b"F = [1,")
    for arguments, code in (
        (("--cost", "F=x"), Code.USAGE),
        (("--cost", "F=-1"), Code.USAGE),
        (("--cost", "Z=1"), Code.USAGE),
        (("--cost", "M=-1"), Code.USAGE),
        (("--cost", "M=[1,2,3]"), Code.USAGE),
        (("--cost", "M=[1,2"), Code.USAGE),
        (("--cost", "F=1e999999999"), Code.USAGE),
        (("--costs", str(toml)), Code.USAGE),
        (("--costs", str(tmp_path)), Code.UNREADABLE),
        (("--release", "split:two"), Code.USAGE),
        (("--mem-cap", "1e999999999"), Code.USAGE),
        (("--mem-cap", "1,2,3"), Code.USAGE),
        (("--comm", "buffered(-1)"), Code.USAGE),
        (("--comm", "buffered(" + "9" * 1000 + ")"), Code.USAGE),
        (("--max-ops", "x"), Code.USAGE),
        (("--placement", "0,-1"), Code.USAGE),
        (("--stages", "9" * 5000), Code.USAGE),
        (("--torch-version", "2." + "9" * 5000), Code.USAGE),
    ):
        check(pipesched("verify", "1f1b", "--p", "2", *arguments), 2, code)
