"""The fastest choices for a request, and the reasons why the other choices are not among them.

request ──> every choice ──> the fastest that fit, rule by rule
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from pipesched.diagnostics import Diagnostic, exit_status, fail
from pipesched.planning.byte_counts import gigabytes
from pipesched.planning.codes import PlanningCode
from pipesched.planning.executors import executor
from pipesched.planning.launch import launcher
from pipesched.planning.layouts.prediction import Prediction
from pipesched.planning.layouts.rules import Explained, Judged, explain, judge
from pipesched.planning.layouts.search import Search, Tell, pays, silent
from pipesched.planning.layouts.space import LAYOUT, Size, Space
from pipesched.planning.layouts.stages import Problem
from pipesched.planning.plan_order import Ordered
from pipesched.planning.transformer import state
from pipesched.planning.transformer.config import Trained
from pipesched.planning.transformer.devices import Device
from pipesched.planning.transformer.parameters import by_stage
from pipesched.planning.transformer.trainers import DEFAULT, row_of


@dataclass(frozen=True)
class Request:
    """A request for a plan. model: the model's name. trained: the model and its training. cap: bytes per rank; None:
    the device's memory.

    explain: the sizes of the choices to explain. trainer: the trainer that must run the plan, empty for any.
    """

    model: str
    trained: Trained
    gpus: int
    device: Device
    batch: int
    gpus_per_node: int | None = None
    cap: Fraction | None = None
    tokens: int | None = None
    only: Mapping[str, tuple[Size, ...]] | None = None
    explain: Mapping[str, Size] | None = None
    top: int = 5
    efficiency: Fraction | None = None
    overlap: Fraction | None = None
    trainer: str = ""

    def problem(self) -> Problem:
        """Return the problem: the choices and the cluster.

        Raises:
            PipeschedError: PS246 if the cluster or the batch is impossible; PS225 or PS250 for an unknown trainer.
        """
        node = min(self.gpus_per_node or self.device.node_size, self.gpus)
        if self.gpus > node and self.gpus % node:
            raise fail(
                PlanningCode.CLUSTER, f"{self.gpus} GPUs do not fill whole nodes of {node}", help="give --gpus-per-node"
            )
        transformer, training = self.trained
        training = replace(training, batch=self.batch, layout=None)
        if self.trainer:
            training = launcher(self.trainer).training(training)
        if not training.trainer:
            training = replace(training, trainer=row_of(self.trainer) or (DEFAULT if self.device.hbm else ""))
        space = Space(transformer, training, self.gpus, node, self.only or {}, self.trainer)
        device = replace(self.device, node_size=node)
        return Problem(space, device, self.cap or device.offered, self.efficiency, self.overlap)


@dataclass(frozen=True)
class Outcome:
    """The fastest choices, one for each (p, t, c, d, e). counts: number of choices by outcome. refused: the number of
    refused choices by reason. rules: rules of thumb from the literature, compared with the first choice. explained: the
    requested explanations. ordered: the optimizer's orders for the first choices, if requested.
    """

    request: Request
    problem: Problem
    rows: tuple[Prediction, ...]
    counts: Mapping[str, int]
    refused: Mapping[str, int]
    rules: tuple[Judged, ...]
    explained: Explained | None
    diagnostics: tuple[Diagnostic, ...] = ()
    ordered: tuple[Ordered, ...] = ()

    @property
    def best(self) -> Prediction | None:
        """The first choice."""
        return self.rows[0] if self.rows else None

    @property
    def exit_status(self) -> int:
        """The exit status: 1 if nothing fits."""
        return exit_status(self.diagnostics)


def outcome(request: Request, workers: str | Executor = "here", tell: Tell = silent) -> Outcome:
    """Find the plan. workers: an executor of `concurrent.futures`, or a name for `--executor`. tell: a function that is
    called with progress messages.

    Raises:
        PipeschedError: PS225, PS246, PS248 or PS249 if the request is invalid.
    """
    problem = request.problem()
    with executor(pays(workers, problem.space) if isinstance(workers, str) else workers) as made:
        return _found(request, Search(problem, made, tell))


def _found(request: Request, search: Search) -> Outcome:
    if not search.choices:
        raise fail(PlanningCode.NO_CHOICE, "this choice does not exist", help=_dimensions(request))
    rows = leanest(search.best(request.top, apart=LAYOUT))
    explained = explain(search, request.explain) if request.explain else None
    if explained is not None and not explained.count:
        said = ", ".join(f"{name}={value}" for name, value in explained.asked.items())
        raise fail(PlanningCode.NO_CHOICE, f"no choice has {said}", help=_dimensions(request))
    rules = tuple(judge(search, rows[0])) if rows else ()
    refused = dict(search.reasons.most_common())
    found = () if rows else (_nothing(search),)
    return Outcome(
        request,
        search.problem,
        tuple(rows),
        search.counts,
        refused,
        rules=rules,
        explained=explained,
        diagnostics=found,
    )


def leanest(rows: Sequence[Prediction]) -> list[Prediction]:
    """Sort rows by time; of the remaining rows within 1 % of the fastest, the one with the least memory is first."""
    left, found = list(rows), list[Prediction]()
    while left:
        least = min(one.nanoseconds for one in left)
        near = [one for one in left if 100 * one.nanoseconds <= 101 * least]
        found.append(min(near, key=lambda one: (one.peak, one.nanoseconds)))
        left.remove(found[-1])
    return found


def _dimensions(request: Request) -> str:
    return f"the product p t c d must be {request.gpus}, and b d must divide the batch of {request.batch}"


def _nothing(search: Search) -> Diagnostic:
    """Return PS245 with the closest choice, counts by reason, and the number of GPUs that could hold the parameters."""
    problem, over = search.problem, [one for one in search.example.values() if one.over]
    least = min(over, key=lambda one: one.over, default=None)
    reasons = [f"{number:,}: {kind}" for kind, number in search.reasons.most_common(6)]
    notes = ([f"the closest is {least.choice}: {least.reason}"] if least else []) + reasons
    a, x = problem.space.transformer, problem.space.training
    whole = replace(x, tensor=1, context=1, data=1, expert=1, replicas=1, zero=0, layout=None)
    alone = state.state(a, whole, by_stage(a, whole, 1)[0]).total
    if (fewest := ceil(alone / problem.cap)) > problem.space.gpus:
        shown = f"{gigabytes(alone)} in total, which needs {fewest:,} GPUs"
        notes.append(f"parameters, gradients and optimizer take {shown}")
    many = f"none of {len(search.choices):,} choices fits"
    return Diagnostic(
        PlanningCode.NO_PLAN, many, (), tuple(notes), "use more GPUs, a larger cap, or fewer --only restrictions"
    )
