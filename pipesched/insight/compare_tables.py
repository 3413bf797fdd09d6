"""A comparison for other programs: CSV for spreadsheets, Markdown and LaTeX for documents.

CSV has one line for each schedule at each size: decimals with the precision of a float, the meaning of the times, and,
for an error, its code instead of figures. Markdown and LaTeX have the cells and the remarks of the terminal's table. In
LaTeX the remarks are comments, and the table needs the package booktabs.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from fractions import Fraction

from pipesched import render
from pipesched.insight.compare_report import Comparison, Row

ENDINGS: Mapping[str, tuple[str, ...]] = {"csv": (".csv",), "markdown": (".md",), "latex": (".tex",)}
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {sign: "\\" + sign for sign in "&%$#_{}"}


def written(comparison: Comparison, form: str) -> str:
    """Return a comparison in one of the forms in `ENDINGS`, without a trailing newline."""
    if form == "csv":
        return _csv(comparison)
    headers, rows = comparison.cells()
    heads = [" ".join(header.split("\n")) for header in headers]
    remarks = [line for part in (*comparison.unit_line(), *comparison.below()) for line in part.split("\n")]
    if form == "markdown":
        return "\n".join([_markdown(heads, rows), *(f"\n{line}" for line in remarks)])
    return "\n".join([*(f"% {render.clean(line)}" for line in remarks), _latex(heads, rows)])


def _csv(comparison: Comparison) -> str:
    names = list(dict.fromkeys(name for row in comparison.rows for name in row.parameters))
    figures = [_figures(row) for row in comparison.rows]
    text = io.StringIO()
    keys = [key for key in figures[0] if any(row[key] for row in figures)] if figures else []
    of = comparison.unit.name if comparison.timed else "stage" if comparison.per_stage else "rank"
    columns = ["schedule", *names, "unit" if comparison.timed else "cost_per", *keys, "error"]
    table = csv.DictWriter(text, columns, extrasaction="ignore")
    table.writeheader()
    for row, values in zip(comparison.rows, figures, strict=True):
        sizes = {name: render.size(value) for name, value in row.parameters.items()}
        error = str(row.fault.code) if row.fault else ""
        table.writerow(
            {"schedule": render.clean(row.name), **sizes, columns[len(names) + 1]: of, **values, "error": error}
        )
    return text.getvalue().replace("\r\n", "\n").rstrip("\n")


def _figures(row: Row) -> dict[str, str]:
    """Return the figures of a row as decimals, by their JSON keys."""
    figures: dict[str, Fraction | int | None] = {
        "makespan": row.makespan,
        "queued_makespan": row.queued,
        "span": row.span,
        "idle": row.idle,
        "bubble": row.bubble,
        "span_bubble": row.span_bubble,
        "overhead": row.overhead,
        "peak": row.peak,
        "bytes": max(row.bytes, default=None),
        "messages": row.messages,
        "parameters_per_rank": row.share,
        "lower_bound": row.bound,
    }
    return {key: "" if value is None else _decimal(value) for key, value in figures.items()}


def _decimal(value: Fraction | int) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:" for _ in heads[1:]]], *rows]
    return "\n".join(
        f"| {' | '.join(render.clean(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def _latex(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return (
            " & ".join("".join(_LATEX.get(x, x) for x in render.plain(render.clean(cell))) for cell in cells) + r" \\"
        )

    body = [r"\toprule", line(heads), r"\midrule", *map(line, rows), r"\bottomrule"]
    return "\n".join([rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}", *body, r"\end{tabular}"])
