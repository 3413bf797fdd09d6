"""For LoRA models, trained parameters equal published numbers, FLOPs equal torch's own count, and frozen parameters
have the right states."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction as Q
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.diagnostics import PipeschedError
from pipesched.planning.transformer import adapters, flops, parameters, shapes, state
from pipesched.planning.transformer.config import ADAPTED, Experts, Training, Transformer
from pipesched.planning.transformer.devices import DEVICES
from pipesched.planning.transformer.model_file import read
from pipesched.planning.transformer.rules import faults
from tests.planning.test_torch_layers import LLAMA, RANK, SEQUENCES, TOKENS, adapted

PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "hugging_face.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("name", "way", "count"),
    [
        ("meta-llama/Llama-2-7b-hf", "lora=8,lora_on=qv", 4_194_304),
        ("meta-llama/Llama-2-7b-hf", "lora=16,lora_on=attention", 16_777_216),
        ("meta-llama/Llama-2-7b-hf", "lora=64", 159_907_840),
        ("google/flan-t5-xxl", "lora=16,lora_on=qv", 18_874_368),
    ],
)
def test_trained_parameters_are_the_published_count(
    name: str, way: str, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `peft` prints them: alpaca-lora (r = 8 and 16), QLoRA on all linear layers (r = 64), and flan-t5-xxl's card
    (r = 16).
    """
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED[name]["config"]), "utf-8")
    model = f"{tmp_path / 'config.json'},{way}"
    assert parameters.trained(*read(model)) == count
    assert main(["plan", "--model", model, "--explain-model"]) == 0
    assert f"trained, with LoRA of rank {way[5:].split(',')[0]}: {count:,}" in capsys.readouterr().out


@pytest.mark.parametrize("on", ADAPTED)
def test_torch_counts_as_many_flops(on: str) -> None:
    """Products of a forward and a backward, attention's apart: F and I of all matrices, W of the adapters alone."""
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    layer, x = adapted(on), torch.randn(SEQUENCES, TOKENS, LLAMA.hidden, requires_grad=True)
    with FlopCounterMode(display=False) as counted:
        layer(x).sum().backward()
    by = counted.get_flop_counts()["Global"]
    found = sum(number for name, number in by.items() if "attention" not in str(name) and "bmm" not in str(name))
    way = Training(microbatch=SEQUENCES, lora=RANK, lora_on=on)
    beside = adapters.flops(LLAMA, way, 0)
    assert found == 2 * flops.products_of(LLAMA, way, 0) + 3 * beside
    (one,) = flops.by_stage(replace(LLAMA, layers=1), way, 1)
    assert one.weights == beside


@pytest.mark.parametrize("zero", range(4))
def test_only_adapters_have_gradients_and_optimizer(zero: int) -> None:
    """2 bytes of each parameter, and 18 of each trained one in all; ZeRO 1 and 2 divide nothing of a frozen one."""
    way = Training(data=4, zero=zero, lora=4, lora_on="qv")
    (parts,) = parameters.by_stage(LLAMA, way, 1)
    held, trained, whole = state.state(LLAMA, way, parts), parameters.trained(LLAMA, way), parameters.total(LLAMA)
    assert held.parameters == 2 * Q(whole + trained, 4 if zero == 3 else 1)
    assert held.gradients == 4 * Q(trained, 4 if zero >= 2 else 1)
    assert held.optimizer == 12 * Q(trained, 4 if zero else 1)


def test_tensor_parallelism_splits_one_of_two() -> None:
    """B of q, k, v and of what enters the feed-forward part, A of the projections; the others are on every rank."""
    way, t, h, f = Training(lora=8), 2, LLAMA.hidden, LLAMA.feed_forward
    keys = LLAMA.kv_heads * LLAMA.head_size
    whole, shared = adapters.count(LLAMA, way, 0), adapters.count(LLAMA, replace(way, tensor=t), 0)
    split = 8 * (h + 2 * keys + h + 3 * f)
    assert whole == split + 8 * (h * 7) and shared == Q(split, t) + 8 * (h * 7)


def test_a_frozen_matrix_has_no_w() -> None:
    """W is of thin products only; I takes as long, and the adapters' part more, which memory bounds."""
    on = shapes.machine(DEVICES["h100"], "megatron")
    assert on is not None
    a, x = read("llama3-70b")
    whole, frozen = (
        shapes.stage(a, replace(x, lora=rank), on, range(4, 8), first=False, last=False) for rank in (0, 16)
    )
    assert 0 < frozen.weights < whole.weights / 3 and whole.input < frozen.input < 1.4 * whole.input


def test_a_plan_says_that_it_has_no_error_bar() -> None:
    """Less memory and time than of all parameters; no trainer's configuration has adapters."""
    given = {"gpus": 8, "device": "h100", "batch": 16, "only": ["p=2,t=2,c=1,b=1,schedule=1f1b,zero=1,recompute=none"]}
    whole, lora = (pipesched.plan(model=f"llama3-70b,layers=8{more}", **given) for more in ("", ",lora=16"))
    assert whole.best is not None and lora.best is not None
    assert lora.best.nanoseconds < whole.best.nanoseconds and lora.best.peak < whole.best.peak / 2, (
        lora.best.peak,
        whole.best.peak,
    )
    assert "no published run of LoRA" in str(lora) and "LoRA" not in str(whole)
    refused = pipesched.plan(model="llama3-70b,layers=8,lora=16", trainer="megatron==0.16", **given)
    assert refused.best is None and any("LoRA" in reason for reason in refused.refused)


def test_adapters_of_experts_are_refused() -> None:
    """The refusal is by name, at the key; adapters of attention are counted."""
    a = Transformer(2, 64, 4, 100, 32, experts=Experts(4, 2, 64))
    assert [one.code.value for one in faults(a, Training(lora=4))] == ["PS236"]
    assert not [*faults(a, Training(lora=4, lora_on="qv"))]
    with pytest.raises(PipeschedError, match="lora_on"):
        read("llama3-70b,lora_on=some")
