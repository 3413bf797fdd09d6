"""The API function `pipesched.optimize`: the least bubble under a memory cap, with a proof."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipesched.command import values
from pipesched.common import keywords, sources
from pipesched.common.keywords import Caps, CostsLike, Number, Parameter, Target
from pipesched.diagnostics import Code, fail
from pipesched.model.release import Release
from pipesched.planning.values import DeviceLike, ModelLike

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipesched.optimizer.optimize_report import Optimum
    from pipesched.optimizer.solve.search.state import State


def optimize(
    target: Target | None = None,
    *,
    placement: str | Sequence[int] | None = None,
    mem_cap: Caps = None,
    costs: CostsLike = None,
    model: ModelLike = None,
    device: DeviceLike = None,
    efficiency: Number | None = None,
    release: str | Release = "W",
    partition: int | str | None = None,
    embedding: Number | None = None,
    head: Number | None = None,
    overlap: bool = False,
    recompute: str | Sequence[int] | None = None,
    lost: int | None = None,
    pipelines: int | None = None,
    jitter: Number | str | None = None,
    objective: str = "makespan",
    backward: str | None = None,
    all_m: bool = False,
    time_limit: float = 60.0,
    engine: str = "auto",
    portfolio: bool = True,
    certify: bool = False,
    confirm: bool = False,
    proof: str | None = None,
    seed: int = 0,
    progress: Callable[[State], None] | None = None,
    **parameters: Parameter,
) -> Optimum:
    """Find the schedule with the least bubble under a memory cap, with its proof, as ``pipesched optimize`` does.

    target: a schedule that determines placement, sizes and the kind of backward; without a target, p, v and m are
    parameters. placement: ``linear``, ``loop``, ``vee``, the rank of each stage, or a file whose placement is used.
    mem_cap: one cap, or one per rank, in microbatches through 1/p of the model. partition: number of layers to divide
    among the stages, or ``model``; embedding, head: their work, as multiples of a layer's work. overlap: whether to
    decide which F and B run as pairs. recompute: which F to run again: ``any`` to decide for each F, ``stages`` to
    decide for each stage, or a list of stages whose F all run again. lost: a rank whose microbatches go to other copies
    of its stages; pipelines: number of pipelines that train the model, each with p ranks and m microbatches. jitter:
    the standard deviation of every time, as a share of that time; among equally short orders, an order with a low p95
    makespan is chosen. backward: ``split`` or ``fused``. time_limit: limit in seconds, each a million steps of work,
    about one CPU second. certify: whether to spend up to another minute on proving an engine's refutation. seed: seed
    for random choices; the same request with the same seed gives the same answer. progress: function that is called
    with the state of the search about every second; a KeyboardInterrupt, even one that this function raises, ends the
    search with the best schedule so far.

    Raises:
        PipeschedError: PS2xx: the options are invalid. PS702: the schedule cannot be optimized. PS820: the engine is
            not installed. Also any finding on the file. An answer without a schedule within the caps is not an error.
    """
    given, sizes = keywords.read("optimize", locals())
    if progress is not None and not callable(given["progress"]):
        shown = values.short(progress)
        raise fail(Code.USAGE, f"progress is {shown}", help="pass a function that accepts the state of the search")
    from pipesched.optimizer import optimize as verb
    from pipesched.optimizer.optimize_request import request

    source, sizes = (None, sizes) if target is None else sources.named(target, sizes, computes=True)
    return verb.optimize(request(source, sizes, given), progress or (lambda state: None))
