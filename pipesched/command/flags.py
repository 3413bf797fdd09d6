"""Makes click options from the rows of `command.options`, and reads sizes and files on a command line.

--p 4        --p 4,8,16        --p 2..8 (both ends)        -D name=value, likewise
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

import click

from pipesched.command import endings
from pipesched.command.options import Given, compile_options, of, reader
from pipesched.command.sizes import SIZES, Several, one
from pipesched.command.terminal import Output
from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.extension import Aliases, Names, Option, explained, flag, rows
from pipesched.model.numbers import require_counts

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from pipesched.compile import Options

    ParamType = click.ParamType[object]
else:
    ParamType = click.ParamType  # generic since click 8.4

Decorated = TypeVar("Decorated", bound=Callable[..., object])


class _Reader(ParamType):
    """The click type of an option, made from the option's reader."""

    name = "text"

    def __init__(self, read: Callable[[str], object]) -> None:
        self.read = read

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> object:
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")] if "FILE" in (param.metavar or "") else []


class _Target(_Reader):
    """The click type of a file or of a library schedule's name; a shell completes both."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        from pipesched.library.assets import built_in

        others = [name for row in rows(Names) for name in row.all.load()()]
        names = [name for name in (*built_in(), *others) if name.startswith(incomplete)]
        return [CompletionItem(incomplete, type="file"), *map(CompletionItem, names)]


def options(command: str) -> Callable[[Decorated], Decorated]:
    """Return all options of a command, in the order of its rows."""

    def decorate(function: Decorated) -> Decorated:
        for option in reversed(of(command)):
            function = _made(option)(function)
        return function

    return decorate


def _made(option: Option) -> Callable[[Decorated], Decorated]:
    names = (option.name, *(option.flags or ("--" + option.name.replace("_", "-"),)))
    default = None if option.default is False or option.many else option.default
    if (option.typed or option.read) is flag:
        return click.option(*names, is_flag=True, default=bool(default), flag_value=not default, help=option.help)
    return click.option(
        *names,
        type=click.Choice(option.choices)
        if option.choices
        else _Reader(lambda given: reader(option, typed=True)(given)),
        default=default,
        show_default=default is not None and "[default" not in (option.help or ""),
        multiple=option.many,
        metavar=option.metavar,
        help=option.help,
    )


def output_of(given: Given, forms: endings.Forms | None = None) -> AbstractContextManager[Output]:
    """Return the output for results, in the form given by an option or by the file's name. forms: used instead of the
    verb's own forms.

    Raises:
        PipeschedError: PS225: the option and the file name contradict each other.
    """
    asked = "json" if given["json"] else given["format"] if endings.given("format") else None
    form = endings.form(given["output"], asked, given["format"], forms)
    verbose = bool(given.get("verbose"))
    return Output(form, given["color"], given["output"], given.get("digits"), verbose).open()


def _read_target(text: str) -> str:
    """Check the name of a file or a schedule; report on stderr which schedule an alias means.

    Raises:
        PipeschedError: if a hint recognizes something else, such as a size.
    """
    from pipesched.library.assets import built_in
    from pipesched.library.inputs import claimed, known_as

    if os.path.exists(text) or text in built_in() or claimed(text) is not None:
        return text
    if known_as(text) is None and (wrong := explained("target", (), text)):
        raise PipeschedError(wrong)
    for said in filter(None, (row.said.load()(text) for row in rows(Aliases))):
        click.echo(said, err=True)
    return text


target = _Target(_read_target)


def grid(given: Given) -> dict[str, Several]:
    """Return the given parameters, each with its values.

    Raises:
        PipeschedError: PS225: a parameter is given twice, or a count is below 1.
    """
    found = {name: given[name] for name in SIZES if given[name] is not None}
    for name, size in given["definitions"]:
        if not isinstance(size, tuple):
            continue
        if name in found and not all(isinstance(x, tuple) for x in (*found[name], *size)):
            help = f"for several lists, repeat `-D {name}=@FILE`" if name not in SIZES else None
            raise fail(Code.USAGE, f"parameter {name} is given twice", help=help)
        found[name] = (*found.get(name, ()), *size)
    require_counts((name, value) for name, size in found.items() for value in size)
    return found


def asked(command: str, given: Given) -> Options:
    """Return the options for examining a file, for a command that takes one size at a time.

    Raises:
        PipeschedError: PS225: a parameter has several values.
    """
    return compile_options(command, given, one(command, grid(given)))
