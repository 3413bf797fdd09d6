"""The documentation site is built without a network and without warnings, has no dead links, and its search works."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.readers.browser import Page
from tests.readers.served import served

TOP = Path(__file__).parents[2]
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; every warning is an error."""
    pytest.importorskip("sphinx", reason="the site is built by the extra `site`")
    pytest.importorskip("myst_parser", reason="the site is built by the extra `site`")
    folder = tmp_path_factory.mktemp("site")
    line = [sys.executable, "-m", "sphinx", "-q", "-W", "-c", ".github/site", "-D", "played_ranks=2", ".", str(folder)]
    done = subprocess.run(line, cwd=TOP, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class _Links(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


def test_no_link_is_dead(site: Path) -> None:
    """Each link inside the site leads to a file, and to an anchor that it has; none loads anything from elsewhere."""
    pages = {path.relative_to(site).as_posix(): _Links(path.read_text("utf-8")) for path in site.rglob("*.html")}
    dead = []
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "data", "mailto"):
                continue
            target = (site / name).parent / unquote(parts.path) if parts.path else site / name
            path = target.resolve()
            inside = path.is_relative_to(site) and path.exists()
            found = pages.get(path.relative_to(site).as_posix()) if inside else None
            anchors = {""} if found is None else found.anchors
            if not inside or ("=" not in parts.fragment and unquote(parts.fragment) not in anchors):  # = is of `play`
                dead.append(f"{name}: {link}")
    assert len(pages) > 180 and dead == []


@pytest.fixture
def searched(site: Path, tab: Page) -> Iterator[str]:
    with served(site) as address:
        tab.requests.clear()
        yield address
        assert all(x.startswith((address, "data:", "about:", "blob:")) for x in tab.requests)
        tab.visit("about:blank")


WORDS = {
    "deadlock": "PS401",
    "interleaved": "published schedules",
    "claim": "language",
    "torchtitan": "torchtitan",
    "staleness": "language",
    "bubble": "pipesched",
    "certificate": "guide",
    "overlap": "language",
    "REDUCE_GRAD": "PS601",
    "optimize": "Python API",
}


def test_the_search_finds(searched: str, tab: Page) -> None:
    """Each of ten words is found, on the page where a reader expects it among others."""
    counted = "document.querySelectorAll('#search-results ul.search li').length"
    done = "(document.querySelector('#search-results .search-summary') ?? { textContent: '' }).textContent"
    for word, where in WORDS.items():
        tab.visit(f"{searched}search.html?q={word}")
        tab.evaluate(
            f"""new Promise((done) => {{ let last = -1; const look = () => {{ const now = {counted};
            if (now > 0 && now === last && /found|finished/i.test({done})) done(1);
            else {{ last = now; setTimeout(look, 250); }} }}; look(); setTimeout(() => done(0), 20000); }})"""
        )
        links = "[...document.querySelectorAll('#search-results ul.search li')].map((x) => x.querySelector('a'))"
        titles = tab.evaluate(f"{links}.map((x) => x.textContent)")
        assert any(where in title for title in titles), (word, where, titles[:12])


def test_the_site_plays(searched: str, tab: Page) -> None:
    """The page that plays schedules is embedded, and runs there."""
    tab.visit(f"{searched}.github/site/play.html")
    tab.evaluate(
        """new Promise((done) => { const look = () => { const inner = document.querySelector('iframe').contentWindow;
        inner.document.body?.dataset.ready === 'yes' ? done(1) : setTimeout(look, 50); }; look(); })"""
    )
    said = "document.querySelector('iframe').contentWindow.playground.panels[0].part('verdict').textContent"
    assert str(tab.evaluate(said)).startswith("ok")
