"""The group of commands, and how a mistake on the command line is reported: with a code, a suggestion and status 2."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import cast

import click

from pipesched.command import terminal
from pipesched.command.flags import as_option
from pipesched.diagnostics import Code, Diagnostic, PipeschedError, exit_status
from pipesched.extension import Verb, rows
from pipesched.interop.frameworks.frameworks import call
from pipesched.support.foreign import foreign
from pipesched.verbs.rows import ROWS as CORE

_COMPLETE = "_PIPESCHED_COMPLETE"
_EPILOG = """\b
Examples:
  pipesched verify interleaved --p 4 --v 2
  pipesched verify mine.ps --p 2..8 --m 16,32 --mem-cap 6
  pipesched verify schedule.csv --torch-version 2.13 --comm pair-stream
  pipesched show zb_h1 --p 4 --m 8 -o zb_h1.svg
  pipesched explain PS401"""

_GONE = {
    "survey": "pipesched verify FRAMEWORK:NAME --p 2..8 --m 4,8",
    "rehearse": "pipesched run FILE --rank R --stages FILE.py:FUNCTION",
    "order": "pipesched emit FILE --target order",
}


def verbs() -> dict[str, Verb]:
    """All verbs by name, as they are listed."""
    return {verb.name: verb for verb in sorted((*CORE, *rows(Verb)), key=lambda verb: verb.place)}


def commands() -> dict[str, click.Command]:
    """All commands by name."""
    return {name: cast("click.Command", verb.command.load()) for name, verb in verbs().items()}


class Commands(click.Group):
    """A group that knows what a stranger types: near misses, and a file where a command belongs."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what they are for."""
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
        if name in verbs() or name.startswith("-") or ctx.resilient_parsing:  # a shell asks, nobody typed
            return super().resolve_command(ctx, args)
        raise mistake(f"no command is called {name!r}", self._meant(name, args[1:]))

    def _meant(self, name: str, others: Sequence[str]) -> str:
        """The command line that was meant, or all commands."""
        from pipesched.library.aliases import known_as
        from pipesched.library.assets import built_in

        if name == "help":
            asked = others[0] if others else ""
            help = "pipesched --help" if not asked else f"pipesched {asked} --help"
            return f"write `{help}`" if asked in ("", *verbs()) else f"write `pipesched explain {asked}`"
        if name in _GONE:
            return f"write `{_GONE[name]}`"
        if near := difflib.get_close_matches(name.lower(), verbs(), n=1):
            return f"did you mean `{near[0]}`?"
        if os.path.exists(name) or name in built_in() or known_as(name) or call(name) or Path(name).suffix:
            return f"did you mean `pipesched verify {name}`?"
        return f"commands are {', '.join(verbs())}"


def mistake(message: str, help: str | None) -> PipeschedError:
    """A mistake on the command line."""
    return PipeschedError([Diagnostic(Code.USAGE, message, help=help)])


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
    """Runs a command line without the name of the program; returns the exit status and never raises for a mistake.

    With `_PIPESCHED_COMPLETE` in the environment a shell asks how a line may go on.
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
    except click.UsageError as error:
        diagnostics: Sequence[Diagnostic] = [_diagnostic(error, arguments)]
    except PipeschedError as error:
        diagnostics = error.diagnostics
    terminal.complain(diagnostics, *_asked(arguments))
    return exit_status(diagnostics)


def _require_lines(arguments: Sequence[str]) -> None:
    """Nothing that is named on the command line ends or steers a line where it is shown; a command to check is data.

    Raises:
        PipeschedError: PS225, a word with such a character.
    """
    behind = arguments.index("--") if arguments[:1] == ["check"] and "--" in arguments else len(arguments)
    for number, word in enumerate(arguments[:behind], 1):
        if at := [character for character, marked in zip(word, foreign(word), strict=True) if character != marked]:
            message = (
                f"word {number} of the command line has the character U+{ord(at[0]):04X}: it ends or steers a line"
            )
            raise mistake(message, "leave it out; a file with such a name must be renamed first")


def _diagnostic(error: click.UsageError, arguments: Sequence[str]) -> Diagnostic:
    """click's complaint in our form."""
    path = error.ctx.command_path if error.ctx else "pipesched"
    shown = f"`{path} --help` shows the options"
    if isinstance(error, click.NoSuchOption):
        help = _option_meant(error, arguments) or shown
        return Diagnostic(Code.USAGE, f"no such option {error.option_name!r}", help=help)
    if isinstance(error, click.BadOptionUsage):
        return Diagnostic(
            Code.USAGE, f"option {error.option_name} needs a value", help=f"write `{error.option_name} X`"
        )
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param else None
    named = re.match("'(.*?)' is not one of", error.message)
    if isinstance(kind, click.Choice) and named:
        near = difflib.get_close_matches(named[1].lower(), [str(name) for name in kind.choices], 1)
        shown = f"did you mean `{near[0]}`?" if near else shown
    message = error.format_message()
    return Diagnostic(Code.USAGE, message[:1].lower() + message[1:].rstrip("."), help=shown)


def _option_meant(error: click.NoSuchOption, arguments: Sequence[str]) -> str | None:
    """The option that was meant: a size under another name, a near miss, or a parameter of the schedule."""
    options = [name for x in (error.ctx.command.params if error.ctx else ()) for name in x.opts]
    name = error.option_name.lstrip("-")
    given = next((i for i, word in enumerate(arguments) if word.split("=")[0] == error.option_name), None)
    following = "" if given is None else [*arguments, ""][given + 1]
    value = "" if given is None else arguments[given].partition("=")[2] or following * (not following.startswith("-"))
    size = as_option(name, value)
    if size.split()[0] in options and not size.startswith("-D"):
        return f"write `{size}`"
    if near := difflib.get_close_matches(f"--{name}", options, 1, 0.7):
        return f"did you mean {near[0]}?"
    known = "-D" in options and name.replace("-", "_") in _parameters(arguments)
    return f"`{name.replace('-', '_')}` is a parameter of the schedule: write `{size}`" if known else None


def _parameters(arguments: Sequence[str]) -> set[str]:
    """The parameters of the schedules that a command line names."""
    from pipesched.library.inputs import read
    from pipesched.verbs.library import parameters_of

    found = set[str]()
    for word in arguments[1:]:
        with contextlib.suppress(PipeschedError):
            found |= set() if word.startswith("-") or call(word) else set(parameters_of(read(word)))
    return found


def _asked(arguments: Sequence[str]) -> tuple[str, str]:
    """The format and the colour that a command line asks for, even one that cannot be read."""
    found = {"--format": "text", "--color": "auto"}
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        if name in found:
            found[name] = value if equals else following
        elif argument == "--json":
            found["--format"] = "json"
    return found["--format"], found["--color"]
