"""The predicted bytes are those that torch needs when the executor runs a transformer's instructions on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

import pipesched
from pipesched.planning.footprint import CHANGING, footprint
from pipesched.planning.transformer.config import Training, Transformer
from pipesched.planning.workload import Workload
from pipesched.runtime.execute.rehearsal import Part, rehearse
from pipesched.schedule_analysis import Analysis
from pipesched.stream import loads
from tests.depth import some

H, A, S, B, V, LAYERS = 64, 4, 64, 2, 1024, 8
GPT = Transformer(layers=LAYERS, hidden=H, heads=A, vocabulary=V, sequence=S, dtype="fp32", dropout=False)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Run torch with one thread, for small tensors on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Layer(nn.Module):
    """A layer of a GPT, which recomputes none of its forward, its attention, or all of it."""

    def __init__(self, how: Training) -> None:
        super().__init__()
        self.how = how
        self.norms = nn.ModuleList([nn.LayerNorm(H), nn.LayerNorm(H)])
        self.qkv, self.out = nn.Linear(H, 3 * H), nn.Linear(H, H)
        self.up, self.down = nn.Linear(H, 4 * H), nn.Linear(4 * H, H)

    def forward(self, x: Tensor) -> Tensor:
        again = self.how.recompute == "full"
        made: Tensor = checkpoint(self.run, x, use_reentrant=False) if again else self.run(x)
        return made

    def run(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norms[0](x)).view(B, S, 3, A, H // A).permute(2, 0, 3, 1, 4)
        again = self.how.recompute == "selective"
        seen = checkpoint(self.attend, *parts, use_reentrant=False) if again else self.attend(*parts)
        x = x + self.out(seen.transpose(1, 2).reshape(B, S, H))
        return x + self.down(gelu(self.up(self.norms[1](x))))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        flash = self.how.attention == "flash"
        return scaled_dot_product_attention(q, k, v) if flash else (q @ k.transpose(2, 3)).softmax(-1) @ v


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(V, H), nn.Embedding(S, H)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.words(tokens) + self.positions(torch.arange(S))  # type: ignore[no-any-return]


def part(stage: int, how: Training) -> Part:
    """Return the modules of a stage; the last one keeps its output until its backward, as torch's pipelining does."""
    assert how.layout is not None
    layers: list[nn.Module] = [Layer(how) for _ in range(how.layout[stage])]
    if stage == len(how.layout) - 1:
        layers += [nn.LayerNorm(H), nn.Linear(H, V, bias=False)]
    module = nn.Sequential(*([Embedding()] if stage == 0 else []), *layers)
    words = torch.randint(V, (B, S))

    def loss(output: Tensor) -> Tensor:
        found = cross_entropy(output.flatten(0, 1), words.flatten())
        if found.requires_grad:
            found.register_hook(lambda _, kept=output: None)
        return found

    return Part(module, (words if stage == 0 else torch.randn(B, S, H),), loss)


ONE, TWO = (1, 2, 2, 3), (1,) * 8


@pytest.mark.parametrize(
    ("name", "sizes", "layout", "recompute", "attention"),
    some(
        [
            ("1f1b", {"p": 4, "m": 6}, ONE, "none", "flash"),
            ("1f1b", {"p": 4, "m": 6}, ONE, "full", "flash"),
            ("1f1b", {"p": 4, "m": 6}, ONE, "none", "standard"),
            ("1f1b", {"p": 4, "m": 6}, ONE, "selective", "standard"),
            ("zb_h1", {"p": 4, "m": 6}, ONE, "none", "flash"),
            ("zb_h1", {"p": 4, "m": 6}, ONE, "none", "standard"),
            ("zb_h1", {"p": 4, "m": 6}, ONE, "selective", "standard"),
            ("interleaved", {"p": 4, "v": 2, "m": 4}, TWO, "none", "flash"),
            ("zb_v", {"p": 4, "m": 6}, TWO, "none", "flash"),
        ],
        3,
        usual=5,
    ),
)
def test_a_prediction_from_a_model_file_is_what_torch_needs(
    name: str, sizes: dict[str, Any], layout: tuple[int, ...], recompute: str, attention: str
) -> None:
    """The prediction is within 3 % on every rank, also for an uneven layout, without calibration; parameters are exact.
    The ratio of vocabulary to layer is that of Llama 3 70B.
    """
    how = Training(microbatch=B, layout=layout, recompute=recompute, attention=attention, keep_outputs=True)
    used = Analysis(pipesched.load(name, **sizes), owned=(Workload((GPT, how)),)).fact(footprint)
    assert used is not None
    stream = loads(pipesched.emit(name, **sizes))
    for rank, peak in enumerate(used.peaks):
        parts = {stage: part(stage, how) for _, stage in stream.held_by(rank)}
        weights = sum(4 * w.numel() for one in parts.values() for w in one.module.parameters())
        assert peak["parameters"] == weights
        found = rehearse(stream, rank, parts, steps=1)
        said = sum(peak[kind] for kind in CHANGING)
        assert said == pytest.approx(found.peak, rel=0.03), rank
