"""Escapes text from files, names and arguments for each output form, so that it is displayed and never interpreted.

    form         output                     replaced or escaped
    line         one line for people        control characters, line ends, marks of direction
    file         contents of a file         characters that `foreign` has marked
    data         output for programs        control characters, except line ends, tabs and our own colours
    terminal     output for people          as data, and commands of CI systems: ``::add-mask::…``, ``##[group]…``
    commands     output for GitHub          as terminal, except our ``::error …::`` and ``::warning …::``
    annotation   GitHub's ``::error …::``   as line, and %; in its properties also : and ,
    text         text that is escaped later control characters and marks of direction, but not line ends
    xml          SVG, HTML, GraphML         as text, and & < > " '
    dot          names in Graphviz          as line, and \\ and a leading <
    json         whole documents            as text, by escapes, so that a reader gets the characters themselves
    ascii-json   whole documents            as json, and everything that is not ASCII

Ordinary text in any script does not change, including joiners and wide characters. Each form is one row of `FORMS`, and
is applied where the output is made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Literal, TypeAlias

from pipesched.support.foreign import SHADOWS, among, real

Form: TypeAlias = Literal[
    "line", "file", "data", "terminal", "commands", "annotation", "property", "xml", "text", "dot", "json", "ascii-json"
]

_CONTROLS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # C0 but for tab and line ends, DEL, C1
_TURNING = r"\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # marks of direction, invisible signs, ends of lines
_HALVES = r"\ud800-\udfff"
_SHADOWS = among(SHADOWS)
_NONE = r"\ufff9-\ufffb\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e007f"  # no characters, tags
_REPLACED = "�"

STEERING = re.compile(rf"[{_CONTROLS}\u202a-\u202e\u2066-\u2069]")
"""The characters that our own texts never contain, even in comments: they control a terminal or reorder a line."""

_DANGEROUS = re.compile(rf"[{_CONTROLS}\r{_TURNING}{_HALVES}{_NONE}{_SHADOWS}]")
_NOT_IN_A_LINE = re.compile(rf"[{_CONTROLS}\t\n\r{_TURNING}{_HALVES}{_NONE}{_SHADOWS}]")
_NOT_IN_JSON = re.compile(rf"[\x7f-\x9f{_TURNING}{_HALVES}{_NONE}{_SHADOWS}]")
_COLOUR_OR_DANGER = re.compile(rf"(\x1b\[[0-9;]*m)|[{_CONTROLS}\u202a-\u202e\u2066-\u2069{_HALVES}{_SHADOWS}]|\r(?!\n)")
_MARKED = re.compile(f"[{_SHADOWS}]")
# GitHub's runner obeys `::name …::` behind blanks and `##[name]` anywhere in a line (actions/runner, ActionCommand.cs),
# Azure's obeys `##vso[name]`. A line of ours that begins with `:::` is a place in a drawing.
_COMMAND = re.compile(r"^([^\S\n]*):(?=:(?!: ))|#(?=#(?:\[|vso\[))", re.M)
_NOT_OURS = re.compile(rf"(?!^::(?:error|warning) )(?:{_COMMAND.pattern})", re.M)


def line(text: str) -> str:
    """Return the text for one line of a terminal; every character that cannot be shown becomes a mark."""
    return text if text.isascii() and text.isprintable() else _NOT_IN_A_LINE.sub(_REPLACED, text)


def _harmless(text: str, command: re.Pattern[str]) -> str:
    """Return the text for a terminal or a log, as the last check before it is written."""
    shown = _data(text)
    return command.sub(rf"\1{_REPLACED}", shown) if "::" in shown or "##" in shown else shown


def _data(text: str) -> str:
    """Return the text with line ends, tabs and colours kept, and other control characters replaced."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return _COLOUR_OR_DANGER.sub(lambda found: found[1] or _REPLACED, text)


def _annotation(text: str) -> str:
    return "%0A".join(line(part).replace("%", "%25") for part in text.split("\n"))


def _text(text: str) -> str:
    return _DANGEROUS.sub(_REPLACED, text)


def _dot(text: str) -> str:
    """Return the text for Graphviz, which adds quotes: a final backslash would escape one, and <…> would be markup."""
    shown = line(text).replace("\\", "\\\\")
    return f" {shown}" if shown.startswith("<") else shown


def _json(text: str) -> str:
    """Escape a JSON document, in which only strings contain non-ASCII characters."""
    made = text if text.isascii() and "\x7f" not in text else _NOT_IN_JSON.sub(_escaped, text)
    return made.replace("##", r"#\u0023") if "##" in made else made


def _ascii_json(text: str) -> str:
    made = _json(text)
    return made if made.isascii() else re.sub(r"[^\x00-\x7e]", _escaped, made)


def _escaped(found: re.Match[str]) -> str:
    character = real(found[0])
    return r"\ufffd" if "\ud800" <= character <= "\udfff" else json.dumps(character)[1:-1]


_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
FORMS: dict[Form, Callable[[str], str]] = {
    "line": line,
    "file": lambda text: text if text.isascii() else _MARKED.sub(_REPLACED, text),
    "data": _data,
    "terminal": lambda text: _harmless(text, _COMMAND),
    "commands": lambda text: _harmless(text, _NOT_OURS),
    "annotation": _annotation,
    "property": lambda text: _annotation(text).replace(":", "%3A").replace(",", "%2C"),
    "xml": lambda text: _text(text).translate(_MARKUP),
    "text": _text,
    "dot": _dot,
    "json": _json,
    "ascii-json": _ascii_json,
}


def safe(text: str, form: Form) -> str:
    """Return the text, escaped for an output form."""
    return FORMS[form](text)
