"""``pipesched fmt``: the canonical form of .ps files, in place."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import click

from pipesched import render
from pipesched.command import flags, terminal
from pipesched.command.options import OUTPUT
from pipesched.command.terminal import Output
from pipesched.diagnostics import Code, Diagnostic, PipeschedError, exit_status, fail
from pipesched.extension import Option, flag

OPTIONS = (
    Option(
        "check",
        flag,
        ("Write no files; list the files that would change, and exit with status 1 if there are any."),
        terminal=True,
    ),
    Option("diff", flag, "Write no files; show the changes, and exit with status 1 if there are any.", terminal=True),
    *OUTPUT,
)


@click.command
@click.argument("files", type=flags.target, nargs=-1, required=True, metavar="FILES...")
@flags.options("fmt")
def fmt(files: tuple[str, ...], *, check: bool, diff: bool, **given: object) -> int:
    """Rewrite .ps files in their canonical form; comments are kept. - reads stdin and writes stdout."""
    results = [_format(target) for target in files]
    changed = [result.name for result in results if result.changed]
    found = [diagnostic for result in results for diagnostic in result.diagnostics]
    status = max(exit_status(found), int(bool(changed) and (check or diff)))
    with flags.output_of(given) as out:
        if not check and not diff:
            _write(results, out)
        if out.format == "json":
            said = {"ok": status == 0, "changed": changed, "diagnostics": [render.as_json(wrong) for wrong in found]}
            out.line(terminal.dumps(said))
        else:
            _tell(results, out, check=check, diff=diff)
    return status


@dataclass(frozen=True, slots=True)
class Formatted:
    """A file before and after formatting, or the reason why it cannot be formatted."""

    target: str
    name: str
    before: str = ""
    after: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def changed(self) -> bool:
        return self.before != self.after


def _format(target: str) -> Formatted:
    from pipesched.library.inputs import read_path
    from pipesched.lift.printer import format_source

    try:
        if target.lower().endswith((".csv", ".json", ".md", ".py", ".toml", ".yaml", ".yml", ".html")):
            raise fail(Code.USAGE, f"fmt accepts only .ps files, not {target}")
        source = read_path(target)
        return Formatted(target, source.name, source.text, format_source(source))
    except PipeschedError as error:
        return Formatted(target, target, diagnostics=error.diagnostics)


def _write(results: list[Formatted], out: Output) -> None:
    """Overwrite the files with the new text; text from stdin goes to the output even if nothing changed."""
    for result in results:
        if result.target == "-" and out.format != "json":
            out.write(result.after, "data")  # the unchanged text, whatever its comments contain
        elif result.changed and result.target != "-":
            terminal.replace_file(result.target, result.after)


def _tell(results: list[Formatted], out: Output, *, check: bool, diff: bool) -> None:
    """Print names and differences as results; report rewritten files and errors to stderr."""
    for result in results:
        if result.diagnostics:
            terminal.complain(result.diagnostics, out.format, out.color_choice)
        elif result.changed and diff:
            out.write(_difference(result))
        elif result.changed and check:
            out.line(render.clean(result.name))
        elif result.changed and result.target != "-":
            out.complain(f"rewrote {render.clean(result.name)}")


def _difference(result: Formatted) -> str:
    before, after = result.before.splitlines(keepends=True), result.after.splitlines(keepends=True)
    name = render.clean(result.name)
    lines = difflib.unified_diff(before, after, name, name)
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)
