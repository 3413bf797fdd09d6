"""The text of a plan explains its letters, its model and its sweeps, and names what cannot be planned or timed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pipesched.__main__ import main

SMALL = ["--model", "megatron-1.7b", "--device", "a100", "--only", "t=1,c=1,b=2,recompute=none,zero=1,schedule=1f1b"]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["plan", *words]) == 0
    return capsys.readouterr().out


def test_the_table_explains_its_letters_and_has_flops(capsys: pytest.CaptureFixture[str]) -> None:
    """Every letter of a header is in the legend; TFLOP/s of a GPU is 6 P + 12 l h s a token, by tokens/s."""
    text = told(capsys, *SMALL, "--gpus", "8", "--batch", "64")
    legend = next(line for line in text.splitlines() if line.startswith("p pipeline"))
    header = next(line for line in text.splitlines() if " schedule " in line)
    letters = {word for word in header.partition("of a GPU")[0].split() if re.fullmatch("[a-z]", word)}
    assert letters <= {part.split()[0] for part in legend.split("  ")} and len(letters) >= 6
    assert "1.65 B parameters" in text or "1.66 B parameters" in text
    row = json.loads(told(capsys, *SMALL, "--gpus", "8", "--batch", "64", "--json"))
    layers, h, s, V = 24, 2304, 2048, 51200
    each = 3 * (layers * (24 * h**2 + 4 * s * h) + 2 * h * V)
    first = row["rows"][0]
    assert first["flops_per_gpu"] == pytest.approx(each * first["tokens_per_second"] / 8, rel=1e-9)
    assert row["parameters"] == layers * (12 * h**2 + 13 * h) + (V + s) * h + 2 * h


def test_a_model_is_explained_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a cluster: a layer of a GPT has 12 h^2 + 13 h parameters, 24 b s h^2 (1 + s/6h) FLOPs forward, and keeps
    s b h (34 + 5 a s / h) bytes.
    """
    found = json.loads(told(capsys, "--model", "gpt3-175b,attention=standard,tensor=1", "--explain-model", "--json"))
    h, s, heads, layers = 12288, 2048, 96, 96
    (layer,) = (part for part in found["parts"] if part["part"] == "layer")
    assert layer["number"] == layers and sum(layer["parameters"].values()) == 12 * h**2 + 13 * h
    assert sum(n * sum(p["parameters"].values()) for p in found["parts"] for n in [p["number"]]) == found["parameters"]
    (work,) = (part for part in found["flops"] if part["part"] == "layer")
    assert work["F"] == 24 * s * h**2 + 4 * s**2 * h and work["W"] == 24 * s * h**2
    assert work["I"] == 24 * s * h**2 + 8 * s**2 * h
    (kept,) = found["bytes"]
    assert sum(kept["kept"].values()) == s * h * (34 + 5 * heads * s / h)
    text = told(capsys, "--model", "deepseek-v3", "--explain-model")
    assert "layer with experts" in text and "x 58" in text and "active per token" in text
    assert main(["plan", "--explain-model"]) == 2


def test_a_sweep_is_the_first_rows_of_its_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weak scaling: each value has the plan of that many GPUs and the grown batch; the plot has a mark for each."""
    plot = tmp_path / "weak.svg"
    given = [*SMALL, "--gpus", "8", "--batch", "64", "--sweep", "gpus=8,16"]
    assert "weak scaling" in told(capsys, *given, "--plot", str(plot))
    drawn = plot.read_text("utf-8")
    assert drawn.startswith("<svg") and "tokens per second per GPU" in drawn
    plans = json.loads(told(capsys, *given, "--json"))["plans"]
    for made, (gpus, batch) in zip(plans, ((8, 64), (16, 128)), strict=True):
        alone = json.loads(told(capsys, *SMALL, "--gpus", str(gpus), "--batch", str(batch), "--json"))
        assert made["value"] == str(gpus) and made["plan"] == alone
    by_size = json.loads(told(capsys, *SMALL, "--gpus", "8", "--batch", "64", "--sweep", "b=1,4", "--json"))["plans"]
    assert [{row["b"] for row in made["plan"]["rows"]} for made in by_size] == [{1}, {4}]


def test_what_has_no_time_has_none_in_a_sweep_or_from_the_optimizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Experts are not predicted: a sweep and --optimize say why, and nothing is plotted."""
    sizes = {"layers": 8, "hidden": 1024, "heads": 16, "vocabulary": 32000, "sequence": 2048}
    experts = {"count": 8, "per_token": 2, "size": 1024}
    lines = ["[model]", *(f"{key} = {x}" for key, x in sizes.items()), "[model.experts]"]
    (tmp_path / "moe.toml").write_text("\n".join([*lines, *(f"{key} = {x}" for key, x in experts.items())]), "utf-8")
    words = ["--model", str(tmp_path / "moe.toml"), "--device", "h100", "--gpus", "8", "--batch", "32"]
    words += ["--only", "t=1,c=1,b=1,p=2,e=1,recompute=none,zero=1"]
    swept = told(capsys, *words, "--sweep", "gpus=8,16")
    assert "no times for models with experts" in swept and " s " not in swept.splitlines()[4]
    assert main(["plan", *words, "--sweep", "gpus=8,16", "--plot", str(tmp_path / "x.svg")]) == 2
    assert "nothing can be plotted" in capsys.readouterr().err
    assert "by the optimizer: no times for models with experts" in told(capsys, *words, "--optimize", "1")
    assert main(["plan", *words, "--plot", str(tmp_path / "x.svg")]) == 2
    assert "nothing can be plotted" in capsys.readouterr().err and not (tmp_path / "x.svg").exists()


@pytest.mark.nightly
def test_the_optimizer_orders_the_first_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """Each of the first rows with a pipeline has its own order, within half of the seconds and never slower."""
    words = [*SMALL, "--gpus", "8", "--batch", "64", "--only", "p=2,4,split=even", "--top", "2", "--optimize", "2"]
    rows = json.loads(told(capsys, *words, "--json"))["rows"]
    assert [row["p"] for row in rows] == [2, 4]
    for row in rows:
        assert 0.5 * row["optimized"]["before"] < row["optimized"]["makespan"] <= row["optimized"]["before"]
        assert row["optimized"]["before"] / 1000 <= row["seconds"]
    assert "row 2, by the optimizer" in told(capsys, *words)


def test_no_command_says_a_time_that_is_not_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    """Every verb that takes a model and a device refuses the times of experts with PS253, and takes a flat share of the
    peak; an explained plan has neither seconds nor per cent, nor has a command that would be refused.
    """
    of = ["--model", "deepseek-v3,batch=1024,data=64", "--device", "h100"]
    for verb in ("verify", "why", "show", "optimize"):
        assert main([verb, "1f1b", "--p", "4", "--m", "8", *of]) == 2, verb
        assert "PS253" in capsys.readouterr().err, verb
    for verb in ("compare", "diff"):
        main([verb, "1f1b", "zb_h1", "--p", "4", "--m", "8", *of])
        said = capsys.readouterr()
        assert "PS253" in said.out + said.err, verb
    assert main(["verify", "1f1b", "--p", "4", "--m", "8", *of, "--efficiency", "40%"]) == 0
    capsys.readouterr()
    only = ["--only", "t=1,c=1,b=1,p=2,4,e=8,zero=1,schedule=1f1b", "--mem-cap", "4TB", "--gpus", "64"]
    said = told(capsys, *of, *only, "--explain", "p=2")
    assert "predicted order" in said and not re.search(r"\d (m?s|days)\b|% (slower|faster)|--device|optimize", said)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--sweep", "gpus=8,x"], "PS247"),
        (["--batch", "60", "--sweep", "gpus=7"], "PS246"),
        (["--sweep", "q=1"], "PS247"),
        (["--sweep", "b=1,p=2"], "PS247"),
        (["--device", "h100"], "PS252"),
        (["--sweep", "b=1,2", "--config", "x.sh", "--trainer", "megatron"], "PS225"),
        (["--sweep", "b=1,2", "--optimize", "1"], "PS225"),
        (["--sweep", "schedule=1f1b", "--plot", "x.svg"], "PS225"),
        (["--sweep", "b=1,2", "-o", "x.html"], "PS225"),
        (["--plot", "x.png"], "PS225"),
    ],
)
def test_what_cannot_be_planned_has_a_code(words: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Values that are none, a batch that does not grow, and two kinds of devices are refused."""
    batch = [] if "--batch" in words else ["--batch", "64"]
    assert main(["plan", *SMALL, "--gpus", "8", *batch, *words]) == 2
    assert code in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("adapter = 16", "LoRA"),
        ("lora_rank = 16", "LoRA"),
        ("frozen_layers = 4", "frozen"),
        ("hsdp = 2", "training.replicas"),
        ("offload_optimizer = true", "host"),
        ("scatter_gather = true", "split over the tensor ranks"),
        ("layer_pattern = 'MMA'", "without attention"),
    ],
)
def test_what_is_not_planned_is_refused_by_name(
    line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key for what nothing counts is not only unknown: the help says what is assumed instead."""
    path = tmp_path / "mine.toml"
    path.write_text(
        f"[model]\nlayers = 4\nhidden = 64\nheads = 4\nvocabulary = 100\nsequence = 64\n[training]\n{line}\n", "utf-8"
    )
    assert main(["plan", "--model", str(path), "--explain-model"]) == 1
    assert "PS231" in (err := capsys.readouterr().err) and said in err
