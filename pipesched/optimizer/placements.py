"""Placements for a request that leaves the placement open, and the best answer over all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from pipesched.diagnostics import Code, fail
from pipesched.model.costs import Costs
from pipesched.model.grid import Grid
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.optimize_report import Ask, Optimum
from pipesched.optimizer.optimize_request import Request, target_of
from pipesched.optimizer.solve.instance import ANY
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.search.state import INTERRUPTED
from pipesched.optimizer.verdict import INFEASIBLE, placement_name

_WAYS = (("linear", 1), ("loop", 2), ("vee", 2), ("loop", 4), ("vee", 4))


def best(request: Request, ask: Ask, meter: Meter) -> Optimum:
    """Return the best answer over all placements under one cap, with a note on the others. ask: answers a request."""
    found = []
    for (name, asked), part in meter.shared([*placements(request)]):
        found.append((name, ask(asked, part)))
        if found[-1][1].reason == INTERRUPTED:
            break
    name, answer = min(found, key=lambda one: (one[1].value is None, one[1].value or Fraction(0)))
    unit = answer.instance.costs.unit
    others = []
    for other, x in found:
        value = "infeasible" if x.status == INFEASIBLE else "nothing found" if x.value is None else unit.text(x.value)
        bound = "" if x.status == INFEASIBLE else f", bound {unit.text(x.lower_bound or Fraction(0))}"
        others += [f"{other}: {value}{bound}"] * (other != name)
    return replace(answer, notes=(f"the best of {len(found)} placements; {'; '.join(others)}", *answer.notes))


def placements(request: Request) -> Iterator[tuple[str, Request]]:
    """Yield every placement with a request for it."""
    if request.placement != ANY:
        instance = target_of(replace(request, recompute=None, overlap=False)).instance
        yield placement_name(instance.placement), request
        return
    if request.source is not None:
        message = "--placement any is given, but the schedule has its own placement"
        raise fail(Code.USAGE, message, help="leave one of them out")
    costs = request.costs or Costs()
    uneven = [key for key, cost in costs.given.items() if isinstance(cost, tuple | Grid)]
    if uneven:
        message = f"the cost {uneven[0]} is given by stage, but the placements have different stages"
        raise fail(OptimizerCode.DECISION, message, help=f"give {uneven[0]} as one number, for 1/p of the model")
    chunks = request.parameters.get("v")
    for name, v in _WAYS if chunks is None else (("linear", 1), *((x, chunks) for x in ("loop", "vee") if chunks != 1)):
        scaled = request.costs if request.workload.device is not None else costs.scaled(1 / Fraction(str(v)))
        parameters = {**request.parameters, "v": v}
        yield f"{name} v={v}", replace(request, placement=name, parameters=parameters, costs=scaled)
