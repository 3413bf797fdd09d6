"""Small real models, split into stages, which ``pipesched run`` trains.

    mlp           tanh(Linear)               …   Linear, mean squared error
    transformer   embedding, block   block   …   block, Linear, cross entropy      block: attention + MLP, both residual

A stage has the same weights on every rank and in every process: its parameters are drawn from its own seed. Every
boundary between stages is one tensor of the same shape, so that a wrong order changes the result instead of failing
because of a shape. A stage that reads several stages adds their outputs with different weights, so that mixing them up
is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

BATCH, WIDTH, TOKENS, WORDS, HEADS = 4, 16, 6, 13, 2

Loss = Callable[[Tensor, Tensor], Tensor]


class Embedding(nn.Module):
    """Embeds words and their positions: (batch, tokens) int64 to (batch, tokens, width)."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.word = nn.Embedding(WORDS, WIDTH, dtype=dtype)
        self.position = nn.Parameter(torch.randn(TOKENS, WIDTH, dtype=dtype) / 8)

    def forward(self, words: Tensor) -> Tensor:
        embedded: Tensor = self.word(words) + self.position
        return embedded


class Block(nn.Module):
    """Causal self-attention and a two-layer MLP, each with its residual; the shape stays (batch, tokens, width)."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH, dtype=dtype)
        self.mixed = nn.Linear(WIDTH, 3 * WIDTH, dtype=dtype)
        self.joined = nn.Linear(WIDTH, WIDTH, dtype=dtype)
        self.before_mlp = nn.LayerNorm(WIDTH, dtype=dtype)
        self.wide = nn.Linear(WIDTH, 2 * WIDTH, dtype=dtype)
        self.narrow = nn.Linear(2 * WIDTH, WIDTH, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attention(self.before_attention(x))
        mlp: Tensor = self.narrow(torch.nn.functional.gelu(self.wide(self.before_mlp(x))))
        return x + mlp

    def _attention(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        query, key, value = (
            part.reshape(batch, tokens, HEADS, width // HEADS).transpose(1, 2)
            for part in self.mixed(x).chunk(3, dim=-1)
        )
        seen = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined: Tensor = self.joined(seen.transpose(1, 2).reshape(batch, tokens, width))
        return joined


class Joined(nn.Sequential):
    """A stage that reads several stages: it adds the first input, 1/2 of the second, 1/3 of the third, and so on."""

    def forward(self, *given: Tensor) -> Tensor:
        made: Tensor = super().forward(_joined(given))
        return made


class JoinedWords(nn.Sequential):
    """A stage that reads several stages; its last input is token ids, which its first part embeds."""

    def forward(self, *given: Tensor) -> Tensor:
        embedding, *parts = self
        x = _joined((*given[:-1], embedding(given[-1])))
        for part in parts:
            x = part(x)
        return x


def _joined(given: tuple[Tensor, ...]) -> Tensor:
    made = given[0]
    for number, x in enumerate(given[1:], 2):
        made = made + x / number
    return made


@dataclass(frozen=True)
class Net:
    """A model in stages, with data to train it on.

    reads: for each stage that does not read just the previous stage, the stages that it reads; -1 is the input.
    samples: the number of samples in each microbatch, if not `BATCH`.

    In float64, errors from a wrong order exceed rounding errors by 12 orders of magnitude.
    """

    name: str
    stages: int
    seed: int = 0
    dtype: torch.dtype = torch.float64
    reads: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    samples: tuple[int, ...] = ()

    def read(self, stage: int) -> tuple[int, ...]:
        """Return the stages that a stage reads, in the order in which it takes them."""
        return self.reads.get(stage, (stage - 1,))

    def stage(self, index: int) -> nn.Module:
        """Build the module of a stage, always with the same weights."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1_000_003 * self.seed + index)
            return self._mlp(index) if self.name == "mlp" else self._transformer(index)

    def _mlp(self, index: int) -> nn.Module:
        linear = nn.Linear(WIDTH, WIDTH, dtype=self.dtype)
        if len(self.read(index)) > 1:
            return Joined(linear) if index == self.stages - 1 else Joined(linear, nn.Tanh())
        return linear if index == self.stages - 1 else nn.Sequential(linear, nn.Tanh())

    def _transformer(self, index: int) -> nn.Module:
        read = self.read(index)
        parts: list[nn.Module] = [Embedding(self.dtype)] if -1 in read else []
        parts.append(Block(self.dtype))
        if index == self.stages - 1:
            parts.append(nn.Linear(WIDTH, WORDS, dtype=self.dtype))
        if len(read) > 1:
            return JoinedWords(*parts) if -1 in read else Joined(*parts)
        return nn.Sequential(*parts)

    def batch(self, step: int, microbatches: int) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of one step: the samples of all microbatches, along the first dimension."""
        drawn = torch.Generator().manual_seed(7_919 * (step + 1) + self.seed)
        count = sum(self.samples) or microbatches * BATCH
        if self.name == "mlp":
            both = torch.randn((2, count, WIDTH), generator=drawn, dtype=self.dtype)
            return both[0], both[1]
        words = torch.randint(WORDS, (count, TOKENS + 1), generator=drawn)
        return words[:, :-1].contiguous(), words[:, 1:].contiguous()

    def cut(self, batch: Tensor) -> tuple[Tensor, ...]:
        """Split inputs or targets into microbatches."""
        return torch.split(batch, list(self.samples) or BATCH)

    @property
    def loss(self) -> Loss:
        """The mean loss of a microbatch."""
        return torch.nn.functional.mse_loss if self.name == "mlp" else _entropy


def _entropy(output: Tensor, target: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())
