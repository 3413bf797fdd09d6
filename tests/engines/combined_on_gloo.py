"""``python -m tests.engines.combined_on_gloo [FOLDER]`` runs Megatron-core's own combined 1F1B on real processes.

    theirs   schedules, p2p_communication, combined_1f1b, model_chunk_schedule_plan, ScheduleNode, parallel_state; torch
    ours     the model: a stage is layers of attention and experts, one expert on each of two peers; CUDA's streams and
             events, which do nothing on a CPU, where each call ends before the next one begins

Messages and all-to-alls are gloo's. Gradients are those of the undivided model in double precision, passes are the
overlaps of the library's order, and the first pair issues its parts in the published order. FOLDER has a package
megatron; by default the installed one runs.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pipesched
from pipesched.model.ops import Op

if TYPE_CHECKING:
    from torch import Tensor

PEERS, WIDTH, ROWS, LAYERS = 2, 4, 2, 2
LIMIT = 240.0  # seconds
Size = tuple[int, int, int]


def weights(stages: int) -> dict[tuple[int, int, int], Tensor]:
    """Return the weights by stage, layer and place: attention is 0, the expert of peer k is 1 + k."""
    import torch

    generator = torch.Generator().manual_seed(3)
    places = [(s, k, w) for s in range(stages) for k in range(LAYERS) for w in range(1 + PEERS)]
    shape = (WIDTH, WIDTH)
    return {at: torch.randn(shape, dtype=torch.float64, generator=generator) / WIDTH**0.5 for at in places}


def inputs(microbatches: int) -> Tensor:
    """Return the tokens of every pipeline and microbatch."""
    import torch

    shape = (PEERS, microbatches, PEERS * ROWS, 1, WIDTH)
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def in_one_piece(size: Size) -> dict[tuple[int, int, int], Tensor]:
    """Return the gradients of all weights, for half the mean over microbatches of the squared outputs."""
    import torch

    p, v, m = size
    of = weights(p * v)
    for x in of.values():
        x.requires_grad_()
    loss = torch.zeros((), dtype=torch.float64)
    for row in inputs(m):
        for tokens in row:
            for s in range(p * v):
                for k in range(LAYERS):
                    blocks = torch.tanh(tokens @ of[s, k, 0]).split(ROWS)
                    tokens = torch.cat([torch.sin(x @ of[s, k, 1 + e]) for e, x in enumerate(blocks)])
            loss = loss + (tokens**2).sum() / 2 / m
    loss.backward()
    return {at: x.grad for at, x in of.items()}  # type: ignore[misc]


def without_cuda() -> None:
    """Let torch's functions for devices do nothing, and put tensors of devices on the CPU."""
    import torch

    class Stream:
        def __init__(self, *given: object, **named: object) -> None: ...

        wait = record = synchronize = wait_stream = wait_event = __init__

    cuda: Any = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    cuda.Stream = cuda.Event = Stream
    cuda.current_stream = Stream
    cuda.synchronize = cuda.nvtx.range_push = lambda *given: None
    cuda.nvtx.range_pop = lambda: None
    cuda.stream = lambda stream: nullcontext()
    tensor: Any = torch.Tensor
    tensor.record_stream = lambda self, stream: None
    zeros = torch.zeros
    anywhere: Any = torch
    anywhere.zeros = lambda *given, **named: zeros(*given, **{**named, "device": "cpu"})


def parted(core: SimpleNamespace, delayed: bool, exchanged: Callable[[Tensor], Tensor], log: list[str]) -> type:
    """Return the class of nodes: parts of a layer that the release's ScheduleNode runs."""
    import torch

    class Exchange(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: Tensor) -> Tensor:
            return exchanged(x)

        @staticmethod
        def backward(_: Any, *gradients: Tensor) -> Tensor:
            return exchanged(gradients[0])

    class Later(torch.autograd.Function):
        """x @ w, which leaves the gradient of w for later."""

        @staticmethod
        def forward(own: Any, x: Tensor, w: Tensor, kept: list[Any]) -> Tensor:
            own.kept, own.w = kept, w
            own.save_for_backward(x)
            return x @ w

        @staticmethod
        def backward(own: Any, *gradients: Tensor) -> Any:
            own.kept.append((own.w, own.saved_tensors[0], gradients[0]))
            return gradients[0] @ own.w.T, None, None

    class Node(core.utils.ScheduleNode):  # type: ignore[name-defined,misc]
        def __init__(self, name: str, layer: int, of: str, w: Tensor | None, event: object) -> None:
            functions = {"attn": self._attn, "mlp": self._mlp}
            super().__init__(functions.get(name.removeprefix("moe_"), Exchange.apply), None, event, name=name)
            self.said, self.of, self.w, self.left = f"{name.removeprefix('moe_')}{layer}", of, w, list[Any]()

        def _times(self, x: Tensor) -> Tensor:
            return Later.apply(x, self.w, self.left) if delayed else x @ self.w  # type: ignore[no-untyped-call,operator,return-value]

        def _attn(self, x: Tensor) -> Tensor:
            return torch.tanh(self._times(x))

        def _mlp(self, x: Tensor) -> Tensor:
            return torch.sin(self._times(x))

        def forward(self, inputs: Any = ()) -> Any:
            log.append(f"F{self.of}.{self.said}")
            return super().forward(inputs)

        def backward(self, output_grad: Any) -> Any:
            log.append(f"I{self.of}.{self.said}")
            return super().backward(output_grad)

        def backward_dw(self) -> None:
            for w, x, gradient in self.left:
                log.append(f"W{self.of}.{self.said}")
                w.grad = (0 if w.grad is None else w.grad) + x.flatten(0, -2).T @ gradient.flatten(0, -2)
            self.left.clear()

    return Node


def be_rank(number: int, size: Size, delayed: bool, store: str, out: Connection) -> None:
    """Run the release for one rank, and send its gradients and its log."""
    import torch
    import torch.distributed as dist

    (p, v, m), core = size, loaded()
    world = p * PEERS
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=number, world_size=world)
    without_cuda()
    core.state.initialize_model_parallel(
        pipeline_model_parallel_size=p,
        virtual_pipeline_model_parallel_size=v,
        expert_model_parallel_size=PEERS,
    )
    rank, peer = core.state.get_pipeline_model_parallel_rank(), core.state.get_expert_model_parallel_rank()
    group = core.state.get_expert_model_parallel_group()
    log, of, tokens = list[str](), weights(p * v), inputs(m)[peer]
    own = {(s, k, w): of[s, k, w] for s, k, w in of if s % p == rank and w in (0, 1 + peer)}
    for x in own.values():
        x.requires_grad_()

    def exchanged(x: Tensor) -> Tensor:
        got = torch.empty_like(x)
        dist.all_to_all_single(got, x.contiguous(), group=group)
        return got

    node = parted(core, delayed, exchanged, log)

    class Model(torch.nn.Module):
        def __init__(self, chunk: int, config: object) -> None:
            super().__init__()
            self.config, self.vp_stage, self.model_type = config, chunk, core.enums.ModelType.encoder_or_decoder
            self.taken, self.input = 0, torch.empty(0)

        def set_input_tensor(self, tensor: Any) -> None:
            self.input = tensor[0]

        def build_schedule_plan(self) -> None: ...

    class Plan(core.plan.TransformerModelChunkSchedulePlan):  # type: ignore[name-defined,misc]
        def __init__(self, model: Any, microbatch: int) -> None:
            stage = model.vp_stage * p + rank
            of = f"{stage}.{microbatch}"
            self.vp_stage, self._event = model.vp_stage, torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._model_chunk_state, self.post_process = SimpleNamespace(), None
            source = tokens[microbatch].clone().requires_grad_() if stage == 0 else model.input
            self.pre_process = core.utils.ScheduleNode(lambda: source, None, self._event)
            self._transformer_layers = []
            for k in range(LAYERS):
                layer = core.plan.TransformerLayerSchedulePlan.__new__(core.plan.TransformerLayerSchedulePlan)
                layer.config, layer.get_fp8_context = model.config, nullcontext
                layer.layer = layer.layer_state = None
                for name, w in {"attn": 0, "moe_dispatch": -1, "mlp": 1 + peer, "moe_combine": -1}.items():
                    setattr(layer, name, node(name, k, of, own.get((stage, k, w)), self._event))
                layer.mtp_post_process = layer.post_attn = core.utils.NoopScheduleNode()
                self._transformer_layers.append(layer)

    def forward_step(data: object, model: Any, return_schedule_plan: bool = False) -> Any:
        model.taken += 1
        return Plan(model, model.taken - 1), lambda output: ((output**2).sum() / 2, {})

    stub: Any = ModuleType("megatron.core.models.gpt.gpt_model")
    stub.GPTModel = Model
    sys.modules[stub.__name__] = stub
    off = {"__getattr__": lambda self, name: False}
    config = type("Configuration", (core.configuration,), off)(
        pipeline_model_parallel_size=p,
        virtual_pipeline_model_parallel_size=v,
        pipeline_dtype=torch.float64,
        overlap_moe_expert_parallel_comm=True,
        delay_wgrad_compute=delayed,
        overlap_p2p_comm=True,
        batch_p2p_comm=False,
    )
    config.hidden_size, config.num_moe_experts, config.mtp_num_layers, config.timers = WIDTH, None, None, None
    core.schedules.forward_backward_pipelining_with_interleaving(
        forward_step_func=forward_step,
        data_iterator=[None] * v,
        model=[Model(chunk, config) for chunk in range(v)],
        num_microbatches=m,
        seq_length=PEERS * ROWS,
        micro_batch_size=1,
        forward_only=False,
    )
    dist.barrier()
    out.send((rank, {at: x.grad.detach().numpy() for at, x in own.items() if x.grad is not None}, log))
    out.recv()


def loaded() -> SimpleNamespace:
    """Import the modules of the first release on the path."""
    warnings.simplefilter("ignore")
    import megatron.core.model_parallel_config as configuration
    import megatron.core.models.common.model_chunk_schedule_plan as plan
    import megatron.core.parallel_state as state
    import megatron.core.pipeline_parallel.schedules as schedules
    import megatron.core.pipeline_parallel.utils as utils
    from megatron.core import enums

    return SimpleNamespace(
        plan=plan,
        state=state,
        schedules=schedules,
        utils=utils,
        enums=enums,
        configuration=configuration.ModelParallelConfig,
    )


def computes(log: list[str]) -> list[str]:
    """Return the computes of a rank, as ``F0.3``, in the order of their first nodes."""
    words = (word.replace("I", "B").rpartition(".")[0] for word in log if word[0] != "W")
    return [*dict.fromkeys(words)]


def expected(size: Size) -> list[list[str]]:
    """Return the computes of every rank of the library's order, a pair's backward first, as its first node runs."""
    p, v, m = size
    made = pipesched.load("interleaved_overlap", p=p, v=v, m=m)
    rows: list[list[str]] = [[] for _ in range(p)]
    columns = (made.op, made.stage, made.microbatch, made.joined, made.rank)
    for op, s, i, joined, rank in zip(*(x.tolist() for x in columns), strict=True):
        rows[rank].insert(len(rows[rank]) - joined, f"{Op(op).name}{s}.{i}")
    return rows


def first_pair(log: list[str]) -> list[str]:
    """Return the parts that a rank issues from its first backward on."""
    first = next(at for at, word in enumerate(log) if word[0] == "I")
    return [f"{word[0]}.{word.rpartition('.')[2].rstrip('0123456789')}" for word in log[first:]]


def outcome(size: Size, *, delayed: bool) -> tuple[float, list[list[str]]]:
    """Return the largest error of a gradient, relative to its largest entry, and the log of every rank."""
    want = in_one_piece(size)
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as store:
        ends, processes = [], []
        for number in range(size[0] * PEERS):
            ours, theirs = context.Pipe()
            arguments = (number, size, delayed, str(Path(store) / "store"), theirs)
            processes.append(context.Process(target=be_rank, args=arguments, daemon=True))
            processes[-1].start()
            ends.append(ours)
        until, found = time.monotonic() + LIMIT, []
        try:
            for number, end in enumerate(ends):
                if not end.poll(max(0, until - time.monotonic())):
                    raise TimeoutError(f"process {number} has not ended in {LIMIT} s")
                found.append(end.recv())
            for end in ends:
                end.send("leave")
        finally:
            for process in processes:
                process.join(2)
                process.kill()
                process.join()
    total: dict[tuple[int, int, int], Any] = {}
    for _, gradients, _ in found:
        for at, x in gradients.items():
            total[at] = x + total.get(at, 0)
    worst = max(float(abs(total[at] - x.numpy()).max() / x.abs().max()) for at, x in want.items())
    return worst, [log for rank in range(size[0]) for at, _, log in found if at == rank]


def right(size: Size, *, delayed: bool) -> tuple[bool, float]:
    """Return True if gradients, order and parts are as they should be, and the largest error."""
    from tests.interop.test_megatron_combined import ISSUED

    worst, logs = outcome(size, delayed=delayed)
    rows = [row for row in expected(size) for _ in range(PEERS)]
    issued = ISSUED if delayed else [x for x in ISSUED if x[0] != "W"]
    same = all(computes(log) == row for log, row in zip(logs, rows, strict=True))
    return same and worst < 1e-12 and any(first_pair(log)[: len(issued)] == issued for log in logs), worst


if __name__ == "__main__":
    import torch

    sys.path[:0] = sys.argv[1:]
    torch.set_num_threads(1)
    from_, wrong = loaded().schedules.__file__, 0
    for size in [(p, v, m) for p in (2, 3, 4) for v in (2, 3, 4) for m in (p, 2 * p)]:
        for delayed in (False, True):
            good, worst = right(size, delayed=delayed)
            wrong += not good
            print(f"{size} delayed {delayed}: {'as' if good else 'NOT as'} published, error {worst:.1e}", flush=True)
    print(f"{from_}: {wrong} of 36 not as published")
    sys.exit(wrong > 0)
