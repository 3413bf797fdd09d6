"""Options of the test run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from pipesched.runtime import launch
from pipesched.runtime.launch import Launcher
from pipesched.views import html
from pipesched.views.chart import Chart
from tests import depth
from tests.readers.browser import Page, browser, executable

# Files that take longest, first: the others then fill the ends of all workers.
LONG = (
    "test_torch_engine.py",
    "test_runtime_deadlock.py",
    "test_run.py",
    "test_faults.py",
    "test_guard.py",
    "test_engines.py",
    "test_optimize.py",
    "test_deadlock_explorer.py",
    "test_runtime_steps.py",
    "test_runtime_gradients.py",
    "test_runtime_trainers.py",
    "test_runtime_variants.py",
    "test_isolation.py",
    "test_parser.py",
    "test_portfolio.py",
    "test_cross_check.py",
    "test_hostile.py",
    "test_mutants.py",
    "test_lowering.py",
    "test_page_moves.py",
    "test_page.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden streams of emit/ anew")
    parser.addoption("--depth", type=int, default=1, metavar="N", help="N times as many cases of each random test")


def pytest_configure(config: pytest.Config) -> None:
    os.environ[depth.VARIABLE] = str(config.getoption("--depth"))
    if hasattr(config.option, "loadscopereorder"):  # of xdist: our order is better than that by number of tests
        config.option.loadscopereorder = False


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """``-m quick`` opens only files in which something is quick."""
    if config.getoption("-m") == "quick" and collection_path.name.startswith("test_"):
        return "pytest.mark.quick" not in collection_path.read_text("utf-8") or None
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; what looks at a clock last."""
    place = {name: at for at, name in enumerate(LONG)}
    items.sort(key=lambda x: (x.get_closest_marker("timed") is not None, place.get(x.path.name, len(LONG))))


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def supervisor() -> Iterator[Callable[[], Launcher]]:
    """One supervisor for every test that starts ranks: torch is imported once."""
    made: list[Launcher] = []

    def started() -> Launcher:
        if not made:
            made.append(Launcher())
        return made[0]

    yield started
    for one in made:
        one.close()


@pytest.fixture
def launcher(supervisor: Callable[[], Launcher]) -> Launcher:
    """The supervisor, started."""
    return supervisor()


@pytest.fixture
def one_supervisor(supervisor: Callable[[], Launcher], monkeypatch: pytest.MonkeyPatch) -> None:
    """``pipesched run`` in this process takes that supervisor, too."""
    monkeypatch.setattr(launch, "Launcher", lambda: nullcontext(supervisor()))


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One headless browser for every test of a page."""
    if executable() is None:
        pytest.skip("no Chromium here: Debian's package is called chromium")
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def opened(tab: Page, tmp_path: Path) -> Iterator[Callable[[Chart], Page]]:
    """Opens the page of a chart; at the end, nothing was asked of a network and nothing complained."""
    path = tmp_path / "page.html"

    def open_chart(drawn: Chart) -> Page:
        path.write_text(html.render(drawn), "utf-8")
        tab.requests.clear()
        tab.complaints.clear()
        tab.size(1280, 720)
        tab.open(path)
        tab.settle()
        return tab

    yield open_chart
    assert tab.complaints == []
    assert set(tab.requests) == {path.resolve().as_uri()}
    assert tab.evaluate("performance.getEntriesByType('resource').length") == 0
