"""A plan equals the result of trying every choice; bounds are valid, numbers match derivations by hand, and the
listed commands run."""

from __future__ import annotations

import json
import random
import re
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.compile import load, read
from pipesched.examine import Options
from pipesched.model.ops import Op
from pipesched.planning.executors import Here, executor
from pipesched.planning.layouts.prediction import Bound, Prediction, Refused, beyond, bound, predict
from pipesched.planning.layouts.schedules import ROWS
from pipesched.planning.layouts.search import Search, alike
from pipesched.planning.layouts.space import LAYOUT, Choice, Space, refuses
from pipesched.planning.layouts.stages import Problem
from pipesched.planning.transformer.config import Training, Transformer
from pipesched.planning.transformer.devices import DEVICES, Device
from pipesched.planning.transformer.model_file import read as read_model
from tests.depth import deep

SLOW = Device("slow", Fraction(10**12), Fraction(2 * 10**8), Fraction(2 * 10**9), Fraction(10**9), Fraction(10**9), 4)
SMALL = Transformer(6, 256, 8, 1000, 128, kv_heads=4)
MODEL = """[model]
layers = 6
hidden = 256
heads = 8
vocabulary = 1000
sequence = 128

[training]
batch = 16
"""
DEVICE = """[device]
flops = 1e12
memory = 4e7
node = 2e9
network = 1e9
host = 1e9
node_size = 4
"""


@pytest.fixture
def files(folder: Path) -> Path:
    (folder / "model.toml").write_text(MODEL)
    (folder / "device.toml").write_text(DEVICE)
    return folder


SMALL_PLAN = ["--model", "model.toml", "--gpus", "8", "--device", "device.toml", "--only", "c=1,b=1,2,split=even"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_knows_what_its_order_does_before_the_first_backward(row: Any) -> None:
    """The row gives the forwards of each chunk and the ranks of the stages as in the order of the file; it accepts the
    same sizes."""
    for p, m in ((1, 3), (2, 1), (2, 4), (3, 5), (4, 4), (4, 8), (5, 20)):
        for v in [row.chunks] if row.chunks else [2, 3]:
            sizes = {"p": p, "m": m, **({} if row.chunks else {"v": v})}
            if row.refuses(p, v, m):
                with pytest.raises(pipesched.PipeschedError, match="PS209"):
                    load(read(row.name), Options(sizes))
                continue
            made = load(read(row.name), Options(sizes)).schedule
            assert made.placement.rank_of[0].tolist() == [row.rank_of(stage, p) for stage in range(p * v)]
            assert made.op.tolist().count(Op.B) == (p * v * m if row.fused else 0)
            for rank, stages in enumerate(row.stages(p, v)):
                own = slice(made.start[rank], made.start[rank + 1])
                first = int(np.flatnonzero(made.op[own] != Op.F)[0])
                ran = made.stage[own][:first].tolist()
                assert tuple(ran.count(stage) for stage in stages) == row.before(p, v, m, rank)


@pytest.mark.parametrize(("layers", "p"), [(6, 2), (61, 16), (80, 8), (126, 16), (5, 7)])
def test_embedding_and_head_count_as_a_layer_each(layers: int, p: int) -> None:
    """With split=ends: layers and these two, dealt out evenly, more to the first stages, as in torchtitan; every choice
    has all layers, and no stage in between has none.
    """
    space = Space(replace(SMALL, layers=layers), Training(batch=64), p, 8, {"p": (p,), "zero": (0,), "b": (1,)})
    seen = set[str]()
    for choice in space:
        stages, layout = choice.cut
        if layout is not None:
            counts = list(map(len, np.array_split(np.arange(layers + 2), stages)))
            counts[0] -= 1
            counts[-1] -= 1
            assert list(layout) == counts and all(counts[1:-1])
            assert not refuses(space, choice) or stages > layers + 2
        seen.add(choice.split)
    assert "ends" in seen


def problem(gpus: int = 8, memory: float = 4e7, **only: tuple[Any, ...]) -> Problem:
    device = replace(SLOW, memory=Fraction(memory))
    return Problem(Space(SMALL, Training(batch=16), gpus, 4, only), device, device.memory)


def test_bounds_are_below_and_the_best_are_those_of_trying_all() -> None:
    """For every choice of a small cluster, time and bytes are at least the bounds; excluded choices do not fit; the
    ranking of the fastest, one per layout, equals the ranking by trying all choices.
    """
    few = replace(problem(gpus=4, b=(1,), c=(1,), zero=(0, 3), recompute=("none", "full")), overlap=Fraction(1, 2))
    for asked in (problem(b=(1, 2), c=(1, 2)), few):
        wide, found = replace(asked, cap=Fraction(10**15)), dict[tuple[Any, ...], tuple[int, int]]()
        chosen = list(asked.space)
        for choice in chosen if asked is few else random.Random(7).sample(chosen, min(len(chosen), deep(20))):
            least, exact = bound(asked, choice), predict(wide, choice) if _is_one(asked, choice) else None
            if exact is None:
                assert isinstance(least, Refused) and not least.over
                continue
            assert isinstance(exact, Prediction)
            free = bound(wide, choice)
            assert isinstance(free, Bound) and free.nanoseconds <= exact.nanoseconds and free.bytes <= exact.peak
            assert sum(vars(exact.terms).values()) == pytest.approx(float(exact.seconds), rel=1e-6)
            if isinstance(least, Refused):
                assert exact.peak > asked.cap
            if exact.peak <= asked.cap:
                layout, mine = tuple(choice[name] for name in LAYOUT), (alike(exact.nanoseconds), exact.peak)
                found[layout] = min(mine, found.get(layout, mine))
        if asked is few:
            best = Search(asked, Here()).best(5, apart=LAYOUT)
            assert best and [(alike(one.nanoseconds), one.peak) for one in best] == sorted(found.values())[:5]


def test_what_copies_send_is_walked_layer_by_layer() -> None:
    """After the last backward of each stage of a rank its layers' gradients are sent one after another; the time after
    the end of the list is the excess of the step.
    """
    dice = random.Random(3)
    for _ in range(200):
        end, free, slots, events = 0.0, 0.0, [], []
        for _ in range(dice.randint(1, 4)):
            begin, length, layers, sent = end + dice.random(), dice.random() * 3, dice.randint(1, 5), dice.random() * 4
            end = begin + length
            slots.append((end, length, layers, sent))
            events += [(begin + length * k / layers, sent / layers) for k in range(1, layers + 1)]
        for ready, sent in sorted(events):
            free = max(free, ready) + sent
        made = beyond((end - at, *rest) for at, *rest in slots)
        assert made == pytest.approx(free - end)


def _is_one(asked: Problem, choice: Choice) -> bool:
    made = bound(replace(asked, cap=Fraction(10**15)), choice)
    return isinstance(made, Bound)


@pytest.mark.nightly
def test_who_works_makes_no_difference() -> None:
    """This process, threads and other processes give the same plan to the byte."""
    given: dict[str, Any] = {
        "model": (SMALL, Training(batch=16)),
        "gpus": 8,
        "device": SLOW,
        "only": ["zero=1", "c=1", "b=1"],
    }
    here = pipesched.plan(**given).to_json()
    with ThreadPoolExecutor(2) as threads:
        assert pipesched.plan(**given, executor=threads).to_json() == here
    asked = problem(zero=(1,), c=(1,), b=(1,))
    with executor("processes:2") as processes:
        pooled = Search(asked, processes).best(3)
    assert [one.nanoseconds for one in pooled] == [one.nanoseconds for one in Search(asked, Here()).best(3)]


def test_the_commands_of_a_row_run_and_say_the_same(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command of every row exits with 0; `verify` counts the bytes of the plan, rank by rank, and its order takes
    the milliseconds of the plan without the reductions after it.
    """
    rows = []
    for only in "zero=0", "zero=2", "zero=3", "p=2,v=4,t=2,schedule=interleaved,split=ends":
        assert main(["plan", *SMALL_PLAN, "--only", only, "--top", "1", "--json"]) == 0
        rows += json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 4 and "layout=E|(t|)*6L" in rows[3]["commands"]["verify"]
    for row in rows:
        for verb, command in row["commands"].items():
            words = shlex.split(command)
            assert words[:2] == ["pipesched", verb]
            if verb == "optimize" and row["v"] > 2:  # takes ten seconds and more
                continue
            assert main([*words[1:], *(["--json"] if verb == "verify" else [])]) == 0, command
            told = capsys.readouterr().out
            if verb == "verify":
                report = json.loads(told)
                assert [rank["total"] for rank in report["bytes"]["ranks"]] == row["bytes"]
                terms = row["terms"]
                ends = row["seconds"] - terms["gradients"]
                assert float(Fraction(report["time"]["makespan"])) / 1000 == pytest.approx(ends, rel=1e-9)


def test_the_text_has_what_the_object_has(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The text has rows with their figures, a line for each rule, and the assumptions."""
    line = ["plan", *SMALL_PLAN, "--tokens", "2M", "--explain", "p=4,t=2", "--verbose"]
    assert main(line) == 0
    text = capsys.readouterr().out
    assert main([*line, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for row in told["rows"]:
        assert f"  {row['seconds'] * 1000:#.3g} ms  " in text and f"  {row['days']:#.3g} days" in text
        assert row["commands"]["verify"] in text
        assert row["p"] * row["t"] * row["c"] * row["d"] == 8
        assert row["days"] == pytest.approx(2e6 / row["tokens_per_second"] / 86_400)
    assert all(rule["text"] in text for rule in told["rules"])
    assert all(said in text for said in (*told["assumed"], *told["explained"]["text"]))
    assert sum(told["counts"][key] for key in ("none", "over_the_cap", "slower_by_a_bound", "timed")) == sum(
        told["counts"][key] for key in ("choices",)
    )


def test_a_rule_about_what_is_not_there_is_not_judged(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    """For one rank, undivided layers and no recomputation, no rule that cannot fail is reported to hold."""
    lacking = {
        "p=1,t=1,recompute=none": [*["there is no pipeline"] * 3, "no choice has a pipeline", "no layer is divided"],
        "p=4,t=1,zero=0,b=1,schedule=1f1b": ["no choice divides a layer", "no layer is divided"],
        "p=2,t=4,zero=0,b=1,schedule=1f1b": ["m is at least 4 p"],
    }
    for only, expected in lacking.items():
        assert main(["plan", *SMALL_PLAN, "--only", only, "--json"]) == 0
        rules = json.loads(capsys.readouterr().out)["rules"]
        assert len(rules) == 6 and all((rule["holds"] is None) == ("not applicable" in rule["text"]) for rule in rules)
        found = [rule["text"].split("not applicable, since ")[1] for rule in rules if rule["holds"] is None]
        assert sorted(found) == sorted([*expected, *["no choice recomputes"] * ("recompute" in only)])


_TIME = r"([-+]?[\d.]+) (s|ms|us)\b"


def test_why_a_choice_lost(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A losing choice is explained by its terms, or by the bytes of the rank that needs most."""
    assert main(["plan", *SMALL_PLAN, "--explain", "p=4,t=2,schedule=1f1b,zero=0,b=1,recompute=none"]) == 0
    told = capsys.readouterr().out
    assert "% slower: " in told
    *terms, step = (
        [float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit] for number, unit in re.findall(_TIME, row)]
        for row in told.split("the plan  ")[-1].split("\n\n")[0].splitlines()[1:]
    )
    assert len(terms) > 2 and all(len(row) == 3 for row in (*terms, step))
    for column, whole in zip(zip(*terms, strict=True), step, strict=True):
        assert sum(column) == pytest.approx(whole, abs=5e-3 * sum(map(abs, column)))
    assert main(["plan", *SMALL_PLAN, "--mem-cap", "30MB", "--explain", "p=1,t=1,zero=0"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"p=1, t=1, zero=0: none of \d+ choices fits", told)
    assert re.search(r"rank 0 needs [\d.]+ MB for parameters, gradients and optimizer; the cap is 30 MB", told)


def test_what_runs_beside_compute_is_said_in_bytes(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ZeRO 3 gathers 2 bytes for a second layer of 12 h^2 + 13 h parameters, and reduces 4; without overlap there is no
    second layer."""
    for only, overlap, each in (("zero=3", "1", 6), ("zero=2", "1", 4), ("zero=1", "1", 0), ("zero=3", "0", 0)):
        assert (
            main(["plan", *SMALL_PLAN, "--only", f"p=1,t=1,{only}", "--overlap", overlap, "--mem-cap", "1GB", "--json"])
            == 0
        )
        said = [one for one in json.loads(capsys.readouterr().out)["assumed"] if "a second layer" in one]
        assert len(said) == (each > 0)
        assert not said or f"up to {each * (12 * 256**2 + 13 * 256) / 1e6:.3g} MB more" in said[0]


def test_names_are_no_markup(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name is no markup in the page or in the plot, and no command in a shell."""
    name = "</script><b>;rm"
    made = pipesched.plan(model=(replace(SMALL, name=name), Training(batch=16)), gpus=4, device=SLOW, only=["c=1"])
    for text in (made.html(), made.plot()):
        assert "<b>" not in text
    for command in made.to_json()["rows"][0]["commands"].values():  # type: ignore[index,call-overload]
        assert ";rm" not in command or any(name in word for word in shlex.split(command))
    assert main(["plan", *SMALL_PLAN, "--top", "4", "--plot", "plan.svg"]) == 0
    assert (files / "plan.svg").read_text("utf-8").count("<title>") == 4


def test_one_rank_and_nodes_of_another_size(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands also run without a pipeline, with parameters divided by ZeRO, and on nodes of other sizes."""
    for more in (["--only", "p=1", "--only", "zero=3"], ["--gpus-per-node", "2", "--efficiency", "1/3"]):
        assert main(["plan", *SMALL_PLAN, *more, "--top", "1", "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        for command in row["commands"].values():
            assert main(shlex.split(command)[1:]) == 0, command
            assert ("--device" in command) == ("--target" not in command)
        assert ("device.toml,node_size=2" in row["commands"]["verify"]) == ("1/3" in more)
        capsys.readouterr()


def test_fewer_gpus_than_a_node_are_all_in_it(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three of four GPUs share a layer, whose messages stay inside the node; `verify --device` agrees."""
    (files / "model.toml").write_text(MODEL.replace("256", "240").replace("heads = 8", "heads = 6"))
    few = ["--gpus", "3", "--only", "t=3", "--batch", "3"]
    line = ["plan", "--model", "model.toml", "--device", "device.toml", *few, "--json"]
    assert main(line) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    command = shlex.split(row["commands"]["verify"])
    assert "--device" in command and main([*command[1:], "--json"]) == 0
    seconds = float(Fraction(json.loads(capsys.readouterr().out)["time"]["makespan"])) / 1000
    assert seconds == pytest.approx(row["seconds"], rel=1e-9)
    reduced = 6 * 4 * 2 * 2 / 3 * (2 * 128 * 240)  # 6 layers, 4 all-reduces of 2 s h each, 2 (t - 1) / t of them
    assert row["terms"]["tensor"] == pytest.approx(3 * reduced / 2e9, rel=1e-9)  # 3 sequences, 2 GB/s in a node


def test_an_order_that_is_too_long_is_told(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A choice whose order is too long to check is refused; the others are planned."""
    small = [
        "--model",
        "model.toml",
        "--device",
        "device.toml",
        "--gpus",
        "6",
        "--gpus-per-node",
        "6",
        "--mem-cap",
        "1GB",
        "--batch",
    ]
    only = ["--only", "p=6", "--only", "schedule=zb_h1", "--only", "b=1,64", "--only", "recompute=full,split=even"]
    assert main(["plan", *small, str(2**17), *only, "--top", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["refused"] == {"its order has more than 2,000,000 operations": 1}
    assert told["rows"][0]["b"] == 64


BAD: list[tuple[str, str, int]] = [
    ("--model llama4 --gpus 8 --device h100", "PS237", 2),
    ("--model megatron-1.7b --gpus 8 --device h1000", "PS2", 2),
    ("--model megatron-1.7b --gpus 8 --device h100,nodes=4", "PS242", 1),
    ("--model megatron-1.7b --gpus 8 --device h100,node_size=0", "PS243", 1),
    ("--model megatron-1.7b --device h100", "PS225", 2),
    ("--gpus 8 --device h100", "PS225", 2),
    ("--model megatron-1.7b --gpus 8", "PS225", 2),
    ("--model megatron-1.7b --gpus 0 --device a100", "PS246", 2),
    ("--model megatron-1.7b --gpus -8 --device a100", "PS246", 2),
    ("--model megatron-1.7b --gpus 10 --device a100", "PS246", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --gpus-per-node 0", "PS246", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --batch 0", "PS246", 2),
    ("--model megatron-1.7b --gpus 999999999 --device a100", "PS246", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --mem-cap 80", "PS225", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --mem-cap 80XB", "PS225", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --mem-cap 0GB", "PS225", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --tokens many", "PS225", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --tokens 0", "PS225", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --overlap 2", "PS225", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --efficiency 0", "PS225", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --top 0", "PS246", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --only p", "PS247", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --only pp=4", "PS247", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --only p=0", "PS247", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --only zero=4", "PS247", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --only schedule=magic", "PS247", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --only t=3", "PS248", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --only e=2", "PS248", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --explain p=2,p=4", "PS247", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --only zero=0 --only d=8 --explain p=3", "PS248", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --executor cloud", "PS225", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --executor processes:0", "PS225", 2),
    ("--model megatron-1.7b --gpus 8 --device a100 --plot plan.png", "PS225", 2),
    ("--model megatron-1.7b,tensor=x --gpus 8 --device a100", "PS233", 1),
    ("--model megatron-1.7b,tensors=8 --gpus 8 --device a100", "PS231", 1),
    ("--model megatron-1.7b,tensor=7 --gpus 8 --device a100", "PS236", 1),
    ("--model megatron-18.4b --gpus 2 --gpus-per-node 2 --device a100", "PS245", 1),
]


@pytest.mark.parametrize(("line", "code", "status"), BAD, ids=[row[0] for row in BAD])
def test_what_means_nothing_is_a_coded_error(
    line: str, code: str, status: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *line.split(), "--json"]) == status
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    assert found and found[0]["code"].startswith(code) and "Traceback" not in found[0]["message"]


ROW = re.compile(r"^\| ([\d.,]+) b \| ([\d,]+) \| \((\d+), (\d+), (\d+)\) \| (\d+) \| (\d+) \| (\d+) \|", re.M)
PAGE = (Path(pipesched.__file__).parent / "planning" / "README.md").read_text("utf-8")
TABLE = ROW.findall(PAGE)
BATCHES = (512, 512, 512, 1024, 1536, 1792, 2304, 2160, 2520, 3072)  # of the paper's table, like GPUs and (t, p, d)


def test_the_tables_have_their_rows() -> None:
    """The two tables have ten rows with p t d GPUs, and three rows."""
    assert len(TABLE) == 10 and len(LLAMA) == 3
    for _, gpus, t, p, d, *_ in TABLE:
        assert int(gpus.replace(",", "")) == int(t) * int(p) * int(d)


@pytest.mark.nightly
@pytest.mark.parametrize("index", range(10) if deep(1) > 1 else (5,))
def test_a_row_of_megatron_has_its_place(index: int) -> None:
    """The ranks of the printed (t, p, d) equal table 1 of Narayanan et al. (SC 2021)."""
    name, gpus, t, p, d, v, *places = TABLE[index]
    model = f"megatron-{name.replace(',', '')}b,gradient_bytes=2,optimizer_bytes=16"
    given: dict[str, Any] = {"gpus": int(gpus.replace(",", "")), "device": "a100", "batch": BATCHES[index]}
    given |= {"efficiency": "1/2", "mem_cap": "84GB"}
    for place, which in zip(places, ([f"v=1,{v}"], []), strict=True):
        only = ["c=1", "recompute=full", "zero=0", "schedule=1f1b,interleaved", "split=even", *which]
        made = pipesched.plan(model=model, **given, only=only, top=int(place))
        assert [made.rows[-1].choice[size] for size in "tpd"] == [int(t), int(p), int(d)]
        assert len(made.rows) == int(place) and (not which or int(place) <= 3)


LLAMA = re.findall(
    r"^\| ([\d,]+) \| ([\d,]+) \| \((\d+), (\d+), (\d+), (\d+)\) \| (\d+ GB) \| (\d+) % \| ([\d.]+) % \| ([\d.]+) % \|",
    PAGE,
    re.M,
)


@pytest.mark.skipif(deep(1) == 1, reason="--depth 2: it takes half a minute")
@pytest.mark.parametrize("row", LLAMA, ids=lambda row: row[1])
def test_utilisation_of_llama_is_near_that_of_its_report(row: tuple[str, ...]) -> None:
    """The predictions are within 3 points of table 4 of Dubey et al. 2024; the page names the predictions with and
    without overlap."""
    gpus, sequence, *sizes, cap, printed, shown, alone = row
    transformer, training = read_model("llama3-405b")
    model = replace(transformer, sequence=int(sequence.replace(",", ""))), training
    only = [*(f"{x}={size}" for x, size in zip("tcpd", sizes, strict=True)), "zero=2,recompute=none"]
    for overlap, said in ((1, shown), (0, alone)):
        made = pipesched.plan(
            model=model,
            gpus=int(gpus.replace(",", "")),
            device="h100",
            batch=2**24 // model[0].sequence,
            mem_cap=cap.replace(" ", ""),
            only=only,
            overlap=overlap,
            efficiency="1/2",
            top=1,
        )
        found = float(made.rows[0].utilisation) * 100
        assert f"{found:.1f}" == said and (not overlap or abs(found - float(printed)) < 3)


@pytest.mark.timed
@pytest.mark.skipif(deep(1) == 1, reason="--depth 2: it takes half a minute")
def test_ten_thousand_choices_in_a_minute() -> None:
    """The plan at p up to 64 takes less than a minute on two cores; most choices are never written out."""
    transformer, training = read_model("llama3-70b")
    device = DEVICES["h100"]
    space = Space(transformer, replace(training, batch=512), 64, 8, {})
    begun = time.monotonic()
    with executor("processes:2") as workers:
        found = Search(Problem(space, device, device.memory), workers)
        assert len(found.best(5, apart=LAYOUT)) == 5
    assert len(found.choices) > 10_000 and max(x.p for x in found.choices) == 64
    assert found.counts["timed"] < 100
    assert time.monotonic() - begun < 60
