"""Parameters, activations and model states equal the tables in the literature, which are copied here from the
papers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as Q

import pytest

from pipesched.planning.transformer import activations, parameters
from pipesched.planning.transformer.config import Experts, Training, Transformer
from pipesched.planning.transformer.model_file import built_in, read
from pipesched.planning.transformer.rules import layers_of
from pipesched.planning.transformer.state import state

MEGATRON = {  # Narayanan et al., SC 2021, table 1; the first two are printed as 1.7 and 3.6
    "1.7b": "1.652",
    "3.6b": "3.562",
    "7.5b": "7.5",
    "18.4b": "18.4",
    "39.1b": "39.1",
    "76.1b": "76.1",
    "145.6b": "145.6",
    "310.1b": "310.1",
    "529.6b": "529.6",
    "1008b": "1008.0",
}


@pytest.mark.parametrize(("name", "printed"), MEGATRON.items())
def test_the_ten_rows_of_megatron_have_their_parameters(name: str, printed: str) -> None:
    """By equation 2 of the paper, and counted matrix by matrix, which has 2 h more for the last norm."""
    model, _ = read(f"megatron-{name}")
    layers, h = model.layers, Q(model.hidden)
    by_equation = 12 * layers * h**2 * (1 + 13 / (12 * h) + (model.vocabulary + model.sequence) / (12 * layers * h))
    digits = len(printed.partition(".")[2])
    assert f"{float(by_equation) / 1e9:.{digits}f}" == printed
    assert parameters.total(model) == by_equation + 2 * model.hidden


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [("llama3-70b", 70.6, 70.6), ("llama3-405b", 405.9, 405.9), ("deepseek-v3", 671.0, 37.6)],
)
def test_models_have_the_parameters_that_their_owners_publish(name: str, billions: float, active: float) -> None:
    """Llama 3's files have 70.6 and 405.9 billion parameters; DeepSeek-V3 has 671 and 37, where the embedding counts as
    active here."""
    model, _ = read(name)
    assert parameters.total(model) / 1e9 == pytest.approx(billions, abs=0.06)
    assert parameters.active(model) / 1e9 == pytest.approx(active, abs=0.06)


def test_the_layer_that_deepseek_v3_is_without_is_as_large_as_is_said() -> None:
    """One more layer with experts has 11.5 billion parameters, by README_WEIGHTS.md of the model."""
    model, _ = read("deepseek-v3")
    assert sum(part.count for part in parameters.layer(model, Training(), 60)) / 1e9 == pytest.approx(11.5, abs=0.05)


def test_every_model_that_ships_is_whole() -> None:
    """Fourteen, each with a batch that is divisible by its copies."""
    assert len(built_in()) == 14
    for name in built_in():
        assert read(name)[1].microbatches


def korthikanti(s: int, b: int, h: int, a: int, t: int) -> dict[tuple[str, bool, str], Q]:
    """Return the korthikanti et al. 2022, table 2, with or without tensor parallelism, sequence parallelism,
    recomputation."""
    scores = Q(5 * a * s, h)
    return {
        ("alone", False, "none"): s * b * h * (34 + scores),
        ("tensor", False, "none"): s * b * h * (10 + Q(24, t) + scores / t),
        ("tensor", True, "none"): s * b * h * (34 + scores) / t,
        ("tensor", False, "selective"): s * b * h * (10 + Q(24, t)),
        ("tensor", True, "selective"): Q(s * b * h * 34, t),
        ("tensor", False, "full"): Q(s * b * h * 2),
    }


@pytest.mark.parametrize(
    ("hidden", "heads", "micro"), [(6144, 64, 4), (12288, 96, 1), (20480, 128, 1), (25600, 160, 1)]
)
def test_a_layer_keeps_what_the_table_says(hidden: int, heads: int, micro: int) -> None:
    """The bytes are exact for the four models of the paper; flash attention omits the scores."""
    model = Transformer(layers=2, hidden=hidden, heads=heads, vocabulary=51200, sequence=2048)
    for (ranks, sequence, recompute), expected in korthikanti(2048, micro, hidden, heads, 8).items():
        t = 8 if ranks == "tensor" else 1
        way = Training(
            microbatch=micro, tensor=t, sequence_parallel=sequence, recompute=recompute, attention="standard"
        )
        assert activations.layer(model, way, 0) == expected
        if recompute == "selective":
            assert activations.layer(model, replace(way, recompute="none", attention="flash"), 0) == expected


@pytest.mark.parametrize(("expert", "on_rank"), [(1, 4), (2, 1)])
def test_experts_that_t_splits_have_every_token_on_every_rank(expert: int, on_rank: int) -> None:
    """In Megatron-core without expert parallelism, a rank has a part of every expert, so all tokens come to it, k times
    each; their inside is a t-th in both cases.
    """
    t, k, h, inner, n = 4, 2, 64, 48, 32
    model = Transformer(2, h, 8, 100, n, experts=Experts(8, k, inner), dropout=False)
    way = Training(tensor=t, data=2, expert=expert)
    dense = [one for one in activations.items(model, way, 0) if "experts" not in one.name]
    found = activations.layer(model, way, 0) - sum(one.bytes for one in dense)
    assert found == 2 * 2 * k * h * Q(n * on_rank, t) + 2 * 2 * k * inner * Q(n, t)
    left = activations.stored(model, way, 0) - activations.stored(replace(model, experts=Experts(8, 1, 24)), way, 0)
    assert left == 2 * h * Q(n * on_rank, t) + 2 * (2 * 48 - 24) * Q(n, t)


def test_the_ends_keep_what_the_paper_says() -> None:
    """Section 4.3 gives s b h for the dropout of the embedding, and 4 s b h / t (1 + V / h) for the head."""
    model = Transformer(layers=4, hidden=1024, heads=16, vocabulary=32000, sequence=512)
    way = Training(microbatch=3, tensor=4, sequence_parallel=True)
    first, middle, last = activations.by_stage(replace(model, layers=3), way, 3)
    sbh = Q(512 * 3 * 1024)
    assert first.saved - middle.saved == sbh / 4
    assert last.saved - middle.saved == 4 * sbh / 4 * (1 + Q(32000, 1024))
    assert middle.input == last.input == 2 * sbh / 4 and first.input == 0


@pytest.mark.parametrize(("zero", "bytes_each"), [(0, "12"), (1, "5"), (2, "3.25"), (3, "1.5")])
def test_zero_divides_states(zero: int, bytes_each: str) -> None:
    """In Rajbhandari et al., 12 bytes per parameter on 8 GPUs of 80 GB allow 6.67, 16, 24.6 and 53.3 billion
    parameters."""
    model = Transformer(layers=1, hidden=64, heads=4, vocabulary=100, sequence=8)
    way = Training(data=8, zero=zero, optimizer_bytes=Q(8), gradient_bytes=Q(2))
    held = state(model, way, [parameters.Part("all", 10**9, Q(10**9))]).total / 10**9
    assert held == Q(bytes_each)
    assert f"{float(80 / held):.3g}" == ("6.67", "16", "24.6", "53.3")[zero]


def test_a_layout_gives_each_stage_its_own() -> None:
    """In the layout [1, 2, 2, 3] bytes and parameters are proportional to the layers, except at the ends."""
    model = Transformer(layers=8, hidden=64, heads=4, vocabulary=128, sequence=16)
    way = Training(layout=(1, 2, 2, 3))
    assert layers_of(model, way, 4) == (range(1), range(1, 3), range(3, 5), range(5, 8))
    kept = [stage.saved for stage in activations.by_stage(model, way, 4)]
    one, sbh = activations.layer(model, way, 0), 16 * 64
    assert kept == [one + sbh, 2 * one, 2 * one, 3 * one + 4 * sbh * 3]
    held = [parameters.on_rank(parts) for parts in parameters.by_stage(model, way, 4)]
    assert held[1] == held[2] == 2 * (12 * 64**2 + 13 * 64)


def test_what_does_not_divide_leaves_the_ends_less() -> None:
    """126 layers on 16 stages, as in Llama 3 405B, leave one less on the first and the last stage."""
    model, way = read("llama3-405b")
    assert [len(layers) for layers in layers_of(model, way, 16)] == [7, *[8] * 14, 7]
