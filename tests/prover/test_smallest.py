"""`verify --smallest` finds the smallest size that fails, which trying all smaller sizes confirms, or gives the reason
why it does not search."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import pipesched
from pipesched.__main__ import main
from pipesched.library.assets import asset
from pipesched.report.report import Report
from pipesched.support.source import Source

SCHEMA = Draft202012Validator(json.loads(asset("emit", "report.schema.json").read_text("utf-8")))
MINE = """\
schedule mine(p, m = 2 * p)
require p >= 1 and m >= p
stage s in 0 .. p on rank s
rank r {
  let warmup = p - 1 - r
  repeat warmup     { F }
  repeat m - warmup { F  B }
  repeat warmup     { B }
}
"""
LOOPED = """\
schedule looped(p, v = 2, m = 2 * p)
stage s in 0 .. p * v on rank s % p
rank r {
  for c in 0 .. v { repeat m { F[c] } }
  for c in 0 .. v { repeat m { B[if WRONG then c else v - 1 - c] } }
}
"""


def smallest(text: str, **sizes: int) -> Report:
    found = pipesched.verify(Source("mine.ps", text), smallest=True, **sizes)
    SCHEMA.validate(found.to_json())
    return found


def said(report: Report) -> str:
    (note,) = report.notes
    assert str(note) in str(report) and str(note) in json.dumps(report.to_json())
    return str(note)


def tried(text: str, code: str, **most: int) -> dict[str, int]:
    """Return the size of least sum, then of fewest ranks, that fails with a code: all are tried."""
    sizes: list[dict[str, int]] = [{}]
    for name, limit in most.items():
        sizes = [{**size, name: k} for size in sizes for k in range(1, limit + 1)]
    failing = [x for x in sizes if code in {y.code for y in pipesched.verify(Source("x.ps", text), **x).diagnostics}]
    return min(failing, key=lambda size: (sum(size.values()), *size.values()))


@pytest.mark.parametrize(
    ("text", "code", "most"),
    [
        (MINE.replace("repeat warmup     { B }", "repeat min(warmup, 1) { B }"), "PS301", {"p": 5, "m": 7}),
        (MINE.replace("{ F  B }", "{ B  F }"), "PS305", {"p": 4, "m": 6}),
        (MINE.replace("{ F  B }", "{ F  B if m > 4 and p > 1 { F } }"), "PS202", {"p": 4, "m": 6}),
        (MINE + "claim peak(r) == (if p == 3 and m > 5 then 1 else p - r) * tM\n", "PS221", {"p": 3, "m": 8}),
        (MINE + "claim idle <= 6 * tF + m * tF\n", "PS221", {"p": 7, "m": 9}),
        (LOOPED.replace("WRONG", "v == 3 or m > 4 and p > 2"), "PS306", {"p": 4, "v": 3, "m": 5}),
        (LOOPED.replace("WRONG", "v > 1 and m % 3 == 0 and p > 1"), "PS306", {"p": 3, "v": 3, "m": 9}),
    ],
)
def test_no_smaller_size_fails_so(text: str, code: str, most: dict[str, int]) -> None:
    """A missing operation, a wrong order, a claim and a deadlock fail first at this size; with v and a parity."""
    asked = pipesched.verify(Source("mine.ps", text), **most)
    code = code if code in {found.code for found in asked.diagnostics} else str(asked.diagnostics[0].code)
    found, least = smallest(text, **most), tried(text, code, **most)
    assert {name: found.parameters[name] for name in most} == least
    assert code in {x.code for x in found.diagnostics} and found.exit_status == 1
    assert all(f"{name}={value}" in said(found) for name, value in least.items())


def test_a_size_that_fails_otherwise_is_not_the_answer_and_is_named() -> None:
    """At p = 1 there is a B too many; what was asked for is a claim that is false from p = 3 on."""
    text = MINE.replace("repeat m - warmup { F  B }", "repeat m - warmup { F  B  if p == 1 { B } }")
    found = smallest(text + "claim peak <= 2 * tM\n", p=4, m=5)
    assert found.parameters["p"] == 3 and "fails in a different way, with " in said(found)


def test_a_list_is_cut() -> None:
    """A list of m entries has its first ones at a smaller m."""
    costs = "costs F[s, i] = length[i]\nclaim work(0) <= 6 * tB + 7\n"
    text = MINE.replace("m = 2 * p)", "m = 2 * p, length[m] = 1)") + costs.replace("7", "0")
    found = pipesched.verify(Source("mine.ps", text), smallest=True, p=2, m=5, length=[1, 1, 2, 3, 9], mem_cap=1)
    assert found.parameters["m"] == 2 and found.parameters["length"] == (1, 1)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (MINE, "nothing fails at this size"),
        (MINE.replace("m >= p", "m >= 99"), "cannot be checked at this size"),
        (MINE.replace("stage s", "stage stage"), "wrong at every size"),
        ("schedule one(n = 3)\nstage 0 on rank 0\nrank 0 { repeat n { F B } repeat n { B } }\n", ""),
    ],
)
def test_where_none_is_sought_that_is_said(text: str, what: str) -> None:
    """The verdict on the size that was asked for stays."""
    sizes = {"p": 3, "m": 4} if "(p" in text else {}
    found, plain = smallest(text, **sizes), pipesched.verify(Source("mine.ps", text), **sizes)
    assert what in said(found) and found.exit_status == plain.exit_status
    assert [x.message for x in found.diagnostics] == [x.message for x in plain.diagnostics]


def test_what_is_no_file_of_sizes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An order has one size."""
    path = tmp_path / "order.txt"
    path.write_text("rank 0: F0.0 B0.0\n", "utf-8")
    assert main(["verify", str(path), "--smallest"]) == 2
    assert "PS225" in capsys.readouterr().err
    with pytest.raises(pipesched.PipeschedError, match="PS225"):
        pipesched.verify(pipesched.load("1f1b", p=2), smallest=True)


FAR = MINE + "claim idle == (p - 1) * (tF + tB) + (if p >= 40 and m >= 300 then tF else 0) when tC == 0\n"


def test_far_away_the_prover_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least p + m of all sizes, by the subset test that fails."""
    pytest.importorskip("islpy")
    from pipesched.prover import smallest as search

    monkeypatch.setattr(search, "PATIENCE", search.STEPS - 100_000)
    found = smallest(FAR, p=64, m=512)
    assert dict(found.parameters) == {"p": 40, "m": 300} and "(proved)" in said(found)


def test_without_islpy_sizes_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search needs no extra; it says which sizes it did not try."""
    from pipesched.prover import presburger
    from pipesched.prover import smallest as search

    monkeypatch.setitem(sys.modules, "islpy", None)
    presburger.isl.cache_clear()
    monkeypatch.setattr(search, "STEPS", 400_000)
    found = smallest(FAR.replace("40", "12").replace("300", "30"), p=20, m=50)
    presburger.isl.cache_clear()
    assert dict(found.parameters) == {"p": 12, "m": 30} and "were not tried" in said(found)


def test_sizes_that_take_too_many_steps_are_counted() -> None:
    """A loop that is long at p = 1 alone."""
    loop = "for i in 0 .. (if p == 1 then 150000 else 0) { if i * i % 7 == 9 { F } }\n  repeat warmup     { F }"
    found = smallest(MINE.replace("repeat warmup     { F }", loop) + "claim peak <= 2 * tM\n", p=4, m=5)
    assert found.parameters["p"] == 3 and "3 smaller sizes were tried; 5 sizes take too many steps" in said(found)


def test_hostile_files_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops without operations, and sizes that the file never takes: the steps that are left decide."""
    from pipesched.prover import smallest as search

    monkeypatch.setattr(search, "STEPS", 400_000)
    loops = MINE.replace("repeat warmup     { F }", "repeat 90000 { repeat 9 { } } repeat warmup { F F }")
    for text in (loops, MINE.replace("m >= p", "m % 997 == 996").replace("{ F  B }", "{ B }")):
        found: Any = smallest(text, p=9, m=996)
        assert found.exit_status == 1 and said(found)
