"""``pipesched list``: the schedules that come with us, each with its source."""

from __future__ import annotations

from typing import Any

import click

from pipesched.cli import flags
from pipesched.cli.terminal import dumps


@click.command("list", short_help="Show the built-in schedules.")
@flags.options("list")
def list_schedules(**given: Any) -> int:
    """Show the built-in schedules: a name that `verify` and `order` take, and where it was published;
    and the frameworks whose own code gives schedules.
    """
    from pipesched.frameworks.frameworks import FRAMEWORKS
    from pipesched.verbs.library import titles

    entries, rows = titles(), FRAMEWORKS.values()
    width = max((len(name) for name, _ in entries), default=0)
    with flags.output_of(given) as out:
        if out.format == "json":
            schedules = [{"name": n, "documentation": d} for n, d in entries]
            frameworks = [{"name": x.name, "title": x.title, "schedules": x.names, "tried": x.tried} for x in rows]
            out.line(dumps({"ok": True, "schedules": schedules, "frameworks": frameworks}))
            return 0
        for name, documentation in entries:
            out.line(f"{name:<{width}}  {documentation}".rstrip())
        out.line("")
        for row in rows:
            out.line(f"{row.name}:NAME  {row.title}")
            out.line(f"    {', '.join(row.names)}")
    return 0
