"""The API functions `pipesched.why`, `compare` and `diff`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipesched.command import options
from pipesched.command.options import MAX_OPS
from pipesched.command.sizes import combinations, count
from pipesched.common import keywords, sources
from pipesched.common.keywords import Caps, CostsLike, Number, Parameter, Target
from pipesched.engines.parts import PartsLike
from pipesched.model.release import Release
from pipesched.planning.values import DeviceLike, ModelLike
from pipesched.verbs.verify import lists as lists_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from pipesched.insight.compare_report import Comparison
    from pipesched.insight.diff_report import Difference
    from pipesched.insight.why_report import Why


def why(
    target: Target,
    *,
    comm: str | None = None,
    mem_cap: Caps = None,
    costs: CostsLike = None,
    model: ModelLike = None,
    device: DeviceLike = None,
    parts: PartsLike = None,
    efficiency: Number | None = None,
    release: str | Release = "W",
    torch_version: str | None = None,
    stages: int | None = None,
    placement: Sequence[int] | None = None,
    frozen: Sequence[int] | str | None = None,
    max_ops: int = MAX_OPS,
    framework_path: str | None = None,
    framework_time: float = 60,
    **parameters: Parameter,
) -> Why:
    """Explain the idle time of a schedule: its split by rank, its growth, the critical path, and every gap.

    Raises:
        PipeschedError: the findings, if the file is not a schedule; PS225.
    """
    given, sizes = keywords.read("why", locals())
    from pipesched.insight import why as verb

    return verb.why(*keywords.file("why", target, given, sizes))


def compare(
    *schedules: Target,
    library: bool = False,
    cost_per: str = "rank",
    comm: str | None = None,
    jitter: Number | None = None,
    rule: bool = False,
    mem_cap: Caps = None,
    costs: CostsLike = None,
    model: ModelLike = None,
    device: DeviceLike = None,
    parts: PartsLike = None,
    traffic: bool = False,
    efficiency: Number | None = None,
    release: str | Release = "W",
    torch_version: str | None = None,
    stages: int | None = None,
    placement: Sequence[int] | None = None,
    frozen: Sequence[int] | str | None = None,
    max_ops: int = MAX_OPS,
    framework_path: str | None = None,
    framework_time: float = 60,
    executor: Executor | None = None,
    **parameters: Parameter | Sequence[Sequence[int]],
) -> Comparison:
    """Compare schedules and sizes in one table. A parameter may have several values: ``m=[8, 16]`` or ``p="2..8"``.

    library: whether to add every built-in schedule, as ``--all`` does. cost_per: whether the costs are for 1/p of the
    model (``rank``) or for one ``stage``. A parameter applies to the schedules that have it. comm: a model such as
    ``one-stream``, under which messages share a rank's links; `row.queued` is the makespan under this model. jitter:
    the standard deviation of every time, such as "5%"; `row.jitter` has quantiles of the makespan over random draws,
    which are the same for all schedules. rule: whether `greedy` orders are decided again in each draw. traffic:
    `plot()` draws makespans against the ratio of communication to compute, from 0 to 1.2; this requires parts on both
    the rank's own engine and another engine. executor: the `concurrent.futures` executor that does the work; by
    default, the work is done in this process.

    Raises:
        PipeschedError: PS207 or PS208 for parameters that do not fit the schedules; PS225; PS809 or PS810 for a missing
            file.
    """
    named = {name: x for name, x in locals().items() if name != "executor"}
    given, _ = keywords.read("compare", named | {"parameters": {}})
    from pipesched.insight import compare as verb
    from pipesched.planning.executors import Workers

    grid, settings = keywords.apart(parameters)
    compared = [sources.alone(one) for one in verb.named(schedules, library=library)]
    listed = lists_of(compared)
    count(grid, [listed] * len(compared))
    asked = options.compile_options("compare", {**given, "settings": settings}, {})
    asked = asked.owning(Workers(executor or "here"))
    return verb.compare(compared, combinations(grid, listed), asked, per_stage=given["cost_per"] == "stage")


def diff(
    a: Target,
    b: Target,
    *,
    comm: str | None = None,
    mem_cap: Caps = None,
    costs: CostsLike = None,
    model: ModelLike = None,
    device: DeviceLike = None,
    parts: PartsLike = None,
    efficiency: Number | None = None,
    release: str | Release = "W",
    torch_version: str | None = None,
    stages: int | None = None,
    placement: Sequence[int] | None = None,
    frozen: Sequence[int] | str | None = None,
    max_ops: int = MAX_OPS,
    framework_path: str | None = None,
    framework_time: float = 60,
    **parameters: Parameter,
) -> Difference:
    """Compare two orders: the fewest operations to move, the operations that only one order has, and the makespan,
    span, bubble and peak of both.

    Raises:
        PipeschedError: the findings, if one of the files is not a schedule; PS208, PS225.
    """
    given, sizes = keywords.read("diff", locals())
    from pipesched.insight import diff as verb

    return verb.diff(sources.alone(a), sources.alone(b), options.compile_options("diff", given, sizes))
