"""A process that runs `optimize` can be interrupted, and its output closed, at any time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pipesched.library.assets import asset

OPTIMUM = Draft202012Validator(json.loads(asset("emit", "optimum.schema.json").read_text("utf-8")))
SMALL = ("--p", "2", "--m", "3")
UNEVEN = "F=[{}],I=[{}],W=[{}],C=3".format(
    *(",".join(str(20 + (7 * s + 5 * k * s * s) % 19) for s in range(8)) for k in (1, 2, 3))
)
HARD = ("--p", "4", "--m", "10", "--placement", "vee", "--mem-cap", "3", "--cost", UNEVEN)
"""Small enough for engines to be asked, and too large for them to answer."""


def start(*arguments: str, **how: Any) -> subprocess.Popen[str]:
    """Return `pipesched optimize` in a process group of its own."""
    command = [sys.executable, "-m", "pipesched", "optimize", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, **how)


def group(leader: int) -> set[int]:
    """Return the live processes of a session."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdecimal() else []
        except OSError:
            continue
        if fields and int(fields[3]) == leader and fields[0] != "Z":
            found.add(int(entry.name))
    return found


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_an_interrupt_ends_with_the_best_so_far() -> None:
    """SIGINT in an endless search gives status 3 and a schedule with its bound, and leaves no process."""
    with start(*HARD, "--time-limit", "300", "--json", stdout=subprocess.PIPE) as process:
        until = time.monotonic() + 60
        while len(group(process.pid)) < 3 and time.monotonic() < until:  # engines have started
            time.sleep(0.1)
        assert len(group(process.pid)) >= 3
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 3 and "Traceback" not in err
    value = json.loads(out)
    OPTIMUM.validate(value)
    assert (value["status"], value["reason"]) == ("best found", "interrupted")
    assert value["lower_bound"] < value["makespan"] and value["source"]
    until = time.monotonic() + 30
    while group(process.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not group(process.pid)


def test_a_closed_stdout_is_silent() -> None:
    """A reader that goes away causes no message."""
    reader, writer = os.pipe()
    os.close(reader)
    with start(*SMALL, stdout=writer) as process:
        os.close(writer)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 141 and err == ""
