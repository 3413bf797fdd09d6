"""Finds modules that a runtime would train wrongly or not at all; every rank refuses them by name before step 1.

    sharded weights      gathered in a forward and scattered in a backward, which a split schedule runs twice or never
    hooks on weights     run after each microbatch, when `.grad` is a partial sum, and never in a split backward

    frozen stages        run without a graph if no trained stage precedes them; otherwise I is their whole backward
    first trained stage  its input needs no gradient, and it sends none

The README in this folder has the table of supported modules.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from pipesched.runtime.execute.errors import BOUNDARY, UNSUPPORTED, Fault, Place, RunError
from pipesched.runtime.execute.passed import home
from pipesched.runtime.execute.shapes import Boundary, text
from pipesched.runtime.execute.tied import Note, Parameter, Tied
from pipesched.stream import Stream

DDP_INSTEAD = "replicate stages with DistributedDataParallel(stage, process_group=…) instead"


def _composed(module: nn.Module) -> bool:
    return any(c.__module__ == "torch.distributed._composable.replicate" for c in type(module).__mro__)


def _own_casts(module: nn.Module) -> bool:
    return isinstance(module, DistributedDataParallel) and module.mixed_precision is not None


def _own_hooks(module: nn.Module) -> bool:
    """Return True if DDP averages with hooks other than its reducer's."""
    if not isinstance(module, DistributedDataParallel):
        return False
    return bool(module._use_python_reducer or getattr(module, "_delay_all_reduce_params", None))


def _changed(module: nn.Module) -> bool:
    """Return True if the set of trained weights has changed since DDP was built."""
    if not isinstance(module, DistributedDataParallel):
        return False
    known = module._get_ddp_logging_data()["num_parameter_tensors"]
    named = module.module.named_parameters()
    return bool(known != sum(w.requires_grad and name not in module.parameters_to_ignore for name, w in named))


# Unsupported modules: a test, the name, and what to use instead.
MODULES: Sequence[tuple[Callable[[nn.Module], bool], str, str]] = (
    (lambda part: isinstance(part, FullyShardedDataParallel), "FullyShardedDataParallel (FSDP1)", DDP_INSTEAD),
    (lambda part: isinstance(part, FSDPModule), "fully_shard (FSDP2)", DDP_INSTEAD),
    (_composed, "the composable replicate()", DDP_INSTEAD),
    (_own_casts, "DistributedDataParallel(mixed_precision=…)", "use torch.autocast around the step"),
    (_own_hooks, "DistributedDataParallel with a Python reducer or delayed parameters", DDP_INSTEAD),
    (_changed, "DistributedDataParallel built when other weights were trained", "freeze weights before wrapping"),
)

# Unsupported weights: a test, the name, and what to use instead.
WEIGHTS: Sequence[tuple[Callable[[Tensor], bool], str, str]] = (
    (lambda weight: isinstance(weight, DTensor), "a DTensor (tensor parallel)", "give each stage unsharded weights"),
    (
        lambda weight: hasattr(weight, "_in_backward_optimizers"),
        "updated by an optimizer in the backward",
        "give the optimizer to `Runtime(optimize=…)`, or step it after `Runtime.step`",
    ),
    (
        lambda weight: bool(weight._post_accumulate_grad_hooks),
        "hooked by register_post_accumulate_grad_hook",
        "do the hook's work after `Runtime.step`: within the step, gradients are only partial sums",
    ),
)


def unsupported(modules: Mapping[tuple[int, int], nn.Module]) -> tuple[str, str] | None:
    """Return a message on the first unsupported part of these stages and a help text, or None if all are supported."""
    for (_, stage), module in sorted(modules.items(), key=lambda item: item[0]):
        for found, help in _of(module):
            return f"stage {stage}: {found}", help
    return None


def _of(module: nn.Module) -> Iterator[tuple[str, str]]:
    for name, part in module.named_modules():
        where = f" of {name!r}" if name else ""
        yield from ((f"{what}{where} is not supported", help) for holds, what, help in MODULES if holds(part))
    for name, weight in module.named_parameters():
        for holds, what, help in WEIGHTS:
            if holds(weight):
                yield f"the weight {name!r} is {what}, which is not supported", help


def check_supported(notes: Sequence[Note]) -> None:
    """Require that no rank has an unsupported module. notes: each rank's report.

    Raises:
        RunError: PS831 on every rank.
    """
    for rank, note in enumerate(notes):
        if note["unsupported"] is not None:
            message, help = note["unsupported"]
            raise RunError(Fault(UNSUPPORTED, message, Place(rank), (), help))


def check_known(stream: Stream, known: Container[str]) -> None:
    """Require that all instructions are known.

    Raises:
        RunError: PS831 on every rank.
    """
    for rank, instructions in enumerate(stream.ranks):
        for number, x in enumerate(instructions, start=1):
            if wrong := [part.op for part in (x, *x.parts) if part.op not in known]:
                message = f"{stream.name} runs {wrong[0]}, which the runtime does not support"
                raise RunError(
                    Fault(UNSUPPORTED, message, Place(rank, 0, number, str(x)), (), "use a schedule without it")
                )


def check_left_out(stream: Stream, tied: Sequence[object]) -> None:
    """Require that no weights are tied if a route skips a stage.

    Raises:
        RunError: PS831.
    """
    if tied and any(-1 in route.ranks for route in stream.placement):
        message = f"{stream.name}: weights cannot be tied, since some microbatches skip stages"
        raise RunError(Fault(UNSUPPORTED, message, None, (), "give each stage its own weights"))


def check_passed(stream: Stream, boundaries: Sequence[Boundary]) -> None:
    """Require that a stage that a route skips returns the shape that it takes. boundaries: each stage's input.

    Raises:
        RunError: PS824 on every rank.
    """
    for stage in sorted({s for route in stream.placement for s, rank in enumerate(route.ranks) if rank < 0}):
        taken, made = boundaries[stage : stage + 2]
        if taken != made:
            message = f"stage {stage} takes {text(taken)} and returns {text(made)}, but some microbatches skip it"
            raise RunError(
                Fault(BOUNDARY, message, Place(home(stream, stage)), (), "skip only stages that keep the shape")
            )


def check_one_holder(rank: int, modules: Mapping[tuple[int, int], nn.Module], tied: Sequence[object]) -> None:
    """Require that every weight belongs to a single stage, without a DDP wrapper, as STEPs inside the order need.

    Raises:
        RunError: PS831.
    """
    seen: dict[int, int] = {}
    for (_, stage), module in sorted(modules.items(), key=lambda item: item[0]):
        wrapped = any(isinstance(part, DistributedDataParallel) for part in module.modules())
        found = "DistributedDataParallel does not average the gradients of older weight versions" * wrapped
        for name, weight in module.named_parameters():
            other = seen.setdefault(id(weight), stage)
            found = found or (other != stage) * f"its weight {name!r} also belongs to stage {other}"
        if found or tied:
            message = f"stage {stage}: {found or 'weights are tied to others'}; STEPs inside the order forbid this"
            help = "use a schedule that has its STEPs only at its end, such as 1f1b"
            raise RunError(Fault(UNSUPPORTED, message, Place(rank), (), help))


# Frozen stages. The stream and `requires_grad` both say which weights are trained; if they disagree, the model would
# silently train wrongly.

_HELP = "set requires_grad to match the stream before building the runtime, or emit the stream with these stages frozen"


def wanting(stream: Stream) -> frozenset[int]:
    """Return the stages that receive a gradient: trained stages, and all stages after a trained one."""
    found: set[int] = set()
    for stage in range(stream.stages):
        if stage not in stream.frozen or not found.isdisjoint(stream.read(stage)):
            found.add(stage)
    return frozenset(found)


def check_frozen(stream: Stream, notes: Sequence[Note], tied: Tied) -> None:
    """Require that exactly the weights of trained stages require gradients. notes: each rank's report.

    Raises:
        RunError: PS831 on every rank, with the first stage whose weights contradict the stream.
    """
    if not stream.frozen:
        return
    for rank, note in enumerate(notes):
        for key, weights in sorted(note["weights"].items()):
            if wrong := _differs(stream, int(key.partition("/")[2]), weights):
                raise RunError(Fault(UNSUPPORTED, wrong, Place(rank), (), _HELP))
    for group in tied:
        frozen = [stage for stage, _ in group if stage in stream.frozen]
        trained = [stage for stage, _ in group if stage not in stream.frozen]
        if frozen and trained:
            stages = f"stage {frozen[0]}, which is frozen, and stage {trained[0]}, which is not"
            message = f"a weight is tied between {stages}"
            raise RunError(Fault(UNSUPPORTED, message, None, (), "freeze both stages, or neither"))


def _differs(stream: Stream, stage: int, weights: Sequence[Parameter]) -> str | None:
    """Describe how the weights of a stage contradict the stream; None if they agree."""
    asking = [(name, names) for name, _, _, trained, names in weights if trained]
    if stage not in stream.frozen:
        untrained = bool(weights) and not asking
        return f"stage {stage} is trained, but none of its weights requires a gradient" if untrained else None
    if not asking:
        return None
    name, names = asking[0]
    shared = next((other for other, _ in names if other != stage), None)
    also = "" if shared is None else f", and is tied to a weight of stage {shared}"
    return f"stage {stage} is frozen, but its weight {name!r} requires a gradient{also}"
