"""What the commands do, as functions: results are objects, nothing is printed, nothing exits.

schedule = pipesched.load("1f1b", p=4)                     a built-in name, a path, or a Schedule
report = pipesched.verify("mine.csv", comm="pair-stream")
report.ok, report.diagnostics, report.time.makespan, print(report)
best = pipesched.optimize(p=4, m=8, mem_cap=4)             an Optimum: best.status, best.proved, best.source
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from operator import index
from os import PathLike, fsdecode
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from pipesched.aliases import known_as
from pipesched.analysis.communication import parse_model
from pipesched.compile import Loaded, Options, examine, read
from pipesched.compile import load as _load
from pipesched.compile import verify as _verify
from pipesched.diagnostics import Code, PipeschedError, fail, of_the_caller
from pipesched.formats import torch_csv
from pipesched.formats.in_memory import Rows, TorchSchedule, single, written
from pipesched.language.evaluate import MAX_OPS
from pipesched.model import registry
from pipesched.model.costs import Cost, Costs
from pipesched.model.numbers import cap_help, number
from pipesched.model.program import Program
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.model.torch_versions import DEFAULT, TorchVersion, installed_version, parse_version
from pipesched.report import Report
from pipesched.source import Source

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
    if isinstance(target, Schedule | Program):
        _loaded(target, Options(_sizes(parameters)))
        return target
    source, sizes = _named(target, _sizes(parameters))
    options = Options(sizes, max_ops=_whole("max_ops", max_ops), microbatches=sizes.get("m"))
    loaded = _load(source, options)
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
    parse_model(_text("a communication model", comm))
    sizes = _sizes(parameters)
    options = Options(
        sizes,
        _costs(costs),
        _release(release),
        _caps(mem_cap),
        comm,
        _whole("max_ops", max_ops),
        _version(torch_version) or _version_of(target),
        fsdp,
        None if stages is None else _whole("stages", stages),
        sizes.get("m"),
        _ranks(placement),
        require_proof,
    )
    if isinstance(target, Schedule | Program):
        return examine(_loaded(target, options), options)
    try:
        source, sizes = _named(target, sizes)
    except PipeschedError as error:
        if error.diagnostics[0].code is Code.USAGE:
            raise
        return Report(None, str(target), sizes, diagnostics=error.diagnostics)
    return _verify(source, replace(options, parameters=sizes, microbatches=sizes.get("m")))


def _named(target: object, sizes: dict[str, int], *, computes: bool = False) -> tuple[Source, dict[str, int]]:
    """The source and its sizes: a schedule of torch with one stage a rank is that of its name in the library."""
    if isinstance(target, Schedule | Program):
        _loaded(target, Options(sizes))
        return _written(target, computes=computes), sizes
    found = single(target)
    name = known_as(found[0]) if found else None
    return (read(name), {**found[1], **sizes}) if found and name else (_source(target), sizes)


def _version_of(target: object) -> TorchVersion | None:
    """The version of torch whose schedule this is, if it is one."""
    if not hasattr(target, "pipeline_order"):
        return None
    try:
        return installed_version()
    except (ImportError, PipeschedError):
        return None


def from_torch_csv(target: Target, *, torch_version: str = str(DEFAULT)) -> Schedule | Program:
    """A torch pipelining CSV: a Schedule if it is compute_only, a Program if it is compute_comms.

    Raises:
        PipeschedError: PS3xx, PS8xx, the cells that are no actions.
    """
    return torch_csv.read(_source(target), torch_version=_version(torch_version) or DEFAULT)


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
    from pipesched.verbs.emit import emit as make

    if _text("a target", to) not in ("stream", "torch-csv", "torch-comms"):
        raise fail(Code.USAGE, f"no target is called {to!r}", help="targets are stream, torch-csv and torch-comms")
    source, sizes = _named(target, _sizes(parameters))
    options = Options(
        sizes, max_ops=_whole("max_ops", max_ops), torch_version=_version(torch_version), microbatches=sizes.get("m")
    )
    made = make(source, options, to)
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
    from pipesched.optimizer.search.state import MOST_SEED, Limits
    from pipesched.verbs.optimize import optimize as run
    from pipesched.verbs.optimize_request import Request, place

    source, sizes = (None, _sizes(parameters)) if target is None else _named(target, _sizes(parameters), computes=True)
    _require_path(proof)
    _require_callable(progress)
    if proof and all_m:
        raise fail(Code.USAGE, "a proof is of one m", help="leave out proof, or all_m")
    if not _seconds(time_limit):
        raise fail(Code.USAGE, f"a time limit of {_short(time_limit)}", help="give a number of seconds from 0 up")
    seed = _whole("seed", seed)
    if not 0 <= seed <= MOST_SEED:
        raise fail(Code.USAGE, f"a seed of {seed}", help=f"give a whole number from 0 to {MOST_SEED:,}")
    request = Request(
        source,
        sizes,
        place(placement if isinstance(placement, str) and not placement[:1].isdigit() else _ranks(placement), sizes),
        _caps(mem_cap),
        _release(release),
        _costs(costs),
        _one_of("an objective", objective, ("makespan", "span")),
        None if backward is None else _one_of("a kind of backward", backward, ("split", "fused")) == "fused",
        all_m,
        Limits(time_limit, _one_of("an engine", engine, ("auto", "z3", "sat", "cpsat")), portfolio, proof, seed=seed),
    )
    return run(request, progress) if progress else run(request)


def _require_path(value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise fail(Code.USAGE, f"proof is {_short(value)}", help="give a path, to which .cnf and .drat are added")


def _require_callable(value: object) -> None:
    if value is not None and not callable(value):
        raise fail(Code.USAGE, f"progress is {_short(value)}", help="give a function of the state of the search")


def _seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _one_of(what: str, given: str, known: tuple[str, ...]) -> str:
    if _text(what, given) not in known:
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
    report = verify(Source("torch's lowering", text), comm=comm, torch_version=str(installed_version()))
    if not report.ok:
        raise PipeschedError(report.diagnostics)
    return report


def _version(text: str | None) -> TorchVersion | None:
    return None if text is None else parse_version(_text("a version of torch", text))


def _loaded(target: Schedule | Program, options: Options) -> Loaded:
    """A schedule has its sizes already, so none may be given."""
    given = [*options.parameters, *(name for name in ("stages", "placement") if getattr(options, name) is not None)]
    if given:
        raise fail(Code.USAGE, f"{', '.join(given)} given for a {type(target).__name__}, which has its sizes already")
    if isinstance(target, Program):
        return Loaded(target.name, target.computes, target)
    return Loaded(target.name, target)


def _written(target: Schedule | Program, *, computes: bool) -> Source:
    """A schedule is written down, operation for operation, or with its messages."""
    from pipesched.formats import order_write
    from pipesched.language import ps_write

    if isinstance(target, Program) and not computes:
        return Source(f"{target.name}.txt", order_write.write_program(target))
    schedule = target.computes if isinstance(target, Program) else target
    return Source(f"{schedule.name}.ps", ps_write.write(schedule))


def _source(target: object) -> Source:
    """The text of a file, of a name of the library, or of an order in memory.

    Raises:
        PipeschedError: PS809, PS810; PS225, none of these.
    """
    if isinstance(target, Source):
        return target
    if isinstance(target, str | PathLike):
        return read(fsdecode(target))
    made = None if target is None else written(target)
    if made is None:
        help = "give a name, a path, a Source, an order, or what load() returns"
        raise fail(Code.USAGE, f"no schedule can be read from a value of type {type(target).__name__}", help=help)
    return made


def _sizes(parameters: Mapping[str, object]) -> dict[str, int]:
    return {name: _whole(name, value) for name, value in parameters.items()}


def _whole(name: str, value: object) -> int:
    """A whole number, also as a text or of numpy.

    Raises:
        PipeschedError: PS225, anything else.
    """
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,30}\s*", value):
        return int(value)
    with suppress(TypeError):  # an array of several numbers has an index too
        if isinstance(value, SupportsIndex) and not isinstance(value, bool):
            return index(value)
    raise fail(Code.USAGE, f"{name} is {_short(value)}, not a whole number", help=f"give an int, as {name}=4")


def _exact(value: object, what: str) -> Fraction:
    """A number as it is written: 5.5 is 11/2.

    Raises:
        PipeschedError: PS225, no number, or none from 0 up.
    """
    if isinstance(value, str):
        try:
            return number(value, what)
        except PipeschedError as error:
            wrong = of_the_caller(error).diagnostics[0]
            raise PipeschedError([replace(wrong, help=cap_help(value) or wrong.help)]) from None
    try:
        return Fraction(str(value))
    except ValueError:
        help = "give a number from 0 up, such as 4, 5.5 or '11/2'"
        raise fail(Code.USAGE, f"{what} is {_short(value)}", help=help) from None


def _caps(caps: Number | Iterable[Number] | None) -> tuple[Fraction, ...] | None:
    """One cap, or one a rank.

    Raises:
        PipeschedError: PS225, no numbers.
    """
    if caps is None:
        return None
    if isinstance(caps, str):
        return tuple(_exact(cap, "a cap") for cap in caps.split(","))
    listed = caps if isinstance(caps, Iterable) and not isinstance(caps, Mapping | bytes) else [caps]
    return tuple(_exact(cap, "a cap") for cap in listed)


def _costs(costs: object) -> Costs | None:
    """Costs as a text ``F=1,B=2``, a mapping, or the path of a TOML file as a `Path`.

    Raises:
        PipeschedError: PS222, PS225, PS809.
    """
    if costs is None or isinstance(costs, Costs):
        return costs
    if isinstance(costs, str):
        return Costs.parse(costs)
    if isinstance(costs, PathLike):
        return Costs.from_toml(read(fsdecode(costs)).text)
    if not isinstance(costs, Mapping):
        help = "give a text such as 'F=1,B=2', a dict, a Path of a TOML file, or Costs"
        raise fail(Code.USAGE, f"costs are a value of type {type(costs).__name__}", help=help)
    return Costs({str(name): _cost(name, cost) for name, cost in costs.items()})


def _cost(name: object, cost: object) -> Cost:
    if isinstance(cost, Iterable) and not isinstance(cost, str | bytes | Mapping):
        return tuple(_exact(one, f"cost {name}") for one in cost)
    return _exact(cost, f"cost {name}")


def _release(release: object) -> Release:
    return release if isinstance(release, Release) else Release.parse(_text("a release rule", release))


def _text(what: str, value: object) -> str:
    """A text where nothing else can be meant.

    Raises:
        PipeschedError: PS225.
    """
    if isinstance(value, str):
        return value
    raise fail(Code.USAGE, f"{what} is {_short(value)}, not a text")


def _ranks(placement: object) -> tuple[int, ...] | None:
    """The rank of every stage, ``[0, 1, 1, 0]`` or ``"0,1,1,0"``."""
    if placement is None:
        return None
    listed = placement.split(",") if isinstance(placement, str) else placement
    if not isinstance(listed, Iterable) or isinstance(listed, bytes | Mapping):
        raise fail(Code.USAGE, f"a placement is {_short(placement)}", help="give the rank of each stage: [0, 1, 1, 0]")
    return tuple(_whole("the rank of a stage", rank) for rank in listed)


def _short(value: object) -> str:
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
