"""An order that is not in a file: rows of cells or words, torch actions by rank, or a torch schedule.

    ["0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"]          a row per rank, as in torch's CSV
    ["F0.0 F0.1 B0.0 B0.1", "F1.0 B1.0 F1.1 B1.1"]  the same as an order
    {0: [F, F, None, B, B], 1: …}                   values that print like torch's actions; None is a bubble
    pandas.read_csv("mine.csv", header=None)        a row per rank; NaN is a bubble
    ScheduleInterleaved1F1B(stages, m)              the program that its runtime runs: `pipeline_order_with_comms`

The order is written as text and read like a file, so a finding shows the row. Torch's classes with one stage per rank
run their own loop, which differs from their `pipeline_order` (in 2.13 the `pipeline_order` of Schedule1F1B names F4 of
four microbatches), so the library schedule of the same name is used instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from pipesched.diagnostics import Code, fail
from pipesched.model.ops import KIND
from pipesched.support.foreign import real
from pipesched.support.source import Source

Row: TypeAlias = str | Sequence[object]
Rows: TypeAlias = Sequence[Row] | Mapping[int, Row]


class TorchSchedule(Protocol):
    """A torch schedule, which has the actions of every rank."""

    @property
    def pipeline_order(self) -> Mapping[int, Sequence[object]]: ...


@runtime_checkable
class Frame(Protocol):
    """The columns of a DataFrame by name, and its rows."""

    @property
    def columns(self) -> Iterable[object]: ...

    def itertuples(self, index: bool, name: None) -> Iterable[Iterable[object]]: ...


_HELP = "give rows of cells or words, a dict from ranks to actions, or a torch schedule"
_ACTION = re.compile(rf"\d+{KIND}\d|{KIND}\d+\.\d")
_WORD = re.compile(rf"{KIND}\d|[a-z]+:|\(( |$)|step\b|rank\b")


def _rows(order: object) -> object:
    """Return the rows of a torch schedule, of a table, or of a mapping by rank; return other values unchanged."""
    if hasattr(order, "pipeline_order"):
        order = getattr(order, "pipeline_order_with_comms", None) or order.pipeline_order
    if isinstance(order, Frame):
        order = _of_frame(order)
    return _by_rank(order) if isinstance(order, Mapping) else order


def written(order: object) -> Source | None:
    """Return the order as text, or None if it is not an order.

    Raises:
        PipeschedError: PS225: the rows contain anything but actions and words, or the ranks are not 0, 1, ….
    """
    order = _rows(order)
    if isinstance(order, str | bytes) or not isinstance(order, Iterable):
        return None
    rows = [_cells(row, rank) for rank, row in enumerate(order)]
    first = next((cell for row in rows for cell in row if cell), "")
    if _WORD.match(first):
        lines = (" ".join(filter(None, row)) for row in rows)
        heads = (line if re.match(r"rank\b", line) else f"rank {rank}: {line}" for rank, line in enumerate(lines))
        return Source("<order>.txt", "".join(f"{line}\n" for line in heads))
    return Source("<order>.csv", "".join(",".join(row) + "\n" for row in rows))


def single(order: object) -> tuple[str, dict[str, int]] | None:
    """Return the class and the sizes of a torch schedule with one stage per rank, or None for any other value."""
    stage, microbatches = getattr(order, "_stage", None), getattr(order, "_n_microbatches", None)
    if stage is None or not isinstance(microbatches, int) or hasattr(order, "_stages"):
        return None
    return type(order).__name__, {"p": int(stage.num_stages), "m": microbatches}


def _of_frame(frame: Frame) -> list[list[object]]:
    """Return the rows of a DataFrame.

    Raises:
        PipeschedError: PS225: the header is the row of rank 0.
    """
    if any(_ACTION.match(str(name)) for name in frame.columns):
        shown = str(next(iter(frame.columns)))[:40]
        raise fail(
            Code.USAGE, f"the header of the table is a row of actions: {shown!r}", help="read it with `header=None`"
        )
    return [[None if cell != cell else cell for cell in row] for row in frame.itertuples(index=False, name=None)]


def _by_rank(rows: Mapping[object, object]) -> list[object]:
    """Return the rows of ranks 0, 1, …."""
    ranks = {str(rank): row for rank, row in rows.items()}
    missing = next((rank for rank in range(len(ranks)) if str(rank) not in ranks), None)
    if missing is not None:
        raise fail(Code.USAGE, f"an order of {len(ranks)} ranks has no row for rank {missing}", help=_HELP)
    return [ranks[str(rank)] for rank in range(len(ranks))]


def _cells(row: object, rank: int) -> list[str]:
    """Return the cells of a row as text; a bubble is empty."""
    if isinstance(row, str):
        row = real(row)
        if "\n" in row.strip():
            raise fail(Code.USAGE, f"row {rank} of an order has several lines", help=_HELP)
        return [row.strip()] if _WORD.match(row.strip()) else row.strip().split(",")
    if not isinstance(row, Iterable) or isinstance(row, bytes):
        raise fail(Code.USAGE, f"row {rank} of an order has type {type(row).__name__}", help=_HELP)
    cells = ["" if cell is None else real(str(cell)).strip() for cell in row]
    if odd := next((cell for cell in cells if "\n" in cell or len(cell) > 200), None):
        raise fail(Code.USAGE, f"row {rank} of an order contains {odd[:40]!r}, which is not an action", help=_HELP)
    return cells
