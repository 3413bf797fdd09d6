"""No input causes an internal error: every reader returns a value or coded findings, and shows nothing unescaped.

Right inputs of every kind are cut, doubled, spliced and filled with what hurts; the law is the same for all of them.
More of it: ``python -m tests.shell.test_fuzz --cases 200000``
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from pipesched import compile, render
from pipesched.__main__ import main as pipesched
from pipesched.command.terminal import dumps
from pipesched.diagnostics import Diagnostic, PipeschedError
from pipesched.model.costs import Costs
from pipesched.report.report import Report
from pipesched.runtime.measured import measured_traces
from pipesched.support.source import Source
from pipesched.verbs.verify import verify
from tests.depth import deep

ROOT = Path(__file__).parents[2]
RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]|^[ \t]*::[a-z]", re.M
)
PIECE = re.compile(r"\d+|[A-Za-z_]+|\s+|.", re.S)
HURTING = (
    *("0", "-1", "1", "7", "10000001", "4611686018427387904", "9" * 19, "9" * 5000, "0" * 4301 + "1", "1e999", "1/0"),
    *(
        "3/2",
        "0.1",
        "\u0663",
        "\u00b2",
        "NaN",
        "Infinity",
        "-Infinity",
        "null",
        "true",
        "[]",
        "{}",
        '""',
        "[[[[",
        "{{{{",
    ),
    *("(", ")", "[", "]", "{", "}", '"', "'", ",", ";", ":", "..", "=", "#", "@", "+", "-", "*", "//", "%", "/", "\n"),
    *("\r", "\t", "\r\n", "\x00", "\x1b[31m", "\x85", "\u202e", "\u2028", "\ud800", "\ufeff", "\U000e0041", "e\u0301"),
    *(
        "\n::add-mask::x",
        "<b>&",
        "\\",
        "\\u0000",
        "F",
        "I",
        "W",
        "B",
        "F0.0",
        "0F0",
        "rank",
        "for",
        "let",
        "claim",
        "x",
    ),
    *("release", "costs", "stage", "route", "repeat", "drain W", "overlap(F, B)", "SEND_F", "send:F0.0>1", "step"),
)
PS = """schedule small(p = 2, v = 1, m = 3)
"A small one"
require m >= 1, "some"
let twice(k) = 2 * k - k
route a: stage s in 0 .. p * v on rank s % p for microbatch 0 .. m
costs F = 1, I = [1, 3 / 2], W = 1.5, C = 1
rank r { for k in 0 .. m { F[0] } if r == 0 { repeat m { I } } else { for i in 0 .. twice(m) { I[0](i) } } drain W }
claim peak(r) <= m release split:1/2 when tC == 1 and makespan / 2 > 0
"""
CSV = "0F0,0F1,,0B0,0B1\n1F0,1B0,1F1,1B1\n"
COMMS = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"
OVERLAP = "0F0,(0F1;0B0)OVERLAP_F_B,0B1,0REDUCE_GRAD\n"
ORDER = "rank 0: F0.0 F0.1+B0.0 B0.1\n# aside\nrank 1: F1.0 B1.0 F1.1 I1.1 W1.1\n"
PROGRAM = (
    "rank 0: F0.0 ( send:F0.0>1 ) recv:B1.0<1 B0.0 reduce:0 step\nrank 1: recv:F0.0<0 F1.0 B1.0 send:B1.0>0@1 step\n"
)
TRACE = json.dumps(
    {"traceEvents": [
        {"ph": "X", "pid": 0, "ts": i, "dur": 1.5, "args": {"op": op, "stage": 0, "microbatch": 0, "rank": 0}}
        for i, op in enumerate("FIW")
    ], "baseTimeNanoseconds": 5}
)  # fmt: skip
TORCH_TRACE = '[{"ph": "X", "name": "PP:0F0", "ts": 1, "dur": 2}, {"ph": "X", "name": "PP:0B0", "ts": 4, "dur": 2}]'
TOML = "F = 1\nI = [1, 2.5]\nW = 1.5\nC = 0\nM = [1, 1]\n"


@dataclass(frozen=True)
class Reader:
    """A way in: right inputs, their reader, and its share of the cases."""

    name: str
    seeds: Callable[[], Sequence[str]]
    read: Callable[[str], str]
    share: int


def _verified(name: str) -> Callable[[str], str]:
    """Return the verdict on a file of this name, in all forms at once."""

    def read(text: str) -> str:
        source = Source(name, text)
        return _told(verify(source, compile.Options(max_ops=500)))

    return read


def _told(report: Report) -> str:
    findings = [form(found) for found in report.diagnostics for form in (render.concise, _annotation)]
    return "\n".join([report.text(), report.line(), dumps(report.to_json()), *findings])


def _annotation(found: Diagnostic) -> str:
    """Return an annotation without its own two leading colons."""
    told = render.github(found)
    assert told.startswith(("::error ", "::warning ")) and "\n" not in told
    return told[2:]


def _costs(text: str) -> str:
    return dumps({key: str(Costs.from_toml(text).ticks(2).scale) for key in "x"})


def _measured(text: str) -> str:
    return str(len(measured_traces.read([Source("run.json", text)]).schedule))


def _arguments(text: str) -> str:
    """Return the output of a command line, given one word per line, if it ends as a command should."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = pipesched([word.replace("\0", "") for word in text.split("\n")])
    said = out.getvalue() + err.getvalue()
    assert status in (0, 1, 2, 3), said
    return "" if "--format\ngithub" in text else said


@cache
def _streams() -> list[str]:
    texts = [path.read_text("utf-8") for path in sorted((ROOT / "emit/v2").glob("*_p[23]*.json"))]
    short = min(texts, key=len)
    return [short, json.dumps(json.loads(short)), texts[0]]


@cache
def _answers() -> list[str]:
    from pipesched import optimize

    return [dumps(optimize(p=2, m=2, mem_cap=2).to_json()), dumps(optimize(p=2, m=1, backward="fused").to_json())]


def _lines(*words: str) -> str:
    return "\n".join(words)


def _commands() -> list[str]:
    small = ("1f1b", "--p", "2", "--m", "2", "--max-ops", "500")
    return [
        _lines("verify", *small, "--cost", "F=1,I=2,W=3/2,C=0", "--release", "split:1/2", "--mem-cap", "4,3"),
        _lines("verify", *small, "--comm", "buffered(2)", "--torch-version", "2.13", "--format", "concise"),
        _lines("verify", "zb_h1", "--p", "2..3", "--m", "2,4", "-D", "x=1", "--max-ops", "500", "--json"),
        _lines("show", *small, "--from", "1", "--to", "9/2", "--width", "60"),
        _lines("show", *small, "--format", "svg", "--style", "megatron"),
        _lines("emit", *small, "--target", "torch-csv", "--torch-version", "2.12"),
        _lines("compare", "1f1b", "gpipe", "--p", "2", "--m", "4", "--cost", "F=1,B=2"),
        _lines("why", *small),
        _lines("diff", "1f1b", "gpipe", "--p", "2", "--m", "4"),
        _lines("explain", "PS401"),
        _lines("order", *small),
    ]


READERS = (
    Reader("ps", lambda: [PS], _verified("fuzz.ps"), 3),
    Reader("csv", lambda: [CSV, COMMS, OVERLAP], _verified("fuzz.csv"), 20),
    Reader("order", lambda: [ORDER, PROGRAM], _verified("fuzz.txt"), 20),
    Reader("stream", _streams, _verified("fuzz.json"), 20),
    Reader("answer", _answers, _verified("fuzz.json"), 8),
    Reader("costs", lambda: [TOML], _costs, 10),
    Reader("measured", lambda: [TRACE, TORCH_TRACE], _measured, 16),
    Reader("arguments", _commands, _arguments, 3),
)


def mutant(seeds: Sequence[str], chance: random.Random) -> str:
    """Return an input with one to six changes."""
    pieces = PIECE.findall(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        at = chance.randrange(len(pieces) + 1)
        end = min(len(pieces), at + chance.choice((0, 1, 1, 1, 2, 5, 30)))
        other = PIECE.findall(chance.choice(seeds)) or [""]
        begin = chance.randrange(len(other))
        pieces[at:end] = chance.choice(
            ([], [chance.choice(HURTING)], [chance.choice(HURTING)], pieces[at:end] * 2, other[begin : begin + 8])
        )
    return "".join(pieces)


def fault(reader: Reader, text: str) -> str | None:
    """Return the fault of the answer to an input: a foreign exception, or raw text."""
    try:
        told = reader.read(text)
    except PipeschedError as error:
        told = "\n".join(form(found) for found in error.diagnostics for form in (render.text, render.concise))
    except Exception:
        return traceback.format_exc(limit=-6)
    raw = RAW.search(told)
    return raw and f"raw {raw[0]!r} in {told[max(0, raw.start() - 80) : raw.end() + 80]!r}"


def cases(count: int, seed: int) -> Counter[str]:
    """Try many inputs; the number for each reader.

    Raises:
        AssertionError: the first fault, with its input.
    """
    chance, tried = random.Random(seed), Counter[str]()
    shares = [reader.share for reader in READERS]
    for number in range(count):
        if number % 10_000 == 9_999:
            print(f"{number + 1:,}", file=sys.stderr, flush=True)
        reader = chance.choices(READERS, shares)[0]
        text = mutant(reader.seeds(), chance)
        tried[reader.name] += 1
        wrong = fault(reader, text)
        assert wrong is None, f"{reader.name}: {text[:3000]!r}\n{wrong}"
    return tried


def test_no_input_is_an_internal_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every reader gets a hundred mutants of right inputs."""
    monkeypatch.chdir(tmp_path)
    assert set(cases(deep(450, usual=200), 7)) == {reader.name for reader in READERS}


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_right_inputs_are_read(reader: Reader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The unchanged inputs are right."""
    monkeypatch.chdir(tmp_path)
    for text in reader.seeds():
        assert fault(reader, text) is None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    os.chdir(os.environ.get("TMPDIR", "/tmp"))
    begin = time.process_time()
    tried = cases(asked.cases, asked.seed)
    print(f"{tried.total():,} inputs, 0 internal errors, {time.process_time() - begin:.0f} s: {dict(tried)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
