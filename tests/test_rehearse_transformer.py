"""One layer of a transformer that is measured once says what every rank of every schedule holds at most

The layer is of torch's own operations, in fp32 on a CPU; its ends are added: 4 bytes for each logit, its softmax and
its gradient, and what the last norm makes. Recomputation is torch's checkpointing, of the scores or of a whole layer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import pipesched
from pipesched.runtime.rehearsal import Part, Rehearsed, rehearse
from pipesched.runtime.stage_bytes import StageBytes, predicted
from pipesched.stream import Stream, loads

HIDDEN, TOKENS, ROWS, HEADS, WORDS, LAYERS = 32, 48, 2, 4, 64, 8
UNIT = ROWS * TOKENS * HIDDEN * 4
"""Bytes of a message."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Layer(nn.Module):
    """Attention with its scores and a feed-forward part, each with a norm before it and a residual."""

    def __init__(self, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.first, self.second = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.mixed, self.joined = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.wide, self.narrow = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        again = self.recompute == "full"
        made: Tensor = checkpoint(self.whole, x, use_reentrant=False) if again else self.whole(x)
        return made

    def whole(self, x: Tensor) -> Tensor:
        shape = (ROWS, TOKENS, HEADS, HIDDEN // HEADS)
        parts = [part.reshape(shape).transpose(1, 2) for part in self.mixed(self.first(x)).chunk(3, -1)]
        again = self.recompute == "selective"
        seen = checkpoint(scores, *parts, use_reentrant=False) if again else scores(*parts)
        x = x + self.joined(seen.transpose(1, 2).reshape(x.shape))
        made: Tensor = x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))
        return made


def scores(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return (query @ key.transpose(2, 3)).softmax(-1) @ value


def part(stage: int, stages: int, layers: int, recompute: str = "none") -> Part:
    """A stage with so many layers, the embedding on the first, the head on the last."""
    modules: list[nn.Module] = [Layer(recompute) for _ in range(layers)]
    if stage == 0:
        modules.insert(0, nn.Embedding(WORDS, HIDDEN))
    if stage == stages - 1:
        modules += [nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, WORDS)]
    words = torch.randint(WORDS, (ROWS, TOKENS))
    inputs = words if stage == 0 else torch.randn(ROWS, TOKENS, HIDDEN)
    return Part(
        nn.Sequential(*modules),
        (inputs,),
        lambda output: nn.functional.cross_entropy(output.flatten(0, 1), words.flatten()),
    )


def run(stream: Stream, rank: int, layers: tuple[int, ...], recompute: str) -> Rehearsed:
    parts = {s: part(s, stream.stages, layers[s], recompute) for _, s in stream.held_by(rank)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rehearse(stream, rank, parts, steps=0)


@cache
def calibrated(recompute: str) -> StageBytes:
    """The one measurement: a stage of one layer, between others."""
    return run(loads(pipesched.emit("zb_h1", p=4, m=4)), 1, (1,) * 4, recompute).stages[1]


def expected(stage: int, stages: int, layers: int, recompute: str) -> StageBytes:
    """That layer so many times, with the ends of the model."""
    made = calibrated(recompute).with_layers(layers)
    if stage == 0:  # nothing is split where no input has a gradient: I keeps what there is, and W is B
        kept = {**made.kept, "I": made.kept["F"] + UNIT}
        made = replace(made, entering=0, kept=kept, most={**made.most, "I": kept["I"], "W": made.most["B"]})
    if stage == stages - 1:  # the norm's output, the softmax of the logits, and after I the gradient of these
        logits = ROWS * TOKENS * WORDS * 4
        more = {"F": UNIT + logits, "R": UNIT + logits, "I": UNIT + 2 * logits}
        kept = {key: size + more.get(key, 0) for key, size in made.kept.items()}
        most = {key: max(size, kept["F"] + 2 * logits) for key, size in made.most.items()}
        most |= {key: made.most[key] + more["I"] for key in ("I", "W")}
        made = replace(made, leaving=0, kept=kept, most=most)
    return made


EVEN, UNEVEN, CUT = (2, 2, 2, 2), (1, 2, 2, 3), (1,) * 8
SCHEDULES = (
    ("1f1b", EVEN),
    ("zb_h1", EVEN),
    ("interleaved", CUT),
    ("zb_v", CUT),
    ("1f1b", UNEVEN),
    ("zb_h1", UNEVEN),
)
QUICK = {("1f1b", UNEVEN, "none"), ("zb_h1", EVEN, "none"), ("zb_v", CUT, "selective"), ("1f1b", UNEVEN, "full")}
CASES = [(name, layout, how) for how in ("none", "selective", "full") for name, layout in SCHEDULES]


@pytest.mark.parametrize(("name", "layout", "recompute"), CASES)
def test_one_measured_layer_predicts_every_rank(
    name: str, layout: tuple[int, ...], recompute: str, request: pytest.FixtureRequest
) -> None:
    """Within 10 % of what is counted as its list runs, on every rank; of all 72 the worst is 4.3 % off, most none."""
    if (name, layout, recompute) not in QUICK and request.config.getoption("--depth") < 2:
        pytest.skip("--depth 2")
    stream = loads(pipesched.emit(name, p=4, m=4))
    for rank in range(4):
        found = run(stream, rank, layout, recompute)
        stages = {s: expected(s, stream.stages, layout[s], recompute) for _, s in stream.held_by(rank)}
        share = predicted(stream, rank, stages) / found.peak
        print(f"{name:12} {recompute:10} {layout!s:14} rank {rank} {found.peak / UNIT:7.1f} {100 * (share - 1):+.1f} %")
        assert share == pytest.approx(1, abs=0.1), rank
        assert found.predicted == pytest.approx(found.peak, rel=0.02), rank
