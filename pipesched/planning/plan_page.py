"""A plan as one self-contained page: the table, sortable by any column; the bytes of every rank against the cap; the
schedule of the first row, as `show` draws it.
"""

from __future__ import annotations

from pathlib import Path

from pipesched.planning.layouts.plan import Outcome
from pipesched.planning.layouts.prediction import order
from pipesched.planning.layouts.stages import stages_of
from pipesched.planning.plan_report import assumed, cells, commands, facts, headers
from pipesched.support.safe import safe
from pipesched.views import html as page
from pipesched.views.chart.chart import chart


def html(plan: Outcome) -> str:
    """Return the HTML page of a plan; equal plans yield equal text."""
    space = plan.problem.space
    title = f"{space.transformer.name} on {space.gpus:,} {plan.problem.device.name}"
    parts = {"title": safe(title, "xml"), "picture": _picture(plan), "data": page.as_json(_data(plan))}
    made = Path(__file__).with_name("plan_page.html").read_text("utf-8")
    for name, text in parts.items():
        made = made.replace(f"<!-- {name} -->", text)
    return made


def _data(plan: Outcome) -> dict[str, object]:
    rows = [list(cells(plan, one)) for one in plan.rows]
    return {
        "facts": list(facts(plan)),
        "headers": [header.replace("\n", " ") for header in headers(plan)],
        "cells": [[shown for shown, _ in row] for row in rows],
        "keys": [[key for _, key in row] for row in rows],
        "names": [str(one.choice) for one in plan.rows],
        "commands": [list(commands(plan, one).values()) for one in plan.rows],
        "cap": int(plan.problem.cap),
        **_of_the_best(plan),
        "assumed": list(assumed(plan)),
    }


def _of_the_best(plan: Outcome) -> dict[str, object]:
    """Return the page's data about bytes by kind, rules and explanations; empty if nothing fits."""
    best = plan.best
    kinds = list(best.bytes[0]) if best else []
    return {
        "kinds": kinds,
        "bytes": [[[rank[kind] for kind in kinds] for rank in one.bytes] for one in plan.rows],
        "rules": [one.text(best) for one in plan.rules] if best else [],
        "explained": list(plan.explained.text(best)) if plan.explained and best else [],
    }


def _picture(plan: Outcome) -> str:
    """Return the page of the first row's schedule, in a frame."""
    if plan.best is None:
        return "<p>nothing fits</p>"
    choice = plan.best.choice
    schedule = order(choice.schedule, tuple(choice.sizes.items()))
    costs = stages_of(plan.problem).costs(choice) if plan.best.trust.timed else None
    drawn = page.render(chart(schedule, costs))
    return f'<iframe title="timeline" srcdoc="{safe(drawn, "xml")}"></iframe>'
