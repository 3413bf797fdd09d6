"""What the commands do, as functions: results are objects, nothing is printed, nothing exits.

schedule = pipesched.load("1f1b", p=4)                     a built-in name, a path, or a Schedule
report = pipesched.verify("mine.csv", comm="pair-stream")
report.ok, report.diagnostics, report.time.makespan, print(report)
best = pipesched.optimize(p=4, m=8, mem_cap=4)             an Optimum: best.status, best.makespan, best.source
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias

from pipesched.analysis.models import parse_model
from pipesched.compile import Loaded, Options, examine, read
from pipesched.compile import load as _load
from pipesched.compile import verify as _verify
from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.formats import torch_csv
from pipesched.language.evaluate import MAX_OPS
from pipesched.model import above
from pipesched.model.costs import Costs
from pipesched.model.numbers import number
from pipesched.model.program import Program
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.report import Report
from pipesched.source import Source

if TYPE_CHECKING:
    from pipesched.optimization import Optimum, State

Target: TypeAlias = str | PathLike[str] | Source
Number: TypeAlias = int | str | Fraction


def _maker(name: str) -> Callable[..., Any]:
    """A function of `pipesched.picture`, which is imported with the first picture."""

    def make(*arguments: Any) -> Any:
        from pipesched import picture

        return getattr(picture, name)(*arguments)

    return make


above.provide(picture=_maker("notebook"), graph=_maker("graph"), table=_maker("table"))


def load(target: Target, *, max_ops: int = MAX_OPS, **parameters: int) -> Schedule | Program:
    """A schedule from a built-in name or a file at the sizes given (p=4, m=8, …); a Program if the file has messages.

    Raises:
        PipeschedError: everything that keeps the file from being a schedule, as diagnostics.
    """
    options = Options(parameters, max_ops=max_ops, microbatches=parameters.get("m"))
    loaded = _load(_source(target), options)
    return loaded.program or loaded.schedule


def verify(
    target: Target | Schedule | Program,
    *,
    comm: str = "strict",
    mem_cap: Number | Sequence[Number] | None = None,
    costs: str | Costs | None = None,
    release: str | Release = "W",
    torch_version: str | None = None,
    fsdp: bool = False,
    stages: int | None = None,
    placement: Sequence[int] | None = None,
    max_ops: int = MAX_OPS,
    require_proof: bool = False,
    **parameters: int,
) -> Report:
    """The verdict on a schedule: the same as ``pipesched verify``, with the same options.

    require_proof: an error unless it is an answer that is proved optimal.
    What is wrong with the schedule is in the report. A report of a file that cannot be read is one too.

    Raises:
        PipeschedError: PS222, PS225, an option that means nothing.
    """
    parse_model(comm)
    options = Options(
        parameters,
        Costs.parse(costs) if isinstance(costs, str) else costs,
        Release.parse(release) if isinstance(release, str) else release,
        _caps(mem_cap),
        comm,
        max_ops,
        version(torch_version),
        fsdp,
        stages,
        parameters.get("m"),
        None if placement is None else tuple(placement),
        require_proof,
    )
    if isinstance(target, Schedule | Program):
        return examine(_loaded(target, options), options)
    try:
        source = _source(target)
    except PipeschedError as error:
        return Report(None, str(target), dict(parameters), diagnostics=error.diagnostics)
    return _verify(source, options)


def from_torch_csv(target: Target, *, torch_version: str = "2.13") -> Schedule | Program:
    """A torch pipelining CSV: a Schedule if it is compute_only, a Program if it is compute_comms.

    Raises:
        PipeschedError: PS3xx, PS8xx, the cells that are no actions.
    """
    chosen = version(torch_version)
    return torch_csv.read(_source(target), torch_version=chosen or (2, 13))


def emit(
    target: Target, to: str = "stream", *, torch_version: str | None = None, max_ops: int = MAX_OPS, **parameters: int
) -> str:
    """The text of a verified schedule as ``stream``, ``torch-csv`` (computes alone) or ``torch-comms``.

    Raises:
        PipeschedError: everything that is wrong with the schedule, or that the target cannot run.
    """
    from pipesched.emission import emit as make

    if to not in ("stream", "torch-csv", "torch-comms"):
        raise fail(Code.USAGE, f"no target is called {to!r}", help="targets are stream, torch-csv and torch-comms")
    options = Options(
        parameters, max_ops=max_ops, torch_version=version(torch_version), microbatches=parameters.get("m")
    )
    made = make(_source(target), options, to)
    if made.order is None:
        raise PipeschedError(made.report.diagnostics)
    return "".join(made.pieces())


def optimize(
    target: Target | Schedule | Program | None = None,
    *,
    placement: str | Sequence[int] | None = None,
    mem_cap: Number | Sequence[Number] | None = None,
    costs: str | Costs | None = None,
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
    **parameters: int,
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
    from pipesched.optimization import MOST_SEED, Limits, Request, place
    from pipesched.optimization import optimize as run

    if isinstance(target, Schedule | Program):
        _loaded(target, Options(parameters))
    if proof and all_m:
        raise fail(Code.USAGE, "a proof is of one m", help="leave out proof, or all_m")
    if not time_limit >= 0:
        raise fail(Code.USAGE, f"a time limit of {time_limit} s", help="give a number of seconds from 0 up")
    if not 0 <= seed <= MOST_SEED:
        raise fail(Code.USAGE, f"a seed of {seed}", help=f"give a whole number from 0 to {MOST_SEED:,}")
    request = Request(
        None if target is None else _written(target),
        parameters,
        place(placement if placement is None or isinstance(placement, str) else tuple(placement), parameters),
        _caps(mem_cap),
        Release.parse(release) if isinstance(release, str) else release,
        Costs.parse(costs) if isinstance(costs, str) else costs,
        _one_of("an objective", objective, ("makespan", "span")),
        None if backward is None else _one_of("a kind of backward", backward, ("split", "fused")) == "fused",
        all_m,
        Limits(time_limit, _one_of("an engine", engine, ("auto", "z3", "sat", "cpsat")), portfolio, proof, seed=seed),
    )
    return run(request, progress) if progress else run(request)


def _one_of(what: str, given: str, known: tuple[str, ...]) -> str:
    if given not in known:
        raise fail(Code.USAGE, f"{given!r} is not {what}", help=f"there are {', '.join(known)}")
    return given


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
    from importlib.metadata import version as installed

    report = verify(
        Source("torch's lowering", text), comm=comm, torch_version=".".join(installed("torch").split(".")[:2])
    )
    if not report.ok:
        raise PipeschedError(report.diagnostics)
    return report


def version(text: str | None) -> tuple[int, int] | None:
    """``2.13`` as (2, 13).

    Raises:
        PipeschedError: PS225, not a version from 2.10 to 2.15.
    """
    if text is None:
        return None
    parts = text.split(".")
    if len(parts) < 2 or parts[0] != "2" or not parts[1].isdecimal() or not 10 <= int(parts[1][:9]) <= 15:
        raise fail(Code.USAGE, f"torch {text} is not supported", help="versions 2.10 to 2.15 are")
    return 2, int(parts[1])


def _loaded(target: Schedule | Program, options: Options) -> Loaded:
    """A schedule has its sizes already, so none may be given."""
    given = [*options.parameters, *(name for name in ("stages", "placement") if getattr(options, name) is not None)]
    if given:
        raise fail(Code.USAGE, f"{', '.join(given)} given for a {type(target).__name__}, which has its sizes already")
    if isinstance(target, Program):
        return Loaded(target.name, target.computes, target)
    return Loaded(target.name, target)


def _written(target: Target | Schedule | Program) -> Source:
    """The source of a schedule; one in memory is written down, operation for operation."""
    if not isinstance(target, Schedule | Program):
        return _source(target)
    from pipesched.formats import ps_write

    schedule = target.computes if isinstance(target, Program) else target
    return Source(f"{schedule.name}.ps", ps_write.write(schedule))


def _source(target: Target) -> Source:
    return target if isinstance(target, Source) else read(fspath(target))


def _caps(caps: Number | Sequence[Number] | None) -> tuple[Fraction, ...] | None:
    if caps is None:
        return None
    listed = [caps] if isinstance(caps, int | str | Fraction) else caps
    return tuple(number(cap, "a cap") if isinstance(cap, str) else Fraction(cap) for cap in listed)
