"""Hostile inputs: files of many shapes, up to 10 MB long, and hostile sizes, devices and names.

Each is made when it is asked for; `content` None is a command line alone, or an existing file.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pipesched.stream import Instruction, Route, Stream, dumps

MB = 1_000_000
HEAD = "schedule s(p, m)\nstage s in 0 .. p on rank s\n"
GOOD = HEAD + "rank r {\n  repeat m { F }\n  repeat m { B }\n}\n"
BOTH = HEAD + "rank r { repeat m { F B } }\n"
SMALL = ("--p", "2", "--m", "2")

Content: TypeAlias = str | bytes | Callable[[], str | bytes] | None


@dataclass(frozen=True)
class Hostile:
    """A hostile case: a file of this name and content, and the arguments after it. command: the command that reads it.
    beside: files in its folder, ``{folder}`` in an argument. environment: variables to set.
    """

    file: str
    content: Content
    arguments: tuple[str, ...] = ()
    command: str = "verify"
    beside: Mapping[str, Content] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def ps(content: Content, p: int = 2, m: int = 2) -> Hostile:
    return Hostile("a.ps", content, ("--p", str(p), "--m", str(m)))


def csv(content: Content, *arguments: str) -> Hostile:
    return Hostile("a.csv", content, arguments)


def order(content: Content) -> Hostile:
    return Hostile("a.txt", content)


def stream(content: Content) -> Hostile:
    return Hostile("a.json", content)


def built_in(name: str, *arguments: str, command: str = "verify") -> Hostile:
    return Hostile(name, None, arguments, command)


def lets(count: int = 40) -> str:
    """Return the functions that call the previous one twice: 2 ** count calls."""
    return "let f0(k) = k + 1\n" + "".join(f"let f{i}(k) = f{i - 1}(f{i - 1}(k))\n" for i in range(1, count))


def balanced(terms: list[str]) -> str:
    """Return a sum with the least nesting."""
    half = len(terms) // 2
    return terms[0] if half == 0 else f"({balanced(terms[:half])}+{balanced(terms[half:])})"


def grid(rows: int, cells: int, cell: Callable[[int, int], str]) -> str:
    return "\n".join(",".join(cell(row, i) for i in range(cells)) for row in range(rows))


def forwards(stages: int, microbatches: int, ranks: int = 1) -> Stream:
    rows = (
        tuple(Instruction("F", s, i) for s in range(rank, stages, ranks) for i in range(microbatches))
        for rank in range(ranks)
    )
    return Stream("x", {}, (Route("", tuple(s % ranks for s in range(stages)), (0, microbatches)),), tuple(rows))


def loose(made: Stream, **others: object) -> str:
    """Return a stream in a layout other than ours."""
    return json.dumps({**json.loads(dumps(made)), **others})


def many_routes(count: int) -> str:
    routes = tuple(Route(f"r{i}", (0,), (i, i + 1)) for i in range(count))
    return dumps(Stream("x", {}, routes, (tuple(Instruction("F", 0, i, i) for i in range(count)),)))


def any_cells(kinds: str, ranks: int, cells: int, stages: int, microbatches: int) -> str:
    chance, known = random.Random(1), kinds.split()
    return grid(
        ranks, cells, lambda r, i: f"{chance.randrange(stages)}{chance.choice(known)}{chance.randrange(microbatches)}"
    )


def deadlocked(ranks: int = 30, m: int = 5000) -> str:
    forward = "{s}RECV_F{i},{s}F{i},{s}SEND_F{i}"
    backward = "{s}SEND_B{i},{s}B{i},{s}RECV_B{i}"
    return grid(ranks, 2 * m, lambda s, i: (forward if i < m else backward).format(s=s, i=i % m))


CASES: dict[str, Hostile] = {
    # expressions of a .ps file
    "calls that double, in a let": ps(HEAD + lets() + "let x = f39(1)\nrank r { repeat m { F B } }"),
    "calls that double, in a require": ps(HEAD + lets() + "require f39(1) > 0\nrank r { repeat m { F B } }"),
    "calls that double, in a claim": ps(BOTH + lets() + "claim f39(1) > 0"),
    "calls that double, in a condition": ps(BOTH + lets() + "claim peak == 1 when f39(1) > 0"),
    "calls that double, in costs": ps(BOTH + lets() + "costs F = f39(1)"),
    "calls that double, in a placement": ps("schedule s(p, m)\n" + lets() + "stage s in 0 .. p on rank f39(s)\nrank r { F B }"),
    "calls that double, in a bound": ps(HEAD + lets() + "rank r { repeat f39(m) { F } }"),
    "calls that double, in a chunk": ps(HEAD + lets() + "rank r { F[f39(0)] }"),
    "calls that double, in a rank's let": ps(HEAD + lets() + "rank r { let x = f39(r) F B }"),
    "calls that double, in a rank": ps(HEAD + lets() + "rank f39(0) { F B }"),
    "calls that double, in microbatches": ps("schedule s(p, m)\n" + lets() + "stage s in 0 .. p on rank s for microbatch 0 .. f39(m)\nrank r { F B }"),
    "calls that double, in a loop": ps(HEAD + lets() + "rank r { for i in 0 .. 1000000 { if f12(i) < 0 { F } } }"),
    "numbers that double": ps(lambda: HEAD + "let x0 = 1\n" + "".join(f"let x{i} = x{i - 1} + x{i - 1}\n" for i in range(1, 9000)) + "rank r { F B }"),
    "numbers that fall": ps(HEAD + "let x0 = 0 - 1\n" + "".join(f"let x{i} = x{i - 1} - x0 * {10**17}\n" for i in range(1, 99)) + "rank r { F B }"),
    "a default that doubles": ps("schedule s(p, m, x = 4611686018427387903 + 1)\nstage s in 0 .. p on rank s\nrank r { F B }"),
    "a digit too many": ps(HEAD + "let x = " + "9" * 5000 + "\nrank r { F B }"),
    "10 MB of digits": ps(lambda: HEAD + "let x = " + "9" * (10 * MB - 50)),
    "a rank that is half": ps(GOOD + "claim peak(p / 2) == m", 3),
    "fractions without end": ps(lambda: GOOD + "claim " + balanced([f"1/{100_003 + 2 * i}" for i in range(15_000)]) + " > 0"),
    "costs as fine as that": ps(GOOD + "costs F = [" + ",".join(f"1/{100_003 + 2 * i}" for i in range(5000)) + "]", 5000),
    "loops of nothing": ps(HEAD + "rank r { for i in 0 .. 8000 { for j in 0 .. 1000 { if i + j < 0 { F } } } F B }", 1),
    "a wide body": ps(HEAD + f"let f(k) = {balanced(['k'] * 10_000)}\nrank r {{ for i in 0 .. 400000 {{ if f(i) < 0 {{ F }} }} }}"),
    # how much of it there is
    "W from behind": ps(HEAD + "rank r { repeat m { F } repeat m { I } for k in 0 .. m { W(m - 1 - k) } }", 2, 300_000),
    "W at the end": ps(HEAD + "rank r { repeat m { F I } drain W }", 100, 6600),
    "two million operations": ps(GOOD, 1000, 999),
    "two ranks of them": ps(GOOD, 2, 499_999),
    "one rank of them": ps(GOOD, 1, 999_999),
    "a few too many": ps(GOOD, 1000, 4900),
    "p of thirty digits": Hostile("a.ps", GOOD, ("--p", "9" * 30, "--m", "1")),
    "ranks at their limit": ps(GOOD, 10_000, 100),
    "a rank too many": ps(GOOD, 10_001, 5),
    "stages at their limit": ps("schedule s(p, m)\nstage s in 0 .. 100000 on rank 0\nrank r { for s in 0 .. 100000 { F[s] } }", 1, 2),
    "a stage too many": ps("schedule s(p, m)\nstage s in 0 .. 1900000 on rank 0\nrank r { for s in 0 .. 1900000 { F[s] } }", 1, 1),
    "two routes": ps("schedule s(p, m)\nroute a: stage s in 0 .. p on rank s for microbatch 0 .. m // 2\nroute b: stage s in 0 .. p on rank p - 1 - s for microbatch m // 2 .. m\nrank r { repeat m // 2 { F[0] F[1] } repeat m // 2 { B[0] B[1] } }", 1000, 998),
    "a thousand routes": ps("schedule s(p, m)\n" + "".join(f"route a{i}: stage s in 0 .. p on rank s for microbatch {i} .. {i + 1}\n" for i in range(1000)) + "rank r { F[0] }", 20, 1000),
    "a program for each rank": ps("schedule s(p, m)\nstage s in 0 .. p on rank s\n" + "".join(f"rank {i} {{ F B }}\n" for i in range(5000)), 5000, 1),
    "backwards first": ps(HEAD + "rank r { for k in 0 .. m { B(k) F(k) } }", 1, 900_000),
    "one microbatch again and again": ps(HEAD + "rank r { for k in 0 .. m { F(0) B(0) } }", 10, 90_000),
    "orders that wait for each other": ps(HEAD + "rank r { for k in 0 .. m { F(m - 1 - k) B(m - 1 - k) } }", 10, 90_000),
    "every second one": ps(HEAD + "rank r { for k in 0 .. m { if k % 2 == r % 2 { F(k) } } }", 10, 190_000),
    "words at their limit": ps(lambda: HEAD + "rank r { " + "F B " * 49_000 + "}", 2, 49_000),
    "lets at their limit": ps(lambda: HEAD + "".join(f"let x{i} = {i}\n" for i in range(24_000)) + "rank r { repeat m { F B } }"),
    "10 MB of operations": ps(lambda: HEAD + "rank r { " + "F B " * 2_400_000 + "}"),
    "10 MB of lets": ps(lambda: HEAD + "".join(f"let x{i} = {i}\n" for i in range(500_000)) + "rank r { F B }"),
    "10 MB of words": ps(lambda: "word " * (2 * MB)),
    "10 MB of signs": ps(lambda: "schedule s(p)\n" + "@ " * (5 * MB - 10)),
    "10 MB of braces": ps(lambda: HEAD + "rank r " + "{ " * (5 * MB - 40)),
    "10 MB of parentheses": ps(lambda: HEAD + "let x = " + "(" * 9 * MB),
    "10 MB of a string": ps(lambda: 'schedule s(p) "' + "x" * 9_900_000),
    "10 MB of documentation": ps(lambda: 'schedule s(p, m) "' + "x\n" * 4_900_000 + '"\nstage s in 0 .. p on rank s\nrank r { F B }', 2, 1),
    "10 MB of a name": ps(lambda: HEAD + "let " + "x" * 9_900_000 + " = 1\nrank r { repeat m { F B } }"),
    "10 MB of a comment": ps(lambda: "#" + "x" * 9_900_000 + "\n" + GOOD),
    "10 MB of comments": ps(lambda: "#\n" * 4_900_000 + GOOD),
    "names that nobody knows": ps(lambda: HEAD + "".join(f"let abc{i} = {i}\n" for i in range(9000)) + "".join(f"let y{i} = abd{i}\n" for i in range(9000)) + "rank r { F B }"),
    "names twice": ps(lambda: HEAD + "let x = 1\n" * 20_000),
    "a name that is long and wrong": ps(lambda: HEAD + "let " + "x" * 4 * MB + " = 1\nlet y = " + "x" * 4 * MB + "y\nrank r { F B }"),
    "let let let": ps(lambda: HEAD + "let let " * 45_000),
    "closed, not opened": ps(lambda: HEAD + "rank r { " + "F ) " * 45_000),
    "claims that fail": ps(lambda: GOOD + "claim peak(0) == 9 when m > 1\n" * 9000),
    "claims that hold": ps(lambda: GOOD + "claim peak(0) == m\n" * 12_000),
    "claims for every rank": ps(lambda: GOOD + "claim peak(r) == min(p - r, m)\n" * 4000, 2000),
    "claims for every release": ps(GOOD + "".join(f"claim peak(r) == m release split:1/{i}\n" for i in range(2, 1000)), 100, 9999),
    # rows
    "CSV of 100,000 rows": csv(lambda: grid(100_000, 2, lambda r, i: f"{r}{'FB'[i]}0")),
    "CSV of 10,000 rows": csv(lambda: grid(10_000, 100, lambda r, i: f"{r}{'FB'[i // 50]}{i % 50}")),
    "CSV of 2,500,000 rows": csv(lambda: "0F0\n" * 2_500_000),
    "CSV of one row": csv(lambda: grid(1, 1_200_000, lambda r, i: f"0{'FB'[i // 600_000]}{i % 600_000}")),
    "CSV backwards": csv(lambda: grid(1, 1_000_000, lambda r, i: f"0{'BF'[i // 500_000]}{i % 500_000}")),
    "CSV of one cell": csv(lambda: "0F0," * 2_400_000 + "0B0"),
    "CSV of a few cells": csv(lambda: "0F0,0F1,0B0,0B1," * 480_000 + "0B0"),
    "CSV of commas": csv(lambda: "," * 10 * MB),
    "CSV of gaps": csv(lambda: "0F0" + "," * (10 * MB - 6) + "0F1"),
    "CSV of ends of lines": csv(lambda: "\n" * 10 * MB),
    "CSV of quotes": csv(lambda: '"' * 10 * MB),
    "CSV of quoted cells": csv(lambda: ",".join(f'"0F{i}"' for i in range(700_000))),
    "CSV of cells in blanks": csv(lambda: ",".join(f" 0F{i} " for i in range(900_000))),
    "CSV of small letters": csv(lambda: ",".join(f"0f{i}" for i in range(1_000_000))),
    "CSV of no cells": csv(lambda: "x," * 5 * MB),
    "CSV of zeros": csv("0" * 4301 + "F0,0F0"),
    "CSV of a huge number": csv(lambda: "0F" + "9" * 9 * MB),
    "CSV of sends": csv(lambda: "0SEND_F0," * MB + "0F0\n1RECV_F0"),
    "CSV of overlaps": csv(lambda: ",".join(f"(0F{i};0B{i})OVERLAP_F_B" for i in range(320_000))),
    "CSV of anything": csv(lambda: any_cells("F B", 1000, 1100, 1000, 1000)),
    "CSV of any messages": csv(lambda: any_cells("F B SEND_F RECV_F SEND_B RECV_B", 500, 1200, 100, 1000)),
    "CSV of half a backward": csv(lambda: grid(600, 1500, lambda r, i: f"{r}F{i}" if i < 1000 else f"{r}B{2 * (i - 1000)}")),
    "CSV of a deadlock": csv(deadlocked),
    "CSV of a route each": csv(lambda: grid(1000, 1000, lambda r, i: f"{(i + r * 7919) % 1000}F{i}")),
    "CSV beside CSV": csv(lambda: "0F0,é" + "0F1," * 2 * MB),
    "order of 100,000 ranks": order(lambda: "".join(f"rank {i}: F{i}.0 B{i}.0\n" for i in range(100_000))),
    "order of computes": order(lambda: "rank 0: " + " ".join(f"{k}0.{i}" for k in "FB" for i in range(500_000))),
    "order of batches": order(lambda: "rank 0: " + " ".join(f"( send:F0.{i}>1 )" for i in range(500_000)) + "\nrank 1:"),
    "order of steps": order(lambda: "rank 0: F0.0 " + "step " * 1_900_000),
    "order of no words": order(lambda: "rank 0: " + "x " * 5 * MB),
    "order of brackets": order(lambda: "rank 0: F0.0 " + "( " * 4 * MB),
    "order of digits": order(lambda: "rank 0: F" + "9" * 5 * MB + ".0"),
    "order of overlaps": order(lambda: "rank 0: " + "F0.0+B0.0 " * 900_000),
    "order of comments": order(lambda: "rank 0: F0.0\n" + "#\n" * 4_900_000),
    # JSON
    "stream of a million stages": stream(lambda: dumps(forwards(1, 1)).replace('"ranks":[0]', f'"ranks":[{",".join(["0"] * MB)}]')),
    "stream of 100,000 stages": stream(lambda: dumps(forwards(100_000, 1))),
    "stream of 80,000 routes": stream(lambda: many_routes(80_000)),
    "stream laid out otherwise": stream(lambda: loose(forwards(1, 180_000))),
    "stream of another": stream(lambda: loose(forwards(1, 180_000), fingerprint="0")),
    "stream with a huge number": stream(lambda: loose(forwards(1, 180_000)).replace(": 100000}", ": 1" + "0" * 30 + "}")),
    "stream with wrong words": stream(lambda: loose(forwards(1, 180_000)).replace('"F"', '"G"')),
    "stream of empty ranks": stream(lambda: loose(forwards(1, 1), ranks=[[]] * (2 * MB))),
    "stream of parameters": stream(lambda: loose(forwards(1, 1), parameters={f"k{i}": 1 for i in range(500_000)})),
    "stream of a name": stream(lambda: loose(forwards(1, 1), name="x" * 9 * MB)),
    "JSON of brackets": stream(lambda: "[" * 5 * MB),
    "JSON of objects": stream(lambda: '{"a":' * 1_600_000),
    "JSON of a number": stream(lambda: '{"version":' + "1" * 9 * MB + "}"),
    "JSON of keys": stream(lambda: "{" + ",".join(f'"k{i}":1' for i in range(700_000)) + "}"),
    "JSON of one key": stream(lambda: "{" + '"a":1,' * 1_400_000 + '"b":1}'),
    "answer of brackets": stream(lambda: '{"certificate":' + "[" * 3 * MB),
    # files that are none
    "/dev/zero": built_in("/dev/zero"),
    "/dev/urandom": built_in("/dev/urandom"),
    "/dev/null": built_in("/dev/null"),
    "a folder": built_in("/"),
    "the memory of a process": built_in("/proc/self/mem"),
    "half a character": Hostile("a.ps", b"\xc3"),
    "a file of zeros": Hostile("a.csv", lambda: b"\0" * 10 * MB),
    # arguments
    "ten thousand sizes": built_in("1f1b", "--p", "1..10001", "--m", "2"),
    "sizes of 30 digits": built_in("1f1b", "--p", "1.." + "9" * 30),
    "sizes of 5,000 digits": built_in("1f1b", "--p", "9" * 5000),
    "a definition of 5,000 digits": built_in("1f1b", "--p", "2", "-D", "x=" + "9" * 5000),
    "30,000 caps": built_in("1f1b", "--p", "8", "--mem-cap", ",".join(["1"] * 30_000)),
    "a cap of 5,000 digits": built_in("1f1b", "--p", "8", "--mem-cap", "9" * 5000),
    "a cost of 5,000 digits": built_in("1f1b", "--p", "8", "--cost", "F=" + "9" * 5000),
    "costs of many denominators": built_in("1f1b", "--p", "900", "--m", "2", "--cost", "F=[" + ",".join(f"1/{10**8 + 2 * i + 1}" for i in range(900)) + "]"),
    "a placement of 60,000": csv("0F0,0B0", "--placement", ",".join(["1"] * 60_000)),
    "a buffer of 5,000 digits": built_in("1f1b", "--p", "2", "--comm", f"buffered({'9' * 5000})"),
    "an escape for a schedule": built_in("\x1b[31m::add-mask::x\x1b[0m"),
    "lines for a schedule": built_in("\n::add-mask::x\n", command="show"),
    "an escape for an option": built_in("1f1b", "--\x1b[31mp", "2"),
    "an escape for a command": built_in("1f1b", command="\x1b[2J"),
    "1000 chunks a rank": built_in("interleaved", "--p", "10", "--v", "1000", "--m", "100"),
    "DualPipe at its limit": built_in("dualpipe", "--p", "100", "--m", "9000"),
}  # fmt: skip
