"""Copies to host memory and back run on engines parallel to compute; claims, pictures, causes and queues account for
them."""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.analysis.communication import ASYNC
from pipesched.analysis.timeline import slot_costs
from pipesched.compile import load
from pipesched.examine import Options
from pipesched.model.costs import Costs
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source
from pipesched.views.causes import causes, critical_path
from tests.core.test_frozen import some_costs
from tests.depth import deep
from tests.makers.ps_programs import program

# One rank, by hand:  F0 0-1, its copy 1-4; F1 1-2, its copy 4-7; the rank waits for it until 7; L0 7-9, L1 9-11
ONE = """\
schedule one(p = 1, m = 2)
stage 0 on rank 0
costs F = 1, B = 2, O = 3, L = 2
rank 0 { F  F  O  O  L  L  B  B }
claim makespan == 13 and work == 6 and peak == 2 and host == 2
claim bubble == 7 / 13
claim host(0) == 2 * tM and tO == 3 and tL == 2
"""


def test_what_is_reckoned_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times, work, host memory in the report and as data, and the causes of waits equal values computed by hand."""
    file = tmp_path / "one.ps"
    file.write_text(ONE, "utf-8")
    assert main(["verify", str(file)]) == 0
    said = capsys.readouterr().out
    assert "host memory 2, on rank 0" in said and "makespan 13 = 6 work + 7 idle" in said
    assert "claims 3 of 3 hold" in said
    assert main(["verify", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory"]["host"] == [2]
    assert main(["why", str(file)]) == 0
    said = capsys.readouterr().out
    assert "rank 0 idles 3 at t=4, before O1" in said and "rank 0 idles 2 at t=2, before O0" in said
    assert "critical path, 13 long: 5 operations (5) and their messages and copies (8)" in said


def test_copies_in_both_directions_run_at_once() -> None:
    """By hand: O0 is copied 1-6, L0 and O1 both 7-12, L1 12-17, during which B0 runs; then B1 runs 17-19."""
    text = ONE.partition("rank 0 {")[0].replace("O = 3, L = 2", "O = 5, L = 5") + "rank 0 { F  O  F  L  O  L  B  B }\n"
    report = pipesched.verify(Source("one.ps", text))
    assert report.ok and report.time.makespan == 19


def test_a_program_of_a_file_waits_for_copies() -> None:
    """On one rank there are no messages, so under every model the stream takes as long as its order."""
    costs = "F=1,B=2,O=3,L=2"
    for model in ("strict", "async"):
        report = pipesched.verify(Source("one.json", pipesched.emit(Source("one.ps", ONE))), costs=costs, comm=model)
        assert report.ok and report.parts.communication is not None
        assert report.parts.communication.makespan == report.time.makespan == 13


def test_costs_that_are_not_given_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """tO is tF and tL is tO by default, whether other costs are given or not."""
    file = tmp_path / "one.ps"
    file.write_text("\n".join(x for x in ONE.splitlines() if not x.startswith(("costs", "claim"))), "utf-8")
    for given, said in (([], "assumed: O = F = 1, L = O = 1"), (["--cost", "F=3,B=4"], "O = F = 3, L = O = 3")):
        assert main(["verify", str(file), *given]) == 0
        assert said in capsys.readouterr().out
    assert main(["verify", str(file), "--cost", "O=5"]) == 0
    assert "assumed: L = O = 5" in capsys.readouterr().out


def test_pictures_have_every_copy_where_it_is(tmp_path: Path) -> None:
    """Copies are drawn in characters, in a figure, in a trace and on a page, on two lanes of their rank; none is shown
    as compute time."""
    drawn = {}
    (tmp_path / "one.ps").write_text(ONE, "utf-8")
    for name in ("one.txt", "one.svg", "one.html", "one.json"):
        form = ["--format", "trace"] if name.endswith("json") else []
        assert main(["show", str(tmp_path / "one.ps"), *form, "-o", str(tmp_path / name)]) == 0
        drawn[name] = (tmp_path / name).read_text("utf-8")
    rows = {line.split()[0]: line[7:] for line in drawn["one.txt"].splitlines() if line[:6].split()}
    unit = rows["out"].index("O0")
    assert [rows["out"].index(x) for x in ("O0", "O1")] == [unit, 4 * unit]
    assert [rows["in"].index(x) for x in ("L0", "L1")] == [7 * unit, 9 * unit]
    assert "cannot be seen" not in drawn["one.txt"] + drawn["one.svg"]
    titles = re.findall(r"<title>([OL] of stage 0, microbatch \d on rank 0: [^<]*)</title>", drawn["one.svg"])
    assert [x[0] + x.partition("microbatch ")[2] for x in titles] == [
        *("O0 on rank 0: 1 to 4", "O1 on rank 0: 4 to 7", "L0 on rank 0: 7 to 9", "L1 on rank 0: 9 to 11")
    ]
    about = json.loads(drawn["one.json"])
    each = about["otherData"]["microseconds_per_unit"]
    copies = [x for x in about["traceEvents"] if x.get("cat") == "copy"]
    assert [(x["name"][5:], x["ts"] // each, x["dur"] // each, x["tid"]) for x in copies] == [
        *(("O0.0", 1, 3, 10_000), ("O0.1", 4, 3, 10_000), ("L0.0", 7, 2, 10_001), ("L0.1", 9, 2, 10_001))
    ]
    assert '"copies":[[0,2,1,4],[0,3,4,7],[0,4,7,9],[0,5,9,11]]' in drawn["one.html"]


def test_queues_wait_for_copies() -> None:
    """If messages take no time and no queue delays them, a program takes as long as its order."""
    for seed in range(deep(6)):
        made, rng = program(seed, offload=0.7), random.Random(seed)
        costs = some_costs(rng, made.stages) | {"C": (Fraction(0),) * made.stages}
        unit = load(Source("random.ps", made.text()), Options({"p": made.ranks, "m": made.microbatches}))
        found = Analysis(unit.schedule, Costs(costs), model=ASYNC)
        assert found.queued == found.makespan


def test_the_critical_path_has_no_hole() -> None:
    """Slots, messages and copies of the critical path add up to the makespan, without a gap."""
    for seed in range(deep(10)):
        made, rng = program(seed, offload=0.7), random.Random(seed)
        unit = load(Source("random.ps", made.text()), Options({"p": made.ranks, "m": made.microbatches}))
        found = Analysis(unit.schedule, Costs(some_costs(rng, made.stages)))
        times, cost = found.timeline, slot_costs(found.schedule, found.ticks)
        why = causes(found.schedule, found.dependencies, times, found.ticks)
        heads = [i - int(found.schedule.joined[i]) for i in critical_path(times, why)]
        assert int(times.start[heads[0]]) == 0
        for before, i in pairwise(heads):
            assert int(times.end[before]) + int(why.lag[i]) == int(times.start[i])
        assert sum(int(cost[i] + why.lag[i]) for i in heads) == times.makespan


@pytest.mark.parametrize("target", ["torch-csv", "torch-comms"])
def test_targets_that_do_not_know_it_say_so(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PS814 is reported with the letter."""
    (tmp_path / "one.ps").write_text(ONE, "utf-8")
    assert main(["emit", str(tmp_path / "one.ps"), "--target", target]) == 1
    error = capsys.readouterr().err
    assert "error[PS814]" in error and "it runs O and L" in error


def test_half_of_the_chunks_away_cost_no_time() -> None:
    """The schedule of the library has the idle time of interleaved 1F1B, and p + 3 of its 3p - 1 chunks."""
    for p in (4, 8):
        here, there = (pipesched.verify(name, p=p, m=4 * p) for name in ("pipeoffload", "interleaved"))
        assert here.ok and here.time.idle == there.time.idle
        assert (here.peak[0], there.peak[0]) == (Fraction(p + 3, 2), Fraction(3 * p - 1, 2))
