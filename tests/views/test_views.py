"""The views form a table: a new view needs a file and a row."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pipesched import extension
from pipesched.__main__ import main
from pipesched.extension import Lazy, Option, rows
from pipesched.views.chart.chart import Chart
from pipesched.views.chart.views import Request, takes, taking, views
from pipesched.views.rows import View


def names(chart: Chart, how: Request) -> str:
    return f"{chart.schedule.ranks} ranks from {how.begin}\n"


@pytest.fixture
def with_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Return an extension of one view."""
    rows, work = ModuleType("pipesched.added.rows"), ModuleType("pipesched.added.work")
    vars(rows)["ROWS"] = (View("names", Lazy("added.work:names"), (".names",), ("begin",)),)
    vars(work)["names"] = names
    for module in (rows, work):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    before = extension.registered
    extension.register(*before, "added")
    yield
    extension.register(*before)


@pytest.mark.usefixtures("with_names")
def test_a_row_is_a_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An added row is drawn for its suffix, and accepts exactly the options that it names."""
    monkeypatch.chdir(tmp_path)
    size = ["show", "1f1b", "--p", "2", "--m", "2", "-o", "a.names"]
    assert main([*size, "--from", "3"]) == 0
    assert (tmp_path / "a.names").read_text("utf-8") == "2 ranks from 3\n"
    assert main([*size, "--width", "80"]) == 2


def test_a_suffix_names_one_view() -> None:
    """A suffix that two views write is the default of one of them."""
    owned = [suffix for view in views().values() for suffix in view.suffixes]
    assert len(owned) == len(set(owned))
    assert all(suffix in owned for view in views().values() for suffix in view.forms)


def test_options_of_the_rows_are_those_of_a_request() -> None:
    """A request holds all options that the text takes; all other options of the rows are options of `show` that
    extensions add."""
    taken = {option for view in views().values() for option in takes(view)} - set(Request.__dataclass_fields__)
    assert taken == {"style", "messages", "memory", "force", "measured", "model", "slot"}
    assert taken <= {row.name for row in rows(Option) if "show" in row.on}
    assert taken.isdisjoint(views()["text"].takes)
    assert taking("force") == ("svg", "dag")


def test_overlays_are_of_other_extensions() -> None:
    """Without the others there are all views, and no overlay."""
    before = extension.registered
    before_views = [*views()]
    extension.register("views")
    try:
        assert [*views()] == before_views and taking("measured") == ()
    finally:
        extension.register(*before)
