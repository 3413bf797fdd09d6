"""Executes translated code with a budget and exact arithmetic, and converts its exceptions to findings.

Every expression is charged before it runs (`translate` determines its cost); one budget covers a file at one size,
including its claims. `Halt` is raised by functions that a program calls (a chunk that does not exist, an exhausted
budget); `report` turns it, and Python's own ZeroDivisionError, into a diagnostic with the place and the bindings, read
from the frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import islice
from types import CodeType, TracebackType
from typing import TypeAlias

from pipesched.diagnostics import Code, Label, PipeschedError, fail
from pipesched.language import ast
from pipesched.language.translate import FILENAME, OPERATORS
from pipesched.support.record import Record
from pipesched.support.source import Source, Span

WIDEST = 2**62
FINEST = 2**256  # largest denominator: products of a few costs have that many digits, and no claim has more
BUDGET = 40  # parts of expressions per operation; published schedules take up to 25

Number: TypeAlias = int | Fraction


class Halt(Exception):
    """Raised when a program cannot continue. It is reported at the calling code."""

    def __init__(self, code: Code, message: str, label: str, help: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.label, self.help = code, message, label, help


def _within(what: str, by: Callable[[Number, Number], Number], a: Number, b: Number) -> Number:
    """Apply an operator to two values, and refuse results beyond 62 bits: no number in a schedule is that large, and
    longer numbers would take unbounded time. The denominator of a fraction may have more bits, up to a limit.
    """
    value = by(a, b)
    fine = value.denominator
    if abs(value.numerator) >= WIDEST * fine:
        raise Halt(Code.OVERFLOW, f"{what} exceeds 62 bits", "this is too large")
    if fine >= FINEST:
        raise Halt(Code.OVERFLOW, f"the denominator of {what} has more than 256 bits", "this is too fine")
    return value


def entry(name: str, entries: Sequence[int], index: Number) -> int:
    """Return the entry ``name[index]`` of a list."""
    if index.denominator != 1 or not 0 <= index < len(entries):
        message = f"`{name}` has no entry {index}: it has {len(entries)} entries, counted from 0"
        help = f"its entries are {name}[0] to {name}[{len(entries) - 1}]"
        raise Halt(Code.ENTRY, message, "reads this entry", help)
    return entries[int(index)]


@dataclass
class Budget:
    """The number of steps that may still run; expressions and loop iterations are charged before they run."""

    left: int
    limit: int

    @classmethod
    def of(cls, max_ops: int) -> Budget:
        return cls(BUDGET * max_ops, BUDGET * max_ops)

    def pay(self, cost: int) -> None:
        """Charge the budget for the next step."""
        self.left -= cost
        if self.left < 0:
            raise self._spent("the limit is reached here")

    def steps(self, low: int, high: int, weight: int) -> range:
        """Charge the budget for a loop and return its range."""
        self.left -= 1 + max(high - low, 0) * weight
        if self.left < 0:
            raise self._spent(f"would run {max(high - low, 0)} times")
        return range(low, high)

    def _spent(self, label: str) -> Halt:
        message = f"the loops and expressions of this file take more than {self.limit} steps"
        help = "check the bounds of loops, and functions that call others more than once; --max-ops raises the limit"
        return Halt(Code.TOO_MANY_STEPS, message, label, help)


_WIDENING = {"+": "a sum", "-": "a sum", "*": "a product", "/": "a quotient"}
_FUNCTIONS = {"__builtins__": {}, "entry": entry, "v_min": min, "v_max": max, "v_abs": abs}
_FUNCTIONS |= {sign: by for sign, (_, _, by) in OPERATORS.items()}
_FUNCTIONS |= {sign: partial(_within, what, OPERATORS[sign][2]) for sign, what in _WIDENING.items()}


@dataclass
class Names:
    """The names that translated code may use, with their values; names of a file have the prefix ``v_``.

    code: the compiled parts of the file, by the id of their node.
    """

    budget: Budget
    code: Mapping[int, CodeType]
    values: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = {**_FUNCTIONS, "pay": self.budget.pay, **self.values}

    def __setitem__(self, name: str, value: object) -> None:
        self.values[f"v_{name}"] = value

    def get(self, name: str) -> object:
        """Return the value of a name of the file, or None."""
        return self.values.get(f"v_{name}")

    def number(self, node: ast.Expression, *of: int) -> int:
        """Return the value of an expression; for an expression that depends on a stage or a rank, its value at `of`."""
        value: int = self.function(node)(*of) if of else eval(self.code[id(node)], self.values)
        return value

    def function(self, node: ast.Expression) -> Callable[..., int]:
        """Return the function for an expression that depends on a stage or a rank."""
        made: Callable[..., int] = eval(self.code[id(node)], self.values)
        return made

    def run(self, item: ast.Let | ast.Rank) -> None:
        """Execute statements, which may define names."""
        exec(self.code[id(item)], self.values)


class Loop(Record):
    """A loop of a rank's program: its variable in the running code, and the offsets where its body starts and ends."""

    name: str
    start: int
    end: int


@contextmanager
def reported(source: Source) -> Iterator[None]:
    """Convert errors of translated code to findings at their positions in the source.

    Raises:
        PipeschedError: PS2xx: the code fails; the finding shows the place and the bindings.
    """
    try:
        yield
    except (ZeroDivisionError, Halt) as error:
        raise report(error, source) from None


def report(
    error: Halt | ZeroDivisionError, source: Source, what: str = "", loops: Sequence[Loop] = ()
) -> PipeschedError:
    """Convert an exception of translated code to a diagnostic; `what` names the rank."""
    span, bindings = locate(error, source, loops)
    where = ", ".join(filter(None, [what, bindings]))
    halt = error if isinstance(error, Halt) else Halt(Code.DIVISION, "division by zero", "divides by zero")
    return fail(halt.code, halt.message, Label(span, halt.label + (f" ({where})" if where else "")), help=halt.help)


def locate(error: BaseException, source: Source, loops: Sequence[Loop] = ()) -> tuple[Span | None, str]:
    """Return the span in the .ps file of the innermost translated code, and the bindings of its loops and last call."""
    span, around, called = None, list[str](), list[str]()
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code, values = trace.tb_frame.f_code, trace.tb_frame.f_locals
        if code.co_filename == FILENAME:
            begin, end, *_ = next(islice(code.co_positions(), trace.tb_lasti // 2, None), (None, None))
            span = None if begin is None or end is None else source.span(begin - 1, end - 1)
            if code.co_name == "<lambda>":
                called = _bindings(values, [name for name in values if name.startswith("v_")])
            elif span is not None:
                names = [loop.name for loop in loops if loop.start <= span.start and span.end <= loop.end]
                around += _bindings(values, names)
        trace = trace.tb_next
    return span, ", ".join(around + called)


def _bindings(values: Mapping[str, object], names: Sequence[str]) -> list[str]:
    """Format bindings: ``k = 5`` for enclosing loops and a function's arguments, ``iteration 3`` for a repeat."""
    found = [(name, value) for name in names if isinstance(value := values.get(name), int)]
    return [f"iteration {value + 1}" if name.startswith("n_") else f"{name[2:]} = {value}" for name, value in found]
