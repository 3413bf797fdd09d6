"""Describes a chart: its times in one line or, if the run never ends, the ranks that wait for each other.

cost       makespan 33 = 24 work + 9 idle   bubble 27.3 % (3/11)
stopped    deadlock PS401 under strict: ranks 0 and 1 wait for each other; stops at 8
link       rank 0 stops at 0SEND_F2 (step 8): waits until rank 1 reaches 1RECV_F2 (step 9), queued behind 1SEND_B1

A wrong file that can be drawn to its end is marked: "; wrong: PS301". The ranks of a cycle are marked wherever they are
drawn, in red if there is colour.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipesched.analysis.idle import Idle, headline
from pipesched.analysis.standstill import Blocked, Link, Standstill, together
from pipesched.model.units import Unit
from pipesched.render import clean, sizes
from pipesched.views.chart.chart import Chart


def heading(chart: Chart, *more: str) -> str:
    """Return the heading: the name, the sizes, and further texts."""
    return "  ".join(part for part in (clean(chart.title), sizes(chart.sizes), *more) if part)


def cost(chart: Chart, figures: Callable[[Idle, Unit], str] = headline) -> str:
    """Return the times as `figures` formats them; for a stalled run, the ranks that wait for each other."""
    times, stop, made = chart.analysis.idle, chart.analysis.standstill, chart.analysis
    parts = [f"wrong: {chart.wrong}"] if chart.wrong and (stop is None or stop.code != chart.wrong) else []
    spent = figures(times, chart.unit) if times else "no time"
    said = spent if stop is None else stopped(chart, stop)
    return "; ".join([said, *parts, *(made.costs.doubts(made.costs_used) if made.costs.unit else made.remarks)])


def timeless(chart: Chart) -> int:
    """Return the number of slots that take no time; an O or L counts if its copy takes no time."""
    instant = (chart.times.start >= 0) & (chart.times.start == chart.times.end)
    if (copies := chart.times.copies) is not None:
        instant[copies.op[copies.end > copies.start]] = False
    return int(np.count_nonzero(instant))


def stopped(chart: Chart, stop: Standstill) -> str:
    """Describe a deadlock: its code, its communication model, the ranks that wait, and when they stop."""
    when = f"stops at {chart.unit.text(chart.makespan)}"
    if stop.cycle:
        return f"deadlock {stop.code} {stop.under}: {together(stop.ranks)}; {when}"
    ranks = [str(x.rank) for x in stop.blocked]
    listed = ", ".join(ranks[:4]) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
    who = f"rank {listed} never finishes" if len(ranks) == 1 else f"ranks {listed} never finish"
    return f"{when} {stop.under}: {who}"


def link(x: Link) -> str:
    """Describe one of the waits that form the cycle."""
    lacks = f", which needs {x.needs}" if x.needs else ""
    return f"{'the queue of ' * x.queue}{blocked(x.blocked)}{lacks}: {x.wait}"


def blocked(x: Blocked) -> str:
    """Describe where a rank stops."""
    return f"rank {x.rank} stops at {x.at}" + (f" (step {x.step})" if x.step else "")


def others(stop: Standstill) -> list[Blocked]:
    """Return the blocked ranks outside the cycle; they wait for it, or for a message that no rank sends or receives."""
    return [x for x in stop.blocked if x.rank not in stop.ranks]
