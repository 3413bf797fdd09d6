"""What the commands do, as functions: results are objects, nothing is printed, nothing exits.

schedule = pipesched.load("1f1b", p=4)                     a built-in name, a path, or a Schedule
report = pipesched.verify("mine.csv", comm="pair-stream")
report.ok, report.diagnostics, report.time.makespan, print(report)
best = pipesched.optimize(p=4, m=8, mem_cap=4)             an Optimum: best.status, best.proved, best.source
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

from pipesched import compile
from pipesched.analysis.communication import parse_model
from pipesched.compile import Options
from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.formats import torch_csv
from pipesched.formats.in_memory import Rows, TorchSchedule
from pipesched.model import registry
from pipesched.model.costs import Costs
from pipesched.model.program import Program
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.model.torch_versions import DEFAULT, installed_version
from pipesched.report import Report
from pipesched.source import Source
from pipesched.verbs import options, targets, values
from pipesched.verbs import verify as verb
from pipesched.verbs.options import MAX_OPS

if TYPE_CHECKING:
    from pipesched.optimizer.answer.optimum import Optimum
    from pipesched.optimizer.search.state import State

Target: TypeAlias = str | PathLike[str] | Source | Rows | TorchSchedule
Number: TypeAlias = int | float | str | Fraction
CostsLike: TypeAlias = str | PathLike[str] | Costs | Mapping[str, Number | Sequence[Number]] | None


def _maker(name: str) -> Callable[..., Any]:
    """A function of `pipesched.verbs.show`, which is imported with the first picture."""

    def make(*arguments: Any) -> Any:
        from pipesched.verbs import show as picture

        return getattr(picture, name)(*arguments)

    return make


registry.provide(picture=_maker("notebook"), graph=_maker("graph"), table=_maker("table"))


def load(target: Target | Schedule | Program, *, max_ops: int = MAX_OPS, **parameters: int | str) -> Schedule | Program:
    """A schedule from a built-in name or a file at the sizes given (p=4, m=8, …); a Program if the file has messages.

    Raises:
        PipeschedError: everything that keeps the file from being a schedule, as diagnostics.
    """
    given, sizes = _read("verify", locals())
    if isinstance(target, Schedule | Program):
        targets.loaded(target, Options(sizes))
        return target
    loaded = compile.load(*_file(target, given, sizes))
    return loaded.program or loaded.schedule


def verify(
    target: Target | Schedule | Program,
    *,
    comm: str = "strict",
    mem_cap: Number | Sequence[Number] | None = None,
    costs: CostsLike = None,
    release: str | Release = "W",
    torch_version: str | None = None,
    fsdp: bool = False,
    stages: int | None = None,
    placement: Sequence[int] | None = None,
    max_ops: int = MAX_OPS,
    require_proof: bool = False,
    **parameters: int | str,
) -> Report:
    """The verdict on a schedule: the same as ``pipesched verify``, with the same options.

    target: a built-in name, a path, a `Source`, what `load` returns, or an order in memory: rows of cells of torch's
    CSV or of words such as F0.1, a dict from rank to torch's actions, a schedule of torch.

    require_proof: an error unless it is an answer that is proved optimal.
    What is wrong with the schedule is in the report. A report of a file that cannot be read is one too.

    Raises:
        PipeschedError: PS222, PS225, an option that means nothing.
    """
    given, sizes = _read("verify", locals())
    parse_model(given["comm"])
    given["torch_version"] = given["torch_version"] or targets.version_of(target)
    if isinstance(target, Schedule | Program):
        asked = options.compile_options(given, sizes)
        return verb.verify_loaded(targets.loaded(target, asked), asked)
    try:
        return verb.verify(*_file(target, given, sizes))
    except PipeschedError as error:
        if error.diagnostics[0].code is Code.USAGE:
            raise
        return Report(None, str(target), sizes, diagnostics=error.diagnostics)


def from_torch_csv(target: Target, *, torch_version: str = str(DEFAULT)) -> Schedule | Program:
    """A torch pipelining CSV: a Schedule if it is compute_only, a Program if it is compute_comms.

    Raises:
        PipeschedError: PS3xx, PS8xx, the cells that are no actions.
    """
    version = options.value("torch_version", values.version, torch_version)
    return torch_csv.read(targets.source(target), torch_version=version)


def emit(
    target: Target | Schedule | Program,
    to: str = "stream",
    *,
    torch_version: str | None = None,
    max_ops: int = MAX_OPS,
    **parameters: int | str,
) -> str:
    """The text of a verified schedule as ``stream``, ``torch-csv`` (computes alone) or ``torch-comms``.

    Raises:
        PipeschedError: everything that is wrong with the schedule, or that the target cannot run.
    """
    given, sizes = _read("emit", locals())
    from pipesched.verbs import emit as verb

    made = verb.emit(*_file(target, given, sizes), given["to"])
    if made.order is None:
        raise PipeschedError(made.report.diagnostics)
    return "".join(made.pieces())


def optimize(
    target: Target | Schedule | Program | None = None,
    *,
    placement: str | Sequence[int] | None = None,
    mem_cap: Number | Sequence[Number] | None = None,
    costs: CostsLike = None,
    release: str | Release = "W",
    objective: str = "makespan",
    backward: str | None = None,
    all_m: bool = False,
    time_limit: float = 60.0,
    engine: str = "auto",
    portfolio: bool = True,
    proof: str | None = None,
    seed: int = 0,
    progress: Callable[[State], None] | None = None,
    **parameters: int | str,
) -> Optimum:
    """The schedule with the least bubble under a memory cap, and what is proved of it: as ``pipesched optimize``.

    target: a schedule whose placement, sizes and kind of backward count; without one there are p, v and m.
    placement: ``linear``, ``loop``, ``vee``, the rank of each stage, or a file whose placement counts. mem_cap: in
    microbatches through 1/p of the model, one, or one a rank. backward: ``split`` or ``fused``. time_limit: seconds.
    seed: where chance begins; the same question and seed have the same answer, unless a time limit ends the search.
    progress: is given the state of the search about every second; KeyboardInterrupt, also from there, ends the search
    with the best so far.

    Raises:
        PipeschedError: PS2xx, an option that means nothing; PS702, what cannot be optimized; PS820, the engine is not
            installed; all that is wrong in the file. That no schedule is within the caps is an answer, not an error.
    """
    given, sizes = _read("optimize", locals())
    if progress is not None and not callable(given["progress"]):
        shown = values.short(progress)
        raise fail(Code.USAGE, f"progress is {shown}", help="give a function of the state of the search")
    from pipesched.verbs import optimize as verb
    from pipesched.verbs.optimize_request import request

    source, sizes = (None, sizes) if target is None else targets.named(target, sizes, computes=True)
    return verb.optimize(request(source, sizes, given), progress or (lambda state: None))


def torch_runtime(
    order: str | PathLike[str], stages: Sequence[Any], n_microbatches: int, loss_fn: Any = None, **options: Any
) -> Any:
    """torch's own pipeline runtime with a CSV loaded, refused before its first step if torch lowered it wrong.

    order: the path of a torch CSV, of computes alone or with messages, or a stream. stages, loss_fn, options: as of
    torch's schedules, such as ``scale_grads=False``. What torch will run is read back and verified.

    Raises:
        PipeschedError: what is wrong with the order that torch made.
    """
    from pipesched.runtime.torch_engine import torch_runtime as make

    return make(order, stages, n_microbatches, loss_fn, verify=require_right, **options)


def require_right(text: str, *, comm: str = "strict") -> Report:
    """The verdict on a torch CSV with messages, as text, for the torch that is installed.

    Raises:
        PipeschedError: everything that is wrong with it.
    """
    report = verify(Source("torch's lowering", text), comm=comm, torch_version=str(installed_version()))
    if not report.ok:
        raise PipeschedError(report.diagnostics)
    return report


def _read(command: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """The arguments of a function, each as the option of its command reads it; and the sizes.

    Raises:
        PipeschedError: PS225, PS809.
    """
    sizes = {name: options.value(name, values.whole, value) for name, value in arguments.pop("parameters").items()}
    return options.read(command, arguments), sizes


def _file(target: object, given: Mapping[str, Any], sizes: dict[str, int]) -> tuple[Source, Options]:
    """What to read, and how."""
    source, sizes = targets.named(target, sizes)
    return source, options.compile_options(given, sizes)
