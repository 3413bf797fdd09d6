"""Reads an answer, the JSON of `pipesched optimize --json`, so that it can be checked.

source         the schedule, a .ps file as text
release, mem_cap, objective       the terms of the optimization
certificate    the bounds, refutations and repeating part of the schedule (`proof.entries`)
other entries  derived from these (`proof.answer`)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from pipesched.diagnostics import PipeschedError, budgeted, fail
from pipesched.model.numbers import number
from pipesched.model.release import Release
from pipesched.model.units import NO_UNIT, UNITS, Unit
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.twins import single
from pipesched.planning.byte_counts import Bytes, in_bytes
from pipesched.support.foreign import json_of, real
from pipesched.support.source import Source

_OBJECTIVES = ("makespan", "span")

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Answer:
    """An answer of the optimizer.

    caps: the cap of each rank, or None if memory is not limited. schedule: the text of the .ps file. entries: all
    entries of the JSON. unit: the unit of times. asked: the caps in bytes as the user typed them, or None.
    """

    schedule: Source
    release: Release
    caps: tuple[Fraction, ...] | None
    objective: str
    certificate: Mapping[str, object]
    entries: Mapping[str, object]
    unit: Unit = NO_UNIT
    asked: tuple[Bytes, ...] | None = None


def schedule(source: Source) -> Source:
    """Return the text of the .ps file in an answer."""
    return read(source).schedule


def read(source: Source) -> Answer:
    """Read an answer that has a schedule.

    Raises:
        PipeschedError: PS710: the text is not the JSON of an answer, or lacks a schedule or a certificate. PS843:
            reading it exceeds the budget.
    """
    try:
        with budgeted(source):
            entries = json_of(source.text, object_pairs_hook=_once)
    except ValueError:
        raise _none(source) from None
    try:
        return Answer(
            Source(f"{source.name}/source.ps", real(_a(str, entries["source"]))),
            Release.parse(_a(str, entries["release"])),
            None if entries["mem_cap"] is None else tuple(_number(cap) for cap in entries["mem_cap"]),
            _OBJECTIVES[_OBJECTIVES.index(entries["objective"])],
            _a(dict, single(entries["certificate"])),
            entries=entries,
            unit=UNITS[_a(str, entries.get("unit", ""))],
            asked=None if "asked_cap" not in entries else tuple(map(_bytes, _a(list, entries["asked_cap"]))),
        )
    except (ValueError, KeyError, TypeError, OverflowError, PipeschedError):
        raise _none(source) from None


def _none(source: Source) -> PipeschedError:
    what = f"{source.name} is not an optimizer answer with a schedule and a certificate"
    return fail(OptimizerCode.CERTIFICATE, what, help="give the output of `pipesched optimize --json`")


def _once(entries: list[tuple[str, object]]) -> dict[str, object]:
    """Build an object; raise ValueError if a name occurs twice, since JSON readers differ in which value they keep."""
    if len(dict(entries)) != len(entries):
        raise ValueError
    return dict(entries)


def _a(kind: type[Kind], value: object) -> Kind:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _bytes(value: object) -> Bytes:
    found = in_bytes(_a(str, value))
    if found is None or found.written != value:
        raise ValueError
    return found


def _number(value: object) -> Fraction:
    return number(
        str(_a(int, value)) if isinstance(value, int) and not isinstance(value, bool) else _a(str, value), "a cap"
    )
