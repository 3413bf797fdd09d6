"""Explain how torch reads a cell that is not an action: it takes the action at the beginning and ignores the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pipesched.diagnostics import Diagnostic
from pipesched.model.ops import Op
from pipesched.model.torch_versions import TorchVersion
from pipesched.orders.implied import short
from pipesched.orders.torch_csv import OVERLAP, PLAIN, SHAPE, WITHOUT_MICROBATCH


def cell(found: Sequence[Diagnostic], text: str, version: TorchVersion) -> Sequence[Diagnostic]:
    """Return PS801 with the way in which torch reads the cell, and the text to write instead."""
    plain = PLAIN.fullmatch(text)
    if OVERLAP.fullmatch(text) or (plain and Op[plain[2]] in version.accepts):
        return found
    message = f"{short(text)!r} is not an action: {reading(text, version)}"
    return [replace(one, message=message, help=one.help if plain else _advice(text)) for one in found]


def reading(text: str, version: TorchVersion) -> str:
    """Return how torch of this version reads a cell that is not an action."""
    torch, text = f"torch {version}", text.strip()
    if text.startswith('"'):
        return "its quote is not closed in this row"
    if text.startswith("(") and ")" in text:
        return _overlap_reading(text, torch, version)
    match = _prefix(text, version)
    if match is None:
        return f"{torch} refuses it when it loads the file"
    rest = text[match.end() :]
    drops = f" and drops {short(rest)!r}" if rest else ""
    without = " without a microbatch" if not match[3] and Op[match[2]] not in WITHOUT_MICROBATCH else ""
    read = f"{int(match[1])}{match[2]}{int(match[3]) if match[3] else ''}" if len(match[0]) < 40 else short(match[0])
    return f"{torch} reads it as {read}{without}{drops}"


def _prefix(text: str, version: TorchVersion) -> re.Match[str] | None:
    """Return the action at the beginning of a text, as torch of this version finds it."""
    letters = [op.name for op in sorted(version.accepts, key=lambda op: -len(op.name))]
    return re.match(rf"(\d+)({'|'.join(letters)})(\d*)", text)


def _overlap_reading(text: str, torch: str, version: TorchVersion) -> str:
    """Return how torch reads a cell that looks like an overlap: torch cuts it at the first ")"."""
    inside, _, after = text[1:].partition(")")
    pieces = [piece.strip() for piece in inside.split(";") if piece.strip()]
    known = {op.name for op in version.accepts} | {"OVERLAP_F_B"}
    if after not in known or not all(_prefix(piece, version) for piece in pieces):
        return f"{torch} refuses it when it loads the file"
    if after != "OVERLAP_F_B":
        return f"{torch} loads it as {after} without a stage"
    return f"an overlap is an F followed by a B or I, but {torch} runs any two parts one after the other"


def _advice(text: str) -> str:
    """Return the text to write instead, if the intent is clear."""
    if PLAIN.fullmatch(text.upper()) or OVERLAP.fullmatch(text.upper()):
        return f"torch's letters are upper case: {short(text.upper())}"
    if not text.isascii() or not text.isprintable():
        odd = next(c for c in text if not c.isascii() or not c.isprintable())
        return f"remove the character U+{ord(odd):04X}"
    pieces = re.split(r"[ ;,|]+", text)
    if len(pieces) > 1 and all(PLAIN.fullmatch(piece) for piece in pieces):
        return f"put a comma between actions: {','.join(pieces[:4])}"
    return SHAPE
