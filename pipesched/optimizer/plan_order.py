"""The optimizer's order for one row of a plan: the service ``order``, which planning calls."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pipesched.optimizer.api import optimize
from pipesched.planning.byte_counts import Bytes
from pipesched.planning.plan_order import Ordered
from pipesched.planning.transformer.config import Trained
from pipesched.planning.transformer.devices import Device


def order(
    schedule: str,
    sizes: Mapping[str, int],
    *,
    trained: Trained,
    device: Device,
    cap: Bytes,
    backward: str,
    seconds: float,
    efficiency: Fraction | None,
) -> Ordered:
    """Return the best order found within `seconds`, on the schedule's placement and under a cap in bytes.

    Raises:
        PipeschedError: PS702: the schedule cannot be optimized.
    """
    parameters: dict[str, Any] = dict(sizes)
    found = optimize(
        schedule,
        model=trained,
        device=device,
        efficiency=efficiency,
        mem_cap=cap,
        backward=backward,
        time_limit=seconds,
        **parameters,
    )
    own = None if found.given is None else found.given.spent.makespan
    order = None if found.analysis is None else found.analysis.schedule
    return Ordered(order, found.makespan, own, found.text().splitlines()[0])
