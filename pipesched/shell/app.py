"""The command group, built from the rows of verbs; a command is imported when it is called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import cast

import click

from pipesched.extension import Verb, rows
from pipesched.verbs.rows import ROWS as CORE

_COMPLETE = "_PIPESCHED_COMPLETE"
_EPILOG = """\b
Examples:
  pipesched verify interleaved --p 4 --v 2
  pipesched verify mine.ps --p 2..8 --m 16,32 --mem-cap 6
  pipesched verify schedule.csv --torch-version 2.13 --comm pair-stream
  pipesched show zb_h1 --p 4 --m 8 -o zb_h1.svg
  pipesched explain PS401"""


def verbs() -> dict[str, Verb]:
    """Return all verbs by name, in the order of `list`."""
    return {verb.name: verb for verb in sorted((*CORE, *rows(Verb)), key=lambda verb: verb.place)}


def commands() -> dict[str, click.Command]:
    """Return all commands by name."""
    return {name: cast("click.Command", verb.command.load()) for name, verb in verbs().items()}


class Commands(click.Group):
    """A command group that suggests similar names, and `verify` if a file is given instead of a command."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, grouped by purpose."""
        width = max(map(len, verbs()))
        for title, group in groupby(verbs().values(), key=lambda verb: verb.group):
            with formatter.section(title):
                formatter.write_dl([(f"{verb.name:{width}}", verb.help) for verb in group])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*verbs()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = verbs().get(cmd_name)
        return None if verb is None else cast("click.Command", verb.command.load())

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in verbs() or name.startswith("-") or ctx.resilient_parsing:  # a shell asks for completions
            found = super().resolve_command(ctx, args)
            if found[1] is not None and not ctx.resilient_parsing:
                _require_once(found[1], found[2])
            return found
        from pipesched.shell.mistakes import unknown

        raise unknown(name, args[1:], verbs())


def _require_once(command: click.Command, words: list[str]) -> None:
    """Refuse an option that is given twice (click would use the last value), and stdin as two inputs.

    Raises:
        PipeschedError: PS225.
    """
    try:
        context = click.Context(command, allow_extra_args=command.allow_extra_args)
        read, _, given = command.make_parser(context).parse_args(list(words))
    except click.UsageError:
        return  # reported when the command is made
    once = [max(x.opts, key=len) for x in given if isinstance(x, click.Option) and not (x.multiple or x.is_flag)]
    once += ["-"] * ("--" not in words and _inputs(command, read).count("-"))
    if twice := next((name for at, name in enumerate(once) if name in once[:at]), None):
        from pipesched.shell.mistakes import mistake

        raise mistake(f"{'stdin, `-`,' if twice == '-' else f'option {twice}'} is given twice", "give it once")


def _inputs(command: click.Command, read: Mapping[str, object]) -> list[object]:
    """Return the words of a command line that are not options or their values."""
    found = (read.get(x.name or "") for x in command.params if isinstance(x, click.Argument))
    return [word for each in found for word in (each if isinstance(each, tuple | list) else (each,))]


@click.group(
    cls=Commands,
    epilog=_EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="pipesched", message="%(prog)s %(version)s")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Verify pipeline-parallel training schedules: order, deadlocks, memory, claims."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: list[str]) -> int:
    """Run a command line, without the program's name; return the exit status; never raise for a user's mistake.

    If `_PIPESCHED_COMPLETE` is in the environment, a shell requests completions.
    """
    if asked := os.environ.get(_COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, "pipesched", _COMPLETE, asked)
    try:
        _require_lines(arguments)
        with app.make_context("pipesched", list(arguments)) as context:
            status = app.invoke(context)
            return status if isinstance(status, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except Exception as error:
        from pipesched.shell.mistakes import reported

        return reported(error, arguments)


def _require_lines(arguments: Sequence[str]) -> None:
    """Refuse words with line ends or control characters, except in the command that is to be checked, which is data."""
    behind = arguments.index("--") if arguments[:1] == ["check"] and "--" in arguments else len(arguments)
    if not all(map(str.isprintable, arguments[:behind])):
        from pipesched.shell.mistakes import require_lines

        require_lines(arguments[:behind])
