"""Error tests written inside the source that they test.

A file is cut into chunks by lines that begin with `---`, after which sizes may stand (``--- p=4 m=8``): with sizes a
chunk is evaluated, without it is only parsed. A line that must be found wrong ends in

    ### PS101 "part of the message or of the help"

once for each finding there; a line below it may say the same with `###^`. A finding that no line expects fails, and so does an expectation that nothing meets.
Chunks keep the line numbers of their file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pipesched.diagnostics import Diagnostic, PipeschedError
from pipesched.language.evaluate import evaluate
from pipesched.language.parser import parse
from pipesched.source import Source

EXPECTED = re.compile(r'###(\^*) (PS\d+) "((?:[^"]|"(?=[^"\s]))*)"')
FENCE = re.compile(r"^```ps(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Chunk:
    """A whole file, its sizes (None: only parse), and what is to be found: (line, code, part of the message)."""

    source: Source
    parameters: dict[str, int] | None
    expected: tuple[tuple[int, str, str], ...]


def chunks(path: Path) -> list[Chunk]:
    """The chunks of a file of chunks."""
    found, begun, sizes, lines = [], 0, "", path.read_text("utf-8").split("\n")
    for number, line in enumerate([*lines, "---"]):
        if line.startswith("---"):
            found.append(_chunk(path.name, begun, lines[begun:number], sizes))
            begun, sizes = number + 1, line[3:]
    return found


def fences(path: Path) -> list[Chunk]:
    """The ```ps blocks of a Markdown file."""
    text = path.read_text("utf-8")
    return [
        _chunk(path.name, text.count("\n", 0, found.start(2)), found[2].split("\n"), found[1] or " ")
        for found in FENCE.finditer(text)
    ]


def _chunk(name: str, begun: int, lines: list[str], sizes: str) -> Chunk:
    expected = [
        (begun + at - len(found[1]), found[2], found[3])
        for at, line in enumerate(lines, start=1)
        for found in EXPECTED.finditer(line)
    ]
    parameters = {key: int(value) for key, value in re.findall(r"(\w+)=(-?\d+)", sizes)}
    return Chunk(Source(name, "\n" * begun + "\n".join(lines)), parameters if sizes else None, tuple(expected))


def findings(chunk: Chunk) -> tuple[Diagnostic, ...]:
    """What the compiler finds wrong with a chunk."""
    try:
        file = parse(chunk.source)
        if chunk.parameters is not None:
            evaluate(file, chunk.parameters)
    except PipeschedError as error:
        return error.diagnostics
    return ()


def check(chunk: Chunk) -> None:
    """Every expectation is met by one finding, and every finding is expected."""
    open_ = list(chunk.expected)
    for finding in findings(chunk):
        said = f"{finding.message}\n{finding.help}"
        span = finding.labels[0].span if finding.labels else None
        line = span.line if span else 0
        met = next((e for e in open_ if e[:2] == (line, finding.code) and e[2] in said), None)
        assert met is not None, f"line {line}: not expected: {finding.code} {said}"
        open_.remove(met)
    assert not open_, f"not found: {open_}"
