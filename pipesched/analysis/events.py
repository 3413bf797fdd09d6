"""A program under a communication model, as an event graph.

Each event has AND-prerequisites only: the end of an instruction waits for the end before it, a message for both of its
ends, a slot for the message that left it. So all runs fire the same events, and a program deadlocks exactly if the
graph has a cycle or an event that can never fire (communication theory: Karp and Miller 1966, Kahn 1974).

    end(x)      instruction x has ended           start(x) = end of the instruction before x
    done(m)     message m has arrived             one node for both ends, but two under buffered(k)

    strict      done <- start of both ends;  end <- done
    posted      done <- start of both ends;  end of the consumer <- done;  end of the list <- done of its sends
    queued      posted, and done <- done of what is before it in the queue
    buffered    done(S_i) <- start, done(R_i-k);  done(R_i) <- start, done(S_i);  end <- done
    a shape     end <- done, under every model

All members of a batch start with its first one, and it ends with the last of its messages; nothing else couples them.
In a queue a batch is one element: whatever waits for one of its messages waits for all of them.

Nodes are numbers: end(x) is x, the end of rank r's list is len(program) + r, then done; then auxiliary nodes: the end
of each batch in a queue, and under buffered(k) each message in transit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipesched.analysis.communication import Model
from pipesched.analysis.pairing import Pairing, pair
from pipesched.model.columns import PLACE, Bools, Column, Ints, among, computes, fresh, places
from pipesched.model.ops import SAME, SHAPES, Does, Op
from pipesched.model.schedule import Program


@dataclass(frozen=True, eq=False)
class EventGraph:
    """source[e] must happen before target[e]; `never` are nodes that cannot happen.

    done: the done node of each send, receive and SYNC, -1 elsewhere; head: the instruction at which each one blocks,
    the first of its batch or slot. Nodes from `between` on are auxiliary, not events.
    """

    pairing: Pairing
    model: Model
    nodes: int
    source: Ints
    target: Ints
    never: Ints
    done: Ints
    head: Column
    between: int

    @property
    def program(self) -> Program:
        return self.pairing.program

    @cached_property
    def order(self) -> list[int]:
        """The events that happen in every run, each after its prerequisites."""
        successors, first = self.successors
        missing = np.bincount(self.target, minlength=self.nodes)
        missing[self.never] += 1
        waiting: list[int] = missing.tolist()
        happened = [node for node, before in enumerate(waiting) if not before]
        for node in happened:  # the list grows in the loop
            for after in successors[first[node] : first[node + 1]]:
                waiting[after] -= 1
                if not waiting[after]:
                    happened.append(after)
        return happened

    @cached_property
    def fired(self) -> Bools:
        """A mask of the events that happen in every run."""
        fired = np.zeros(self.nodes, dtype=np.bool_)
        fired[self.order] = True
        return fired

    @cached_property
    def stops(self) -> tuple[int, ...]:
        """By rank, the 0-based step that cannot complete, the list's length if it waits at its end, -1 if finished."""
        size, start = len(self.program), self.program.start
        stuck: list[int] = []
        for rank in range(self.program.ranks):
            low, high = int(start[rank]), int(start[rank + 1])
            waiting = np.flatnonzero(~self.fired[low:high])
            at_end = -1 if self.fired[size + rank] else high - low
            stuck.append(int(waiting[0]) if len(waiting) else at_end)
        return tuple(stuck)

    @cached_property
    def successors(self) -> tuple[list[int], list[int]]:
        """The targets of each node's edges, and where each node's begin."""
        return _adjacency(self.source, self.target, self.nodes)

    @cached_property
    def predecessors(self) -> tuple[list[int], list[int]]:
        """The sources of each node's edges, and where each node's begin."""
        return _adjacency(self.target, self.source, self.nodes)


def build(program: Program, model: Model, pairing: Pairing | None = None) -> EventGraph:
    """Return the event graph of a program under a model; O(instructions) nodes and edges."""
    pairing = pairing or pair(program)
    size, ranks = len(program), program.ranks
    index = np.arange(size, dtype=np.int64)
    head = heads(program)
    sync = program.op == Op.SYNC
    meeting = program.sends | program.receives | sync
    shared = (sync if model.kind == "buffered" else meeting) & (pairing.partner >= 0)
    done = np.where(meeting, size + ranks + np.where(shared, np.minimum(index, pairing.partner), index), -1)
    between = nodes = 2 * size + ranks
    ends = np.flatnonzero(meeting)
    first = head[ends] == program.start[program.rank[ends]]
    edges = [_list_edges(program, size), (head[ends[~first]] - 1, done[ends[~first]])]
    if model.kind == "buffered":
        sends = np.flatnonzero(program.sends & (pairing.partner >= 0))
        nodes += len(sends)
        edges += _buffer_edges(pairing, sends, between + np.arange(len(sends)), done, model.capacity)
    blocking = np.flatnonzero(sync | among(program.op, SHAPES)) if model.posted else ends
    edges.append((done[blocking], head[blocking]))
    over = done
    if model.queued:
        over, queued = _queues(program, model, head, done, nodes)
        nodes = max(nodes, int(over.max(initial=0)) + 1)
        edges += queued
    if model.posted:
        recv, consumer = consumers(program)
        sends = np.flatnonzero(program.sends)
        edges += [(over[recv], head[consumer]), (over[sends], size + program.rank[sends].astype(np.int64))]
    source = np.concatenate([a for a, _ in edges]).astype(np.int64)
    target = np.concatenate([b for _, b in edges]).astype(np.int64)
    never = done[ends[pairing.partner[ends] < 0]]
    return EventGraph(pairing, model, nodes, source, target, never=never, done=done, head=head, between=between)


def _list_edges(program: Program, size: int) -> tuple[Ints, Ints]:
    """Return the edge to each instruction from the one before it, and to the end of the list from the last one."""
    index = np.arange(size, dtype=np.int64)
    after = index + 1
    last = program.start[1:][np.diff(program.start) > 0] - 1
    after[last] = size + program.rank[last]
    return index, after


def _buffer_edges(
    pairing: Pairing, sends: Ints, transit: Ints, done: Ints, capacity: int | None
) -> list[tuple[Ints, Ints]]:
    """Return a receive after its send, a send after the receive that freed its slot, each after its predecessor.

    transit: the node of each message in transit.
    """
    edges = [(done[sends], transit), (transit, done[pairing.partner[sends]])]
    neighbours = (side.apart(1) for side in (pairing.sends, pairing.receives))
    edges += [(done[before], done[after]) for before, after in neighbours]
    if capacity is not None:
        index, later = pairing.sends.apart(capacity)
        freed = pairing.partner[index]
        edges.append((done[freed[freed >= 0]], done[later[freed >= 0]]))
    return edges


def _adjacency(key: Ints, value: Ints, nodes: int) -> tuple[list[int], list[int]]:
    order = np.argsort(key, kind="stable")
    first = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(key, minlength=nodes), out=first[1:])
    return value[order].tolist(), first.tolist()


def heads(program: Program) -> Column:
    """Return the instruction at which each one blocks: the first of its batch or overlap pair, or itself."""
    size = len(program)
    joined = program.second.copy()
    if size > 1:
        joined[1:] &= computes(program.op[:-1])  # if separated, the parts of a pair are two slots
        message = program.sends | program.receives
        same = (program.group[1:] == program.group[:-1]) & (program.group[1:] >= 0) & message[1:] & message[:-1]
        joined[1:] |= same
    joined[program.start[:-1][program.start[:-1] < size]] = False
    return np.asarray(np.maximum.accumulate(np.arange(size, dtype=PLACE) * ~joined))


def consumers(program: Program) -> tuple[Ints, Ints]:
    """Return (message end, instruction that waits for it): computes for their receives, WAIT_SEND for its sends.

    Each waits for the latest end of its result, stage and microbatch before it on its rank. If stages read others, it
    waits for all such ends, and sends to different stages are distinguished.
    """
    name = np.maximum(_POSTED[program.op], _AWAITED[program.op])
    at = np.flatnonzero(name >= 0)
    columns = [program.microbatch[at], program.stage[at].astype(np.int64) * len(Op) + name[at], program.rank[at]]
    if program.other is not None:
        sent = name[at] % 2 == 1
        columns.insert(0, np.where(sent, program.other[at], -1))
    order = np.lexsort(columns)
    at = at[order]
    posted = _POSTED[program.op[at]] >= 0
    begins = np.arange(len(at)) - places(fresh(*(column[order] for column in columns)))
    before: Ints = np.cumsum(posted) - posted  # counted over all names
    awaits = np.flatnonzero(~posted)
    reach: Ints = before[awaits] - before[begins[awaits]]
    reach = reach if program.other is not None else np.minimum(reach, 1)
    first = np.repeat(before[awaits] - reach, reach)
    ends = at[posted][first + np.arange(len(first)) - np.repeat(np.cumsum(reach) - reach, reach)]
    waiting = np.repeat(at[awaits], reach)
    by_place = np.argsort(waiting, kind="stable")
    return ends[by_place], waiting[by_place]


def _names(kinds: Iterable[Op], sends: Callable[[Op], bool]) -> Ints:
    """Return, by kind of instruction, the name of what it posts or awaits: a result sent or received; else -1."""
    names = np.full(len(Op), -1, dtype=np.int64)
    for op in kinds:
        names[op] = 2 * op.result + sends(op)
    return names


_POSTED = _names([op for op in Op if (op.send or op.receive) and not op.kind.shape], lambda op: op.send)
_AWAITED = _names(  # a receive is awaited by the computes that use it, a send by its wait
    [op for op in Op if op.kind.of != SAME and (op.compute or op.kind.does is Does.WAIT)], lambda op: not op.compute
)


def queues(program: Program, model: Model, head: Column) -> tuple[Ints, Bools, Ints]:
    """Return the message ends in the order of their queues; whether a queue begins there; the first of each element.

    There is a queue for each rank and communicator, under pair-stream for each peer too. An element is the part of a
    batch in the queue, or a single message.
    """
    ends = np.flatnonzero(program.sends | program.receives)
    columns = [program.communicator[ends], program.rank[ends]]
    if model.kind == "pair-stream":
        columns.insert(0, program.peer[ends])
    order = np.lexsort(columns)
    ends = ends[order]
    begins = fresh(*(column[order] for column in columns))
    return ends, begins, np.flatnonzero(begins | fresh(head[ends]))


def _queues(
    program: Program, model: Model, head: Column, done: Ints, nodes: int
) -> tuple[Ints, list[tuple[Ints, Ints]]]:
    """Return, for each message end, the node at which its element is done; and edges between successive elements.

    The done node of a single message is its end.
    """
    ends, queue, begins = queues(program, model, head)
    size = np.diff(begins, append=len(ends))
    many = size > 1
    over = done[ends[begins]]
    over[many] = nodes + np.arange(np.count_nonzero(many))
    later = np.repeat(~queue[begins], size)
    before = np.repeat(np.roll(over, 1), size)
    fused = np.repeat(many, size)
    of_end = done.copy()
    of_end[ends] = np.repeat(over, size)
    return of_end, [(before[later], done[ends[later]]), (done[ends[fused]], of_end[ends[fused]])]
