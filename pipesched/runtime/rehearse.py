"""Rehearses one rank of a large pipeline on this machine: measures its memory, and its compute times as costs.

    request, file ──> emit: verified, as a stream ──> the rank's list, its neighbours imitated ──> bytes, costs.toml

    def stage(stage, stages):                    the factory: `--stages module:stage`, or `file.py:stage`
        return module                            with --model, which gives the inputs
        return module, inputs                    inputs: one microbatch, a tensor or a tuple of them
        return module, inputs, loss              loss: maps the last stage's output to a number

Costs are in milliseconds. The costs of stages on other ranks are copied from `--costs`, to which rehearsals of those
ranks can write them, or else from the nearest measured stage.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pipesched.diagnostics import AnyCode, Code, PipeschedError, fail
from pipesched.examine import Options
from pipesched.model.costs import Costs
from pipesched.model.ops import LETTERS
from pipesched.model.units import MILLISECONDS
from pipesched.planning.byte_counts import gigabytes
from pipesched.planning.footprint import CHANGING
from pipesched.planning.footprint_report import InBytes
from pipesched.planning.transformer import activations
from pipesched.planning.transformer.kept import table as table_of_factors
from pipesched.planning.transformer.trainers import settled
from pipesched.planning.workload import Workload
from pipesched.runtime.calibrate import plain, rounded
from pipesched.runtime.codes import RuntimeCode
from pipesched.stream import Stream, loads
from pipesched.support.source import Source
from pipesched.verbs.emit import emit
from pipesched.views.tables import table

if TYPE_CHECKING:
    from torch import Tensor, nn

    from pipesched.planning.transformer.config import Trained
    from pipesched.runtime.execute.rehearsal import Part, Rehearsed
    from pipesched.runtime.execute.stage_bytes import StageBytes

DIGITS = 3
MAX_STEPS = 10_000
_KINDS = (*LETTERS, "FB")
_RETURNS = "return a module, (module, inputs) or (module, inputs, loss)"


@dataclass(frozen=True)
class Request:
    """A request for a rehearsal. factory: ``module:function``. steps: measured steps, after one that counts bytes."""

    factory: str | None = None
    rank: int = 0
    steps: int = 3
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Check the fields; raise PipeschedError with PS225 if a value is beyond its limits."""
        if self.factory is None:
            raise fail(Code.USAGE, "no stages to run", help="give --stages FILE.py:FUNCTION, which creates them")
        if not 1 <= self.steps <= MAX_STEPS:
            raise fail(Code.USAGE, f"{self.steps} steps are not allowed; choose 1 to {MAX_STEPS:,}")


@dataclass(frozen=True)
class OneRank:
    """The result of a rehearsal. notes: the assumptions that were made. given: the costs from `--costs`, by kind and
    stage. by_model: the peak bytes that `--model` predicts, or None. factors: the measured bytes of the layers relative
    to the model's prediction, for `plan --kept`.
    """

    stream: Stream
    request: Request
    found: Rehearsed
    notes: tuple[str, ...]
    given: Mapping[str, Sequence[Fraction]]
    by_model: int | None
    factors: tuple[Fraction | None, ...] = ()

    def __repr__(self) -> str:
        return f"<OneRank {self.request.rank} of {self.stream.name}: {self.found.peak:,} bytes>"

    def __str__(self) -> str:
        return self.text()

    @property
    def stages(self) -> Mapping[int, StageBytes]:
        """The bytes of one microbatch, by stage."""
        return self.found.stages

    @property
    def costs(self) -> Costs:
        """The costs in milliseconds, as a `Costs` value."""
        return Costs({key: tuple(map(Fraction, row)) for key, row in self._rows().items()}, unit=MILLISECONDS)

    def _rows(self) -> dict[str, list[str]]:
        """Return the costs of each kind that ran, a number per stage."""
        made: dict[str, list[str]] = {}
        for kind in _KINDS:
            known = {s: x for s in self.found.stages if (x := self.found.median(kind, s)) is not None}
            row = dict(enumerate(self.given.get(kind, ())))
            row |= {stage: Fraction(rounded(Fraction(seconds * 1000), DIGITS)) for stage, seconds in known.items()}
            if row:
                near = [min(row, key=lambda s: (abs(s - stage), s)) for stage in range(self.stream.stages)]
                made[kind] = [plain(rounded(row[s], DIGITS)) for s in near]
        return made

    def toml(self) -> str:
        """Return the costs in the TOML form that `--costs` reads."""
        stages, rank = sorted(self.found.stages), self.request.rank
        measured = ", ".join(map(str, stages))
        lines = [
            f"# rehearsed by pipesched: rank {rank} of {self._title} on {self.request.device}, "
            f"{self.request.steps} steps of {self.stream.microbatches} microbatches",
            f"# {DIGITS} significant digits; measured on stages {measured}, other stages "
            f"{'as in --costs' if self.given else 'like the nearest'}",
            *(f"# {note}" for note in self.notes),
            f'unit = "{MILLISECONDS.name}"',
            *(["", *table_of_factors(self.factors), "", "[costs]"] if any(self.factors) else []),
            *(f"{key} = [{', '.join(row)}]" for key, row in self._rows().items()),
        ]
        return "\n".join(" ".join(line.split()) for line in lines) + "\n"

    @property
    def _title(self) -> str:
        return " ".join([self.stream.name, *(f"{name}={value}" for name, value in self.stream.parameters.items())])

    def text(self) -> str:
        """Return the peak, then one line per stage."""
        found, rank = self.found, self.request.rank
        instructions = self.stream.ranks[rank]
        share = 100 * found.predicted / found.peak if found.peak else 100.0
        head = [
            f"rehearsed  {self._title}   rank {rank} of {len(self.stream.ranks)} on {self.request.device}, "
            f"{len(instructions)} instructions",
            f"    peak {_size(found.peak)} at instruction {found.at + 1} ({instructions[found.at]}), not counting "
            f"{_size(found.weights)} of weights and as much again for their gradients",
            f"    {_size(found.predicted)} predicted from one microbatch: {share:.1f} %",
        ]
        if self.by_model is not None and found.peak:
            head.append(f"    {_size(self.by_model)} predicted by the model: {100 * self.by_model / found.peak:.1f} %")
        headers = ("stage", "message\nin", "message\nout", "kept\nafter F", "kept\nafter I", "most\nin a backward")
        rows = [
            [
                str(stage),
                *(_size(x) for x in (one.entering, one.leaving, one.kept["F"], one.kept.get("I"), _backward(one))),
            ]
            for stage, one in sorted(found.stages.items())
        ]
        times = [
            f"stage {stage}: " + ", ".join(f"{kind} {said}" for kind in _KINDS if (said := self._time(kind, stage)))
            for stage in sorted(found.stages)
        ]
        return "\n".join([*head, "", table(headers, rows), "", *times, *(f"note: {note}" for note in self.notes)])

    def _time(self, kind: str, stage: int) -> str:
        found = self.found.median(kind, stage)
        return "" if found is None else f"{plain(rounded(Fraction(found * 1000), DIGITS))} {MILLISECONDS.name}"

    def to_json(self) -> dict[str, object]:
        """Return the published form (see ``emit/README.md``)."""
        found = self.found
        return {
            "ok": True,
            "name": self.stream.name,
            "rank": self.request.rank,
            "device": self.request.device,
            "peak_bytes": found.peak,
            "peak_instruction": found.at,
            "predicted_bytes": found.predicted,
            "model_bytes": self.by_model,
            "weight_bytes": found.weights,
            "stages": [
                {
                    "stage": stage,
                    "entering": one.entering,
                    "leaving": one.leaving,
                    "kept": dict(one.kept),
                    "most": dict(one.most),
                }
                for stage, one in sorted(found.stages.items())
            ],
            "unit": MILLISECONDS.name,
            "costs": {key: [float(x) for x in row] for key, row in self._rows().items()},
            "notes": list(self.notes),
            "file": None,
            "diagnostics": [],
        }


def rehearse(source: Source, options: Options, request: Request) -> OneRank:
    """Verify a schedule and run the list of one rank. Inputs come from the factory, otherwise from the model.

    Raises:
        PipeschedError: the findings of the verdict; PS225; PS814; PS820 if torch is missing; PS824, PS825, PS828, PS829
            or PS831 if the factory or a stage fails.
    """
    if find_spec("torch") is None:
        raise fail(
            Code.NEEDS, "a rehearsal needs torch, which is not installed", help="pip install 'pipesched[runtime]'"
        )
    made = emit(source, options, "stream")
    if made.order is None:
        raise PipeschedError(made.report.diagnostics)
    stream = loads("".join(made.pieces()))
    if not 0 <= request.rank < len(stream.ranks):
        raise fail(Code.USAGE, f"rank {request.rank} does not exist: the schedule has {len(stream.ranks)} ranks")
    _require_plain(stream)
    from pipesched.runtime.execute import rehearsal
    from pipesched.runtime.execute.errors import RunError

    _require(request.device)
    notes: list[str] = []
    function, held = _factory(request.factory or ""), sorted({stage for _, stage in stream.held_by(request.rank)})
    parts = {stage: _part(function, stage, stream.stages, request, options.of(Workload).model, notes) for stage in held}
    try:
        with _raising(RuntimeCode.STAGE_RAISED, f"a stage of rank {request.rank}"):
            found = rehearsal.rehearse(stream, request.rank, parts, device=request.device, steps=request.steps)
    except RunError as error:
        from pipesched.runtime.run import diagnostic

        raise PipeschedError([diagnostic(error.fault)]) from None
    asked = options.costs.over(Costs(unit=MILLISECONDS)).given if options.costs else {}
    given = {kind: row for kind, row in asked.items() if isinstance(row, tuple) and len(row) == stream.stages}
    used = made.report.parts.of(InBytes)
    by_model = None if used is None else sum(used.ranks[request.rank][kind] for kind in CHANGING)
    trained = options.of(Workload).model
    factors = () if trained is None else _factors(trained, stream.stages, found)
    return OneRank(stream, request, found, tuple(dict.fromkeys(notes)), given, by_model=by_model, factors=factors)


def _require_plain(stream: Stream) -> None:
    """Raise PipeschedError with PS814 for features that a rehearsal does not support."""
    if stream.reads or stream.versions:
        which = ("stages that read a stage other than the previous one", "stages with STEPs inside the order")
        message = f"{stream.name}: {which[not stream.reads]} cannot be rehearsed"
        raise fail(Code.TARGET, message, help="`pipesched run` runs them, on all ranks")


def _factors(trained: Trained, stages: int, found: Rehearsed) -> tuple[Fraction | None, ...]:
    """Return `OneRank.factors` of a stage in the middle of the pipeline or, without one, of the rank's first stage."""
    stage = next((stage for stage in sorted(found.stages) if 0 < stage < stages - 1), min(found.stages))
    one = found.stages[stage]
    measured = one.kept["F"], one.kept.get("I", 0), one.most.get("B", 0), one.most.get("I", 0)
    return activations.factors(trained[0], settled(trained[1]), stages, stage, measured)


def _require(device: str) -> None:
    """Require that the device exists; raise PipeschedError with PS820 otherwise."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise fail(Code.NEEDS, "torch finds no usable GPU here", help="choose --device cpu")


@contextmanager
def _raising(code: AnyCode, who: str) -> Iterator[None]:
    """Convert an exception of the user's code to a finding with its line."""
    from pipesched.common.functions import Unknown
    from pipesched.runtime.execute.errors import RunError

    try:
        yield
    except (RunError, PipeschedError):
        raise
    except Unknown as error:
        raise fail(code, str(error), help="give --stages module:function, or file.py:function") from None
    except (Exception, SystemExit) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        own = [x for x in traceback.extract_tb(error.__traceback__) if not _ours(x.filename)]
        notes = (f"{own[-1].filename}, line {own[-1].lineno}: {own[-1].line}",) if own else ()
        raise fail(code, f"{who} raised {said}", notes=notes) from None


def _ours(filename: str) -> bool:
    return (
        "site-packages" in filename or filename.startswith("<") or Path(__file__).parents[1] in Path(filename).parents
    )


def _factory(name: str) -> Callable[[int, int], object]:
    """Import the function ``module:function``; modules in its folder or in the current folder are found too.

    Raises:
        PipeschedError: PS828.
    """
    import torch  # noqa: F401  before any folder of the user's, which may have a file of that name

    from pipesched.common.functions import found

    path = name.rpartition(":")[0]
    folder = str(Path(path).resolve().parent if path.endswith(".py") else Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    with _raising(RuntimeCode.FACTORY, name):
        function = found(name)[1]
    if not callable(function):
        raise fail(RuntimeCode.FACTORY, f"{name} is not a function: {type(function).__name__}")
    return cast("Callable[[int, int], object]", function)


def _part(
    function: Callable[[int, int], object],
    stage: int,
    stages: int,
    request: Request,
    trained: Trained | None,
    notes: list[str],
) -> Part:
    """Build a stage with the factory.

    Raises:
        PipeschedError: PS828 if the factory raises; PS829 if it does not return a module.
    """
    from pipesched.runtime.execute.rehearsal import Part

    with _raising(RuntimeCode.FACTORY, f"{request.factory}({stage}, {stages})"):
        given = function(stage, stages)
    given, *rest = given if isinstance(given, tuple | list) else (given,)
    module = _module(given, rest, stage, request)
    inputs = _inputs(module, rest, stage, request, trained)
    if stage + 1 == stages and len(rest) < 2:
        said = "cross entropy of its outputs with random tokens" if trained is not None else "the mean of its output"
        notes.append(f"the loss of the last stage is {said}; your function can return a different one")
    loss = rest[1] if len(rest) > 1 else _entropy if trained is not None else _mean
    return Part(module, tuple(x.to(request.device) for x in inputs), loss)


def _module(given: object, rest: Sequence[object], stage: int, request: Request) -> nn.Module:
    """Move the module of a stage to its device.

    Raises:
        PipeschedError: PS829 if `given` is not a module, or is on the meta device; PS825 if it cannot be moved.
    """
    from torch import nn

    if not isinstance(given, nn.Module) or len(rest) > 2:
        kinds = ", ".join(type(x).__name__ for x in (given, *rest))
        raise fail(
            RuntimeCode.NO_STAGE,
            (f"{request.factory} returned {kinds} for stage {stage}"),
            help=_RETURNS,
        )
    if any(x.is_meta for x in (*given.parameters(), *given.buffers())):
        help = f"call module.to_empty(device={request.device!r}), and set its weights"
        raise fail(
            RuntimeCode.NO_STAGE,
            f"stage {stage} is on torch's meta device, so it has no values",
            help=help,
        )
    with _raising(RuntimeCode.STAGE_RAISED, f"stage {stage}, moved to {request.device},"):
        return given.to(request.device)


def _inputs(
    module: nn.Module, rest: Sequence[object], stage: int, request: Request, trained: Trained | None
) -> tuple[Tensor, ...]:
    """Return the inputs of a stage, one microbatch: from the factory, otherwise from the model.

    Raises:
        PipeschedError: PS829 if the inputs are unknown, not tensors, or on the meta device.
    """
    from torch import Tensor

    if rest:
        given = tuple(rest[0]) if isinstance(rest[0], tuple | list) else (rest[0],)
    elif trained is not None:
        given = _of_model(trained, stage, module)
    else:
        message = f"the inputs of stage {stage} are unknown: {request.factory} returns only a module"
        raise fail(RuntimeCode.NO_STAGE, message, help="return (module, inputs), or give --model")
    inputs = tuple(x for x in given if isinstance(x, Tensor))
    if not given or len(inputs) < len(given):
        kinds = ", ".join(type(x).__name__ for x in given) or "nothing"
        raise fail(RuntimeCode.NO_STAGE, f"the inputs of stage {stage} are not all tensors: {kinds}", help=_RETURNS)
    if any(x.is_meta for x in inputs):
        raise fail(
            RuntimeCode.NO_STAGE, f"the inputs of stage {stage} are on torch's meta device", help="torch.zeros(...)"
        )
    return inputs


def _of_model(trained: Trained, stage: int, module: nn.Module) -> tuple[Tensor, ...]:
    """Return the inputs of a stage of the model, one microbatch: token ids, or hidden vectors in the module's dtype."""
    import torch

    transformer, training = trained
    rows, tokens = training.microbatch, transformer.sequence // training.context
    if stage == 0:
        return (torch.randint(transformer.vocabulary, (rows, tokens)),)
    kinds = [x.dtype for x in module.parameters() if x.is_floating_point()]
    return (torch.randn(rows, tokens, transformer.hidden, dtype=kinds[0] if kinds else None),)


def _mean(output: object) -> Tensor:
    return _one(output).mean()


def _one(output: object) -> Tensor:
    """Return the output if it is a tensor, which the default losses take; raise PipeschedError (PS829) otherwise."""
    from torch import Tensor

    if not isinstance(output, Tensor):
        message = f"the last stage returns {type(output).__name__}, for which there is no default loss"
        raise fail(
            RuntimeCode.NO_STAGE,
            message,
            help="return (module, inputs, loss), where loss maps that output to a number",
        )
    return output


def _entropy(output: object) -> Tensor:
    import torch

    logits = _one(output).flatten(0, -2)
    return torch.nn.functional.cross_entropy(
        logits, torch.randint(logits.shape[-1], logits.shape[:1], device=logits.device)
    )


def _backward(one: StageBytes) -> int | None:
    return max((one.most[op] for op in ("I", "W", "B") if op in one.most), default=None)


def _size(count: int | None) -> str:
    return "-" if count is None else gigabytes(count)
