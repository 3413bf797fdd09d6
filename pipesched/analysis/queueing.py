"""How long a program takes when its messages have to wait for their turn, under a communication model.

    a compute    begins when the slot before it is over, and takes its cost
    a message    is served when it heads its queue at both ends, lasts tC, and leaves both

Under strict the queue of a rank is its own list: a rank computes nothing while it waits in a message. Under one-stream
and pair-stream a rank computes on, and waits where a compute needs a receive; the messages of one batch are served
together. Under async a message is served as soon as both ends are posted. Under buffered(k) a send is over as soon as
the buffer has a free place, and the message is there tC later. The ideal timeline (`analysis.timeline`) has no receives
to post and no queues, so it is never longer. The message of a shape takes no time. Copies to host memory and back wait
for no message (`analysis.copies`).

All of that is the event graph of the model with times at its events, so one pass over its events is a run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipesched.analysis.copies import Copies
from pipesched.analysis.events import EventGraph
from pipesched.analysis.timeline import slot_costs
from pipesched.model.columns import Ints, among, computes
from pipesched.model.costs import Ticks
from pipesched.model.ops import SHAPES


def makespan(graph: EventGraph, ticks: Ticks, copies: Copies | None = None) -> int | None:
    """The end of the last list in ticks, or None where a rank never comes to its end. copies: those of its computes."""
    program = graph.program
    index, events = np.flatnonzero(computes(program.op)), graph.nodes
    graph = graph if copies is None else _with(copies, index, graph)
    cost = np.zeros(graph.nodes, dtype=np.int64)
    cost[index] = slot_costs(program.computes, ticks)
    if copies is not None:
        cost[events:] = copies.lengths(program.computes, ticks)
    sent = np.flatnonzero((graph.transit >= 0) & ~among(program.op, SHAPES))
    cost[graph.transit[sent]] = ticks.delays(program.stage[sent], program.microbatch[sent])
    ends = graph.ends(cost)
    return None if ends is None else max(ends, default=0)


def _with(copies: Copies, index: Ints, graph: EventGraph) -> EventGraph:
    """The graph, and one more node for each copy; index: of each compute, its instruction."""
    own, later = graph.nodes + np.arange(len(copies.op)), np.flatnonzero(~copies.first)
    begun, awaited = copies.after >= 0, copies.waits >= 0
    source = np.concatenate([graph.source, index[copies.after[begun]], own[later - 1], own[awaited]])
    waits = graph.head[index[copies.waits[awaited]]]
    target = np.concatenate([graph.target, own[begun], own[later], waits])
    return replace(graph, nodes=graph.nodes + len(own), source=source, target=target)
