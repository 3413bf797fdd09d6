"""``pipesched list``: the schedules that come with us, each with where it was published; of one its file."""

from __future__ import annotations

import textwrap

import click

from pipesched.command import flags
from pipesched.command.terminal import dumps

_HELD = "\0"  # a blank at which no line ends
_WIDTH = 120  # of a line, where no terminal says otherwise


@click.command("list")
@click.argument("name", required=False, type=flags.target)
@flags.options("list")
def list_schedules(name: str | None, **given: object) -> int:
    """Show the built-in schedules: a name that `verify` and `order` take, where it was published, and what others
    call it; the frameworks whose own code gives schedules; and the transformers that --model takes. With a NAME:
    the file of that schedule or transformer, to read or to begin your own with.
    """
    from pipesched.interop.frameworks.frameworks import FRAMEWORKS
    from pipesched.library.inputs import library
    from pipesched.planning.transformer.model_file import built_in
    from pipesched.planning.transformer.model_file import source as transformer_file
    from pipesched.verbs.catalogue import GROUPS, entries
    from pipesched.verbs.library import models

    known, rows = entries(), FRAMEWORKS.values()
    if name is not None:
        transformer = name in built_in()
        source = transformer_file(name) if transformer else library(name)
        with flags.output_of(given) as out:
            if out.format == "json":
                own = models() if transformer else [entry.to_json() for entry in known]
                (found,) = (one for one in own if one["name"] == source.name.rpartition(".")[0])
                out.line(dumps({"ok": True, **found, "source": source.text}))
            else:
                out.write(source.text)
        return 0
    with flags.output_of(given) as out:
        if out.format == "json":
            frameworks = [{"name": x.name, "title": x.title, "schedules": x.names, "tried": x.tried} for x in rows]
            schedules = [entry.to_json() for entry in sorted(known, key=lambda entry: entry.name)]
            found = {"schedules": schedules, "frameworks": frameworks, "models": models()}
            out.line(dumps({"ok": True, **found}))
            return 0
        width = max((len(entry.name) for entry in known), default=0)
        for group in (group for group in GROUPS if any(entry.group == group for entry in known)):
            out.line(f"{group}:")
            for entry in (entry for entry in known if entry.group == group):
                whole = ", ".join(name.replace(" ", _HELD) for name in entry.also)
                texts = [entry.documentation.partition(";")[0], *([f"also {whole}"] if whole else [])]
                width_left = max(40, (out.width or _WIDTH) - width - 4)
                lines = [line for text in texts for line in textwrap.wrap(text, width_left, break_on_hyphens=False)]
                for name, line in zip([entry.name, *[""] * len(lines)], lines, strict=False):
                    out.line(f"  {name:<{width}}  {line.replace(_HELD, ' ')}")
            out.line("")
        for row in rows:
            out.line(f"{row.name}:NAME  {row.title}")
            out.line(f"    {', '.join(row.names)}")
        out.line("\n--model NAME, billions of parameters:")
        listed = models()
        width = max(len(str(model["name"])) for model in listed)
        for model in listed:
            said = textwrap.shorten(str(model["source"]), _WIDTH - width, placeholder=" …")
            out.line(f"  {model['name']:<{width}}  {float(str(model['parameters'])) / 1e9:6.1f}  {said}")
    return 0
