"""A measured run is read as it ran and laid over its plan; the runs here are played by hand, so that all is known.

`played` runs a schedule on `simulate.run` and writes what a runtime would have recorded: an operation begins when the
rank is free, waits for its input, works, ends.
"""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.model.costs import Costs
from pipesched.model.schedule import Schedule
from tests import simulate

Captured = pytest.CaptureFixture[str]
Events = list[dict[str, Any]]

DATA = Path(__file__).parent / "data"
TORCH = [str(DATA / f"torch_profile_rank{rank}.json") for rank in range(2)]
ASLEEP = {"F": (10, 11, 12, 13), "I": (14, 15, 16, 17), "W": (8, 9, 8, 10)}  # ms by stage, as the fixture says

LIBRARY = {
    "gpipe": {"p": 3, "m": 4},
    "1f1b": {"p": 4, "m": 8},
    "interleaved": {"p": 2, "v": 2, "m": 4},
    "zb_h1": {"p": 4, "m": 8},
    "zb_v": {"p": 2, "m": 5},
    "dualpipe": {"p": 4, "m": 8},
    "dualpipev": {"p": 2, "m": 6},
}
COSTS = "F=241/2,I=170,W=90,B=275,FB=410,C=15"  # microseconds; no two sums of two are the same


def built(name: str) -> Schedule:
    made = pipesched.load(name, **LIBRARY[name])
    assert isinstance(made, Schedule)
    return made


def played(schedule: Schedule, costs: str, *, torch: bool, late: tuple[int, int, int] | None = None) -> list[Events]:
    """The events of every rank. torch: as its profiler records them, else as ours does. late: rank, position, by."""
    run = simulate.run(schedule, simulate.rows(Costs.parse(costs), schedule.stages))
    made = []
    for rank, order in enumerate(run.orders):
        events, free = [], Fraction(0)
        for slot in simulate.slots(order):
            start, end = run.start[rank, slot[0]], run.end[rank, slot[-1]]
            if late is not None and late[0] == rank and slot[0] >= late[1]:
                start, end = start + late[2], end + late[2]
            parts = [(x.op.name, x.stage, x.microbatch) for x in (order[i] for i in slot)]
            events.append(event(rank, parts, free, start, end, torch=torch))
            free = end
        made.append(events)
    return made


def event(
    rank: int, parts: list[tuple[str, int, int]], begin: Fraction, start: Fraction, end: Fraction, *, torch: bool
) -> dict[str, Any]:
    names = [f"{stage}{op}{microbatch}" for op, stage, microbatch in parts]
    name = names[0] if len(names) == 1 else f"({';'.join(names)})OVERLAP_F_B"
    if torch:
        return {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"PP:{name}",
            "ts": float(begin),
            "dur": float(end - begin),
        }
    first, *others = ({"op": op, "stage": stage, "microbatch": microbatch} for op, stage, microbatch in parts)
    args = {"rank": rank, **first, "waited": float(start - begin) / 1e6}
    if others:
        args["with"] = others[0]
    return {"ph": "X", "pid": rank, "name": name, "ts": float(begin), "dur": float(end - begin), "args": args}


def written(folder: Path, ranks: list[Events], *, torch: bool) -> list[str]:
    """One file a rank with torch, told by `distributedInfo` and given in the wrong order; else one file for all."""
    if not torch:
        file = folder / "run.json"
        file.write_text(json.dumps({"traceEvents": [x for events in ranks for x in events]}), "utf-8")
        return [str(file)]
    files = []
    for rank, events in enumerate(ranks):
        file = folder / f"rank{rank}.json"
        base = 1_790_857_026_000_000_000 + rank * 1_000_000  # each file counts from a time of its own
        about = {"distributedInfo": {"rank": rank}, "baseTimeNanoseconds": base}
        moved = [{**x, "ts": x["ts"] - rank * 1000} for x in events]
        file.write_text(json.dumps({**about, "traceEvents": moved}), "utf-8")
        files.append(str(file))
    return files[::-1]


def shown(name: str, files: list[str], capsys: Captured, *options: str) -> tuple[int, str, str]:
    """What ``show --measured`` says: status, stdout, stderr."""
    sizes = [x for key, value in LIBRARY[name].items() for x in (f"--{key}", str(value))]
    given = [x for file in files for x in ("--measured", file)]
    status = main(["show", name, *sizes, "--cost", COSTS, *given, *options])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.parametrize("name", LIBRARY)
class TestKnownRuns:
    """Runs that kept to their plan."""

    @pytest.mark.parametrize("torch", [False, True], ids=["ours", "torch"])
    def test_a_run_that_keeps_to_its_plan_is_its_plan(
        self, name: str, torch: bool, tmp_path: Path, capsys: Captured
    ) -> None:
        """Every ratio is 1, nothing is late, and both rows of a rank are the same; torch's messages count as work."""
        costs = COSTS.replace("C=15", "C=0") if torch else COSTS
        files = written(tmp_path, played(built(name), costs, torch=torch), torch=torch)
        status, out, err = shown(name, files, capsys, "--cost", costs, "--width", "300", "--json")
        told = json.loads(out)

        assert (status, err) == (0, "")
        assert told["measured"]["late"] == [] and told["measured"]["clocks_disagree"] == 0
        assert [x["ratio"] for x in told["measured"]["ratios"]] == pytest.approx([1] * len(told["measured"]["ratios"]))
        assert told["measured"]["unit"] == pytest.approx(1e-6)
        rows = re.findall(r"^(?:rank \d+ plan|       run )  (.*)$", told["picture"], re.M)
        assert len(rows) == 2 * built(name).ranks
        assert rows[::2] == rows[1::2]

    def test_fits_are_the_costs(self, name: str, tmp_path: Path, capsys: Captured) -> None:
        """Where waits are told, every cost that is fitted is exactly the given one, C where somebody waited."""
        files = written(tmp_path, played(built(name), COSTS, torch=False), torch=False)
        assert main(["calibrate", *files, "--digits", "9", "--json", "-o", str(tmp_path / "costs.toml")]) == 0
        made, given = json.loads(capsys.readouterr().out), Costs.parse(COSTS)
        found = tomllib.loads((tmp_path / "costs.toml").read_text("utf-8"))

        assert {"F", "C"} < {fit["cost"] for fit in made["fits"]}
        for fit in made["fits"]:
            assert found[fit["cost"]][fit["stage"]] == given[fit["cost"]], fit

    def test_fits_of_torch_hold_no_more_than_a_message(self, name: str, tmp_path: Path, capsys: Captured) -> None:
        """A record of torch's holds the wait, so a fit is the cost, or that and the way of a message."""
        files = written(tmp_path, played(built(name), COSTS, torch=True), torch=True)
        assert main(["calibrate", *files, "--digits", "9", "--json"]) == 0
        given = Costs.parse(COSTS)
        for fit in json.loads(capsys.readouterr().out)["fits"]:
            cost = given[fit["cost"]]
            assert isinstance(cost, Fraction)
            if fit["cost"] != "C":
                assert cost <= fit["median"] <= cost + 15, fit
                assert fit["cost"] != "W" or fit["median"] == cost  # it needs no message


def test_a_late_rank_is_named(tmp_path: Path, capsys: Captured) -> None:
    """The first operation that starts late, of each rank that has one, and nobody else; the plan stays as it is."""
    schedule = built("1f1b")
    files = written(tmp_path, played(schedule, COSTS, torch=False, late=(3, 6, 400)), torch=False)
    _, out, _ = shown("1f1b", files, capsys, "--json")
    (late,) = json.loads(out)["measured"]["late"]

    assert (late["rank"], late["operation"]) == (3, str(schedule.order(3)[6]))
    assert late["ran"] - late["planned"] == pytest.approx(400, rel=0.01)
    _, text, _ = shown("1f1b", files, capsys)
    assert re.search(rf"^rank 3 is late from {re.escape(late['operation'])} on: .*\(\+\d+", text, re.M)


def test_a_slow_stage_is_named(tmp_path: Path, capsys: Captured) -> None:
    """The kind and stage whose work is furthest from its cost comes first."""
    schedule = built("zb_h1")
    slow = COSTS.replace("I=170", "I=[170,170,340,170]")
    files = written(tmp_path, played(schedule, slow, torch=False), torch=False)
    _, text, _ = shown("zb_h1", files, capsys, "--width", "200")

    assert re.search(r"^furthest from their cost: I of stage 2 ", text, re.M)


def test_both_pictures_of_a_figure_are_on_one_clock(tmp_path: Path, capsys: Captured) -> None:
    """A run that kept to its plan is drawn twice alike, the run below the plan; the same bytes each time."""
    files = written(tmp_path, played(built("zb_h1"), COSTS, torch=False), torch=False)
    figures = [shown("zb_h1", files, capsys, "--format", "svg")[1] for _ in range(2)]
    plan, run = ElementTree.fromstring(figures[0]).findall("{*}g")

    def boxes(part: ElementTree.Element) -> list[tuple[str | None, ...]]:
        return [tuple(x.get(key) for key in ("x", "y", "width")) for x in part.iter() if x.tag.endswith("rect")]

    assert figures[0] == figures[1]
    assert [x for part in (plan, run) for x in part.itertext() if x.startswith(("plan: ", "run: "))]
    assert len(boxes(plan)) > len(built("zb_h1")) and boxes(plan) == boxes(run)


def later(events: Events, by: float, slower: float = 1) -> Events:
    """The same operations once more, later, and so many times slower."""
    return [{**x, "ts": by + x["ts"] * slower, "dur": x["dur"] * slower} for x in events]


@pytest.mark.parametrize("torch", [False, True], ids=["ours", "torch"])
def test_warm_up_and_outliers_do_not_count(torch: bool, tmp_path: Path, capsys: Captured) -> None:
    """A first step three times slower, and one operation of a later step a hundred times, change no fit."""
    schedule = built("zb_h1")
    once = played(schedule, COSTS, torch=torch)
    ranks = [[y for i in range(3) for y in later(events, 100_000.0 * i, 3 if i == 0 else 1)] for events in once]
    steady = calibrated(once, torch, tmp_path, capsys)
    for events in ranks:
        w = max(i for i, x in enumerate(events) if "W" in x["name"])
        events[w] = {**events[w], "dur": 100 * events[w]["dur"]}
    told = calibrated(ranks, torch, tmp_path, capsys)
    picture = json.loads(shown("zb_h1", written(tmp_path, ranks, torch=torch), capsys, "--json")[1])

    assert picture["measured"]["step"] == 2  # the first warms up, the third has the outlier
    assert told["steps"] == 3
    for fit in told["fits"]:
        if not torch or fit["cost"] == "W":
            assert fit["median"] == Costs.parse(COSTS)[fit["cost"]]
        assert fit["cost"] != "W" or fit["left_out"] == 1
    assert {(x["cost"], x["stage"]) for x in steady["fits"]} == {(x["cost"], x["stage"]) for x in told["fits"]}


def calibrated(ranks: list[Events], torch: bool, folder: Path, capsys: Captured) -> dict[str, Any]:
    """The object of `calibrate`."""
    assert main(["calibrate", *written(folder, ranks, torch=torch), "--digits", "9", "--json"]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


@pytest.mark.parametrize("torch", [False, True], ids=["ours", "torch"])
def test_clocks_that_disagree_are_told(torch: bool, tmp_path: Path, capsys: Captured) -> None:
    """The clock of rank 2 is 9 ms behind: it uses what is made only after that; both commands say so."""
    ranks = [
        later(events, 1_000 if rank == 2 else 10_000)
        for rank, events in enumerate(played(built("zb_h1"), COSTS, torch=torch))
    ]
    files = written(tmp_path, ranks, torch=torch)
    assert main(["calibrate", *files]) == 0
    assert "the clocks of the ranks disagree" in capsys.readouterr().out
    assert re.search(r"^the clocks of the ranks disagree by [89](\.\d+)? ms", shown("zb_h1", files, capsys)[1], re.M)


def test_backwards_that_are_whole_are_split_as_others_are(tmp_path: Path, capsys: Captured) -> None:
    """Of B = 40, I and W take the parts that they take of stage 1, 30 to 10; B of stage 1 is their sum."""
    first = [("0F0", 0, 20), ("0B0", 400, 40)]
    last = [("1F0", 100, 20), ("1I0", 200, 30), ("1W0", 300, 10)]
    ranks = [[{"ph": "X", "name": f"PP:{x}", "ts": t, "dur": d} for x, t, d in rank] for rank in (first, last)]
    made = calibrated(ranks, True, tmp_path, capsys)

    assert {key: row for key, row in made["costs"].items() if key != "C"} == {
        "F": [20, 20],
        "I": [30, 30],
        "W": [10, 10],
        "B": [40, 40],
    }
    assert "stage 0 never ran I alone: it is that part of B which it is elsewhere" in made["notes"]
    assert "stage 1 never ran a full backward: B is I + W there" in made["notes"]


@pytest.mark.parametrize("width", [32, 60, 100, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_nothing_is_wider_than_it_may_be(width: int, plain: bool, tmp_path: Path, capsys: Captured) -> None:
    """Every line fits, whatever the width; in ASCII on demand; a part of time has rows of its own."""
    files = written(tmp_path, played(built("interleaved"), COSTS, torch=False), torch=False)
    window = ("--from", "500", "--to", "1200") if plain else ()
    status, out, _ = shown(
        "interleaved", files, capsys, "--width", str(width), *window, *(["--ascii"] if plain else [])
    )

    assert status == 0 and out.isascii() == plain
    assert max(map(len, out.splitlines())) <= width
    assert len(re.findall(r"^rank \d plan  \S", out, re.M)) == 2


def test_a_plan_that_never_ends_is_told(tmp_path: Path, capsys: Captured) -> None:
    """There is nothing to lay a run over: what is wrong with the file is said."""
    file = tmp_path / "stuck.txt"
    file.write_text("rank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.1 B1.1 F1.0 B1.0\n", "utf-8")
    assert main(["show", str(file), "--measured", TORCH[0], "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert found["code"] == "PS306"


@pytest.mark.usefixtures("one_supervisor")
def test_what_run_writes_is_read(tmp_path: Path, capsys: Captured) -> None:
    """Real processes: the trace of `run` is laid over what ran, and fits are not below the pace."""
    file = tmp_path / "run.json"
    asked = ["dualpipev", "--p", "2", "--m", "5"]
    assert main(["run", *asked, "--steps", "2", "--pace", "2", "--trace", str(file)]) == 0
    assert main(["show", *asked, "--measured", str(file)]) == 0
    capsys.readouterr()
    assert main(["calibrate", str(file), "--json"]) == 0
    fits = [(x["cost"], x["low"]) for x in json.loads(capsys.readouterr().out)["fits"]]
    paced = {"F": 2000, "I": 2000, "W": 2000, "B": 4000, "FB": 6000}
    assert {cost for cost, _ in fits} >= {"F", "FB"}
    assert all(low >= 0.95 * paced[cost] for cost, low in fits if cost != "C")


@pytest.mark.parametrize("cut", [False, True])
def test_packed_traces_are_read(cut: bool, tmp_path: Path, capsys: Captured) -> None:
    """A file that ends in .gz says what it says unpacked; one that was cut off cannot be read."""
    packed = []
    for number, name in enumerate(TORCH):
        content = gzip.compress(Path(name).read_bytes())
        packed.append(str(tmp_path / f"{number}.json.gz"))
        Path(packed[-1]).write_bytes(content[: len(content) // 2] if cut else content)
    assert main(["calibrate", *TORCH]) == 0
    table = capsys.readouterr().out
    assert main(["calibrate", *packed]) == (2 if cut else 0)
    said = capsys.readouterr()
    assert said.out == ("" if cut else table) and said.err.startswith("error[PS809]: ") == cut


def test_a_rank_without_operations_needs_no_trace(tmp_path: Path, capsys: Captured) -> None:
    """One of three ranks holds no stage: the run of the other two is that of the schedule."""
    file = tmp_path / "idle.ps"
    file.write_text(
        "schedule idle(m = 2)\nstage s in 0 .. 2 on rank 2 * s\nrank r { if r != 1 { repeat m { F B } } }\n", "utf-8"
    )
    made = pipesched.load(file)
    assert isinstance(made, Schedule) and made.ranks == 3
    files = written(tmp_path, [x for x in played(made, COSTS, torch=True) if x], torch=True)
    assert main(["show", str(file), *(x for name in files for x in ("--measured", name))]) == 0


class TestTorchsOwnTrace:
    """What torch 2.13's profiler wrote of three steps of its zero-bubble V schedule on two gloo processes."""

    def test_it_ran_our_order(self, capsys: Captured) -> None:
        """torch's ScheduleZBVZeroBubble is zb_v, operation for operation."""
        arguments = ["show", "zb_v", "--p", "2", "--m", "4", "--json"]
        assert main([*arguments, "--measured", TORCH[1], "--measured", TORCH[0]]) == 0
        assert len(json.loads(capsys.readouterr().out)["measured"]["steps"]) == 3

    def test_fits_are_what_the_stages_slept(self, capsys: Captured) -> None:
        """No operation is shorter than its sleep; a fit is at most 2 ms longer. Nothing asks stage 0 for an I."""
        assert main(["calibrate", *TORCH, "--json"]) == 0
        fits = {(x["cost"], x["stage"]): x for x in json.loads(capsys.readouterr().out)["fits"]}
        assert fits.pop(("I", 0))["median"] < 100
        for (cost, stage), fit in fits.items():
            if cost != "C":
                asleep = 1000 * ASLEEP[cost][stage]
                assert asleep <= fit["low"] <= fit["median"] <= asleep + 2000, fit


def ops(*names: str, length: int = 10) -> Events:
    return [{"ph": "X", "name": f"PP:{x}", "ts": i * length, "dur": length} for i, x in enumerate(names)]


def trace(*names: str) -> str:
    return json.dumps({"traceEvents": ops(*names)})


BAD = {
    "empty": ("", "PS816"),
    "blank": (" \n", "PS816"),
    "broken": ('{"traceEvents": [{"ph": "X"', "PS816"),
    "deep": ("[" * 100_000, "PS816"),
    "digits": ('{"traceEvents": [' + "9" * 5000 + "]}", "PS816"),
    "number": ("7", "PS816"),
    "object": ("{}", "PS816"),
    "events": ('{"traceEvents": {"ph": "X"}}', "PS816"),
    "others": ('{"traceEvents": [1, null, {"ph": "X", "name": "aten::mm", "ts": 0, "dur": 1}]}', "PS816"),
    "sends": (trace("0SEND_F0", "0REDUCE_GRAD"), "PS816"),
    "action": (trace("0F0", "0G0"), "PS816"),
    "no time": ('{"traceEvents": [{"ph": "X", "name": "PP:0F0"}]}', "PS816"),
    "text": ('{"traceEvents": [{"ph": "X", "name": "PP:0F0", "ts": "0", "dur": 1}]}', "PS816"),
    "infinite": ('{"traceEvents": [{"ph": "X", "name": "PP:0F0", "ts": 0, "dur": Infinity}]}', "PS816"),
    "negative": ('{"traceEvents": [{"ph": "X", "name": "PP:0F0", "ts": 0, "dur": -1}]}', "PS816"),
    "rankless": (
        '{"traceEvents": [{"ph": "X", "ts": 0, "dur": 1, "args": {"op": "F", "stage": 0, "microbatch": 0}}]}',
        "PS816",
    ),
    "stage": (
        '{"traceEvents": [{"ph": "X", "pid": 0, "ts": 0, "dur": 1, "args": {"op": "F", "stage": -1}}]}',
        "PS816",
    ),
    "twice": (trace("0F0", "0B0", "0F0"), "PS818"),
    "no backward": (trace("0F0", "0F1", "0B0"), "PS818"),
    "no forward": (trace("1F0", "1B0"), "PS818"),
    "half": (trace("0F0", "0I0"), "PS818"),
    "far": (trace("9999999F9999999", "0B0"), "PS818"),
    "in a pair and alone": (trace("0F0", "0F1", "(0F1;0B0)OVERLAP_F_B", "0B1"), "PS818"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_trace_is_told(case: str, tmp_path: Path, capsys: Captured) -> None:
    """One coded error and status 1 from both commands, as text and as JSON; nothing is written."""
    text, code = BAD[case]
    (tmp_path / "bad.json").write_text(text, "utf-8")
    for command in (["calibrate"], ["show", "1f1b", "--p", "2", "--measured"]):
        costs = tmp_path / "costs.toml"
        extra = ["-o", str(costs)]
        assert main([*command, str(tmp_path / "bad.json"), "--json", *extra]) == 1
        (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
        assert found["code"] == code and not costs.exists()
        assert main([*command, str(tmp_path / "bad.json")]) == 1
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith(f"error[{code}]: ")


OTHERS = {
    "ranks": ("--p", "3", "--m", "2"),
    "microbatches": ("--p", "2", "--m", "3"),
}


@pytest.mark.parametrize("sizes", OTHERS.values(), ids=OTHERS)
def test_a_run_of_other_sizes_is_told(sizes: tuple[str, ...], tmp_path: Path, capsys: Captured) -> None:
    """PS817 with both numbers."""
    made = pipesched.load("1f1b", p=2, m=2)
    assert isinstance(made, Schedule)
    files = written(tmp_path, played(made, COSTS, torch=False), torch=False)
    assert main(["show", "1f1b", *sizes, "--measured", *files, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert found["code"] == "PS817" and "2" in found["message"] and "3" in found["message"]


@pytest.mark.parametrize("other", ["gpipe", "zb_h1"])
def test_a_run_of_another_schedule_is_told(other: str, tmp_path: Path, capsys: Captured) -> None:
    """PS817 names the first operation that differs."""
    made = pipesched.load("1f1b", p=2, m=4)
    assert isinstance(made, Schedule)
    files = written(tmp_path, played(made, COSTS, torch=False), torch=False)
    assert main(["show", other, "--p", "2", "--m", "4", "--measured", *files, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert found["code"] == "PS817" and re.search(r"as operation \d+ of rank \d+ the schedule has", found["message"])


def test_the_trace_of_a_copy_is_told(tmp_path: Path, capsys: Captured) -> None:
    """Two data-parallel copies of one rank are not one pipeline."""
    made = pipesched.load("1f1b", p=2, m=2)
    assert isinstance(made, Schedule)
    files = written(tmp_path, [played(made, COSTS, torch=True)[0]] * 2, torch=True)
    assert main(["calibrate", *files]) == 1
    assert re.match(r"error\[PS818\]: F0.0 ran on two ranks, 0 and 1\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["calibrate"],
        ["calibrate", "missing.json"],
        ["calibrate", str(DATA)],
        ["calibrate", *TORCH, "--digits", "0"],
        ["calibrate", *TORCH, "--digits", "x"],
        ["show", "zb_v", "--p", "2", "--m", "4", "--measured", "missing.json"],
        ["show", "zb_v", "--p", "2", "--m", "4", "--measured", TORCH[0], "--format", "html"],
        ["show", "zb_v", "--p", "2", "--m", "4", "--measured", TORCH[0], "--format", "svg", "--messages"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_status_2(arguments: list[str], folder: Path, capsys: Captured) -> None:
    """A coded error on stderr, nothing on stdout."""
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" and re.match(r"error\[PS(225|809)\]: ", said.err)


def keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys(inner)


@pytest.mark.parametrize("command", ["calibrate", "show"])
def test_the_keys_are_documented(command: str, capsys: Captured) -> None:
    """The row of the command in emit/README.md names every key of its object."""
    arguments = ["show", "zb_v", "--p", "2", "--m", "4", "--measured"] if command == "show" else ["calibrate"]
    given = [TORCH[0], "--measured", TORCH[1]] if command == "show" else TORCH
    assert main([*arguments, *given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    text = (DATA.parent.parent / "emit" / "README.md").read_text("utf-8")
    (row,) = re.findall(rf"^\| `{command}` \|(.*)\|$", text, re.M)
    sizes = {"p", "m", *"FIWBC", "FB"}
    assert {key for key in keys(found) if f"`{key}`" not in row} <= sizes


def test_costs_go_where_they_are_asked(tmp_path: Path, capsys: Captured) -> None:
    """Without -o a table alone; with -o FILE the costs there, with -o - on stdout and the table on stderr."""
    file = tmp_path / "costs.toml"
    assert main(["calibrate", *TORCH]) == 0
    table = capsys.readouterr().out
    assert main(["calibrate", *TORCH, "-o", str(file)]) == 0
    assert capsys.readouterr().out == table
    assert main(["calibrate", *TORCH, "-o", "-"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (file.read_text("utf-8"), table)
    assert main(["verify", "zb_v", "--p", "2", "--m", "4", "--costs", str(file)]) == 0
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("digits", [1, 2, 3, 5])
def test_digits_are_significant(digits: int, capsys: Captured) -> None:
    """A cost is within half a unit of its last digit of the median."""
    assert main(["calibrate", *TORCH, "--digits", str(digits), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    for fit in made["fits"]:
        cost = float(Fraction(made["costs"][fit["cost"]][fit["stage"]]))
        assert cost == pytest.approx(fit["median"], rel=0.5 * 10.0 ** (1 - digits) + 1e-9)
