"""``pipesched explain PS401``: one page a code, offline."""

from __future__ import annotations

import difflib
from typing import Any

import click

from pipesched.cli import options
from pipesched.cli.terminal import Output, dumps
from pipesched.diagnostics import Code, fail


@click.command(short_help="Explain a diagnostic code, or list them all.")
@click.argument("code", required=False)
@options.output_options
def explain(code: str | None, **given: Any) -> int:
    """Explain a diagnostic code such as PS401, or a name such as deadlock; without one, list them all."""
    with options.output_of(given) as out:
        if code is None:
            _index(out)
        else:
            _page(find(code), out)
    return 0


def _index(out: Output) -> None:
    titles = {str(code): _title(page(code)) for code in Code}
    if out.format == "json":
        out.line(dumps({"ok": True, "codes": [{"code": code, "title": title} for code, title in titles.items()]}))
    else:
        out.line("\n".join(f"{code}  {title}" for code, title in titles.items()))


def _page(code: Code, out: Output) -> None:
    text = page(code)
    if out.format == "json":
        told = {"code": str(code), "title": _title(text), "status": code.status, "text": text}
        out.line(dumps({"ok": True, **told}))
    else:
        out.write(text)


def find(word: str) -> Code:
    """The code of a number, in any case, or of a name.

    Raises:
        PipeschedError: PS225, no such code.
    """
    known = {str(code).lower(): code for code in Code} | {slug(code): code for code in Code}
    asked = word.strip().lower().replace("_", "-")
    if asked.isdigit():
        asked = f"ps{asked}"
    if asked in known:
        return known[asked]
    near = difflib.get_close_matches(asked, known, n=1)
    hint = f"did you mean {known[near[0]]} ({slug(known[near[0]])})?" if near else "`pipesched explain` lists them"
    raise fail(Code.USAGE, f"no code is called {word!r}", help=hint)


def slug(code: Code) -> str:
    """The name of a code as people type it: ``too-many-operations``."""
    return code.name.lower().replace("_", "-")


def page(code: Code) -> str:
    """The page of a code, as Markdown, and how a command ends that finds it."""
    from importlib.resources import files

    text = files("pipesched").joinpath("explain", f"{code}.md").read_text("utf-8")
    return f"{text}\nExit status {code.status}.\n"


def _title(text: str) -> str:
    """The first heading without its code: ``# PS401: deadlock`` gives ``deadlock``."""
    return text.split("\n", 1)[0].partition(": ")[2]
