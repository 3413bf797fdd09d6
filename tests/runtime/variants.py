"""Irregular models, each with its own data and loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from tests.runtime.models import BATCH, WIDTH, Block, squared

Tied = Sequence[Sequence[tuple[int, str]]]
WORDS = 11


@dataclass(frozen=True)
class Variant:
    """build(stages): the model. given: one microbatch of input and target. tied: for `Runtime`."""

    build: Callable[[int], list[nn.Module]]
    given: Callable[[torch.Generator], tuple[Any, Any]]
    loss: Callable[[Any, Any], Tensor] = squared
    tied: Callable[[int], Tied] = lambda stages: ()


def _floats(made: torch.Generator) -> tuple[Tensor, Tensor]:
    return tuple(torch.randn(BATCH, WIDTH, generator=made) for _ in range(2))  # type: ignore[return-value]


def _sequences(made: torch.Generator) -> tuple[Tensor, Tensor]:
    return tuple(torch.randn(BATCH, 4, WIDTH, generator=made) for _ in range(2))  # type: ignore[return-value]


def _wanting(made: torch.Generator) -> tuple[Tensor, Tensor]:
    x, y = _floats(made)
    return x.requires_grad_(), y


def _tokens(made: torch.Generator) -> tuple[Tensor, Tensor]:
    return tuple(torch.randint(WORDS, (BATCH, 5), generator=made) for _ in range(2))  # type: ignore[return-value]


def _masked(made: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
    x, y = _floats(made)
    return (x, torch.rand(BATCH, WIDTH, generator=made) < 0.7), y


class Embed(nn.Module):
    """Token numbers to vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WORDS, WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.weight[tokens]


class Head(nn.Module):
    """The vectors to scores of tokens."""

    def __init__(self, weight: nn.Parameter | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WORDS, WIDTH)) if weight is None else weight

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


def _cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def _language_model(stages: int, *, tied: bool) -> list[nn.Module]:
    embed = Embed()
    return [embed, *(Block() for _ in range(stages - 2)), Head(embed.weight if tied else None)]


class Masked(nn.Module):
    """A block that passes on a mask, which has no gradient."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.block, self.last = Block(), last

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        made = self.block(x) * mask
        return made if self.last else (made, mask)


class TwoHeads(nn.Module):
    """A last stage with several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.aside = Block(), nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        made = self.block(x)
        return {"main": made, "aside": self.aside(made), "unused": made.sum()}


def _two_losses(output: dict[str, Tensor], target: Tensor) -> Tensor:
    return squared(output["main"], target) + 0.1 * output["aside"].square().mean()


class Recomputed(nn.Module):
    """A block under activation checkpointing."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.block, self.reentrant = Block(), reentrant

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = checkpoint(self.block, x, use_reentrant=self.reentrant)
        return made


class Selective(nn.Module):
    """A block that is recomputed except for some operations, after one that is not."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.block, self.plain, self.policy = Block(), Block(), policy

    def forward(self, x: Tensor) -> Tensor:
        contexts = partial(create_selective_checkpoint_contexts, self.policy)
        made: Tensor = checkpoint(self.block, self.plain(x), use_reentrant=False, context_fn=contexts)
        return made


def _policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    saved = operation == torch.ops.aten.tanh.default
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


def _checkpointed_loss(output: Tensor, target: Tensor) -> Tensor:
    contexts = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mul.Tensor])
    made: Tensor = checkpoint(squared, output * 2, target, use_reentrant=False, context_fn=contexts)
    return made


class Turned(nn.Module):
    """A stage whose output is a view."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.inner(x)).transpose(0, 1).contiguous().transpose(0, 1)


class Looped(nn.Module):
    """A block that is applied three times."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.block(x)
        return x


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.inner(x)[0]
        return made


class Positions(nn.Module):
    """The passes on a value that depends on weights alone."""

    def __init__(self, *, last: bool) -> None:
        super().__init__()
        self.block, self.last = Block(), last
        self.where = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor, where: Tensor | None = None) -> Any:
        made = self.block(x) if where is None else self.block(x + where)
        return made if self.last else (made, self.where * 2)


class Frozen(Block):
    """A block with some untrained weights, and one that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.wide.weight.requires_grad_(False)
        self.unused = nn.Parameter(torch.randn(2))


class Integers(nn.Module):
    """A first half that returns token numbers: no gradient flows back."""

    def forward(self, tokens: Tensor) -> Tensor:
        return (tokens + 1) % WORDS


def _integers(stages: int) -> list[nn.Module]:
    if stages == 2:
        return [Integers(), nn.Sequential(Embed(), Head())]
    return [Integers(), *_language_model(stages - 1, tied=False)]


VARIANTS = {
    "no_weights": Variant(lambda s: [nn.Tanh() if i % 2 else Block() for i in range(s)], _floats),
    "input": Variant(lambda s: [Block() for _ in range(s)], _wanting),
    "no_weights_first": Variant(lambda s: [Block() if i % 2 else nn.Tanh() for i in range(s)], _floats),
    "identity": Variant(lambda s: [Block(), *(nn.Identity() for _ in range(s - 1))], _floats),
    "tokens": Variant(lambda s: _language_model(s, tied=False), _tokens, _cross_entropy),
    "tied": Variant(
        lambda s: _language_model(s, tied=True),
        _tokens,
        _cross_entropy,
        lambda s: [[(0, "weight"), (s - 1, "weight")]],
    ),
    "shared": Variant(lambda s: _language_model(s, tied=True), _tokens, _cross_entropy),
    "mask": Variant(lambda s: [Masked(i == s - 1) for i in range(s)], _masked),
    "outputs": Variant(lambda s: [*(Block() for _ in range(s - 1)), TwoHeads()], _floats, _two_losses),
    "recomputed": Variant(lambda s: [Recomputed(reentrant=False) for _ in range(s)], _floats),
    "reentrant": Variant(lambda s: [Block(), *(Recomputed(reentrant=True) for _ in range(s - 1))], _floats),
    "selective": Variant(lambda s: [Selective([torch.ops.aten.addmm.default]) for _ in range(s)], _floats),
    "selective by policy": Variant(lambda s: [Block(), *(Selective(_policy) for _ in range(s - 1))], _floats),
    "selective loss": Variant(lambda s: [Block() for _ in range(s)], _floats, _checkpointed_loss),
    "view": Variant(lambda s: [Turned() for _ in range(s)], _floats),
    "sequences": Variant(lambda s: [nn.Linear(WIDTH, WIDTH) for _ in range(s)], _sequences),
    "looped": Variant(lambda s: [Looped() for _ in range(s)], _floats),
    "recurrent": Variant(lambda s: [Recurrent() for _ in range(s)], _sequences),
    "positions": Variant(lambda s: [Positions(last=i == s - 1) for i in range(s)], _floats),
    "frozen": Variant(lambda s: [Frozen() for _ in range(s)], _floats),
    "integers": Variant(_integers, _tokens, _cross_entropy),
}
