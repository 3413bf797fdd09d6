"""A new kind of operation, added in at most eight places to a copy of the source tree, is known to all commands.

One kind is X, which checks a forward: it waits for the F of its stage, takes a time of its own, makes nothing that
another operation takes, and holds as much as the F, until the backward. Y and Z copy an activation away and back, as O
and L do. V takes no memory. The findings expected of the copy were derived by hand.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from pipesched.model.ops import COMPUTES, LETTERS, Does, Kind, Op, Result
from tests.makers.grammar_tables import written as tables

ROOT = Path(__file__).resolve().parents[2]
MORE = "XYZV"


def quoted(letters: Iterable[str]) -> Iterator[str]:
    return (f'"{letter}"' for letter in letters)


GRAMMAR, TABLES = "grammars/pipesched.lark", "grammars/pipesched.lalr.json"
PLACES = (  # file, a text in it, what is inserted after it
    (
        "pipesched/model/ops.py",
        "    LOADED = 5  # the activation, back from there\n",
        "".join(f"    {name} = {len(Result) + i}\n" for i, name in enumerate(("CHECKED", "AWAY", "HERE", "SEEN"))),
    ),
    (
        "pipesched/model/ops.py",
        'words="copy back", colour="load", like="O", holds=1)\n',
        '    X = Kind(Does.COMPUTE, ACTIVATION, makes=(Result.CHECKED,), words="examination", colour="examine", '
        'like="F", holds=1)\n'
        '    Y = Kind(Does.COPY, ACTIVATION, makes=(Result.AWAY,), words="copy to host memory", colour="offload", '
        'like="F", holds=-1)\n'
        '    Z = Kind(Does.COPY, Result.AWAY, makes=(Result.HERE,), words="copy back", colour="load", like="Y", '
        'holds=1)\n    V = Kind(Does.COMPUTE, ACTIVATION, makes=(Result.SEEN,), words="view", like="F")\n',
    ),
    ("pipesched/stream.py", f"COMPUTES = ({', '.join(quoted(LETTERS))}", f", {', '.join(quoted(MORE))}"),
    (
        "grammars/README.md",
        f"`of` {' '.join(f'`{x}`' for x in LETTERS[LETTERS.index('R') :])}",
        " " + " ".join(f"`{x}`" for x in MORE),
    ),
    (
        "emit/README.md",
        "their memory is allocated here, and the I or B waits for the copy |\n",
        "".join(f"| `{letter}` | stage, microbatch | does something |\n" for letter in MORE),
    ),
    (
        "emit/v2/README.md",
        "copies its activation back |\n",
        "".join(f'| `{x}0.1` | `{{"op":"{x}","stage":0,"microbatch":1}}` | does something |\n' for x in MORE),
    ),
)


def faults(op: Op, kind: Kind) -> list[str]:
    """Return what a row of the table must not say: costs, memory and messages would silently be wrong."""
    earlier = [other.name for other in COMPUTES if other < op]
    back = any(other.copy and other.kind.holds == 1 and other.kind.result in kind.makes for other in COMPUTES)
    undone = any(kind.result in other.kind.makes and other.kind.holds == -1 for other in COMPUTES)
    return [
        text
        for wrong, text in (
            (kind.result is None or not kind.makes, "it needs a result that it takes, and one that it makes"),
            (op.name not in "FIWB" and kind.like not in earlier, f"`like` must name one of {', '.join(earlier)}"),
            (type(kind.holds) is not int or kind.holds not in (-1, 0, 1), "`holds` must be -1, 0 or 1"),
            (kind.holds == -1 and kind.does is not Does.COPY, "only a copy frees what its F holds"),
            (kind.holds == -1 and not back, "a copy that frees needs another that takes its result back"),
            (kind.holds == 1 and kind.does is Does.COPY and not undone, "a copy takes only what another one freed"),
        )
        if wrong
    ]


Listed = Callable[[str], str]
_IN_CLASS: Listed = lambda letters: f"[{letters}]"  # noqa: E731
_IN_SCHEMA: Listed = lambda letters: ", ".join(quoted(letters))  # noqa: E731
SCHEMA = r'"F", "I", "W", "B", "R"(?:, "[A-Z]")*(?=, "FB"|\])'
LISTS: tuple[tuple[str, str, Listed], ...] = (
    (GRAMMAR, r'(?m)(?<=^_letter: )"F".*', lambda letters: " | ".join(quoted(letters))),
    (GRAMMAR, r'(?<="of" \| )"R"(?: \| "[A-Z]")*', lambda letters: " | ".join(quoted(letters[letters.index("R") :]))),
    ("grammars/pipesched.tmLanguage.json", r"(?<=\()\[F[A-Z]+\](?=\|STEP)", _IN_CLASS),
    ("grammars/pipesched.tmLanguage.json", r"(?<=t\()F(?:\|[A-Z])+(?=\|C\|)", "|".join),
    ("pipesched/playground/page/model.js", '(?<=KINDS = ")[A-Z]+', str),
    (".github/site/conf.py", r"\[F[A-Z]+\]", _IN_CLASS),
    *((f"emit/{name}.schema.json", SCHEMA, _IN_SCHEMA) for name in ("v2/stream", "v3/stream", "report", "optimum")),
)
"""Lists of all letters in files that are no Python: the file, a pattern of the list, and the list of the table."""


def write_lists(tree: Path, letters: str) -> dict[str, str]:
    """Write the lists, and the grammar's tables; return the texts before."""
    before = {name: (tree / name).read_text("utf-8") for name in [*dict.fromkeys(name for name, *_ in LISTS), TABLES]}
    for name, pattern, listed in LISTS:
        text, count = re.subn(pattern, listed(letters).replace("\\", r"\\"), (tree / name).read_text("utf-8"))
        assert count, f"{name} has no list like {pattern}: where are its letters?"
        (tree / name).write_text(text, "utf-8")
    (tree / TABLES).write_text(tables((tree / GRAMMAR).read_text("utf-8")), "utf-8")
    return before


@pytest.mark.parametrize("op", COMPUTES, ids=lambda op: op.name)
def test_a_row_says_nothing_that_costs_or_memory_cannot_follow(op: Op) -> None:
    """Rows that a newcomer might write wrong are named: a fraction, a copy that takes, a kind without a cost."""
    assert not faults(op, op.kind)
    for change in ({"holds": Fraction(1, 4)}, {"holds": 2}, {"makes": ()}, {"result": None}):
        assert faults(op, replace(op.kind, **change)), change  # type: ignore[arg-type]
    assert faults(Op.R, replace(Op.R.kind, does=Does.COPY)) and faults(Op.R, replace(Op.R.kind, like="C"))
    assert faults(Op.O, replace(Op.O.kind, makes=(Result.LOADED,)))
    assert faults(Op.R, replace(Op.R.kind, holds=-1)) and faults(Op.R, replace(Op.R.kind, like=""))


HEAD = "schedule full(p, m = 2 * p)\nstage s in 0 .. p on rank s\n"
GOOD = (
    HEAD + "rank r { repeat m { F }  repeat m { X  B } }\nclaim work(r) == m * (tF + tX + tB)\nclaim peak(r) == m + 1\n"
)
COPIED = HEAD + "rank r { F  for i in 1 .. m { F  O(i - 1) }  for i in 1 .. m { L(m - 1 - i)  B(m - i) }  B(0) }\n"
EXAMPLES = {
    "good.ps": GOOD,
    "twice.ps": HEAD + "rank r { repeat m { F }  repeat m { X  B }  X(0) }\n",
    "early.ps": HEAD + "rank r { for i in 0 .. m { X(i)  F }  repeat m { B } }\n",
    "past.ps": HEAD + "rank r { repeat m { F }  repeat m { X  B }  X }\n",
    "loose.ps": GOOD.replace("X  B", "X B"),
    "plain.ps": HEAD + "rank r { repeat m { F }  repeat m { B } }\n",
    "kept.ps": HEAD + "rank r { repeat m { F Y }  repeat m { B } }\n",
    "unsent.ps": HEAD + "rank r { repeat m { F }  repeat m { Z(0) B } }\n",
    "late.ps": HEAD + "rank r { repeat m { F Y }  repeat m { B Z } }\n",
    "behind.ps": HEAD + "rank r { repeat m { F }  repeat m { B  V } }\n",
    "greedy.ps": HEAD + "rank r { greedy { B  V  F } }\n",
    "named.ps": HEAD
    + "let V = 2\nlet tV = V\nrank r { repeat m { F }  repeat m { V  B } }\nclaim peak(r) == m + tV - 2\n",
    "again.ps": HEAD + "rank r { repeat m { F O L Y Z }  repeat m { B } }\n",
    "lost.ps": HEAD + "rank r { repeat m { F Y Z R }  repeat m { B } }\n",
    "own.ps": COPIED,
    "new.ps": COPIED.translate(str.maketrans("OL", "YZ")),
    "freed.ps": HEAD + "rank r { repeat m { F  X  B } }\n",
}
ORDER = "rank 0: F0.0 F0.1 X0.0 B0.0 X0.1 B0.1\nrank 1: F1.0 F1.1 X1.0 B1.0 X1.1 B1.1\n"
NAMES = ("own", "new")
LIKEWISE = {
    "verify": "verify FILE --p 3 --m 5 --json",
    "why": "why FILE --p 3 --m 5",
    "show": "show FILE --p 3 --m 5 --memory",
    "svg": "show FILE --p 3 --m 5 --format svg",
    "trace": "show FILE --p 3 --m 5 --format trace -o -",
    "diff": "diff FILE plain.ps --p 3 --m 5",
}
COMMANDS = {
    **{
        name: f"verify {name}.ps --p 2 --m 3"
        for name in ("kept", "unsent", "late", "behind", "greedy", "named", "again", "lost")
    },
    **{f"{x} {name}": said.replace("FILE", f"{name}.ps") for x, said in LIKEWISE.items() for name in NAMES},
    "dear": "verify good.ps --p 2 --m 3 --json --cost F=1,B=2,X=5",
    "assumed": "verify good.ps --p 2 --m 3 --json --cost F=1,B=2",
    "twice": "verify twice.ps --p 2 --m 2",
    "early": "verify early.ps --p 2 --m 2",
    "past": "verify past.ps --p 2 --m 2",
    "fmt": "fmt loose.ps",
    "text": "show good.ps --p 2 --m 2",
    "svg": "show good.ps --p 2 --m 2 --format svg",
    "html": "show good.ps --p 2 --m 2 --format html -o -",
    "stream": "emit good.ps --p 2 --m 2 -o good.json",
    "read": "verify good.json",
    "freed": "verify freed.ps --p 2 --m 4 --json --release split:1/2",
    "torch": "emit good.ps --p 2 --m 2 --target torch-csv",
    "optimize": "optimize good.ps --p 2 --m 2",
    "bound": "compare good.ps --p 2 --m 2 --json",
    "why": "why good.ps --p 2 --m 3 --json --cost F=1,B=2,X=5",
    "differ": "diff good.ps plain.ps --p 2 --m 3 --json --cost F=1,B=2,X=5",
}
DRIVER = """
import contextlib, io, json, pathlib, sys
from pipesched import load
from pipesched.__main__ import main
from pipesched.orders import order_write
from pipesched.lift.writer import write
answers = {}
for name, command in json.load(sys.stdin).items():
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            status = main(command.split())
        except SystemExit as end:
            status = end.code
    answers[name] = [status or 0, out.getvalue()]
order = load(pathlib.Path("good.order"))
answers["printed"] = [0, write(order, name="printed")]
answers["order"] = [0, order_write.write(load("good.ps", p=2, m=2))]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree with one more kind, and its examples."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in ("pipesched", "grammars", "schedules", "emit", ".github"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "pyproject.toml").touch()
    for name, anchor, more in PLACES:
        text = (tree / name).read_text("utf-8")
        assert text.count(anchor) == 1, f"{name} has {text.count(anchor)} places like {anchor!r}: where does a kind go?"
        (tree / name).write_text(text.replace(anchor, anchor + more), "utf-8")
    write_lists(tree, LETTERS + MORE)
    for name, text in EXAMPLES.items():
        (tree / name).write_text(text, "utf-8")
    (tree / "good.order").write_text(ORDER, "utf-8")
    return tree


@pytest.fixture(scope="module")
def answers(copy: Path) -> dict[str, tuple[int, str]]:
    """Exit status and output of every command, in one process of the copy."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        input=json.dumps(COMMANDS),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name: (status, text) for name, (status, text) in json.loads(done.stdout).items()}


Answers = dict[str, tuple[int, str]]


def test_it_is_a_row() -> None:
    """At most eight places change by hand; a command writes the lists of letters in other files, which are current."""
    assert len(PLACES) <= 8
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in [*dict.fromkeys(name for name, *_ in LISTS), TABLES]:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
        before = write_lists(tree, LETTERS)
        assert before == {name: (tree / name).read_text("utf-8") for name in before}, "python -m tests.core.test_kinds"


def test_no_other_file_lists_the_letters() -> None:
    """Outside the places and the lists, no file of the product has all letters in a row; `features` says what each
    consumer knows."""
    known = {*(name for name, *_ in PLACES), *(name for name, *_ in LISTS), TABLES, "pipesched/common/features.py"}
    row = re.compile("[^A-Za-z]{1,8}".join(LETTERS) + "|" + LETTERS)
    folders = [path for folder in ("pipesched", "grammars", "emit", ".github") for path in (ROOT / folder).rglob("*")]
    for path in folders:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in {".py", ".js", ".json", ".lark", ".md"} and name not in known and "__pycache__" not in name:
            assert not row.search(path.read_text("utf-8")), name


def test_few_name_a_kind() -> None:
    """All other code asks the table; the few places say that B is I and W in one, which kinds have parts, or what torch
    and a stream have.
    """
    named = re.compile(r"Op\.[FIWB]\b|FIWB|\* 4 \+ |op <= |\"F\", \"I\"")
    exempt = (
        "model/ops",
        "runtime/",
        "optimizer/",
        "prover/",
        "check/optimum",
        "formats/deepspeed",
    )  # the table; a stream alone, orders, proofs
    files = sorted((ROOT / "pipesched").rglob("*.py"))
    names = [path.relative_to(ROOT / "pipesched").as_posix() for path in files if named.search(path.read_text("utf-8"))]
    asking = [name for name in names if not name.startswith(exempt)]
    assert len(asking) <= 24, asking


def test_its_memory_is_freed(answers: Answers) -> None:
    """A backward frees what its F and its X took: one microbatch after the other, no more than these two is held."""
    assert json.loads(answers["freed"][1])["memory"]["peak"] == [2, 2]


def test_it_is_timed_and_held(answers: Answers) -> None:
    """The kind takes its own cost, else that of F; work, makespan and peak, one more than without X, are computed by
    hand."""
    dear, assumed = (json.loads(answers[name][1]) for name in ("dear", "assumed"))
    assert dear["ok"] and (dear["time"]["makespan"], dear["time"]["work"]) == (27, [24, 24])
    assert dear["memory"]["peak"] == [4, 4]
    assert (assumed["time"]["makespan"], assumed["time"]["assumed_costs"]) == (15, {"X": "F"})


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("twice", "PS302", "X0.0 runs twice"),
        ("early", "PS305", "X0.0 runs before F0.0 on rank 0"),
        ("past", "PS213", "every F of stage 0 so far already has its X"),
        ("kept", "PS301", "Y0.0 runs, but Z0.0 never does"),
        ("unsent", "PS301", "Z0.0 runs, but Y0.0 never does"),
        ("late", "PS305", "an activation is offloaded by Y, loaded back by Z"),
        ("behind", "PS305", "B0.0 runs before V0.0 on rank 0, but needs it"),
        ("greedy", "PS224", "`greedy` does not support V"),
        ("again", "PS311", "O0.0 and Y0.0 both run: the activation is both offloaded and offloaded again"),
        ("lost", "PS311", "Y0.0 and R0.0 both run: the activation is both offloaded and recomputed"),
    ],
)
def test_it_is_checked(answers: Answers, name: str, code: str, said: str) -> None:
    """The kind runs at most once per microbatch, after its inputs."""
    status, text = answers[name]
    assert status == 1 and f"error[{code}]" in text and said in text, text


def test_its_letter_is_still_a_name(answers: Answers) -> None:
    """A file may define names like the letters of kinds that were added after it was written."""
    assert answers["named"][0] == 0 and "claims 1 of 1 hold" in answers["named"][1], answers["named"][1]


@pytest.mark.parametrize("name", LIKEWISE)
def test_another_copy_is_a_copy(answers: Answers, name: str) -> None:
    """If Y and Z replace O and L, no answer changes but for these letters and the name of the file."""
    expected, (status, text) = (answers[f"{name} {file}"] for file in NAMES)
    text = re.sub(r"\b(n?)([YZ])(?![A-Za-z])", lambda found: found[1] + "OL"["YZ".index(found[2])], text)
    same, other = (re.sub(r"\bs[0-9a-f]{8}\b", "", x) for x in (expected[1], text.replace("new.ps", "own.ps")))
    assert (status, sorted(other.splitlines())) == (expected[0], sorted(same.splitlines()))


def test_it_is_read_and_printed(answers: Answers, copy: Path) -> None:
    """The kind is formatted, written in the language, and printed as an order."""
    assert answers["fmt"][0] == 0 and (copy / "loose.ps").read_text("utf-8") == GOOD
    assert "F F X B X B" in " ".join(answers["printed"][1].split()) and answers["order"][1] == ORDER


def test_it_is_drawn(answers: Answers) -> None:
    """The kind is drawn in characters with its words, and in SVG and on a page with the colour of its class."""
    assert "X examination" in answers["text"][1]
    root = ElementTree.fromstring(answers["svg"][1])
    cells = [x for x in root.iter() if x.attrib.get("class") == "X0 s"]
    sheet = "".join(x.text or "" for x in root.iter() if x.tag.endswith("style"))
    assert len(cells) == 4 + 1 and ".X0{fill:#999999}" in sheet  # and the legend
    assert '"X":"#999999"' in answers["html"][1].replace(" ", "")


def test_it_is_emitted(answers: Answers, copy: Path) -> None:
    """As an instruction of the published form, which reads back as the same program; torch has no such action."""
    stream = json.loads((copy / "good.json").read_text("utf-8"))
    jsonschema.validate(stream, json.loads((copy / "emit/v2/stream.schema.json").read_text("utf-8")))
    assert {"op": "X", "stage": 1, "microbatch": 1} in stream["ranks"][1]
    assert "makespan 11 = 8 work + 3 idle" in answers["read"][1]
    assert answers["torch"][0] == 1 and "it runs X" in answers["torch"][1] and "--target stream" in answers["torch"][1]


def test_it_is_refused_or_counted(answers: Answers) -> None:
    """The optimizer refuses a kind that its problem lacks, without a bound; analyses and comparisons count it."""
    status, text = answers["optimize"]
    assert status == 1 and "error[PS702]" in text and "it runs X" in text and "F and I and W and B" in text, text
    (row,) = json.loads(answers["bound"][1])["rows"]
    assert row["makespan"] == 11 and row["lower_bound"] is None, row
    why, differ = (json.loads(answers[name][1]) for name in ("why", "differ"))
    assert (why["makespan"], differ["figures"]["makespan"]) == (27, [27, 12]), (why, differ)


if __name__ == "__main__":
    if wrong := [f"{op.name}: {text}" for op in COMPUTES for text in faults(op, op.kind)]:
        sys.exit("\n".join(wrong))
    write_lists(ROOT, LETTERS)
