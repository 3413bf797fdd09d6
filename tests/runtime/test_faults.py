"""Each of fifty faults ends every rank with a code and the place of the fault, and leaves no process behind.

The faults are made in the ranks themselves (`breaking`) or are other streams; two supervisors run them side by
side, and the tests then look at the ranks' reports.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from pipesched.__main__ import main
from pipesched.compile import Options, read
from pipesched.runtime.execute import launch
from pipesched.runtime.execute.errors import RunError
from pipesched.runtime.execute.launch import Break, Job, Launcher, Outcome
from pipesched.stream import Instruction, Stream, dumps, loads
from pipesched.verbs.emit import emit
from tests.depth import deep, in_usual_run

TIMEOUT = 3.0
STARTING = 20.0
"""The seconds for the forked ranks to find each other on a machine that does other things too; they need about 0.1."""

SIZES = {
    "gpipe": {"p": 2, "m": 3},
    "1f1b": {"p": 4, "m": 4},
    "zb_h1": {"p": 3, "m": 4},
    "interleaved": {"p": 2, "v": 2, "m": 4},
    "dualpipe": {"p": 4, "m": 8},
}


@cache
def stream_of(name: str, **other: int) -> Stream:
    return loads("".join(emit(read(name), Options({**SIZES[name], **other}), "stream").pieces()))


@dataclass(frozen=True)
class Case:
    """A fault: the schedule, the injected fault, and the code that every rank must end with."""

    schedule: str
    fault: str
    code: str
    altered: Stream | None = None
    rank: int = -1
    agree: bool = True

    @property
    def name(self) -> str:
        return f"{self.schedule}-{self.fault}"

    @property
    def broken(self) -> Break | None:
        return None if self.altered is not None else Break.parse(self.fault)

    @property
    def job(self) -> Job:
        stream = stream_of(self.schedule)
        others = {} if self.altered is None else {self.rank: dumps(self.altered)}
        breaks = () if self.broken is None else (self.broken,)
        return Job(dumps(stream), len(stream.ranks), timeout=TIMEOUT, agree=self.agree, others=others, breaks=breaks)


def broken(code: str, schedule: str, *faults: str) -> list[Case]:
    return [Case(schedule, fault, code) for fault in faults]


def edited(stream: Stream, rank: int, instructions: list[Instruction]) -> Stream:
    return replace(stream, ranks=(*stream.ranks[:rank], tuple(instructions), *stream.ranks[rank + 1 :]))


def without_a_send(name: str, rank: int, number: int) -> Stream:
    """Return the stream without the rank's n-th send."""
    mine = list(stream_of(name).ranks[rank])
    del mine[[i for i, x in enumerate(mine) if x.op.startswith("SEND")][number]]
    return edited(stream_of(name), rank, mine)


def with_swapped_receives(name: str, rank: int) -> Stream:
    """Swap the first two receives of one kind."""
    mine = list(stream_of(name).ranks[rank])
    kind = next(x.op for x in mine if x.op.startswith("RECV"))
    first, second, *_ = [i for i, x in enumerate(mine) if x.op == kind]
    mine[first], mine[second] = mine[second], mine[first]
    return edited(stream_of(name), rank, mine)


def with_another_microbatch(name: str, rank: int) -> Stream:
    """Return the stream in which the first forward takes the last microbatch of its route."""
    stream = stream_of(name)
    mine = list(stream.ranks[rank])
    at = next(i for i, x in enumerate(mine) if x.op == "F")
    mine[at] = replace(mine[at], microbatch=stream.placement[mine[at].route].microbatches[1] - 1)
    return edited(stream, rank, mine)


ALTERED = {
    "dropped send": [("1f1b", 1, without_a_send("1f1b", 1, 0)), ("dualpipe", 2, without_a_send("dualpipe", 2, 3))],
    "swapped receives": [
        ("1f1b", 2, with_swapped_receives("1f1b", 2)),
        ("gpipe", 1, with_swapped_receives("gpipe", 1)),
    ],
    "wrong microbatch": [
        ("zb_h1", 0, with_another_microbatch("zb_h1", 0)),
        ("1f1b", 3, with_another_microbatch("1f1b", 3)),
        ("interleaved", 1, with_another_microbatch("interleaved", 1)),
    ],
}
OTHER = [("1f1b", 2, stream_of("gpipe", p=4, m=4)), ("zb_h1", 0, stream_of("zb_h1", m=5))]

ALL = [
    *broken("PS823", "1f1b", "kill@0:1", "kill@1:4", "kill@2:9", "kill@3:6"),
    *broken("PS823", "zb_h1", "kill@0:8", "kill@2:3"),
    *broken("PS823", "interleaved", "kill@1:5"),
    *broken("PS823", "dualpipe", "kill@0:12", "kill@3:20"),
    *broken("PS825", "1f1b", "raise@0:1", "raise@2:5", "raise@3:7"),
    *broken("PS825", "dualpipe", "raise@1:10"),
    *broken("PS825", "gpipe", "raise@1:2", "raise-backward@0:1"),
    *broken("PS825", "zb_h1", "raise-backward@1:2", "raise-backward@2:6"),
    *broken("PS826", "1f1b", "nan@3:2", "nan@0:3"),
    *broken("PS826", "zb_h1", "nan@2:5"),
    *broken("PS826", "interleaved", "nan@1:7"),
    *broken("PS824", "1f1b", "shape@0:2", "shape@2:5"),
    *broken("PS824", "gpipe", "shape@0:1"),
    *broken("PS824", "interleaved", "shape@0:6"),
    *broken("PS824", "dualpipe", "shape@1:8"),
    *broken("PS824", "1f1b", "dtype@0:1", "dtype@1:6"),
    *broken("PS824", "zb_h1", "dtype@1:4"),
    *broken("PS824", "interleaved", "dtype@1:3"),
    *broken("PS824", "dualpipe", "dtype@2:5"),
    *broken("PS822", "1f1b", "stall@2:6", "stall@0:1"),
    *broken("PS822", "zb_h1", "stall@1:9"),
    *broken("PS822", "gpipe", "stall@1:4"),
    *broken("PS822", "dualpipe", "stall@3:15"),
    *[Case(name, kind, "PS821", made, rank) for kind, all_made in ALTERED.items() for name, rank, made in all_made],
    *[Case(name, "other file", "PS821", made, rank) for name, rank, made in OTHER],
    *[
        Case(name, "dropped send, not agreed on", "PS822", made, rank, agree=False)
        for name, rank, made in ALTERED["dropped send"]
    ],
    Case("1f1b", "other file, not agreed on", "PS822", OTHER[0][2], 2, agree=False),
    Case("1f1b", "last send dropped, not agreed on", "PS822", without_a_send("1f1b", 3, -1), 3, agree=False),
    Case("interleaved", "send dropped, not agreed on", "PS822", without_a_send("interleaved", 1, 2), 1, agree=False),
]
FIRST = {(case.schedule, case.fault.partition("@")[0]): case for case in reversed(ALL)}
EACH = {case.fault.partition("@")[0]: case for case in reversed(ALL)}
CASES = ALL if deep(1) > 1 else [case for case in ALL if case in (EACH if in_usual_run() else FIRST).values()]
"""Each kind of fault once, with ``--full`` once for a schedule; all with ``--depth 2``."""


@dataclass(frozen=True)
class Ended:
    """The end of a case. left: other processes of the supervisor's group when the last rank ends."""

    outcome: Outcome
    left: list[int]


def processes(group: int) -> list[int]:
    """Return the living processes of a process group, without its leader."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, _, pgrp, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(pgrp) == group and int(entry.name) != group and state != "Z":
                found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def ended(supervisor: Callable[[], Launcher]) -> dict[str, Ended]:
    """Run all cases, with --full two at a time; then a closed supervisor leaves no process."""

    def run(launcher: Launcher, cases: list[Case]) -> dict[str, Ended]:
        return {case.name: Ended(launcher.run(case.job), processes(launcher.pid)) for case in cases}

    if in_usual_run():
        return run(supervisor(), CASES)
    with Launcher() as own, ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, (own, supervisor()), (CASES[::2], CASES[1::2]))
    assert not os.path.exists(f"/proc/{own.pid}")
    return first | second


def test_there_are_fifty() -> None:
    assert len(ALL) >= 50
    assert len({case.name for case in ALL}) == len(ALL)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_rank_ends_with_the_code(case: Case, ended: dict[str, Ended]) -> None:
    """The code on every rank that is alive; the place of the faulty rank; and no process is left."""
    outcome = ended[case.name].outcome
    faults = {result.rank: result.fault for result in outcome.ranks}
    killed = case.broken.rank if case.broken is not None and case.broken.kind == "kill" else None
    assert faults.pop(killed, None) is None if killed is not None else True

    assert {rank: fault and fault.code for rank, fault in faults.items()} == dict.fromkeys(faults, case.code)
    assert outcome.fault is not None
    assert outcome.fault.code == case.code
    assert outcome.fault.place is not None
    assert ended[case.name].left == []
    if case.broken is not None and case.broken.kind != "nan":
        assert outcome.fault.place.rank == case.broken.rank
    if case.code == "PS821":
        assert outcome.fault.place.rank == case.rank


@pytest.mark.parametrize("case", [c for c in CASES if c.broken and c.broken.kind != "kill"], ids=lambda case: case.name)
def test_the_instruction_is_named(case: Case, ended: dict[str, Ended]) -> None:
    """Step, position and text of the instruction are those of the stream, at or after the requested one."""
    fault = ended[case.name].outcome.fault
    assert case.broken is not None
    assert fault is not None
    assert fault.place is not None
    place, stream = fault.place, stream_of(case.schedule)

    assert place.step == 1
    assert place.text == str(stream.ranks[place.rank][place.instruction - 1])
    assert place.rank != case.broken.rank or place.instruction >= case.broken.instruction
    if case.code == "PS822":
        assert place.instruction == case.broken.instruction


@pytest.mark.parametrize("case", [c for c in CASES if c.code == "PS822"], ids=lambda case: case.name)
def test_a_stall_says_who_waits_for_what(case: Case, ended: dict[str, Ended]) -> None:
    """Every rank but the stalled one is named once, and at least one waits for a message."""
    fault = ended[case.name].outcome.fault
    assert fault is not None
    said = [str(fault.place), *fault.notes]

    assert [
        sum(line.startswith(f"rank {rank}") for line in said) for rank in range(len(stream_of(case.schedule).ranks))
    ] == [1 for _ in stream_of(case.schedule).ranks]
    assert any("waits for activation" in line or "waits for gradient" in line for line in said)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_ends_in_time(case: Case, ended: dict[str, Ended]) -> None:
    """The run ends within the timeout + 2 s, without the time to start.

    The supervisor kills the remaining ranks 2 s and the timeout after the first failure. It had no rank to kill.
    """
    outcome = ended[case.name].outcome
    killed = [result.rank for result in outcome.ranks if result.status < 0]

    assert not any(result.stopped for result in outcome.ranks)
    assert killed == ([case.broken.rank] if case.broken is not None and case.broken.kind == "kill" else [])
    assert max(result.seconds for result in outcome.ranks) <= STARTING + TIMEOUT + 2


EXTRA = 5.0
"""Seconds beyond the timeout: a hard limit of the issue."""


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_is_stopped_is_ended_with_the_others(rank: int, launcher: Launcher) -> None:
    """If rank 0 is stopped, the running ranks report it, the supervisor kills it, and the whole run ends in time."""
    job = replace(Case("1f1b", f"freeze@{rank}:3", "PS823").job, timeout=2.0)
    began = time.monotonic()
    outcome = launcher.run(job)
    spent = time.monotonic() - began
    faults = [result.fault for result in outcome.ranks if result.rank != rank]

    assert {fault and fault.code for fault in faults} == {"PS823"}
    assert all(fault and f"rank {rank} is gone: no sign of life for 2 s" in fault.message for fault in faults)
    assert [result.rank for result in outcome.ranks if result.stopped] == [rank]
    assert outcome.fault is not None and f"rank {rank} did not end by itself and was killed" in outcome.fault.notes
    assert spent <= STARTING + 2.0 + EXTRA
    assert max(r.seconds for r in outcome.ranks) - min(r.seconds for r in outcome.ranks) <= launch.EXTRA + 1


class Stopped(Launcher):
    """A supervisor that is stopped right after its first sign of life in the second job."""

    at: float | None = None

    def _line(self, limit: float) -> bytes:
        line = super()._line(limit)
        if line == b"\n" and self.at is not None:
            os.kill(self.pid, signal.SIGSTOP)
            self.at = self.at or time.monotonic()
        return line


@pytest.mark.nightly
def test_a_supervisor_that_is_stopped_is_ended_with_its_ranks() -> None:
    """The supervisor is silent for the timeout and a few seconds; then PS823 is reported, and no process is left."""
    broken = (Break("stall", 0, 1), Break("freeze", 1, 1))
    with Stopped() as launcher:
        assert launcher.run(replace(Case("1f1b", "raise@0:1", "PS825").job, timeout=1.0)).fault is not None
        launcher.at = 0.0
        with pytest.raises(RunError, match="no sign of life for 4 s"):
            launcher.run(replace(Case("1f1b", "raise@0:1", "PS825").job, timeout=1.0, breaks=broken))
        assert launcher.at and time.monotonic() - launcher.at <= 1.0 + EXTRA
        until = time.monotonic() + 10
        while processes(launcher.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert processes(launcher.pid) == []


REJECTED = [(kind, *one) for kind, made in ALTERED.items() for one in made]


@pytest.mark.parametrize(("kind", "name", "rank", "altered"), REJECTED, ids=lambda x: x if isinstance(x, str) else "")
def test_what_the_verifier_rejects_starts_no_process(
    kind: str,
    name: str,
    rank: int,
    altered: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A changed stream, as a file for all ranks, is refused with a finding, before any process starts."""

    def started() -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(launch, "Launcher", started)
    file = tmp_path / "altered.json"
    file.write_text(dumps(altered), "utf-8")

    assert main(["run", str(file)]) == 1
    assert "altered.json:" in capsys.readouterr().err
