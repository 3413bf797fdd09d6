"""Finds answers within a cap in bytes: optimizes under a cap on activations, and repeats if it takes too many bytes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from operator import add

from pipesched.compile import Options, examine
from pipesched.diagnostics import PipeschedError, fail
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.optimize_bytes import set_aside
from pipesched.optimizer.optimize_report import Ask, Optimum
from pipesched.optimizer.optimize_request import Request
from pipesched.optimizer.printed import read_back
from pipesched.optimizer.solve.meter import Meter
from pipesched.planning.footprint_report import InBytes
from pipesched.report.report import Report

_TRIES, _EACH = 4, 0.5  # most searches for an answer within the cap; part of the remaining time for each
_MORE = "use a lower cap on activations, such as `--mem-cap 4`, then run `verify --model` with the cap in bytes"


def within_bytes(request: Request, ask: Ask, meter: Meter) -> Optimum:
    """Return the best answer whose bytes are within the cap. ask: function that optimizes under caps on activations.

    Raises:
        PipeschedError: PS504: no order was found whose messages fit too. Also any other error in the answer's report.
    """
    if request.fused:
        return fitted(request, ask, meter)
    with suppress(PipeschedError):  # gradients that I stores for W are ignored at first: the answer may fit anyway
        hoped = fitted(replace(request, until_w=False), ask, meter)
        if hoped.value is not None:
            safe = None
            with suppress(PipeschedError):
                safe = fitted(request, ask, meter)
            return hoped if safe is None or safe.value is None or hoped.value < safe.value else safe
    return fitted(request, ask, meter)


def fitted(request: Request, ask: Ask, meter: Meter) -> Optimum:
    """Return the first answer within the cap in bytes; each attempt sets the previous excess aside for messages.

    Raises:
        PipeschedError: PS504: no order was found whose messages fit too. Also any other error in the answer's report.
    """
    for _ in range(_TRIES):
        with meter.part(_EACH) as part:
            found = ask(request, part)
        if found.analysis is None:
            return found
        checked, model = _in_bytes(found, request), request.workload.model
        assert model is not None
        if not any(over := _over(checked)):
            return _within(found, checked, request)
        spent = request.aside or set_aside(model, found.instance.placement)
        request = replace(request, aside=tuple(map(add, spent, over)))
    message = f"none of the {_TRIES} orders found within the caps leaves enough memory for its messages"
    raise fail(OptimizerCode.NO_ROOM, message, help=_MORE)


def _over(checked: Report) -> list[int]:
    """Return the number of bytes over the cap, by rank."""
    used = checked.parts.of(InBytes)
    assert used is not None and used.cap is not None
    return [max(0, total - int(cap)) for total, cap in zip(used.total, used.cap, strict=True)]


def _within(found: Optimum, checked: Report, request: Request) -> Optimum:
    """Attach the byte counts to the answer; raise PipeschedError for errors of any other kind."""
    if not checked.ok:
        raise PipeschedError([d for d in checked.diagnostics if d.severity == "error"])
    alone = ("the bytes of messages are counted for this m only",) if request.all_m else ()
    return replace(found, checked=checked, notes=(*found.notes, *alone))


def _in_bytes(found: Optimum, request: Request) -> Report:
    """Return the report on an answer, with the bytes on every rank; a decision, if any, sets the layers per stage."""
    assert request.workload.model is not None
    (a, x), decision = request.workload.model, found.certificate.get("decision")
    if isinstance(decision, dict):
        x = replace(x, layout=tuple(decision["taken"]))
    loaded = read_back(found.source)
    untimed = replace(request.workload, model=(a, x), device=None, efficiency=None)
    options = Options(costs=found.instance.costs, release=request.release, owned=(untimed,))
    return examine(loaded, options).report
