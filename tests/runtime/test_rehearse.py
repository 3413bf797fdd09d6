"""A single rank in one process needs the same memory as in the pipeline, as predicted from one microbatch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pipesched
from pipesched.__main__ import main
from pipesched.planning.footprint import CHANGING
from pipesched.runtime.execute.allocated import OnHost
from pipesched.runtime.execute.rehearsal import Part, rehearse
from pipesched.runtime.execute.stage_bytes import predicted
from pipesched.stream import loads

STAGES = str(Path(__file__).parents[1] / "generators" / "stages.py") + ":stage"
WIDTH, ROWS, FLOAT = 24, 8, 4


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Run torch with one thread, for small tensors on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Square(nn.Module):
    """x + tanh(x W): keeps x, once for the product, and tanh; makes only the product and the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(x @ self.weight)


def part(stage: int) -> Part:
    return Part(Square(), (torch.randn(ROWS, WIDTH),), lambda output: output.pow(2).mean())


def rank(name: str, number: int, make: Callable[[int], Part] = part, **sizes: int) -> tuple[Any, Any]:
    stream = loads(pipesched.emit(name, **sizes))
    return stream, rehearse(stream, number, {s: make(s) for _, s in stream.held_by(number)}, steps=1)


def test_bytes_are_counted_tensor_by_tensor() -> None:
    """A tensor counts once, with any number of views, until its last one is gone; an older one does not."""
    there = torch.zeros(1000)
    with OnHost() as count:
        x = there + 1
        y = x.view(10, 100)[3]
        assert (count.now, count.peak) == (4000, 4000)
        z = y * y
        del x
        assert count.now == 4000 + 400
        del y, z
        assert (count.now, count.peak) == (0, 4400)
        there.add_(1)
        assert count.now == 0


def test_a_stage_keeps_what_its_graph_needs() -> None:
    """For x + tanh(x W), in units of x, F keeps x, tanh and output; I leaves x, and gradients of output and product."""
    _, found = rank("zb_h1", 1, p=4, m=8)
    one, x = found.stages[1], ROWS * WIDTH * FLOAT
    assert one.entering == one.leaving == x
    assert one.kept["F"] == 3 * x  # x, tanh(x W), x + tanh(x W)
    assert one.kept["F, run again"] - x < 10_000  # the state of the random numbers
    assert one.kept["I"] == 3 * x


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("1f1b", {"p": 4, "m": 6}),
        ("zb_h1", {"p": 4, "m": 6}),
        ("interleaved", {"p": 4, "v": 2, "m": 8}),
        ("zb_v", {"p": 4, "m": 6}),
        ("dualpipe", {"p": 4, "m": 8}),
        ("pipeoffload", {"p": 4, "m": 4}),
        ("mario", {"p": 4, "m": 6}),
        ("seq1f1b", {"p": 4, "m": 4}),
    ],
)
def test_the_peak_of_every_rank_follows_from_one_microbatch(name: str, sizes: dict[str, int]) -> None:
    """Counted while the list runs, and computed from its instructions: within 2 % on every rank, most to the byte."""
    for number in range(4):
        stream, found = rank(name, number, **sizes)
        assert found.predicted == predicted(stream, number, found.stages)
        assert found.predicted == pytest.approx(found.peak, rel=0.02), number


@pytest.mark.nightly
def test_sixty_four_ranks_need_one_process(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """`run --p 64 --rank 17`: every compute of its list has a time, and `--costs` reads its file."""
    line = ["run", "zb_h1", "--p", "64", "--m", "64", "--rank", "17", "--steps", "1", "--stages", STAGES]
    assert main([*line, "-o", "costs.json"]) == 0
    assert "predicted from one microbatch" in capsys.readouterr().out
    found = json.loads((folder / "costs.json").read_text("utf-8"))
    assert found["predicted_bytes"] == pytest.approx(found["peak_bytes"], rel=0.02)
    assert {key: len(row) for key, row in found["costs"].items()} == {"F": 64, "I": 64, "W": 64}
    report = pipesched.verify("zb_h1", p=64, m=64, costs=folder / "costs.json")
    assert report.ok and Fraction(report.time.costs["F"][9]) == Fraction(str(found["costs"]["F"][9]))
    assert report.time.unit.name == "ms" and re.search(r"makespan [\d.]+ (ms|s)\b", str(report))


WRONG = {
    "none.py:stage": "PS828",
    "no_such_module:stage": "PS828",
    "bad.py:nothing": "PS828",
    "bad.py:raises": "PS828",
    "bad.py:leaves": "PS828",
    "bad.py:number": "PS828",
    "stage": "PS828",
    "bad.py:text": "PS829",
    "bad.py:alone": "PS829",
    "bad.py:words": "PS829",
    "bad.py:many": "PS829",
    "bad.py:meta": "PS829",
    "bad.py:meta_inputs": "PS829",
    "bad.py:unmovable": "PS825",
    "bad.py:wide": "PS825",
    "bad.py:gone": "PS825",
    "bad.py:shapes": "PS824",
    "bad.py:hooked": "PS831",
}
BAD = """
import torch
from torch import nn

number = 3
def raises(stage, stages): raise ValueError("no")
def leaves(stage, stages): raise SystemExit(5)
def text(stage, stages): return "a stage"
def alone(stage, stages): return nn.Linear(4, 4)
def words(stage, stages): return nn.Linear(4, 4), "x"
def many(stage, stages): return nn.Linear(4, 4), torch.zeros(4), max, max
def wide(stage, stages): return nn.Linear(4, 4), torch.zeros(2, 5)
def meta(stage, stages): return nn.Linear(4, 4, device="meta"), torch.zeros(2, 4)
def meta_inputs(stage, stages): return nn.Linear(4, 4), torch.zeros(2, 4, device="meta")
class Unmovable(nn.Linear):
    def to(self, device): raise torch.OutOfMemoryError("out of memory")
def unmovable(stage, stages): return Unmovable(4, 4), torch.zeros(2, 4)
def shapes(stage, stages): return nn.Linear(4, 5), torch.zeros(2, 4)
class Gone(nn.Linear):
    def forward(self, x):
        if torch.is_grad_enabled():
            raise RuntimeError("gone")
        return super().forward(x)
def gone(stage, stages): return Gone(4, 4), torch.zeros(2, 4)
def hooked(stage, stages):
    made = nn.Linear(4, 4)
    made.weight.register_post_accumulate_grad_hook(lambda weight: None)
    return made, torch.zeros(2, 4)
"""


@pytest.mark.parametrize(("stages", "code"), WRONG.items())
def test_what_does_not_do_has_a_code(
    stages: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A faulty factory or stage ends with a code and the line, without a traceback."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text(BAD, encoding="utf-8")
    status = main(["run", "zb_v", "--p", "2", "--m", "4", "--rank", "1", "--stages", stages, "--json"])
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    assert [x["code"] for x in found] == [code] and status == (2 if code in ("PS828", "PS829") else 1)


def test_a_loss_of_several_outputs_is_the_factorys_to_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tuple of outputs has no default loss."""
    monkeypatch.chdir(tmp_path)
    text = """
import torch
class Two(torch.nn.Linear):
    def forward(self, x): return super().forward(x), x
def stage(stage, stages): return Two(4, 4), torch.zeros(2, 4)
def loss(stage, stages): return Two(4, 4), torch.zeros(2, 4), lambda made: made[0].sum()
"""
    (tmp_path / "two.py").write_text(text, encoding="utf-8")
    line = ["run", "1f1b", "--p", "1", "--m", "2", "--steps", "1", "--rank", "0", "--stages"]
    assert main([*line, "two.py:stage"]) == 2
    assert "PS829" in capsys.readouterr().err
    assert main([*line, "two.py:loss"]) == 0


def test_a_place_that_takes_no_file_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rehearsal takes long, so the output path is checked first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text("def stage(stage, stages): open('ran', 'w')\n", encoding="utf-8")
    line = ["run", "1f1b", "--p", "2", "--rank", "1", "--stages", "bad.py:stage"]
    assert main([*line, "-o", "no/such/costs.toml"]) == 2
    assert "PS225" in capsys.readouterr().err and not (tmp_path / "ran").exists()


def test_a_model_says_what_enters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words enter the first rank, hidden vectors the others, and random words the loss of the last one. Its predicted
    bytes are shown too; costs of other stages stay as given.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(
        "[model]\nlayers = 2\nhidden = 16\nheads = 2\nvocabulary = 11\nsequence = 8\n[training]\nmicrobatch = 3\n"
    )
    (tmp_path / "alone.py").write_text(
        "from torch import nn\n"
        "def stage(stage, stages):\n"
        "    return nn.Linear(16, 11) if stage else nn.Embedding(11, 16)\n"
    )
    costs = None
    for number in (0, 1):
        way = {"p": 2, "m": 2, "rank": number, "steps": 1, "model": "small.toml", "costs": costs}
        made = pipesched.run_rank("1f1b", factory="alone.py:stage", **way)
        assert made.stages[number].entering == number * 3 * 8 * 16 * FLOAT
        assert bool(made.notes) == bool(number)
        said = pipesched.verify("1f1b", p=2, m=2, model="small.toml").bytes.ranks[number]
        assert made.by_model == sum(said[kind] for kind in CHANGING)
        assert costs is None or made.costs["F"][0] == costs["F"][0]
        costs = made.costs


def test_a_rank_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A missing factory is refused too, and so is a stage that reads several."""
    with pytest.raises(pipesched.PipeschedError, match="rank 4 does not exist"):
        pipesched.run_rank("1f1b", 4, STAGES, p=4)
    assert main(["run", "1f1b", "--p", "4", "--rank", "0"]) == 2
    assert "no stages" in capsys.readouterr().err
    text = """schedule skip(p = 3, m = 2)
"A skip"
stage s in 0 .. p on rank s
stage 2 on rank 2 reads 1, 0
rank r { repeat m { F } repeat m { B } }
"""
    with pytest.raises(pipesched.PipeschedError, match=r"PS814: .*cannot be rehearsed"):
        pipesched.run_rank(pipesched.Source("skip.ps", text), 0, STAGES)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *((f"--rank 0 --stages a.py:f {x}", x.split()[0]) for x in ("--net transformer", "--pace 1", "--fault kill@0")),
        *((f"--rank 0 --stages a.py:f {x}", x.split()[0]) for x in ("--engine torch", "--trace t.json", "--digits 2")),
        ("--stages a.py:f", "--stages"),
        ("--model llama3-70b", "--model"),
    ],
)
def test_an_option_of_the_other_way_to_run_is_refused(
    line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all ranks, or one with your own stages, an option of the other kind is refused, and nothing runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("def f(stage, stages): open('ran', 'w')\n", encoding="utf-8")
    assert main(["run", "1f1b", "--p", "2", "--m", "2", *line.split()]) == 2
    told = capsys.readouterr()
    other = "a run of one rank" if "--rank" not in line else "a run of all ranks"
    assert told.out == "" and f"{said} applies only to {other}" in told.err and not (tmp_path / "ran").exists()
