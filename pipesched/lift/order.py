"""What every rank does, in order: in the order notation, or in the language with loops where it repeats."""

from __future__ import annotations

from pathlib import PurePath

from pipesched.compile import load, lower
from pipesched.examine import Options
from pipesched.model.numbers import ranges
from pipesched.model.placement import Placement
from pipesched.source import Source


def order(source: Source, options: Options, *, program: bool) -> tuple[str, str]:
    """The order of a file in the notation ``F0.0 I0.0 … F3.1+B2.0``; with `program`, sends and receives too.

    Then what the notation has no words for, as a sentence; empty where it says all.

    Raises:
        PipeschedError: as `load` and `lower`.
    """
    from pipesched.formats import order_write

    schedule = load(source, options).schedule
    text = order_write.write_program(lower(schedule)) if program else order_write.write(schedule)
    return text, _unsaid(schedule.placement)


def _unsaid(placement: Placement) -> str:
    """Frozen stages, who reads whom, and slices: of the model, and in no word of an order."""
    frozen = f"frozen: {ranges(placement.frozen)}" if placement.frozen else ""
    cut = f"every {placement.slices} microbatches are one sequence" if placement.slices > 1 else ""
    unsaid = [x for x in (frozen, "" if placement.chain else placement.skip, cut) if x]
    if not unsaid:
        return ""
    help = "with --frozen it can be read again" if unsaid == [frozen] else "`--format ps` keeps all"
    return f"the notation of orders does not say: {'; '.join(unsaid)} ({help})"


def as_ps(source: Source, options: Options) -> str:
    """The compute order of a file as a .ps file for this one size, with loops where it repeats.

    Raises:
        PipeschedError: as `load`; PS814, an order that the language cannot say.
    """
    from pipesched.lift import writer

    loaded = load(source, options)
    if loaded.unit is None:
        return writer.write(loaded.schedule, documentation=f"The order of {PurePath(source.name).name}")
    documentation = loaded.unit.checked.file.documentation or ""
    return writer.write(loaded.schedule, documentation=documentation, costs=loaded.unit.costs)
