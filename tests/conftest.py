"""Adds the options of a test run, such as `--full` and `--depth`."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pipesched.planning import progress
from pipesched.runtime.execute import launch
from pipesched.runtime.execute.launch import Launcher
from pipesched.views import html
from pipesched.views.chart.chart import Chart
from tests import depth
from tests.readers.browser import Page, browser, executable

# What is dear to start, and the files that need it, all of which go to one worker: torch, which the supervisor of ranks
# and its fork server import too; a browser.
NEEDED = {
    "torch": r"import .*(ranks_of|Launcher)|torch_fixtures import|one_superv|runtime.troubled|^ +(import|from) torch\b",
    "a browser": r"\b(tab|phone|opened): (Page|Opened)\b",
}
NEEDS = {
    path.name: need
    for path in Path(__file__).parent.rglob("test_*.py")
    for need, words in NEEDED.items()
    if re.search(words, path.read_text("utf-8"), re.MULTILINE)
}
WITHOUT_TORCH = re.compile("No module named 'torch'|PS820")
# After those with torch and a browser, files that take longest: the others then fill the ends of all workers.
LONG = (
    "test_portfolio.py",
    "test_optimize.py",
    "test_engines.py",
    "test_page.py",
    "test_page_moves.py",
    "test_hostile.py",
    "test_parser.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden streams of emit/")
    parser.addoption("--full", action="store_true", help="every test, those marked nightly too")
    parser.addoption("--depth", type=int, default=0, metavar="N", help="--full, N times as many cases of random tests")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all is collected, which takes a fifth less
    os.environ[depth.VARIABLE] = str(config.getoption("--depth") or int(config.getoption("--full")))
    progress.EVERY = 1e6  # seconds: how fast a machine is does not change what commands print here
    os.environ["OMP_NUM_THREADS"] = "1"  # for torch, not imported yet: the cores are for other tests
    if hasattr(config.option, "loadscopereorder"):  # of xdist: our order is better than that by number of tests
        config.option.loadscopereorder = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return ``--dist loadfile``: a file goes to one worker, and to the same all that need the same start."""
    from xdist.scheduler import LoadFileScheduling

    class OneForAll(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return NEEDS.get(Path(file).name, file)

    return OneForAll(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Freeze the collected items, so that the garbage collector skips millions of objects."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Return ``-m quick`` and ``-m timed``, or either and more, open only files that have such tests."""
    if (mark := config.getoption("-m").partition(" ")[0]) in ("quick", "timed") and collection_path.name.startswith(
        "test_"
    ):
        return f"pytest.mark.{mark}" not in collection_path.read_text("utf-8") or None
    return None


def skipped_without_torch(report: Any, path: Path) -> None:
    """Skip tests that fail because torch is not installed; the compiler works without it."""
    if report.failed and find_spec("torch") is None and WITHOUT_TORCH.search(str(report.longrepr)):
        report.outcome, report.longrepr = "skipped", (str(path), None, "Skipped: torch is not installed")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    skipped_without_torch(report, collector.path)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    skipped_without_torch(report, item.path)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first; tests that measure time last. Nightly tests of a file run where it is named, or with --full."""
    if depth.in_usual_run():
        # It would parse all of our files, for constants that it then draws too; older ones do not.
        if providers := sys.modules.get("hypothesis.internal.conjecture.providers"):
            providers.__dict__["is_local_module_file"] = lambda _: False
        named = {Path(one.partition("::")[0]).resolve() for one in config.args}
        left = [x for x in items if x.get_closest_marker("nightly") and x.path not in named]
        config.hook.pytest_deselected(items=left)
        items[:] = [x for x in items if x not in {*left}]
    place = {name: at for at, name in enumerate((*sorted(NEEDS, key=lambda x: (NEEDS[x] != "torch", x)), *LONG))}
    items.sort(key=lambda x: (x.get_closest_marker("timed") is not None, place.get(x.path.name, len(place))))


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """True if golden files are to be written instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def supervisor() -> Iterator[Callable[[], Launcher]]:
    """Start one supervisor for every test that starts ranks: torch is imported once."""
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
    """Return the started supervisor."""
    return supervisor()


@pytest.fixture
def one_supervisor(supervisor: Callable[[], Launcher], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``pipesched run`` in this process use that supervisor too."""
    monkeypatch.setattr(launch, "Launcher", lambda: nullcontext(supervisor()))


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Start one headless browser for every test of a page."""
    if executable() is None:
        pytest.skip("no Chromium here: Debian's package is called chromium")
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def opened(tab: Page, tmp_path: Path) -> Iterator[Callable[[Chart], Page]]:
    """Open the page of a chart; at the end, check that it made no network request and logged no error."""
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
