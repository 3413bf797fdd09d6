"""Answers within a cap in bytes: found under a cap on activations, counted in bytes, and searched again if above."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from operator import add
from typing import TypeAlias

from pipesched.compile import Options, examine
from pipesched.diagnostics import PipeschedError, fail
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.optimize_bytes import set_aside
from pipesched.optimizer.optimize_report import Optimum
from pipesched.optimizer.optimize_request import Request
from pipesched.optimizer.printed import read_back
from pipesched.optimizer.solve.meter import Meter
from pipesched.planning.footprint_report import InBytes
from pipesched.report.report import Report

_TRIES = 4
_MORE = "use a lower cap of activations, such as `--mem-cap 4`, then `verify --model` with the cap in bytes"

Once: TypeAlias = Callable[[Request, Meter], Optimum]
"""Optimizes once, under caps on activations, until the meter is late."""


def within_bytes(request: Request, once: Once, meter: Meter) -> Optimum:
    """Return the best answer whose bytes are within the cap.

    Raises:
        PipeschedError: PS504, no order was found whose messages fit too; other errors of the answer's report.
    """
    if request.fused:
        return _tried(request, once, meter)
    with suppress(PipeschedError):  # gradients that I stores for W are ignored at first: the answer may fit anyway
        hoped = _tried(replace(request, until_w=False), once, meter)
        if hoped.value is not None:
            safe = None
            with suppress(PipeschedError):
                safe = _tried(request, once, meter)
            return hoped if safe is None or safe.value is None or hoped.value < safe.value else safe
    return _tried(request, once, meter)


def _tried(request: Request, once: Once, meter: Meter) -> Optimum:
    """Optimize until an answer fits the cap in bytes; each attempt sets the previous excess aside for messages, and
    takes half of the remaining time.
    """

    def attempt() -> Optimum:
        part = meter.part(0.5)
        answer = once(request, part)
        meter.spend(part.spent)
        return answer

    found = attempt()
    for _ in range(_TRIES):
        if found.analysis is None:
            return found
        checked, model = _in_bytes(found, request), request.workload.model
        assert model is not None
        if not any(over := _over(checked)):
            return _within(found, checked, request)
        spent = request.aside or set_aside(model, found.instance.placement)
        request = replace(request, aside=tuple(map(add, spent, over)))
        found = attempt()
    raise fail(
        OptimizerCode.NO_ROOM,
        f"{_TRIES} orders within the caps held more bytes of messages than fit",
        help=_MORE,
    )


def _over(checked: Report) -> list[int]:
    """Return the bytes over the cap, by rank."""
    used = checked.parts.of(InBytes)
    assert used is not None and used.cap is not None
    return [max(0, total - int(cap)) for total, cap in zip(used.total, used.cap, strict=True)]


def _within(found: Optimum, checked: Report, request: Request) -> Optimum:
    """Attach the byte counts to the answer; raise PipeschedError for any other error."""
    if not checked.ok:
        raise PipeschedError([d for d in checked.diagnostics if d.severity == "error"])
    alone = ("the bytes of messages are counted only for this m",) if request.all_m else ()
    return replace(found, checked=checked, notes=(*found.notes, *alone))


def _in_bytes(found: Optimum, request: Request) -> Report:
    """Return the report on an answer, with the bytes of every rank."""
    loaded = read_back(found.source)
    untimed = replace(request.workload, device=None, efficiency=None)
    options = Options(costs=found.instance.costs, release=request.release, owned=(untimed,))
    return examine(loaded, options).report
