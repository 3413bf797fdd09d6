"""Runs the program of every rank, and runs a program again to find the origin of an operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import numpy as np

from pipesched.diagnostics import Code, Label, fail
from pipesched.extension import Decider, rows
from pipesched.language import ast
from pipesched.language.execution import BUDGET, Budget, Halt, Names, locate, report
from pipesched.language.lanes import Unsuited
from pipesched.language.operations import Emitter
from pipesched.language.placement_lines import nobody
from pipesched.language.statements import EMITTERS
from pipesched.language.turns import Arrays, Expanded
from pipesched.language.typecheck import Checked
from pipesched.model.columns import Bools, Column, Ints
from pipesched.model.costs import Costs
from pipesched.model.lists import Place
from pipesched.model.numbers import interval
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.support.source import Source, Span

FEW = 50  # most forwards for which programs are run operation by operation at once
PLACES = 2  # to find places, programs are run again for at most so many times --max-ops operations


@dataclass
class Programs:
    """The programs of a file at one size.

    sites: the site of each operation that has run. start: the first operation of each rank, then the number of
    operations. kept: the operations that are in the schedule, None if all are. moved: for each rank, the positions of
    its operations in its list as written, if a rule moved them.
    """

    checked: Checked
    names: Names
    placement: Placement
    max_ops: int
    costs: Costs
    kept: Ints | None = None
    moved: Sequence[Sequence[int]] = ()

    def __post_init__(self) -> None:
        self.budget = self.names.budget
        self.letters = frozenset(site.op for site in self.checked.sites)
        self.again = Budget.of(self.max_ops)  # for runs that only find places

    def run(self) -> tuple[Column, Column, Bools]:
        """Return the kinds, keys (stage * microbatches + microbatch) and overlap flags of all ranks.

        Raises:
            PipeschedError: PS2xx: an operation of the file fails.
        """
        assigned = self._assign()
        self.functions = [self._function(item) for item in assigned]
        self.sites, op, keys, flags, self.start = self._beside(assigned) or self._one_by_one()
        return op, keys, flags

    def _beside(self, assigned: Sequence[ast.Rank]) -> Expanded | None:
        """Return the programs of all ranks as arrays, or None if arrays cannot reproduce them."""
        places = self.placement
        if self.checked.rule or places.shared or places.rank_of.size * places.microbatches <= FEW:
            return None
        with suppress(Unsuited):
            return Arrays(self.checked, self.names, self.placement, self.max_ops).run(assigned)
        return None

    def _one_by_one(self) -> Expanded:
        """Return the programs of all ranks, one rank after another."""
        sites, keys, second = [], [], []
        kinds = np.array([Op[site.op] for site in self.checked.sites], dtype=np.int8)
        start = np.zeros(self.placement.ranks + 1, dtype=np.int64)
        for rank, emitter in enumerate(self._emitters()):
            sites.append(np.array(emitter.sites, dtype=np.int32))
            keys.append(np.array(emitter.keys, dtype=np.int64))
            second.append(np.array(emitter.second, dtype=np.int64) + start[rank])
            start[rank + 1] = start[rank] + len(emitter.sites)
            if start[rank + 1] > self.max_ops:
                message = f"more than {self.max_ops} operations"
                raise fail(Code.TOO_MANY_OPERATIONS, message, help="choose smaller sizes, or raise --max-ops")
        flags = np.zeros(start[-1], dtype=np.bool_)
        flags[np.concatenate(second)] = True
        return (site := np.concatenate(sites)), kinds.take(site), np.concatenate(keys), flags, start

    def _emitters(self) -> Iterable[Emitter]:
        """Run the programs of all ranks, one after the other; a rule completes or moves their operations afterwards."""
        emitters: Iterable[Emitter] = map(self._written, range(self.placement.ranks))
        for row in rows(Decider) if self.checked.rule else ():
            emitters = list(emitters)
            self.moved = row.decide.load()(emitters, self.placement, self.costs, self.checked, self.budget)
        return emitters

    def _written(self, rank: int) -> Emitter:
        emitter = Emitter(rank, self.placement, self.max_ops, self.letters)
        try:
            self._call(emitter)
        except (ZeroDivisionError, Halt) as error:
            if isinstance(error, Halt) and error.code is Code.CHUNK and not emitter.chunks:
                raise nobody(self.checked, self.placement, rank) from None
            raise report(error, self._source, f"rank {rank}", self.checked.loops) from None
        return emitter

    @property
    def _source(self) -> Source:
        return self.checked.file.span.source

    def _assign(self) -> list[ast.Rank]:
        """Return the program of every rank: its own program, or else the general one."""
        items, ranks = self.checked.items(ast.Rank), self.placement.ranks
        general = [item for item in items if id(item.rank) not in self.names.code]
        if len(general) > 1:
            again = Label(general[1].span, "and this one")
            raise fail(Code.RANK_PROGRAM, "two programs for every rank", Label(general[0].span, "this one"), again)
        own = self._own(items)
        bare = next((r for r in range(ranks) if r not in own), None)
        if bare is not None and not general:
            label = Label(self.checked.file.name.span, f"has {len(own)} programs for {ranks} ranks")
            known = next((item.rank.id for item in items if isinstance(item.rank, ast.Name)), None)
            help = f"`{known}` already has a value, so `rank {known}` is one rank; use a new name"
            help = help if known else f"write `rank {bare} {{ … }}`"
            raise fail(Code.RANK_PROGRAM, f"rank {bare} has no program", label, help=help)
        return [own[r] if r in own else general[0] for r in range(ranks)]

    def _own(self, items: Sequence[ast.Rank]) -> dict[int, ast.Rank]:
        """Map each rank that has a program of its own to this program."""
        own: dict[int, ast.Rank] = {}
        for item in (item for item in items if id(item.rank) in self.names.code):
            rank = self.names.number(item.rank)
            if rank in own or not 0 <= rank < self.placement.ranks:
                none = f"no stage is on rank {rank}; ranks are {interval(0, self.placement.ranks)}"
                wrong = f"rank {rank} has two programs" if rank in own else none
                raise fail(Code.RANK_PROGRAM, wrong, Label(item.rank.span, f"this is rank {rank}"))
            own[rank] = item
        return own

    def _function(self, item: ast.Rank) -> Callable[..., None]:
        self.names.run(item)
        return cast("Callable[..., None]", self.names.values.pop("program"))

    def _call(self, emitter: Emitter) -> None:
        functions = {**emitter.functions(), "steps": self.budget.steps}
        self.functions[emitter.rank](emitter.rank, *(functions.get(name) for name in EMITTERS))

    # The origin of an operation (`model.lists.Origin`)

    def place(self, index: int) -> Place:
        """Return the line of an operation and the loop bindings under which it was written."""
        index = index if self.kept is None else int(self.kept[index])
        rank = int(np.searchsorted(self.start, index, side="right")) - 1
        span = self.checked.sites[int(self.sites[index])].span
        return Place(span, self._bindings(rank, index - int(self.start[rank])))

    def sited(self) -> tuple[Column, Sequence[Span]]:
        """Return the site (a statement of the file) of every operation, and the span of every site."""
        sites = self.sites if self.kept is None else self.sites[self.kept]
        return sites, [site.span for site in self.checked.sites]

    def _bindings(self, rank: int, step: int) -> str:
        """Return the loop bindings of a rank's operation `step`, counted from 0; the rank's program runs again. If the
        places of many operations are requested, operations beyond the budget get no bindings.
        """
        emitter = Emitter(rank, self.placement, self.max_ops, self.letters)
        emitter.sites = _Until(self.moved[rank][step] if self.moved else step)
        self.budget.left, kept = self.again.left, self.budget.left
        try:
            self.budget.pay(step * BUDGET // PLACES)
            self._call(emitter)
        except _Found as found:
            return locate(found, self._source, self.checked.loops)[1]
        except (ZeroDivisionError, Halt):
            pass
        finally:
            self.again.left, self.budget.left = self.budget.left, kept
        return ""


class _Found(Exception):
    """Raised when the requested operation is written."""


class _Until(list[int]):
    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def append(self, site: int) -> None:
        if len(self) == self.step:
            raise _Found
        super().append(site)
