"""Executes the programs of many ranks at once: loops become arrays, without a call per operation.

    rank r { let w = min(p - 1 - r, m)  repeat w { F }  for k in w .. m { F  B } }

        lanes                  0 1 2 3            one rank each
        of the second loop     0 0 0 1 1 2 …      one iteration each; `w` is repeated, `k` counts
        F  B                   F B F B F B …      the operations of all iterations, one after another

Every statement runs once, over all lanes that reach it; a condition splits them. Numbers have known bounds: only
numbers that might exceed 62 bits are inspected, and most fit in 32 bits. If a program does not
depend on what has run, the module `turns` derives from the arrays the stages and microbatches that the module
`operations` determines one by one. Any unusual program, above all one with a mistake, raises `Unsuited`; the programs
then run operation by operation, which reports the mistake.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import NoneType
from typing import Any

import numpy as np

from pipesched.language import ast
from pipesched.language.execution import WIDEST, Names
from pipesched.language.translate import OPERATORS
from pipesched.model.columns import Ints
from pipesched.support.record import Record

MOST = 1 << 22  # most lanes at a time
NONE = -1  # the chunk or microbatch of an operation that does not name it
_LONG = 64  # operations of a lane from which they are copied lane by lane


class Unsuited(Exception):
    """Raised if arrays cannot reproduce a program."""


class Values(Record):
    """A value for each lane, or one value for all lanes: a number with bounds, or a boolean."""

    of: Any
    least: int = 0
    most: int = 1

    def within(self, carry: Callable[[Any], Any]) -> Values:
        """Return the values in lanes that are nested in these lanes."""
        return Values(carry(self.of), self.least, self.most) if self.varies else self

    @property
    def varies(self) -> bool:
        return isinstance(self.of, np.ndarray)

    @property
    def looked_at(self) -> Values:
        """Equal values with the tightest bounds."""
        return Values(self.of, int(self.of.min()), int(self.of.max())) if self.varies else self


def one(value: int) -> Values:
    """Return a value that is the same for all lanes."""
    return Values(value, int(value), int(value))


def _corners(by: Callable[[int, int], int], a: Values, b: Values) -> tuple[int, int]:
    ends = [by(x, y) for x in (a.least, a.most) for y in (b.least, b.most)]
    return min(ends), max(ends)


def alike(*parts: Values) -> list[Any]:
    """Return the plain numbers or arrays of the values, all in 64 bits if any of them may need 64."""
    for part in parts:
        if not -(2**31) < part.least <= part.most < 2**31:
            return [x.of.astype(np.int64, copy=False) if x.varies else x.of for x in parts]
    return [part.of for part in parts]


def arithmetic(by: Callable[[Any, Any], Any], a: Values, b: Values) -> Values:
    """Return a sum, a difference or a product."""
    least, most = _corners(by, a, b)
    if not -WIDEST < least <= most < WIDEST:
        a, b = a.looked_at, b.looked_at
        least, most = _corners(by, a, b)
        if not -WIDEST < least <= most < WIDEST:
            raise Unsuited
    return Values(by(*alike(a, b, Values(0, least, most))[:2]), least, most)


def division(by: Callable[[Any, Any], Any], a: Values, b: Values) -> Values:
    """Return the floor quotient, or the remainder of floor division."""
    if b.least <= 0 <= b.most and not np.all(b.of):
        raise Unsuited
    dividend, divisor = alike(a, b)
    quotient = dividend // divisor
    if by is operator.mod:
        return Values(dividend - quotient * divisor, min(b.least + 1, 0), max(b.most - 1, 0))
    if b.least == b.most:
        return Values(quotient, *_corners(by, a, b))
    widest = max(abs(a.least), abs(a.most))
    return Values(quotient, -widest, widest)


def chosen(by: Callable[[int, int], int], one_by_one: Callable[[Any, Any], Any], parts: Sequence[Values]) -> Values:
    """Return the smallest or the largest of several values in each lane."""
    made = parts[0]
    for part in parts[1:]:
        of = (one_by_one if made.varies or part.varies else by)(*alike(made, part))
        made = Values(of, by(made.least, part.least), by(made.most, part.most))
    return made


@dataclass
class Lanes:
    """Iterations side by side, and the names that are visible in them.

    above: the enclosing lanes; carry: maps values in the enclosing lanes to these lanes, None if they are the same.
    """

    count: int
    names: Names
    functions: dict[str, ast.Let]
    above: Lanes | None = None
    carry: Callable[[Any], Any] | None = None
    values: dict[str, Values] = field(default_factory=dict)

    def value(self, name: str) -> Values:
        """Return the value of a name in each lane."""
        if name not in self.values:
            if self.above is not None:
                value = self.above.value(name)
                self.values[name] = value if self.carry is None else value.within(self.carry)
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
                    return Values(by(*alike(a, b)))
                return division(by, a, b) if sign in ("//", "%") else arithmetic(by, a, b)
            case ast.Conditional():
                return self._conditional(node)
        raise Unsuited

    def _conditional(self, node: ast.Conditional) -> Values:
        condition = self.term(node.condition)
        if not condition.varies:
            return self.term(node.yes if condition.of else node.no)
        yes, no = self.term(node.yes), self.term(node.no)
        made = np.where(condition.of, *alike(yes, no))
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
            values = {x.id: part for x, part in zip(made.parameters or (), parts, strict=True)}
            return Lanes(self.count, self.names, self.functions, self, values=values).term(made.value)
        if name == "abs":
            parts = [parts[0], arithmetic(operator.mul, parts[0], one(-1))]
        if name not in ("min", "max", "abs"):
            raise Unsuited
        return chosen(min, np.minimum, parts) if name == "min" else chosen(max, np.maximum, parts)


class Written(Record):
    """The operations of lanes, lane by lane: their number in each lane, or one number for all lanes, and their columns.

    columns: sites, chunks and microbatches; a number stands for a constant column, None for a column of NONE. only: the
    lanes that may have operations, if not all.
    """

    count: Any
    columns: tuple[Any, ...] = (None, None, None)
    only: Any = ...

    @property
    def even(self) -> bool:
        return isinstance(self.count, int) and self.only is ...


class Expansion:
    """Executes the statements of a program over lanes.

    sites: the number of each operation, by its end offset in the text. weights: the cost of an iteration of each loop,
    by the id of its node. spent: the total cost so far. second: the sites of the second parts of overlap pairs; drains:
    the sites of `drain W`.
    """

    def __init__(self, sites: Mapping[int, int], weights: Mapping[int, int]) -> None:
        self.sites, self.weights = sites, weights
        self.types: tuple[Any, ...] = np.min_scalar_type(-1 - len(sites)), np.int16, np.int32
        self.spent, self.second, self.drains = 0, set[int](), set[int]()

    def block(self, statements: Iterable[ast.Statement], lanes: Lanes) -> Written:
        """Return the operations that each lane writes."""
        made: list[Written] = []
        for node in statements:
            match node:
                case ast.Let(name=name, parameters=None):
                    lanes.values[name.id] = lanes.term(node.value)
                case ast.Let(name=name):
                    lanes.functions[name.id] = node
                case ast.Operation() | ast.Drain():
                    made.append(self._operation(node, lanes))
                case ast.Overlap():
                    made += self._operation(node.first, lanes), self._operation(node.second, lanes)
                    self.second.add(self.sites[node.second.span.end])
                case ast.For() | ast.Repeat():
                    made.append(self._loop(node, lanes))
                case ast.If():
                    made.append(self._if(node, lanes))
                case _:
                    raise Unsuited
        return self._joined(made, lanes.count)

    def _operation(self, node: ast.Operation | ast.Drain, lanes: Lanes) -> Written:
        site = self.sites[node.span.end]
        if isinstance(node, ast.Drain):
            self.drains.add(site)
        named = node.microbatch if isinstance(node, ast.Operation) else None
        both = zip((node.chunk, named), self.types[1:], strict=True)
        return Written(1, (site, *(None if part is None else _index(lanes.term(part), type) for part, type in both)))

    def _if(self, node: ast.If, lanes: Lanes) -> Written:
        condition = lanes.term(node.condition)
        if not condition.varies:
            return self.block(node.yes if condition.of else node.no, lanes)
        made = []
        for which, body in ((condition.of, node.yes), (~condition.of, node.no)):
            if body and len(only := which.nonzero()[0]):
                inside = Lanes(len(only), lanes.names, lanes.functions, lanes, operator.itemgetter(only))
                part = self.block(body, inside)
                made.append(Written(counted([part], len(only)), part.columns, only))
        return self._joined(made, lanes.count)

    def _loop(self, node: ast.For | ast.Repeat, lanes: Lanes) -> Written:
        ends = (node.low, node.high) if isinstance(node, ast.For) else (ast.Number(node.span, 0), node.count)
        low, high = (lanes.term(end) for end in ends)
        length = chosen(max, np.maximum, [arithmetic(operator.sub, high, low), one(0)])
        times = length.of.astype(np.int64) if length.varies else length.of
        total = MOST + 1 if length.most > MOST else int(times.sum()) if length.varies else times * lanes.count
        if total > MOST:
            raise Unsuited
        self.spent += lanes.count + total * self.weights[id(node)]
        if not total:
            return Written(0)
        carry = operator.methodcaller("repeat", times)
        inside = Lanes(total, lanes.names, lanes.functions, lanes, carry)
        if isinstance(node, ast.For):
            turn = np.arange(total, dtype=np.int32)
            first = (times.cumsum() - times).astype(np.int32) if length.varies else turn[::times]
            turns = Values(turn - carry(first), 0, length.most - 1)
            inside.values[node.variable.id] = arithmetic(operator.add, low.within(carry), turns)
        made = self.block(node.body, inside)
        each = counted([made], total)
        if not isinstance(each, int):
            end, each = np.cumsum(times + np.zeros(lanes.count, dtype=np.int64)), np.append(0, np.cumsum(each))
            return Written(each[end] - each[end - times], made.columns)
        return Written(times * each, made.columns)

    def _joined(self, parts: Sequence[Written], lanes: int) -> Written:
        """Return the operations of statements that follow each other in each lane."""
        parts = [part for part in parts if not isinstance(part.count, int) or part.count]
        if len(parts) < 2:
            return parts[0] if parts else Written(0)
        count = counted(parts, lanes)
        if all(part.even for part in parts):
            shape: tuple[int, ...] = lanes, count
            ends = accumulate(part.count for part in parts)
            runs = [[(np.s_[:, end - part.count : end], ...)] for end, part in zip(ends, parts, strict=True)]
        else:
            end = (count + np.zeros(lanes, dtype=np.int64)).cumsum()
            shape, runs, at = (int(end[-1]),), [], end - count
            for part in parts:
                runs.append(_runs(at[part.only].copy(), part.count))
                at[part.only] += part.count
        columns = zip(zip(*(part.columns for part in parts), strict=True), self.types, strict=True)
        return Written(count, tuple(_filled(shape, type, values, runs) for values, type in columns))


def _filled(shape: tuple[int, ...], dtype: Any, values: Sequence[Any], runs: Sequence[list[tuple[Any, Any]]]) -> Any:
    """Return one column for several statements, None if all are NONE. runs: the target indices of each statement."""
    if {*map(type, values)} == {NoneType}:
        return None
    column = np.empty(shape, dtype=dtype)
    for value, places in zip(values, runs, strict=True):
        many = isinstance(value, np.ndarray)
        part: Any = value.reshape(*shape[:-1], -1) if many else NONE if value is None else value
        for to, of in places:
            column[to] = part[of] if many else part
    return column.reshape(-1)


def _index(value: Values, type: Any) -> Any:
    """Return chunks or microbatches; raise Unsuited if they do not fit the type of a column."""
    most = int(np.iinfo(type).max)
    value = value if value.least >= 0 and value.most <= most else value.looked_at
    if value.least < 0 or value.most > most:
        raise Unsuited
    return value.of


def counted(parts: Sequence[Written], lanes: int) -> Any:
    """Return the number of operations of each lane, as one number if it is the same for all lanes."""
    if all(part.even for part in parts):
        return sum(part.count for part in parts)
    count = np.zeros(lanes, dtype=np.int64)
    for part in parts:
        count[part.only] += part.count
    return count if (count != count[0]).any() else int(count[0])


def _runs(begin: Ints, times: Any) -> list[tuple[Any, Any]]:
    """Return pairs of target and source indices of a statement's operations: one, or one per lane if lanes are long."""
    if isinstance(times, int) and times == 1:
        return [(begin, ...)]
    times = times + np.zeros_like(begin)
    end = times.cumsum()
    first = end - times
    if len(begin) * _LONG > end[-1] + _LONG**2:
        return [(np.repeat(begin - first, times) + np.arange(end[-1]), ...)]
    rows = zip(begin.tolist(), first.tolist(), times.tolist(), strict=True)
    return [(slice(to, to + many), slice(of, of + many)) for to, of, many in rows]
