"""Runs one rank's instruction list on torch.distributed.

    for each instruction:  F B I W R OVERLAP    compute, on inputs received or made on this rank
                           O L                  copy the activations that an F keeps to host memory, and back
                           SEND RECV            post and keep the handle; the consumer waits
                           BATCH                post its messages together
                           WAIT_SEND            wait until a sent message has been received
                           REDUCE_GRAD SYNC     turn summed gradients into the gradients of undivided training
                           STEP                 run the caller's optimizer

The stream is trusted: the verifier has checked that the order is complete, finishes and fits in memory. The model is
not trusted, since the verifier cannot see it: shapes are agreed on when the runtime is built, and checked before every
post.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeAlias, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from pipesched.runtime.execute.backward import Gradients
from pipesched.runtime.execute.building import (
    Example,
    Known,
    channels_of,
    check_copies,
    check_modules,
    check_replicated,
    infer_boundaries,
    shared_by_batches,
    signature,
    split_batch,
    split_keywords,
)
from pipesched.runtime.execute.errors import BOUNDARY, Fault, Place, RunError
from pipesched.runtime.execute.fingerprints import agree
from pipesched.runtime.execute.imitated import Imitated
from pipesched.runtime.execute.messages import ACTIVATION, GRADIENT, Message, Tags, receives
from pipesched.runtime.execute.passed import read_by
from pipesched.runtime.execute.reduce import Reduction
from pipesched.runtime.execute.replicas import Held, check_replicas, replicated
from pipesched.runtime.execute.shapes import Boundary, entering, gradients, text
from pipesched.runtime.execute.stages import Keywords, Loss, Score, Stage
from pipesched.runtime.execute.supported import (
    check_frozen,
    check_known,
    check_left_out,
    check_one_holder,
    check_passed,
    check_supported,
    wanting,
)
from pipesched.runtime.execute.tied import Note, Tied, exchanged, plain
from pipesched.runtime.execute.transport import Channels
from pipesched.runtime.execute.weights import Weights, batches
from pipesched.stream import BATCH, NEIGHBOUR, Instruction, Stream

Hook = Callable[[Instruction, int], None]
Inputs: TypeAlias = Tensor | Iterable[Tensor | Sequence[Tensor]]
"""A batch of the model's input: a tensor, split along its first dimension, or one entry per microbatch."""
Targets: TypeAlias = Tensor | Iterable[object]


@dataclass(frozen=True)
class Evaluation:
    """The result of `Runtime.evaluate`.

    outputs: the outputs of the last stage on this rank, by microbatch, in order. loss: the mean over all microbatches,
    on every rank; None without targets.
    """

    outputs: Mapping[int, Any]
    loss: Tensor | None


class Runtime:
    """The runtime of one rank of a pipeline.

    instructions: the instructions of a step; during `evaluate`, its forwards and their messages. position: the index of
    the current instruction; -1 before the first step, the number of instructions after a step. losses: the losses of
    the last step, by microbatch, for microbatches whose last stage is on this rank. Other threads can read all of these
    attributes, and `waiting`.
    """

    def __init__(
        self,
        stream: Stream,
        modules: Mapping[Held, nn.Module],
        loss: Loss | None = None,
        *,
        rank: int,
        example: Example | None = None,
        example_keywords: Keywords | None = None,
        group: dist.ProcessGroup | None = None,
        device: torch.device | str = "cpu",
        before: Hook | None = None,
        after: Hook | None = None,
        optimize: Callable[..., object] | None = None,
        tied: Tied | None = None,
        early_receives: int = 2,
        blocking: bool = False,
        imitated: bool = False,
    ) -> None:
        """Build the runtime of one rank. This is a collective: all ranks of the group build their runtimes together.

        modules: a module for each (route, stage) in ``stream.held_by(rank)``; a stage takes tensors and returns a
            tensor or a tuple of tensors. A stage that reads several stages takes the tensors of each, in the order of
            ``stream.read(stage)``. If a stage has two copies, both must begin with the same weights. A stage in
            DistributedDataParallel is averaged over its replicas at its REDUCE_GRAD. loss: a function of the last
            stage's output and the microbatch's target that returns one number, a mean over the microbatch; None for
            `evaluate` without targets. example: one microbatch of the model's input, needed on the rank of stage 0: one
            forward of every stage, which changes no state, finds the boundaries. Or the result of `boundaries_of`: the
            boundaries of the model's input, and of the output of each stage but the last. All microbatches have these
            shapes until `expect` sets other shapes. example_keywords: the keyword inputs of one microbatch, if a stage
            takes any. group: the group of the stream's ranks, in their order; None: the default group, or no group for
            a single rank. device: the device of the modules. With NCCL it is also torch's current device. before,
            after: functions called before and after every instruction, with the instruction and its index. optimize:
            the function that STEP calls. Gradients are complete at that point and are not cleared afterwards. With
            STEPs inside the order (a stream of version 3), it takes the number of a stage and steps only the weights of
            that stage, and gradients are cleared afterwards. tied: groups of (stage, parameter name), the same on every
            rank. Each group names the tensors that hold one weight; each of them gets the sum of their gradients. ():
            no weights are tied. None: not declared; weights of two stages that begin with the same values are then
            refused. early_receives: how many receives can be posted ahead of their place in the list; each occupies a
            buffer. They keep the order of their channel, and no post waits, so the verdict under `async` does not
            change. blocking: for tests. Every SEND and RECV blocks, in list order, until its partner has posted.
            imitated: for a rehearsal. There are no other ranks: received messages are filled with random numbers, and
            `example` is a result of `boundaries_of`.

        Raises:
            RunError: PS821 if a rank has a different stream; PS824 if a stage does not fit its neighbours or its copy;
                PS831 if a module is not supported (see the table in this folder's README), or if weights look tied.
            ValueError: if the modules are not the modules of this rank, or the group does not have the stream's size.
        """
        if stream.versions and optimize is None:
            raise ValueError(
                f"{stream.name} has STEPs inside its order: pass a function of the stage as `Runtime(optimize=…)`"
            )
        self._alone = imitated or len(stream.ranks) == 1
        check_known(stream, _EXECUTE)
        check_modules(stream, modules, rank, group, alone=self._alone)
        self.stream, self.rank, self.loss, self.optimize = stream, rank, loss, optimize
        self.before, self.after = before, after
        self.instructions = stream.ranks[rank]
        self.position = -1
        self.losses: dict[int, Tensor] = {}
        self._group, self._device = group, torch.device(device)
        notes = self._reports(modules, tied)
        groups = [] if imitated else exchanged(stream, notes, tied, warn=rank == 0)
        self._modules, self._known = dict(modules), Known()
        (agreed,) = self._agreed(None if example is None else [example], [example_keywords or {}])
        check_passed(stream, agreed)
        self.boundaries = [agreed] * stream.microbatches
        if imitated:
            self._channels: Channels = Imitated(rank, self._device)
        else:
            tags = Tags.of(stream, max(map(len, agreed)))
            channels, shared = channels_of(stream, groups), shared_by_batches(stream)
            self._channels = Channels(rank, group, self._device, tags, channels, shared=shared, blocking=blocking)
        self._reduction = Reduction(stream, modules, rank, self._channels, groups)
        self._train = any(x.op in ("B", "I", "OVERLAP") for x in self.instructions)
        self._wanting = wanting(stream)
        self._read_twice = sum(-1 in stream.read(stage) for stage in range(stream.stages)) > 1
        self._stages = {held: self._stage(held, module) for held, module in modules.items()}
        self._again = {(x.route, x.stage, x.microbatch) for x in self.instructions if x.op == "R"}
        self._offloads = any(x.op == "O" for x in self.instructions)
        self._ahead = 0 if blocking else early_receives
        self._receives: list[tuple[int, Message]] = []
        self._due = self._posted = 0  # receives that the list has reached, receives posted
        self._inbox: dict[Message, tuple[Tensor, ...]] = {}
        self._outbox: dict[Message, tuple[Tensor, ...]] = {}
        self._inputs: list[Tensor | Sequence[Tensor]] | None = None
        self._targets: list[object] | None = None
        self._keywords: list[dict[str, object]] = []
        self._outputs: dict[int, object] = {}
        self._evaluates = False

    def _reports(self, modules: Mapping[Held, nn.Module], tied: Tied | None) -> list[Note]:
        """Gather the reports of all ranks, and check them."""
        notes: list[Note] = [{**signature(modules), "tied": plain(tied)}]
        if not self._alone:
            notes = [cast("Note", card.note) for card in agree(self.stream, self._group, notes[0])]
        check_supported(notes)
        check_frozen(self.stream, notes, tied or ())
        check_left_out(self.stream, tied or ())
        if self.stream.versions:
            check_one_holder(self.rank, modules, tied or ())
        check_replicas({held: replicated(module) for held, module in modules.items()}, self.stream, self.rank)
        if not self._alone:
            check_copies(self.stream, notes)
            if self.rank == 0:
                check_replicated(notes)
        return notes

    @property
    def waiting(self) -> Message | None:
        """The message that this rank, or its GPU, is waiting for, if any."""
        return self._channels.waiting

    @property
    def enqueues(self) -> bool:
        """True if instructions are enqueued behind a wait, as on NCCL: `position` is then ahead of the wait."""
        return self._channels.queues

    @property
    def waited(self) -> float:
        """Seconds spent waiting for messages since the runtime was built."""
        return self._channels.waited

    @property
    def alive(self) -> int:
        """The number of activations on the device, counted only on a rank that offloads."""
        return sum(boxes.here for stage in self._stages.values() for boxes in stage.boxes.values())

    @property
    def posted(self) -> tuple[Message, ...]:
        """The receives that have been posted but not yet taken."""
        return self._channels.posted

    def step(
        self, inputs: Inputs | None = None, targets: Targets | None = None, keywords: Keywords | None = None
    ) -> Tensor:
        """Run one training step over all m microbatches; return the mean loss on every rank, a float64 scalar.

        inputs: the model's input on this rank's device, needed where a stage reads it, as stage 0 does: a tensor, split
            in m along its first dimension, or a sequence of m microbatches, each a tensor or a tuple of them. The
            gradient of the input is the sum over these stages.
        targets: needed on the rank of the last stage, and split in the same way; a target is anything that the loss
            accepts.
        keywords: keyword inputs, given to the stages of this rank that take them; a tensor or a list is split as a
            batch, any other value is repeated for every microbatch. No gradient flows into them.
        Adds to the ``.grad`` of every weight what one backward through the undivided model would add, for a loss that
        is the mean over the microbatches, whatever their shapes (`expect`). An unused weight gets zeros if its gradient
        is exchanged with a copy or a tied weight, or if a DDP without `find_unused_parameters` averages replicas.

        Raises:
            RunError: PS824 if the output of a stage does not fit the next stage.
            ValueError: if the batch does not divide into m microbatches, or is missing.

        After an exception the step is incomplete on all ranks, and the runtime cannot continue.
        """
        self._execute(self.stream.ranks[self.rank], inputs, targets, keywords)
        if self.stream.versions or not any(x.op == "STEP" for x in self.instructions):
            self._reduction.finish()
        self._channels.finish()
        total, _ = self._summed()
        return total / self.stream.microbatches

    def expect(self, examples: Tensor | Iterable[Example] | None = None, keywords: Keywords | None = None) -> None:
        """Set the shapes of each microbatch from now on, if microbatches differ. This is a collective of all ranks,
        outside a step; it adds no message to a step, so every verdict remains valid.

        examples: m microbatches of the model's input, as `step` takes them, needed on stage 0's rank: the output of
            each stage is found by one forward that changes no state, unless the stage has had that input shape before.
            Or, on every rank and without communication, m results of `boundaries_of`.
        keywords: as `step` takes them.

        Raises:
            RunError: PS824 on every rank if a stage fails, or returns tensors whose number or dtypes differ from the
                example of `Runtime(example=…)`.
        """
        count = self.stream.microbatches
        cut = None if examples is None else split_batch(examples, count, "examples")
        made = self._agreed(cut, split_keywords(keywords, count, self._modules))
        for microbatch, boundaries in enumerate(made):
            for stage, (old, new) in enumerate(zip(self.boundaries[0], boundaries, strict=True)):
                if [spec.dtype for spec in old] != [spec.dtype for spec in new]:
                    what = f"the output of stage {stage - 1}" if stage else "the model's input"
                    message = f"{what} is {text(new)} for microbatch {microbatch}; it was {text(old)} before"
                    help = "the shapes of tensors may change, but not their number or dtypes"
                    raise RunError(Fault(BOUNDARY, message, Place(self.rank), (), help))
        self.boundaries = made
        for (_, number), stage_of in self._stages.items():
            stage_of.entering, stage_of.leaving = self._around(number)

    def evaluate(
        self, inputs: Inputs | None = None, targets: Targets | None = None, keywords: Keywords | None = None
    ) -> Evaluation:
        """Run only the forwards, in the stream's order; return the outputs, and the mean loss if targets are given.

        Arguments are the same as for `step`. Gradients are disabled and all modules are in evaluation mode during the
        call; ``.grad`` and the modules' modes do not change. For a stream without a backward this is the whole step.

        Raises:
            RunError: PS824 if the output of a stage does not fit the next stage.
            ValueError: if the batch does not divide into m microbatches, or is missing.
        """
        modes = [(part, part.training) for stage in self._stages.values() for part in stage.module.modules()]
        trains = [(stage, stage.train, stage.weights) for stage in self._stages.values()]
        for stage in self._stages.values():
            stage.train, stage.weights = False, None
            stage.module.eval()
        try:
            with torch.no_grad():
                self._execute(forwards(self.stream.ranks[self.rank]), inputs, targets, keywords, evaluates=True)
                self._channels.finish()
                total, count = self._summed()
        finally:
            for stage, train, weights in trains:
                stage.train, stage.weights = train, weights
            for part, mode in modes:
                part.training = mode
        made, self._outputs, self.instructions = dict(sorted(self._outputs.items())), {}, self.stream.ranks[self.rank]
        self.position = len(self.instructions)
        return Evaluation(made, total / count if count else None)

    def _execute(
        self,
        instructions: tuple[Instruction, ...],
        inputs: Inputs | None,
        targets: Targets | None,
        keywords: Keywords | None,
        *,
        evaluates: bool = False,
    ) -> None:
        """Run a list of instructions. evaluates: keep the outputs of the last stage, and compute no gradients."""
        count = self.stream.microbatches
        self._inputs = None if inputs is None else split_batch(inputs, count, "inputs")
        self._targets = None if targets is None else split_batch(targets, count, "targets")
        self._keywords = split_keywords(keywords, count, {held: x.module for held, x in self._stages.items()})
        self.losses, self._outputs, self._evaluates = {}, {}, evaluates
        self.instructions = instructions
        self._receives = receives(instructions, self.rank)
        self._due = self._posted = 0
        if not evaluates:
            self._reduction.begin()
            for stage in self._stages.values():
                if stage.weights is not None:
                    stage.weights.begin()
        torch.clear_autocast_cache()  # its entries were made from the weights before the last step
        for index, instruction in enumerate(instructions):
            self.position = index
            if self.before is not None:
                self.before(instruction, index)
            self._channels.sweep()
            self._receive_ahead(index)
            self._run(instruction)
            if self.after is not None:
                self.after(instruction, index)
        self.position = len(instructions)

    def _run(self, x: Instruction) -> None:
        _EXECUTE[x.op](self, x)

    def _stage_of(self, x: Instruction) -> Stage:
        return self._stages[x.route, x.stage]

    def _overlap(self, x: Instruction) -> None:
        for part in x.parts:
            self._run(part)

    def _recompute(self, x: Instruction) -> None:
        stage = self._stage_of(x)
        score = self._score(x.microbatch) if stage.leaving is None else None
        stage.recompute(x.microbatch, self._keywords[x.microbatch], score)

    def _wait_sent(self, x: Instruction) -> None:
        taker = x.other if x.other >= 0 else x.stage + NEIGHBOUR[x.op]
        target = self.stream.placement[x.route].ranks[taker]
        self._channels.sent(Message.between(x.op[-1], x, x.stage, taker, self.rank, target))

    def _reduce(self, x: Instruction) -> None:
        inside = self._stages[0, x.stage].weights if self.stream.versions else None
        if inside is not None:
            inside.reduce()
        elif self._train:
            self._reduction.reduce(x.stage)

    def _step(self, x: Instruction) -> None:
        inside = self._stages[0, x.stage].weights if self.stream.versions else None
        if inside is not None and self.optimize is not None:
            inside.step(partial(self.optimize, x.stage))
            return
        self._reduction.finish()
        if self.optimize is not None:
            self.optimize()

    @property
    def versions(self) -> dict[int, int]:
        """For each stage, the largest number of weight versions stored at a time; {} without STEPs inside the order."""
        kept = {number: stage.weights for (_, number), stage in self._stages.items()}
        return {number: weights.most for number, weights in kept.items() if weights is not None}

    def _forward(self, x: Instruction) -> None:
        stage, keywords = self._stages[x.route, x.stage], self._keywords[x.microbatch]
        read = [self._input(x) if y < 0 else self._get(ACTIVATION, x, y) for y in self.stream.read(x.stage, x.route)]
        inputs = [tensor for tensors in read for tensor in tensors]
        with self._keeping(stage, x, inputs):
            if stage.leaving is not None:
                made = stage.forward(x.microbatch, inputs, keywords)
                for reader in read_by(self.stream, x.stage, x.route):
                    self._put(ACTIVATION, x, reader, made)
                return
            output, loss = stage.forward_last(x.microbatch, inputs, keywords, self._score(x.microbatch))
        if loss is not None:
            self.losses[x.microbatch] = loss
        if self._evaluates:
            self._outputs[x.microbatch] = output

    def _keeping(self, stage: Stage, x: Instruction, inputs: Sequence[Tensor]) -> AbstractContextManager[object]:
        """Return the context for a forward that will be recomputed, or whose activation may be offloaded."""
        if (x.route, x.stage, x.microbatch) in self._again and not self._evaluates:
            return stage.letting_go(x.microbatch, inputs)
        if not self._offloads or not stage.train:
            return nullcontext()
        given = (self._inputs, self._targets, self._keywords)
        return stage.boxing(x.microbatch, tree_leaves([of[x.microbatch] for of in given if of]))

    def _score(self, microbatch: int) -> Score | None:
        """Return the loss as a function of a microbatch's output; None if no loss is computed."""
        if self._targets is None:
            if self._evaluates:
                return None
            raise ValueError("targets are needed on this rank: it has the last stage")
        if self.loss is None:
            raise ValueError("targets were given without a loss: set `Runtime(loss=…)`")
        loss, target = self.loss, self._targets[microbatch]
        return lambda output: loss(output, target)

    def _backward(self, x: Instruction) -> None:
        """Sum the readers' gradients, run the backward, and pass its gradients on to the stages that this one reads."""
        found = [self._get(GRADIENT, x, reader) for reader in read_by(self.stream, x.stage, x.route)]
        arrived = [sum(parts[1:], start=parts[0]) for parts in zip(*found, strict=True)] if found else None
        made = iter(self._stages[x.route, x.stage].backward(x.op, x.microbatch, arrived))
        for source in self.stream.read(x.stage, x.route):
            able = gradients(self.boundaries[x.microbatch][source + 1])
            part = tuple(islice(made, len(able)))
            if source < 0:
                self._deliver(x, part)
            elif source in self._wanting:
                whole = (spec.zeros(self._device) if y is None else y for spec, y in zip(able, part, strict=True))
                self._put(GRADIENT, x, source, tuple(whole))

    def _deliver(self, x: Instruction, made: Gradients) -> None:
        """Pass on the gradients of the model's own input if it requires them, as undivided training does."""
        entering = zip(self._input(x), self.boundaries[x.microbatch][0], strict=True)
        able = [given for given, spec in entering if spec.differentiable]
        for given, grad in zip(able, made, strict=True):
            if given.requires_grad and grad is not None:
                torch.autograd.backward(given, grad / self.stream.microbatches, retain_graph=self._read_twice)

    def _input(self, x: Instruction) -> tuple[Tensor, ...]:
        if self._inputs is None:
            held = f"stage {x.stage}, which reads them" if x.stage else "the first stage"
            raise ValueError(f"inputs are needed on this rank: it has {held}")
        made = self._inputs[x.microbatch]
        return (made,) if isinstance(made, Tensor) else tuple(made)

    def _get(self, kind: str, x: Instruction, maker: int) -> tuple[Tensor, ...]:
        """Return the tensors that another stage made, received from its rank or made on this rank."""
        source = self.stream.placement[x.route].ranks[maker]
        message = Message.between(kind, x, maker, x.stage, source, self.rank)
        if source != self.rank:
            return self._channels.take(message)
        return _made(self._inbox.pop(message, None), message)

    def _put(self, kind: str, x: Instruction, taker: int, made: tuple[Tensor, ...]) -> None:
        """Pass tensors to a stage of this rank, or keep them until the SEND."""
        target = self.stream.placement[x.route].ranks[taker]
        message = Message.between(kind, x, x.stage, taker, self.rank, target)
        (self._inbox if target == self.rank else self._outbox)[message] = made

    def _post(self, x: Instruction) -> None:
        """Send a message, or post all messages of a batch."""
        parts = [(part.op[:4], Message.of(part, self.rank)) for part in x.messages]
        sends = {m: _made(self._outbox.pop(m, None), m) for kind, m in parts if kind == "SEND"}
        receives = {m: self._boundary(m) for kind, m in parts if kind == "RECV"}
        self._channels.post(sends, receives)
        self._posted += len(receives)

    def _receive_ahead(self, index: int) -> None:
        """Post the receives up to this position in the list, and some beyond it, in the order of each channel.

        The receives of a batch are posted with the batch, and receives that share a queue at their place in the list;
        no later receive is posted before these.
        """
        while self._due < len(self._receives) and self._receives[self._due][0] <= index:
            self._due += 1
        for at, message in self._receives[self._posted : self._due + self._ahead]:
            if self.instructions[at].op == BATCH or (at > index and self._channels.in_line(message)):
                break
            self._channels.receive(message, self._boundary(message))
            self._posted += 1

    def _boundary(self, message: Message) -> Boundary:
        boundaries = self.boundaries[message.microbatch]
        if message.kind == ACTIVATION:
            return boundaries[message.stage + 1]
        return gradients(boundaries[message.taker + 1])

    def _agreed(self, examples: Sequence[Example] | None, keywords: Sequence[Keywords]) -> list[tuple[Boundary, ...]]:
        """Return the boundaries of the microbatches, the same on every rank."""
        group = self._group
        return infer_boundaries(
            self.stream,
            self._modules,
            examples,
            keywords,
            self.rank,
            group=group,
            device=self._device,
            known=self._known,
        )

    def _around(self, stage: int) -> tuple[list[Boundary], list[Boundary] | None]:
        """Return a stage's boundaries by microbatch; the last stage, which has the loss, has no output boundary."""
        read, last = self.stream.read(stage), stage + 1 == self.stream.stages
        leaving = None if last else [boundaries[stage + 1] for boundaries in self.boundaries]
        return [entering(boundaries, read) for boundaries in self.boundaries], leaving

    def _stage(self, held: Held, module: nn.Module) -> Stage:
        number = held[1]
        read = self.stream.read(number)
        back = {y.op for x in self.instructions for y in x.parts or (x,) if (y.route, y.stage) == held} & {"B", "I"}
        frozen = number in self.stream.frozen
        return Stage(
            module,
            number,
            *self._around(number),
            self._device,
            split="I" in back and not frozen,
            train=bool(back),
            asks=[source in self._wanting for source in read for _ in self.boundaries[0][source + 1]],
            frozen=frozen,
            weights=self._weights(number, module),
        )

    def _weights(self, stage: int, module: nn.Module) -> Weights | None:
        taken = batches(self.instructions, stage) if self.stream.versions else {}
        return Weights(module, self.stream.versions, taken) if taken else None

    def _summed(self) -> tuple[Tensor, int]:
        """Return the sum of all losses, the same float64 scalar on every rank, and the number of losses."""
        total = torch.zeros(2, dtype=torch.float64, device=self._channels.wire)
        for value in self.losses.values():
            total[0] += value.to(total.device)
            total[1] += 1
        if not self._alone:
            dist.all_reduce(total, group=self._group)
        return total[0], int(total[1])


def _nothing(runtime: Runtime, x: Instruction) -> None:
    """Do nothing: receives are posted earlier, and reductions are complete when they return."""


_EXECUTE: Mapping[str, Callable[[Runtime, Instruction], None]] = {
    "F": Runtime._forward,
    "B": Runtime._backward,
    "I": Runtime._backward,
    "W": lambda runtime, x: runtime._stage_of(x).backward_weights(x.microbatch),
    "R": Runtime._recompute,
    "O": lambda runtime, x: runtime._stage_of(x).offload(x.microbatch),
    "L": lambda runtime, x: runtime._stage_of(x).load(x.microbatch),
    "OVERLAP": Runtime._overlap,
    **dict.fromkeys(("SEND_F", "SEND_B", "BATCH"), Runtime._post),
    **dict.fromkeys(("RECV_F", "RECV_B", "WAIT_REDUCE_GRAD"), _nothing),
    **dict.fromkeys(("WAIT_SEND_F", "WAIT_SEND_B"), Runtime._wait_sent),
    "REDUCE_GRAD": Runtime._reduce,
    "SYNC": lambda runtime, x: runtime._reduction.sync(x.stage, x.peer),
    "STEP": Runtime._step,
}


def forwards(instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
    """Return the forwards of a list and their messages, in order; the list itself if it has no other instructions.

    A list that finishes under a communication model still finishes, since each message is kept or left out as a whole,
    and no forward waits for an instruction that is left out.
    """
    found = []
    for x in instructions:
        parts = tuple(part for part in x.parts or (x,) if part.op in ("F", "SEND_F", "RECV_F"))
        if parts:
            found.append(x if len(parts) == len(x.parts or (x,)) else replace(x, parts=parts))
    made = tuple(x.parts[0] if x.op == "OVERLAP" else x for x in found)
    return instructions if made == instructions else made


def _made(tensors: tuple[Tensor, ...] | None, message: Message) -> tuple[Tensor, ...]:
    """Require that the tensors of a message exist: in a wrong order they have not been made yet, or have been freed."""
    if tensors is None:
        raise LookupError(f"{message} does not exist: it has not been made yet, or was already used")
    return tensors
