"""Executes the programs of many ranks at once: loops become arrays, without a call per operation.

    rank r { let w = min(p - 1 - r, m)  repeat w { F }  for k in w .. m { F  B } }

        lanes                  0 1 2 3            one rank each
        of the second loop     0 0 0 1 1 2 …      one iteration each; `w` is carried along, `k` counts
        F, B                   index in the iteration, of the iteration in the loop, of the loop in the rank

Every statement runs once, over all lanes that reach it; a condition splits them. Numbers have bounds, so that only
numbers that might exceed 62 bits are inspected. The arrays reproduce the operations of `operations` for programs that
do not depend on what has run (`turns`). Any unusual program, above all one with a mistake, raises `Unsuited`; the
programs then run operation by operation and report the mistake.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pipesched.language import ast
from pipesched.language.execution import WIDEST, Names
from pipesched.language.translate import OPERATORS
from pipesched.model.columns import Ints
from pipesched.support.record import Record

MOST = 1 << 22  # most lanes at a time


class Unsuited(Exception):
    """Raised if arrays cannot reproduce a program."""


class Values(Record):
    """A value for each lane, or one value for all lanes: a number with bounds, or a boolean."""

    of: Any
    least: int = 0
    most: int = 1

    def __getitem__(self, index: Ints) -> Values:
        return replace(self, of=self.of[index]) if self.varies else self

    @property
    def varies(self) -> bool:
        return isinstance(self.of, np.ndarray)

    @property
    def looked_at(self) -> Values:
        """Return the same values with the tightest bounds."""
        return Values(self.of, int(self.of.min()), int(self.of.max())) if self.varies else self


def one(value: int) -> Values:
    """Return a value that is the same for all lanes."""
    return Values(value, int(value), int(value))


def _corners(by: Callable[[int, int], int], a: Values, b: Values) -> tuple[int, int]:
    ends = [by(x, y) for x in (a.least, a.most) for y in (b.least, b.most)]
    return min(ends), max(ends)


def arithmetic(by: Callable[[Any, Any], Any], a: Values, b: Values) -> Values:
    """Return a sum, a difference or a product."""
    least, most = _corners(by, a, b)
    if not -WIDEST < least <= most < WIDEST:
        a, b = a.looked_at, b.looked_at
        least, most = _corners(by, a, b)
        if not -WIDEST < least <= most < WIDEST:
            raise Unsuited
    return Values(by(a.of, b.of), least, most)


def division(by: Callable[[Any, Any], Any], a: Values, b: Values) -> Values:
    """Return a quotient or a remainder, rounded down."""
    if b.least <= 0 <= b.most and not np.all(b.of):
        raise Unsuited
    narrow = all(-(2**31) < x.least <= x.most < 2**31 for x in (a, b))  # numpy divides 32 bits much faster than 64
    quotient, of = (x.of.astype(np.int32) if narrow and x.varies else x.of for x in (a, b))
    quotient = quotient // of
    quotient = quotient.astype(np.int64) if isinstance(quotient, np.ndarray) else quotient
    if by is operator.mod:
        return Values(a.of - quotient * b.of, min(b.least + 1, 0), max(b.most - 1, 0))
    if b.least == b.most:
        return Values(quotient, *_corners(by, a, b))
    widest = max(abs(a.least), abs(a.most))
    return Values(quotient, -widest, widest)


def chosen(by: Callable[[int, int], int], one_by_one: Callable[[Any, Any], Any], parts: Sequence[Values]) -> Values:
    """Return the smallest or the largest of several values."""
    made = parts[0]
    for part in parts[1:]:
        of = one_by_one(made.of, part.of) if made.varies or part.varies else by(made.of, part.of)
        made = Values(of, by(made.least, part.least), by(made.most, part.most))
    return made


@dataclass
class Lanes:
    """Iterations side by side, and the names that are visible in them.

    above: the enclosing lanes; iteration i belongs to lane index[i] there; index is None if they are the same lanes.
    """

    count: int
    names: Names
    functions: dict[str, ast.Let]
    above: Lanes | None = None
    index: Ints | None = None
    values: dict[str, Values] = field(default_factory=dict)

    def within(self, count: int, index: Ints | None) -> Lanes:
        """Return lanes nested in these."""
        return Lanes(count, self.names, self.functions, self, index)

    def value(self, name: str) -> Values:
        """Return the value of a name in each lane."""
        if name not in self.values:
            if self.above is not None:
                value = self.above.value(name)
                self.values[name] = value if self.index is None else value[self.index]
            elif isinstance(known := self.names.get(name), int):
                self.values[name] = one(known)
            else:
                raise Unsuited
        return self.values[name]

    def term(self, node: ast.Expression) -> Values:
        """Return the value of an expression in each lane."""
        match node:
            case ast.Number(value=int(value)) | ast.Boolean(value=value):
                return one(value)
            case ast.Name(id=name):
                return self.value(name)
            case ast.Call():
                return self._call(node.function.id, [self.term(x) for x in node.arguments])
            case ast.Entry():
                return self._entry(self.names.get(node.list.id), self.term(node.index))
            case ast.Unary(operator=sign):
                operand = self.term(node.operand)
                if sign == "-":
                    return Values(-operand.of, -operand.most, -operand.least)
                return Values(~operand.of if operand.varies else not operand.of)
            case ast.Binary(operator=sign) if sign != "/":
                a, b = self.term(node.left), self.term(node.right)
                _, makes, by = OPERATORS[sign]
                if makes == "boolean":
                    return Values(by(a.of, b.of))
                return division(by, a, b) if sign in ("//", "%") else arithmetic(by, a, b)
            case ast.Conditional():
                return self._conditional(node)
        raise Unsuited

    def _conditional(self, node: ast.Conditional) -> Values:
        condition = self.term(node.condition)
        if not condition.varies:
            return self.term(node.yes if condition.of else node.no)
        yes, no = self.term(node.yes), self.term(node.no)
        made = np.where(condition.of, yes.of, no.of)
        return Values(made, min(yes.least, no.least), max(yes.most, no.most))

    def _entry(self, entries: object, index: Values) -> Values:
        if not isinstance(entries, tuple) or not np.all((index.of >= 0) & (index.of < len(entries))):
            raise Unsuited
        if not index.varies:
            return one(entries[index.of])
        return Values(np.array(entries, dtype=np.int64)[index.of], min(entries), max(entries))

    def _call(self, name: str, parts: list[Values]) -> Values:
        if name in self.functions:
            made = self.functions[name]
            inside = self.within(self.count, None)
            inside.values = {x.id: part for x, part in zip(made.parameters or (), parts, strict=True)}
            return inside.term(made.value)
        if name == "min":
            return chosen(min, np.minimum, parts)
        if name == "max":
            return chosen(max, np.maximum, parts)
        if name == "abs":
            return chosen(max, np.maximum, [parts[0], arithmetic(operator.mul, parts[0], one(-1))])
        raise Unsuited


class Batch(Record):
    """The operations of one site: in which lanes (None: all), at which index, and their chunk and microbatch.

    second: the other part of the pair precedes it. drain: it stands for all missing W.
    """

    site: int
    at: Any
    lane: Ints | None = None
    chunk: Values | None = None
    microbatch: Values | None = None
    second: bool = False
    drain: bool = False

    def behind(self, count: Any) -> Batch:
        """Return the same operations, after `count` others in each lane."""
        more = count if isinstance(count, int) or self.lane is None else count[self.lane]
        return replace(self, at=self.at + more)

    def around(self, index: Ints, before: Any) -> Batch:
        """Return the same operations in the enclosing lanes. before: each lane's number of earlier operations."""
        moved = self.behind(before)
        return replace(moved, lane=index if self.lane is None else index[self.lane])


class Expansion:
    """Executes the statements of a program over lanes.

    sites: the operation that ends at each offset of the text. weights: the cost of an iteration of a loop, by id.
    spent: the total cost of all runs.
    """

    def __init__(self, sites: Mapping[int, int], weights: Mapping[int, int]) -> None:
        self.sites, self.weights = sites, weights
        self.spent = 0

    def block(self, statements: Iterable[ast.Statement], lanes: Lanes) -> tuple[Any, list[Batch]]:
        """Return the number of operations that each lane writes, and the operations."""
        count: Any = 0
        made: list[Batch] = []
        for node in statements:
            match node:
                case ast.Let(name=name, parameters=None):
                    lanes.values[name.id] = lanes.term(node.value)
                    continue
                case ast.Let(name=name):
                    lanes.functions[name.id] = node
                    continue
                case ast.Operation() | ast.Drain():
                    more, batches = 1, [self._operation(node, lanes)]
                case ast.Overlap():
                    second = replace(self._operation(node.second, lanes), at=1, second=True)
                    more, batches = 2, [self._operation(node.first, lanes), second]
                case ast.For() | ast.Repeat():
                    more, batches = self._loop(node, lanes)
                case ast.If():
                    more, batches = self._if(node, lanes)
                case _:
                    raise Unsuited
            made += [batch.behind(count) for batch in batches]
            count = count + more
        return count, made

    def _operation(self, node: ast.Operation | ast.Drain, lanes: Lanes) -> Batch:
        site, named = self.sites[node.span.end], node.microbatch if isinstance(node, ast.Operation) else None
        chunk, microbatch = (None if part is None else lanes.term(part) for part in (node.chunk, named))
        return Batch(site, 0, None, chunk, microbatch, drain=isinstance(node, ast.Drain))

    def _if(self, node: ast.If, lanes: Lanes) -> tuple[Any, list[Batch]]:
        condition = lanes.term(node.condition)
        if not condition.varies:
            return self.block(node.yes if condition.of else node.no, lanes)
        count, made = np.zeros(lanes.count, dtype=np.int64), list[Batch]()
        for which, body in ((condition.of, node.yes), (~condition.of, node.no)):
            index = np.flatnonzero(which)
            if len(index) and body:
                count[index], batches = self.block(body, lanes.within(len(index), index))
                made += [batch.around(index, 0) for batch in batches]
        return count, made

    def _loop(self, node: ast.For | ast.Repeat, lanes: Lanes) -> tuple[Any, list[Batch]]:
        ends = (node.low, node.high) if isinstance(node, ast.For) else (ast.Number(node.span, 0), node.count)
        low, high = (lanes.term(end) for end in ends)
        length = chosen(max, np.maximum, [arithmetic(operator.sub, high, low), one(0)])
        trips = np.broadcast_to(np.asarray(length.of, dtype=np.int64), lanes.count)
        if length.most * lanes.count > MOST and (length.most >= MOST or int(trips.sum()) > MOST):
            raise Unsuited
        total = int(trips.sum())
        self.spent += lanes.count + total * self.weights[id(node)]
        if not total:
            return 0, []
        index = np.repeat(np.arange(lanes.count), trips)
        first = np.cumsum(trips) - trips
        turn = np.arange(total) - first[index]
        inside = lanes.within(total, index)
        if isinstance(node, ast.For):
            inside.values[node.variable.id] = arithmetic(operator.add, low[index], Values(turn, 0, length.most - 1))
        each, batches = self.block(node.body, inside)
        if isinstance(each, int):
            before, count = turn * each, trips * each
        else:
            written = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(each)])
            before, count = written[:-1] - written[first][index], written[first + trips] - written[first]
        return count, [batch.around(index, before) for batch in batches]
