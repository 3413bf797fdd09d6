"""A sweep of `verify` or `compare` by workers gives the same output as one process, byte for byte, with the same
errors and order."""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import active_children
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.diagnostics import PipeschedError, fail
from pipesched.planning.codes import PlanningCode
from pipesched.planning.executors import PORTION, Workers, divided, executor

TWO = "processes:2"
SWEEPS = (
    pytest.param("verify 1f1b zb_h1 missing.ps wrong.csv interleaved --p 2..5 --m 4..8", marks=pytest.mark.nightly),
    "verify 1f1b missing.ps wrong.csv --p 2..3 --m 4..5",
    "verify interleaved zb_v --p 2 --m 1..4 --mem-cap 3 --comm buffered(2) --jitter 5% --json",
    "verify 1f1b zb_v --p 2..3 --m 4,6 --cost F=1,B=2,C=1/3 --format concise",
    "verify one.ps --p 1..3,59..61 --format github",
    "verify 1f1b --p 4",
    pytest.param("compare gpipe 1f1b interleaved zb_h1 --p 2,4 --v 2 --m 8,12 --jitter 5%", marks=pytest.mark.nightly),
    "compare 1f1b dualpipe pipeoffload --p 3..4 --m 4,8 --json",
    pytest.param("compare 1f1b seq1f1b --p 2..4 --m 4 -D q=2 --json", marks=pytest.mark.nightly),
    "compare two.ps 1f1b --p 2..4",
)


def said(line: str) -> tuple[int, str, str]:
    """Return what a command prints, and its exit status."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(line.split())
    return status, out.getvalue(), err.getvalue()


@pytest.fixture
def files(folder: Path) -> None:
    """A file that stops at some sizes, one that refuses some, and a CSV that is wrong at every size."""
    body = "stage s in 0 .. p on rank s\nrank r {{ repeat {} {{ F B }} }}\n"
    Path("one.ps").write_text("schedule one(p, m = 3)\n" + body.format("m - p // 60"), "utf-8")
    Path("two.ps").write_text("schedule two(p, m)\nrequire p < 4\n" + body.format("m"), "utf-8")
    Path("wrong.csv").write_text("0F0,0B0\n0F1,1B0\n", "utf-8")


@pytest.mark.parametrize("line", SWEEPS)
def test_the_bytes_and_the_status_are_those_of_one_process(files: None, line: str) -> None:
    """Findings of files and sizes are at their place among the lines; an error that ends a command is the first."""
    assert said(f"{line} --executor {TWO}") == said(line)


def test_threads_of_the_caller_compare_too() -> None:
    """`pipesched.compare` takes any executor, and leaves it open."""
    with ThreadPoolExecutor(2) as threads:
        made = pipesched.compare("1f1b", "zb_h1", p="2..5", m=[8, 16], executor=threads)
        assert threads.submit(int).result() == 0
    assert made.to_json() == pipesched.compare("1f1b", "zb_h1", p="2..5", m=[8, 16]).to_json()


def whose(pieces: Sequence[int]) -> list[tuple[int, int]]:
    return [(piece, os.getpid()) for piece in pieces]


@pytest.mark.parametrize("count", [1, 31, 100, 40 * PORTION])
def test_every_piece_is_done_once_in_order_by_others(count: int) -> None:
    """The work is done by other processes, more than one if there are portions enough."""
    found = list(divided(whose, range(count), Workers(TWO)))
    assert [piece for piece, _ in found] == [*range(count)]
    assert os.getpid() not in {process for _, process in found}


def refuses(pieces: Sequence[int]) -> list[int]:
    if wrong := [piece for piece in pieces if piece >= 50]:
        raise fail(PlanningCode.CHOICE, f"piece {wrong[0]}")
    return [*pieces]


@pytest.mark.parametrize("by", ["here", TWO])
def test_the_first_error_is_raised_after_what_comes_before_it(by: str) -> None:
    """Of many pieces that raise, the first one's error is raised, and no process is left."""
    with pytest.raises(PipeschedError, match=r"PS247: piece 50$"):
        list(divided(refuses, range(2000), Workers(by)))
    assert list(divided(refuses, range(48), Workers(by))) == [*range(48)]
    assert not active_children()


def dies(pieces: Sequence[int]) -> list[int]:
    os._exit(9)


def test_a_lost_process_is_told() -> None:
    """A process that is killed is an error with a code, and not a traceback."""
    with pytest.raises(PipeschedError, match="PS249: a process ended"):
        list(divided(dies, range(3), Workers(TWO)))


def test_an_interrupt_ends_the_processes_at_once() -> None:
    """Ctrl-C waits for no portion: none of these would end within the minute."""
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), executor(TWO) as workers:  # noqa: PT012
        for _ in range(8):
            workers.submit(time.sleep, 100)
        raise KeyboardInterrupt
    assert not active_children() and time.monotonic() - begun < 90


@pytest.mark.parametrize(
    "name", ["cloud", "processes:0", "processes:1025", "processes:10240", "dask:", "dask", "2", ""]
)
@pytest.mark.parametrize("line", ["verify 1f1b --p 4", "compare 1f1b --p 4,5", "plan --gpus 8"])
def test_any_other_name_is_refused(name: str, line: str) -> None:
    """Also where there is one size, and before anything is read."""
    status, out, err = said(f"{line} --executor={name} --json")
    assert status == 2 and '"PS225"' in out + err and "processes:N" in out + err


def test_a_file_that_cannot_be_read_has_a_report_for_each_size(folder: Path) -> None:
    """Each names the file, its own size, and the reason."""
    status, out, _ = said("verify missing.ps 1f1b --p 2,3 --m 4 --json")
    runs = [
        (run["name"], run["parameters"], [x["code"] for x in run["diagnostics"]]) for run in json.loads(out)["runs"]
    ]
    missing = [("missing.ps", {"p": p, "m": 4}, ["PS809"]) for p in (2, 3)]
    assert status == 2 and runs == [*missing, *(("one_f_one_b", {"p": p, "m": 4}, []) for p in (2, 3))]
