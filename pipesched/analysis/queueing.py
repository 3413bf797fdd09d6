"""How long a program takes when its messages have to wait for their turn, under a communication model.

    a compute    begins when the slot before it is over, and takes its cost
    a message    is served when it heads its queue at both ends, lasts tC, and leaves both

Under strict the queue of a rank is its own list: a rank computes nothing while it waits in a message. Under one-stream
and pair-stream a rank computes on, and waits where a compute needs a receive; the messages of one batch are served
together. Under async a message is served as soon as both ends are posted. Under buffered(k) a send is over as soon as
there is room, and the message is there tC later. The ideal timeline (`analysis.timeline`) has no receives to post and
no queues, so it is never longer. The message of a shape takes no time.

All of that is the event graph of the model with times at its events, so one pass over its events is a run.
"""

from __future__ import annotations

import numpy as np

from pipesched.analysis.events import EventGraph
from pipesched.analysis.timeline import slot_costs
from pipesched.model.columns import among, computes
from pipesched.model.costs import Ticks
from pipesched.model.ops import SHAPES


def makespan(graph: EventGraph, ticks: Ticks) -> int | None:
    """The end of the last list in ticks, or None where a rank never comes to its end."""
    if any(stop >= 0 for stop in graph.stops):
        return None
    program, size = graph.program, len(graph.program)
    cost = np.zeros(graph.nodes, dtype=np.int64)
    cost[np.flatnonzero(computes(program.op))] = slot_costs(program.computes, ticks)
    sent = np.flatnonzero((graph.way >= 0) & ~among(program.op, SHAPES))
    cost[graph.way[sent]] = ticks.delays(program.stage[sent], program.microbatch[sent])
    return max(graph.times(cost)[size : size + program.ranks], default=0)
