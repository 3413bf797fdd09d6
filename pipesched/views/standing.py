"""A run that never ends, in words: what each rank stands at, and what it waits for.

rank 0 stops at 0SEND_F2 (step 8): waits until rank 1 reaches 1RECV_F2 (step 9), queued behind 1SEND_B1

Those of the cycle bear a mark wherever they are drawn, in red where there is colour.
"""

from __future__ import annotations

from pipesched.analysis.standstill import Link, Stand, Standstill
from pipesched.model.numbers import shown
from pipesched.views.chart import Chart

SHOWN = 8  # ranks that are named one by one


def headline(chart: Chart, stop: Standstill) -> str:
    """Who waits, under which model, from when on; with the code."""
    when = f"stops at {shown(chart.makespan)}"
    if stop.cycle:
        return f"deadlock {stop.code} {stop.under}: {_together(stop.ranks)}; {when}"
    ranks = [str(stand.rank) for stand in stop.stands]
    listed = ", ".join(ranks[:4]) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
    who = f"rank {listed} never finishes" if len(ranks) == 1 else f"ranks {listed} never finish"
    return f"{when} {stop.under}: {who}"


def link(x: Link) -> str:
    """A step of the cycle."""
    lacks = f", which needs {x.needs}" if x.needs else ""
    behind = f", queued behind {x.behind}" if x.behind else ""
    return f"{'the queue of ' * x.queue}{stand(x.stand)}{lacks}: {_until(x)}{behind}"


def stand(x: Stand) -> str:
    """Where a rank stops."""
    return f"rank {x.rank} stops at {x.at}" + (f" (step {x.step})" if x.step else "")


def others(stop: Standstill) -> list[Stand]:
    """The ranks that stop because those of the cycle do, or because nobody sends or takes what they wait for."""
    return [x for x in stop.stands if x.rank not in stop.ranks]


def short(x: Link) -> str:
    """What it stands at and waits for."""
    return f"{x.needs or x.stand.at} waits for {x.until}" if x.until else x.stand.at


def _until(x: Link) -> str:
    if x.other == x.stand.rank:
        return f"completes only together with {x.until} (step {x.until_step})"
    return f"waits until rank {x.other} reaches {x.until} (step {x.until_step})" if x.until else "waits"


def _together(ranks: tuple[int, ...]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} waits for itself"
    if len(ranks) > SHOWN:
        return f"{len(ranks)} ranks wait in a cycle"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]} wait for each other"
