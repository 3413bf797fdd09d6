"""The makespan of a program under a communication model in which messages queue.

    a compute    begins when the slot before it has ended, and takes its cost
    a message    is served when it is first in its queue at both ends, takes tC, and leaves both queues

Under strict, the queue of a rank is its own list, so a rank computes nothing while it waits for a message. Under
one-stream and pair-stream, a rank keeps computing until a compute operation needs a receive; the messages of a batch
are served together. Under async, a message is served as soon as both of its ends are posted. Under buffered(k), a send
ends as soon as the buffer has a free slot, and the message arrives tC later. The ideal timeline (`analysis.timeline`)
has no receives to post and no queues, so its makespan is never longer. A message that carries a shape takes no time.
Copies to host memory and back wait for no message (`analysis.copies`).

All of this is expressed as lists that wait for each other (`analysis.events`).
"""

from __future__ import annotations

import numpy as np

from pipesched.analysis.communication import Model
from pipesched.analysis.copies import Copies
from pipesched.analysis.events import Events
from pipesched.analysis.lists import Lists, ends_from, run
from pipesched.analysis.pairing import Pairing
from pipesched.analysis.timeline import Timeline, slot_costs
from pipesched.model.columns import computes
from pipesched.model.costs import Ticks
from pipesched.model.schedule import Schedule


def makespan(
    model: Model, pairing: Pairing, schedule: Schedule, ticks: Ticks, *, copies: Copies | None, ideal: Timeline | None
) -> int:
    """Return the makespan in ticks of a program that ends under the model.

    schedule, copies: the compute operations of the program, and their copies. ideal: the timeline of these operations,
    if the program has a message for each of their inputs.
    """
    program = pairing.program
    made, compute = Events(program, model, pairing, ticks), np.flatnonzero(computes(program.op))
    made.cost[compute] = slot_costs(schedule, ticks)
    cost, cut, waits = made.cost, made.cut, made.waits
    if copies is not None:
        cost, cut, waits = copies.joined(schedule, ticks, made.head[compute], cost, cut, waits)
    lists = Lists.of(cost, cut, waits)
    if ideal is None:
        end, _, _ = run(lists)
    else:
        least = np.zeros(len(cost), dtype=np.int64)
        least[compute] = ideal.end
        end = ends_from(least, lists)
    last = int(end[: len(made.cost)].max(initial=0))
    if model.kind != "async":
        return last
    reached = np.append(end, 0)[made.sources[0]]
    sends = np.flatnonzero(program.sends)
    over = made.late[sends] + np.maximum(reached[sends], reached[pairing.partner[sends]])
    return max(last, int(over.max(initial=0)))
