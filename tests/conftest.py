"""Options of the test run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from pipesched.runtime import launch
from pipesched.runtime.launch import Launcher


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
