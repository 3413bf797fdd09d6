"""The form of an ``-o`` file: its extension selects the form if no option does; a contradictory extension is an error.

    pipesched optimize -o best.ps       the schedule          pipesched verify 1f1b -o x.json           JSON
    pipesched optimize -o best.json     the answer            pipesched verify 1f1b --json -o x.csv     refused

A name whose extension selects no form, such as ``-o result``, is allowed with every form.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias

import click
from click.core import ParameterSource

from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.extension import TEXTS, Format, Verb, rows
from pipesched.formats.targets import targets

Forms: TypeAlias = Mapping[str, tuple[str, ...]]
"""The output forms of a verb, each with its file name extensions."""

OWN: Mapping[str, Forms] = {
    "verify": {**TEXTS, **{row.name: (row.ending,) for row in rows(Format)}},
    "emit": {row.name: (row.ending,) for row in targets().values()},
    **{verb.name: verb.forms() if callable(verb.forms) else verb.forms for verb in rows(Verb) if verb.forms},
}
"""The forms of each verb; the other verbs write text or JSON."""
KNOWN = frozenset(ending for forms in (TEXTS, *OWN.values()) for endings in forms.values() for ending in endings)


def form(path: str | None, asked: str | None, default: str, forms: Forms | None = None) -> str:
    """Return the form of the verb's output file: the requested form, the one that the extension implies, or the
    default. forms: used instead of the verb's own forms.

    Raises:
        PipeschedError: PS225: the extension contradicts the request, or the verb does not write such files.
    """
    verb = click.get_current_context().command.name or ""
    made, ending = forms or OWN.get(verb, TEXTS), os.path.splitext(path or "")[1].lower()
    if ending not in KNOWN:
        return asked or default
    named = next((name for name, endings in made.items() if ending in endings), None)
    if asked is None and named is not None:
        return default if ending in made.get(default, ()) else named
    if asked is not None and ending in made.get(asked, ()):
        return asked
    raise _unfit(str(path), asked, verb, made, named, bool(forms))


def _unfit(path: str, asked: str | None, verb: str, made: Forms, named: str | None, here: bool) -> PipeschedError:
    """Return the error PS225. named: the form of the extension; here: whether other options allow other forms."""
    stem, ending = os.path.splitext(path)
    if asked is None:
        right = dict.fromkeys(f"{stem}{endings[0]}" for endings in made.values())
        message = f"cannot write {path}: `{verb}` does not write {ending.lower()} files{' here' * here}"
        return fail(Code.USAGE, message, help=f"name it {' or '.join(right)}")
    flag = "--json" if asked == "json" else f"--{'target' if verb == 'emit' else 'format'} {asked}"
    help = f"name it {stem}{made[asked][0]}" + f", or leave out {flag}" * (named is not None)
    return fail(Code.USAGE, f"cannot write {path}: its extension {ending.lower()} contradicts {flag}", help=help)


def given(option: str) -> bool:
    """Return True if an option is given on the command line."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE
