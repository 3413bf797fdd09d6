"""Every block in every README is executed: `console` blocks are run and compared, and `python` blocks are doctests.

``ps`` and ``text`` blocks of the language reference and of the gallery, ``json`` blocks, ``py`` scripts and ``toml``
files have tests of their own; ``sh`` lines are run by .ci/run. Tables between ``<!-- name -->`` and
``<!-- end -->`` are made from the product.
After a change of output that is meant: ``python -m tests.shell.test_readme [WORD]`` writes the new output into the
blocks, or into those with WORD in them, and all tables.
"""

from __future__ import annotations

import contextlib
import doctest
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import pytest

import pipesched
from pipesched.check.rows import ORDER_CHECKS, PROGRAM_CHECKS
from pipesched.common.in_memory import written
from pipesched.extension import Check
from pipesched.extension import rows as added
from pipesched.formats import readers as kinds
from pipesched.formats import targets as forms
from pipesched.interop.frameworks.frameworks import FRAMEWORKS
from pipesched.shell.app import verbs
from pipesched.views.chart.views import views
from tests.insight.test_gallery import catalogue
from tests.prover.test_theorems import table as theorems
from tests.readers.typed import typed

TOP = Path(__file__).resolve().parents[2]
PAGES = (
    "**/README.md",
    "emit/torchtitan.md",
    "schedules/found/*.md",
    ".github/CONTRIBUTING.md",
    "pipesched/explain/pages/words.md",
)
READMES = sorted(
    str(path.relative_to(TOP))
    for page in PAGES
    for path in TOP.glob(page)
    if ".venv" not in path.relative_to(TOP).parts
)
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MEASURED = re.compile(
    r"[\d.]+(?= ms measured)|(?<=largest error )[\de.-]+(?=,)|(?<= per unit )\([+-][\d.]+ %\)|(?<= [FIW] )[\d.]+(?= ms)"
)
TABLE = re.compile(r"(?<=^<!-- )(?!end )(\w+)( -->\n)(.*?)(?=^<!-- end -->$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"`[^`\n]*`|\]\(([^)\s]+)\)")
KNOWN = {"console", "python", "py", "ps", "text", "sh", "json", "toml", "calls"}


def blocks(readme: str, kind: str) -> list[str]:
    text = (TOP / readme).read_text("utf-8")
    return [match[2] for match in BLOCK.finditer(text) if match[1] == kind]


def run(command: str, folder: Path) -> str:
    """Return the output of a command in a folder, stdout and stderr as a person sees them."""
    words = shlex.split(command)
    if words[0] == "cat":
        return "".join((folder / name).read_text("utf-8") for name in words[1:])
    assert words[0] == "pipesched", command
    shown = mock.patch.dict(os.environ, {"NO_COLOR": "1", "COLUMNS": "100"})
    with contextlib.chdir(folder), shown, mock.patch("pipesched.planning.progress.EVERY", 1e6):
        return typed(*words[1:]).shown.decode("utf-8")


def saved(above: str) -> dict[str, str]:
    """Return the files that a page asks its reader to save, by name: `ps` and `calls` with a name after that word."""
    return dict(re.findall(r"^```(?:ps|calls) (\w+\.\w+)[^\n]*\n(.*?)^```$", above, re.MULTILINE | re.DOTALL))


def replayed(block: str, above: str = "") -> str:
    """Return the block with the current output of its commands, in a folder that looks like the repository.

    above: the page up to there; files that it tells its reader to save are in the folder. A later command of the block
    can read the files of an earlier one.
    """
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in TOP.iterdir():
            (folder / path.name).symlink_to(path)
        for file, content in saved(above).items():
            (folder / file).write_text(content, "utf-8")
        return "".join(f"$ {command}\n{run(command, folder)}" for command in commands)


def commands() -> str:
    """Return one row for each command: its name and its short help."""
    rows = [f"| `{name}` | {verb.help.rstrip('.')} |" for name, verb in verbs().items()]
    return "\n".join(["| command | |", "|---|---|", *rows])


def readers() -> str:
    """Return one row for each kind of text that is read."""
    rows = [f"| {row.title} | {f'`{row.ending}`' if row.ending else 'any name'} |" for row in kinds.readers()]
    return "\n".join(["| | name ends in |", "|---|---|", *rows])


def checks() -> str:
    """Return one row for each check, with the pages of its codes."""
    rows = [
        f"| {row.property} | {', '.join(f'[{code}](explain/pages/{code}.md)' for code in row.codes)} |"
        for row in (*ORDER_CHECKS, *sorted((*PROGRAM_CHECKS, *added(Check)), key=lambda row: row.place))
    ]
    return "\n".join(["| property | code of a violation |", "|---|---|", *rows])


def frameworks() -> str:
    """Return one row for each framework and its options."""
    rows = []
    for row in FRAMEWORKS.values():
        options = "; ".join(f"`{name}` {said}" for name, said in row.options.items())
        names = ", ".join(f"`{row.name}:{name}`" for name in row.names)
        rows.append(f"| {names} | {row.title} | {', '.join(row.tried)} | {options} |")
    return "\n".join(["| | executed code | tried with | `-D` |", "|---|---|---|---|", *rows])


def others() -> str:
    """Return one row for each order of other projects' generators, with its verdict."""
    rows = []
    for entry in json.loads((TOP / "tests" / "data" / "others.json").read_text("utf-8")):
        text = written(entry["rows"])
        assert text is not None
        report = pipesched.verify(text, p=entry["p"], m=entry["m"])
        fault = report.fault
        said = (
            f"{fault.code}: {fault.message}" if fault else f"right; makespan {report.makespan}, peak {max(report.peak)}"
        )
        sizes = " ".join(f"{name}={entry[name]}" for name in "pvm" if name in entry)
        rows.append(
            f"| {entry['repository']} | {entry['name']} | {sizes} | {said.replace('<order>.txt', 'the order')} |"
        )
    return "\n".join(["| | schedule | | |", "|---|---|---|---|", *rows])


def targets() -> str:
    """Return one row for each form in which a schedule is written."""
    rows = [f"| `{row.name}` | `{row.ending}` | {row.title} |" for row in forms.targets().values()]
    return "\n".join(["| `--target` | | |", "|---|---|---|", *rows])


def torchtitan() -> str:
    """Return one row for each recorded run of torchtitan's trainer."""
    runs = json.loads((TOP / "tests" / "data" / "torchtitan.json").read_text("utf-8"))["runs"]
    rows = [f"| {' | '.join([name, *steps])} |" for name, steps in runs.items()]
    return "\n".join(["| loss / gradient norm | step 1 | step 2 | step 3 | step 4 |", "|---|---|---|---|---|", *rows])


TABLES: dict[str, Callable[[], str]] = {
    "catalogue": catalogue,
    "theorems": theorems,
    "commands": commands,
    "readers": readers,
    "checks": checks,
    "targets": targets,
    "frameworks": frameworks,
    "others": others,
    "torchtitan": torchtitan,
}


SLOW = re.compile(
    r"^\$ pipesched (plan|optimize .*(=|--front|\.\.)|play|prove|verify (torch|python:.* --p 2,3)|run .* --p 64)",
    re.MULTILINE,
)
CONSOLE = [
    pytest.param(readme, number, marks=pytest.mark.nightly if SLOW.search(block) else ())
    for readme in READMES
    for number, block in enumerate(blocks(readme, "console"))
]


@pytest.mark.usefixtures("one_supervisor")
@pytest.mark.parametrize(("readme", "number"), CONSOLE)
def test_console_blocks_show_what_the_commands_print(readme: str, number: int) -> None:
    """A command in a README prints exactly the text there, except for measurements."""
    text = (TOP / readme).read_text("utf-8")
    block = [match for match in BLOCK.finditer(text) if match[1] == "console"][number]

    assert MEASURED.sub("N", replayed(block[2], text[: block.start()])) == MEASURED.sub("N", block[2])


@pytest.mark.parametrize("readme", [readme for readme in READMES if blocks(readme, "python")])
def test_python_blocks_are_true(readme: str) -> None:
    """The Python of a README runs with the shown values; `test_extension` runs files."""
    page = (TOP / readme).read_text("utf-8")
    for block in (match[2] for match in BLOCK.finditer(page) if match[0].startswith("```python\n")):
        example = doctest.DocTestParser().get_doctest(block, {}, readme, readme, 0)

        assert example.examples, "a python block is written as a doctest"
        assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize("readme", READMES)
def test_no_block_goes_untested(readme: str) -> None:
    """A block has a language, and each language has a test."""
    text = (TOP / readme).read_text("utf-8")
    kinds = {match[1] for match in BLOCK.finditer(text)}

    assert text.count("\n```") == 2 * len(list(BLOCK.finditer(text)))
    assert kinds <= KNOWN


def test_the_readme_has_the_two_lines() -> None:
    """One command installs and verifies, another installs and tests; .ci/run runs exactly these."""
    assert [len(block.splitlines()) for block in blocks("README.md", "sh")] == [1, 1]


def test_the_front_page_is_read_in_five_minutes() -> None:
    """The front page has at most 180 lines; the first picture and the words come first, and each row is that of
    `pipesched explain`."""
    lines = (TOP / "README.md").read_text("utf-8").splitlines()
    words = (TOP / "pipesched" / "explain" / "pages" / "words.md").read_text("utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and line.count(" | ") == 2]

    assert len(lines) <= 180 and any(line.startswith("![") for line in lines[:12])
    assert set(rows) <= set(words)
    assert {row.split()[1] for row in rows} > {*"pvm", "chunk", "route", "span", "bubble", "makespan", "peak"}


@pytest.mark.parametrize("readme", READMES)
def test_what_is_made_is_current(readme: str) -> None:
    """A table between its marks is the product's current one."""
    for name, _, table in TABLE.findall((TOP / readme).read_text("utf-8")):
        assert table == f"\n{TABLES[name]()}\n\n"


def test_every_kind_of_picture_is_in_the_guide() -> None:
    """The table of suffixes has exactly those of the views."""
    guide = (TOP / "pipesched" / "README.md").read_text("utf-8").partition("## See it")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in guide.splitlines() if line.startswith("| `.")]
    suffixes = {suffix for view in views().values() for suffix in (*view.suffixes, *view.forms)}

    assert {suffix for row in rows for suffix in re.findall(r"`(\.\w+)`", row)} == suffixes


def test_every_function_is_in_the_guide() -> None:
    """The guide on Python names every public function; all but four have the name of their command."""
    guide = (TOP / "pipesched" / "README.md").read_text("utf-8")
    functions = {name for name in pipesched.__all__ if name.islower() and not name.startswith("_")}
    listed = guide.partition("\n## In Python")[2].partition("```")[0].partition(": `load`")

    assert set(re.findall(r"`(\w+)`", "".join(listed[1:]))) == functions
    assert functions - {"from_torch_csv", "torch_runtime", "load", "run_rank"} <= {*verbs()}


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them of its headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("readme", READMES)
def test_links_lead_somewhere(readme: str) -> None:
    """Each link to a file of the repository leads to an existing file and heading."""
    page = TOP / readme
    for link in LINK.findall(BLOCK.sub("", page.read_text("utf-8"))):
        if link and not link.startswith("https://"):
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("readme", READMES)
def test_lines_are_short(readme: str) -> None:
    """At most 120 characters, except in tables, blocks, and lines that are one link."""
    text = BLOCK.sub("", (TOP / readme).read_text("utf-8"))
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith(("|", "![", "    "))] == []


def test_what_to_touch_is_there() -> None:
    """A recipe of CONTRIBUTING has at most four lines, and each name that it gives for a file is defined there."""
    page = TOP / ".github" / "CONTRIBUTING.md"
    recipes = page.read_text("utf-8").partition("## To add something")[2].partition("\n## ")[0].split("\n### ")[1:]

    assert len(recipes) >= 4
    for recipe in recipes:
        lines = re.findall(r"^(\d)\. ", recipe, re.MULTILINE)
        assert lines == ["1", "2", "3", "4"][: len(lines)] and (lines or recipe.startswith("An extension\n")), recipe
        for named, link in re.findall(r"((?:`\w+`(?: or |, )?)+) (?:of|in) \[[^]]+\]\(([^)]+)\)", recipe):
            source = (page.parent / link).read_text("utf-8")
            for name in re.findall(r"\w+(?=`)", named):
                assert re.search(rf"^(?:class |def )?{name}\b", source, re.MULTILINE), (name, link)


def update(word: str = "", pages: Sequence[str] = READMES) -> None:
    """Write the current output of the commands into the console blocks with the word, and the tables."""
    for readme in pages:
        path = TOP / readme
        text = path.read_text("utf-8")

        def renewed(match: re.Match[str]) -> str:
            chosen = match[1] == "console" and word in match[2]
            return f"```console\n{replayed(match[2], match.string[: match.start()])}```" if chosen else match[0]

        def made(match: re.Match[str]) -> str:
            return f"{match[1]}{match[2]}\n{TABLES[match[1]]()}\n\n"

        path.write_text(TABLE.sub(made, BLOCK.sub(renewed, text)), "utf-8")


if __name__ == "__main__":
    update(*sys.argv[1:2])
