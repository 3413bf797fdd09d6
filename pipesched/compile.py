"""The compiler on one page: five arrows, one call each.

    name ──read──> Source ──load──> Loaded ──examine──> Examination ──lower──> Program ──emit──> text
                             │                   │
                             │                   ├─ analysis: a schedule with all derived facts, on demand
                             │                   └─ report: the findings of every check, and the schedule's costs
                             └─ .ps text; by rows of extensions (READERS) streams, torch's CSV and orders in words,
                                which have their own Program if they contain messages

All findings are collected and reported together; a later step runs as far as the earlier ones allow. `verify`,
`emit` (`verbs/`) and every other verb consist of these calls. A reader or a writer is imported only when a file needs
it, since most runs need only one.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipesched.check.checks import Subject
from pipesched.check.complete import check_complete
from pipesched.check.dataflow import check_dataflow
from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.examine import Examination, Options
from pipesched.formats.readers import Loaded, reader_of, require_ranks, with_frozen
from pipesched.formats.targets import Head, writer
from pipesched.library.inputs import read
from pipesched.model.placement import most_ranks, most_stages
from pipesched.model.schedule import Program, Schedule
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source

MESSAGES = 3  # instructions per operation: the operation, a send and a receive


def load(source: Source, options: Options) -> Loaded:
    """Load a file as a schedule; its content decides the reader.

    Raises:
        PipeschedError: PS1xx, PS2xx, PS8xx: the file is not a schedule.
    """
    row = reader_of(source)
    if options.settings and "settings" not in row.takes:
        name, setting = next(iter(options.settings.items()))
        raise fail(Code.USAGE, f"parameter {name} is {setting!r}, which is not a whole number")
    loaded = row.read.load()(source, **{name: getattr(options, name) for name in row.takes})
    if isinstance(loaded, Source):
        return load(loaded, options)
    assert isinstance(loaded, Loaded)
    for name in ("stages", "placement"):
        if name not in row.takes and getattr(options, name) is not None:
            raise fail(Code.USAGE, f"--{name} applies only to a torch CSV; {source.name} is not one")
    if loaded.unit is None:
        _require_size(loaded, options.max_ops)
    return loaded if options.frozen is None else with_frozen(loaded, options.frozen)


def examine(loaded: Loaded, options: Options) -> Examination:
    """Examine a loaded schedule; every fact and finding is derived on demand."""
    return Examination(loaded, options.beside(loaded))


def examined(source: Source, options: Options) -> Examination:
    """Load and examine a file.

    Raises:
        PipeschedError: as for `load`; PS222, PS225: an option does not fit the file.
    """
    made = examine(load(source, options), options)
    if made.report.exit_status == 2:
        raise PipeschedError(made.report.diagnostics)
    return made


def lower(schedule: Schedule) -> Program:
    """Return the program of a schedule: the program in its file, or the lowering at unit costs.

    Raises:
        PipeschedError: PS306: the compute orders wait for each other, so there is no program; PS3xx.
    """
    made = Analysis(schedule)
    if made.program is None:
        raise PipeschedError([*check_dataflow(Subject(made))] or check_complete(Subject(made)))
    return made.program


def emit(order: Schedule | Program, target: str, head: Head) -> Iterator[str]:
    """Return the text of an order, one rank at a time."""
    return writer(target).pieces(order, head)


def _require_size(loaded: Loaded, most: int) -> None:
    """Raise PipeschedError (PS210) if checks would take more than a few seconds."""
    require_ranks(loaded.schedule.ranks, most_ranks(most))
    instructions = len(loaded.schedule if loaded.program is None else loaded.program)
    for count, what, limit in (
        (loaded.schedule.placement.rank_of.size, "stages", most_stages(most)),
        (len(loaded.schedule), "operations", most),
        (instructions, "instructions", MESSAGES * most),
    ):
        if count > limit:
            message = f"{loaded.source} has {count:,} {what}; the limit is {limit:,}"
            raise fail(Code.TOO_MANY_OPERATIONS, message, help="--max-ops raises the limit")


__all__ = ["Examination", "Head", "Loaded", "Options", "emit", "examine", "examined", "load", "lower", "read"]
