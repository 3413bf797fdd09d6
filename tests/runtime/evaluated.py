"""A rank that evaluates with the modules that it trains, and leaves their modes and gradients unchanged."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pipesched.runtime import Runtime
from pipesched.runtime.execute.stages import Stage
from pipesched.stream import Stream
from tests.runtime.models import BATCH, Block, batch, copies, error, squared


class Moody(nn.Module):
    """A block that doubles its output while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.block(x) * (2 if self.training else 1)
        return made


class Scaled(Moody):
    """A block that takes a keyword too."""

    def forward(self, x: Tensor, *, scale: Tensor, shift: float) -> Tensor:  # type: ignore[override]
        return super().forward(x) * scale + shift


def evaluated(rank: int, stream: Stream, scored: bool) -> dict[str, Any]:
    """Return two evaluations, a step if the stream has one, and a third: against the undivided model.

    scored: with targets. Stages with an even number take keywords, of which one differs by sample.
    """
    torch.manual_seed(stream.stages)
    count = stream.microbatches
    whole: list[nn.Module] = [(Moody if stage % 2 else Scaled)().double() for stage in range(stream.stages)]
    inputs, targets = batch(count)
    scales = torch.linspace(0.5, 1.5, count * BATCH, dtype=torch.float64)[:, None]
    own = copies(whole)
    mine = {held: own[held[1]] for held in stream.held_by(rank)}
    takes = any(stage % 2 == 0 for _, stage in mine)
    keywords = {"scale": scales, "shift": 0.25} if takes else None
    example = {"scale": scales[:BATCH], "shift": 0.25} if takes else None
    runtime = Runtime(stream, mine, squared, rank=rank, example=inputs[:BATCH], example_keywords=example)
    frozen = next(iter(mine.values())).block.norm.eval()
    weight = next(iter(mine.values())).block.wide.weight
    weight.grad = torch.ones_like(weight)

    def undivided(at: int) -> Tensor:
        here = slice(at * BATCH, (at + 1) * BATCH)
        value = inputs[here]
        for stage, module in enumerate(whole):
            value = module(value) if stage % 2 else module(value, scale=scales[here], shift=0.25)
        return value

    def expected() -> list[Tensor]:
        with torch.no_grad():
            return [undivided(at) for at in range(count)]

    last = [route for route, stage in mine if stage == stream.stages - 1]
    here = [
        at
        for route in sorted(last, key=lambda x: stream.placement[x].microbatches)
        for at in range(*stream.placement[route].microbatches)
    ]
    wrong, losses, kept = [0.0], [0.0], 0

    def evaluate() -> None:
        nonlocal kept
        for module in whole:
            module.eval()
        found = runtime.evaluate(inputs, targets if scored else None, keywords)
        made = expected()
        assert list(found.outputs) == here and not any(x.requires_grad for x in found.outputs.values())
        wrong.extend(float((a - made[at]).abs().max()) for at, a in found.outputs.items())
        if scored:
            assert found.loss is not None
            losses.append(abs(float(found.loss - squared(torch.cat(made), targets))))
        else:
            assert found.loss is None
        kept += sum(len(stage.live) for stage in runtime._stages.values()) + len(runtime._inbox) + len(runtime._outbox)

    evaluate()
    evaluate()
    modes = all(module.training == (module is not frozen) for stage in mine.values() for module in stage.modules())
    unchanged = weight.grad is not None and bool((weight.grad == 1).all())
    weight.grad = None
    trained = 0.0
    if any(x.op in ("B", "I", "OVERLAP") for x in stream.ranks[rank]):
        runtime.step(inputs, targets, keywords)
        for module in whole:
            module.train()
        for at in range(count):
            (squared(undivided(at), targets[at * BATCH : (at + 1) * BATCH]) / count).backward()  # type: ignore[no-untyped-call]
        trained = max(error(module, whole[stage]) for (_, stage), module in mine.items())
        evaluate()
    return {
        "outputs": max(wrong),
        "count": len(here),
        "losses": max(losses),
        "kept": kept,
        "modes": modes,
        "unchanged": unchanged,
        "trained": trained,
        "train": [stage.train for stage in runtime._stages.values() if isinstance(stage, Stage)],
    }


def refused(rank: int, stream: Stream, what: str) -> str:
    """Return the error of a wrong call, on its rank."""
    inputs, targets = batch(stream.microbatches)
    mine: dict[tuple[int, int], nn.Module] = {held: Block().double() for held in stream.held_by(rank)}
    loss = None if what == "no loss" else squared
    runtime = Runtime(stream, mine, loss, rank=rank, example=inputs[:BATCH])
    given: dict[str, Any] = {
        "no loss": {"targets": targets},
        "keyword": {"keywords": {"maks": inputs}},
        "no inputs": {"inputs": None},
    }[what]
    try:
        runtime.evaluate(**{"inputs": inputs, **given})
    except ValueError as error:
        return str(error)
    return ""
