"""Access to isl: sets and maps of integers with parameters, and decisions of subset tests.

    Set      { [r, i] : 0 <= r < p and 0 <= i < m }
    Map      { S[r, i] -> [r + i] }

A PwAff is an expression by cases, which may contain floor(x / 4). A union consists of sets or maps in several spaces.
Only this module imports isl, whose objects have no static types.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import import_module
from itertools import zip_longest
from math import inf, lcm
from typing import Any, TypeAlias

from pipesched.diagnostics import Code, fail

Context: TypeAlias = Any
Set: TypeAlias = Any
Map: TypeAlias = Any
Affine: TypeAlias = Any
"""A condition, an expression without cases, or a set that consists of one piece."""
PwAff: TypeAlias = Any
Value: TypeAlias = Any
"""A number, an expression, or a number of several digits; in a scope also a truth value (bool or Set)."""
UnionSet: TypeAlias = Any
UnionMap: TypeAlias = Any
Point: TypeAlias = tuple[int, ...]

OPERATIONS = 20_000_000  # isl operations for one question, which take some seconds


MEMORY = 2**30  # bytes by which a question may raise the memory of the process
STEPS = 100_000_000  # our own steps for one question; a row of a fit is one step


class TooHard(Exception):
    """Raised if a question needs more steps than its budget allows."""


class _Left:
    """The Python steps that are left for a question, and the memory limit of the process; inf outside a question."""

    steps: float = inf
    memory: float = inf


def _peak() -> int:
    """Return the peak bytes of the process, or 0 if the system does not report them."""
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:  # Windows
        return 0
    return getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def spend(steps: int) -> None:
    """Charge Python steps to the budget.

    Raises:
        TooHard: the budget is exhausted, or the question took too much memory.
    """
    _Left.steps -= steps
    if _Left.steps < 0 or _peak() > _Left.memory:
        raise TooHard


@cache
def isl() -> Any:
    """Return the module islpy.

    Raises:
        PipeschedError: PS820: islpy is not installed.
    """
    try:
        return import_module("islpy")
    except ImportError:
        message = "proofs need islpy, which is not installed"
        raise fail(Code.NEEDS, message, help="pip install 'pipesched[prover]'") from None


def _spent(context: Context) -> bool:
    """Return True if the limit on operations is reached; after that, every call fails, or returns None for a number."""
    try:
        isl().Set.read_from_str(context, "{ [x] : 0 < x < 9 }").is_empty()
    except isl().Error:
        return True
    return False


@contextmanager
def bounded(context: Context, operations: int = OPERATIONS) -> Iterator[None]:
    """Limit the operations that isl may perform inside the block.

    Raises:
        TooHard: the limit is reached.
    """
    context.reset_operations()
    context.set_max_operations(operations)
    outside = _Left.steps, _Left.memory
    _Left.steps, _Left.memory = STEPS, _peak() + MEMORY
    try:
        yield
    except (isl().Error, TypeError, AttributeError):
        if not _spent(context):
            raise
        raise TooHard from None
    finally:
        context.set_max_operations(0)
        context.reset_operations()
        _Left.steps, _Left.memory = outside


@dataclass(frozen=True, eq=False)
class Space:
    """A space of points, with the names of its parameters and its dimensions."""

    context: Context
    parameters: tuple[str, ...]
    dims: tuple[str, ...]

    def __post_init__(self) -> None:
        made = isl().Space.create_from_names(self.context, set=[*self.dims], params=[*self.parameters])
        object.__setattr__(self, "universe", isl().Set.universe(made))
        object.__setattr__(self, "local", isl().LocalSpace.from_space(made))

    universe: Set = None
    local: Value = None

    def number(self, value: int | Fraction) -> Value:
        """Return a constant value."""
        return self.constant(value)

    def constant(self, value: int | Fraction) -> PwAff:
        """Return a constant expression."""
        return isl().PwAff.from_aff(isl().Aff.val_on_domain(self.local, self.value(value)))

    def value(self, value: int | Fraction) -> Value:
        """Convert a number to an isl value."""
        return isl().Val(str(value), self.context)

    @property
    def width(self) -> int:
        """The number of digits of a value."""
        return 1

    def named(self, name: str) -> Value:
        """Return the size or dimension with this name."""
        return self.raw(name)

    def raw(self, name: str) -> PwAff:
        """Return the parameter or dimension with this name, as an expression."""
        kind = isl().dim_type
        where = (kind.param, self.parameters) if name in self.parameters else (kind.set, self.dims)
        return isl().PwAff.from_aff(isl().Aff.var_on_domain(self.local, where[0], where[1].index(name)))

    def digits(self, value: Value) -> list[PwAff]:
        """Return the digits of a value, one expression per dimension."""
        return [value]

    def joined(self, digits: list[PwAff]) -> Value:
        """Return the value with these digits."""
        return digits[0]

    def polynomial(self, value: Value, on: Set) -> Value:
        """Return a value as a polynomial of sizes."""
        return isl().PwQPolynomial.from_pw_aff(value.intersect_domain(on))

    def less_one(self) -> str:
        """Return the text of the map from a value to the value before it."""
        return "{ [k] -> [k - 1] : k != 0 }"

    def naturals(self) -> str:
        """Return the text of the set of all values from 0 on."""
        return "{ [k] : k >= 0 }"

    def below(self) -> Map:
        """Return the map from a value to all larger values."""
        return isl().Map.lex_lt(self._values())

    def at_most(self) -> Map:
        """Return the map from a value to all values that are not smaller."""
        return isl().Map.lex_le(self._values())

    def _values(self) -> Value:
        return isl().Space.create_from_names(self.context, set=[f"d{k}" for k in range(self.width)])

    def combination(self, weights: list[Fraction], of: list[Value]) -> Value:
        """Return a weighted sum of expressions."""
        total: Value | None = None
        for weight, term in zip(weights, of, strict=True):
            if weight:
                own = term.scale_val(self.value(weight))
                total = own if total is None else total.add(own)
        return of[0].scale_val(self.value(0)) if total is None else total


def only_point(of: Set) -> Point:
    """Return the coordinates of the only point of a set without parameters."""
    point, kind = of.sample_point(), isl().dim_type.set
    return tuple(point.get_coordinate_val(kind, k).to_python() for k in range(of.dim(kind)))


def smallest(of: Set, parameters: int) -> Point:
    """Return the parameters with the least sum at which a set has a point; among these, those with the smallest first
    parameter.
    """
    kind = isl().dim_type
    sizes = of.move_dims(kind.set, 0, kind.param, 0, parameters)
    sizes = sizes.project_out(kind.set, parameters, sizes.dim(kind.set) - parameters)
    names = [f"x{k}" for k in range(parameters)]
    summed = f"{{ [{', '.join(names)}] -> [{' + '.join(names)}, {', '.join(names)}] }}"
    least = sizes.apply(isl().Map.read_from_str(of.get_ctx(), summed)).lexmin()
    return only_point(least)[1:]


def map_to(expression: PwAff, domain: Set, name: str) -> Map:
    """Return the map ``{ name[...] -> [expression] }`` on a domain."""
    made = isl().Map.from_pw_aff(expression.intersect_domain(domain))
    return made.set_tuple_name(isl().dim_type.in_, name)


def maps_to(expressions: list[PwAff], domain: Set, name: str) -> Map:
    """Return the map ``{ name[...] -> [expression, ...] }`` on a domain."""
    made = map_to(expressions[0], domain, name)
    for expression in expressions[1:]:
        made = made.flat_range_product(map_to(expression, domain, name))
    return made


def union(maps: list[Map], empty: str, context: Context) -> UnionMap:
    """Return the union of maps of several spaces. empty: the text of an empty map, which names the parameters."""
    made = [isl().UnionMap.read_from_str(context, empty), *map(isl().UnionMap.from_map, maps)]
    while len(made) > 1:  # by halves, as each union copies its first part
        made = [first.union(second) for first, second in zip_longest(made[::2], made[1::2], fillvalue=made[0])]
    return made[0]


def parts(of: UnionMap | UnionSet) -> list[Map]:
    """Return the maps in a union, one per space."""
    found: list[Map] = []
    (of.foreach_map if hasattr(of, "foreach_map") else of.foreach_set)(found.append)
    return found


def coefficients(of: Affine) -> list[Fraction]:
    """Return the weights of 1, the parameters, the dimensions and the quotients in a condition or expression."""
    kind = isl().dim_type
    kinds = kind.param, kind.in_ if isinstance(of, isl().Aff) else kind.set, kind.div
    found = [of.get_coefficient_val(own, k) for own in kinds for k in range(of.dim(own))]
    return [Fraction(x.to_str()) for x in (of.get_constant_val(), *found)]


def denominator(of: PwAff) -> int:
    """Return the smallest factor that makes an expression a whole number."""
    return lcm(*(int(aff.get_denominator_val().to_python()) for _, aff in of.get_pieces()), 1)


def case(condition: Set, yes: PwAff, no: PwAff) -> PwAff:
    """Return an expression with two cases: `yes` where the condition holds, `no` elsewhere."""
    return yes.intersect_domain(condition).union_add(no.intersect_domain(condition.complement()))
