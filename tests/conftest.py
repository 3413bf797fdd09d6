"""Options of the test run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from pipesched.runtime import launch
from pipesched.runtime.launch import Launcher
from pipesched.views import html
from pipesched.views.chart import Chart
from tests.readers.browser import Page, browser, executable


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden streams of emit/v1 anew")


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
