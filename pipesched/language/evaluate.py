"""Evaluates a file at given sizes into a schedule.

    parameters -> lets and requires -> placement -> the program of every rank -> columns
                                           \\__ costs

Loops are expanded only after the size of the result is known, and programs run as bytecode (`translate`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np

from pipesched import render
from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.extension import Extended, Statement, explained, rows
from pipesched.language import ast
from pipesched.language.execution import Budget, Names, reported
from pipesched.language.lanes import Lanes, Unsuited, Values
from pipesched.language.placement_lines import place
from pipesched.language.rank_programs import FEW, Programs
from pipesched.language.turns import functions_of
from pipesched.language.typecheck import Checked
from pipesched.model.columns import Column, Ints, computes
from pipesched.model.cost_values import Cost, least
from pipesched.model.costs import Costs
from pipesched.model.grid import Grid, reduced
from pipesched.model.numbers import Value, entries
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule, Steps

MAX_OPS = 2_000_000
DIGITS = 30  # most digits of a parameter, as on the command line
NOT_GIVEN = Costs()  # one for all, which keeps its ticks


@dataclass(frozen=True)
class Unit(Extended):
    """A file at one size: its schedule, the costs in the file, its claims, and the values of its statements."""

    schedule: Schedule
    costs: Costs
    checked: Checked
    names: Names

    @property
    def statements(self) -> tuple[str, ...]:
        """The statements of extensions with their values at this size, as text."""
        both = ((row, value) for row in rows(Statement) for value in self.owned if row.owner and row.owner.makes(value))
        return tuple(line for row, value in both for line in row.lines.load()(value))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on an order that a rule generates: the costs that determined it."""
        given = str(self.costs) if self.costs.given else "1 for each result"
        return (f"ordered by `{rule}` with the costs in the file: {given}",) if (rule := self.checked.rule) else ()


def at_size(
    checked: Checked, parameters: Mapping[str, Value], *, max_ops: int = MAX_OPS, deciding: Costs | None = None
) -> Unit:
    """Evaluate a checked file at a size. deciding: the costs that a rule uses instead of the costs in the file.

    Raises:
        PipeschedError: PS2xx: the evaluation fails; the finding shows the place and the bindings.
    """
    with reported(checked.file.span.source):
        names, values, placement = evaluated(checked, parameters, max_ops)
        costs = _costs(checked, names, placement)
        placement = replace(placement, slices=_slices(checked, names, placement))
        stated = (row for row in rows(Statement) if checked.items(getattr(ast, row.node)))
        owned = tuple(row.read.load()(checked, names, placement) for row in stated)
        programs = Programs(checked, names, placement, max_ops, deciding or costs)
        (op, keys, second), start = programs.run(), programs.start
    inside, steps = np.flatnonzero(op == int(Op.STEP)), None
    if placement.frozen or len(inside):
        stepped, ranks = keys[inside] // placement.microbatches, np.searchsorted(start, inside, side="right") - 1
        op, kept = _wanted(checked, placement, op, programs.sites, keys)
        op, keys, second, start = op[kept], keys[kept], second[kept], np.searchsorted(kept, start).astype(np.int64)
        origin, programs.kept = copy(programs), kept
        origin.kept = inside
        steps = Steps(ranks, stepped, np.searchsorted(kept, inside), _rule(checked, names), origin=origin)
        steps = steps if len(inside) and not steps.final(placement, op, start) else None
    m = placement.microbatches
    narrow = keys.astype(np.int32, copy=False) if placement.stages * m < 2**31 else keys  # 32 bits divide much faster
    stage = narrow // m
    narrow -= stage * m
    schedule = Schedule(
        checked.file.name.id,
        values,
        placement,
        op=op,
        stage=stage.astype(np.int32, copy=False),
        microbatch=narrow.astype(np.int32, copy=False),
        second=second,
        start=start,
        origin=programs,
        title=checked.file.title or "",
        steps=steps,
    )
    return Unit(schedule, costs, checked, names, owned=owned)


def _wanted(checked: Checked, placement: Placement, op: Column, sites: Ints, keys: Ints) -> tuple[Column, Ints]:
    """Return kinds adapted to frozen stages, and the indices of operations that are needed or name a microbatch."""
    compute = computes(op)
    wanted = np.where(compute, placement.wanted[op * compute, keys // placement.microbatches], -1)
    named = np.array([site.named for site in checked.sites], dtype=np.bool_)[sites]
    return np.where(named & (wanted < 0), op, wanted), np.flatnonzero(named | (wanted >= 0))


def evaluated(
    checked: Checked, parameters: Mapping[str, Value], max_ops: int
) -> tuple[Names, dict[str, Value], Placement]:
    """Evaluate everything before the order; return the known names, the parameters and the placement."""
    names = Names(Budget.of(max_ops), checked.code)
    values = parameters_of(checked, parameters, names, max_ops)
    if refused := refusal(checked, names):
        raise PipeschedError(explained("sizes", [_requires(refused, names, checked)], checked, parameters, values))
    return names, values, place(checked, names, max_ops)


def refusal(checked: Checked, names: Names) -> ast.Require | None:
    """Evaluate lets and requirements; return the first requirement that is not satisfied, or None."""
    routes = dict.fromkeys(line.route.id for line in checked.items(ast.Stages) if line.route)
    for number, name in enumerate(routes):
        names[name] = number
    for item in checked.file.items:
        if isinstance(item, ast.Let):
            names.run(item)
        elif isinstance(item, ast.Require) and not names.number(item.condition):
            return item
    return None


def require_parameters(checked: Checked, given: Mapping[str, Value]) -> None:
    """Require that the file has every given parameter, and that no parameter without a default is missing."""
    known = checked.parameters
    wrong = [_unknown(name, checked) for name in given if name not in known]
    missing = [x for x in known if x not in given and known[x].default is None]
    if missing:
        listed = ", ".join(f"`{x}`" for x in missing)
        flags = " ".join(f"--{x} N" if x in ("p", "v", "m") else f"-D {x}=N" for x in missing)
        message = f"schedule {checked.file.name.id} needs a value for {listed}"
        label = Label(checked.file.name.span, "has no default")
        wrong.append(Diagnostic(Code.PARAMETER_MISSING, message, (label,), (), f"add {flags}"))
    if wrong:
        raise PipeschedError(wrong)
    long = [name for name, value in given.items() if any(abs(x) >= 10**DIGITS for x in entries(value))]
    if long:
        raise fail(Code.USAGE, f"parameter `{long[0]}` has more than {DIGITS} digits")


def parameters_of(checked: Checked, given: Mapping[str, Value], names: Names, max_ops: int) -> dict[str, Value]:
    require_parameters(checked, given)
    values: dict[str, Value] = {}
    for name, declared in checked.parameters.items():
        value = given[name] if declared.default is None or name in given else names.number(declared.default)
        if declared.size is not None:
            value = _list(declared, names.number(declared.size), value, max_ops, name in given)
        elif isinstance(value, tuple):
            message = f"parameter `{name}` is one number, but {len(value)} were given"
            raise fail(Code.LIST, message, help="give one size at a time, or declare a list: `name[m]`")
        values[name] = names[name] = value
    return values


def _list(declared: ast.Parameter, size: int, value: Value, max_ops: int, given: bool) -> tuple[int, ...]:
    """Return the entries of a list parameter: the given entries, or the default repeated."""
    name, label = declared.name.id, Label(declared.span, f"has {size} entries here")
    if size > max_ops:
        raise fail(Code.TOO_MANY_OPERATIONS, f"{size} entries of `{name}`; the limit is {max_ops}", label)
    if size < 0:
        raise fail(Code.LIST, f"list `{name}` would have {size} entries", label, help="choose other sizes")
    if not given:
        return (*entries(value),) * size
    if len(entries(value)) != size:
        count, lines = len(entries(value)), f"-D {name}=@FILE, or {size} numbers: -D {name}=1,2,..."
        message = f"list `{name}` has {size} entries; {count} {'was' if count == 1 else 'were'} given"
        raise fail(Code.LIST, message, label, help=f"give {lines}")
    return tuple(entries(value))


def _unknown(name: str, checked: Checked) -> Diagnostic:
    takes = ", ".join(checked.parameters) or "none"
    message = f"schedule {checked.file.name.id} has no parameter `{name}`"
    label = Label(checked.file.name.span, f"takes {takes}")
    found = Diagnostic(Code.PARAMETER_UNKNOWN, message, (label,), (), f"its parameters: {takes}")
    return explained("parameter", [found], name, checked.parameters)[0]


def _requires(node: ast.Require, names: Names, checked: Checked) -> Diagnostic:
    used = ((x, names.get(x)) for x in sorted(ast.names_in(node.condition)))
    values = ", ".join(f"{x} = {render.size(value)}" for x, value in used if isinstance(value, int | tuple))
    condition = " ".join(node.condition.span.text.split())
    message = f"{checked.file.name.id} requires {condition}" + (f": {node.message}" if node.message else "")
    here = Label(node.condition.span, f"false with {values}" if values else "false")
    return Diagnostic(Code.REQUIRE, message, (here,), (), "choose other sizes")


def _rule(checked: Checked, names: Names) -> str:
    """Return the rule of `versions`, such as ``stash`` or ``delay 1``; "" without one."""
    for node in checked.items(ast.Versions):
        if node.delay is None:
            return node.rule
        if (delay := names.number(node.delay)) < 0:
            label = Label(node.delay.span, f"this is {delay}")
            raise fail(Code.VERSIONS, "a delay is negative", label, help="`delay 0` reads the newest version")
        return f"{node.rule} {delay}"
    return ""


def _slices(checked: Checked, names: Names, placement: Placement) -> int:
    """Return the number of slices per sequence: 1 without `slices`."""
    for node in checked.items(ast.Slices):
        count = names.number(node.count)
        label = Label(node.span, f"{count} slices per sequence")
        if count < 1:
            raise fail(Code.SLICES, f"a sequence has {count} slices", label, help="a sequence needs at least one slice")
        if placement.microbatches % count:
            message = f"{placement.microbatches} microbatches do not make a whole number of sequences of {count} slices"
            raise fail(Code.SLICES, message, label, help="m counts slices: choose a multiple of those in one sequence")
        cuts = np.flatnonzero(np.diff(placement.route_of)) + 1
        if len(cuts[cuts % count != 0]):
            at = int(cuts[cuts % count != 0][0])
            message = f"the slices of sequence {at // count} take more than one route"
            help = f"a route begins at microbatch {at}: choose a multiple of {count}"
            raise fail(Code.SLICES, message, label, help=help)
        return count
    return 1


def _by_formula(entry: ast.Cost, value: ast.Expression, names: Names, placement: Placement, checked: Checked) -> Cost:
    """Evaluate ``F[s, i] = e`` for as few indices as possible: only the indices that e uses vary."""
    used, cost = ast.names_in(value), names.function(value)
    both = zip(entry.of, (placement.stages, placement.microbatches), strict=False)
    sizes = {name.id: size if name.id in used else 1 for name, size in both}
    made = _beside(value, cost, names, sizes, checked)
    if made is None:
        stages, *microbatches = map(range, sizes.values())
        made = Grid.of([[cost(stage, *at) for at in product(*microbatches)] for stage in stages])
    if made.even:
        return made.column if len(made.whole) > 1 else made.column[0]
    return Grid(np.broadcast_to(made.whole, (placement.stages, placement.microbatches)), made.scale)


def _beside(
    value: ast.Expression, cost: Callable[..., int], names: Names, sizes: Mapping[str, int], checked: Checked
) -> Grid | None:
    """Return a formula's values at all indices, computed with arrays, or None if that is not possible."""
    shape, left = tuple(sizes.values()), names.budget.left
    cost(*(0 for _ in shape))
    spent, names.budget.left = (left - names.budget.left) * prod(shape), left
    if prod(shape) < FEW or spent > left:
        return None
    lanes = Lanes(1, names, functions_of(checked))
    for (name, size), at in zip(sizes.items(), np.ix_(*map(range, shape)), strict=True):
        lanes.values[name] = Values(at, 0, size - 1)
    match value:
        case ast.Binary(operator="/", left=parts, right=ast.Number(value=int(over))) if over:
            value = parts
        case _:
            over = 1
    with suppress(Unsuited):
        made = reduced(np.broadcast_to(lanes.term(value).of, shape).reshape(shape[0], -1), over)
        names.budget.pay(spent)
        return made
    return None


def _costs(checked: Checked, names: Names, placement: Placement) -> Costs:
    """Return the costs in the file. An error that concerns all entries is reported at the first one."""
    given: dict[str, Cost] = {}
    stages, microbatches = placement.stages, placement.microbatches
    entries = [entry for item in checked.items(ast.Costs) for entry in item.entries]
    if not entries:
        return NOT_GIVEN
    for entry in entries:
        cost: Cost
        if entry.value is None:
            cost = tuple(Fraction(names.number(value)) for value in entry.values or ())
        elif entry.of:
            cost = _by_formula(entry, entry.value, names, placement, checked)
        else:
            cost = Fraction(names.number(entry.value))
        wrong = "given twice" if entry.name in given else "negative" if least(cost) < 0 else ""
        if entry.values and len(entry.values) != stages:
            wrong = f"a list of {len(entry.values)} numbers for {stages} stages"
        if wrong:
            raise fail(Code.COSTS, f"cost {entry.name} is {wrong}", Label(entry.span, "here"))
        given[entry.name] = cost
    costs = Costs(given)
    try:
        costs.ticks(stages, microbatches)
        costs.held(stages, microbatches)
    except PipeschedError as error:
        (found,) = error.diagnostics
        raise PipeschedError([replace(found, labels=(Label(entries[0].span, "given here"),))]) from None
    return costs
