"""For a ``config.json`` of Hugging Face, the number of parameters equals the published number exactly.

tests/data/hugging_face.json has the sizes of 36 models of 21 families with the counts that papers and model cards
print; nothing of it was computed here.
"""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from pipesched.__main__ import main
from pipesched.diagnostics import PipeschedError
from pipesched.planning.transformer import activations, flops, parameters
from pipesched.planning.transformer.config import Trained
from pipesched.planning.transformer.model_file import read

PUBLISHED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "hugging_face.json").read_text("utf-8")
)


def of(config: object, folder: Path, more: str = "") -> Trained:
    (folder / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
    return read(f"{folder / 'config.json'}{more}")


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_count(name: str, tmp_path: Path) -> None:
    """Every parameter of every published model is counted, once."""
    model, training = of(PUBLISHED[name]["config"], tmp_path)
    assert parameters.total(model) == PUBLISHED[name]["parameters"]
    assert training.tensor == 1 and model.name == tmp_path.name
    stages = parameters.by_stage(model, training, 2)
    twice = model.vocabulary * model.hidden if model.tied or model.encoder else 0
    assert sum(part.count for stage in stages for part in stage) == parameters.total(model) + twice


def refused(config: object, folder: Path) -> str:
    """Return the code of a configuration's first finding, empty if it is read."""
    try:
        of(config, folder)
    except PipeschedError as error:
        return error.diagnostics[0].code.value
    return ""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_key_that_is_missing_or_wrong_has_a_code(name: str, tmp_path: Path) -> None:
    """Each key in turn is left out, and is null, a text, a list, 0 or negative: it is read, or a finding has a code."""
    config, wrong = PUBLISHED[name]["config"], cycle((None, "many", [], 0, -1))
    for key in config:
        for made in ({other: x for other, x in config.items() if other != key}, {**config, key: next(wrong)}):
            assert refused(made, tmp_path) in ("", "PS232", "PS233", "PS234", "PS236", "PS251")


def test_a_folder_is_its_configuration_and_sizes_stand_beside_it(tmp_path: Path) -> None:
    """``folder,sequence=64`` reads its config.json, and gives what that lacks."""
    lacks = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    of(lacks, tmp_path, ",sequence=64")
    assert read(f"{tmp_path},sequence=64")[0].sequence == 64
    with pytest.raises(PipeschedError, match="max_position_embeddings") as raised:
        read(str(tmp_path))
    assert "sequence=" in str(raised.value.diagnostics[0].help)


def test_published_models_are_of_many_kinds() -> None:
    """At least 20 models; dense, experts, shared experts, tied, biased, gated, latent attention, one head of keys."""
    configs = [row["config"] for row in PUBLISHED.values()]
    assert len(configs) >= 20 and len({config["model_type"] for config in configs}) >= 15
    assert all(row["source"] for row in PUBLISHED.values())


def test_it_is_the_model_that_a_file_describes(tmp_path: Path) -> None:
    """Llama 3 70B by config.json, and by the file that ships, have equal FLOPs and bytes of every stage."""
    own, training = read("llama3-70b,tensor=4,batch=64")
    model, other = of(PUBLISHED["meta-llama/Meta-Llama-3-70B"]["config"], tmp_path)
    assert (own.sequence, own.dtype, other.tensor) == (model.sequence, model.dtype, 1)
    assert flops.by_stage(own, training, 8) == flops.by_stage(model, training, 8)
    assert activations.by_stage(own, training, 8) == activations.by_stage(model, training, 8)
    assert parameters.total(own) == parameters.total(model)


def test_sizes_can_be_changed_beside_its_name(tmp_path: Path) -> None:
    """``config.json,sequence=4096,tensor=2`` sets a size of the model and one of its training."""
    model, training = of(PUBLISHED["meta-llama/Llama-3.1-405B"]["config"], tmp_path, ",sequence=4096,tensor=2,layers=4")
    assert (model.sequence, model.layers, training.tensor) == (4096, 4, 2)


LLAMA = PUBLISHED["meta-llama/Meta-Llama-3-8B"]["config"]
T5 = PUBLISHED["google-t5/t5-small"]["config"]
QWEN = PUBLISHED["Qwen/Qwen3-30B-A3B"]["config"]


@pytest.mark.parametrize(
    ("config", "code", "said"),
    [
        ({"model_type": "bart"}, "PS251", "differs from T5"),
        ({**T5, "num_decoder_layers": "2"}, "PS233", "layers"),
        ({**T5, "num_decoder_layers": 0}, "PS234", "decoder"),
        ({**T5, "num_layers": 0}, "PS233", "layers"),
        ({"model_type": "jamba"}, "PS251", "not attention"),
        ({"model_type": "qwen2_vl"}, "PS251", "images"),
        ({"model_type": "lama"}, "PS251", "llama"),
        ({}, "PS251", "unknown family"),
        ({**LLAMA, "is_encoder_decoder": True}, "PS251", "an encoder and a decoder"),
        ({**LLAMA, "vision_config": {}}, "PS251", "images"),
        ({**QWEN, "decoder_sparse_step": 2}, "PS251", "some layers"),
        ({**QWEN, "mlp_only_layers": [0]}, "PS251", "some layers"),
        ({key: x for key, x in LLAMA.items() if key != "vocab_size"}, "PS232", "vocab_size"),
        ({key: x for key, x in QWEN.items() if key != "num_experts"}, "PS232", "num_experts"),
        ({**LLAMA, "hidden_size": "4096"}, "PS233", "hidden"),
        ({**LLAMA, "num_attention_heads": 0}, "PS233", "heads"),
        ({**LLAMA, "num_attention_heads": 7}, "PS234", "heads"),
    ],
)
def test_what_is_not_counted_is_refused_by_name(config: object, code: str, said: str, tmp_path: Path) -> None:
    """A model that would be counted wrongly has a finding that names what it has."""
    with pytest.raises(PipeschedError) as raised:
        of(config, tmp_path)
    found = raised.value.diagnostics[0]
    told = f"{found.message} {found.help} {[label.message for label in found.labels]}"
    assert found.code.value == code and said in told, told


@pytest.mark.parametrize("text", ["{", "{}}", '{"hidden_size": NaN', "[1]", '{"model_type": ["llama"]}', ""])
def test_what_is_no_json_has_a_code(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No text ends in a traceback."""
    (tmp_path / "config.json").write_text(text, "utf-8")
    assert main(["verify", "1f1b", "--model", str(tmp_path / "config.json")]) == 1
    assert "error[PS2" in capsys.readouterr().err


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan names the layers and settings of a configuration that it does not count."""
    of(PUBLISHED["mistralai/Mistral-7B-v0.1"]["config"], tmp_path)
    words = ["--gpus", "8", "--device", "h100", "--batch", "8", "--only", "p=2,t=4,c=1,b=1,recompute=none,zero=0"]
    model = f"{tmp_path / 'config.json'},sequence=2048"
    assert main(["plan", "--model", model, *words, "--verbose"]) == 0
    assert "sliding_window" in capsys.readouterr().out
