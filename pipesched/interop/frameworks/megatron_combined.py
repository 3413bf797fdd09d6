"""Runs Megatron-core's combined 1F1B on tokens: one pass runs a forward and a backward, layer by layer, part by part.

    overlap_moe_expert_parallel_comm     combined_1f1b.py and model_chunk_schedule_plan.py run as installed

The nodes of a layer, the loss and `forward_step_func` are ours; streams and events are Fakes. The forward and backward
of a pass are one overlap in the recorded order, placed where the first node runs. A note lists the parts that the first
pair launches, with their streams.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from pipesched.interop.frameworks.fakes import Fake, Finder
from pipesched.interop.frameworks.megatron_rank import Rank, Token
from pipesched.interop.frameworks.streams import OWN, Event

if TYPE_CHECKING:
    from pipesched.interop.frameworks.megatron import Core

OPTION = "overlap_moe_expert_parallel_comm"
FILES = ("pipeline_parallel.combined_1f1b", "models.common.model_chunk_schedule_plan")
LAYERS = 2  # of a chunk, if the option does not say
_MEETINGS = ("moe_dispatch", "moe_combine")
Label: TypeAlias = tuple[str, int, int]
Theirs: TypeAlias = Any  # an object of the release, which has no types here
Entering: TypeAlias = Callable[[], AbstractContextManager[object]]


class Passes:
    """The current pass of a rank. waiting: its operations that are not recorded yet. both: True for an overlap."""

    def __init__(self, rank: Rank) -> None:
        self.rank, self.waiting, self.both = rank, list[Label](), False
        self.done = False

    def begin(self, labels: list[Label], *, empty: bool) -> None:
        """Begin a pass with one or two operations. empty: True if the pass has no layers."""
        self.done = self.done or bool(self.rank.issued)
        self.waiting, self.both = [] if empty else labels, len(labels) == 2
        if empty:
            self.rank.compute(*labels)

    def node(self, kind: str, name: str, layer: str, of: str) -> None:
        """Record a node, after the pass's operations if it is the first. of: stage and microbatch, as in ``1.0``."""
        if self.waiting:
            self.rank.compute(*self.waiting)
            self.waiting = []
        short, stream = name.removeprefix("moe_"), self.rank.streams.current.name
        self.rank.streams.issue(f"{kind}{of}.{short}{layer}", self.rank.place(), meets=name in _MEETINGS)
        if self.both and not self.done:
            self.rank.issued.append(f"{kind}.{short}{layer}" + f"@{stream}" * (stream != OWN))


class _Node:
    """A part of a layer. on: returns the context that enters its stream. of: stage and microbatch, as in ``1.0``."""

    def __init__(self, passes: Passes, name: str, layer: str, of: str, on: Entering, *, delayed: bool) -> None:
        self._passes, self._name, self._layer, self._of = passes, name, layer, of
        self._on, self._delayed = on, delayed

    def forward(self, tensor: object) -> object:
        with self._on():
            self._passes.node("F", self._name, self._layer, self._of)
        return tensor

    def backward(self, tensor: object) -> object:
        whole = not self._delayed and self._name not in _MEETINGS
        with self._on():
            self._passes.node("B" if whole else "I", self._name, self._layer, self._of)
        return tensor

    def backward_dw(self) -> None:
        if self._delayed:
            self._passes.node("W", self._name, self._layer, self._of)


class _Loss:
    """The node of the loss, in which the last stage's backward begins."""

    def __init__(self, *given: object, **named: object) -> None:
        self.forward = None

    def get_grad(self) -> Token:
        return Token()


def _plan(core: Core, rank: Rank, passes: Passes, config: Theirs, layers: Callable[[int], int]) -> type:
    """Return the class of plans, whose `run` calls the release's `run`. layers: maps a stage to its number of
    layers.
    """
    real: Theirs = core.plans
    utils: Theirs = core.modules["megatron.core.pipeline_parallel.utils"]
    chunks = int(config.virtual_pipeline_model_parallel_size or 1)
    through = SimpleNamespace(forward=lambda x: x, backward=lambda x: x)

    class Plan(real.TransformerModelChunkSchedulePlan):  # type: ignore[misc]
        def __init__(self, model: Theirs, label: Label) -> None:
            self.label, self.source, self.vp_stage = label, model.input, model.chunk
            self._event, self._model_chunk_state = Event(rank.streams), SimpleNamespace()
            self._transformer_layers = [self._layer(number) for number in range(layers(label[1]))]
            self.pre_process = SimpleNamespace(forward=self._begun, backward=self._ended)
            self.post_process = None

        def _layer(self, number: int) -> SimpleNamespace:
            delayed = bool(getattr(config, "delay_wgrad_compute", False))
            names = ("attn", "post_attn", "moe_dispatch", "mlp", "moe_combine")
            of = f"{self.label[1]}.{self.label[2]}"
            nodes = {
                name: _Node(
                    passes, name, str(number), of, self._entering(name), delayed=delayed and name in ("attn", "mlp")
                )
                for name in names
            }
            return SimpleNamespace(
                **nodes, mtp_post_process=through, config=config, get_fp8_context=nullcontext, release_state=_nothing
            )

        def _entering(self, name: str) -> Entering:
            """Return a function whose context enters the stream of a node, as the release's ScheduleNode does."""
            stream = getattr(utils, f"get_{'comm' if name in _MEETINGS else 'comp'}_stream")()

            @contextmanager
            def entered() -> Iterator[None]:
                with utils.stream_acquire_context(stream, self._event), rank.streams.entered(stream):
                    yield

            return entered

        def _begun(self) -> Token:
            """Make the output of the stage, whose input existed before the pass."""
            made = Token(self.label)
            rank.made(made)
            return made

        def _ended(self, gradient: object) -> None:
            if self.source is not None:
                self.source.grad = gradient

        @staticmethod
        def run(ahead: Theirs, back: Theirs, b_grad: object = None, **named: object) -> object:
            computes = []
            if ahead is not None:
                kind, stage, microbatch = ahead.label
                rank.take(ahead.source, (kind, stage - 1, microbatch))
                computes.append(ahead.label)
            if back is not None:
                _, stage, microbatch = back.label
                if stage < rank.ranks * chunks - 1:
                    rank.take(b_grad, ("B", stage + 1, microbatch))
                computes.append(("B", stage, microbatch))
                made = Token(("B", stage, microbatch))
                rank.made(made)
                if back.num_layers():
                    first = back.get_layer(0).attn
                    first.backward = _then(first.backward, made)
                else:
                    back.post_process = SimpleNamespace(forward=lambda x: x, backward=lambda x: made)
            passes.begin(computes, empty=not any(x.num_layers() for x in (ahead, back) if x is not None))
            return real.TransformerModelChunkSchedulePlan.run(ahead, back, b_grad=b_grad, **named)

    return Plan


def _nothing(*given: object) -> None: ...


def _then(run: Callable[[object], object], made: Token) -> Callable[[object], Token]:
    """Return a function that runs a node and returns the token `made`."""

    def backward(tensor: object) -> Token:
        run(tensor)
        return made

    return backward


@contextmanager
def combined(core: Core, rank: Rank, config: Theirs, layers: Callable[[int], int]) -> Iterator[Callable[..., object]]:
    """Replace nodes, loss and steps in the release's modules, put these modules in `sys.modules`, and yield
    `forward_step_func`. layers: maps a stage to its number of layers.
    """
    schedules, found = vars(core.schedules), vars(core.modules["megatron.core.pipeline_parallel.combined_1f1b"])
    vars(core.modules["megatron.core.pipeline_parallel.utils"]).update(_COMP_STREAM=None, _COMM_STREAM=None)
    plan, taken = _plan(core, rank, Passes(rank), config, layers), dict[int, int]()

    def forward_step_func(data: object, model: Theirs, return_schedule_plan: bool = False) -> tuple[object, None]:
        taken[model.chunk] = microbatch = taken.get(model.chunk, -1) + 1
        return plan(model, ("F", model.chunk * rank.ranks + rank.here, microbatch)), None

    ours = {
        "forward_step_calc_loss": lambda model, output, *given: (output, Fake("num_tokens")),
        "set_current_microbatch": _nothing,
    }
    kept, loss = {name: schedules[name] for name in ours if name in schedules}, found["ScheduleNode"]
    schedules.update({name: ours[name] for name in kept})
    found["ScheduleNode"] = _Loss
    try:
        with core.finder:
            sys.modules.update(core.modules)
            yield forward_step_func
    finally:
        schedules.update(kept)
        found["ScheduleNode"] = loss


def plans(finder: Finder, module: type) -> ModuleType | None:
    """Load the module of plans; None if the release has none. module: the class that replaces GPTModel."""
    if f"megatron.core.{FILES[1]}" not in finder.files:
        return None
    made = import_module(f"megatron.core.{FILES[1]}")
    vars(import_module("megatron.core.models.gpt.gpt_model"))["GPTModel"] = module
    return made


def modules() -> Mapping[str, ModuleType]:
    """Return the loaded modules of megatron and torch."""
    return {name: found for name, found in sys.modules.items() if name.partition(".")[0] in ("megatron", "torch")}
