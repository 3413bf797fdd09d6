"""The base of schedules and programs: a list of operations per rank, and the origin of each operation.

There may be a million operations, so they carry no spans. The order keeps only the data to find the place of an
operation for a diagnostic: a line of a .ps file with the loop bindings, a cell of a CSV file, or nothing.

Extensions provide the pictures, graphs and tables of an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, Self, cast

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.extension import Drawing, rows
from pipesched.model.columns import Column, Ints, among, rank_column
from pipesched.model.ops import COMPUTES, Compute, Instruction
from pipesched.model.placement import Placement
from pipesched.support.source import Span

if TYPE_CHECKING:
    from networkx import MultiDiGraph
    from pandas import DataFrame

    from pipesched.model.costs import Costs
    from pipesched.model.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an operation: its span, and the bindings (``k = 5, i = 2``) or the line that produced it."""

    span: Span | None = None
    bindings: str = ""


class Origin(Protocol):
    """Finds the place of the i-th operation (or instruction), counted over all ranks."""

    def place(self, index: int) -> Place: ...


class Nowhere:
    """The origin of orders that are built in code and therefore have no places."""

    def place(self, index: int) -> Place:
        del index
        return Place()


@dataclass(frozen=True)
class Chosen:
    """The origin of entries taken from another list. at: their indices in that list, or -1."""

    origin: Origin
    at: Column

    def place(self, index: int) -> Place:
        at = int(self.at[index])
        return Place() if at < 0 else self.origin.place(at)


COLUMNS = ("op", "stage", "microbatch", "second", "peer", "group", "communicator", "other")


class RankLists:
    """Columns with one entry per operation or instruction; rank r has the entries from start[r] to start[r + 1] - 1."""

    placement: Placement
    op: Column
    stage: Column
    microbatch: Column
    start: Ints
    origin: Origin

    def __len__(self) -> int:
        return len(self.op)

    @property
    def ranks(self) -> int:
        return len(self.start) - 1

    @property
    def stages(self) -> int:
        return self.placement.stages

    @property
    def microbatches(self) -> int:
        return self.placement.microbatches

    @cached_property
    def rank(self) -> Column:
        return rank_column(self.start)

    @property
    def split(self) -> bool:
        """True if some backwards are split into I and W."""
        return bool(np.any(among(self.op, [part for op in COMPUTES for part in op.parts])))

    def key(self, at: Ints | slice = slice(None)) -> Ints:
        """Return stage * microbatches + microbatch for the entries at these indices."""
        return np.asarray(self.stage[at].astype(np.int64) * self.microbatches + self.microbatch[at])

    def taken(self, at: Ints) -> Self:
        """Return the entries at these indices, in this order; each stays on its rank."""
        columns = {name: column[at] for name in COLUMNS if (column := getattr(self, name, None)) is not None}
        columns |= {"clock": None} if hasattr(self, "clock") else {}
        start = np.searchsorted(np.sort(at), self.start).astype(np.int64)
        return replace(self, **columns, start=start, origin=Chosen(self.origin, at))  # type: ignore[type-var]

    def step(self, index: int) -> int:
        """Return the position of an entry in its rank's list, from 1."""
        return index - int(self.start[self.rank[index]]) + 1

    @property
    def computes(self) -> Schedule:
        """The compute order without messages."""
        raise NotImplementedError

    def order(self, rank: int) -> list[Compute]:
        """Return the operations of a rank as records, for display; code uses the columns."""
        alone = self.computes
        return [alone[i] for i in range(int(alone.start[rank]), int(alone.start[rank + 1]))]

    def to_networkx(self, costs: Costs | None = None) -> MultiDiGraph:
        """Return the graph of dependencies, messages and order as a `networkx.MultiDiGraph`: one node per operation.

        costs: the costs that determine the start and end of each node; by default 1, but 2 for a B.
        """
        return cast("MultiDiGraph", make("graph", self.computes, costs))

    def to_pandas(self, costs: Costs | None = None) -> DataFrame:
        """Return a `pandas.DataFrame`, a row per operation: rank, step, op, stage, microbatch, second, start, end,
        held.

        Raises:
            PipeschedError: PS820: pandas is not installed.
        """
        return cast("DataFrame", make("table", self.computes, costs))

    def _repr_svg_(self) -> str | None:
        """Return the picture for a notebook; a program is drawn up to where it stops under strict communication."""
        return str(make("picture", self)) if known("picture") else None


def column(records: Sequence[Compute | Instruction], name: str) -> Column:
    """Return one field of all records as a column."""
    return np.array([getattr(x, name) for x in records], dtype={"op": np.int8, "second": np.bool_}.get(name, np.int32))


def known(name: str) -> bool:
    """Return True if an extension provides the picture, graph or table of this name."""
    return any(row.name == name for row in rows(Drawing))


def make(name: str, *arguments: object) -> object:
    """Return the picture, graph or table that an extension derives from an order.

    Raises:
        PipeschedError: PS820: there is no such extension.
    """
    for row in rows(Drawing):
        if row.name == name:
            return row.make.load()(*arguments)
    raise fail(Code.NEEDS, f"no extension defines a {name}", help="register the extension `views`")
