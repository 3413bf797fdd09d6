"""Models whose stages share weights, and steps of such a model on a rank; the oracle is the undivided model with one
tensor."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pipesched.runtime import Runtime
from pipesched.runtime.execute.errors import RunError
from pipesched.stream import Stream
from tests.runtime.models import BATCH, WIDTH, Block, copies, undivided

WORDS = 40
Groups = Sequence[Sequence[tuple[int, str]]]


class Wordy(nn.Module):
    """A block between two tables of words; the first stage takes words, the last one returns scores of words."""

    def __init__(self, *, first: bool, last: bool) -> None:
        super().__init__()
        self.block, self.first, self.last = Block(), first, last
        self.words, self.more = (nn.Parameter(torch.randn(WORDS, WIDTH)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        value = self.words[x] + self.more[x] if self.first else x + torch.tanh(x @ self.words.T) @ self.more
        made: Tensor = self.block(value)
        return made @ self.words.T + made @ self.more.T / 2 if self.last else made


class First(nn.Module):
    """A stage with the names of a usual first stage of a language model; the padding's row is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, 70, padding_idx=0)
        self.down = nn.Linear(70, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.down(self.embed_tokens(x))
        return made


class Last(nn.Module):
    """Named like a usual last stage."""

    def __init__(self, table: nn.Parameter) -> None:
        super().__init__()
        self.norm, self.up, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 70), nn.Linear(70, WORDS, bias=False)
        self.lm_head.weight = table

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.lm_head(self.up(self.norm(x)))
        return made


class Scaled(Block):
    """A block with a table that is the same in each when made."""

    def __init__(self) -> None:
        super().__init__()
        self.a_log = nn.Parameter(torch.arange(1, 17).log().repeat(WIDTH, 1))


def wordy(stages: int, groups: Groups) -> list[nn.Module]:
    """Return the same stages on every process, with one tensor per group."""
    torch.manual_seed(stages)
    made: list[nn.Module] = [Wordy(first=s == 0, last=s == stages - 1).double() for s in range(stages)]
    for (stage, name), *others in groups:
        for other, called in others:
            setattr(made[other], called, made[stage].get_parameter(name))
    return made


def tokens(microbatches: int) -> tuple[list[Tensor], list[Tensor]]:
    made = torch.Generator().manual_seed(microbatches)
    given = [torch.randint(WORDS, (2, BATCH, 5), generator=made) for _ in range(microbatches)]
    return [x[0] for x in given], [x[1] for x in given]


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def apart(stages: list[nn.Module]) -> list[nn.Module]:
    """Return each stage copied separately: no two share a tensor."""
    return [copies([stage])[0] for stage in stages]


def train(
    rank: int, stream: Stream, groups: Groups, told: Groups | None, together: bool, blocking: bool
) -> dict[str, Any]:
    """Return three steps of AdamW: the distance of weights and losses from the undivided model's, and the tables.

    told: the tied names given to the runtime. together: whether stages of one rank share a tensor there.
    """
    torch.set_num_threads(1)
    whole = wordy(stream.stages, groups)
    own = copies(whole) if together else apart(whole)
    mine = {held: own[held[1]] for held in stream.held_by(rank)}
    inputs, targets = tokens(stream.microbatches)
    ours, theirs = (
        torch.optim.AdamW([*dict.fromkeys(w for stage in stages for w in stage.parameters())], lr=0.01)
        for stages in (mine.values(), whole)
    )
    runtime = Runtime(
        stream, mine, cross_entropy, rank=rank, example=inputs[0], optimize=ours.step, tied=told, blocking=blocking
    )
    losses = []
    for _ in range(3):
        ours.zero_grad()
        theirs.zero_grad()
        losses.append(abs(float(runtime.step(inputs, targets) - undivided(whole, inputs, targets, cross_entropy))))
        theirs.step()
    pairs = [(a, b) for (_, s), m in mine.items() for a, b in zip(m.parameters(), whole[s].parameters(), strict=True)]
    return {
        "weights": max(float((a - b).detach().abs().max()) for a, b in pairs),
        "losses": max(losses),
        "tables": {
            (s, name): m.get_parameter(name).tolist() for (_, s), m in mine.items() for name in ("words", "more")
        },
    }


def said(rank: int, stream: Stream, model: str, told: Groups | None) -> tuple[str, str, list[str]]:
    """Return the answer of a runtime to such a model: a code and its text, and the warnings."""
    torch.manual_seed(len(model) + (rank if model == "other values" else 0))
    last = stream.stages - 1
    if model == "clones":
        stages = copies([Block()] * 1) * stream.stages
    elif model == "by rule":
        stages = [Scaled() for _ in range(stream.stages)]
    elif model in ("wordy", "vee"):
        stages = wordy(stream.stages, [[(0, "words"), (last, "words")], [(0, "more"), (1, "more")]])
    else:
        first = First()
        stages = [first, *(Block() for _ in range(last - 1)), Last(first.embed_tokens.weight)]
    stages = apart(stages)
    inputs, _ = tokens(stream.microbatches)
    mine = {held: stages[held[1]] for held in stream.held_by(rank)}
    example = torch.zeros(BATCH, WIDTH) if model in ("clones", "by rule") else inputs[0]
    given = told if not told or model != "other ties" else [*told, *([[(0, "a"), (1, "b")]] if rank else [])]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            Runtime(stream, mine, cross_entropy, rank=rank, example=example, tied=given)
        except RunError as error:
            return error.fault.code, str(error), []
    return "", "", [f"{w.category.__name__}: {w.message}" for w in found]
