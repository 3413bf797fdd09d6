"""Tables as text have aligned columns, in any script."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesched.views.tables import table

CELL = st.text("ab1.- é層ｗ", max_size=8).map(str.strip)


def by_rich(headers: list[str], rows: list[list[str]], left: set[int]) -> str:
    """Return the columns as rich sets them."""
    console = pytest.importorskip("rich.console")
    columns, text = pytest.importorskip("rich.table"), pytest.importorskip("rich.text")
    made = columns.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for number, header in enumerate(headers):
        made.add_column(text.Text(header), justify="left" if number in left else "right", no_wrap=True)
    for row in rows:
        made.add_row(*map(text.Text, row))
    out = io.StringIO()
    console.Console(file=out, width=10_000, color_system=None, highlight=False).print(made)
    return "\n".join(line.rstrip() for line in out.getvalue().removesuffix("\n").split("\n"))


def test_numbers_end_and_words_begin_together() -> None:
    """Headers align with their columns; a wide character takes two columns."""
    said = table(["name", "idle\nof all", "rank"], [["1f1b", "3/19", "r 0"], ["層", "12", ""]], left=iter((0, 2)))

    assert said.split("\n") == [
        "        idle",
        "name  of all  rank",
        "1f1b    3/19  r 0",
        "層        12",
    ]


@pytest.mark.nightly
@settings(deadline=None)  # rich is slow where it starts
@given(st.data(), st.integers(1, 4), st.integers(0, 4))
def test_columns_are_those_of_rich(data: st.DataObject, width: int, height: int) -> None:
    """Any words and numbers are where rich puts them."""
    row = st.lists(CELL, min_size=width, max_size=width)
    header = st.lists(CELL.filter(bool), min_size=1, max_size=3).map("\n".join)
    headers = data.draw(st.lists(header, min_size=width, max_size=width))
    rows, left = data.draw(st.lists(row, min_size=height, max_size=height)), data.draw(st.sets(st.integers(0, 3)))

    assert table(headers, rows, left=left) == by_rich(headers, rows, left)
