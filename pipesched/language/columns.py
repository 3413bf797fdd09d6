"""Lines whose parts stand below one another where they are neighbours.

repeat warmup     { F }                     route down: stage s in 0 .. p on rank s          for ...
repeat m - warmup { F  B }  # steady        route up:   stage s in 0 .. p on rank p - 1 - s  for ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass
class Line:
    """A line to be: its parts, one blank apart at least, and the comment at its end.

    kind: neighbours of the same kind and indentation have their parts aligned; "" for none.
    """

    indent: int
    blank_before: bool
    kind: str = ""
    parts: list[str] = field(default_factory=lambda: [""])
    comment: str = ""

    @property
    def code(self) -> str:
        return " " * self.indent + " ".join(self.parts)

    @property
    def width(self) -> int:
        return len(self.code)


def rendered(lines: list[Line], width: int) -> Iterator[str]:
    """The lines as text, aligned where that keeps them within `width`."""
    for run in _runs(lines, lambda line: line.kind):
        _align_parts(run, width)
    comments = {id(line): len(line.code) for line in lines}
    for run in _runs(lines, lambda line: "#" if line.comment and "\n" not in line.code else ""):
        comments |= dict.fromkeys(map(id, run), max(line.width for line in run))
    for line in lines:
        if line.blank_before:
            yield ""
        yield f"{line.code.ljust(comments[id(line)])}  {line.comment}" if line.comment else line.code


def _runs(lines: list[Line], kind: Callable[[Line], str]) -> Iterator[list[Line]]:
    """Neighbours of one kind and one indentation, with no blank line between."""
    run: list[Line] = []
    for line in lines:
        if run and (line.blank_before or kind(line) != kind(run[0]) or line.indent != run[0].indent):
            yield run
            run = []
        if kind(line):
            run.append(line)
    if run:
        yield run


def _align_parts(run: list[Line], width: int) -> None:
    written = [list(line.parts) for line in run]
    for column in range(max(len(line.parts) for line in run) - 1):
        having = [line for line in run if len(line.parts) > column + 1]
        widest = max(len(line.parts[column]) for line in having)
        for line in having:
            line.parts[column] = line.parts[column].ljust(widest)
    if any(line.width > width for line in run):
        for line, parts in zip(run, written, strict=True):
            line.parts = parts
