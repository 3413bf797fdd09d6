"""Targets as source texts: a library name, a file, an order in memory, or a result of `load`."""

from __future__ import annotations

import re
from os import PathLike, fsdecode

from pipesched.common.aliases import known_as
from pipesched.common.in_memory import single, written
from pipesched.compile import Head, emit, load
from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.examine import Options
from pipesched.formats.readers import PS, Loaded, checked, reader_of
from pipesched.library.inputs import read
from pipesched.model.numbers import Value, whole
from pipesched.model.schedule import Program, Schedule
from pipesched.support.source import Source

_PS = re.compile(r"(\s*(#.*)?\n)*\s*schedule\s[^\n]*\(")
"""The beginning of a .ps file: blank lines and comments, then its head."""


def named(target: object, sizes: dict[str, Value], *, computes: bool = False) -> tuple[Source, dict[str, Value]]:
    """Return the source and its sizes; for torch schedules with one stage per rank, the library schedule of that name.

    computes: read only the compute operations of a program.
    """
    if isinstance(target, Schedule | Program):
        loaded(target, Options(sizes))
        return _written(target, computes=computes), sizes
    found = single(target)
    name = known_as(found[0]) if found else None
    return (read(name), {**found[1], **sizes}) if found and name else (source(target), sizes)


def loaded(target: Schedule | Program, options: Options) -> Loaded:
    """Load a schedule from memory; it has its own sizes, so no sizes may be given.

    Raises:
        PipeschedError: PS225: sizes are given.
    """
    given = [
        *options.parameters,
        *options.settings,
        *(name for name in ("stages", "placement") if getattr(options, name) is not None),
    ]
    if given:
        raise fail(Code.USAGE, f"{', '.join(given)} given for a {type(target).__name__}, which already has its sizes")
    return Loaded(target.name, target if isinstance(target, Schedule) else target.schedule)


def alone(target: object) -> Source:
    """Return the source of a target; if the target has sizes, the source lists its operations at these sizes."""
    source, sizes = named(target, {})
    return _written(load(source, Options(sizes)).schedule, computes=True) if sizes else source


def source(target: object) -> Source:
    """Return the text of a file, of a library schedule, or of an order in memory.

    Raises:
        PipeschedError: PS809, PS810: the target cannot be read or found; PS225: the target is anything else.
    """
    if isinstance(target, Source):
        return target
    if isinstance(target, str) and _PS.match(target):
        return Source("<text>", target)
    if isinstance(target, str | PathLike):
        return read(fsdecode(target))
    made = None if target is None else written(target)
    if made is None:
        help = "give a name, a path, .ps text, a Source, an order, or the result of load()"
        raise fail(Code.USAGE, f"a value of type {type(target).__name__} is not a schedule", help=help)
    return made


def _written(target: Schedule | Program, *, computes: bool) -> Source:
    """Return the source of a schedule, written operation by operation, or with its messages.

    An order cannot express routes, frozen stages, readers or slices: a program with any of these is written as a
    stream.
    """
    from pipesched.formats import stream_write
    from pipesched.orders import order_write

    program = target if isinstance(target, Program) else target.program
    if program is not None and not computes:
        placement = program.placement
        if any(placement.route_names) or placement.frozen or placement.slices > 1 or not placement.chain:
            sizes = whole(target.parameters if isinstance(target, Schedule) else {})
            return Source(f"{target.name}.json", "".join(stream_write.pieces(program, sizes)))
        return Source(f"{target.name}.txt", order_write.write(program))
    schedule = target.computes if isinstance(target, Program) else target
    return Source(f"{schedule.name}.ps", "".join(emit(schedule, "ps", Head())))


def parameters_of(source: Source) -> tuple[str, ...]:
    """Return the parameters of a .ps file; () for any other file, or for one that cannot be read."""
    return (known_parameters(source) or ()) if reader_of(source) is PS else ()


def known_parameters(source: Source) -> tuple[str, ...] | None:
    """Return the parameters of a file, or None if it accepts any, or cannot be read (loading it reports why)."""
    if reader_of(source) is not PS:
        return None if source.origin else ("p", "m")
    try:
        return tuple(checked(source).parameters)
    except PipeschedError:
        return None
