"""``pipesched play``: writes the page that plays the built-in schedules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from pipesched.command import flags, sizes
from pipesched.command.options import OUTPUT
from pipesched.command.terminal import dumps, replace_file
from pipesched.command.values import text
from pipesched.diagnostics import Code, fail
from pipesched.extension import Option

_FOLDER = Option("output", text, "Folder for the page.", "DIR", flags=("-o", "--output"), terminal=True)
_RANKS = Option(
    "p", sizes.read, ("Numbers of ranks on the page [default: nine sizes from 2 to 64]."), "N|A,B|A..B", terminal=True
)
OPTIONS = (_RANKS, *(_FOLDER if option.name == "output" else option for option in OUTPUT))


@click.command
@flags.options("play")
def play(**given: Any) -> int:
    """Write a page that plays the built-in schedules in a browser: sizes, costs, orders to edit, files to drop.

    \b
    pipesched play -o gallery
    python -m http.server --directory gallery      then open http://localhost:8000
    """
    from pipesched.playground.gallery import RANKS, gallery
    from pipesched.playground.pages import pages

    folder = given["output"]
    if folder in (None, "", "-"):
        raise fail(Code.USAGE, "`play` writes a folder", help="name it with -o DIR")
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise fail(Code.USAGE, f"{folder} is a file, and `play` writes a folder", help="choose another with -o DIR")
    played = list(gallery(given["p"] or RANKS))
    size = 0
    for name, page in pages(played):
        path = Path(folder, name)
        _make(path.parent)
        replace_file(str(path), page)
        size += len(page.encode())
    orders = sum(len(x.entries) for x in played)
    found = {
        "ok": True,
        "folder": folder,
        "schedules": sum(not x.refused for x in played),
        "orders": orders,
        "bytes": size,
    }
    with flags.output_of({**given, "output": None}) as out:
        said = f"{folder}: {found['schedules']} schedules, {orders} orders; to see them:\n"
        serve = f"    python -m http.server --directory {folder}\n"
        out.write(dumps(found) + "\n" if out.format == "json" else said + serve)
    return 0


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fail(Code.USAGE, f"cannot write {folder}: {(error.strerror or str(error)).lower()}") from None
