"""The table of theorems in the gallery matches the results of `prove` on the library.

`python -m tests.prover.test_theorems` proves all of it, up to p = 8 too what is open for every p; it writes
`tests/data/theorems.json` and the certificates in `schedules/proofs`, in some minutes, and
`python -m tests.shell.test_readme theorems` the table; `python -m tests.prover.test_theorems NAME...` some schedules.
The seconds in the table are those of the machine that wrote it, and no test depends on them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.depth import deep, in_usual_run

if TYPE_CHECKING:
    from pipesched.prover.prove_report import Answer, Theorems

DATA = Path(__file__).parents[1] / "data" / "theorems.json"
_UNPROVED = "the order is not proved"  # the reason of its claims
ORDER, LARGER = ("complete", "no deadlock"), range(2, 9)
QUICK = {"1f1b", "eager_1f1b", "forward_only", "gpipe_reversed", "seq1f1b"} | (
    {"zb_h2"} if not in_usual_run() else set()
)
CHUNKS = {f"{name} v={v}" for name in ("interleaved", "looped_bfs") for v in (3, 4)}
WHOLE = {
    "1f1b",
    "dualpipe",
    "dualpipev",
    "eager_1f1b",
    "forward_only",
    "frozen_encoder",
    "gpipe",
    "gpipe_reversed",
    "grouped_interleaved",
    "interleaved",
    "interleaved v=3",
    "interleaved v=4",
    "interleaved_overlap",
}
WHOLE |= {
    "mario",
    "packed",
    "looped_bfs",
    "looped_bfs v=3",
    "looped_bfs v=4",
    "seq1f1b",
    "terapipe",
    "unet",
    "zb_h1",
    "zb_h2",
    "zb_v",
}
"""What is proved with all its claims for every p at once."""


def known() -> dict[str, Any]:
    """Return the theorems by schedule."""
    read: dict[str, Any] = json.loads(DATA.read_text("utf-8")) if DATA.exists() else {}
    return read


def proved(name: str) -> tuple[dict[str, Any], Theorems]:
    """Return the theorems of a schedule as the file keeps them, for each domain its properties and open ones; and as
    `prove` returns them."""
    import pipesched

    schedule, *sizes = name.split()
    found = pipesched.prove(schedule, **{key: int(value) for key, value in (size.split("=") for size in sizes)})
    return {"title": found.title, "answers": [*map(_kept, found.answers)]}, found


def _kept(answer: Answer, only: Collection[str] = ()) -> dict[str, Any]:
    rows = {x.name: x.outcome for x in answer.findings if not only or x.name in only}
    why = {x.name: x.detail.partition(";")[0] for x in answer.findings if x.outcome == "not settled"}
    return {"given": dict(answer.given), "domain": answer.domain, "findings": rows, "open": why}


def larger(name: str, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is proved at other p up to 8 of the properties that are open for every p at once."""
    import pipesched

    first = entry["answers"][0]["findings"]
    open = {x for x, outcome in first.items() if outcome == "not settled"}
    if not open or len(entry["answers"]) == 1:
        return []
    known = {answer["given"].get("p") for answer in entry["answers"]}
    answers = [pipesched.prove(name, p=p).answers[0] for p in LARGER if p not in known]
    found = [_kept(answer, {*ORDER, *open}) for answer in answers if answer.domain != "no size"]
    return [answer for answer in found if "proved" in answer["findings"].values()]


def _said(answer: dict[str, Any]) -> str:
    """Return what one answer proves, as a cell of the table."""
    outcomes = [*answer["findings"].items()]
    claims = [outcome for name, outcome in outcomes if name not in ("complete", "no deadlock")]
    held = f"{claims.count('proved')} of {len(claims)} claims" if claims else ""
    whole = [name for name, outcome in outcomes if outcome == "proved" and name in ("complete", "no deadlock")]
    return ", ".join(filter(None, [*whole, held]))


def table() -> str:
    """Return a row for each domain of each schedule of the library; domains that differ in p alone are one row; then
    the properties that are not settled, and the files that are refused, with the reasons.
    """
    rows, open, refused = list[str](), list[str](), list[str]()
    for name, entry in sorted(known().items()):
        answers: list[dict[str, Any]] = [*entry["answers"], *entry.get("larger", [])]
        first, others = answers[0], answers[1:]
        schedule, domain = f"`{name.split()[0]}`", _domain(first)
        reasons: dict[str, str] = first["open"]
        if not others and reasons.get("complete"):
            refused.append(f"| {schedule} | {reasons['complete']} |")
            continue
        if "proved" in first["findings"].values():
            rows.append(f"| {schedule} | {domain} | {_said(first)} | {entry.get('seconds', '')} |")
        ranks: dict[tuple[str, str], list[str]] = {}
        for answer in others:
            more = ", ".join(f"{key} = {value}" for key, value in answer["given"].items() if key != "p")
            ranks.setdefault((more, _said(answer)), []).append(str(answer["given"]["p"]))
        for k, ((more, said), of) in enumerate(ranks.items()):
            seconds = "" if k or "proved" in first["findings"].values() else entry.get("seconds", "")
            every = ", ".join(filter(None, [more, f"p = {_listed(of)}"]))
            rows.append(f"| {schedule} | {every}; every accepted m | {said} | {seconds} |")
        missing: dict[str, list[str]] = {}
        for property, reason in reasons.items():
            missing.setdefault(next(iter(missing)) if reason == _UNPROVED else reason, []).append(f"`{property}`")
        open += [f"| {schedule} | {domain} | {', '.join(of)} | {reason} |" for reason, of in missing.items()]
    return "\n".join(
        [
            *("| | every size with | proved | seconds |", "|---|---|---|---|", *rows, ""),
            "These properties are not settled for every p at once; the last column states the reason:",
            *("", "| | every size with | property | reason |", "|---|---|---|---|", *open, ""),
            "`prove` refuses these files, for the given reasons:",
            *("", "| | line and reason |", "|---|---|", *refused),
        ]
    )


def _domain(answer: dict[str, Any]) -> str:
    given = ", ".join(f"{key} = {value}" for key, value in answer["given"].items())
    return "; ".join(filter(None, [given, answer["domain"].removeprefix("every size with ")]))


def _listed(of: list[str]) -> str:
    return f"{', '.join(of[:-1])} or {of[-1]}" if of[1:] else of[0]


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
    entry = known()[name]
    assert proved(name)[0] == {"title": entry["title"], "answers": entry["answers"]}


if __name__ == "__main__":
    from pipesched.library.assets import built_in
    from pipesched.prover.shipped import certificate

    kept = known()
    for each in sys.argv[1:] or sorted([*built_in(), *CHUNKS]):
        begun = time.process_time()
        entry, found = proved(each)
        seconds = round(time.process_time() - begun, 1)
        print(each, f"{seconds} s", flush=True)
        more = larger(each, entry) if " " not in each else []
        kept[each] = entry | {"seconds": seconds} | ({"larger": more} if more else {})
        if " " not in each and any("proved" in x["findings"].values() for x in entry["answers"]):
            text = json.dumps(found.to_json(), ensure_ascii=False, separators=(",", ":"))
            certificate(each).write_text(text + "\n", "utf-8")
        print("   ", f"{time.process_time() - begun:.1f} s with its certificate, and p up to 8", flush=True)
        DATA.write_text(json.dumps(dict(sorted(kept.items())), indent=1, ensure_ascii=False) + "\n", "utf-8")
