"""Every code has a page, and the page is true: its first example gets the code, and its repair has no error.

Every word has a row, and is found by each name that it has.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipesched.__main__ import main
from pipesched.diagnostics import AnyCode, Code
from pipesched.explain.explain_command import Word, codes, find, page, slug, words

_LANGUAGES = "model|device|parts|calls|ps|csv|order|json|trace|recorded|python|console|toml|sh|deepspeed"
_BLOCK = re.compile(rf"^```({_LANGUAGES})([^\n]*)\n(.*?)^```$", re.M | re.S)
CONFIGURATIONS = {"toml": "toml", "sh": "sh", "deepspeed": "json"}  # of trainers, by their endings


@dataclass(frozen=True)
class Example:
    """A block of a page: its language, the flags of its fence, its text."""

    language: str
    flags: list[str]
    text: str


def examples(code: AnyCode) -> list[Example]:
    """Return the blocks of a page. ``ps p=2 m=4 --mem-cap=4``: parameters first, then options as typed."""
    found = _BLOCK.findall(page(code))
    return [
        Example(
            language,
            _flags(info)
            if language not in ("trace", "recorded", "python", "model", "device", "parts")
            else info.split(),
            text,
        )
        for language, info, text in found
    ]


def _flags(info: str) -> list[str]:
    words = shlex.split(info)
    return [word if word.startswith("-") else _parameter(word) for word in words]


def _parameter(word: str) -> str:
    name = word.partition("=")[0]
    return f"--{word}" if name in ("p", "v", "m") else f"-D{word}"


def verdict(example: Example, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[tuple[str, str]]]:
    """Return the exit status of ``verify`` or ``check`` on an example, with code and severity of all findings."""
    if example.language == "console":
        (command,) = re.findall(r"^\$ pipesched (.+)$", example.text, re.M)
        arguments = shlex.split(command)
    elif example.language == "recorded":  # the flags are the schedule; the text is a file, or several after their names
        (folder / "run").mkdir(exist_ok=True)
        for name, text in re.findall(r"(?:^=== (\w+)\n)?((?:(?!=== ).*\n)+)", example.text, re.M):
            (folder / "run" / (name or "rank_0")).write_text(text, encoding="utf-8")
        arguments = ["verify", *example.flags, "--recorded", str(folder / "run")]
    elif example.language == "python":  # the flags are the command that executes it, in its folder
        (folder / "example.py").write_text(example.text, encoding="utf-8")
        arguments = example.flags
    elif example.language in CONFIGURATIONS:
        file = folder / f"example.{CONFIGURATIONS[example.language]}"
        file.write_text(example.text, encoding="utf-8")
        arguments = ["check", str(file), *example.flags]
    elif example.language in ("model", "device", "parts"):  # the flags are the schedule
        file = folder / f"{example.language}.toml"
        file.write_text(example.text, encoding="utf-8")
        arguments = ["verify", *example.flags, f"--{example.language}", str(file)]
    elif example.language == "trace":  # the flags are the command that reads it
        file = folder / "trace.json"
        file.write_text(example.text, encoding="utf-8")
        arguments = [*example.flags, str(file)]
    else:
        file = folder / f"example.{'txt' if example.language == 'order' else example.language}"
        file.write_text(example.text, encoding="utf-8")
        arguments = ["emit" if "--mend" in example.flags else "verify", str(file), *example.flags]
    with contextlib.chdir(folder) if example.language == "python" else contextlib.nullcontext():
        status = main([*arguments, "--json"])
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    return status, [(diagnostic["code"], diagnostic["severity"]) for diagnostic in found]


pytestmark = pytest.mark.usefixtures("one_supervisor")


@pytest.mark.parametrize("code", codes(), ids=str)
def test_the_first_example_gets_the_code(code: AnyCode, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mistake that a page shows gets its code, and no other error."""
    status, found = verdict(examples(code)[0], tmp_path, capsys)
    assert {c for c, severity in found if severity == "error"} - {str(code)} == set()
    assert (str(code), code.severity) in found
    assert status == code.status


SLOW = ("PS246", "PS247", "PS248", "PS249", "PS250", "PS252", "PS503", "PS701", "PS716")
REPAIRED = [
    pytest.param(code, marks=pytest.mark.nightly if str(code) in SLOW else (), id=str(code)) for code in codes()
]


@pytest.mark.parametrize("code", REPAIRED)
def test_the_repair_gets_no_error(code: AnyCode, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The repair on a page holds, without a warning of this code."""
    _, *repairs = examples(code)
    assert repairs
    for repair in repairs:
        assert verdict(repair, tmp_path, capsys) == (0, [])


@pytest.mark.parametrize("code", codes(), ids=str)
def test_a_page_is_short_and_has_its_title(code: AnyCode) -> None:
    """The heading names the code; a page fits a screen, and no line except of JSON is wrapped by a usual terminal."""
    text = page(code)
    assert re.match(rf"# {code}: [^\n]+\n\n", text) and text.endswith("\n") and "\n\n\n" not in text
    lines = text.split("\n")
    assert 10 <= len(lines) <= 60
    assert all(len(line) <= 120 for line in lines if not re.search(r"\({4}|\"source\":", line))


def test_no_page_is_left_over() -> None:
    """There is a page for every code, and the page of the words."""
    folder = Path(__file__).parents[2] / "pipesched" / "explain" / "pages"
    assert sorted(file.stem for file in folder.iterdir()) == sorted([*map(str, codes()), "words"])


@pytest.mark.parametrize("word", ["PS401", "ps401", "401", "deadlock", "Deadlock"])
def test_a_page_is_found_by_number_and_name(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A page is found in upper or lower case, with or without letters."""
    assert main(["explain", word]) == 0
    assert capsys.readouterr().out == page(Code.DEADLOCK)


def test_names_are_unique_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each code has its own name; without an argument all codes are listed in order, one per line, and all words."""
    assert len({slug(code) for code in codes()}) == len({*codes()}) == len(codes())
    assert main(["explain"]) == 0
    titles, listed = capsys.readouterr().out.split("\n\n")
    assert [line.split()[0] for line in titles.splitlines()] == [str(code) for code in codes()]
    assert " ".join(listed.split()).removeprefix("words: ").split(", ") == [word.word for word in words()]


@pytest.mark.parametrize(
    ("word", "hint"), [("deadlok", "PS401 (deadlock)"), ("makspan", "makespan"), ("Chnk", "chunk")]
)
def test_a_near_miss_gets_a_suggestion(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown code or word ends with status 2 and the nearest one."""
    assert main(["explain", word]) == 2
    assert f"did you mean {hint}?" in capsys.readouterr().err


WORDS = (Path(__file__).parents[2] / "pipesched" / "explain" / "pages" / "words.md").read_text("utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in WORDS.splitlines() if line[:1] == "|"][2:]


@pytest.mark.parametrize(("word", "meaning", "elsewhere"), ROWS, ids=[row[0] for row in ROWS])
def test_a_word_is_explained(word: str, meaning: str, elsewhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By its own name and by every name that the field has for it, in any case; the output is its row."""
    for name in (word, word.upper(), *elsewhere.replace("`", "").split(", ")):
        found = find(name)
        assert isinstance(found, Word) and found.word == word, name
    assert main(["explain", word]) == 0
    first, second, *more = capsys.readouterr().out.splitlines()
    assert first == f"{word}: {meaning}" and second == f"    elsewhere: {elsewhere.replace('`', '')}"
    code = next((code for code in codes() if slug(code) == word), None)
    assert [line.split()[0] for line in more] == ([] if code is None else [f"{code}:"])
    assert main(["explain", word, "--json"]) == 0
    entry = json.loads(capsys.readouterr().out)
    assert (entry["ok"], entry["word"], entry["meaning"]) == (True, word, meaning)


def test_no_name_has_two_meanings() -> None:
    """A word, or another name of it, belongs to one row, and is not the name of a code."""
    names = [name.lower() for word, _, elsewhere in ROWS for name in (word, *elsewhere.replace("`", "").split(", "))]
    assert len(set(names)) == len(names)
    others = {name.lower() for *_, elsewhere in ROWS for name in elsewhere.split(", ")}
    assert others & {slug(code) for code in codes()} == set()
