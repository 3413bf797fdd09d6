"""READERS: a row for every kind of text that is read.

    name        ending  known by                                          contents
    ps          .ps     any text, since its reader explains errors best   a schedule with its costs and claims

Extensions add rows, and names of schedules that are not stored in files. A row names the options that its function
takes. A reader is imported on first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np

from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.extension import Extended, Lazy, Names, Reader, explained, rows
from pipesched.language.evaluate import MAX_OPS, NOT_GIVEN, Unit, at_size
from pipesched.language.parser import OPS_A_WORD, WORDS
from pipesched.language.typecheck import Checked, check_text
from pipesched.model.columns import among
from pipesched.model.costs import Costs
from pipesched.model.numbers import Value, interval
from pipesched.model.ops import COMPUTES
from pipesched.model.placement import OPS_A_RANK, Placement
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import TorchVersion
from pipesched.support.foreign import Foreign
from pipesched.support.source import Source

AnyOrder = TypeVar("AnyOrder", Schedule, Program)
Read = TypeVar("Read")

IDLE = re.compile(r"(?i:rank|r|device)\s*[0-9]+\s*:$")
"""The line of a rank without operations."""


@dataclass(frozen=True)
class Loaded(Extended):
    """The contents of a file. unit: the unit of a .ps file. torch: True for a torch CSV. notes: remarks of extensions.

    comm: the communication model of the runtime that wrote the file, if known. owned: extensions' values, one per
    class.
    """

    source: str
    schedule: Schedule
    unit: Unit | None = None
    torch: bool = False
    torch_version: TorchVersion | None = None
    notes: tuple[Foreign, ...] = ()
    comm: str | None = None

    @property
    def program(self) -> Program | None:
        """The program, if the file contains its messages."""
        return self.schedule.program

    @property
    def sizes(self) -> dict[str, Value]:
        """The parameters of a file, or p and m of an order."""
        return dict(self.schedule.parameters) or {"p": self.schedule.ranks, "m": self.schedule.microbatches}

    @property
    def own_costs(self) -> Costs:
        """The costs in the file."""
        return self.unit.costs if self.unit else NOT_GIVEN

    def costs(self, asked: Costs | None) -> Costs:
        """Return the costs in effect: the requested costs, which override the file's costs."""
        return self.own_costs if asked is None else asked.over(self.own_costs)


def readers() -> list[Reader]:
    """Return all readers, in the order in which they are tried on a text of unknown kind."""
    return sorted((*READERS, *rows(Reader)), key=lambda row: row.place)


def reader_of(source: Source) -> Reader | Names:
    """Return the reader for a text, chosen by its origin, its file extension, or its first meaningful line."""
    if source.origin:
        return next(row for row in rows(Names) if row.name == source.origin)
    known = readers()
    named = [row for row in known if row.ending and source.name.lower().endswith(row.ending)]
    if len(named) == 1:
        return named[0]
    first = _first_line(source.text)
    return next((row for row in named or known if row.known(first, source.text)), (named or known)[-1])


def _first_line(text: str) -> str:
    """Return the first line that is not blank, a comment, or a rank without operations (unless every rank is empty)."""
    lines = (found[0].strip("\ufeff \t\r") for found in re.finditer(r"[^\n]+", text))
    said = (line for line in lines if line and not line.startswith("#"))
    first = next(said, "")
    return next((line for line in chain([first], said) if not IDLE.match(line)), first)


def checked(source: Source, max_ops: int = MAX_OPS) -> Checked:
    """Parse a .ps file, and check its names and types.

    Raises:
        PipeschedError: PS1xx and PS2xx; only PS842 if the text is of another known kind.
    """
    return read_by("ps", source, partial(check_text, words=max(WORDS, max_ops // OPS_A_WORD)))


def read_by(kind: str, source: Source, read: Callable[[Source], Read]) -> Read:
    """Read a text with the reader of its kind.

    Raises:
        PipeschedError: the findings, with the hints for that kind of text.
    """
    try:
        return read(source)
    except PipeschedError as error:
        raise PipeschedError(explained(kind, error.diagnostics, source, read)) from None


def _ps(source: Source, *, parameters: Mapping[str, Value], max_ops: int) -> Loaded:
    unit = at_size(checked(source, max_ops), parameters, max_ops=max_ops)
    return Loaded(source.name, unit.schedule, unit=unit)


def require_ranks(ranks: int, most: int) -> None:
    """Refuse a file with more ranks than the limit.

    Raises:
        PipeschedError: PS210.
    """
    if ranks > most:
        message = f"the file has {ranks:,} ranks; the limit is {most:,}"
        help = f"each line is a rank; --max-ops raises the limit, and a rank counts as {OPS_A_RANK} operations"
        raise fail(Code.TOO_MANY_OPERATIONS, message, help=help)


def with_frozen(loaded: Loaded, stages: tuple[int, ...]) -> Loaded:
    """Return the same order with these stages frozen: each of their Bs becomes an I.

    A torch CSV has a B for every stage; the B is dropped if no I is needed.

    Raises:
        PipeschedError: PS225 if the file names frozen stages, or has torch's messages; PS803 for an unknown stage.
    """
    schedule, program = loaded.schedule, loaded.program
    if schedule.placement.frozen == stages:
        return loaded
    if loaded.unit is not None or schedule.placement.frozen:
        known = loaded.unit is not None
        help = "write `frozen s in low .. high` after its `stage` lines" if known else "leave out `--frozen`"
        raise fail(Code.USAGE, f"{loaded.source} itself names its frozen stages", help=help)
    if loaded.torch and program is not None:
        message = f"{loaded.source} contains torch's messages, which also go to frozen stages"
        raise fail(Code.USAGE, message, help="give only the compute operations: `pipesched emit FILE --target ps`")
    if stages and stages[-1] >= schedule.stages:
        message = f"stage {stages[-1]} is frozen; {loaded.source} has stages {interval(0, schedule.stages)}"
        raise fail(Code.FILE_DISAGREES, message)
    placement = replace(schedule.placement, frozen=stages)
    schedule = _as_frozen(schedule, placement, dropped=loaded.torch)
    if program is not None:
        schedule = schedule.with_program(_as_frozen(program, placement, dropped=False))
    return replace(loaded, schedule=schedule)


def _as_frozen(order: AnyOrder, placement: Placement, *, dropped: bool) -> AnyOrder:
    """Turn every B into the kind of backward that the placement needs. dropped: omit each B that is not needed."""
    whole = among(order.op, [op for op in COMPUTES if op.parts])
    full = np.flatnonzero(whole & (order.stage >= 0) & (order.stage < placement.stages))
    op = order.op.copy()
    wanted = placement.wanted[op[full], order.stage[full]]
    op[full] = np.where(wanted < 0, -1 if dropped else op[full], wanted)
    order, at = replace(order, placement=placement, op=op), np.flatnonzero(op >= 0)
    return order if len(at) == len(op) else order.taken(at)


_TAKES = ("parameters", "max_ops")
PS = Reader("ps", "a .ps file", ".ps", lambda *_: True, Lazy("formats.readers:_ps"), _TAKES, place=100)
READERS = (PS,)
