"""On the page of a plan, in a real headless Chromium, the table can be sorted, bytes are compared with the cap, and the
schedule is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.__main__ import main
from tests.planning.test_plan import files
from tests.readers.browser import Page

GIVEN = {"gpus": 8, "only": ["c=1", "b=1", "t=1,2"], "explain": "p=2", "top": 4}
__all__ = ["files"]


def test_the_page_tells_what_the_plan_tells(files: Path, tab: Page) -> None:
    """The page has every cell, sorted by any column both ways; bars proportional to bytes; the timeline in its frame;
    no network request, and no error.
    """
    line = ["plan", "--model", "model.toml", "--device", "device.toml", "--gpus", "8", "--top", "4", "--explain", "p=2"]
    only = ["--only", "c=1", "--only", "b=1", "--only", "t=1,2"]
    assert main([*line, *only, "-o", "plan.html"]) == 0
    assert sorted(path.name for path in files.iterdir()) == ["device.toml", "model.toml", "plan.html"]
    made = pipesched.plan(model="model.toml", device="device.toml", **GIVEN)
    assert made.html() == (files / "plan.html").read_text("utf-8")

    tab.requests.clear()
    tab.complaints.clear()
    tab.open(files / "plan.html")
    tab.settle()
    told: Any = made.to_json()
    rows = told["rows"]
    assert len(rows) == 4

    def column(name: str) -> list[str]:
        at = tab.evaluate("[...document.querySelectorAll('#rows th')].map(x => x.textContent)").index(name)
        return list(
            tab.evaluate(f"[...document.querySelectorAll('#rows tbody tr')].map(x => x.cells[{at}].textContent)")
        )

    assert column("step") == [f"{row['seconds'] * 1000:#.3g} ms" for row in rows]
    assert column("schedule") == [row["schedule"] for row in rows]
    for name, key in (("step", "seconds"), ("p", "p"), ("most of a GPU", None)):
        values = [row[key] if key else max(row["bytes"]) for row in rows]
        for down in (False, True):
            spot = tab.evaluate(
                f"(() => {{ const box = [...document.querySelectorAll('#rows th button')].find(x => x.textContent === "
                f"'{name}').getBoundingClientRect(); return [box.x + 5, box.y + 5]; }})()"
            )
            tab.click(*spot)
            order = sorted(range(4), key=lambda i, values=values: values[i], reverse=down)  # type: ignore[misc]
            shown = tab.evaluate("[...document.querySelectorAll('#rows tbody tr')].map(x => Number(x.dataset.index))")
            assert [values[i] for i in shown] == [values[i] for i in order]

    row = tab.evaluate(
        "(() => { const box = [...document.querySelectorAll('#rows tbody tr')].find(x => x.dataset.index === '2')"
        ".getBoundingClientRect(); return [box.x + 5, box.y + 5]; })()"
    )
    tab.click(*row)
    assert tab.evaluate("[...document.querySelectorAll('#commands code')].map(x => x.textContent)") == list(
        rows[2]["commands"].values()
    )
    widths = tab.evaluate(
        "[...document.querySelectorAll('.bar')].map(bar => [...bar.querySelectorAll('i')]"
        ".reduce((sum, part) => sum + part.getBoundingClientRect().width, 0) / bar.getBoundingClientRect().width)"
    )
    most = max(told["cap_bytes"], *rows[2]["bytes"])
    assert widths == pytest.approx([size / most for size in rows[2]["bytes"]], abs=0.01)
    assert tab.evaluate("[...document.querySelectorAll('#rules li')].map(x => x.textContent)") == [
        rule["text"] for rule in told["rules"]
    ]
    assert tab.evaluate("document.getElementById('explained').textContent") == "".join(told["explained"]["text"])
    drawn = tab.evaluate(
        "(() => { const inside = frames[0].document; return [inside.getElementById('title').textContent, "
        "inside.getElementById('base').width > 100, inside.getElementById('trouble').hidden]; })()"
    )
    assert drawn[0] and drawn[1:] == [True, True]
    assert tab.complaints == []
    assert {x for x in tab.requests if x != "about:srcdoc"} == {(files / "plan.html").resolve().as_uri()}
    assert tab.evaluate("performance.getEntriesByType('resource').length") == 0
