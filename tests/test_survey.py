"""A survey says of each configuration what `verify` says of it alone, and counts right."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.diagnostics import Code

ORDER = '''
def order(p, m, late=False, swapped=False):
    """Sends of a rank that its neighbour receives after its own send, or in another order."""
    if m > 3:
        raise ValueError("too many")
    if p == 1:
        return ["F0.0 B0.0 reduce:0"]
    rows = []
    for rank in range(p):
        forward = [[f"recv:F{rank - 1}.{i}<{rank - 1}"] * (rank > 0) + [f"F{rank}.{i}"]
                   + [f"send:F{rank}.{i}>{rank + 1}"] * (rank < p - 1) for i in range(m)]
        backward = [[f"recv:B{rank + 1}.{i}<{rank + 1}"] * (rank < p - 1) + [f"B{rank}.{i}"]
                    + [f"send:B{rank}.{i}>{rank - 1}"] * (rank > 0) for i in range(m)]
        words = [*sum(forward, []), *sum(backward, []), f"reduce:{rank}"]
        if late and rank == 0:  # its first receive before its last send
            words.insert(words.index(f"send:F0.{m - 1}>1"), words.pop(words.index("recv:B1.0<1")))
        if swapped and rank == 1 and m > 1:
            a, b = words.index("recv:F0.0<0"), words.index("recv:F0.1<0")
            words[a], words[b] = words[b], words[a]
            words.insert(0, words.pop(b))
        rows.append(" ".join(words))
    return rows
'''
MODELS = ("strict", "one-stream", "pair-stream", "async")


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(ORDER)
    return f"python:{tmp_path / 'mine.py'}:order"


def test_every_row_is_the_verdict_of_verify(target: str) -> None:
    """Models that fail, least capacity, other codes; and what is refused."""
    found = pipesched.survey(target, p="2..3", m="2,p", late=[0, 1], swapped=[0, 1]).found
    assert len(found) == 2 * 2 * 2 * 2
    for one in found[3::6]:
        made = one.configuration
        alone = [pipesched.verify(target, **made.sizes, **made.options, comm=model) for model in MODELS]
        codes = [{str(x.code) for x in report.diagnostics if x.severity == "error"} for report in alone]
        assert one.fails == tuple(model for model, code in zip(MODELS, codes, strict=True) if "PS401" in code)
        assert set(one.codes) == codes[-1] - {"PS401"}
        said = alone[0].communication
        assert said is not None and one.capacity == said.capacity


def test_the_table_counts_what_was_found(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text, JSON and a page that loads nothing; the command of a hazard shows it."""
    line = ["survey", target, "--p", "1..3", "--m", "p,4", "-D", "late=0,1"]
    assert main([*line, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    configurations = made["configurations"]
    assert made["ok"] is True and len(configurations) == 3 * 2 * 2
    contract = (Path(__file__).parent.parent / "emit" / "README.md").read_text("utf-8")
    (row,) = re.findall(r"^\| `survey` \|.*$", contract, re.M)
    for entry in (made, *made["hazards"], *configurations):
        assert [key for key in entry if f"`{key}`" not in row and key not in ("p", "v", "m")] == []
    refused = [x for x in configurations if "refused" in x]
    assert len(refused) == 6 and all("too many" in x["refused"] for x in refused)
    waiting = [x for x in configurations if "strict" in x.get("fails", ())]
    assert waiting and sum(x["count"] for x in made["hazards"] if x["code"] == Code.DEADLOCK) == len(waiting)

    assert main(line) == 0
    text = capsys.readouterr().out
    assert f"{len(configurations)} configurations" in text
    hazard = made["hazards"][0]["first"].removeprefix("pipesched ").split()
    assert f"    {made['hazards'][0]['first']}" in text
    assert main(hazard) == 1
    assert "PS401" in capsys.readouterr().out

    page = tmp_path / "survey.html"
    assert main([*line, "-o", str(page)]) == 0
    html = page.read_text("utf-8")
    assert html.startswith("<!DOCTYPE html>") and not re.search(r"(src|href)=|@import|url\(", html)
    assert made["hazards"][0]["first"] in html


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("survey megatrn", "no framework is called 'megatrn'"),
        ("survey python", "needs a schedule"),
        ("survey python:a:b --p 1..300 --m 1..300", "90,000 configurations"),
        ("survey python:a:b --m 2q", "2q"),
        ("survey python:a:b --p 0..2", "p is 0; there must be at least one"),
        ("survey python:a:b --m 0p", "m is 0; there must be at least one"),
    ],
)
def test_what_cannot_be_surveyed_is_refused(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With status 2, by name."""
    assert main(line.split()) == 2
    assert words in capsys.readouterr().err


def test_a_framework_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """PS850 once, not a row for every size."""
    assert main(["survey", "python:no_such_module:order", "--p", "2", "--m", "2"]) == 2
    assert "PS850" in capsys.readouterr().err


def test_a_function_that_is_not_there_is_no_size_that_is_left_out(target: str) -> None:
    """Every configuration says what was refused, and nobody reads that there are no hazards."""
    made = pipesched.survey(f"{target}x", p=[2], m="p,2p")
    assert [one.refused is not None for one in made.found] == [True, True] and made.absent == 0
    assert "nothing was recorded" in str(made) and "no hazards" not in str(made)
