"""The commands as functions: results are values, nothing is printed, nothing exits.

    schedule = pipesched.load("1f1b", p=4)                     a built-in name, a path, an order in memory
    report = pipesched.verify("mine.csv", comm="pair-stream")
    report.ok, report.diagnostics, report.time.makespan, print(report)
    best = pipesched.optimize(p=4, m=8, mem_cap=4)             an Optimum: best.status, best.proved, best.source
    pipesched.why("zb_h1", p=4, m=8).growth                    a Why; show, compare, diff, run, calibrate likewise

An option has the name that it has on the command line, with `_` for `-`, the same default and the same meaning; an
option that means nothing is PipeschedError PS225. What a command prints its value
has: `str()` is the text, `to_json()` the object of ``--json``, `exit_status` how the command ends. Other keywords are
parameters of the schedule: p, v, m, ….

    target         a built-in name, a path, ``FRAMEWORK:NAME``, a text of .ps, a `Source`, what `load` returns, or an
                   order in memory: rows of cells of torch's CSV or of words such as F0.1, a `pandas.DataFrame` of them,
                   a dict from rank to torch's actions, a schedule of torch
    comm           the communication model whose failure counts, strict unless named; named, a report has the makespan
                   where messages wait for their turn under it
    mem_cap        in microbatches through 1/p of the model: one, or one a rank
    costs          a text ``F=1,B=2``, a dict, the `Path` of a TOML file, or `Costs`
    model, device, efficiency    a transformer and its training, for memory in bytes; on a device, for costs in
                   milliseconds at a share of its peak
    release        when activations are freed: ``W``, ``I``, ``split:x``, ``torch`` or ``I=a,W=b``
    torch_version, stages, placement    of a torch CSV
    max_ops        refuse more operations
    framework_path, framework_time    where the framework of a target ``FRAMEWORK:NAME`` is, and how long it may take
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fractions import Fraction
from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from pipesched import compile
from pipesched.analysis.communication import parse_model
from pipesched.command import options, sources, values
from pipesched.command.options import MAX_OPS, Given
from pipesched.command.sizes import combinations, count, parameter_of, setting
from pipesched.command.sizes import read as several
from pipesched.compile import Options
from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.formats import torch_csv
from pipesched.formats.in_memory import Rows, TorchSchedule
from pipesched.model import lists
from pipesched.model.costs import Costs
from pipesched.model.numbers import Value
from pipesched.model.release import Release
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import DEFAULT
from pipesched.report.report import Report
from pipesched.support.source import Source
from pipesched.verbs.library import lists as lists_of
from pipesched.verbs.library import parameters_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from pipesched.insight.compare_report import Comparison
    from pipesched.insight.diff_report import Difference
    from pipesched.insight.why_report import Why
    from pipesched.interop.check_report import Checked
    from pipesched.optimizer.optimize_report import Optimum
    from pipesched.optimizer.solve.search.state import State
    from pipesched.planning.plans import Plan
    from pipesched.planning.transformer.config import Trained
    from pipesched.planning.transformer.devices import Device
    from pipesched.runtime.calibrate import Calibration
    from pipesched.runtime.rehearse import OneRank
    from pipesched.runtime.run_report import Rehearsal
    from pipesched.verbs.show import Picture

Made = TypeVar("Made")
Target: TypeAlias = str | PathLike[str] | Source | Schedule | Program | Rows | TorchSchedule
File: TypeAlias = str | PathLike[str] | Source
Number: TypeAlias = int | float | str | Fraction
Caps: TypeAlias = Number | Sequence[Number] | None
Parameter: TypeAlias = int | str | Sequence[int]
ModelLike: TypeAlias = "str | PathLike[str] | Trained | None"
DeviceLike: TypeAlias = "str | PathLike[str] | Device | None"
CostsLike: TypeAlias = str | PathLike[str] | Costs | Mapping[str, Number | Sequence[Number]] | None


def _maker(name: str) -> Callable[..., object]:
    """A function of `views.drawn`, which is imported with the first picture."""
    return lambda *arguments: getattr(import_module("pipesched.views.drawn"), name)(*arguments)


lists.provide(picture=_maker("notebook"), graph=_maker("graph"), table=_maker("table"))


def load(
    target: Target,
    *,
    max_ops: int = MAX_OPS,
    framework_path: str | None = None,
    framework_time: float = 60,
    **parameters: Parameter,
) -> Schedule:
    """A schedule at the sizes given (p=4, m=8, …). Where the file names its messages, they are `schedule.program`.

    Raises:
        PipeschedError: everything that keeps the file from being a schedule, as diagnostics.
    """
    given, sizes = _read("verify", locals())
    if isinstance(target, Schedule | Program):
        return sources.loaded(target, Options(sizes)).schedule
    return compile.load(*_file("verify", target, given, sizes)).schedule


def from_torch_csv(target: Target, *, torch_version: str = str(DEFAULT)) -> Schedule:
    """A torch pipelining CSV; of compute_comms with its messages, as `load`.

    Raises:
        PipeschedError: PS3xx, PS8xx, the cells that are no actions.
    """
    version = options.value("torch_version", values.version, torch_version)
    made = torch_csv.read(sources.source(target), torch_version=version)
    return made if isinstance(made, Schedule) else made.schedule


def verify(
    target: Target,
    *,
    comm: str | None = None,
    mem_cap: Caps = None,
    costs: CostsLike = None,
    model: ModelLike = None,
    device: DeviceLike = None,
    efficiency: Number | None = None,
    release: str | Release = "W",
    torch_version: str | None = None,
    stages: int | None = None,
    placement: Sequence[int] | None = None,
    frozen: Sequence[int] | str | None = None,
    max_ops: int = MAX_OPS,
    framework_path: str | None = None,
    framework_time: float = 60,
    fsdp: bool = False,
    require_proof: bool = False,
    proof: str | None = None,
    recorded: str | PathLike[str] | None = None,
    **parameters: Parameter,
) -> Report:
    """The verdict on a schedule: what is wrong with it is in the report, and a file that cannot be read has one too.

    fsdp: UNSHARD and RESHARD are asked for in a torch CSV. require_proof: it is an error unless it is an answer that is
    proved optimal; proof: its clauses are written to PATH.cnf, their refutation to PATH.lrat. recorded: a folder with
    what the ranks of a run of it posted. model: a transformer and its training, for memory in bytes; a cap may then be
    "80GB".

    Raises:
        PipeschedError: PS225, an option that means nothing.
    """
    given, sizes = _read("verify", locals())
    from pipesched.verbs import verify as verb

    parse_model(given["comm"] or "strict")
    given = {**given, "torch_version": given["torch_version"] or sources.version_of(target)}
    if isinstance(target, Schedule | Program):
        asked = options.compile_options("verify", given, sizes)
        return verb.verify_loaded(sources.loaded(target, asked), asked)
    try:
        return verb.verify(*_file("verify", target, given, sizes))
    except PipeschedError as error:
        if error.diagnostics[0].code is Code.USAGE:
            raise
        return Report(None, str(target), sizes, diagnostics=error.diagnostics)


def emit(
    target: Target,
    to: str = "stream",
    *,
    comm: str | None = None,
    mem_cap: Caps = None,
    costs: CostsLike = None,
    release: str | Release = "W",
    torch_version: str | None = None,
    stages: int | None = None,
    placement: Sequence[int] | None = None,
    frozen: Sequence[int] | str | None = None,
    max_ops: int = MAX_OPS,
    framework_path: str | None = None,
    framework_time: float = 60,
    **parameters: Parameter,
) -> str:
    """The text of a verified schedule as ``stream``, ``torch-csv`` (computes alone), ``torch-comms`` or ``deepspeed``.

    As ``order``, ``program`` or ``ps`` an order is written as it is, right or wrong.

    Raises:
        PipeschedError: everything that is wrong with the schedule, or that the target cannot run.
    """
    given, sizes = _read("emit", locals())
    from pipesched.verbs import emit as verb

    made = verb.emit(*_file("emit", target, given, sizes), given["to"])
    if made.order is None:
        raise PipeschedError(made.report.diagnostics)
    return "".join(made.pieces())


def show(
    target: Target,
    format: str | None = None,
    *,
    width: int | None = None,
    begin: Number | None = None,
    end: Number | None = None,
    ascii: bool = False,
    style: str | None = None,
    messages: bool = False,
    memory: bool = False,
    measured: File | Sequence[File] = (),
    force: bool = False,
    comm: str | None = None,
    mem_cap: Caps = None,
    costs: CostsLike = None,
    model: ModelLike = None,
    device: DeviceLike = None,
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
) -> Picture:
    """A schedule as a picture: ``text`` (the default), ``svg``, ``html``, ``trace``, ``dag`` or ``csv``.

    begin, end: ``--from`` and ``--to``. measured: a run of it under the plan, a file a rank. model: a transformer and
    its training, whose bytes are drawn over time, as ``text``, ``svg`` or ``html``. `str()` is what is drawn; in a
    notebook a figure shows itself. What is wrong is drawn as far as it runs, with its diagnostics.

    Raises:
        PipeschedError: what keeps the file from being a schedule; PS225, PS815 to PS818, PS820.
    """
    given, sizes = _read("show", locals())
    from pipesched.verbs import show as verb

    return verb.show(*_file("show", target, given, sizes), verb.request(given))


def why(
    target: Target,
    *,
    comm: str | None = None,
    mem_cap: Caps = None,
    costs: CostsLike = None,
    model: ModelLike = None,
    device: DeviceLike = None,
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
    """Where the idle time of a schedule comes from: the split by rank, the growth, the critical path, every gap.

    Raises:
        PipeschedError: what keeps the file from being a schedule; PS225.
    """
    given, sizes = _read("why", locals())
    from pipesched.insight import why as verb

    return verb.why(*_file("why", target, given, sizes))


def compare(
    *schedules: Target,
    library: bool = False,
    cost_per: str = "rank",
    comm: str | None = None,
    mem_cap: Caps = None,
    costs: CostsLike = None,
    model: ModelLike = None,
    device: DeviceLike = None,
    efficiency: Number | None = None,
    release: str | Release = "W",
    torch_version: str | None = None,
    stages: int | None = None,
    placement: Sequence[int] | None = None,
    frozen: Sequence[int] | str | None = None,
    max_ops: int = MAX_OPS,
    framework_path: str | None = None,
    framework_time: float = 60,
    **parameters: Parameter | Sequence[Sequence[int]],
) -> Comparison:
    """Schedules and sizes in one table: a parameter may have several values, ``m=[8, 16]`` or ``p="2..8"``.

    library: ``--all``, every built-in schedule too. cost_per: costs are those of 1/p of the model (``rank``) or of one
    ``stage``. A parameter is for the schedules that have it. comm: ``one-stream`` and the like, under which a rank's
    links are shared by its messages: `row.queued` of each row.

    Raises:
        PipeschedError: PS207, PS208, parameters that do not fit; PS225; PS809, PS810, a file that is not there.
    """
    given, _ = _read("compare", locals() | {"parameters": {}})
    from pipesched.insight import compare as verb

    grid, settings = _apart(parameters, lambda _: several)
    compared = [sources.alone(one) for one in verb.named(schedules, library=library)]
    listed = lists_of(compared)
    count(grid, [listed] * len(compared))
    asked = options.compile_options("compare", {**given, "settings": settings}, {})
    return verb.compare(compared, combinations(grid, listed), asked, per_stage=given["cost_per"] == "stage")


def plan(
    *,
    model: ModelLike = None,
    gpus: int | None = None,
    gpus_per_node: int | None = None,
    device: str | PathLike[str] | Device | None = None,
    batch: int | None = None,
    tokens: int | str | None = None,
    mem_cap: str | int | Fraction | None = None,
    only: Sequence[str] = (),
    explain: str | None = None,
    top: int = 5,
    efficiency: Number | None = None,
    overlap: Number | None = None,
    executor: Executor | None = None,
) -> Plan:
    """The layouts of a training step over a cluster that fit, the fastest first; model, gpus and device must be given.

    only: texts such as ``"t=4,8"``. explain: ``"p=8,t=4"``, of which `Plan.explained` says why no such choice is first.
    executor: who tries the choices, any of `concurrent.futures`; this process unless given.

    Raises:
        PipeschedError: PS225 to PS237, PS246 to PS248, what is asked means nothing.
    """
    given = options.read("plan", {name: x for name, x in locals().items() if name != "executor"})
    from pipesched.planning import plans as verb

    return verb.plan(verb.request(given), executor or "here")


def diff(
    a: Target,
    b: Target,
    *,
    comm: str | None = None,
    mem_cap: Caps = None,
    costs: CostsLike = None,
    model: ModelLike = None,
    device: DeviceLike = None,
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
    """Compare two orders: the fewest operations to move, those that only one has, and the cost.

    Raises:
        PipeschedError: what keeps one from being a schedule; PS208, PS225.
    """
    given, sizes = _read("diff", locals())
    from pipesched.insight import diff as verb

    return verb.diff(sources.alone(a), sources.alone(b), options.compile_options("diff", given, sizes))


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
    """The schedule with the least bubble under a memory cap, and what is proved of it: as ``pipesched optimize``.

    target: a schedule whose placement, sizes and kind of backward count; without one there are p, v and m.
    placement: ``linear``, ``loop``, ``vee``, the rank of each stage, or a file whose placement counts. mem_cap: in
    microbatches through 1/p of the model, one, or one a rank. backward: ``split`` or ``fused``. time_limit: seconds.
    certify: what rests on an engine's word is proved.
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
    from pipesched.optimizer import optimize as verb
    from pipesched.optimizer.optimize_request import request

    source, sizes = (None, sizes) if target is None else sources.named(target, sizes, computes=True)
    return verb.optimize(request(source, sizes, given), progress or (lambda state: None))


def run(
    target: Target,
    *,
    net: str = "mlp",
    samples: Sequence[int] | str | None = None,
    steps: int = 3,
    backend: str = "gloo",
    device: str = "cpu",
    engine: str = "pipesched",
    timeout: float = 30,
    pace: float = 20,
    trace: bool = False,
    faults: Sequence[str] = (),
    comm: str | None = None,
    costs: CostsLike = None,
    torch_version: str | None = None,
    placement: Sequence[int] | None = None,
    frozen: Sequence[int] | str | None = None,
    max_ops: int = MAX_OPS,
    framework_path: str | None = None,
    framework_time: float = 60,
    **parameters: Parameter,
) -> Rehearsal:
    """A small model trained on p local processes with a schedule, compared with its prediction.

    samples: of each microbatch, where they differ. timeout: seconds that are a stall. pace: milliseconds of a cost of
    1. trace: keep when each instruction began and ended, as `result.trace`. faults: ``--fault``, each KIND@RANK[:N].

    Raises:
        PipeschedError: everything that is wrong with the schedule; PS225; PS820 to PS837, what ended the run.
    """
    given, sizes = _read("run", locals())
    from pipesched.runtime import run as verb

    request = options.request(verb.Request, given)
    return verb.run(*_file("run", target, given, sizes), request)


def run_rank(
    target: Target,
    rank: int,
    factory: str,
    *,
    steps: int = 3,
    device: str = "cpu",
    model: ModelLike = None,
    comm: str | None = None,
    costs: CostsLike = None,
    torch_version: str | None = None,
    placement: Sequence[int] | None = None,
    frozen: Sequence[int] | str | None = None,
    max_ops: int = MAX_OPS,
    framework_path: str | None = None,
    framework_time: float = 60,
    **parameters: Parameter,
) -> OneRank:
    """Run one rank's list with your stages, ``run --rank``: bytes, and costs in ms (neighbours: imitated).

    factory: ``--stages``, of ``module:function`` or ``file.py:function``, called with a stage and how many there are.

    Raises:
        PipeschedError: everything that is wrong with the schedule; PS225; PS820 to PS831, what ended it.
    """
    given, sizes = _read("run", locals())
    from pipesched.runtime import rehearse as verb

    return verb.rehearse(*_file("run", target, given, sizes), options.request(verb.Request, given))


def calibrate(*traces: File, digits: int = 3) -> Calibration:
    """The costs of every stage, fitted to a measured run: `result.costs` is what every other function takes.

    traces: what ``run --trace`` writes, or the files of torch's profiler, one a rank.

    Raises:
        PipeschedError: PS225, PS809; PS816, PS818, traces that say too little.
    """
    given, _ = _read("calibrate", {"digits": digits, "parameters": {}})
    from pipesched.runtime import calibrate as verb
    from pipesched.runtime.measured import trace_files
    from pipesched.runtime.values import files

    return verb.calibrate(trace_files.read(files(traces)), given["digits"])


def check(
    file: File | list[str] | tuple[str, ...],
    *,
    trainer: str | None = None,
    torch_version: str | None = None,
    p: int | None = None,
    processes: int | None = None,
    variables: Mapping[str, object] | Sequence[str] = (),
    dry_run_script: bool = False,
) -> Checked:
    """Is a trainer's configuration right: as ``pipesched check``; what is wrong in the file is in the result.

    file: the path of its TOML, YAML or JSON, or of a script with its command line; a `Source`; or the words of a
    command, as a shell has expanded them. trainer: its name and release, ``torchtitan==0.2.2``. p: ranks, where the
    file does not say. processes: those of every replica. variables: of a script, set from outside. dry_run_script:
    execute the script, its programs replaced by recorders.

    Raises:
        PipeschedError: PS225, an option that means nothing; PS809, there is no such file.
    """
    given, _ = _read("check", locals() | {"parameters": {}})
    from pipesched.interop import check as verb

    asked = options.request(verb.Asked, given)
    if isinstance(file, list | tuple):
        return verb.check_command(values.texts(file), asked)
    if dry_run_script:
        if isinstance(file, Source):
            raise fail(Code.USAGE, "a script is executed from its file", help="give its path")
        return verb.check_file(fspath(file), asked, run=True)
    return verb.check(file if isinstance(file, Source) else sources.file(file), asked)


check_config = check


def _read(command: str, arguments: dict[str, object]) -> tuple[Given, dict[str, Value]]:
    """The arguments of a function, each as the option of its command reads it; and the sizes.

    Raises:
        PipeschedError: PS225, PS809.
    """
    parameters = cast("Mapping[str, object]", arguments.pop("parameters"))
    if (target := arguments.get("target")) is not None:
        _require_known(command, target, [*parameters], arguments)
    sizes, settings = _apart(parameters, parameter_of)
    return {**options.read(command, arguments), "settings": settings}, sizes


def _require_known(command: str, target: object, names: Sequence[str], own: Iterable[str]) -> None:
    """Raises PipeschedError: PS225, a keyword that is no parameter of a .ps file, and close to one of the function."""
    near = {name: close[0] for name in names if (close := get_close_matches(name, own, 1, 0.75))}
    if not near or not isinstance(target, str | PathLike | Source):
        return
    known = parameters_of(sources.source(target))
    for name, meant in near.items():
        if known and name not in known:
            raise fail(Code.USAGE, f"{command} has no keyword {name}", help=f"did you mean `{meant}`?")


def _apart(
    parameters: Mapping[str, object], reader: Callable[[str], Callable[[object], Made]]
) -> tuple[dict[str, Made], dict[str, str | float]]:
    """The parameters that are sizes, as they are read, and the settings of a framework."""
    found = {name: None if name in ("p", "v", "m") else setting(x) for name, x in parameters.items()}
    settings = {name: x for name, x in found.items() if x is not None}
    return {n: options.value(n, reader(n), x) for n, x in parameters.items() if n not in settings}, settings


def _file(command: str, target: object, given: Given, sizes: dict[str, Value]) -> tuple[Source, Options]:
    """The source of a target, and how to read it."""
    source, sizes = sources.named(target, sizes)
    return source, options.compile_options(command, given, sizes)
