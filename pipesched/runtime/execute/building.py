"""Checks modules, replicas, copies of stages, and boundaries before the first step of a runtime."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations, zip_longest
from typing import TypeAlias, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipesched.runtime.execute.errors import BOUNDARY, UNSUPPORTED, Fault, Place, RunError, printable
from pipesched.runtime.execute.exchange import everybody
from pipesched.runtime.execute.messages import Message
from pipesched.runtime.execute.passed import home
from pipesched.runtime.execute.reduce import holders
from pipesched.runtime.execute.replicas import Held, replicated
from pipesched.runtime.execute.shapes import Boundary, TensorSpec, dry_forward, entering, specs, taken, tensors_of, text
from pipesched.runtime.execute.supported import unsupported
from pipesched.runtime.execute.tied import Note, Parameter, Shown, Tied, shown
from pipesched.runtime.execute.transport import Channel
from pipesched.stream import BATCH, Stream

Part = TypeVar("Part")
Example: TypeAlias = Tensor | Sequence[Tensor] | Sequence[Boundary]
"""An example microbatch of the model's input, or the result of `boundaries_of`."""
Known: TypeAlias = dict[tuple[int, Boundary], Boundary]
"""The output boundaries that earlier trial forwards found, by stage and input boundary."""


class NotReplicated(UserWarning):
    """Only some stages are wrapped in DistributedDataParallel, so the replicas of the other stages diverge."""


def check_modules(
    stream: Stream,
    modules: Mapping[Held, nn.Module],
    rank: int,
    group: dist.ProcessGroup | None,
    *,
    alone: bool = False,
) -> None:
    """Require an executable stream, a module for each of the rank's stages, and a group of the stream's size.

    Raises:
        RunError: PS831 if an instruction or property of the stream is not supported.
        ValueError: if stages are missing or unexpected, if two modules are given for one stage, or if the group has a
            different size.
    """
    if wrong := beyond(stream):
        help = "run a schedule without this instruction, or run the stream on your own runtime"
        raise RunError(Fault(UNSUPPORTED, f"{stream.name}: the runtime does not support {wrong}", Place(0), (), help))
    if not 0 <= rank < len(stream.ranks):
        raise ValueError(f"rank {rank}: the stream has ranks 0 to {len(stream.ranks) - 1}")
    if set(modules) != set(stream.held_by(rank)):
        held, given = list(stream.held_by(rank)), sorted(modules)
        raise ValueError(f"rank {rank} has the (route, stage) pairs {held}, but modules were given for {given}")
    for stage in {stage for _, stage in modules}:
        if len({id(module) for (_, s), module in modules.items() if s == stage}) > 1:
            raise ValueError(f"rank {rank} has stage {stage} on several routes: give one module for all of them")
    if len(stream.ranks) > 1 and not alone and dist.get_world_size(group) != len(stream.ranks):
        raise ValueError(f"the stream has {len(stream.ranks)} ranks, but the group has {dist.get_world_size(group)}")


def beyond(stream: Stream) -> str | None:
    """Return the first instruction of the stream that is not supported, or None."""
    return next((str(x) for rank in stream.ranks for x in rank if x.op in ("UNSHARD", "RESHARD")), None)


def signature(modules: Mapping[Held, nn.Module]) -> Note:
    """Describe the weights of a rank as JSON, by route/stage: names, shapes, dtypes, sharing, and a digest."""
    refused = unsupported(modules)
    if refused is not None:
        return {"unsupported": refused}
    shared: dict[int, set[tuple[int, str]]] = {}  # several routes share the module of a stage
    for (_, stage), module in modules.items():
        for name, weight in module.named_parameters(remove_duplicate=False):
            shared.setdefault(id(weight), set()).add((stage, name))
    return {
        "unsupported": None,
        "replicas": {
            _key(held): _replicas(module)
            for held, module in modules.items()
            if any(weight.requires_grad for weight in module.parameters())
        },
        "weights": {
            _key(held): [
                (name, list(weight.shape), str(weight.dtype), weight.requires_grad, sorted(shared[id(weight)]))
                for name, weight in module.named_parameters(remove_duplicate=False)
            ]
            for held, module in modules.items()
        },
        "shown": {_key(held): shown(module) for held, module in modules.items()},
    }


def _key(held: Held) -> str:
    route, stage = held
    return f"{route}/{stage}"


def _replicas(module: nn.Module) -> int:
    return max((dist.get_world_size(wrapper.process_group) for wrapper in replicated(module)), default=1)


def check_replicated(notes: Sequence[Note]) -> None:
    """Warn if stages are averaged over different numbers of replicas."""
    counts = {int(key.partition("/")[2]): count for note in notes for key, count in note["replicas"].items()}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"stage {stage}: {count}" for stage, count in sorted(counts.items()))
        warnings.warn(f"stages are averaged over different numbers of replicas ({found})", NotReplicated, stacklevel=3)


def check_copies(stream: Stream, notes: Sequence[Note]) -> None:
    """Require that all copies of a stage have the same weights, shared in the same way, with the same initial values.

    All ranks reach the same result. Only a few values of each weight are compared.

    Raises:
        RunError: PS824, which names the first stage whose copies differ.
    """
    for stage in range(stream.stages):
        ways = [(number, route.ranks[stage]) for number, route in enumerate(stream.placement)]
        copies = [(rank, _key((number, stage))) for number, rank in ways if rank >= 0]
        weights = [(rank, notes[rank]["weights"][key]) for rank, key in copies]
        _require_same(f"stage {stage}", weights, "have different weights", _weight_apart)
        values = [(rank, notes[rank]["shown"][key]) for rank, key in copies]
        _require_same(f"stage {stage}", values, "begin with different values", _value_apart)


def _require_same(
    stage: str, reported: Sequence[tuple[int, Part]], what: str, apart: Callable[[Part, Part, int, int], str]
) -> None:
    first, expected = reported[0]
    for rank, found in reported:
        if found != expected:
            message = f"the copies of {stage} on ranks {first} and {rank} {what}"
            notes = (apart(expected, found, first, rank),)
            raise RunError(Fault(BOUNDARY, message, Place(rank), notes, "build both copies from the same seed"))


def _value_apart(one: Shown, other: Shown, first: int, rank: int) -> str:
    return next(f"{name!r} differs" for name in {**one, **other} if one.get(name) != other.get(name))


def _weight_apart(one: Sequence[Parameter], other: Sequence[Parameter], first: int, rank: int) -> str:
    """Describe the first weight that differs, as each rank reports it."""
    a, b = next((a, b) for a, b in zip_longest(one, other) if a != b)
    return f"rank {first} has {_text(a)}, rank {rank} has {_text(b)}"


def _text(weight: Parameter | None) -> str:
    if weight is None:
        return "no more weights"
    name, shape, dtype, trained, shared = weight
    others = f" in {len(shared)} places" if len(shared) > 1 else ""
    return f"{name!r} {dtype.removeprefix('torch.')}{list(shape)}{'' if trained else ' frozen'}{others}"


def infer_boundaries(
    stream: Stream,
    modules: Mapping[Held, nn.Module],
    examples: Sequence[Example] | None,
    keywords: Sequence[Mapping[str, object]],
    rank: int,
    group: dist.ProcessGroup | None,
    device: torch.device,
    known: Known,
) -> list[tuple[Boundary, ...]]:
    """Return the boundaries of each example: the model's input, and the output of every stage but the last. They are
    given in `examples`, or found by one forward per stage, in order; no forward is needed for a stage and input
    boundary in `known`.

    keywords: the keyword inputs of each example.

    Raises:
        RunError: PS824 on every rank if the example is missing, or if a stage fails or returns no tensors.
        ValueError: if an example consists of boundaries, but does not have one per stage.
    """
    given = [_given(example, stream.stages) for example in examples or ()]
    if given and None not in given:
        return cast("list[tuple[Boundary, ...]]", given)
    found: list[tuple[Boundary, ...]] = [() for _ in keywords]
    for stage in range(stream.stages):
        maker = home(stream, max(stage - 1, 0))
        made: list[Boundary] | str | None = None
        if maker == rank:
            own = cast("Sequence[Tensor | Sequence[Tensor]] | None", examples)
            made = _made(
                stage - 1, stream.read(stage - 1), found, modules, own, keywords=keywords, device=device, known=known
            )
        if len(stream.ranks) > 1:
            made = _everywhere(made, maker, group)
        if isinstance(made, str):
            raise RunError(Fault(BOUNDARY, made, Place(maker), (), "run all stages on one rank to find the cause"))
        assert made is not None
        found = [(*row, boundary) for row, boundary in zip(found, made, strict=True)]
    return found


def _everywhere(made: list[Boundary] | str | None, maker: int, group: dist.ProcessGroup | None) -> list[Boundary] | str:
    """Return, on every rank, the boundaries or the error message that rank `maker` produced. A collective."""
    sent = made if isinstance(made, str | None) else [[spec.plain() for spec in row] for row in made]
    received = everybody(sent, group)[maker]
    assert received is not None
    return printable(received) if isinstance(received, str) else [tuple(map(TensorSpec.of_plain, x)) for x in received]


def _given(example: Example, stages: int) -> tuple[Boundary, ...] | None:
    """Return the boundaries if the example is a result of `boundaries_of`, otherwise None.

    Raises:
        ValueError: if there is not one boundary per stage.
    """
    if isinstance(example, Tensor) or isinstance(next(iter(example), None), Tensor):
        return None
    given = tuple(cast("Sequence[Boundary]", example))
    if len(given) != stages:
        raise ValueError(
            f"{len(given)} boundaries for {stages} stages: give the model's input, and each output but the last"
        )
    return given


def _made(
    stage: int,
    read: Sequence[int],
    found: Sequence[Sequence[Boundary]],
    modules: Mapping[Held, nn.Module],
    examples: Sequence[Tensor | Sequence[Tensor]] | None,
    keywords: Sequence[Mapping[str, object]],
    device: torch.device,
    known: Known,
) -> list[Boundary] | str:
    """Return a stage's output boundary for each example (stage -1: the model's input), or an error message. found: for
    each example, the boundaries before this one.
    """
    if stage < 0 and examples is None:
        return "the rank of stage 0 has no example of the model's input"
    given: object = "its example"
    try:
        if stage < 0:
            return [specs(tensors_of(example, "the example")) for example in examples or ()]
        made = []
        module = next(module for (_, number), module in modules.items() if number == stage)
        for row, words in zip(found, keywords, strict=True):
            inputs = entering(row, read)
            given = text(inputs)
            if words or (stage, inputs) not in known:
                what = f"the output of stage {stage}"
                known[stage, inputs] = dry_forward(module, inputs, device, what, words)
            made.append(known[stage, inputs])
    except Exception as error:  # sent to the other ranks, which would otherwise wait for this one
        return f"stage {max(stage, 0)} cannot run on {given}: {type(error).__name__}: {error}"
    return made


def channels_of(stream: Stream, tied: Tied) -> set[Channel]:
    """Return the channels of all messages, the same set on every rank."""
    found: set[Channel] = set()
    for rank, instructions in enumerate(stream.ranks):
        messages = (Message.of(x, rank) for instruction in instructions for x in instruction.messages)
        found |= {(x.communicator, x.source, x.target) for x in messages}
        found |= {(0, rank, x.peer) for x in instructions if x.op == "SYNC"}
    for group in tied:
        found |= {(0, *pair) for pair in permutations(holders(stream, group), 2)}
    return found


def shared_by_batches(stream: Stream) -> set[int]:
    """Return the communicators that carry batches, whose messages may belong to several channels."""
    return {part.communicator for rank in stream.ranks for x in rank if x.op == BATCH for part in x.parts}


def split_batch(value: Iterable[Part], count: int, what: str) -> list[Part]:
    """Split a batch into microbatches: a tensor along its first dimension, a sequence into its elements.

    Raises:
        ValueError: if the batch does not divide evenly, or does not have `count` microbatches.
    """
    if isinstance(value, Tensor):
        if value.dim() == 0 or value.shape[0] % count:
            raise ValueError(f"{what} of shape {list(value.shape)} cannot be split into {count} microbatches")
        return cast("list[Part]", list(value.tensor_split(count)))
    made = list(value)
    if len(made) != count:
        raise ValueError(f"{len(made)} microbatches of {what}; the stream runs {count}")
    return made


def split_keywords(
    keywords: Mapping[str, object] | None, count: int, modules: Mapping[Held, nn.Module]
) -> list[dict[str, object]]:
    """Split keyword inputs into microbatches: tensors and lists are split like a batch; any other value is repeated.

    Raises:
        ValueError: if no stage on this rank takes one of the keywords, or a batch does not divide evenly.
    """
    given = keywords or {}
    for name in given:
        if not any(taken(module, {name: None}) for module in modules.values()):
            raise ValueError(f"none of the stages on this rank takes the keyword {name!r}")
    rows: list[dict[str, object]] = [{} for _ in range(count)]
    for name, value in given.items():
        column = [value] * count
        if isinstance(value, Tensor | list):
            column = split_batch(value, count, f"the keyword {name!r}")
        for row, each in zip(rows, column, strict=True):
            row[name] = each
    return rows
