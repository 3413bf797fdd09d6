"""Loads a framework's answer to a call like a file; each word records the line of code that created it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipesched.analysis.communication import ONE_STREAM
from pipesched.common.in_memory import written as as_text
from pipesched.diagnostics import Code, Label, PipeschedError, fail
from pipesched.extension import Extended
from pipesched.formats.readers import Loaded, reader_of
from pipesched.interop.codes import InteropCode
from pipesched.interop.frameworks import host
from pipesched.interop.frameworks.frameworks import Call
from pipesched.interop.frameworks.kept import Keeping
from pipesched.interop.frameworks.recording import Recorded
from pipesched.model.numbers import Value
from pipesched.model.torch_versions import TorchVersion, parse_version
from pipesched.orders.rows import TORCH_CSV
from pipesched.support.foreign import foreign
from pipesched.support.source import Source

_TOKEN = {".txt": re.compile(r"[^ \n]+"), ".csv": re.compile(r"[^,\n]+")}
_HEAD = re.compile(r"rank [0-9]+: ?")
_POSTED = "it computes between posts and waits, so the model is one-stream unless --comm names another"


@dataclass(frozen=True)
class Framework:
    """Options of frameworks. framework_path: a folder of packages, or an environment. framework_time: time limit for
    the framework's process, in seconds.
    """

    framework_path: str | None = None
    framework_time: float = 60


@dataclass(frozen=True)
class Launched:
    """The calls on engines that a framework's code issued, as a file of calls; None if no parts were recorded."""

    source: Source | None = None


def read(
    source: Source,
    *,
    parameters: Mapping[str, Value],
    settings: Mapping[str, str | float],
    max_ops: int,
    owned: tuple[object, ...],
) -> Loaded:
    """Run a framework in a separate process, and load the schedule that it returns.

    Raises:
        PipeschedError: PS850 to PS855 if the framework returns no schedule; other codes as in `answered`.
    """
    assert isinstance(source, Call)
    asked = {**parameters, **settings, "max-ops": max_ops}
    where = Extended(owned=owned).of(Framework)
    answer = host.record(source, asked, path=where.framework_path, limit=where.framework_time)
    return answered(source, answer, parameters, max_ops)


def answered(source: Call, answer: Recorded, parameters: Mapping[str, Value], max_ops: int) -> Loaded:
    """Load the order that a framework returned for a call, with the reader of its format.

    Raises:
        PipeschedError: PS853 if the answer is not an order; other PS8xx codes if that reader raises them.
    """
    text, version = _written(source, answer)
    sizes = {name: parameters[name] for name in ("p", "m") if name in parameters}
    row = reader_of(text)
    given = {"torch_version": version} if row is TORCH_CSV else {}
    named = replace(text, name=source.name)
    try:
        made = row.read.load()(named, parameters=sizes, max_ops=max_ops, **given)
    except PipeschedError as error:
        asked = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        help = f"it was called with {asked}; correct the value it returns"
        found = error.diagnostics
        raise PipeschedError(replace(d, help=help) if d.code is Code.FILE_DISAGREES else d for d in found) from None
    assert isinstance(made, Loaded)
    own = {"p": made.schedule.ranks, "m": made.schedule.microbatches, **parameters}
    schedule = replace(made.schedule, name=source.name, parameters=own).with_program(made.program)
    version = given.get("torch_version")
    comm = str(ONE_STREAM) if answer.later and made.program is not None else None
    notes = tuple(map(foreign, [*answer.notes, *([_POSTED] if comm else [])]))
    owned = (Keeping(answer.kept), *([Launched(_launched(source, answer))] if answer.calls else []))
    return replace(made, schedule=schedule, torch_version=version, notes=notes, owned=owned, comm=comm)


def _launched(call: Call, answer: Recorded) -> Source:
    """Return a file of the calls that the code issued, in which each word is mapped to its line of code."""
    text, made = Source(f"{call.name} (calls)", "\n".join(answer.calls) + "\n"), dict[int, str]()
    for number, places in enumerate(answer.called):
        start, line = text.line_starts[number], text.line(number + 1)
        words = [*_TOKEN[".txt"].finditer(line.partition(": ")[2])] if places else []
        begin = start + len(line) - len(line.partition(": ")[2])
        if len(words) == len(places):
            made |= {begin + at.start(): f"{x[0]}:{x[1]}" for at, x in zip(words, places, strict=True) if x}
    return Source(text.name, text.text, made)


def _written(call: Source, answer: Recorded) -> tuple[Source, TorchVersion | None]:
    """Return an answer as a source, and the version of torch; None if the answer's version is not one of torch.

    Raises:
        PipeschedError: PS853 if the rows are neither an order nor a torch CSV.
    """
    try:
        text = as_text(answer.rows)
    except PipeschedError as error:
        first, here = error.diagnostics[0], Label(call.span(0, len(call.text)), "it returned this")
        raise fail(InteropCode.NO_ORDER, first.message, here, help=first.help) from None
    assert text is not None
    try:
        version = parse_version(answer.version)
    except PipeschedError:
        version = None
    return Source(text.name, text.text, _made_at(text, answer)), version


def _made_at(text: Source, answer: Recorded) -> dict[int, str]:
    """Map the offset of each word or cell to `file:line` of the code that created it."""
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
