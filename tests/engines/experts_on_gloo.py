"""``python -m tests.engines.experts_on_gloo [PEERS ...]`` runs small mixtures of experts on real processes, with and
without combined passes.

    pipelines   as many as expert peers, each of two ranks; a stage is attention and experts, one expert on each peer
    F           attn, dispatch (all-to-all), mlp, combine (all-to-all);  I and W backwards, part by part
    orders      interleaved: F and B apart; interleaved_overlap: a pair as Megatron-core's combined 1F1B issues it

Gradients of all weights are those of the undivided model, in double precision.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pipesched
from pipesched.model.ops import Op

if TYPE_CHECKING:
    from torch import Tensor

RANKS, CHUNKS, MICROBATCHES, WIDTH, ROWS = 2, 2, 4, 6, 3
STAGES = RANKS * CHUNKS
PAIR = ["I.combine", "F.attn", "I.mlp", "F.dispatch", "W.mlp", "I.dispatch", "F.mlp", "F.combine", "I.attn", "W.attn"]
ALONE = {"F": [x for x in PAIR if x[0] == "F"], "B": [x for x in PAIR if x[0] != "F"]}
LIMIT = 120.0  # seconds


def lists(name: str) -> list[list[list[tuple[str, int, int]]]]:
    """Return the slots of every rank: kind, stage, microbatch of each operation."""
    made = pipesched.load(name, p=RANKS, v=CHUNKS, m=MICROBATCHES)
    found: list[list[list[tuple[str, int, int]]]] = [[] for _ in range(RANKS)]
    columns = (made.op, made.stage, made.microbatch, made.joined, made.rank)
    for op, s, i, joined, rank in zip(*(x.tolist() for x in columns), strict=True):
        if not joined:
            found[rank].append([])
        found[rank][-1].append((Op(op).name, s, i))
    return found


def weights(peers: int) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Return the attention of every stage, and its experts, one per peer."""
    import torch

    generator = torch.Generator().manual_seed(3)

    def drawn() -> Tensor:
        return torch.randn(WIDTH, WIDTH, dtype=torch.float64, generator=generator) / WIDTH**0.5

    return [drawn() for _ in range(STAGES)], [[drawn() for _ in range(peers)] for _ in range(STAGES)]


def inputs(peers: int) -> Tensor:
    """Return the tokens of every pipeline and microbatch: as many rows for each expert."""
    import torch

    shape = (peers, MICROBATCHES, peers * ROWS, WIDTH)
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def in_one_piece(peers: int) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Return the gradients of all weights, by autograd, for half the sum of the squared outputs."""
    import torch

    attention, experts = weights(peers)
    every = [*attention, *(x for row in experts for x in row)]
    for x in every:
        x.requires_grad_()
    loss = torch.zeros((), dtype=torch.float64)
    for row in inputs(peers):
        for tokens in row:
            for a, of_stage in zip(attention, experts, strict=True):
                blocks = torch.tanh(tokens @ a).split(ROWS)
                tokens = torch.cat([torch.sin(x @ e) for x, e in zip(blocks, of_stage, strict=True)])
            loss = loss + (tokens**2).sum() / 2
    loss.backward()
    return [x.grad for x in attention], [[x.grad for x in row] for row in experts]  # type: ignore[misc]


def be_rank(pipeline: int, rank: int, peers: int, name: str, store: str, out: Connection) -> None:
    """Run one rank of one pipeline, and send its gradients: by stage, of attention and of its expert."""
    import torch
    import torch.distributed as dist

    world, here = peers * RANKS, pipeline * RANKS + rank
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=here, world_size=world)
    groups = [dist.new_group([e * RANKS + r for e in range(peers)]) for r in range(RANKS)]
    attention, experts = weights(peers)
    tokens, kept, sent = inputs(peers)[pipeline], dict[tuple[str, int, int], Any](), list[Any]()
    grads = {s: [torch.zeros(WIDTH, WIDTH, dtype=torch.float64) for _ in range(2)] for s in range(rank, STAGES, RANKS)}

    def exchanged(x: Tensor) -> Tensor:
        got = torch.empty_like(x)
        dist.all_to_all_single(got, x.contiguous(), group=groups[rank])
        return got

    def message(kind: str, stage: int, i: int) -> int:
        return (kind == "B") * 1000 + stage * 100 + i

    def received(kind: str, stage: int, i: int) -> Tensor:
        got = torch.empty(peers * ROWS, WIDTH, dtype=torch.float64)
        dist.recv(got, pipeline * RANKS + 1 - rank, tag=message(kind, stage, i))
        return got

    def post(kind: str, stage: int, i: int, x: Tensor) -> None:
        x = x.contiguous()
        sent.append((dist.isend(x, pipeline * RANKS + 1 - rank, tag=message(kind, stage, i)), x))

    def part(word: str, s: int, i: int) -> None:
        a, e = attention[s], experts[s][pipeline]
        match word:
            case "F.attn":
                x = tokens[i] if s == 0 else received("F", s - 1, i)
                kept["x", s, i], kept["now", s, i] = x, torch.tanh(x @ a)
                kept["h", s, i] = kept["now", s, i]
            case "F.dispatch" | "F.combine":
                kept["now", s, i] = exchanged(kept["now", s, i])
            case "F.mlp":
                kept["z", s, i] = kept["now", s, i]
                kept["now", s, i] = torch.sin(kept["z", s, i] @ e)
            case "I.combine":
                back = kept["now", s, i] if s == STAGES - 1 else received("B", s + 1, i)
                kept["back", s, i] = exchanged(back)
            case "I.mlp":
                kept["inner", s, i] = kept["back", s, i] * torch.cos(kept["z", s, i] @ e)
                kept["back", s, i] = kept["inner", s, i] @ e.T
            case "W.mlp":
                grads[s][1] += kept["z", s, i].T @ kept["inner", s, i]
            case "I.dispatch":
                kept["back", s, i] = exchanged(kept["back", s, i])
            case "I.attn":
                kept["inner", s, i] = kept["back", s, i] * (1 - kept["h", s, i] ** 2)
                kept["back", s, i] = kept["inner", s, i] @ a.T
            case "W.attn":
                grads[s][0] += kept["x", s, i].T @ kept["inner", s, i]

    for slot in lists(name)[rank]:
        of = {"F" if kind == "F" else "B": (s, i) for kind, s, i in slot}
        for word in PAIR if len(slot) == 2 else ALONE[slot[0][0]]:
            part(word, *of["F" if word[0] == "F" else "B"])
        for kind, s, i in slot:
            if kind == "F" and s < STAGES - 1:
                post("F", s, i, kept["now", s, i])
            elif kind == "B" and s:
                post("B", s, i, kept["back", s, i])
    for work, _ in sent:
        work.wait()
    dist.barrier()
    out.send({s: [x.numpy() for x in row] for s, row in grads.items()})
    out.recv()


def error(peers: int, name: str) -> float:
    """Return the largest error of a gradient, relative to the largest entry of its own."""
    import numpy as np

    attention, experts = in_one_piece(peers)
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ends, processes = {}, []
        for pipeline, rank in _places(peers):
            ours, theirs = context.Pipe()
            arguments = (pipeline, rank, peers, name, str(Path(folder) / "store"), theirs)
            processes.append(context.Process(target=be_rank, args=arguments, daemon=True))
            processes[-1].start()
            ends[pipeline, rank] = ours
        until, found = time.monotonic() + LIMIT, {}
        try:
            for place, end in ends.items():
                if not end.poll(max(0, until - time.monotonic())):
                    raise TimeoutError(f"{name}: rank {place} has not ended in {LIMIT} s")
                found[place] = end.recv()
            for end in ends.values():
                end.send("leave")
        finally:
            for process in processes:
                process.join(2)
                process.kill()
                process.join()
    worst = 0.0
    for s in range(STAGES):
        mine = [found[pipeline, s % RANKS][s] for pipeline in range(peers)]
        pairs = [(sum(x[0] for x in mine), attention[s]), *((mine[e][1], experts[s][e]) for e in range(peers))]
        for got, want in pairs:
            worst = max(worst, float(np.abs(got - want.numpy()).max() / np.abs(want.numpy()).max()))
    return worst


def _places(peers: int) -> Iterator[tuple[int, int]]:
    return ((pipeline, rank) for pipeline in range(peers) for rank in range(RANKS))


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    wrong = False
    for peers in map(int, sys.argv[1:] or ("2", "4")):
        for name in ("interleaved", "interleaved_overlap"):
            off = error(peers, name)
            wrong |= not off < 1e-12
            print(f"{peers} expert peers, {name}: largest error of a gradient {off:.1e}")
    sys.exit(wrong)
