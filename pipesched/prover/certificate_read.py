"""Read the JSON that `pipesched prove --json` prints, in order to check it.

The entry `schedule` contains the text of the schedule and its digest. The entry `answers` contains, for each
domain, the guesses, and the results that follow from the guesses and the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from pipesched.diagnostics import PipeschedError, budgeted, fail
from pipesched.prover.codes import ProverCode
from pipesched.prover.prove_report import VERSION
from pipesched.support.foreign import json_of, real
from pipesched.support.source import Source

LARGEST = 10**12
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Certificate:
    """A certificate whose schedule matches its digest. name: the certificate's file."""

    name: str
    schedule: Source
    entries: Mapping[str, object]


def schedule(source: Source) -> Source:
    """Return the text of the .ps file in a certificate."""
    return read(source).schedule


def read(source: Source) -> Certificate:
    """Read a certificate without trusting its entries.

    Raises:
        PipeschedError: PS720: the certificate is damaged; PS843: reading it exceeds the budget.
    """
    try:
        with budgeted(source):
            found = json_of(source.text, object_pairs_hook=_once, parse_float=_none, parse_constant=_none)
    except ValueError as error:
        raise damaged(source.name, "", str(error) or "an entry occurs twice, or is not a whole number") from None
    entries = _real(found)
    assert isinstance(entries, dict)
    if entries.get("version") != VERSION or type(entries["version"]) is not int:
        reason = f"it has version {entries.get('version')!r:.20}; this reader supports version {VERSION}"
        raise damaged(source.name, "version", reason)
    own = part(source.name, entries, "schedule", dict)
    text, digest = (part(source.name, own, name, str, "schedule.") for name in ("text", "sha256"))
    if sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != digest:
        raise damaged(source.name, "schedule.sha256", "the entry differs from the digest of the text")
    name = part(source.name, entries, "source", str)
    part(source.name, entries, "answers", list)
    return Certificate(source.name, Source(name, text), entries)


def part(name: str, of: Mapping[str, object], key: str, kind: type[Kind], before: str = "") -> Kind:
    """Return an entry of the given type.

    Raises:
        PipeschedError: PS720: there is no such entry.
    """
    value = of.get(key)
    if type(value) is not kind:
        words = {dict: "an object", list: "a list", str: "a string", int: "a whole number"}
        raise damaged(name, before + key, f"the entry is not {words[kind]}" if key in of else "it is missing")
    return value


def damaged(name: str, place: str, reason: str) -> PipeschedError:
    """Return the error for a damaged certificate. place: the path of the damaged entry."""
    at = f" at {place}" if place else ""
    help = "create it again: `pipesched prove SCHEDULE --json -o CERTIFICATE.json`"
    return fail(ProverCode.DAMAGED, f"certificate {name} is damaged{at}: {reason}", help=help)


def _once(entries: list[tuple[str, object]]) -> dict[str, object]:
    """Build an object; raise ValueError if a name occurs twice, since readers differ in which value they keep."""
    if len(dict(entries)) != len(entries):
        raise ValueError
    return dict(entries)


def _none(_: str) -> object:
    raise ValueError


def _real(tree: object) -> object:
    """Return a value with strings exactly as in the file; raise PS720 if a number is too large."""
    match tree:
        case str():
            return real(tree)
        case dict():
            return {real(key): _real(value) for key, value in tree.items()}
        case list():
            return [*map(_real, tree)]
        case int() if abs(tree) > LARGEST:
            raise damaged("", "", f"it contains a number larger than {LARGEST}")
    return tree
