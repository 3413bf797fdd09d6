"""Columns of characters given to operations that run in them, so that shares of columns are shares of time.

    time      |F  |B      |F  |B      |F  |B          an F takes 2 of 6 ticks, a column holds 4
    columns   |  F   |  B   |  B   |  F   | ...       every third column is an F

Each column is given to something that runs in it. Each thing gets its time in columns, rounded down or up, and so does
each kind of thing, over all of the row. There always is such a choice: the true shares are a flow from columns to
things to kinds, and a flow whose bounds are whole has a whole solution (Hoffman and Kruskal 1956). It is found by
augmenting paths, first for what is due, then for all columns; a column asks for what takes most of it first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

Piece: TypeAlias = tuple[int, int]  # a thing, and how much of a column it takes


def rows(shares: Sequence[Sequence[int]], kind: Sequence[int], whole: int) -> list[int]:
    """Return the number of the row that each column shows. shares: of each row by column; all rows add up to a whole.

    The n-th whole of a row is a thing of its own, so that rows have their shares from the left up to any column.
    """
    pieces: list[list[Piece]] = [[] for _ in shares[0]]
    owner: list[int] = []
    for number, row in enumerate(shares):
        done, base = 0, len(owner)
        for column, amount in enumerate(row):
            while amount:
                part = min(amount, whole - done % whole)
                pieces[column].append((base + done // whole, part))
                done, amount = done + part, amount - part
        owner += [number] * -(-done // whole)
    return [owner[thing] for thing in apportion(pieces, [kind[number] for number in owner], whole)]


def apportion(pieces: Sequence[Sequence[Piece]], kind: Sequence[int], whole: int) -> list[int]:
    """Return the thing that each column is given to.

    pieces: of each column. kind: of each thing, from 0 up. whole: how much a column holds.
    """
    things, kinds = [0] * len(kind), [0] * (max(kind, default=0) + 1)
    for column in pieces:
        for thing, amount in column:
            things[thing] += amount
            kinds[kind[thing]] += amount
    due, most = [x // whole for x in things], [-(-x // whole) for x in things]
    flow = _Flow([[x for x, _ in sorted(p, key=lambda piece: (-piece[1], piece[0]))] for p in pieces], kind)
    flow.fill([0] * len(kind), due, [len(pieces)] * len(kinds))
    flow.fill(due, most, [x // whole for x in kinds])
    flow.fill(due, most, [-(-x // whole) for x in kinds])
    return [wanted[0] if thing < 0 else thing for thing, wanted in zip(flow.given, flow.wanted, strict=True)]


class _Flow:
    """wanted: the things of each column, those that take most of it first. given: the thing of each column, or -1.

    Nodes of paths are numbers: columns, then things, then kinds.
    """

    def __init__(self, wanted: list[list[int]], kind: Sequence[int]) -> None:
        self.wanted, self.kind = wanted, kind
        self.given = [-1] * len(wanted)
        self.columns: list[set[int]] = [set() for _ in kind]
        self.count = [0] * (max(kind, default=0) + 1)
        self.members: list[list[int]] = [[] for _ in self.count]
        for thing, its in enumerate(kind):
            self.members[its].append(thing)

    def fill(self, least: list[int], most: list[int], capacity: list[int]) -> None:
        """Gives columns away, as many as can be, within the bounds of things and the capacity of kinds."""
        for column, thing in enumerate(self.given):
            if thing < 0:
                self._augment(column, least, most, capacity)

    def _augment(self, column: int, least: list[int], most: list[int], capacity: list[int]) -> None:
        """Along a shortest path to a kind that has capacity, columns change hands; there may be none."""
        came, queue = {column: -1}, [column]
        for node in queue:  # which grows
            kind = node - len(self.wanted) - len(self.kind)
            if kind >= 0 and self.count[kind] < capacity[kind]:
                self.count[kind] += 1
                return self._flip(came, node)
            for after in self._after(node, least, most):
                if after not in came:
                    came[after] = node
                    queue.append(after)
        return None

    def _after(self, node: int, least: list[int], most: list[int]) -> Iterator[int]:
        """Nodes that can give way next: the things of a column, the columns and the kind of a thing, its members."""
        things = len(self.wanted)
        kinds = things + len(self.kind)
        if node < things:
            yield from (things + thing for thing in self.wanted[node])
        elif node < kinds:
            thing = node - things
            if len(self.columns[thing]) < most[thing]:
                yield kinds + self.kind[thing]
            yield from sorted(self.columns[thing])
        else:
            yield from (things + x for x in self.members[node - kinds] if len(self.columns[x]) > least[x])

    def _flip(self, came: dict[int, int], node: int) -> None:
        """Each column of the path is given to the thing after it."""
        things = len(self.wanted)
        while node >= 0:
            before = came[node]
            if 0 <= before < things <= node:
                old, thing = self.given[before], node - things
                if old >= 0:
                    self.columns[old].discard(before)
                self.given[before] = thing
                self.columns[thing].add(before)
            node = before
