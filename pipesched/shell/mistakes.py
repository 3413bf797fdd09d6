"""Reports mistakes on the command line: code, suggestion and exit status 2. It is imported only when needed."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import click

from pipesched.command import terminal
from pipesched.diagnostics import Code, Diagnostic, PipeschedError, exit_status
from pipesched.explain.schedule_names import as_option
from pipesched.support.foreign import foreign

_GONE = {
    "survey": "pipesched verify FRAMEWORK:NAME --p 2..8 --m 4,8",
    "rehearse": "pipesched run FILE --rank R --stages FILE.py:FUNCTION",
    "order": "pipesched emit FILE --target order",
}


def reported(error: Exception, arguments: Sequence[str]) -> int:
    """Report a mistake on a command line; return the exit status. Other errors are raised again."""
    if isinstance(error, click.UsageError):
        diagnostics: Sequence[Diagnostic] = [_diagnostic(error, arguments)]
    elif isinstance(error, PipeschedError):
        diagnostics = error.diagnostics
    else:
        raise error
    terminal.complain(diagnostics, *_asked(arguments))
    return exit_status(diagnostics)


def require_lines(words: Sequence[str]) -> None:
    """Refuse words that contain a line end or a terminal control character.

    Raises:
        PipeschedError: PS225: a word contains such a character.
    """
    for number, word in enumerate(words, 1):
        if at := [character for character, marked in zip(word, foreign(word), strict=True) if character != marked]:
            found = f"the character U+{ord(at[0]):04X}, which ends a line or controls a terminal"
            message = f"word {number} of the command line contains {found}"
            raise mistake(message, "remove it; rename a file with such a name first")


def unknown(name: str, others: Sequence[str], verbs: Collection[str]) -> PipeschedError:
    """Return the error for an unknown command."""
    return mistake(f"no command is called {name!r}", _meant(name, others, verbs))


def _meant(name: str, others: Sequence[str], verbs: Collection[str]) -> str:
    """Return the command line that was probably intended, or all commands."""
    from pipesched.common.aliases import known_as
    from pipesched.library.assets import built_in
    from pipesched.library.inputs import claimed

    if name == "help":
        asked = others[0] if others else ""
        help = "pipesched --help" if not asked else f"pipesched {asked} --help"
        return f"write `{help}`" if asked in ("", *verbs) else f"write `pipesched explain {asked}`"
    if name in _GONE:
        return f"write `{_GONE[name]}`"
    if near := difflib.get_close_matches(name.lower(), verbs, n=1):
        return f"did you mean `{near[0]}`?"
    if os.path.exists(name) or name in built_in() or known_as(name) or claimed(name) or Path(name).suffix:
        return f"did you mean `pipesched verify {name}`?"
    return f"commands are {', '.join(verbs)}"


def mistake(message: str, help: str) -> PipeschedError:
    """Return an error of the command line."""
    return PipeschedError([Diagnostic(Code.USAGE, message, help=help)])


def _diagnostic(error: click.UsageError, arguments: Sequence[str]) -> Diagnostic:
    """Convert an error of click into a diagnostic."""
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
    """Suggest the intended option: a size under another name, a similar option, or a parameter of the schedule."""
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
    """Return the parameters of the schedules that a command line names."""
    from pipesched.common.sources import parameters_of
    from pipesched.library.inputs import claimed, read

    found = set[str]()
    for word in arguments[1:]:
        with contextlib.suppress(PipeschedError):
            found |= set() if word.startswith("-") or claimed(word) else set(parameters_of(read(word)))
    return found


def _asked(arguments: Sequence[str]) -> tuple[str, str]:
    """Return the format and the colour that a command line requests, even if it cannot be parsed."""
    found = {"--format": "text", "--color": "auto"}
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        if name in found:
            found[name] = value if equals else following
        elif argument == "--json":
            found["--format"] = "json"
    return found["--format"], found["--color"]
