"""Decides the order of a file by its rule, and reports operations that the rule does not support."""

from __future__ import annotations

from collections.abc import Sequence

from pipesched.diagnostics import Code, Label, fail
from pipesched.greedy.backfill import Backfill
from pipesched.greedy.clock import Clock
from pipesched.language import ast
from pipesched.language.execution import Budget
from pipesched.language.operations import Emitter
from pipesched.language.typecheck import Checked
from pipesched.model.costs import Costs
from pipesched.model.ops import ADDED, Op
from pipesched.model.placement import Placement


def decide(
    emitters: Sequence[Emitter], placement: Placement, costs: Costs, checked: Checked, budget: Budget
) -> list[list[int]]:
    """Complete or move the lists of all ranks by the rule of a file. Return, for each rank, the previous list positions
    of its operations; an empty list if no list was reordered.

    Raises:
        PipeschedError: PS224, PS238: the rule does not support an operation. PS229: no rank can continue, or only some
            programs end in `backfill`. PS2xx: a condition is invalid.
    """
    word, known = checked.rule, [(site, Op[site.op]) for site in checked.sites]
    step = next((site for site, op in known if op is Op.STEP), None)
    if step is not None:
        here, help = Label(step.span, "is here"), "list the operations instead"
        raise fail(Code.VERSIONS, f"`{word}` does not support a STEP inside the order", here, help=help)
    later, op = next(((site, op) for site, op in known if op in ADDED), (None, Op.R))
    if later is not None:
        recomputed = ": the memory of an F depends on whether it has an R" if op is Op.R else ""
        why = ": a rule does not order copies" if op.copy else recomputed
        message = f"`{word}` does not support {op.name}{why}"
        raise fail(Code.RANK_PROGRAM, message, Label(later.span, op.kind.words), help="list the operations instead")
    clock = Backfill if _moves(checked) else Clock
    return clock(emitters, placement, costs, checked, budget).run()


def _moves(checked: Checked) -> bool:
    """Return True if all programs end in `backfill`; raise if only some of them do."""
    programs = checked.items(ast.Rank)
    without = [item for item in programs if not (item.body and _word(item.body[-1]) == "backfill")]
    if without and len(without) < len(programs):
        message, here = "`backfill` must end all programs or none of them", Label(without[0].span, "no `backfill`")
        raise fail(Code.GREEDY, message, here, help="end this program with `backfill` too, or none of them")
    return not without


def _word(statement: ast.Statement) -> str:
    return statement.word if isinstance(statement, ast.Greedy) else ""
