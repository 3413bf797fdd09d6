"""The API functions `pipesched.run`, `run_rank` and `calibrate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipesched.command import options
from pipesched.command.options import MAX_OPS
from pipesched.common import keywords
from pipesched.common.keywords import CostsLike, File, Parameter, Target
from pipesched.planning.values import ModelLike

if TYPE_CHECKING:
    from pipesched.runtime.calibrate import Calibration
    from pipesched.runtime.rehearse import OneRank
    from pipesched.runtime.run_report import Rehearsal


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
    """Train a small model on p local processes with a schedule, and compare the run with its prediction.

    samples: the number of samples in each microbatch, if microbatches differ. timeout: seconds without progress that
    count as a stall. pace: milliseconds for a cost of 1. trace: record the start and end of each instruction in
    `result.trace`. faults: as for ``--fault``, each KIND@RANK[:N].

    Raises:
        PipeschedError: all findings on the schedule; PS225; PS820 to PS837 for the fault that ended the run.
    """
    given, sizes = keywords.read("run", locals())
    from pipesched.runtime import run as verb

    request = options.request(verb.Request, given)
    return verb.run(*keywords.file("run", target, given, sizes), request)


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
    """Run one rank's list with your stages and imitated neighbours, as ``run --rank``; return bytes, and costs in ms.

    factory: ``module:function`` or ``file.py:function``, as for ``--stages``; called with a stage's number and the
    number of stages.

    Raises:
        PipeschedError: all findings on the schedule; PS225; PS820 to PS831 for the fault that ended the run.
    """
    given, sizes = keywords.read("run", locals())
    from pipesched.runtime import rehearse as verb

    return verb.rehearse(*keywords.file("run", target, given, sizes), options.request(verb.Request, given))


def calibrate(*traces: File, digits: int = 3) -> Calibration:
    """Fit the costs of every stage to a measured run. Pass `result.costs` as `costs` to other functions.

    traces: files that ``run --trace`` or torch's profiler wrote, one per rank.

    Raises:
        PipeschedError: PS225, PS809; PS816 or PS818 if the traces do not contain enough data.
    """
    given, _ = keywords.read("calibrate", {"digits": digits, "parameters": {}})
    from pipesched.runtime import calibrate as verb
    from pipesched.runtime.measured import measured_traces
    from pipesched.runtime.values import files

    return verb.calibrate(measured_traces.files(files(traces)), given["digits"])
