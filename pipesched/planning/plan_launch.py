"""The configuration of a trainer for a row of a plan, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from pipesched.planning.launch import Launch, launcher
from pipesched.planning.layouts.plan import Outcome
from pipesched.planning.layouts.prediction import Prediction


def launch(plan: Outcome, one: Prediction) -> Launch | None:
    """Return the configuration of a row, or None if no trainer was requested."""
    if not plan.request.trainer:
        return None
    order = next((made.order for made in plan.ordered if made.better and plan.rows[made.row - 1] is one), None)
    return launcher(plan.request.trainer).launch(plan.problem.space, one.choice, order)


def text(plan: Outcome) -> Iterator[str]:
    """Yield the lines of the first row's configuration."""
    if plan.best is None or (made := launch(plan, plan.best)) is None:
        return
    yield f"row 1 for {launcher(plan.request.trainer).named}; left out: {made.left_out}"
    for name, content in made.files.items():
        lines = content.splitlines()
        shown = lines if not name.endswith(".csv") else [f"{len(lines)} rows: pipesched plan ... --config {made.main}"]
        yield from ("", f"--- {name}", *shown)
    yield from ("", made.check())


def to_json(plan: Outcome, one: Prediction) -> dict[str, object] | None:
    """Return the files of a row and the command that checks them, or None if no trainer was requested."""
    made = launch(plan, one)
    return None if made is None else {"files": dict(made.files), "check": made.check(), "left_out": made.left_out}


def named(made: Launch, path: str) -> dict[str, str]:
    """Return the contents by path: the first file at `path`, any other at `path` with that file's extension."""
    at = PurePath(path)
    names = {name: str(at.with_suffix(PurePath(name).suffix)) for name in made.files} | {made.main: path}
    found = {}
    for name, content in made.files.items():
        for other in made.files:
            content = content.replace(f'"{other}"', f'"{PurePath(names[other]).name}"')
        found[names[name]] = content
    return found
