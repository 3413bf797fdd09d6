"""The checks form a table: a new check needs a file, a page and a row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pipesched
from pipesched.check import checks
from pipesched.check.checks import Subject
from pipesched.check.rows import CheckCode
from pipesched.diagnostics import Diagnostic
from pipesched.explain.explain_command import codes
from pipesched.extension import Check, Lazy, Needs, rows
from pipesched.model.ops import Compute, Op
from pipesched.model.schedule import Schedule


def module_of(row: Check[Subject]) -> str:
    """Return the module of an extension's check."""
    assert isinstance(row.find, Lazy)
    return row.find.path.partition(":")[0]


FOLDER = Path(checks.__file__).parent
ADDED = rows(Check)
ROWS = [*checks.ORDER_CHECKS, *checks.PROGRAM_CHECKS, *ADDED]
CSV = "0F0,0B0\n1F0,1B0\n"
INTEROP = FOLDER.parent / "interop"
FILES = [*FOLDER.glob("*.py")]
MODULES = sorted({module_of(row).replace(".", "/") for row in ADDED})
OTHERS = [FOLDER.parent / f"{name}.py" for name in (*MODULES, "engines/meetings")]  # which finds for engines.launched


def _short(subject: Subject) -> Iterator[Diagnostic]:
    if len(subject.analysis.schedule) < 5:
        yield Diagnostic(CheckCode.IDLE_RANK, "the order is short")


@pytest.mark.parametrize(("needs", "found"), [(Needs.NOTHING, 1), (Needs.ENDS | Needs.SOUND, 1), (Needs.OWN, 0)])
def test_a_row_is_a_check(monkeypatch: pytest.MonkeyPatch, needs: Needs, found: int) -> None:
    """An added check applies to every schedule with the facts that it needs."""
    monkeypatch.setattr(checks, "PROGRAM_CHECKS", [*checks.PROGRAM_CHECKS, Check("long", ("PS902",), _short, needs)])
    report = pipesched.verify(pipesched.Source("a.csv", CSV))
    assert [d.message for d in report.diagnostics].count("the order is short") == found


def test_every_check_of_the_folder_has_a_row() -> None:
    """The table names every file that defines a check; proofs and recorded runs are judged elsewhere."""
    table = (FOLDER / "rows.py").read_text("utf-8")
    files = [path for path in FILES if "\ndef check_" in path.read_text("utf-8")]
    assert files
    assert [f.stem for f in files if f"check.{f.stem}:" not in table] == []


def test_rows_name_the_codes_that_their_files_use() -> None:
    """The codes of the table equal the codes of the diagnostics in its files."""
    named = {code for row in ROWS for code in row.codes}
    texts = [path.read_text("utf-8") for path in {*FILES, *INTEROP.glob("torch/torch_[op]*.py"), *OTHERS}]
    used = {code for code in codes() if any(f"Code.{code.name}" in text for text in texts)}
    assert used == named
    assert len({row.property for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("p", "found"), [(2, []), (3, ["no stage is on rank 2; p is 3"])])
def test_ranks_behind_the_last_stage_are_named(p: int, found: list[str]) -> None:
    """Ranks that p counts but that have no stage are left out of all figures, and reported."""
    text = "schedule short(p, m)\nstage s in 0 .. 2 on rank s\nrank r { repeat m { if r < 2 { F  B } } }\n"
    report = pipesched.verify(pipesched.Source("x.ps", text), p=p, m=2)
    assert report.ok and [d.message for d in report.diagnostics if d.code == "PS902"] == found


@pytest.mark.parametrize(
    ("name", "where"), [("held", "only in the conditions of `greedy`"), ("pending", "only in the programs of ranks")]
)
def test_a_name_of_programs_is_told_where_it_is_known(name: str, where: str) -> None:
    """A name that is known only in some places gets a remedy elsewhere."""
    text = f"schedule t(p, m)\nstage s in 0 .. p on rank s\nrank r {{ repeat m {{ F  B }} }}\nclaim {name} == 0\n"
    (found,) = pipesched.verify(pipesched.Source("x.ps", text), p=2, m=2).diagnostics
    assert found.code == "PS201" and found.help is not None and where in found.help


def test_an_r_that_runs_twice_is_told_of_no_gradient() -> None:
    """Recomputation adds no gradient."""
    (found,) = pipesched.verify(pipesched.Source("-", "rank 0: F0.0 R0.0 R0.0 B0.0\n")).diagnostics
    assert found.code == "PS302" and found.help == "keep one: one R is enough"


MINE = "schedule t(p, m)\nstage s in 0 .. p on rank s\nrank r {{ {} }}\n"


@pytest.mark.parametrize(
    ("body", "code", "times"),
    [
        ("repeat m { F }  for i in 0 .. m { B(m - 1 - i)  B(m - 1 - i) }", "PS302", 12),
        ("repeat m { F }  repeat m { I  W(m - 1) }", "PS302", 10),
        ("for i in 0 .. m { B(i)  F(i) }", "PS305", 12),
        ("for i in 0 .. m { overlap(F(i), B(i)) }", "PS307", 12),
        ("repeat m { F }  for i in 0 .. m { overlap(I(i), W(i)) }", "PS307", 12),
        ("repeat m { F }  for i in 0 .. m { R(i)  O(i)  L(i)  B(i) }", "PS311", 12),
        ("repeat m { F }  for i in 0 .. m { O(i)  B(i) }", "PS301", 12),
    ],
)
def test_a_mistake_of_a_statement_is_told_once(body: str, code: str, times: int) -> None:
    """The check holds for any supported number of ranks and microbatches, here two ranks and six microbatches."""
    report = pipesched.verify(pipesched.Source("t.ps", MINE.format(body)), p=2, m=6)
    (found, *others) = [x for x in report.diagnostics if x.code == code]
    assert all(x.help != found.help for x in others)
    assert f"and {times - 1} more from this statement" in found.notes


def test_operations_of_no_statement_are_told_one_by_one() -> None:
    """An order built by a program has no source positions: each of its mistakes is reported, up to five."""
    order = [Compute(op, 0, i) for i in range(7) for op in (Op.B, Op.F)]
    report = pipesched.verify(Schedule.from_orders([order], pipesched.load("gpipe", p=1, m=7).placement))
    assert [x.message[:4] for x in report.diagnostics] == [f"B0.{i}" for i in range(5)]
    assert "and 2 more of this kind" in report.diagnostics[-1].notes


def test_a_stage_without_any_backward_may_be_frozen() -> None:
    """A file that lists the order of a schedule with frozen stages: the remedy names them, only for whole stages."""
    for first, frozen in (("F0.0 F0.1", True), ("F0.0 F0.1 B0.0", False)):
        text = f"rank 0: {first}\nrank 1: F1.0 B1.0 F1.1 B1.1\n"
        (found,) = pipesched.verify(pipesched.Source("-", text)).diagnostics
        assert found.code == "PS301" and ("or declare the stage frozen" in str(found.help)) is frozen
