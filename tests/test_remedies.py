"""A remedy, followed to the letter, leads to what holds or to the next true mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.source import Source


def helps(text: str, name: str = "mine.ps", **sizes: int) -> list[str | None]:
    """The remedies of all findings of a file."""
    return [found.help for found in pipesched.verify(Source(name, text), **sizes).diagnostics]


def test_a_range_that_leaves_out_the_last_rank() -> None:
    """PS902 of `0 .. p - 1`: a smaller p has the same fault; a range that ends at p has none."""
    text = "schedule a(p, m = p)\nstage s in 0 .. p - 1 on rank s\nrank r { repeat m { F } repeat m { B } }\n"
    for p in (4, 3):
        (help,) = helps(text, p=p)
        assert help is not None and "a range leaves out its end, so `0 .. p` is p ranks" in help
    assert helps(text.replace("0 .. p - 1", "0 .. p"), p=4) == []


def test_json_that_ends_too_early_and_json_that_is_broken() -> None:
    """PS811 says which of the two it is: a file that was cut is written again, another is mended where it breaks."""
    (cut,) = helps('{"version": 2,', "a.json")
    (broken,) = helps('{"version": 2, nope}', "a.json")
    assert cut == "the file ends too early: write it again" and broken is not None and "mend the JSON there" in broken


def test_a_claim_that_fails_at_several_sizes_has_its_numbers_on_every_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GPipe holds m; a claim of m - 1 is off by one at every size, and each line has both sides."""
    file = tmp_path / "c.ps"
    file.write_text(
        "schedule c(p, m = 2 * p)\nstage s in 0 .. p on rank s\nrank r { repeat m { F } repeat m { B } }\n"
        "claim peak(r) == m - 1\n"
    )
    assert main(["verify", str(file), "--p", "2..4"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("fail")]
    assert [line.rpartition("does not hold: ")[2] for line in lines] == [
        f"r = 0: peak(r) is {2 * p}, m - 1 is {2 * p - 1}" for p in (2, 3, 4)
    ]


def test_copies_are_told_of_the_stages_that_have_them() -> None:
    """Both ways through three ranks meet on the middle one, which holds its stage once."""
    text = (
        "schedule both(p = 3, m = 2)\nroute down: stage s in 0 .. p on rank s for microbatch 0 .. 1\n"
        "route up: stage s in 0 .. p on rank p - 1 - s for microbatch 1 .. 2\n"
        "rank 0 { F[0] F[1] B[1] B[0] }\nrank 1 { F[0] F[1] B[0] B[1] }\nrank 2 { F[1] F[0] B[0] B[1] }\n"
    )
    report = pipesched.verify(Source("both.ps", text))
    notes = report.parts.memory.notes if report.parts.memory else ()
    assert any(note.startswith("2 copies of stages 0, 2: ") for note in notes), notes


@pytest.mark.parametrize(("name", "said"), [("dualpipe", "route up"), ("interleaved", "later chunks")])
def test_the_legend_names_what_is_paler(name: str, said: str) -> None:
    """The second chunk of a rank is its stage of the other route in DualPipe, and a later chunk of one route."""
    svg, page = (str(pipesched.show(name, p=4, m=8, format=form)) for form in ("svg", "html"))
    assert f"lighter: {said}" in svg and f'"later":"{said}"' in page.replace('": "', '":"')
    text = str(pipesched.show(name, p=4, m=8))
    assert ("route up in lower case" if name == "dualpipe" else "odd chunks of a rank in lower case") in text
