"""A table over schedules and sizes.

A parameter goes to the files that have it: `--v 2` is for the interleaved schedules of a comparison, and the others
are run once without it. A size that a schedule refuses is a row of its own, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pipesched import render
from pipesched.diagnostics import exit_status
from pipesched.examine import Options
from pipesched.model.numbers import exact
from pipesched.source import Source
from pipesched.verbs.compare_rows import Row, measured
from pipesched.verbs.library import shared
from pipesched.verbs.tables import ratio, short, table
from pipesched.views.plot import Point

_HEADERS = (
    "makespan",
    "span",
    "bubble",
    "bubble\nby span",
    'idle / work\n"bubble fraction"',
    "peak",
    "messages",
    "parameters\nof a rank",
    "lower bound",
)
_UNITS = {
    False: "costs of 1/p of the model; one of S stages takes p/S of them",
    True: "costs of one stage, whatever its size (--cost-per stage)",
}


@dataclass(frozen=True)
class Comparison:
    """The rows, file by file, sizes in order."""

    rows: tuple[Row, ...]
    per_stage: bool

    @property
    def exit_status(self) -> int:
        """That of the findings; a size that a schedule refuses counts only where every one is refused."""
        every = all(row.refused for row in self.rows)
        return exit_status(found for row in self.rows if every or not row.refused for found in row.diagnostics)


def compare(
    sources: Sequence[Source], sizes: Iterable[Mapping[str, int]], options: Options, *, per_stage: bool = False
) -> Comparison:
    """Every file at every size.

    Raises:
        PipeschedError: PS208, a parameter that none of the files has.
    """
    own = list(zip(*(shared(sources, size) for size in sizes), strict=True))
    rows = []
    for source, every in zip(sources, own, strict=True):
        for parameters in _once(every):
            asked = replace(options, parameters=parameters, microbatches=parameters.get("m"))
            rows.append(measured(source, asked, per_stage=per_stage))
    return Comparison(tuple(rows), per_stage)


def _once(sizes: Iterable[dict[str, int]]) -> Iterator[dict[str, int]]:
    seen = set()
    for size in sizes:
        key = tuple(size.items())
        if key not in seen:
            seen.add(key)
            yield size


def text(comparison: Comparison, width: int | None = None) -> str:
    """The unit, the table, in two halves where it is wider than `width`, and under it why some rows are empty."""
    names = list(dict.fromkeys(name for row in comparison.rows for name in row.parameters))
    names.sort(key=lambda name: ("pvm".find(name) % 4, name))
    lead = [[row.name, *(str(row.parameters.get(name, "")) for name in names)] for row in comparison.rows]
    cells = [_cells(row) for row in comparison.rows]

    def part(begin: int, end: int) -> str:
        rows = [[*first, *figures[begin:end]] for first, figures in zip(lead, cells, strict=True)]
        return table(("schedule", *map(render.clean, names), *_HEADERS[begin:end]), rows)

    parts, half = [part(0, len(_HEADERS))], (len(_HEADERS) + 1) // 2
    if width is not None and max(map(len, parts[0].splitlines())) > width:
        parts = [part(0, half), part(half, len(_HEADERS))]
    parts[0] = f"unit of time: {_UNITS[comparison.per_stage]}\n\n{parts[0]}"
    if notes := [*_notes(comparison)]:
        parts.append("\n".join(notes))
    return "\n\n".join(parts)


def _cells(row: Row) -> list[str]:
    """The figures of a row, as people read them."""
    reached = " reached" if row.bound is not None and row.bound == row.makespan else ""
    first = "refused" if row.refused else short(row.makespan)
    shares = map(ratio, (row.bubble, row.span_bubble, row.overhead))
    held = "-" if row.share is None else str(row.share)
    return [first, short(row.span), *shares, short(row.peak), short(row.messages), held, short(row.bound) + reached]


def _notes(comparison: Comparison) -> Iterator[str]:
    """What is wrong or refused; that costs differ, where files have their own; and what was assumed of them."""
    for row in comparison.rows:
        if row.fault is not None:
            title = " ".join([row.name, *(f"{name}={value}" for name, value in row.parameters.items())])
            yield render.clean(f"{title}: {row.fault.code}: {row.fault.message}")
    own = [row.name for row in comparison.rows if row.own_costs]
    if own and len(own) < len(comparison.rows):
        yield render.clean(f"{', '.join(dict.fromkeys(own))}: at the costs of the file; --cost sets the same for all")
    said: dict[str, list[str]] = {}
    for row in comparison.rows:
        for remark in row.remarks:
            said.setdefault(remark, []).append(row.name)
    for remark, names in said.items():
        yield render.clean(f"{', '.join(dict.fromkeys(names))}: {remark}")


def as_json(comparison: Comparison) -> dict[str, object]:
    """The published form, see ``emit/README.md``."""
    return {
        "ok": comparison.exit_status == 0,
        "cost_per": "stage" if comparison.per_stage else "rank",
        "rows": [_row_json(row) for row in comparison.rows],
    }


def _row_json(row: Row) -> dict[str, object]:
    return {
        "name": row.name,
        "source": row.source,
        "parameters": dict(row.parameters),
        **exact(costs=row.costs),
        "assumed_costs": dict(row.assumed),
        "cost_remarks": list(row.remarks),
        **exact(makespan=row.makespan, span=row.span, idle=row.idle, bubble=row.bubble, span_bubble=row.span_bubble),
        **exact(bubble_ratio=row.bubble, overhead=row.overhead, peak=row.peak),
        "messages": row.messages,
        **exact(parameters_per_rank=row.share, lower_bound=row.bound),
        "diagnostics": [render.as_json(diagnostic) for diagnostic in row.diagnostics],
    }


def points(comparison: Comparison) -> list[Point]:
    """Bubble in per cent against peak memory, a series a schedule."""
    found = []
    for row in comparison.rows:
        if row.bubble is not None and row.peak is not None:
            sizes = " ".join(f"{name}={value}" for name, value in row.parameters.items())
            found.append(Point(row.peak, row.bubble * 100, row.name, sizes))
    return found
