"""The API function `pipesched.plan`, which lays out a training step over a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipesched.common import keywords
from pipesched.common.keywords import Number
from pipesched.planning.values import ModelLike

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from fractions import Fraction
    from os import PathLike

    from pipesched.planning.plans import Plan
    from pipesched.planning.transformer.devices import Device


def plan(
    *,
    model: ModelLike = None,
    gpus: int | None = None,
    gpus_per_node: int | None = None,
    device: str | PathLike[str] | Device | tuple[()] | None = (),
    batch: int | None = None,
    tokens: int | str | None = None,
    mem_cap: str | int | Fraction | None = None,
    kept: str | None = None,
    only: Sequence[str] = (),
    explain: str | None = None,
    top: int = 5,
    efficiency: Number | None = None,
    overlap: Number | None = None,
    trainer: str | None = None,
    executor: Executor | None = None,
) -> Plan:
    """Return the layouts of a training step that fit a cluster, fastest first; `model`, `gpus` and `device` are
    required.

    only: the values to try, such as ``"t=4,8"``. explain: sizes such as ``"p=8,t=4"``; `Plan.explained` contains the
    reason why no choice with these sizes is the fastest. kept: a file that `run_rank` writes, with factors for the
    bytes of layers. trainer: such as ``"megatron==0.16"``; only choices that this trainer can run are returned, and
    `Plan.configuration` returns its files. executor: the `concurrent.futures` executor that evaluates the choices; by
    default, they are evaluated in this process.

    Raises:
        PipeschedError: PS225 to PS237 or PS246 to PS250 if a setting is invalid.
    """
    given = keywords.converted("plan", {name: x for name, x in locals().items() if name != "executor"})
    from pipesched.planning import plans as verb

    return verb.plan(verb.request(given), executor or "here")
