"""The gallery of `schedules/`: each schedule has a picture that is current, its source, and what its file claims.

``pytest tests/test_gallery.py --update-golden`` writes the pictures and those lines anew.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipesched.__main__ import main

SCHEDULES = Path(__file__).parent.parent / "schedules"
README = SCHEDULES / "README.md"
PICTURES = SCHEDULES / "pictures"
NAMES = sorted(path.stem for path in SCHEDULES.glob("*.ps"))
SIZES = ("--p", "4", "--m", "8")


def section(name: str) -> str:
    """What the gallery says of a schedule, from its heading to the next one."""
    (found,) = [part for part in README.read_text("utf-8").split("\n## ")[1:] if f"(pictures/{name}.svg)" in part]
    return found


def promises(name: str) -> str:
    """What a file requires and claims, as it stands there."""
    text = (SCHEDULES / f"{name}.ps").read_text("utf-8")
    required = "".join(re.findall(r"^require .*\n", text, re.M))
    return required + text[text.index("\nclaim ") + 1 :]


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_current(name: str, tmp_path: Path, update_golden: bool) -> None:
    """It is what `pipesched show` draws today, byte for byte."""
    golden, drawn = PICTURES / f"{name}.svg", tmp_path / f"{name}.svg"
    assert main(["show", name, *SIZES, "--memory", "-o", str(drawn)]) == 0
    if update_golden:
        golden.write_bytes(drawn.read_bytes())
    assert drawn.read_bytes() == golden.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_section_has_source_and_claims(name: str, update_golden: bool) -> None:
    """What is required and claimed is that of the file, letter by letter; each paper that the file names is linked."""
    if update_golden:
        (stale,) = re.findall(r"^```ps\n(.*?)^```$", section(name), re.M | re.S)
        README.write_text(README.read_text("utf-8").replace(stale, promises(name)), "utf-8")
    assert re.findall(r"^```ps\n(.*?)^```$", section(name), re.M | re.S) == [promises(name)]
    papers = re.findall(r"arXiv:[\d.]+\d", (SCHEDULES / f"{name}.ps").read_text("utf-8"))
    assert papers
    for paper in papers:
        assert f"[{paper}]" in section(name)
        assert f"\n[{paper}]: https://arxiv.org/abs/{paper.removeprefix('arXiv:')}\n" in README.read_text("utf-8")


def test_the_gallery_is_complete() -> None:
    """A section for each schedule, in which it is verified at the sizes of its picture; no picture is left over."""
    assert sorted(path.stem for path in PICTURES.iterdir()) == NAMES
    for name in NAMES:
        assert f"$ pipesched verify {name} {' '.join(SIZES)}\n" in section(name)
