"""A file at given sizes: its schedule.

    parameters -> lets and requires -> placement -> the program of every rank -> columns

Nothing is expanded before its size is known, and nothing is interpreted: the programs are bytecode (`translate`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import CodeType
from typing import Any

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.language import ast
from pipesched.language.claims import Facts, Verdict, judge_all
from pipesched.language.execution import Budget, Halt, pure, report
from pipesched.language.placement_lines import place
from pipesched.language.rank_programs import Programs
from pipesched.language.scope import LONG, MANY
from pipesched.language.typecheck import Checked, check_file
from pipesched.model.columns import Column, Ints
from pipesched.model.costs import Cost, Costs
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule

MAX_OPS = 2_000_000
DIGITS = 30  # of a parameter: as many as the command line takes


@dataclass(frozen=True)
class Unit:
    """A file at one size: its schedule, its default costs (what it gives, nothing else), and its claims."""

    schedule: Schedule
    costs: Costs
    checked: Checked
    names: Mapping[str, Any]

    def judge(self, facts: Facts) -> list[Verdict]:
        """The verdict on every claim, in the order of the file."""
        return judge_all(self.checked.claims, facts, self.names, len(self.schedule))


def evaluate(file: ast.File, parameters: Mapping[str, int], *, max_ops: int = MAX_OPS) -> Unit:
    """Check a file and run it at a size.

    Raises:
        PipeschedError: PS2xx, with the place and the bindings.
    """
    return at_size(check_file(file), parameters, max_ops=max_ops)


def at_size(checked: Checked, parameters: Mapping[str, int], *, max_ops: int = MAX_OPS) -> Unit:
    """Run a checked file at a size.

    Raises:
        PipeschedError: PS2xx, with the place and the bindings.
    """
    budget, names, values, placement = _placed(checked, parameters, max_ops)
    costs = _costs(checked, names, placement.stages)
    programs = Programs(checked, names, placement, budget, max_ops)
    keys, second = programs.run()
    op, start = np.array([Op[site.op] for site in checked.sites], dtype=np.int8)[programs.sites], programs.start
    if placement.frozen:
        op, kept = _wanted(checked, placement, op, programs.sites, keys)
        op, keys, second, start = op[kept], keys[kept], second[kept], np.searchsorted(kept, start).astype(np.int64)
        programs.kept = kept
    schedule = Schedule(
        checked.file.name.id,
        values,
        placement,
        op,
        (keys // placement.microbatches).astype(np.int32),
        (keys % placement.microbatches).astype(np.int32),
        second,
        start,
        programs,
        checked.file.title or "",
    )
    return Unit(schedule, costs, checked, names)


def _wanted(checked: Checked, placement: Placement, op: Column, sites: Ints, keys: Ints) -> tuple[Column, Ints]:
    """The kinds as frozen stages run them, and where they run: what nobody wants and no microbatch names is no more."""
    wanted = placement.wanted[op, keys // placement.microbatches]
    named = np.array([site.named for site in checked.sites], dtype=np.bool_)[sites]
    return np.where(named & (wanted < 0), op, wanted), np.flatnonzero(named | (wanted >= 0))


def placement_at(checked: Checked, parameters: Mapping[str, int], *, max_ops: int = MAX_OPS) -> Placement:
    """Where a checked file has its stages at a size; its order is not run.

    Raises:
        PipeschedError: PS2xx, with the place.
    """
    return _placed(checked, parameters, max_ops)[3]


def _placed(
    checked: Checked, parameters: Mapping[str, int], max_ops: int
) -> tuple[Budget, dict[str, Any], dict[str, int], Placement]:
    """What comes before the order: the budget, the names that are known, the parameters, the placement."""
    budget = Budget.of(max_ops)
    names = pure(budget)
    values = _parameters(checked, parameters, names)
    _routes(checked, names)
    _steps(checked, names)
    return budget, names, values, place(checked, names, max_ops)


def _parameters(checked: Checked, given: Mapping[str, int], names: dict[str, Any]) -> dict[str, int]:
    known = checked.defaults
    wrong = [_unknown(name, checked) for name in given if name not in known]
    missing = [x for x in known if x not in given and known[x] is None]
    if missing:
        listed = ", ".join(f"`{x}`" for x in missing)
        flags = " ".join(f"--{x} N" if x in ("p", "v", "m") else f"-D {x}=N" for x in missing)
        message = f"schedule {checked.file.name.id} needs a value for {listed}"
        label = Label(checked.file.name.span, "has no default")
        wrong.append(Diagnostic(Code.PARAMETER_MISSING, message, (label,), (), f"add {flags}"))
    if wrong:
        raise PipeschedError(wrong)
    long = [name for name, value in given.items() if abs(value) >= 10**DIGITS]
    if long:
        raise fail(Code.USAGE, f"parameter `{long[0]}` has more than {DIGITS} digits")
    values: dict[str, int] = {}
    for name, default in known.items():
        values[name] = given[name] if name in given else _eval(default, names, checked)
        names[f"v_{name}"] = values[name]
    return values


def _unknown(name: str, checked: Checked) -> Diagnostic:
    close = difflib.get_close_matches(name[:LONG], list(checked.defaults)[:MANY], 1, 0.5)
    takes = ", ".join(checked.defaults) or "none"
    help = f"did you mean `{close[0]}`?" if close else f"its parameters: {takes}"
    message = f"schedule {checked.file.name.id} has no parameter `{name}`"
    return Diagnostic(Code.PARAMETER_UNKNOWN, message, (Label(checked.file.name.span, f"takes {takes}"),), (), help)


def _routes(checked: Checked, names: dict[str, Any]) -> None:
    routes = dict.fromkeys(line.node.route.id for line in checked.stages if line.node.route)
    names.update({f"v_{name}": number for number, name in enumerate(routes)})


def _eval(code: CodeType | None, names: dict[str, Any], checked: Checked) -> Any:
    assert code is not None
    try:
        return eval(code, names)
    except (ZeroDivisionError, Halt) as error:
        raise report(error, checked.file.span.source) from None


def _steps(checked: Checked, names: dict[str, Any]) -> None:
    """Run lets and requires in the order of the text."""
    for node, code in checked.steps:
        if isinstance(node, ast.Let):
            try:
                exec(code, names)
            except (ZeroDivisionError, Halt) as error:
                raise report(error, checked.file.span.source) from None
        elif not _eval(code, names, checked):
            raise _requires(node, names, checked)


def _requires(node: ast.Require, names: dict[str, Any], checked: Checked) -> PipeschedError:
    used = [x for x in sorted(ast.names_in(node.condition)) if isinstance(names.get(f"v_{x}"), int)]
    values = ", ".join(f"{x} = {names[f'v_{x}']}" for x in used)
    condition = " ".join(node.condition.span.text.split())
    return fail(
        Code.REQUIRE,
        f"{checked.file.name.id} requires {condition}" + (f": {node.message}" if node.message else ""),
        Label(node.condition.span, f"false with {values}" if values else "false"),
        help="choose other sizes",
    )


def _costs(checked: Checked, names: dict[str, Any], stages: int) -> Costs:
    """What the file gives. A mistake in an entry is reported there, one in all of them at the first."""
    given: dict[str, Cost] = {}
    for entry, codes in checked.costs:
        values = tuple(Fraction(_eval(code, names, checked)) for code in codes)
        wrong = "given twice" if entry.name in given else "negative" if any(x < 0 for x in values) else ""
        if entry.value is None and len(values) != stages:
            wrong = f"a list of {len(values)}; there are {stages} stages"
        if wrong:
            raise fail(Code.COSTS, f"cost {entry.name} is {wrong}", Label(entry.span, "here"))
        given[entry.name] = values[0] if entry.value is not None else values
    costs = Costs(given)
    try:
        costs.ticks(stages)
        costs.sizes(stages)
    except PipeschedError as error:
        (found,) = error.diagnostics
        raise PipeschedError([replace(found, labels=(Label(checked.costs[0][0].span, "given here"),))]) from None
    return costs
