"""The views are a table: a new one is its file and its row."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipesched.__main__ import main
from pipesched.chart.views import VIEWS, Request, View, taking


def test_a_row_is_a_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is added is drawn by its suffix, and takes the options that it names and no others."""
    row = View(
        "names", lambda chart, how, run: f"{chart.schedule.ranks} ranks from {how.begin}\n", (".names",), ("begin",)
    )
    monkeypatch.setitem(VIEWS, "names", row)
    monkeypatch.chdir(tmp_path)
    size = ["show", "1f1b", "--p", "2", "--m", "2", "-o", "a.names"]
    assert main([*size, "--from", "3"]) == 0
    assert (tmp_path / "a.names").read_text("utf-8") == "2 ranks from 3\n"
    assert main([*size, "--width", "80"]) == 2


def test_a_suffix_names_one_view() -> None:
    """Of two views that write a suffix one owns it."""
    owned = [suffix for view in VIEWS.values() for suffix in view.suffixes]
    assert len(owned) == len(set(owned))
    assert all(suffix in owned for view in VIEWS.values() for suffix in view.forms)


def test_options_of_the_rows_are_those_of_a_request() -> None:
    """What a row takes, a request holds."""
    fields = set(Request.__dataclass_fields__)
    assert {option for view in VIEWS.values() for option in view.takes} <= fields
    assert taking("force") == ("svg", "dag")
