"""Each certificate in `schedules/proofs` proves the schedule next to it and agrees with the table of theorems.

`python -m tests.prover.test_theorems` writes them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import pipesched
from pipesched.support.source import Source
from tests.prover.test_theorems import known

LIBRARY = Path(__file__).parents[2] / "schedules"
PROOFS = sorted(path.stem for path in (LIBRARY / "proofs").iterdir())
QUICK = {"1f1b", "forward_only", "zb_h1"}
LARGEST = 200_000  # bytes


def text(name: str) -> str:
    return (LIBRARY / f"{name}.ps").read_text("utf-8")


def test_what_is_proved_has_a_certificate() -> None:
    """A certificate of each schedule of which the table has something proved, and no other."""
    table = {name: entry["answers"] for name, entry in known().items() if " " not in name}
    proved = [name for name, answers in table.items() if any("proved" in x["findings"].values() for x in answers)]
    assert sorted(proved) == PROOFS


@pytest.mark.parametrize("name", PROOFS)
def test_it_is_of_the_text_beside_it(name: str) -> None:
    """Its text is that of the file; its domains and outcomes are those of the table; it is small."""
    path = LIBRARY / "proofs" / f"{name}.json"
    found = json.loads(path.read_text("utf-8"))
    assert found["schedule"]["text"] == text(name), "python -m tests.prover.test_theorems " + name
    answers = [
        (x["given"], x["domain"], {y["property"]: y["outcome"] for y in x["findings"]}) for x in found["answers"]
    ]
    assert answers == [(x["given"], x["domain"], x["findings"]) for x in known()[name]["answers"]]
    assert path.stat().st_size < LARGEST


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[] if x in QUICK else pytest.mark.nightly, id=x) for x in PROOFS]
)
def test_it_holds(name: str) -> None:
    """`verify` decides it anew and finds the same."""
    pytest.importorskip("islpy")
    path = LIBRARY / "proofs" / f"{name}.json"
    assert pipesched.verify(Source(path.name, path.read_text("utf-8"))).exit_status in (0, 3)


def last_line(source: Source, **sizes: int) -> str:
    return str(pipesched.verify(source, **sizes)).splitlines()[-1].strip()


def test_verify_names_the_domain() -> None:
    """For the text of the library wherever it lies, at sizes and parameters of an answer; for no other."""
    sizes = "every size with p >= 1 and m >= 1"
    proved = f"proved for {sizes}: complete, no deadlock, 4 of 4 claims at uniform costs: see `prove`"
    assert last_line(Source("mine/1f1b.ps", text("1f1b")), p=3) == proved
    assert last_line(Source("1f1b.ps", text("1f1b") + "# mine\n"), p=3) == "claims 4 of 4 hold"
    assert last_line(Source("zb_h1.ps", text("1f1b")), p=3) == "claims 4 of 4 hold"
    interleaved, bitpipe = (Source(f"{name}.ps", text(name)) for name in ("interleaved", "bitpipe"))
    assert last_line(interleaved, p=4).startswith("proved for v = 2, every size with m % p == 0 and p >= 1")
    assert last_line(interleaved, p=4, v=3) == "claims 3 of 3 hold"
    assert last_line(bitpipe, p=4).startswith("proved for p = 4, every size with m % 4 == 0")
    grouped = Source("grouped_interleaved.ps", text("grouped_interleaved"))
    assert last_line(grouped, p=4, m=4).startswith("proved for v = 2, every size with n == p and m % p == 0")
    assert last_line(grouped, p=4, n=2, m=4) == "claims 2 of 2 hold, 1 not applicable"
    assert last_line(bitpipe, p=6).startswith("proved for every size with m % p == 0 and p % 2 == 0")
    assert ", 0 of 2 claims" in last_line(bitpipe, p=6)


def test_verify_asks_no_prover() -> None:
    """The line is read from the certificate: isl is not imported."""
    code = "import sys, pipesched; print(pipesched.verify('1f1b', p=2)); print('islpy' in sys.modules)"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "proved for every size" in made and made.endswith("False\n")
