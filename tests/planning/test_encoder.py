"""For models with an encoder and a decoder, FLOPs equal torch's own count, and stages and their messages add up.

A layer of the encoder is one of a decoder-only model with the encoder's tokens. A layer of the decoder is counted by
torch on a real module.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as Q
from pathlib import Path

import pytest

import pipesched
from pipesched.diagnostics import PipeschedError
from pipesched.planning.transformer import activations, flops, parameters, shapes, traffic
from pipesched.planning.transformer.config import Encoder, Training, Transformer
from pipesched.planning.transformer.devices import DEVICES
from pipesched.planning.transformer.model_file import of_source
from pipesched.planning.transformer.rules import layers_of
from pipesched.support.source import Source

PLAIN = Transformer(12, 256, 8, 1000, 96, relu=True)
BOTH = replace(PLAIN, encoder=Encoder(8, 160))
ALONE = replace(PLAIN, sequence=160)
WAY = Training(microbatch=2, tensor=2, attention="standard")
TEXT = """\
[model]
layers = 12
hidden = 256
heads = 8
vocabulary = 1000
sequence = 96
relu = true
[model.encoder]
layers = 8
sequence = 160
[training]
microbatch = 2
"""


def test_a_layer_of_the_encoder_is_one_of_a_model_with_its_tokens() -> None:
    """Bytes, FLOPs, times and messages of the first layers equal the figures of a model with only these layers."""
    on = shapes.machine(DEVICES["a100"], "megatron")
    assert on is not None and BOTH.at(7) == replace(ALONE, layers=8)
    assert activations.layer(BOTH, WAY, 7) == activations.layer(ALONE, WAY, 7)
    assert activations.stored(BOTH, WAY, 7) == activations.stored(ALONE, WAY, 7)
    assert flops.products_of(BOTH, WAY, 0) == flops.products_of(ALONE, WAY, 0)
    assert traffic.forward(BOTH, WAY, 0) == traffic.forward(ALONE, WAY, 0)
    stages = [shapes.stage(a, WAY, on, range(2, 4), first=False, last=False) for a in (BOTH, ALONE)]
    assert stages[0] == stages[1]


def test_torch_counts_as_many_flops_in_a_layer_of_the_decoder() -> None:
    """The forward of a decoder layer, by torch's counter of products: q, k and v of both attentions, and the rest."""
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    layer = torch.nn.TransformerDecoderLayer(256, 8, 1024, batch_first=True, norm_first=True)
    with FlopCounterMode(display=False) as counted:
        layer(torch.randn(2, 96, 256), torch.randn(2, 160, 256))
    mine = replace(WAY, tensor=1)
    assert counted.get_total_flops() == flops.products_of(BOTH, mine, 8) + flops.attention(BOTH.at(8), mine)
    assert sum(one.numel() for one in layer.parameters()) == sum(part.count for part in parameters.layer(BOTH, mine, 8))


@pytest.mark.parametrize("stages", [1, 2, 3, 6, 12])
def test_stages_share_the_whole(stages: int) -> None:
    """FLOPs and parameters add up to the model's on any number of stages, but for copies of the embedding: on the
    decoder's first stage and, tied, on the last one. No stage has layers of both.
    """
    for tied in (False, True):
        a = replace(BOTH, tied=tied)
        assert sum(one.forward for one in flops.by_stage(a, WAY, stages)) == flops.by_stage(a, WAY, 1)[0].forward
        held = sum(part.count for parts in parameters.by_stage(a, WAY, stages) for part in parts)
        copies = 0 if stages == 1 else 2 if tied and stages > 3 else 1
        assert held == parameters.total(a) + copies * a.vocabulary * a.hidden
        placed = layers_of(a, WAY, stages)
        assert [*range(12)] == [layer for layers in placed for layer in layers] and all(placed)
        assert stages == 1 or all(len({layer < 8 for layer in layers}) == 1 for layers in placed)


def test_every_stage_of_the_decoder_passes_on_what_the_encoder_made() -> None:
    """Messages: the encoder's output up to the decoder, then that and the decoder's own; kept once by each stage."""
    x, entry = Training(microbatch=2), 2 * 256 * 2
    assert activations.boundary(BOTH.at(0), x) == 160 * entry
    assert activations.boundary(BOTH.at(8), x) == (160 + 96) * entry
    stages = activations.by_stage(BOTH, x, 6)
    layers = [len(layers) for layers in layers_of(BOTH, x, 6)]
    assert layers == [2] * 6
    assert stages[2].saved == 2 * activations.layer(BOTH, x, 2)
    assert stages[3].saved - stages[2].saved == 160 * entry  # the input of the encoder's last norm
    embedded = 2 * 96 * 256  # the mask of the dropout of the decoder's embedding, a byte each
    assert stages[4].saved == 2 * activations.layer(BOTH, x, 8) + 160 * entry + embedded


def test_a_slower_link_makes_the_decoders_messages_dear() -> None:
    """C of a stage is of what it sends: behind the encoder 256 tokens instead of 160, at the link's rate."""
    (a, x), on = of_source(Source("t5.toml", TEXT)), shapes.machine(DEVICES["a100"], "megatron")
    assert on is not None
    there, behind = (shapes.message(a.at(layer), x, on, Q(10**9)) - on.latency for layer in (0, 8))
    assert Q(behind, there) == pytest.approx(256 / 160, rel=1e-6)


def test_a_plan_runs_its_stages(tmp_path: Path) -> None:
    """`verify` counts bytes of an encoder's pipeline, and `plan` finds layouts without an error bar."""
    file = tmp_path / "t5.toml"
    file.write_text(TEXT, "utf-8")
    found = pipesched.verify(pipesched.load("1f1b", p=3, m=4), model=str(file), device="h100")
    assert found.ok
    made = pipesched.plan(model=str(file), gpus=4, device="h100", batch=8, only=["b=1,zero=0,1"])
    assert made.best is not None and "no error bar" in str(made) and "160 + 96 tokens" in str(made)


def stages_of(text: str) -> list[int]:
    """Return the layers of each stage of the layout of a file."""
    a, x = of_source(Source("t5.toml", text))
    return [len(layers) for layers in layers_of(a, x, len(x.layout or (0,)))]


WRONG = [
    ("layers = 8", "layers = 12", "PS234"),
    ("[training]", "[model.experts]\ncount = 4\nper_token = 2\nsize = 64\n[training]", "PS234"),
    ("microbatch = 2", "context = 2", "PS236"),
    ("microbatch = 2", 'recompute = "operations"', "PS236"),
    ("sequence = 160\n[training]", "sequence = 161\n[training]\nsequence_parallel = true\ntensor = 2", "PS236"),
    ("microbatch = 2", "layout = [3, 3, 3, 3]", "PS235"),
    ("layers = 8", "layer = 8", "PS231"),
]


@pytest.mark.parametrize(("old", "new", "code"), WRONG)
def test_what_does_not_go_together_is_refused(old: str, new: str, code: str) -> None:
    """With its code and at its place: no decoder, experts, context parallelism, a stage with layers of both."""
    assert TEXT.count(old) == 1
    with pytest.raises(PipeschedError) as raised:
        stages_of(TEXT.replace(old, new))
    found = raised.value.diagnostics[0]
    assert found.code.value == code and found.labels[0].span


def test_a_layout_has_its_border_between_stages() -> None:
    """[4, 4, 2, 2] ends the encoder's 8 layers with a stage."""
    assert stages_of(TEXT.replace("microbatch = 2", "layout = [4, 4, 2, 2]")) == [4, 4, 2, 2]
