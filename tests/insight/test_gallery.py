"""In the gallery of `schedules/` each schedule has an up-to-date picture, its source, and the claims in its file.

``python -m tests.insight.test_gallery`` writes what is missing or outdated: pictures, the plot, sections, links and all
output of the page's commands. A section that it begins may be given more words; they stay.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from unittest import mock

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.explain.catalogue import GROUPS, Entry, entries
from pipesched.insight import compare
from pipesched.views.tables import short

SCHEDULES = Path(__file__).parents[2] / "schedules"
README = SCHEDULES / "README.md"
PICTURES = SCHEDULES / "pictures"
PLOT = SCHEDULES / "bubble.svg"
NAMES = sorted(path.stem for path in SCHEDULES.glob("*.ps"))
SIZES = ("--p", "4", "--m", "8")
BLOCK = re.compile(r"^```ps\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"^\[arXiv:[\d.]+\]: .*\n", re.M)
PAPER = re.compile(r"arXiv:\d{4}\.\d{4,5}")


def text(name: str) -> str:
    return (SCHEDULES / f"{name}.ps").read_text("utf-8")


def sections() -> dict[str, str]:
    """Return the sections of the gallery, by the name of their picture, from heading to heading."""
    parts = LINK.sub("", README.read_text("utf-8")).split("\n## ")[1:]
    found = {re.findall(r"\(pictures/(\w+)\.svg\)", part)[0]: part.rstrip() + "\n" for part in parts}
    assert len(found) == len(parts)
    return found


def promises(name: str) -> str:
    """Return the requires and claims of a file, as written there."""
    required = "".join(re.findall(r"^require .*\n", text(name), re.M))
    return required + text(name)[text(name).index("\nclaim ") + 1 :]


def drawn(name: str, path: Path) -> bytes:
    """Draw the current picture of a schedule."""
    assert main(["show", name, *SIZES, "--memory", "-o", str(path)]) == 0
    return path.read_bytes()


def plotted(path: Path) -> bytes:
    """Draw the current plot of all schedules, without computing lower bounds, which it does not show."""
    with mock.patch.object(compare, "bound", return_value=None):
        assert main(["compare", "--all", "--p", "8", "--m", "16", "--plot", str(path), "-o", f"{path}.txt"]) == 0
    Path(f"{path}.txt").unlink()
    return path.read_bytes()


def catalogue() -> str:
    """Return a row for each schedule: its paper, its claims about peak and idle time, and both at p=8, m=16."""
    with mock.patch.object(compare, "bound", return_value=None):
        made = pipesched.compare(*NAMES, p=8, m=16)
    figures = {row.name: row for row in made.rows}
    rows = ["| file | published in | peak and idle time | peak | bubble |", "|---|---|---|---|---|"]
    known = entries()
    for group in (group for group in GROUPS if any(x.group == group for x in known)):
        rows.append(f"| **{group}** | | | | |")
        for entry in (x for x in known if x.group == group):
            row = figures[entry.name]
            why = made.apart(row)
            peak = short(row.peak)
            bubble = "-" if row.bubble is None else f"{float(100 * row.bubble):.1f} %"
            cells = (peak, f"{bubble}, {why}" if why and row.bubble is not None else why or bubble)
            claims = ", ".join(f"`{claim}`" for claim in _formulas(entry.name))
            source = PAPER.sub(r"[\g<0>]", entry.documentation.partition(";")[0])
            rows.append(f"| [{entry.name}]({entry.name}.ps) | {source} | {claims} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _formulas(name: str) -> list[str]:
    """Return the first claim about peaks and the first about idle time, without their conditions."""
    claims = [" ".join(claim.split()) for claim in re.findall(r"^claim (.*\n(?:  .*\n)*)", text(name), re.M)]
    formulas = [claim.partition(" when ")[0] for claim in claims]
    first = [[x for x in formulas if x.startswith(word)][:1] for word in ("peak", "idle")]
    return [formula for found in first for formula in found]


def begun(entry: Entry) -> str:
    """Return a section for a schedule that has none, from its file."""
    first = re.sub(r"^# (?:[^:\n]*: )?(.)", lambda at: at[1].upper(), text(entry.name).split("\n", 1)[0])
    source = PAPER.sub(r"[\g<0>]", f"Source: {entry.documentation}. In [{entry.name}.ps]({entry.name}.ps):")
    first, source = (textwrap.fill(line, 120, break_on_hyphens=False) for line in (first, source))
    return f"""{entry.title}

{first}

![{entry.title} on four ranks](pictures/{entry.name}.svg)

{source}

```ps
{promises(entry.name)}```

```console
$ pipesched verify {entry.name} {" ".join(SIZES)}
```
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_current(name: str, tmp_path: Path) -> None:
    """It equals the output of `pipesched show`, byte for byte."""
    assert drawn(name, tmp_path / f"{name}.svg") == (PICTURES / f"{name}.svg").read_bytes()


def test_the_plot_is_current(tmp_path: Path) -> None:
    """It equals the output of `pipesched compare --all`, byte for byte; each schedule is in it or named below it."""
    assert plotted(tmp_path / "plot.svg") == PLOT.read_bytes()
    shown = PLOT.read_text("utf-8")
    assert [name for name in NAMES if not re.search(rf"[>, ]{name}[<,:]", shown)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_section_has_source_and_claims(name: str) -> None:
    """The requires and claims equal the text of the file, letter by letter; each paper that the file names is
    linked."""
    assert BLOCK.findall(sections()[name]) == [promises(name)]
    papers = PAPER.findall(text(name))
    assert papers or "ours" in text(name), "no paper is named, and it is not said to be ours"
    for paper in papers:
        assert f"[{paper}]" in sections()[name]
        assert f"\n[{paper}]: https://arxiv.org/abs/{paper.removeprefix('arXiv:')}\n" in README.read_text("utf-8")


def test_the_gallery_is_complete() -> None:
    """The gallery has a section for each schedule, in the order of `pipesched list`, verified at the sizes of its
    picture; no picture is unused.
    """
    told = "`python -m tests.insight.test_gallery` begins what is missing"
    assert sorted(path.stem for path in PICTURES.iterdir()) == NAMES, told
    assert list(sections()) == [entry.name for entry in entries()], told
    for name, section in sections().items():
        assert f"$ pipesched verify {name} {' '.join(SIZES)}\n" in section


def update() -> None:
    """Write all of it."""
    from tests.shell import test_readme

    for path in PICTURES.glob("*.svg"):
        path.unlink()
    for name in NAMES:
        drawn(name, PICTURES / f"{name}.svg")
    plotted(PLOT)
    head, known = README.read_text("utf-8").partition("\n## ")[0].rstrip() + "\n", sections()
    parts = [head]
    for entry in entries():
        before, fence, rest = (known.get(entry.name) or begun(entry)).partition("```ps\n")
        parts.append(f"{before}{fence}{promises(entry.name)}{rest[rest.index('```') :]}")
    page = "\n## ".join(parts)
    papers = sorted({*PAPER.findall(page)})
    links = [f"[{paper}]: https://arxiv.org/abs/{paper.removeprefix('arXiv:')}" for paper in papers]
    README.write_text("\n".join([page, *links, ""]), "utf-8")
    test_readme.update(pages=("schedules/README.md",))


if __name__ == "__main__":
    update()
