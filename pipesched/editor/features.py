"""The features of the language server, as functions of the text and a place in it.

Findings come from `verify`; parsing, words and repairs from `fmt`, `explain` and `emit --mend`. Nothing is cached here;
`language` and `formats` cache their results for each text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from pipesched.compile import Options, load
from pipesched.diagnostics import Code, Diagnostic, PipeschedError
from pipesched.editor.bindings import Definition, definition_at, definitions, uses
from pipesched.explain.explain_command import Word, find
from pipesched.formats.readers import PS, checked, reader_of
from pipesched.language.claims import CLAIM_NAMES
from pipesched.language.grammar import grammar
from pipesched.language.parser import parse
from pipesched.model.numbers import Value
from pipesched.model.ops import COMPUTES
from pipesched.render import sizes
from pipesched.support.source import Source, Span
from pipesched.verbs.verify import verify

TRIED = ({"p": 4, "v": 2, "m": 8}, {"p": 4, "v": 2, "m": 16}, {"p": 2, "v": 2, "m": 4}, {"p": 8, "v": 4, "m": 32})
"""The sizes to try in order if none are given; a parameter with a default keeps its default."""
OTHER = 4  # the value of any other parameter without a default
LIMIT = 200_000
"""Largest number of operations that are verified while the user types."""


@dataclass(frozen=True)
class Repair:
    """A tested change to the text, suggested by the remedy of a finding. edits: ranges and their new texts."""

    title: str
    found: Diagnostic
    edits: tuple[tuple[Span, str], ...]


def findings(source: Source, given: Mapping[str, Value]) -> list[Diagnostic]:
    """Return the findings on the text, at the first size that the file accepts."""
    return _verified(source, given)[0]


def _verified(source: Source, given: Mapping[str, Value]) -> tuple[list[Diagnostic], Mapping[str, Value]]:
    """Return the findings and the size at which they were found."""
    first: tuple[list[Diagnostic], Mapping[str, Value]] | None = None
    for size in _sizes(source, given):
        found = list(verify(source, Options(parameters=size, max_ops=LIMIT)).diagnostics)
        first = first or (found, size)
        if all(one.code is not Code.REQUIRE for one in found):
            return found, size
    assert first is not None
    return first


def _sizes(source: Source, given: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
    """Yield the sizes at which to verify a file: the given values, and small values for parameters without one."""
    if reader_of(source) is not PS:
        yield {}
        return
    try:
        declared = checked(source).parameters
    except PipeschedError:
        yield {}
        return
    own = {name: value for name, value in given.items() if name in declared}
    missing = [name for name, x in declared.items() if x.default is None and x.size is None and name not in own]
    for tried in TRIED if missing else TRIED[:1]:
        yield {**own, **{name: tried.get(name, OTHER) for name in missing}}


def meaning(source: Source, offset: int, given: Mapping[str, Value]) -> str | None:
    """Explain the name or word at a place, as Markdown: a name's definition and value, or a word's meaning."""
    words = re.finditer(r"[A-Za-z_][A-Za-z0-9_]*", source.text)
    word = next((one[0] for one in words if one.start() <= offset <= one.end()), "")
    with suppress(PipeschedError):
        if found := definition_at(parse(source), offset):
            return _described(source, found, given)
    with suppress(PipeschedError):
        if word and isinstance(known := find(word), Word):
            return f"**{known.word}**: {known.meaning}"
    return None


def _described(source: Source, found: Definition, given: Mapping[str, Value]) -> str:
    """Return a definition as written, its kind, and its value at the size of the findings."""
    line = source.line(found.name.span.line).strip()
    said = f"```ps\n{line}\n```\n{found.kind} in line {found.name.span.line}"
    with suppress(PipeschedError):
        size = _verified(source, given)[1]
        unit = load(source, Options(parameters=size, max_ops=LIMIT)).unit
        value = None if unit is None else unit.names.get(found.name.id)
        if unit is not None and isinstance(value, int | tuple):
            said += f", {value} at {sizes(unit.schedule.parameters)}"
    return said


def completions(source: Source, offset: int) -> list[tuple[str, str]]:
    """Return completions at a place, each with its kind: visible names, words, operations, names for claims."""
    names: dict[str, str] = {}
    with suppress(PipeschedError):
        names = {x.name.id: x.kind for x in definitions(parse(_until(source, offset))) if x.known_at(offset)}
    names |= dict.fromkeys(filter(str.isalpha, grammar().words.kinds), "word") | {
        op.name: "operation" for op in COMPUTES
    }
    if re.search(r"^\s*claim\b[^\n]*$", source.text[:offset], re.M):
        names |= dict.fromkeys(sorted(CLAIM_NAMES), "in claims")
    return sorted(names.items())


def _until(source: Source, offset: int) -> Source:
    """Return the text, without the line that is being typed if that line keeps it from parsing."""
    try:
        parse(source)
    except PipeschedError:
        begin, line = source.text.rfind("\n", 0, offset) + 1, source.line(source.position(offset)[0])
        return _changed(source, source.span(begin, begin + len(line)), " " * len(line))
    return source


def defined_at(source: Source, offset: int) -> Span | None:
    """Return the definition of the name at a place."""
    with suppress(PipeschedError):
        if found := definition_at(parse(source), offset):
            return found.name.span
    return None


def places(source: Source, offset: int) -> list[Span]:
    """Return the places of the definition and of all uses of the name at an offset."""
    with suppress(PipeschedError):
        file = parse(source)
        if found := definition_at(file, offset):
            return uses(file, found)
    return []


def repairs(source: Source, given: Mapping[str, Value]) -> Iterator[Repair]:
    """Yield the repairs that leave fewer findings; for an order with messages also the repair of `emit --mend`."""
    found = findings(source, given)
    for one in found:
        for text in re.findall(r"(?:did you mean|write) `([^`]+)`", one.help or ""):
            if one.where is not None and len(findings(_changed(source, one.where, text), given)) < len(found):
                yield Repair(f"write `{text}`", one, ((one.where, text),))
    if found and source.name.lower().endswith(".csv"):
        yield from _mended(source, found[0])


def _changed(source: Source, span: Span, text: str) -> Source:
    return replace(source, text=source.text[: span.start] + text + source.text[span.end :])


def _mended(source: Source, found: Diagnostic) -> Iterator[Repair]:
    """Yield the repair of a torch CSV whose order hangs or pairs messages wrongly."""
    from pipesched.mend.mend import Mend
    from pipesched.verbs.emit import emit

    with suppress(PipeschedError):
        messages = load(source, Options()).program is not None
        made = emit(source, Options(owned=(Mend(True),)), "torch-comms" if messages else "torch-csv")
        if made.order is not None:
            title = next(one.message for one in made.report.diagnostics if one.message.startswith("mended: "))
            yield Repair(title, found, ((source.span(0, len(source.text)), "".join(made.pieces())),))
