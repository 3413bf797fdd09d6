"""Without hints every mistake is still refused at the first wrong place, with the same exit status, and nothing
crashes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipesched import extension, verify
from pipesched.__main__ import main
from pipesched.diagnostics import Diagnostic
from pipesched.support.source import Source
from tests.core.test_parser import CHUNKS
from tests.explain.test_habits import CASES
from tests.explain.test_misread import CELLS, SHAPES

pytestmark = pytest.mark.quick

TEXTS = [chunk.source.text for chunk in CHUNKS if chunk.expected] + [text for text, _ in CASES.values()]
HEAD = "schedule f(p, m = 2)\nstage s in 0 .. p on rank s\n"
FIRST = {  # a text, and the code, line and column of its first misplaced token
    "": ("PS101", 1, 1),
    "# nothing\n": ("PS101", 2, 1),
    "schedule f(p": ("PS101", 1, 13),
    f"{HEAD}rank r {{ F; B }}\n": ("PS102", 3, 11),
    f"{HEAD}let w 3\n": ("PS101", 3, 7),
    f"{HEAD}let w = 4p\n": ("PS101", 3, 10),
    f"{HEAD}let w = {'9' * 19}\n": ("PS219", 3, 9),
    f"{HEAD}claim peak(r) == 1 release never\n": ("PS101", 3, 28),
    f"{HEAD}rank r {{ F\n": ("PS101", 4, 1),
}


@pytest.fixture
def without_hints() -> Iterator[None]:
    """Register only the extension that reads orders."""
    before = extension.registered
    extension.register("orders")
    yield
    extension.register(*before)


def errors(text: str, name: str = "x.ps") -> list[Diagnostic]:
    return [x for x in verify(Source(name, text), p=2).diagnostics if x.severity == "error"]


@pytest.mark.usefixtures("without_hints")
@pytest.mark.parametrize("text", FIRST)
def test_the_first_misplaced_token_is_told(text: str) -> None:
    """The only finding is at the first token that no file of the language could have there."""
    (found,) = errors(text)
    assert found.where is not None
    assert (found.code, found.where.line, found.where.column) == FIRST[text]


def test_without_hints_every_mistake_of_the_language_has_the_same_status() -> None:
    """A file refused with hints is refused without them, as a mistake inside the file; no other file is."""
    with_hints = [bool(errors(text)) for text in TEXTS]
    before = extension.registered
    extension.register("orders")
    try:
        alone = [errors(text) for text in TEXTS]
    finally:
        extension.register(*before)
    assert [bool(found) for found in alone] == with_hints and sum(with_hints) > 100
    assert {found.code.status for each in alone for found in each} == {1}


@pytest.mark.usefixtures("without_hints")
@pytest.mark.parametrize("case", [*CELLS, *(case for case in SHAPES if case != "mark")])
def test_without_hints_a_csv_has_its_findings(case: str) -> None:
    """A CSV that is refused with hints is refused without them."""
    text = CELLS[case][0] if case in CELLS else SHAPES[case][0]
    assert errors(text, "x.csv")


@pytest.mark.usefixtures("without_hints")
def test_without_hints_a_command_ends_as_it_does_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    """The core verifies a right file, and one of the library."""
    assert main(["verify", "1f1b", "--p", "4"]) == 0
    assert capsys.readouterr().out.startswith("ok")


CYCLE = "rank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.1 F1.0 B1.0 B1.1\n"
DEADLOCK = """\
rank 0: F0.0 send:F0.0>1 F0.1 send:F0.1>1 recv:B1.0<1 B0.0 recv:B1.1<1 B0.1 reduce:0 step
rank 1: recv:F0.0<0 F1.0 B1.0 send:B1.0>0 recv:F0.1<0 F1.1 B1.1 send:B1.1>0 reduce:1 step
"""


@pytest.mark.parametrize(("text", "code"), [(CYCLE, "PS306"), (DEADLOCK, "PS401")])
def test_ranks_that_wait_for_each_other_have_a_remedy_with_and_without_hints(text: str, code: str) -> None:
    """The finding, its places and its proof are the same; the hint names one change that is enough."""
    (told,) = (x for x in verify(Source("x.txt", text)).diagnostics if x.code == code)
    before = extension.registered
    extension.register("orders")
    try:
        (plain,) = (x for x in verify(Source("x.txt", text)).diagnostics if x.code == code)
    finally:
        extension.register(*before)
    assert (plain.message, plain.notes) == (told.message, told.notes)
    assert [str(x) for x in plain.labels] == [str(x) for x in told.labels]
    assert plain.help != told.help and "put" in str(told.help)
