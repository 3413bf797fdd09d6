"""The commands as functions: they return values, and do not print or exit.

    schedule = pipesched.load("1f1b", p=4)                     a built-in name, a path, an order in memory
    report = pipesched.verify("mine.csv", comm="pair-stream")
    report.ok, report.diagnostics, report.time.makespan, print(report)
    best = pipesched.optimize(p=4, m=8, mem_cap=4)             an Optimum: best.status, best.proved, best.source
    pipesched.why("zb_h1", p=4, m=8).growth                    a Why; show, compare, diff, run, calibrate likewise

An option has the same name as on the command line, with `_` for `-`, the same default and the same meaning; an invalid
option raises PipeschedError (PS225). The value that a function returns corresponds to the command's output: `str()` is
the text, `to_json()` the object of ``--json``, `exit_status` the exit status. Other keywords are parameters of the
schedule: p, v, m, ….

    target         a built-in name, a path, ``FRAMEWORK:NAME``, .ps text, a `Source`, the result of `load`, or an order
                   in memory: rows of torch CSV cells or of words such as F0.1, a `pandas.DataFrame` of them, a dict
                   from ranks to torch actions, a torch schedule
    comm           the communication model under which the order must not deadlock, strict by default; if it is given,
                   a report has the makespan with messages that queue under this model
    mem_cap        the largest number of activations, in microbatches through 1/p of the model; one, or one per rank
    costs          a string such as ``F=1,B=2``, a dict, the `Path` of a TOML file, or `Costs`
    model, device, efficiency    a transformer and how it is trained, for memory in bytes; a device and the fraction
                   of its peak that is achieved, for costs in milliseconds
    release        when activations are freed: ``W``, ``I``, ``split:x``, ``torch`` or ``I=a,W=b``
    torch_version, stages, placement    the torch version, number of stages, and rank of each stage of a torch CSV
    max_ops        the largest number of operations
    framework_path, framework_time    where the framework is installed, and the time limit of its code in seconds
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

from pipesched import compile
from pipesched.analysis.communication import parse_model
from pipesched.command import options, values
from pipesched.command.options import MAX_OPS
from pipesched.common import keywords, sources
from pipesched.common.installed import installed_version
from pipesched.common.keywords import Caps, CostsLike, File, Number, Parameter, Target
from pipesched.compile import Options
from pipesched.diagnostics import Code, PipeschedError
from pipesched.engines.parts import PartsLike
from pipesched.model.release import Release
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import DEFAULT, TorchVersion
from pipesched.orders import torch_csv
from pipesched.planning.values import DeviceLike, ModelLike
from pipesched.report.report import Report

if TYPE_CHECKING:
    from pipesched.views.show import Picture


def load(
    target: Target,
    *,
    max_ops: int = MAX_OPS,
    framework_path: str | None = None,
    framework_time: float = 60,
    **parameters: Parameter,
) -> Schedule:
    """Load a schedule at the given sizes (p=4, m=8, …). If the file names its messages, they are in `schedule.program`.

    Raises:
        PipeschedError: the findings, if the file is not a schedule.
    """
    given, sizes = keywords.read("verify", locals())
    if isinstance(target, Schedule | Program):
        return sources.loaded(target, Options(sizes)).schedule
    return compile.load(*keywords.file("verify", target, given, sizes)).schedule


def from_torch_csv(target: Target, *, torch_version: str = str(DEFAULT)) -> Schedule:
    """Load a torch pipelining CSV; the messages of a compute_comms file are loaded too, as by `load`.

    Raises:
        PipeschedError: PS3xx, PS8xx: cells are not actions, or the file is not a schedule.
    """
    version = keywords.value("torch_version", values.version, torch_version)
    made = torch_csv.read(sources.source(target), torch_version=version)
    return made if isinstance(made, Schedule) else made.schedule


def verify(
    target: Target | None = None,
    *,
    smallest: bool = False,
    comm: str | None = None,
    jitter: Number | None = None,
    rule: bool = False,
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
    fsdp: bool = False,
    require_proof: bool = False,
    second_opinion: bool = False,
    proof: str | None = None,
    recorded: str | PathLike[str] | None = None,
    **parameters: Parameter,
) -> Report:
    """Return the verdict on a schedule. Its findings are in the report; a file that cannot be read also has a report.
    Without a target, the records of a run are checked against each other.

    fsdp: a torch CSV must have UNSHARD and RESHARD. require_proof: report an error unless the file is an answer that is
    proved optimal; proof: write the clauses of the answer to PATH.cnf and their refutation to PATH.lrat. recorded: a
    folder with the messages that the ranks of a run posted. model: a transformer and its training, for memory in bytes;
    a cap can then be "80GB". jitter: the standard deviation of every time, such as "5%": the report then has quantiles
    of the makespan over random draws; rule: an order by `greedy` is decided again in each draw. smallest: if a .ps file
    fails, report the smallest size that fails in the same way. second_opinion: Z3 also checks a certificate of `prove`.

    Raises:
        PipeschedError: PS225: an option is invalid.
    """
    given, sizes = keywords.read("verify", locals())
    from pipesched.verbs import verify as verb

    parse_model(given["comm"] or "strict")
    if target is None:
        return verb.unnamed(options.compile_options("verify", given, sizes))
    given = {**given, "torch_version": given["torch_version"] or _version_of(target)}
    if isinstance(target, Schedule | Program):
        asked = options.compile_options("verify", given, sizes)
        return verb.verify_loaded(sources.loaded(target, asked), asked)
    try:
        return verb.verify(*keywords.file("verify", target, given, sizes))
    except PipeschedError as error:
        if error.diagnostics[0].code is Code.USAGE:
            raise
        return Report(None, str(target), sizes, diagnostics=error.diagnostics)


def emit(
    target: Target,
    to: str = "stream",
    *,
    mend: bool = False,
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
    """Return a verified schedule as text: ``stream``, ``torch-csv`` (compute only), ``torch-comms`` or ``deepspeed``.

    ``order``, ``program`` and ``ps`` write an order unchanged, even with errors. mend: an order that hangs or pairs
    messages wrongly is repaired first.

    Raises:
        PipeschedError: all findings on the schedule, or features that the target does not support.
    """
    given, sizes = keywords.read("emit", locals())
    from pipesched.verbs import emit as verb

    made = verb.emit(*keywords.file("emit", target, given, sizes), given["to"])
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
    parts: PartsLike = None,
    slot: str | None = None,
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
    """Draw a schedule: as ``text`` (the default), ``svg``, ``html``, ``trace``, ``dag`` or ``csv``.

    begin, end: ``--from`` and ``--to``. measured: traces of a run to draw under the plan, one file per rank. slot: an
    operation such as ``F0.3``, whose parts on engines are drawn, as ``text`` or ``svg``. model: a transformer and its
    training, whose bytes over time are drawn, as ``text``, ``svg`` or ``html``. `str()` is the drawing; a notebook
    displays it. A wrong schedule is drawn as far as it runs, with its diagnostics.

    Raises:
        PipeschedError: the findings, if the file is not a schedule; PS225, PS815 to PS818, PS820.
    """
    given, sizes = keywords.read("show", locals())
    from pipesched.views import show as verb

    return verb.show(*keywords.file("show", target, given, sizes), verb.request(given))


def _version_of(target: object) -> TorchVersion | None:
    """Return the version of torch to which a schedule object belongs, or None."""
    if not hasattr(target, "pipeline_order"):
        return None
    try:
        return installed_version()
    except (ImportError, PipeschedError):
        return None
