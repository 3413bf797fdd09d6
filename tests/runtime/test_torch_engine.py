"""torch's own engine trains with pipesched's orders on real gloo processes like the undivided model.

The undivided model shares no code with an order or an engine: microbatches one after the other through all stages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import pipesched
from pipesched import PipeschedError, torch_runtime
from pipesched.__main__ import main
from pipesched.compile import Options, read
from pipesched.runtime.execute import torch_engine
from pipesched.runtime.execute.launch import Job, Launcher, Outcome
from pipesched.runtime.execute.nets import Net
from pipesched.stream import loads
from pipesched.support.source import Source
from pipesched.verbs.emit import emit
from tests.depth import deep, in_usual_run
from tests.runtime import cases
from tests.runtime.harness import Ranks, ranks_of

ALLOWED = {"float64": 1e-12, "float32": 1e-6}
JUDGE = "pipesched.runtime.run:judge"

# Three m for every schedule and p, within its requirements; by default the least and the largest on two ranks, the
# largest on four.
ALL = [
    (name, sizes)
    for p in (2, 4)
    for name, sizes in [
        *(("gpipe", {"p": p, "m": m}) for m in (1, 3, 4)),
        *(("1f1b", {"p": p, "m": m}) for m in (1, p, p + 3)),
        *(("interleaved", {"p": p, "v": 2, "m": m}) for m in (p, 2 * p, 3 * p)),
        *(("zb_h1", {"p": p, "m": m}) for m in (p, p + 1, 2 * p)),
        *(("zb_h2", {"p": p, "m": m}) for m in (2 * p - 1, 2 * p, 2 * p + 1)),
    ]
]
LARGEST = ALL[2::3]
ONCE: list[tuple[str, dict[str, int]]] = [
    *((name, {"p": 2, "m": 4}) for name in ("naive", "gpipe_reversed", "eager_1f1b", "capped")),
    *((name, {"p": 2, "m": 4}) for name in ("1f1b_v", "v_half", "v_min", "v_zb")),
    *((name, {"p": 2, "v": 2, "m": 4}) for name in ("looped_bfs", "interleaved_zb", "grouped_interleaved", "hanayo")),
    ("interleaved_n", {"p": 2, "v": 2, "m": 5, "n": 3}),
    ("interleaved_overlap", {"p": 2, "v": 2, "m": 4}),
]
CASES = [
    *(
        case
        for i, case in enumerate(ALL)
        if i in range(0, 15, 3) or case in LARGEST[:: 2 if in_usual_run() else 1] or deep(1) > 1
    ),
    *ONCE,
]
HALF = len(LARGEST) // 2 if deep(1) == 1 else 0


def name_of(case: tuple[str, dict[str, int]]) -> str:
    return "-".join([case[0], *(f"{key}{value}" for key, value in case[1].items())])


def emitted(source: Source | str, target: str = "stream", **sizes: int) -> str:
    """Return the output of ``pipesched emit``."""
    made = emit(read(source) if isinstance(source, str) else source, Options(sizes), target)
    assert made.report.ok, str(made.report)
    return "".join(made.pieces())


def job(stream: str, **given: Any) -> Job:
    return Job(stream, len(loads(stream).ranks), engine="torch", **{"steps": 2, "judge": JUDGE, **given})


def error(outcome: Outcome, *, ignore_losses: bool = False) -> float:
    """Return the largest gradient error of all ranks and steps; the losses are compared too."""
    assert outcome.fault is None, str(outcome.fault)
    told = [rank.data for rank in outcome.ranks if rank.data is not None]
    assert len(told) == len(outcome.ranks)
    losses = [one["losses"] for one in told if None not in one["losses"]]
    assert losses, "some rank has the last stage"
    assert ignore_losses or losses[0] == pytest.approx(told[0]["undivided"], rel=1e-5)
    return max(float(one["error"]) for one in told)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


def trained(ranks: Ranks, case: tuple[str, dict[str, int]], csv: str | None = None, **net: Any) -> float:
    """Return the largest error of a gradient, of two steps on all ranks; losses are compared too."""
    stream = loads(emitted(case[0], **case[1]))
    model = Net(**{"name": "mlp", "stages": stream.stages, **net})
    found = ranks.run(len(stream.ranks), cases.torch_engine, stream, csv, model, 2)
    assert max(losses for _, losses in found) <= 1e-5
    return max(gradients for gradients, _ in found)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_computes_train_as_the_undivided_model(case: tuple[str, dict[str, int]], ranks: Ranks) -> None:
    """A compute_only CSV, loaded by torch, lowered by torch, executed: float64 to 1e-12."""
    assert trained(ranks, case) <= ALLOWED["float64"]


@pytest.mark.parametrize("case", LARGEST[HALF:], ids=name_of)
def test_computes_in_single_precision(case: tuple[str, dict[str, int]], ranks: Ranks) -> None:
    """In float32, attention blocks agree to 1e-6."""
    assert trained(ranks, case, name="transformer", dtype=torch.float32) <= ALLOWED["float32"]


@pytest.mark.parametrize("case", LARGEST[:HALF] or LARGEST, ids=name_of)
def test_messages_train_as_the_undivided_model(case: tuple[str, dict[str, int]], ranks: Ranks) -> None:
    """A compute_comms CSV of ours, executed as it is, with gradients divided by m at its REDUCE_GRAD."""
    text = emitted(case[0], "torch-comms", **case[1])

    assert "REDUCE_GRAD" in text
    assert trained(ranks, case, text) <= ALLOWED["float64"]


def test_the_scale_is_that_of_reduce_grad(launcher: Launcher) -> None:
    """Without REDUCE_GRAD torch leaves the sum over m = 4 microbatches: the error is m - 1, and would show above."""
    text = re.sub(r",\d+REDUCE_GRAD", "", emitted("1f1b", "torch-comms", p=2, m=4))
    outcome = launcher.run(job(emitted("1f1b", p=2, m=4), csv=text, judge=None, steps=1))

    assert error(outcome) == pytest.approx(3)


def test_a_file_without_its_reduction_is_refused(launcher: Launcher) -> None:
    """torch's program is read back: here PS601, on every rank, before a step."""
    text = re.sub(r",\d+REDUCE_GRAD", "", emitted("1f1b", "torch-comms", p=2, m=4))
    outcome = launcher.run(job(emitted("1f1b", p=2, m=4), csv=text))

    assert [rank.fault and rank.fault.code for rank in outcome.ranks] == ["PS601", "PS601"]


def torch_csv(name: str, ranks: int, microbatches: int) -> str:
    """Return the computes of one of torch's own V schedules."""
    from torch.distributed.pipelining import schedules

    made = getattr(schedules, name)([fake(ranks)] * 2, microbatches, loss_fn=lambda output, target: output)
    return "".join(",".join(str(x or "") for x in made.pipeline_order[rank]) + "\n" for rank in range(ranks))


def fake(ranks: int, stages: int | None = None) -> Any:
    """Return all that torch needs of a stage before a step."""
    return SimpleNamespace(
        num_stages=2 * ranks if stages is None else stages,
        group_size=ranks,
        group_rank=0,
        stage_index=0,
        submod=None,
        device=None,
        group=None,
        is_first=True,
        is_last=False,
        has_backward=True,
    )


VEES = [("ScheduleZBVZeroBubble", 2, 4), ("ScheduleDualPipeV", 4, 8)]


@pytest.mark.parametrize(("name", "ranks", "microbatches"), VEES)
def test_a_wrong_lowering_is_refused(name: str, ranks: int, microbatches: int, launcher: Launcher) -> None:
    """``defer_pp_recv=True`` swaps messages: every rank refuses it before a step, as it would train wrong.

    Without the option the same order is right.
    """
    stream = emitted(Source("vee.csv", torch_csv(name, ranks, microbatches)))
    deferred = {"defer_pp_recv": True}

    judged = launcher.run(job(stream, options=deferred))
    assert {rank.fault and rank.fault.code for rank in judged.ranks} == {"PS403"}
    unjudged = launcher.run(job(stream, options=deferred, judge=None, steps=1))
    assert error(unjudged, ignore_losses=True) > 0.1
    assert error(launcher.run(job(stream))) <= ALLOWED["float64"]


@pytest.mark.parametrize(("name", "ranks", "microbatches"), VEES)
def test_the_public_function_judges(name: str, ranks: int, microbatches: int, tmp_path: Path) -> None:
    """`pipesched.torch_runtime` returns torch's runtime, or raises the fault of its order."""
    file = tmp_path / "vee.csv"
    file.write_text(torch_csv(name, ranks, microbatches), "utf-8")
    runtime = torch_runtime(file, [fake(ranks)], microbatches)

    with pytest.raises(PipeschedError) as refused:
        torch_runtime(file, [fake(ranks)], microbatches, defer_pp_recv=True)
    assert "PS403" in {str(diagnostic.code) for diagnostic in refused.value.diagnostics}

    runtime._dump_csv(str(tmp_path / "dumped.csv"))
    dumped = (tmp_path / "dumped.csv").read_text("utf-8")
    assert torch_engine.lowered(runtime) == dumped.replace("\r\n", "\n")
    assert "UNSHARD" in dumped
    assert pipesched.verify(Source("dumped.csv", dumped)).diagnostics == ()


def test_dualpipe_is_refused_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """torch has one rank per stage: the command line reports that, and the function too."""
    assert main(["run", "dualpipe", "--p", "4", "--m", "8", "--engine", "torch"]) == 1
    assert "PS814" in capsys.readouterr().err
    with pytest.raises(ValueError, match="one rank for each stage"):
        torch_engine.computes(loads(emitted("dualpipe", p=4, m=8)))


def test_a_stream_is_taken_as_it_is(tmp_path: Path) -> None:
    """A stream and the CSV of its computes are lowered equally."""
    stream = loads(emitted("zb_h1", p=2, m=4))
    file = tmp_path / "zb_h1.csv"
    file.write_text(emitted("zb_h1", "torch-csv", p=2, m=4), "utf-8")

    made = [torch_engine.torch_runtime(order, [fake(2, 2)], 4) for order in (stream, file)]
    assert torch_engine.lowered(made[0]) == torch_engine.lowered(made[1])
