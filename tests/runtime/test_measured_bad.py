"""A file that is not a measured run, or belongs to a different schedule, gets a code in `show` and in `calibrate`."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from tests.makers.measured_runs import (
    COSTS,
    DATA,
    TORCH,
    Captured,
    Events,
    played,
    written,
)


def ops(*names: str, length: int = 10) -> Events:
    return [{"ph": "X", "name": f"PP:{x}", "ts": i * length, "dur": length} for i, x in enumerate(names)]


def trace(*names: str) -> str:
    return json.dumps({"traceEvents": ops(*names)})


BAD = {
    "empty": ("", "PS816"),
    "blank": (" \n", "PS816"),
    "broken": ('{"traceEvents": [{"ph": "X"', "PS816"),
    "deep": ("[" * 100_000, "PS843"),
    "digits": ('{"traceEvents": [' + "9" * 5000 + "]}", "PS843"),
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
    """Both commands report one coded error with its status, as text and as JSON, and write no file."""
    text, code = BAD[case]
    status = 2 if code == "PS843" else 1
    (tmp_path / "bad.json").write_text(text, "utf-8")
    for command in (["calibrate"], ["show", "1f1b", "--p", "2", "--measured"]):
        costs = tmp_path / "costs.toml"
        assert main([*command, str(tmp_path / "bad.json"), "--json"]) == status
        (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
        assert found["code"] == code
        extra = ["-o", str(costs)] if command == ["calibrate"] else []
        assert main([*command, str(tmp_path / "bad.json"), *extra]) == status
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith(f"error[{code}]: ") and not costs.exists()


OTHERS = {
    "ranks": ("--p", "3", "--m", "2"),
    "microbatches": ("--p", "2", "--m", "3"),
}


@pytest.mark.parametrize("sizes", OTHERS.values(), ids=OTHERS)
def test_a_run_of_other_sizes_is_told(sizes: tuple[str, ...], tmp_path: Path, capsys: Captured) -> None:
    """PS817 is reported with both numbers."""
    made = pipesched.load("1f1b", p=2, m=2)
    files = written(tmp_path, played(made, COSTS, torch=False), torch=False)
    assert main(["show", "1f1b", *sizes, "--measured", *files, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert found["code"] == "PS817" and "2" in found["message"] and "3" in found["message"]


@pytest.mark.parametrize("other", ["gpipe", "zb_h1"])
def test_a_run_of_another_schedule_is_told(other: str, tmp_path: Path, capsys: Captured) -> None:
    """PS817 names the first operation that differs."""
    made = pipesched.load("1f1b", p=2, m=4)
    files = written(tmp_path, played(made, COSTS, torch=False), torch=False)
    assert main(["show", other, "--p", "2", "--m", "4", "--measured", *files, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert found["code"] == "PS817" and re.search(r"operation \d+ of rank \d+: the schedule has", found["message"])


def test_the_trace_of_a_copy_is_told(tmp_path: Path, capsys: Captured) -> None:
    """Two data-parallel copies of one rank are not one pipeline."""
    made = pipesched.load("1f1b", p=2, m=2)
    events = played(made, COSTS, torch=True)
    files = written(tmp_path, [events[0], events[1], events[0]], torch=True)
    assert main(["calibrate", files[2], files[0]]) == 1
    assert re.match(r"error\[PS818\]: F0.0 ran on two ranks, 0 and 2\n", capsys.readouterr().err)


@pytest.mark.parametrize("cut", [False, True])
def test_packed_traces_are_read(cut: bool, tmp_path: Path, capsys: Captured) -> None:
    """A .gz file reads like its content; a truncated one cannot be read."""
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


def test_a_plan_that_never_ends_is_told(tmp_path: Path, capsys: Captured) -> None:
    """Without a timeline to compare with, the fault of the file is reported."""
    file = tmp_path / "stuck.txt"
    file.write_text("rank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.1 B1.1 F1.0 B1.0\n", "utf-8")
    assert main(["show", str(file), "--measured", TORCH[0], "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert found["code"] == "PS306"


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
    """The command prints a coded error on stderr, and nothing on stdout."""
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
    sizes = {"p", "v", "m", *"FIWBC", "FB"}
    assert "`K_decimal`" in text  # documented once, for every key K
    assert {key for key in keys(found) if f"`{key.removesuffix('_decimal')}`" not in row} <= sizes
