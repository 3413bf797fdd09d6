"""The table of theorems in the gallery is what `prove` says of the library.

`python -m tests.prover.test_theorems` proves all of it anew and writes `tests/data/theorems.json`, in some minutes, and
`python -m tests.shell.test_readme theorems` the table; `python -m tests.prover.test_theorems NAME...` some schedules.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.depth import deep

DATA = Path(__file__).parents[1] / "data" / "theorems.json"
QUICK = {"1f1b", "eager_1f1b", "forward_only", "gpipe_reversed", "seq1f1b", "v_half", "zb_h2"}
CHUNKS = {f"{name} v={v}" for name in ("interleaved", "looped_bfs") for v in (3, 4)}
WHOLE = {
    "1f1b",
    "dualpipe",
    "dualpipev",
    "eager_1f1b",
    "forward_only",
    "gpipe",
    "gpipe_reversed",
    "interleaved_overlap",
}
WHOLE |= {"looped_bfs", "looped_bfs v=3", "looped_bfs v=4", "seq1f1b", "terapipe", "unet", "zb_h1", "zb_h2", "zb_v"}
"""What is proved with all its claims for every p at once."""


def known() -> dict[str, Any]:
    """Return the theorems by schedule."""
    read: dict[str, Any] = json.loads(DATA.read_text("utf-8")) if DATA.exists() else {}
    return read


def proved(name: str) -> dict[str, Any]:
    """Return the theorems of a schedule as the file keeps them: for each domain its properties and open ones."""
    import pipesched

    schedule, *sizes = name.split()
    found = pipesched.prove(schedule, **{key: int(value) for key, value in (size.split("=") for size in sizes)})
    answers = []
    for answer in found.answers:
        rows = {finding.name: finding.outcome for finding in answer.findings}
        why = next((finding.detail for finding in answer.findings if finding.outcome != "proved"), "")
        answers.append({"given": dict(answer.given), "domain": answer.domain, "findings": rows, "open": why})
    return {"title": found.title, "answers": answers}


def _said(answer: dict[str, Any]) -> str:
    """Return what one answer proves, as a cell of the table."""
    outcomes = [*answer["findings"].items()]
    claims = [outcome for name, outcome in outcomes if name not in ("complete", "no deadlock")]
    held = f"{claims.count('proved')} of {len(claims)} claims" if claims else ""
    whole = [name for name, outcome in outcomes if outcome == "proved" and name in ("complete", "no deadlock")]
    return ", ".join(filter(None, [*whole, held]))


def table() -> str:
    """Return a row for each domain of each schedule of the library."""
    rows = []
    for name, entry in sorted(known().items()):
        for answer in entry["answers"]:
            given = ", ".join(f"{key} = {value}" for key, value in answer["given"].items())
            domain = "; ".join(filter(None, [given, answer["domain"].removeprefix("every size with ")]))
            if "proved" in answer["findings"].values():
                rows.append(f"| `{name.split()[0]}` | {domain} | {_said(answer)} |")
            elif len(entry["answers"]) == 1:
                rows.append(f"| `{name}` | | not settled: {answer['open'].partition(';')[0]} |")
    return "\n".join(["| | every size with | proved |", "|---|---|---|", *rows])


def test_every_schedule_of_the_library_has_a_row() -> None:
    """The table is of all of them."""
    from pipesched.library.assets import built_in

    assert [*known()] == sorted([*built_in(), *CHUNKS])


def test_all_claims_of_these_are_theorems() -> None:
    """For every p, every m that the file takes, and all costs of each claim's condition."""
    table = known()
    assert {name for name in table if {*table[name]["answers"][0]["findings"].values()} == {"proved"}} == WHOLE
    assert all("p" not in table[name]["answers"][0]["given"] for name in WHOLE)


@pytest.mark.parametrize("name", sorted(CHUNKS))
def test_more_chunks_are_proved_for_every_p(name: str) -> None:
    """Complete, no deadlock, and the peak: three and four chunks of a rank, every p and every m that is accepted."""
    first, rows = known()[name]["answers"][0], ["complete", "no deadlock"]
    peak = [property for property in first["findings"] if property.startswith("peak")]
    assert {first["findings"][property] for property in [*rows, *peak]} == {"proved"} and len(peak) == 1
    assert "p >= 1" in first["domain"] and "p" not in first["given"]


@pytest.mark.parametrize("name", sorted(known()))
def test_what_the_table_says_is_proved(name: str) -> None:
    """The table agrees with the prover: on some schedules here, on all of them with ``--depth 2``."""
    pytest.importorskip("islpy")
    if deep(1) < 2 and name not in QUICK:
        pytest.skip("with --depth 2")
    assert proved(name) == known()[name]


if __name__ == "__main__":
    from pipesched.library.assets import built_in

    kept = known()
    for each in sys.argv[1:] or sorted([*built_in(), *CHUNKS]):
        begun = time.perf_counter()
        kept[each] = proved(each)
        print(each, f"{time.perf_counter() - begun:.1f} s", flush=True)
        DATA.write_text(json.dumps(dict(sorted(kept.items())), indent=1, ensure_ascii=False) + "\n", "utf-8")
