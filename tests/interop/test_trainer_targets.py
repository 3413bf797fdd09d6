"""DeepSpeed's engine, run on tokens with an emitted module, executes the verified order.

The engine is in `oracles/`; `python -m tests.trainers.deepspeed` trains with the real one.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from pipesched import compile as compiler
from pipesched.__main__ import main
from pipesched.compile import Options
from pipesched.support.source import Source
from pipesched.verbs import emit as emissions
from tests.depth import deep
from tests.oracles import deepspeed_engine

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
END = [("ReduceTiedGrads", -1), ("ReduceGrads", -1), ("OptimizerStep", -1)]
BUFFER = re.compile(r"(?<=\()\d+(?=\))")


def emitted(source: Source, target: str, **sizes: int) -> tuple[emissions.Emission, str]:
    emission = emissions.emit(source, Options(sizes), target)
    return emission, "".join(emission.pieces())


def order_text(seed: int) -> str:
    """Return a random right order of F and B with one stage per rank."""
    rng = random.Random(seed)
    p, m = rng.randint(1, 4), rng.randint(1, 6)
    rows: list[list[str]] = [[] for _ in range(p)]
    done: set[tuple[str, int, int]] = set()
    left = {(kind, s, i) for kind in "FB" for s in range(p) for i in range(m)}
    late = rng.random()
    while left:
        ready = sorted(
            (kind, s, i)
            for kind, s, i in left
            if (kind == "F" and (s == 0 or ("F", s - 1, i) in done))
            or (kind == "B" and ("F", s, i) in done and (s == p - 1 or ("B", s + 1, i) in done))
        )
        kind, s, i = (
            rng.choice([x for x in ready if x[0] == "F"] or ready) if rng.random() < late else rng.choice(ready)
        )
        rows[s].append(f"{kind}{s}.{i}")
        left.remove((kind, s, i))
        done.add((kind, s, i))
    return "".join(f"rank {s}: {' '.join(row)}\n" for s, row in enumerate(rows))


def words(text: str) -> list[list[tuple[str, int]]]:
    """Return the operations of an order by rank, as (letter, microbatch)."""
    return [[(x, int(i)) for x, i in re.findall(r"([FB])\d+\.(\d+)", line)] for line in text.splitlines()]


@pytest.mark.parametrize("seed", range(deep(15)))
def test_deepspeed_runs_the_order(seed: int) -> None:
    """Any order of F and B: each stage runs it, with the right loss, labels and gradient, then ends the step."""
    text = order_text(seed)
    _, module = emitted(Source("a.txt", text), "deepspeed")
    expected = words(text)
    names = deepspeed_engine.loaded(module)

    assert deepspeed_engine.trained(names, len(expected), len(expected[0]) // 2) == [row + END for row in expected]


@pytest.mark.parametrize(("name", "p", "m"), [("1f1b", 2, 4), ("1f1b", 4, 8), ("gpipe", 4, 8), ("1f1b", 1, 3)])
def test_deepspeed_runs_what_is_published(name: str, p: int, m: int) -> None:
    """Order and microbatches as `order` prints them; a step with other sizes is refused."""
    source = compiler.read(name)
    _, module = emitted(source, "deepspeed", p=p, m=m)
    names = deepspeed_engine.loaded(module)
    schedule = compiler.load(source, Options({"p": p, "m": m})).schedule

    ran = deepspeed_engine.trained(names, p, m)
    assert ran == [[(x.op.name, x.microbatch) for x in schedule.order(r)] + END for r in range(p)]
    with pytest.raises(ValueError, match="this schedule is for"):
        names["use"](deepspeed_engine.Engine(0, p, m + 1))


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_a_buffer_is_taken_again_when_it_is_free(name: str) -> None:
    """At some instant every buffer holds a microbatch: with one fewer the engine stops, or trains wrongly."""
    _, module = emitted(compiler.read(name), "deepspeed", p=4, m=8)
    head, mark, rows = module.partition("STAGES = ")
    for row in re.split(r"(?=    \d: \[)", rows)[1:]:
        if most := max(map(int, BUFFER.findall(row))):
            fewer = BUFFER.sub(lambda x, most=most: str(int(x[0]) % most), row)  # type: ignore[misc]
            names = deepspeed_engine.loaded(head + mark + rows.replace(row, fewer))
            with pytest.raises(deepspeed_engine.Stop):
                deepspeed_engine.trained(names, 4, 8)


def test_a_loss_is_kept_where_another_comes_first() -> None:
    """1F1B keeps nothing; without `Keep` and `Take` GPipe stops, and so do early gradients."""
    rows = [" ".join(f"{kind}0.{i}" for kind in "FB" for i in range(8)), " ".join(f"F1.{i} B1.{i}" for i in range(8))]
    early = f"rank 0: {rows[0]}\nrank 1: {rows[1]}\n"
    gpipe = "rank 0: F0.0 F0.1 B0.0 B0.1\nrank 1: F1.0 F1.1 B1.0 B1.1\n"
    _, straight = emitted(compiler.read("1f1b"), "deepspeed", p=4, m=8)

    assert "Keep(" not in straight.partition("STAGES")[2]
    for text, m in ((early, 8), (gpipe, 2)):
        _, module = emitted(Source("a.txt", text), "deepspeed")
        assert deepspeed_engine.trained(deepspeed_engine.loaded(module), 2, m)
        head, mark, rows = module.partition("STAGES = ")
        bare = head + mark + re.sub(r"(Keep|Take)\(\d+\), ?", "", rows)
        with pytest.raises(deepspeed_engine.Stop):
            deepspeed_engine.trained(deepspeed_engine.loaded(bare), 2, m)


FILES = {
    "two copies": "rank 0: F0.0 F1.1 B1.1 B0.0\nrank 1: F0.1 F1.0 B1.0 B0.1\n",
    "inference": "rank 0: F0.0 F0.1\nrank 1: F1.0 F1.1\n",
    "turned": "rank 0: F1.0 B1.0\nrank 1: F0.0 B0.0\n",
    "communicator": "rank 0: F0.0 send:F0.0>1@1 recv:B1.0<1 B0.0 reduce:0 step\n"
    "rank 1: recv:F0.0<0@1 F1.0 B1.0 send:B1.0>0 reduce:1 step\n",
    "batches": "rank 0: F0.0 ( send:F0.0>1 ) ( recv:B1.0<1 ) B0.0 reduce:0 step\n"
    "rank 1: ( recv:F0.0<0 ) F1.0 B1.0 ( send:B1.0>0 ) reduce:1 step\n",
    "shapes": "rank 0: F0.0 sendshape:F0.0>1 send:F0.0>1 recv:B1.0<1 B0.0 reduce:0 step\n"
    "rank 1: recvshape:F0.0<0 recv:F0.0<0 F1.0 B1.0 send:B1.0>0 reduce:1 step\n",
    "offloaded": "rank 0: F0.0 O0.0 L0.0 B0.0\n",
    "sharded": "rank 0: unshard:0 F0.0 B0.0 reduce:0 reshard:0 step\n",
    "recomputed": "rank 0: F0.0 R0.0 B0.0\n",
}
SCHEDULES = {
    "frozen": "stage s in 0 .. p on rank s\nfrozen 0\nrank r { repeat m { F } repeat m { B } }\n",
    "slices": "stage s in 0 .. p on rank s\nslices 2\n"
    "rank r { for i in 0 .. m { F(i) } for i in 0 .. m { B(2 * (m // 2 - 1 - i // 2) + 1 - i % 2) } }\n",
    "reads": "stage s in 0 .. p on rank s\nstage 2 on rank 2 reads 1, 0\nrank r { repeat m { F } repeat m { B } }\n",
}


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("two copies", "stage 0 is on ranks 0 and 1"),
        ("inference", "it has no backward"),
        ("turned", "this schedule has its stages on ranks 1 0"),
        ("communicator", "its program has 0SEND_F0"),
        ("batches", "its program has 0SEND_F0"),
        ("shapes", "its program has 0SEND_SHAPE_F0"),
        ("offloaded", "it runs O and L"),
        ("sharded", "its program has 0UNSHARD"),
        ("recomputed", "it runs R"),
        ("frozen", "it has frozen stages: 0"),
        ("reads", "stage 2 reads stage 1 and stage 0"),
        ("zb_h1", "it runs I and W"),
        ("interleaved", "this schedule has its stages on ranks 0 1 2 0 1 2"),
        ("slices", "every 2 microbatches form one sequence"),
    ],
)
def test_what_the_engine_cannot_run_is_refused(case: str, said: str) -> None:
    """PS814 is reported, with the reason and an alternative."""
    sizes = {"p": 3, "m": 6} if case not in FILES else {}
    text = FILES.get(case) or (f"schedule a(p, m)\n{SCHEDULES[case]}" if case in SCHEDULES else "")
    source = Source("a.txt" if case in FILES else "a.ps", text) if text else compiler.read(case)
    report = emissions.emit(source, Options(sizes), "deepspeed").report
    assert {str(x.code) for x in report.diagnostics} == {"PS814"}
    assert any(said in x.message for x in report.diagnostics), report
    assert all(x.help for x in report.diagnostics)


def test_a_pair_that_comes_apart_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DeepSpeed's engine runs the two parts of an overlap one after the other, which a note says."""
    said = "DeepSpeed runs a forward and a backward that share a slot one after the other"
    for pair in ("+", " "):
        (tmp_path / "a.txt").write_text(f"rank 0: F0.0 F0.1{pair}B0.0 B0.1\n", "utf-8")
        assert main(["emit", str(tmp_path / "a.txt"), "--target", "deepspeed"]) == 0
        assert (said in capsys.readouterr().err) == (pair == "+")


def test_messages_of_a_file_have_to_be_safe_with_sends_that_wait() -> None:
    """For any requested model, a cycle under strict communication is PS401, and a safe file keeps its messages."""
    first = "rank 0: F0.0 send:F0.0>1 F0.1 {} B0.0 recv:B1.1<1 B0.1 reduce:0 step\n"
    second = "rank 1: recv:F0.0<0 F1.0 B1.0 {} F1.1 B1.1 send:B1.1>0 reduce:1 step\n"
    stuck = first.format("send:F0.1>1 recv:B1.0<1") + second.format("send:B1.0>0 recv:F0.1<0")
    safe = first.format("send:F0.1>1 recv:B1.0<1") + second.format("recv:F0.1<0 send:B1.0>0")

    found = emissions.emit(Source("a.txt", stuck), Options(comm="async"), "deepspeed").report
    assert {str(x.code) for x in found.diagnostics} == {"PS401"}
    assert emitted(Source("a.txt", safe), "deepspeed")[1]


def test_each_rank_has_a_file() -> None:
    """The module of a rank has that rank's part of the whole."""
    emission, whole = emitted(compiler.read("1f1b"), "deepspeed", p=3, m=4)
    for rank, text in enumerate(emission.by_rank()):
        parts = [deepspeed_engine.loaded(x)["STAGES"] for x in (text, whole)]
        shown: Any = [[(type(x), x.kwargs) for x in part[rank]] for part in parts]
        assert list(parts[0]) == [rank] and shown[0] == shown[1]


@pytest.mark.parametrize(
    ("name", "sizes", "golden"),
    [
        ("1f1b", {"p": 2, "m": 3}, "deepspeed_1f1b_p2_m3.txt"),
        ("gpipe", {"p": 2, "m": 2}, "deepspeed_gpipe_p2_m2.txt"),
    ],
)
def test_the_form_stays(name: str, sizes: dict[str, int], golden: str, update_golden: bool) -> None:
    """The golden files are equal to the byte; `--update-golden` rewrites them."""
    _, text = emitted(compiler.read(name), "deepspeed", **sizes)
    if update_golden:
        (GOLDEN / golden).write_text(text, "utf-8")
    assert (GOLDEN / golden).read_text("utf-8") == text
