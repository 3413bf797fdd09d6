"""A CSV with a different layout gets one finding with a remedy; other mistakes are reported at their places."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

import pipesched
from pipesched.diagnostics import Diagnostic
from pipesched.support.source import Source

ROOT = Path(__file__).parents[2]
TWO = "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"
THREE = "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1B0,1F2,1B1,1B2\n2F0,2B0,2F1,2B1,2F2,2B2\n"
ORDER = "rank 0: F0.0 F0.1 B0.0 B0.1\nrank 1: F1.0 F1.1 B1.0 B1.1\nrank 2: F2.0 B2.0 F2.1 B2.1\n"


def errors(text: str, name: str = "x.csv") -> list[Diagnostic]:
    return [x for x in pipesched.verify(Source(name, text)).diagnostics if x.severity == "error"]


def rows(text: str, header: bool, index: bool, mark: str = ",") -> str:
    """Return the text that pandas writes for a table of cells."""
    lines = [line.split(",") for line in text.splitlines()]
    table = [[str(i), *line] if index else line for i, line in enumerate(lines)]
    width = max(map(len, lines))
    first = [[""] * index + [str(i) for i in range(width)]] if header else []
    return "".join(mark.join(line) + "\n" for line in [*first, *table])


def turned(text: str) -> str:
    lines = [line.split(",") for line in text.splitlines()]
    return "".join(",".join(column) + "\n" for column in zip(*lines, strict=True))


SHAPES: dict[str, tuple[str, str, str]] = {  # the text, words of the message, words of the help
    "header and index": (rows(TWO, True, True), "line 1 is a header", "to_csv(header=False, index=False)"),
    "header": (rows(TWO, True, False), "line 1 is a header", "to_csv(header=False, index=False)"),
    "index": (rows(TWO, False, True), "column 1 is an index", "to_csv(header=False, index=False)"),
    "unnamed": ("Unnamed: 0" + rows(TWO, True, True), "line 1 is a header", "to_csv(header=False, index=False)"),
    "words": ("rank,a,b\n0,0F0,0B0\n1,1F0,1B0\n", "line 1 is a header", "to_csv(header=False, index=False)"),
    "bubbles": ("0F0,NaN,NaN,0B0\nNaN,1F0,1B0,NaN\n", "bubble", 'na_rep=""'),
    "semicolons": (TWO.replace(",", ";"), "not separated by commas", 'sep=","'),
    "semicolons and header": (rows(TWO, True, True, ";"), "line 1 is a header", 'sep=","'),
    "tabs": (TWO.replace(",", "\t"), "not separated by commas", 'sep=","'),
    "blanks": (TWO.replace(",", " "), "not separated by commas", 'sep=","'),
    "mark": ("\ufeff" + TWO, "byte order mark", "without"),
    "letters": ("0F0,0F1,0B0,0W0,0B1,0W1\n1F0,1B0,1W0,1F1,1B1,1W1\n", "both run", "write I for every B"),
}
CELLS: dict[str, tuple[str, str]] = {  # the text, words of the first help
    "lower case": (TWO.lower(), "upper case: 0F0"),
    "order": ("rank 0: F0.0 B0.0\nrank 1: F1.0 B1.0\n", "as in 0F3"),
    "order's words": ("F0.0,F0.1,B0.0,B0.1\nF1.0,B1.0,F1.1,B1.1\n", "as in 0F3"),
    "brackets": ("[0F0,0F1,0B0,0B1]\n[1F0,1B0,1F1,1B1]\n", "as in 0F3"),
    "comment": ("# by hand\n" + TWO, "as in 0F3"),
    "turned": (turned(TWO), ""),
}
WORDS: dict[str, tuple[str, str]] = {  # the same of orders
    "lower case": (ORDER.replace("F", "f").replace("B", "b"), "F0.1"),
    "no ranks": (re.sub("rank .: ", "", ORDER), "begin it with rank 0:"),
    "numbers": (ORDER.replace("rank ", ""), "begin it with rank 0:"),
    "from 1": (
        ORDER.replace("rank 2", "rank 3").replace("rank 1", "rank 2").replace("rank 0", "rank 1"),
        "beginning with 0",
    ),
    "commas": (re.sub(r"(?<=\d) ", ", ", ORDER).replace("rank, ", "rank "), "words are F0.1"),
    "torch's": (re.sub(r"([FB])(\d)\.(\d)", r"\2\1\3", ORDER), "words are F0.1"),
    "brackets": (re.sub(r"([FB])(\d)\.(\d)", r"\1(\2,\3)", ORDER), "words are F0.1"),
}
NAMES: dict[str, tuple[str, str, str, str]] = {  # file, text, the slip, the missing text
    "F0.9": ("x.txt", ORDER.replace("F0.1", "F0.9"), "F0.9", "F0.1"),
    "F1.9": ("x.txt", ORDER.replace("F1.1", "F1.9"), "F1.9", "F1.1"),
    "F7.1": ("x.txt", ORDER.replace("F1.1", "F7.1"), "F7.1", "F1.1"),
    "1F1 for 2F1": ("x.csv", THREE.replace("2F1", "1F1"), "1F1", "2F1"),
    "1F1 for 0F1": ("x.csv", THREE.replace("0F1", "1F1"), "1F1", "0F1"),
    "2F3 for 2F2": ("x.csv", THREE.replace("2F2", "2F3"), "2F3", "2F2"),
    "3F2 for 2F2": ("x.csv", THREE.replace("2F2", "3F2"), "3F2", "2F2"),
}


@pytest.mark.parametrize("case", SHAPES)
def test_a_file_of_another_shape_has_one_mistake(case: str) -> None:
    """However many cells are affected, with its place and a remedy."""
    text, said, help = SHAPES[case]
    (found,) = errors(text)
    assert said in found.message and help in (found.help or "")
    assert found.labels[0].span is not None and found.labels[0].span.line == 1


@pytest.mark.parametrize("case", [*CELLS, *(f"{case}.txt" for case in WORDS)])
def test_what_is_no_cell_or_word_is_told_where_it_is(case: str) -> None:
    """The finding is the first mistake of line 1, or the first contradiction of a transposed table; no finding is a
    guess."""
    name, (text, help) = ("x.txt", WORDS[case[:-4]]) if case.endswith(".txt") else ("x.csv", CELLS[case])
    found = errors(text, name)
    assert help in (found[0].help or "") and found[0].code == ("PS303" if case == "turned" else "PS801")
    assert found[0].labels[0].span is not None and found[0].labels[0].span.line == (2 if case == "turned" else 1)


@pytest.mark.parametrize("case", NAMES)
def test_a_wrong_name_leaves_another_operation_missing(case: str) -> None:
    """The help suggests to add the intended operation, on its rank."""
    name, text, slip, right = NAMES[case]
    assert slip in text
    stage, microbatch = re.findall(r"\d", right)
    told = [x.message for x in errors(text, name) if x.code == "PS301"]
    assert any(re.match(rf"stage {stage} never runs F of microbatch(?:es)? .*\b{microbatch}\b", x) for x in told), told


def test_letters_of_a_paper_hide_no_other_mistake() -> None:
    """B for I is one finding; that the last stage runs its forwards out of order is another one."""
    found = errors("0F0,0F1,0B0,0W0,0B1,0W1\n1F1,1F0,1B0,1B1,1W0,1W1\n")
    assert [x.code for x in found] == ["PS302", "PS804"] and "write I for every B" in (found[0].help or "")


@pytest.mark.parametrize("name", ["README.md", "pyproject.toml", "tests/conftest.py"])
def test_a_file_of_another_kind_is_told_to_be_that(name: str) -> None:
    """The only finding names the kind of the file."""
    (found,) = errors((ROOT / name).read_text("utf-8"), name)
    assert found.code == "PS842" and "not a schedule" in found.message


def simulate(orders: list[list[tuple[str, int, int]]]) -> bool:
    """Return True if compute orders finish: F waits for F of the stage before, B for its F and for B
    of the stage after.
    """
    done: set[tuple[str, int, int]] = set()
    at, stages = [0] * len(orders), 1 + max(s for order in orders for _, s, _ in order)
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while at[rank] < len(order):
                op, s, i = order[at[rank]]
                needs = [("F", s - 1, i)] if op == "F" else [("F", s, i), ("B", s + 1, i)]
                if any(need not in done for need in needs if 0 <= need[1] < stages):
                    break
                done.add((op, s, i))
                at[rank] += 1
                moved = True
    return all(n == len(order) for n, order in zip(at, orders, strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_the_move_that_is_told_ends_a_cycle(seed: int) -> None:
    """After PS306, with one operation moved as the help says, every rank finishes."""
    dice = random.Random(seed)
    orders = [[(x[1], int(x[0]), int(x[2])) for x in line.split(",")] for line in THREE.splitlines()]
    for order in orders[: dice.randrange(1, 4)]:
        i, j = dice.sample(range(len(order)), 2)
        order[i], order[j] = order[j], order[i]
    text = "".join(",".join(f"{s}{op}{i}" for op, s, i in order) + "\n" for order in orders)
    told = [x.help or "" for x in errors(text) if x.code == "PS306"]
    assert bool(told) <= (not simulate(orders))
    for help in told:
        move = re.match(r"on rank (\d), put ([FB])(\d)\.(\d) (before|behind) ([FB])(\d)\.(\d): ", help)
        if move:
            order = orders[int(move[1])]
            what, to = (move[2], int(move[3]), int(move[4])), (move[6], int(move[7]), int(move[8]))
            order.remove(what)
            order.insert(order.index(to) + (move[5] == "behind"), what)
            assert simulate(orders)


def test_a_cycle_of_two_ranks_gets_its_move() -> None:
    """In the published case the help names the move."""
    (found, *_) = errors("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")
    assert found.code == "PS306" and found.help == "on rank 0, put F0.1 before B0.0: then no rank waits forever"
