"""Formats a diagnostic for people and tools: text, one line, a GitHub annotation, or JSON, all with the same content.

    error[PS401]: deadlock: ranks 0 and 1 wait for each other     the fact
     --> mine.csv:1:6                                             where
      |
    1 | ...,0SEND_F1,0RECV_B0,...                                 the source, cut around the place
      |     ^^^^^^^^ rank 0, step 9: waits until …                what happens there
     ::: mine.csv:2:6                                             further places
      |
    2 | ...,1SEND_B0,1RECV_F1,...
      |     -------- rank 1, step 6: waits until …
      = holds under: async;  fails under: strict                  what proves it
      = help: receive F1 on rank 1 before sending B0              the remedy

A file's contents are escaped (`safe`); tabs and wide characters keep the markers aligned.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipesched.diagnostics import Diagnostic, Label
from pipesched.support.record import Record
from pipesched.support.safe import safe
from pipesched.support.source import Span

_ENTRIES = 6  # most entries of a list that a title shows
_ASSUMED = 3  # most assumptions of a text

_WIDTH = 100  # most characters shown of a source line
_LEAD = 24  # characters before the label
_SNAP = 16  # a cut moves at most this far to a separator
_TAB = "    "
_STYLES = {
    "error": "1;31",
    "warning": "1;33",
    "unjudged": "1;33",
    "ok": "1;32",
    "bold": "1",
    "frame": "1;34",
    "help": "1;36",
}
_ASCII = str.maketrans({"…": "...", "→": "->", "×": "x", "−": "-", "–": "-", "—": "-", "≤": "<=", "≥": ">=", "·": "*"})


def paint(text: str, style: str, color: bool) -> str:
    """Return the text styled with ANSI codes (error, warning, ok, bold, frame, help), or unchanged without colour."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if color and text else text


def plain(text: str) -> str:
    """Return the text in ASCII; every character that has no substitute becomes ``?``."""
    return text.replace(" · ", ", ").translate(_ASCII).encode("ascii", "replace").decode("ascii")


def text(diagnostic: Diagnostic, *, color: bool = False) -> str:
    """Return the diagnostic with its places, drawn as above, without a final newline."""
    blocks = list(_blocks([(label, label.span) for label in diagnostic.labels if label.span is not None]))
    gutter = max((len(str(block.line)) for block in blocks), default=1)
    kind = paint(f"{diagnostic.severity}[{diagnostic.code}]", diagnostic.severity, color)
    lines = [kind + paint(f": {clean(diagnostic.message)}", "bold", color)]
    for number, block in enumerate(blocks):
        lines += _block(block, gutter, diagnostic.severity, first=number == 0, color=color)
    lines += _facts(diagnostic, gutter, color)
    return "\n".join(line.rstrip() for line in lines)


def concise(diagnostic: Diagnostic, source: str | None = None) -> str:
    """Return ``file:line:column: error[PS401]: message``; `source` names the file if no label has a place."""
    span = _where(diagnostic)
    place = str(span) if span is not None else source
    head = f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}"
    return clean(f"{place}: {head}" if place else head)


def github(diagnostic: Diagnostic, source: str | None = None) -> str:
    """Return a GitHub Actions annotation: ``::error file=…,line=…,col=…,title=PS401::message``."""
    span = _where(diagnostic)
    fields = {"file": span.source.name if span is not None else source or ""}
    if span is not None:
        fields |= {"line": str(span.line), "col": str(span.column)}
    fields["title"] = str(diagnostic.code)
    properties = ",".join(f"{name}={safe(value, 'property')}" for name, value in fields.items() if value)
    kind = "error" if diagnostic.severity == "error" else "warning"
    return f"::{kind} {properties}::{safe(_story(diagnostic), 'annotation')}"


def as_json(diagnostic: Diagnostic) -> dict[str, object]:
    """Return the diagnostic as JSON values: code, severity, message, labels, notes, help."""
    return {
        "code": str(diagnostic.code),
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "labels": [_label_json(label) for label in diagnostic.labels],
        "notes": list(diagnostic.notes),
        "help": diagnostic.help,
    }


def tally(diagnostics: Iterable[Diagnostic]) -> str:
    """Return ``2 errors, 1 warning``; empty if there is nothing to count."""
    severities = [diagnostic.severity for diagnostic in diagnostics]
    counts = [(kind, severities.count(kind)) for kind in ("error", "warning")]
    return ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in counts if n)


def assumptions(said: Sequence[str], *, verbose: bool) -> list[str]:
    """Return a line for each assumption; if there are more than three, the first three and how to see the rest."""
    lines = [f"assumed: {one}" for one in (said if verbose else said[:_ASSUMED])]
    more = len(said) - len(lines)
    return [*lines, *([f"{more} more assumption{'s' * (more > 1)}: --verbose"] if more else [])]


def clean(message: str) -> str:
    """Return the text as one line without control characters."""
    return safe(message, "line")


def size(value: object) -> str:
    """Return a parameter for a title; a long list shows its ends, ``4,3,7,2,1,…,9``."""
    if not isinstance(value, tuple):
        return str(value)
    parts = [str(x) for x in value]
    return ",".join(parts if len(parts) <= _ENTRIES else [*parts[: _ENTRIES - 1], "…", parts[-1]])


def sizes(parameters: Mapping[str, object]) -> str:
    """Return the parameters in one line: ``p=4 m=8``."""
    return clean(" ".join(f"{name}={size(value)}" for name, value in parameters.items()))


class _Block(Record):
    """Consecutive labels on one source line, with columns counted from 0, that fit into one excerpt of the line."""

    span: Span
    line: int
    text: str
    labels: list[tuple[Label, int, int]]


def _blocks(placed: Sequence[tuple[Label, Span]]) -> Iterator[_Block]:
    """Yield the places in order; adjacent places on the same line share an excerpt."""
    block: _Block | None = None
    for label, span in placed:
        line, column = span.source.position(span.start)
        same = block if block and block.span.source is span.source and block.line == line else None
        source = same.text if same else span.source.line(line)
        start = min(column - 1, len(source))
        end = max(start + 1, min(start + span.end - span.start, len(source)))
        if same and _fits(same, start, end):
            same.labels.append((label, start, end))
            continue
        if block:
            yield block
        block = _Block(span, line, source, [(label, start, end)])
    if block:
        yield block


def _fits(block: _Block, start: int, end: int) -> bool:
    """Return True if the block's excerpt can also contain these columns."""
    if len(block.text) <= _WIDTH:
        return True
    left = min(start, *(at for _, at, _ in block.labels))
    right = max(end, *(to for _, _, to in block.labels))
    return right - left <= _WIDTH - _LEAD - _SNAP


def _cut(block: _Block) -> tuple[int, int]:
    """Return the columns to show: all of a short line, else an excerpt around the labels, cut at nearby separators."""
    line, start, end = block.text, min(a for _, a, _ in block.labels), max(b for _, _, b in block.labels)
    if len(line) <= _WIDTH:
        return 0, len(line)
    left = max(0, min(start - _LEAD, len(line) - _WIDTH))
    right = min(len(line), left + _WIDTH)
    if left > 0:
        left = next((i for i in range(left, min(left + _SNAP, start)) if line[i] in ", "), left)
    if right < len(line):
        right = next((i + 1 for i in range(right - 1, max(right - _SNAP, end - 1), -1) if line[i] in ", "), right)
    return left, right


def _block(block: _Block, gutter: int, severity: str, *, first: bool, color: bool) -> list[str]:
    """Return the place, the source line, and a line of marks for each label."""
    left, right = _cut(block)
    head, tail = "..." if left else "", "..." if right < len(block.text) else ""
    shown = head + "".join(map(_cell, block.text[left:right])) + tail
    bar = " " * (gutter + 1) + paint("|", "frame", color)
    arrow = " " * gutter + paint("-->" if first else ":::", "frame", color)
    line_number = paint(f"{block.line:>{gutter}} |", "frame", color)
    lines = [f"{arrow} {clean(str(block.span))}", bar, f"{line_number} {shown}"]
    for number, (label, start, end) in enumerate(block.labels):
        primary = first and number == 0
        indent = " " * (len(head) + columns(block.text[left:start]))
        marks = ("^" if primary else "-") * max(1, columns(block.text[start : min(end, right)]))
        marked = paint(f"{marks} {clean(label.message)}".rstrip(), severity if primary else "frame", color)
        lines.append(f"{bar} {indent}{marked}")
    return lines


def _facts(diagnostic: Diagnostic, gutter: int, color: bool) -> Iterator[str]:
    """Yield labels without a place, notes and help, each after a ``=``; further lines of a note are under its first."""
    sign = " " * (gutter + 1) + paint("=", "frame", color)
    facts = [("", label.message) for label in diagnostic.labels if label.span is None]
    facts += [("", note) for note in diagnostic.notes]
    facts += [] if diagnostic.help is None else [("help: ", diagnostic.help)]
    for word, fact in facts:
        first, *rest = fact.split("\n")
        yield f"{sign} {paint(word[:-1], 'help', color)}{word[-1:]}{clean(first)}"
        yield from (" " * (gutter + 3 + len(word)) + clean(line) for line in rest)


def _cell(character: str) -> str:
    """Return a character of a source line as it is displayed."""
    return _TAB if character == "\t" else clean(character)


def columns(characters: str) -> int:
    """Return the number of terminal columns that the characters take."""
    if characters.isascii():
        return len(characters) + characters.count("\t") * (len(_TAB) - 1)
    return sum(map(_width, characters))


def _width(character: str) -> int:
    if character == "\t":
        return len(_TAB)
    if unicodedata.category(clean(character)) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _where(diagnostic: Diagnostic) -> Span | None:
    """Return the first place that any label has."""
    return next((label.span for label in diagnostic.labels if label.span is not None), None)


def _label_json(label: Label) -> dict[str, object]:
    if label.span is None:
        return {"file": None, "line": None, "column": None, "message": label.message}
    line, column = label.span.source.position(label.span.start)
    return {"file": label.span.source.name, "line": line, "column": column, "message": label.message}


def _story(diagnostic: Diagnostic) -> str:
    """Return all parts of a diagnostic, one per line, for formats without drawings."""
    labels = [f"{label.span}: {label.message}" if label.span else label.message for label in diagnostic.labels]
    help_line = [] if diagnostic.help is None else [f"help: {diagnostic.help}"]
    return "\n".join([diagnostic.message, *labels, *diagnostic.notes, *help_line])
