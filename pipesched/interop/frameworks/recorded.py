"""Write a framework's answer as an order or a torch CSV in which each word knows the line that made it."""

from __future__ import annotations

import re

from pipesched.diagnostics import Label, PipeschedError, fail
from pipesched.formats.in_memory import written as as_text
from pipesched.interop.codes import InteropCode
from pipesched.interop.frameworks.host import Answer
from pipesched.model.torch_versions import TorchVersion, parse_version
from pipesched.support.source import Source

_TOKEN = {".txt": re.compile(r"[^ \n]+"), ".csv": re.compile(r"[^,\n]+")}
_HEAD = re.compile(r"rank [0-9]+: ?")


def written(call: Source, answer: Answer) -> tuple[Source, TorchVersion | None]:
    """Write an answer as a source; return it with the version of torch, None if the version is not one of torch.

    Raises:
        PipeschedError: PS853, the rows are neither an order nor a torch CSV.
    """
    try:
        text = as_text(answer.rows)
    except PipeschedError as error:
        first = error.diagnostics[0]
        raise fail(
            InteropCode.NO_ORDER, first.message, Label(call.span(0, len(call.text)), "it gave this"), help=first.help
        ) from None
    assert text is not None
    try:
        version = parse_version(answer.version)
    except PipeschedError:
        version = None
    return Source(text.name, text.text, _made_at(text, answer)), version


def _made_at(text: Source, answer: Answer) -> dict[int, str]:
    """Map the offset of each word or cell to `file:line` of the code that made it."""
    found: dict[int, str] = {}
    pattern = _TOKEN[text.name[-4:]]
    for rank, row in enumerate(answer.places):
        start = text.line_starts[rank]
        head = _HEAD.match(text.line(rank + 1))
        begin, end = start + (head.end() if head else 0), start + len(text.line(rank + 1))
        written = answer.rows[rank]
        said = written if not isinstance(written, str) else pattern.findall(written)
        given = [place for place, cell in zip(row, said, strict=False) if cell]
        tokens = [token.start() for token in pattern.finditer(text.text, begin, end)]
        if len(given) == len(tokens):
            found |= {at: f"{place[0]}:{place[1]}" for at, place in zip(tokens, given, strict=True) if place}
    return found
