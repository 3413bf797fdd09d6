"""Reads error tests that are written inside the source that they test.

A file is cut into chunks by lines that begin with `---`, which may carry sizes (``--- p=4 m=8``): with sizes a chunk is
evaluated, without them it is only parsed. A line that must be found wrong ends in

    ### PS101 "part of the message or of the help"

once for each finding there; the line below it may say the same with `###^`, the second below with `###^^`. A finding
without a place is expected on the first line. A finding that no line expects fails, and so does an expectation that
nothing meets. Chunks keep the line numbers of their file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipesched.diagnostics import Diagnostic, PipeschedError
from pipesched.language import ast
from pipesched.language.evaluate import MAX_OPS, Unit, at_size
from pipesched.language.parser import parse
from pipesched.language.typecheck import check_file
from pipesched.model.numbers import Value
from pipesched.support.source import Source

EXPECTED = re.compile(r'###(\^*) (PS\d+) "((?:[^"]|"(?=[^"\s]))*)"')
FENCE = re.compile(r"^```ps(.*?)\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def evaluate(file: ast.File, parameters: Mapping[str, Value], *, max_ops: int = MAX_OPS) -> Unit:
    """Return a tree, checked and run at a size."""
    return at_size(check_file(file), parameters, max_ops=max_ops)


@dataclass(frozen=True)
class Chunk:
    """A whole file, its sizes (None: only parse), and the expected findings.

    expected: (line, code, part of the message) of every finding. orders: lines of the order that must come out.
    """

    source: Source
    first_line: int
    parameters: dict[str, Value] | None
    expected: tuple[tuple[int, str, str], ...]
    orders: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.source.name}:{self.first_line}"


def chunks(path: Path) -> list[Chunk]:
    """Return the chunks of a file of chunks."""
    found, begun, sizes, lines = [], 0, "", path.read_text("utf-8").split("\n")
    for number, line in enumerate([*lines, "---"]):
        if line.startswith("---"):
            found.append(_chunk(path.name, begun, lines[begun:number], sizes))
            begun, sizes = number + 1, line[3:]
    return found


def fences(path: Path) -> list[Chunk]:
    """Return the ```ps blocks of a Markdown file, each with the ```text block right after it, which is the order it
    writes."""
    text = path.read_text("utf-8")
    return [
        _chunk(path.name, text.count("\n", 0, found.start(2)), found[2].split("\n"), found[1], found[3] or "")
        for found in FENCE.finditer(text)
    ]


def _chunk(name: str, begun: int, lines: list[str], sizes: str, orders: str = "") -> Chunk:
    expected = [
        (begun + at - len(found[1]), found[2], found[3])
        for at, line in enumerate(lines, start=1)
        for found in EXPECTED.finditer(line)
    ]
    parameters = {key: _value(value) for key, value in re.findall(r"(\w+)=(-?\d+(?:,-?\d+)*)", sizes)}
    source = Source(name, "\n" * begun + "\n".join(lines))
    return Chunk(source, begun + 1, parameters or None, tuple(expected), tuple(orders.splitlines()))


def _value(text: str) -> Value:
    """Return a number, or the entries of a list."""
    return tuple(map(int, text.split(","))) if "," in text else int(text)


def findings(chunk: Chunk) -> list[tuple[int, Diagnostic]]:
    """Return the findings of the compiler in a chunk, with their lines."""
    try:
        file = parse(chunk.source)
        if chunk.parameters is not None:
            evaluate(file, chunk.parameters)
    except PipeschedError as error:
        return [(_line(finding) or chunk.first_line, finding) for finding in error.diagnostics]
    return []


def _line(finding: Diagnostic) -> int | None:
    span = finding.labels[0].span if finding.labels else None
    return span.line if span else None


def check(chunk: Chunk) -> None:
    """Every expectation is met by one finding, and every finding is expected."""
    missing = list(chunk.expected)
    for line, finding in findings(chunk):
        said = f"{finding.message}\n{finding.help}"
        met = next((e for e in missing if e[:2] == (line, finding.code) and e[2] in said), None)
        assert met is not None, f"{chunk.source.name}:{line}: not expected: {finding.code} {said}"
        missing.remove(met)
    assert not missing, f"{chunk.source.name}: not found: {missing}"
