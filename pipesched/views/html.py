"""A self-contained HTML page that shows a schedule, for any browser, without network requests.

    <script type="application/json">   single values: sizes, the unit of time, placement, source lines
    <script type="text/plain">         one column each, base64 of little-endian numbers: kind, stage, start, ...
    <script>                           pipesched/views/page/*.js, in the order of `SCRIPTS`

Operations are stored as columns, so that a page can hold a million of them. The page draws only what is visible; if
operations are narrower than pixels, it divides each pixel column among the kinds in proportion to their time. The
content security policy of the page forbids all requests, so no data from the file can leave the page.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from pipesched.extension import counting
from pipesched.model.columns import Column
from pipesched.model.numbers import shown
from pipesched.model.ops import COMPUTES
from pipesched.render import clean, size
from pipesched.support.safe import safe
from pipesched.views import marks
from pipesched.views.chart import caption
from pipesched.views.chart.caption import cost
from pipesched.views.chart.chart import Chart
from pipesched.views.columns import causes_of
from pipesched.views.palette import style
from pipesched.views.places import Places, places
from pipesched.views.rows import Inset

SCRIPTS = (
    "data.js",
    "colours.js",
    "view.js",
    "pixels.js",
    "paint.js",
    "words.js",
    "overlay.js",
    "slot.js",
    "controls.js",
    "main.js",
)


def render(chart: Chart) -> str:
    """Return the page of a chart, as text; the same chart gives the same bytes."""
    where = places(chart.schedule)
    insets = {row.name: row.data.load()(chart) for row in counting(Inset, chart.analysis)}
    meta = {**_meta(chart, where), **{name: found for name, (found, _) in insets.items()}}
    every = {**_columns(chart, where), **{name: np.array(of, dtype=np.int64) for name, (_, of) in insets.items()}}
    data = f'<script type="application/json" id="meta">{as_json(meta)}</script>\n'
    columns = "\n".join(_column(name, column) for name, column in every.items())
    return page(
        safe(clean(" ".join([chart.title, *(f"{name}={size(value)}" for name, value in chart.sizes.items())])), "xml"),
        data + columns,
    )


def page(title: str, data: str = "") -> str:
    """Return the page; without data, the page shows the data in the property `pipesched` of its frame element."""
    scripts = "<script>\n(() => {\n" + "".join(_part(name) for name in SCRIPTS) + "})();\n</script>"
    return filled(_part("page.html"), title=title, style=_part("page.css"), data=data, script=scripts)


def filled(page: str, **parts: str) -> str:
    """Fill in a page: each text replaces the comment that contains its name."""
    for name, text in parts.items():
        before, found, after = page.partition(f"<!-- {name} -->")
        assert found
        page = before + text + after
    return page


@cache
def _part(name: str) -> str:
    return Path(__file__).with_name("page").joinpath(name).read_text("utf-8")


def as_json(value: object) -> str:
    """Return a value as JSON that can neither close the enclosing element nor open another one."""
    text = safe(json.dumps(value, ensure_ascii=False, separators=(",", ":")), "ascii-json")
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _columns(chart: Chart, where: Places) -> dict[str, Column]:
    """Return the columns, with one entry per operation; those that never run come last on each rank."""
    schedule, times = chart.schedule, chart.times
    why, memory = causes_of(chart), chart.analysis.memory
    return {
        "kind": schedule.op,
        "second": schedule.joined.astype(np.int8),
        "stage": schedule.stage,
        "microbatch": schedule.microbatch,
        "begin": np.maximum(times.start, 0),
        "end": np.maximum(times.end, 0),
        "needs": chart.analysis.dependencies.producer,
        "cause": why.cause,
        "held": memory.held,
        **({"kept": memory.kept} if (memory.held != memory.kept).any() else {}),
        "line": where.line,
        "column": where.column,
    }


def _column(name: str, column: Column) -> str:
    """Return a column as a script element; data-type is the number format: i1, u1, i2, u2, i4, u4, or f8."""
    kind = _smallest(column)
    text = b64encode(np.ascontiguousarray(column, dtype=f"<{kind}").tobytes()).decode("ascii")
    return f'<script type="text/plain" id="column-{name}" data-type="{kind}">{text}</script>'


def _smallest(column: Column) -> str:
    low, high = int(column.min(initial=0)), int(column.max(initial=0))
    for kind in ("u1", "i1", "u2", "i2", "u4", "i4"):
        limits = np.iinfo(kind)
        if limits.min <= low and high <= limits.max:
            return kind
    return "f8"


def _meta(chart: Chart, where: Places) -> dict[str, object]:
    schedule, placement, part = chart.schedule, chart.schedule.placement, chart.analysis.memory.part
    ran = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(chart.times.start >= 0)])[schedule.start]
    look, further = style("default"), chart.analysis.dependencies.further
    links = marks.messages(chart.analysis.standstill) if chart.analysis.standstill else []
    return {
        "title": chart.title,
        "sizes": {name: x if isinstance(x, int) else size(x) for name, x in chart.sizes.items()},
        "facts": list(_facts(chart)),
        "trouble": trouble(chart),
        "stops": _stops(chart),
        "cycle": [{"from": x.ends[0], "to": x.ends[1], "sent": x.direction != 0} for x in links],
        "scale": chart.scale,
        **({"unit": chart.unit.name, "seconds": float(chart.unit.seconds)} if chart.unit else {}),
        "makespan": chart.times.makespan,
        "start": schedule.start.tolist(),
        "ran": np.diff(ran).tolist(),
        "stages": schedule.stages,
        "microbatches": schedule.microbatches,
        "chunks": [placement.chunks(rank) for rank in range(schedule.ranks)],
        "route": placement.route_of.tolist() if placement.routes > 1 else [],
        "message": chart.analysis.ticks.message.tolist(),
        "further": np.stack([further.producer, further.consumer], axis=1).tolist(),
        "part": [part.numerator, part.denominator],
        "takes": [op.takes for op in COMPUTES],
        "copies": _copies(chart),
        **({"steps": sorted(chart.stepped)} if chart.stepped else {}),
        "fill": {op.name: look.colour(op) for op in COMPUTES},
        "words": {op.name: look.words(op) for op in COMPUTES},
        "lighten": look.lighten,
        "later": chart.later,
        "source": where.name,
        "lines": where.texts,
        "bindings": where.bindings,
    }


def _copies(chart: Chart) -> list[list[int]]:
    """Return the rank, operation, begin and end of each copy, by engine, copies to the host first."""
    found = chart.times.copies
    if found is None:
        return []
    columns = (chart.schedule.rank[found.op], found.op, found.start, found.end)
    rows: list[list[int]] = np.stack(columns, axis=1)[found.start >= 0].tolist()
    return rows


def _facts(chart: Chart) -> Iterator[str]:
    """Yield the facts below the title: the number of operations, the times, and the peak."""
    yield f"{len(chart.schedule):,} operations".replace(",", " ")
    yield cost(chart)
    peak = chart.analysis.memory.peak
    if peak:
        yield (
            f"peak {shown(max(peak))} on rank {peak.index(max(peak))} (only activations, without buffers and "
            "parameters)"
        )


def trouble(chart: Chart) -> str:
    """Return the reason why the order never ends, or an empty string."""
    if chart.analysis.standstill is None:
        return ""
    never = int(np.count_nonzero(chart.times.start < 0))
    said = [caption.link(x) for x in chart.analysis.standstill.cycle] or [
        caption.blocked(x) for x in chart.analysis.standstill.blocked
    ]
    more = f"; and {len(said) - 4} more" if len(said) > 4 else ""
    many = f"{never} operations never run" if never else "all operations run"
    return f"{many}; the run is drawn up to where it stops: {'; '.join(said[:4])}{more}"


def _stops(chart: Chart) -> list[dict[str, object]]:
    """Return, for each rank that stops for good, the text in its row, where it stops, and why."""
    return [
        {"rank": x.rank, "words": x.words, "at": x.blocked.at, "sentence": x.sentence, "cycle": x.cycle}
        for x in marks.marks(chart.analysis.standstill)
    ]
