"""For collective calls, messages and engines, the verdict from a graph equals the verdict from exploring all
interleavings.

Larger counts: ``python -m tests.engines.meetings_at_length 10000``; on real processes ``python -m
tests.engines.meetings_on_gloo 200``.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from pipesched.__main__ import main
from pipesched.analysis.communication import Model
from pipesched.engines.calls import read
from pipesched.engines.meetings import Meetings
from pipesched.support.source import Source
from tests.depth import deep
from tests.engines.calls_drawn import drawn
from tests.oracles.calls_by_states import Machine, agree, written

MODELS = (
    ("strict", None),
    ("buffered", 1),
    ("buffered", None),
    ("one-stream", None),
    ("pair-stream", None),
    ("async", None),
)


def differences(seed: int, count: int) -> tuple[int, dict[str, int]]:
    """Compare the verdicts on random calls; return the number that differ, and the number of each verdict."""
    rng, wrong, seen = random.Random(seed), 0, dict[str, int]()
    for _ in range(count):
        ranks, groups = drawn(rng)
        made = Meetings(read(Source("made.calls", written(ranks, groups))))
        right = [(not list(made.differing())) is agree(ranks, groups)]
        if not made.uneven:
            for kind, capacity in MODELS:
                model = Model(kind, capacity)
                holds = Machine(ranks, groups, kind, capacity).ends()
                right.append(made.holds(model) == holds == (not list(made.deadlock(model))))
                seen[f"{kind} {holds}"] = seen.get(f"{kind} {holds}", 0) + 1
        wrong += not all(right)
    return wrong, seen


def test_a_verdict_is_that_of_all_interleavings() -> None:
    """Agreement, and the end of all calls under each model, for random sets with one to three engines per rank."""
    wrong, seen = differences(1810, deep(150))
    assert not wrong and all(seen[f"{kind} {holds}"] > 1 for kind in ("strict", "async") for holds in (True, False)), (
        seen
    )


def told(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[str], str]:
    """Return the status, the codes and the text of the verdict on a file of calls."""
    file = tmp_path / "made.calls"
    file.write_text(text)
    status = main(["verify", str(file), *more, "--json"])
    value = json.loads(capsys.readouterr().out)
    assert main(["verify", str(file), *more]) == status
    out = capsys.readouterr()
    return status, [x["code"] for x in value["diagnostics"]], out.out + out.err


AGREE = """group ep: 0 1
rank 0: F.attn  I.combine@comm*ep  F.dispatch@comm*ep+F.attn
rank 1: F.attn  I.combine@comm*ep  F.dispatch@comm*ep+F.attn
"""


def test_peers_with_two_orders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Megatron-LM#1810: a peer combines a backward while the other dispatches a forward; both are named."""
    assert told(AGREE, tmp_path, capsys)[:2] == (0, [])
    swapped = AGREE[: AGREE.index("rank 1")] + "rank 1: F.attn  F.dispatch@comm*ep+F.attn  I.combine@comm*ep\n"
    status, codes, text = told(swapped, tmp_path, capsys)
    assert (status, codes) == (1, ["PS407"])
    assert "call 0 is I.combine by rank 0, F.dispatch by rank 1" in text and ":2:" in text and ":3:" in text


def test_a_swapped_pair_of_calls_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any two neighbouring calls of one peer with other names, swapped, are a finding."""
    names = [f"x{k}" for k in range(12)]
    for at in range(11):
        other = [*names]
        other[at], other[at + 1] = other[at + 1], other[at]
        rows = (f"rank {r}: {' '.join(f'{x}@comm*ep' for x in row)}" for r, row in enumerate((names, other)))
        made = Meetings(read(Source("made.calls", "group ep: 0 1\n" + "\n".join(rows))))
        (found,) = made.differing()
        assert f"call {at} is" in found.message


def test_two_groups_in_opposite_orders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The members of each group agree, but on one engine the calls wait behind each other; on separate engines they
    end."""
    text = "group a: 0 1\ngroup b: 0 1\nrank 0: x@comm*a y@comm*b\nrank 1: y@comm*b x@comm*a\n"
    status, codes, said = told(text, tmp_path, capsys)
    assert (status, codes) == (1, ["PS408"]) and "x is behind y on comm" in said and "fails under every model" in said
    assert told(text.replace("y@comm*b", "y@other*b"), tmp_path, capsys)[0] == 0


def test_a_send_behind_a_meeting_that_needs_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The peer calls the all-to-all only after the message queued behind it: three waits; posted separately, the calls
    end."""
    text = "group ep: 0 1\nrank 0: A@comm*ep F0>1@comm\nrank 1: F0<0@p2p F0+F0<0 A@comm*ep+F0\n"
    status, codes, said = told(text, tmp_path, capsys)
    assert (status, codes) == (1, ["PS408"]) and "F0>1 is behind A on comm, which meets A on rank 1" in said
    assert "holds under: one-stream, pair-stream, async" in said
    assert told(text, tmp_path, capsys, "--comm=async")[0] == 0
    assert told(text.replace("F0>1@comm", "F0>1@p2p"), tmp_path, capsys)[0] == 0


def test_buffers_that_are_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two sends before their receives, on both sides: the least capacity is two, and the text says so."""
    text = "group ep: 0 1\nrank 0: a>1 b>1 c<1 d<1 A*ep\nrank 1: c>0 d>0 a<0 b<0 A*ep\n"
    status, codes, _ = told(text, tmp_path, capsys)
    assert (status, codes) == (1, ["PS408"])
    assert "a buffer of 2 is enough" in told(text, tmp_path, capsys, "--comm=buffered(2)")[2]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("group ep: 0\nrank 0: A*ep\n", "PS266", "group ep has one member"),
        ("group ep: 0 3\nrank 0: A*ep\nrank 1: A\n", "PS266", "ranks are 0 to 1"),
        ("group ep: 0 1\nrank 0: A*ep A@comm*ep\nrank 1: A*ep A*ep\n", "PS266", "on two engines, compute and comm"),
        ("group ep: 0 1\nrank 0: A*ep\nrank 1: A*ep\nrank 2: A*ep\n", "PS266", "has no rank 2"),
        ("group ep: 0 1\nrank 0: A*of\nrank 1: A*ep\n", "PS266", "no such group"),
        ("group ep: 0 1\nrank 0: x>0 A*ep\nrank 1: A*ep\n", "PS266", "does not name another rank"),
        ("group ep: 0 1\nrank 0: &x>1 A*ep\nrank 1: x<0 A*ep\n", "PS266", "in a batch without a message before it"),
        ("group ep: 0 1\nrank 0: x>1*ep A*ep\nrank 1: x<0*epp A*ep\n", "PS266", "did you mean ep?"),
        ("group ep: 0 1\nrank 0: route A*ep+rout\nrank 1: A*ep\n", "PS266", "did you mean +route?"),
        ("group ep: 0 1\nrank 0: A*ep+x\nrank 1: A*ep\n", "PS266", "waits for x, which does not occur"),
        (
            "pipeline a: 0 1\npipeline b: 2 3\ngroup ep: 0 3\nrank 0: A*ep\nrank 1: B\nrank 2: B\nrank 3: A*ep\n",
            "PS266",
            "at different positions in their pipelines",
        ),
        ("group ep: 0 1\nrank 0: A@*ep\nrank 1: A*ep\n", "PS265", "'A@*ep' is not a call"),
        ("group ep: 0 1\nrank 0 A\nrank 1: A*ep\n", "PS265", "a line begins with"),
        ("group ep: 0 x\nrank 0: A\nrank 1: A\n", "PS265", "the members of a group are rank numbers"),
        ("group ep: 0 1\nrank 0: A*ep\nrank 0: A*ep\n", "PS265", "rank 0 is given twice"),
        ("group ep: 0 1\nrank 0: A*ep\nrank 2: A*ep\n", "PS265", "list every rank from 0"),
        ("group ep: 0 1\nrank 0: A*ep A*ep\nrank 1: A*ep\n", "PS407", "call 1 is A by rank 0, nothing by rank 1"),
        ("group ep: 0 1\nrank 0: x>1 A*ep\nrank 1: A*ep\n", "PS407", "nothing by the receives of rank 1"),
    ],
)
def test_bad_input_is_refused_by_name(
    text: str, code: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A code and a place for calls that cannot be read, or that contradict each other."""
    status, codes, shown = told(text, tmp_path, capsys)
    assert status and codes == [code] and said in shown, shown


def test_a_cycle_behind_long_lists_is_short() -> None:
    """A cycle at the end of 6,000 calls is shown as its two calls."""
    rows = [" ".join(f"c{k}@comm*ep" for k in range(3000)) for _ in range(2)]
    text = f"group ep: 0 1\ngroup b: 0 1\nrank 0: {rows[0]} x@comm*ep y@comm*b\nrank 1: {rows[1]} y@comm*b x@comm*ep\n"
    made = Meetings(read(Source("made.calls", text)))
    (found,) = made.deadlock(Model("strict"))
    assert len(found.labels) == 2 and not list(made.differing())


@pytest.mark.nightly
def test_real_processes_end_and_stop_as_predicted() -> None:
    """Some sets on gloo processes with real all-to-alls, one thread per engine; more by the command above."""
    pytest.importorskip("torch.distributed")
    command = [sys.executable, "-m", "tests.engines.meetings_on_gloo", "3", "8"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=Path(__file__).parents[2])
    assert ran.returncode == 0 and "'ended': 2, 'stopped': 1" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.skipif(deep(1) == 1, reason="by hand: --depth 2, or python -m tests.engines.experts_on_gloo")
def test_gradients_of_experts_are_those_of_the_model_in_one_piece() -> None:
    """Two pipelines of two ranks with real all-to-alls, F and B apart and as pairs, in double precision."""
    command = [sys.executable, "-m", "tests.engines.experts_on_gloo", "2"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_peer_with_fewer_layers_leaves_the_others_waiting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Megatron-LM#1852 and #1810 name odd and empty stages: a peer that issues a call less is named, with the call."""
    layers = [f"F.dispatch{k}@comm*ep F.combine{k}@comm*ep" for k in range(3)]
    text = f"group ep: 0 1\nrank 0: {' '.join(layers)}\nrank 1: {' '.join(layers[:2])}\n"
    status, codes, said = told(text, tmp_path, capsys)
    assert (status, codes) == (1, ["PS407"]) and "call 4 is F.dispatch2 by rank 0, nothing by rank 1" in said
