"""``pipesched list`` prints the built-in schedules with their publications, or the file of one schedule."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from pipesched.command import flags
from pipesched.command.terminal import dumps
from pipesched.common.rows import Listing
from pipesched.extension import rows

if TYPE_CHECKING:
    from pipesched.explain.catalogue import Entry

_HELD = "\0"  # a blank that does not end a line
_WIDTH = 120  # characters of a line, unless a terminal gives another width


@click.command("list")
@click.argument("name", required=False, type=flags.target)
@flags.options("list")
def list_schedules(name: str | None, **given: object) -> int:
    """Show the built-in schedules with their names, publications and other names; the frameworks that can generate
    schedules; and the transformers for --model. With a NAME, show the file of that schedule or transformer, for example
    as a starting point for your own.
    """
    from pipesched.explain.catalogue import entries

    known, others = entries(), rows(Listing)
    asked = None if name is None else _named(name, known, others)
    with flags.output_of(given) as out:
        if asked is not None:
            entry, text = asked
            out.write(dumps({"ok": True, **entry, "source": text}) + "\n" if out.format == "json" else text)
        elif out.format == "json":
            schedules = [entry.to_json() for entry in sorted(known, key=lambda entry: entry.name)]
            added = {row.key: row.entries.load()() for row in others}
            out.line(dumps({"ok": True, "schedules": schedules, **added}))
        else:
            for line in (*_lines(known, out.width or _WIDTH), *(line for row in others for line in row.lines.load()())):
                out.line(line)
    return 0


def _named(name: str, known: Sequence[Entry], others: Iterable[Listing]) -> tuple[Mapping[str, object], str]:
    """Return the entry with a name, or with an alias of a schedule, and the text of its file.

    Raises:
        PipeschedError: PS810 if nothing has that name.
    """
    from pipesched.library.inputs import library

    for row in others:
        if row.source is not None and (found := row.source.load()(name)) is not None:
            return next(entry for entry in row.entries.load()() if entry["name"] == name), found.text
    found = library(name)
    return next(entry.to_json() for entry in known if f"{entry.name}.ps" == found.name), found.text


def _lines(known: Sequence[Entry], width: int) -> Iterator[str]:
    """Yield the schedules by group."""
    wide = max((len(entry.name) for entry in known), default=0)
    for group, entries in groupby(known, key=lambda entry: entry.group):
        yield f"{group}:"
        for entry in entries:
            whole = ", ".join(name.replace(" ", _HELD) for name in entry.also)
            texts = [entry.documentation.partition(";")[0], *([f"also {whole}"] if whole else [])]
            left = max(40, width - wide - 4)
            lines = [line for text in texts for line in textwrap.wrap(text, left, break_on_hyphens=False)]
            for name, line in zip([entry.name, *[""] * len(lines)], lines, strict=False):
                yield f"  {name:<{wide}}  {line.replace(_HELD, ' ')}"
        yield ""
