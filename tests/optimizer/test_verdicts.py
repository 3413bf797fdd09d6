"""Every output states correctly whether an answer is proved optimal, is optimal on an engine's word, or is the best
found."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.model.numbers import plain
from pipesched.optimizer.optimize_certify import Made
from pipesched.optimizer.optimize_report import Optimum
from pipesched.optimizer.verdict import Terms

WORD = "optimal on the word of CaDiCaL, not checked"
COSTS = "F=[1,3,2,2],I=[4,3,3,4],W=[4,1,1,4]"
WORDED = ["--p", "2", "--v", "2", "--m", "3", "--placement", "loop", "--mem-cap", "3/2", "--cost", COSTS]
"""Nothing but clauses over all ranks shows that 56 is out of reach."""


def plainly() -> Optimum:
    return pipesched.optimize(p=2, v=2, m=3, placement="loop", mem_cap="3/2", costs=COSTS)


@lru_cache(maxsize=1)
def worded() -> dict[str, Any]:
    """Return the answer without its proof: as releases wrote it that believed an engine."""
    value: dict[str, Any] = json.loads(json.dumps(plainly().to_json()))
    del value["certificate"]["refuted"]["proof"]
    value["certificate"]["verdict"] = WORD
    told = "CaDiCaL refuted 56, unchecked"
    value |= {"status": WORD, "proved": False, "verdict": f"{WORD}: makespan 57", "proved_by": None, "told_by": told}
    head = f"{WORD[0].upper()}{WORD[1:]}: makespan 57.\nIt rests on this: {told}.\nFor:"
    value["source"] = re.sub(r"Proved optimal: .*?\nFor:", head, value["source"], count=1, flags=re.DOTALL)
    return value


@lru_cache(maxsize=1)
def for_every_m() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(json.dumps(pipesched.optimize(p=2, m=2, mem_cap=2, all_m=True).to_json()))
    return value


def written(told: object, folder: Path) -> str:
    file = folder / "answer.json"
    file.write_text(told if isinstance(told, str) else json.dumps(told), encoding="utf-8")
    return str(file)


def verified(
    told: object, folder: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, dict[str, Any]]:
    """Return the exit status and report of ``pipesched verify``."""
    status = main(["verify", written(told, folder), "--json", *options])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return status, report


def codes(report: dict[str, Any]) -> list[str]:
    return [found["code"] for found in report["diagnostics"]]


@pytest.mark.nightly
def test_no_answer_rests_on_an_engines_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine's refutation is proved in steps that the checker follows; without a proof it does not count, and a
    better schedule is not excluded.
    """
    assert main(["optimize", *WORDED, "--require-proof"]) == 0
    assert capsys.readouterr().out.startswith("proved optimal: makespan 57\n")
    answer = plainly()
    assert answer.proved and "steps, checked one by one" in answer.proved_by and not answer.told_by
    monkeypatch.setattr("pipesched.optimizer.answer_of.certified", lambda *given: Made({}, "no proof"))
    assert main(["optimize", *WORDED]) == 3
    text = capsys.readouterr().out
    assert text.startswith("best found: makespan 57, gap") and "note: no proof" in text and "word" not in text
    answer = plainly()
    assert answer.told_by == "" and answer.lower_bound is not None and answer.lower_bound < 57


def test_an_engines_word_is_no_claim_that_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`verify` exits with 0, since the schedule is right, and warns; with --require-proof it exits with 1."""
    status, report = verified(worded(), tmp_path, capsys)
    assert (status, report["proved"], codes(report)) == (0, False, ["PS908"])
    assert report["optimum"]["status"] == WORD and not any("certificate" in claim["text"] for claim in report["claims"])
    status, report = verified(worded(), tmp_path, capsys, "--require-proof")
    assert (status, report["ok"], codes(report)) == (1, False, ["PS712"])
    assert main(["verify", written(worded(), tmp_path)]) == 0
    assert WORD in (text := capsys.readouterr().out) and "proved optimal" not in text.lower()


@pytest.mark.parametrize("told", ["proved optimal", "best found"])
def test_a_word_that_is_told_as_a_proof_is_refused(
    told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The word is refused in any of the fields that state it, alone, in the certificate, or in the file's
    documentation."""
    for change in (
        {"status": told},
        {"verdict": f"{told}: makespan 57"},
        {"certificate": {**worded()["certificate"], "verdict": told}},
        {"proved": True},
        {"proved_by": "rank 0 has 57 of work"},
        {"source": worded()["source"].replace(f"{WORD[0].upper()}{WORD[1:]}", told.capitalize())},
    ):
        status, report = verified({**worded(), **change}, tmp_path, capsys)
        assert (status, report["ok"], report["proved"]) == (1, False, None), change
        assert set(codes(report)) <= {"PS711", "PS714"}


def test_a_schedule_alone_has_no_proof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However good it is: --require-proof is about all schedules."""
    assert main(["verify", "zb_h1", "--p", "4", "--require-proof", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert codes(report) == ["PS712"] and report["proved"] is None
    assert not pipesched.verify("zb_h1", p=4, require_proof=True).ok
    assert pipesched.verify(written(for_every_m(), tmp_path), require_proof=True).ok


MAKESPAN = 48


def slow(makespan: int, refuted: int) -> dict[str, Any]:
    """Return the four ranks that run eight microbatches two at a time, claimed to be the best."""
    source = (
        "schedule slow(p = 4, m = 8)\nstage s in 0 .. p on rank s\nrank r { for k in 0 .. m // 2 { F F I W I W } }\n"
    )
    schedule = pipesched.load(pipesched.support.source.Source("slow.ps", source))
    assert isinstance(schedule, pipesched.Schedule)
    best = pipesched.optimize(p=4, m=8, mem_cap=4)
    asked = best.instance
    terms = Terms.of(schedule, asked.costs, asked.release, asked.caps, "makespan").to_json()
    certificate = {
        **best.certificate, "schedule": makespan, "verdict": WORD, "lower_bound": makespan, "gap": 0,
        "refuted": {"engine": "cadical", "value": refuted, "ranks": None, "terms": terms},
    }  # fmt: skip
    caps = [plain(cap) for cap in asked.caps or ()]
    return {"source": source, "release": "W", "mem_cap": caps, "objective": "makespan", "certificate": certificate}


def test_a_refutation_is_about_terms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An engine's refutation is on its word, and no proof, even if false; without its terms, or with other caps, it is
    refused.
    """
    forged = slow(MAKESPAN, MAKESPAN - 1)
    status, report = verified(forged, tmp_path, capsys)
    assert (status, codes(report), report["proved"]) == (0, ["PS908"], False)
    assert verified(forged, tmp_path, capsys, "--require-proof")[0] == 1
    for name in ("terms", "caps"):
        other = deepcopy(forged)
        refuted = other["certificate"]["refuted"]
        refuted.pop("terms") if name == "terms" else refuted["terms"].update(caps=[5] * 4)
        assert codes(verified(other, tmp_path, capsys)[1]) == ["PS710"]


def test_an_answer_for_every_m_holds_at_every_m(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Proved at sizes that it was not made for; at a size below its first it does not apply."""
    first = for_every_m()["every"]["microbatches"]
    for m in (first, first + 1, 37, 1000):
        status, report = verified(for_every_m(), tmp_path, capsys, "--m", str(m))
        assert (status, report["proved"], report["microbatches"]) == (0, True, m)
        assert report["time"]["makespan"] == 3 * m + 1 == report["optimum"]["lower_bound"]
    assert verified(for_every_m(), tmp_path, capsys, "--m", str(first - 1))[0] == 1


def test_an_answer_for_every_m_holds_where_it_is_too_large_to_be_expanded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a million microbatches the objective follows from the formula, with a note that the file was not expanded."""
    every = for_every_m()["every"]
    m = every["microbatches"] + 10**6 * every["step"]
    value = every["value"] + Fraction(every["growth"]) * (m - every["microbatches"])
    status, report = verified(for_every_m(), tmp_path, capsys, "--m", str(m))
    assert status == 0 and report["notes"] == [
        f"at m={m:,}: makespan {value}, and no schedule is shorter: the certificate repeats a "
        "part of the schedule; the file itself is not expanded at this size"
    ]
    assert verified(worded(), tmp_path, capsys, "--m", str(m))[0] != 0


@pytest.mark.parametrize("change", ["if m == 999 { F  I  W }", "if m == 999 { overlap(F, B) }"])
def test_a_file_that_changes_at_some_m_is_refused_at_all(
    change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file for every m whose m determines more than repetitions is refused, whichever m is asked for."""
    told = for_every_m()
    changed = {**told, "source": told["source"].replace("rank 0 {\n", f"rank 0 {{\n  {change}\n")}
    for m in ("30", "999"):
        status, report = verified(changed, tmp_path, capsys, "--m", m)
        assert (status, report["proved"], codes(report)) == (1, None, ["PS715"])


def test_an_answer_for_one_m_says_nothing_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PS209 of its file, or, if the file runs at any m, PS225."""
    assert verified(worded(), tmp_path, capsys, "--m", "4")[0] == 1
    bare, gap = slow(MAKESPAN, MAKESPAN - 1), str(Fraction(MAKESPAN - 27, 27))
    certificate = {**bare["certificate"], "refuted": None, "verdict": "best found", "lower_bound": 27, "gap": gap}
    status, report = verified({**bare, "certificate": certificate}, tmp_path, capsys, "--m", "16")
    assert (status, codes(report)) == (2, ["PS225"])


def test_an_answer_has_its_own_terms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other costs and another release rule are refused; a cap may be given in addition."""
    assert verified(worded(), tmp_path, capsys, "--cost", "F=1")[0] == 2
    assert verified(worded(), tmp_path, capsys, "--release", "I")[0] == 2
    status, report = verified(worded(), tmp_path, capsys, "--mem-cap", "1")
    assert (status, codes(report)[:1]) == (1, ["PS501"])
    assert verified(worded(), tmp_path, capsys, "--mem-cap", "2")[0] == 0


@pytest.mark.parametrize(
    "text",
    [
        '{"certificate": {}, "certificate": {}}',
        '{"certificate": NaN}',
        '{"certificate": []}',
        "{" * 5000 + '"certificate":',
    ],
)
def test_what_is_no_answer_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Repeated entries, and texts that are not JSON."""
    status, report = verified(text, tmp_path, capsys)
    assert (status, codes(report)) == (1, ["PS710"])


def test_an_entry_that_is_there_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With two entries of one name, another program could show the other one."""
    text = json.dumps(worded())
    status, report = verified(text.replace('"proved": false', '"proved": true, "proved": false'), tmp_path, capsys)
    assert (status, codes(report)) == (1, ["PS710"])
