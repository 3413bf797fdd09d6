"""``pipesched run`` writes its output and files, returns the right exit status, and leaves no process behind."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import pipesched
import pipesched.stream
from pipesched.__main__ import main
from pipesched.orders import order_write
from pipesched.runtime.execute import launch
from pipesched.runtime.execute.launch import Launcher
from tests.core.test_forward_only import forwards
from tests.depth import deep
from tests.oracles.trace_rules import violations
from tests.runtime import harness, paced
from tests.runtime.harness import forks
from tests.runtime.streams import published
from tests.runtime.test_faults import processes
from tests.runtime.test_runtime_batches import PROGRAMS
from tests.shell.test_readme import TOP, blocks

Captured = pytest.CaptureFixture[str]

SCHEDULES = [
    ("gpipe", "--p", "1", "--m", "3"),
    ("1f1b", "--p", "3", "--m", "5"),
    ("interleaved", "--p", "2", "--v", "2", "--m", "4"),
    ("zb_h1", "--p", "4", "--m", "8"),
    ("zb_h2", "--p", "2", "--m", "4"),
    ("zb_v", "--p", "2", "--m", "4"),
    ("dualpipe", "--p", "4", "--m", "8"),
    ("dualpipev", "--p", "2", "--m", "5"),
]


SPECIAL = [
    ("mario", "--p", "3", "--m", "5"),
    ("seq1f1b", "--p", "3", "--m", "6"),
    ("frozen_encoder", "--p", "3", "--m", "5"),
    ("unet", "--p", "3", "--m", "4"),
    ("packed", "--p", "2", "--m", "4", "-D", "length=4,3,7,2"),
    ("pipeoffload", "--p", "2", "--m", "4"),
    ("forward_only", "--p", "3", "--m", "4"),
]


def run_json(capsys: Captured, *arguments: str) -> dict[str, Any]:
    """Return the object of a run, which must exit with 0."""
    assert main(["run", *arguments, "--json"]) == 0, capsys.readouterr()
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


@pytest.mark.usefixtures("one_supervisor")
class TestWhatItTells:
    """In this process, with one supervisor for all."""

    @pytest.mark.parametrize(
        ("arguments", "net"),
        [*((x, "mlp") for x in SCHEDULES), *((x, "transformer") for x in SCHEDULES[2 :: 2 if deep(1) == 1 else 1])],
        ids=lambda x: x if isinstance(x, str) else x[0],
    )
    def test_it_is_the_undivided_model(self, arguments: tuple[str, ...], net: str, capsys: Captured) -> None:
        """Gradients agree to 1e-12; the peak, counted by autograd's saved tensors, is the predicted one on every
        rank."""
        found = run_json(capsys, *arguments, "--net", net, "--steps", "2", "--pace", "0")
        sizes = {name.removeprefix("--"): int(n) for name, n in zip(arguments[1::2], arguments[2::2], strict=True)}
        memory = pipesched.verify(arguments[0], **sizes).memory

        assert found["gradients"]["error"] <= 1e-12
        assert found["losses"] == pytest.approx(found["undivided_losses"], rel=1e-12)
        assert memory is not None
        assert list(map(Fraction, found["peak"]["counted"])) == list(memory.peak)
        assert found["losses"][0] != found["losses"][1]

    @pytest.mark.parametrize("arguments", SPECIAL, ids=lambda x: x[0])
    def test_so_are_those_of_a_special_kind(self, arguments: tuple[str, ...], capsys: Captured) -> None:
        """Recomputation, slices, frozen stages, skips, uneven microbatches, offloading, and outputs without a backward
        train correctly."""
        found = run_json(capsys, *arguments, "--steps", "1", "--pace", "0")
        assert found["outputs" if arguments[0] == "forward_only" else "gradients"]["error"] <= 1e-12
        assert found["losses"] == pytest.approx(found["undivided_losses"], rel=1e-12)
        assert found["peak"]["counted"] == found["peak"]["predicted"]

    @pytest.mark.parametrize(("name", "net"), [("pipedream", "transformer"), ("pipemare", "mlp")])
    def test_so_are_all_versions_of_weights(self, name: str, net: str, capsys: Captured) -> None:
        """With STEPs inside the order every version agrees with delayed training, also where the inputs are tokens."""
        found = run_json(capsys, name, "--p", "2", "--m", "4", "--net", net, "--steps", "1", "--pace", "0")
        assert found["gradients"]["error"] <= 1e-12
        assert found["losses"] == pytest.approx(found["undivided_losses"], rel=1e-12)

    def test_the_step_takes_its_makespan(self, tmp_path: Path, capsys: Captured) -> None:
        """The step never takes less than its makespan, 15 = (m + p - 1) (F + B) at 20 ms. The best of the steps takes
        at most half more than its instructions explain here.
        """
        file = tmp_path / "trace.json"
        sizes = ("1f1b", "--p", "2", "--m", "4")
        time = run_json(capsys, *sizes, "--pace", "20", "--trace", str(file))["time"]
        assert main(["emit", *sizes]) == 0
        stream = pipesched.stream.loads(capsys.readouterr().out)
        slices = [event["args"] for event in json.loads(file.read_text("utf-8"))["traceEvents"] if event["ph"] == "X"]
        steps = [
            [
                [(x["start"], x["end"], x["waited"]) for x in slices if (x["step"], x["rank"]) == (n, r)]
                for r in range(2)
            ]
            for n in range(3)
        ]

        assert time["makespan"] == 15
        assert time["predicted"] == pytest.approx(0.3)
        assert time["measured"] == pytest.approx(median(map(paced.measured, steps[1:])))
        assert min(map(paced.measured, steps)) >= 0.3
        assert min(paced.measured(step) / paced.explained(stream, step) for step in steps) <= 1.5

    @pytest.mark.parametrize("net", ["mlp", "transformer"])
    def test_microbatches_of_different_sizes(self, net: str, capsys: Captured) -> None:
        """Gradients agree to 1e-12, and losses differ from those with even microbatches; each microbatch needs one
        number, from 1, or PS225 is reported."""
        sizes = ("zb_v", "--p", "2", "--m", "4", "--net", net, "--steps", "2", "--pace", "0")
        found = run_json(capsys, *sizes, "--samples", "4,3,1,7")
        assert found["gradients"]["error"] <= 1e-12
        assert found["losses"] == pytest.approx(found["undivided_losses"], rel=1e-12)
        assert found["losses"] != run_json(capsys, *sizes)["losses"]
        for wrong in ("4,3,1", "4,3,0,7"):
            assert main(["run", *sizes, "--samples", wrong]) == 2
            assert "error[PS225]" in capsys.readouterr().err

    def test_what_is_counted_knows_of_no_memory_costs(self, capsys: Captured) -> None:
        """A run counts stages, so the comparison ignores M; assumed costs are named."""
        found = run_json(capsys, "1f1b", "--p", "2", "--m", "3", "--cost", "M=[5,1/2],F=1,I=1", "--pace", "0")

        assert (found["peak"]["counted"], found["peak"]["predicted"]) == ([2, 1], [2, 1])
        assert found["time"]["assumed_costs"] == {"B": "I + W"}

    def test_the_text_says_the_same(self, capsys: Captured) -> None:
        """The text has a line each for loss, gradients, peak, time and the bubble of the prediction."""
        assert main(["run", "1f1b", "--p", "2", "--m", "4", "--steps", "1", "--pace", "1"]) == 0
        first, loss, gradients, peak, time, bubble = capsys.readouterr().out.splitlines()

        assert first == "ok  1F1B  p=2 m=4   2 processes (gloo), 1 step of mlp"
        assert re.fullmatch(r"    loss \d\.\d{6}, as in the undivided model", loss)
        assert re.fullmatch(r"    gradients as .*: largest error (0|\d\.\de-\d\d), 1e-12 allowed", gradients)
        assert peak == "    peak activations counted [2  1], as predicted"
        assert re.fullmatch(
            r"    step [\d.]+ ms measured, 15 ms predicted: makespan 15 at 1 ms per unit \(\+[\d.]+ %\)", time
        )
        assert bubble == "    predicted makespan 15 = 12 work + 3 idle   bubble 20 % (1/5)"

    def test_what_the_prediction_leaves_out_is_said(self, capsys: Captured) -> None:
        """A message's time cannot be set: at C = 2 the verdict is 2 (p - 1) C longer than the prediction, and both
        forms name C.
        """
        sizes, costs = ("1f1b", "--p", "2", "--m", "1"), ("--cost", "F=1,B=2,C=2")
        assert main(["run", *sizes, *costs, "--steps", "1", "--pace", "1"]) == 0
        *_, line = capsys.readouterr().out.splitlines()
        assert line.startswith("    predicted makespan 6 = 3 work + 3 idle   bubble 50 % (1/2); ")
        assert line.endswith("; messages count as 0 instead of C=2")
        assert pipesched.verify("1f1b", p=2, m=1, costs="F=1,B=2,C=2").makespan == 6 + 2 * 2
        time = run_json(capsys, *sizes, *costs, "--pace", "0")["time"]
        assert (time["makespan"], time["left_out"]) == (6, {"C": 2})
        assert run_json(capsys, *sizes, "--cost", "F=1,B=2", "--pace", "0")["time"]["left_out"] == {}

    def test_the_trace_has_every_instruction(self, tmp_path: Path, capsys: Captured) -> None:
        """In list order, one after the other, each at least as long as its pace, and messages sent before they are
        received.
        """
        file = tmp_path / "trace.json"
        run_json(capsys, "zb_h1", "--p", "2", "--m", "3", "--steps", "2", "--pace", "2", "--trace", str(file))
        assert main(["emit", "zb_h1", "--p", "2", "--m", "3"]) == 0
        stream = pipesched.stream.loads(capsys.readouterr().out)
        trace = json.loads(file.read_text("utf-8"))

        assert trace["otherData"]["fingerprint"] == stream.fingerprint
        slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        for rank, step in itertools.product(range(2), range(2)):
            events = [x for x in slices if (x["pid"], x["args"]["step"]) == (rank, step)]
            assert [event["name"] for event in events] == list(map(str, stream.ranks[rank]))
            times = [event["args"] for event in events]
            assert all(a["end"] <= b["start"] for a, b in itertools.pairwise(times))
            computes = [x for x in times if x.get("op") in ("F", "I", "W", "B")]
            assert all(x["end"] - x["start"] - x["waited"] >= 0.0019 for x in computes)
        last = {event["name"]: event["args"] for event in slices if event["args"]["step"] == 1}
        assert last["0SEND_F2"]["start"] <= last["1F2"]["end"]
        assert violations(trace) == []

    def test_a_stream_and_a_csv_run_too(self, tmp_path: Path, capsys: Captured) -> None:
        """Files written by `emit` can be run."""
        stream, rows = tmp_path / "one.json", tmp_path / "one.csv"
        assert main(["emit", "interleaved", "--p", "2", "--v", "2", "--m", "4", "-o", str(stream)]) == 0
        assert main(["emit", "1f1b", "--p", "2", "--m", "3", "--target", "torch-csv", "-o", str(rows)]) == 0
        capsys.readouterr()

        for file, microbatches in ((stream, 4), (rows, 3)):
            found = run_json(capsys, str(file), "--steps", "1", "--pace", "0")
            assert found["parameters"]["m"] == microbatches
            assert found["gradients"]["error"] <= 1e-12

    def test_the_keys_are_documented(self, capsys: Captured) -> None:
        """The row of `run` in emit/README.md names every key, and those of its parts."""
        (row,) = re.findall(r"^\| `run` \|(.*)\|$", (TOP / "emit" / "README.md").read_text("utf-8"), re.M)
        found = run_json(capsys, "gpipe", "--p", "1", "--m", "1", "--pace", "0")
        inner = {key for part in ("gradients", "peak", "time") for key in found[part]} - {"unit"}
        assert found["outputs"] is None and not found["forward_only"]

        told = {key for key in (*found, *inner) if not key.endswith("_decimal")}
        assert set(re.findall(r"`(\w+)`", row)) == told

    def test_torch_engine(self, capsys: Captured) -> None:
        """The comparison holds with torch's own runtime, without times."""
        found = run_json(capsys, "zb_h1", "--p", "2", "--m", "4", "--engine", "torch")

        assert found["gradients"]["error"] <= 1e-12
        assert found["time"]["measured"] is None

    @pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb_v", "dualpipe"])
    def test_a_schedule_without_backward_is_evaluated(self, name: str, tmp_path: Path, capsys: Captured) -> None:
        """Outputs are those of the undivided model, and so is the loss; an activation lives while its forward runs.
        Both forms say forward only, and wrong weights are detected.
        """
        sizes = {"p": 2, "m": 4}
        file = tmp_path / "forward.txt"
        schedule = forwards(pipesched.load(name, **sizes))
        file.write_text(order_write.write(schedule), "utf-8")
        found = run_json(capsys, str(file), "--pace", "0")

        assert found["forward_only"] and found["gradients"] is None
        assert found["outputs"]["error"] <= 1e-12
        assert found["losses"] == pytest.approx(found["undivided_losses"], rel=1e-12)
        assert set(map(Fraction, found["peak"]["counted"])) == {Fraction(2, schedule.stages)}
        assert found["peak"]["counted"] == found["peak"]["predicted"]
        assert main(["run", str(file), "--pace", "0", "--steps", "2"]) == 0
        out = capsys.readouterr().out
        assert "2 steps of mlp, forward only\n" in out and "\n    outputs as in the undivided model: " in out
        assert main(["run", str(file), "--pace", "0", "--fault", "weights@1"]) == 1
        differs = r"error\[PS827\]: the output of microbatch \d in step \d differs from the undivided model's"
        assert re.search(r"PS824.*copies of stage" if name == "dualpipe" else differs, capsys.readouterr().err)
        assert main(["run", str(file), "--engine", "torch"]) == 1
        assert "PS814" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["torch's 1F1B, p = 2", "DualPipe, p = 2", "a communicator a direction"])
    def test_batches_and_communicators_run_as_written(self, name: str, tmp_path: Path, capsys: Captured) -> None:
        """A program in the order notation trains as written: every batch is one instruction of the trace."""
        program = PROGRAMS[name]()
        file, trace = tmp_path / "order.txt", tmp_path / "trace.json"
        file.write_text(order_write.write(program), "utf-8")
        found = run_json(capsys, str(file), "--steps", "1", "--pace", "0", "--trace", str(trace))

        assert found["gradients"]["error"] <= 1e-12
        assert found["peak"]["counted"] == found["peak"]["predicted"]
        slices = [x for x in json.loads(trace.read_text("utf-8"))["traceEvents"] if x["ph"] == "X"]
        for rank, order in enumerate(published(program).ranks):
            assert [x["name"] for x in slices if x["pid"] == rank] == list(map(str, order))
        assert main(["calibrate", str(trace)]) == 0

    def test_a_rank_that_both_routes_cross_at_one_stage_has_it_once(self, tmp_path: Path, capsys: Captured) -> None:
        """For odd p the middle rank has the same stage on both routes: one set of weights, one gradient."""
        file = tmp_path / "crossing.ps"
        file.write_text(
            "schedule crossing(p, m)\n"
            "route down: stage s in 0 .. p on rank s for microbatch 0 .. m // 2\n"
            "route up: stage s in 0 .. p on rank p - 1 - s for microbatch m // 2 .. m\n"
            "rank r { repeat m // 2 { F[down]  F[up] }  repeat m // 2 { B[up]  B[down] } }\n",
            "utf-8",
        )
        found = run_json(capsys, str(file), "--p", "3", "--m", "4", "--pace", "0")

        assert found["gradients"]["error"] <= 1e-12
        assert found["peak"]["counted"] == found["peak"]["predicted"]

    @pytest.mark.parametrize("format", ["text", "json"])
    def test_a_fault_is_an_error(self, format: str, capsys: Captured) -> None:
        """A fault gives exit status 1, the code, and the place."""
        arguments = ["run", "1f1b", "--p", "2", "--m", "4", "--pace", "0", "--fault", "raise@1:2", "--format", format]

        assert main(arguments) == 1
        out, err = capsys.readouterr()
        assert "PS825" in (out if format == "json" else err)
        assert "rank 1, step 1, instruction 2 (1F0)" in (out if format == "json" else err)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["1f1b", "--p", "2,4"], "one size at a time"),
        (["1f1b", "--p", "65", "--m", "65"], "the limit is 64"),
        (["1f1b", "--p", "2", "--steps", "0"], "0 steps"),
        (["1f1b", "--p", "2", "--timeout", "0"], "a timeout of 0 s"),
        (["1f1b", "--p", "2", "--timeout", "nan"], "a timeout of nan s"),
        (["1f1b", "--p", "2", "--pace", "-1"], "a pace of -1 ms"),
        (["1f1b", "--p", "2", "--pace", "5000", "--timeout", "2"], "treats as a stall"),
        (["1f1b", "--p", "2", "--fault", "kill"], "is not KIND@RANK"),
        (["1f1b", "--p", "2", "--fault", "kill@2"], "the last rank is 1"),
        (["1f1b", "--p", "2", "--engine", "torch", "--fault", "kill@1"], "omit --engine torch"),
        (["1f1b", "--p", "2", "--net", "cnn"], "'cnn' is not one of"),
    ],
    ids=lambda x: " ".join(x[1:]) if isinstance(x, list) else "",
)
def test_mistakes_start_no_process(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """The command line is at fault: status 2, with the remedy."""
    monkeypatch.setattr(launch, "Launcher", None)

    assert main(["run", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """PS820 and the extra, instead of an import error."""
    real = importlib.util.find_spec
    monkeypatch.setattr(launch, "find_spec", lambda name: None if name == "torch" else real(name))

    assert main(["run", "1f1b", "--p", "2", "--m", "4"]) == 2
    err = capsys.readouterr().err
    assert "PS820" in err
    assert "pip install 'pipesched[runtime]'" in err


def children(pid: int) -> list[int]:
    """Return the direct children of a process."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    return list(map(int, listed.split()))


def wait_for(condition: Any, seconds: float = 60.0) -> Any:
    """Return the first true value of a condition; a timeout fails the test."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)
    return value


@pytest.mark.nightly
@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_an_interrupt_leaves_no_process(sent: signal.Signals, status: int) -> None:
    """Ctrl-C exits with 130; and however the command ends, its supervisor and its ranks end too."""
    command = [
        sys.executable,
        "-m",
        "pipesched",
        "run",
        "1f1b",
        "--p",
        "2",
        "--m",
        "4",
        "--pace",
        "200",
        "--steps",
        "999",
    ]
    process = subprocess.Popen(command, cwd=TOP, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        (supervisor,) = wait_for(lambda: children(process.pid))
        wait_for(lambda: len(processes(supervisor)) == 2)
        process.send_signal(sent)
        assert process.wait(30) == status
        wait_for(lambda: not os.path.exists(f"/proc/{supervisor}") and not processes(supervisor))
    finally:
        process.kill()
        process.wait()


def test_a_killed_supervisor_takes_its_ranks_along() -> None:
    """The ranks hold a pipe of the supervisor, and see its end."""
    with Launcher() as launcher:
        os.kill(launcher.pid, signal.SIGKILL)
        with pytest.raises(launch.RunError, match="SIGKILL"):
            launcher.run(launch.Job("", 2))
    assert processes(launcher.pid) == []


def train(folder: Path, script: str) -> list[str]:
    """Return a folder with the script and ZB-H1 for two ranks; the words of its command line."""
    (folder / "train.py").write_text(script, "utf-8")
    assert main(["emit", "zb_h1", "--p", "2", "--m", "4", "-o", str(folder / "zb_h1.json")]) == 0
    return ["train.py", "zb_h1.json"]


def test_the_script_of_the_readme(tmp_path: Path) -> None:
    """The script of the guide trains under torchrun: two processes, with falling loss."""
    words = train(tmp_path, *blocks("pipesched/README.md", "py"))
    agent = forks().Process(target=harness.torchrun, args=(str(tmp_path), *words))
    agent.start()
    agent.join(120)
    agent.kill()

    output = (tmp_path / "output").read_text("utf-8")
    losses = [float(line.rpartition(" ")[2]) for line in output.splitlines() if line.startswith("step ")]
    assert agent.exitcode == 0, output
    assert len(losses) == 10
    assert losses[-1] < losses[0]


def test_a_stall_of_the_script_ends_it(tmp_path: Path) -> None:
    """If rank 0 is stuck in the transport, its watchdog reports the stall on stderr and ends the process."""
    (script,) = blocks("pipesched/README.md", "py")
    stuck = "with Guard(runtime, timeout=3):\n    if rank == 1:\n        __import__('time').sleep(600)\n"
    words = train(tmp_path, script.replace("with Guard(runtime, timeout=60):\n", stuck))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        (tmp_path / "port").write_text(str(free.getsockname()[1]), "utf-8")
    ranks = [forks().Process(target=harness.script, args=(rank, 2, str(tmp_path), *words)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    ranks[0].join(60)
    ranks[1].kill()
    ranks[1].join()

    said = (tmp_path / "stderr0").read_text("utf-8")
    assert ranks[0].exitcode not in (0, None), said
    assert "error[PS822]: no progress: no rank finished an instruction for 3 s" in said
    assert re.search(r"rank 0, step 1, instruction \d+ \(0\w+\): waits for gradient 0 of stage 1", said)
    assert "rank 1: between two steps" in said
