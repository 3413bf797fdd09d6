"""A program under a communication model, as an event graph.

Each event has AND-prerequisites only: an instruction's end waits for the end before it, a message waits for both of
its ends, a slot waits for the message that left it. So all runs fire the same events, and a program deadlocks exactly
if the graph has a cycle or an event that can never fire (communication theory: Karp and Miller 1966, Kahn 1974).

    end(x)      instruction x is over             start(x) = end of the instruction before x
    done(m)     message m has arrived             one node for both ends, but two under buffered(k)

    strict      done <- start of both ends;  end <- done            groups linked by a message share one done
    posted      done <- start of both ends;  end of the consumer <- done;  end of the list <- done of its sends
                one-stream, pair-stream: done <- done before it on the stream
    buffered    done(S_i) <- start, done(R_i-k);  done(R_i) <- start, done(S_i);  end <- done

Nodes are numbers: end(x) is x, end of rank r's list is len(program) + r, done nodes follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipesched.analysis.communication import Model
from pipesched.analysis.pairing import Pairing, pair
from pipesched.model.columns import Bools, Ints, computes
from pipesched.model.ops import SAME, Does, Op, Result
from pipesched.model.program import Program


@dataclass(frozen=True, eq=False)
class EventGraph:
    """source[e] must happen before target[e]; `never` are nodes that cannot happen.

    done: the done node of each send, receive and SYNC, -1 elsewhere; head: the instruction that each one blocks at,
    the first of its group or slot.
    """

    program: Program
    pairing: Pairing
    model: Model
    nodes: int
    source: Ints
    target: Ints
    never: Ints
    done: Ints
    head: Ints

    @cached_property
    def fired(self) -> Bools:
        """Which events happen, in every run."""
        successors, first = _adjacency(self.source, self.target, self.nodes)
        missing = np.bincount(self.target, minlength=self.nodes)
        missing[self.never] += 1
        waiting: list[int] = missing.tolist()
        ready = np.flatnonzero(missing == 0).tolist()
        fired = bytearray(self.nodes)
        while ready:
            node = ready.pop()
            fired[node] = 1
            for after in successors[first[node] : first[node + 1]]:
                waiting[after] -= 1
                if not waiting[after]:
                    ready.append(after)
        return np.frombuffer(bytes(fired), dtype=np.bool_)

    @cached_property
    def stops(self) -> tuple[int, ...]:
        """Per rank: the 0-based step it cannot complete, the list's length if it waits at its end, -1 if finished."""
        size, start = len(self.program), self.program.start
        stuck: list[int] = []
        for rank in range(self.program.ranks):
            low, high = int(start[rank]), int(start[rank + 1])
            waiting = np.flatnonzero(~self.fired[low:high])
            at_end = -1 if self.fired[size + rank] else high - low
            stuck.append(int(waiting[0]) if len(waiting) else at_end)
        return tuple(stuck)

    @cached_property
    def predecessors(self) -> tuple[list[int], list[int]]:
        """The sources of each node's edges, and where each node's begin."""
        return _adjacency(self.target, self.source, self.nodes)


def build(program: Program, model: Model, pairing: Pairing | None = None) -> EventGraph:
    """The event graph of a program under a model; O(instructions) nodes and edges."""
    pairing = pairing or pair(program)
    size, ranks = len(program), program.ranks
    head = heads(program)
    message = program.sends | program.receives
    meeting = message | (program.op == Op.SYNC)
    done = np.full(size, -1, dtype=np.int64)
    edges = [_list_edges(program, size)]
    ends = np.flatnonzero(meeting)
    if model.kind == "buffered":
        done[ends] = size + ranks + np.arange(len(ends))
        sync = np.flatnonzero((program.op == Op.SYNC) & (pairing.partner > np.arange(size)))
        done[pairing.partner[sync]] = done[sync]
        edges += _buffer_edges(program, pairing, done, model.capacity)
    else:
        done[ends] = size + ranks + merged(program, pairing, head, whole=model.kind != "async")[ends]
    first = head[ends] == program.start[program.rank[ends]]
    edges.append((head[ends[~first]] - 1, done[ends[~first]]))
    blocking = np.flatnonzero(program.op == Op.SYNC) if model.posted else ends
    edges.append((done[blocking], head[blocking]))
    if model.posted:
        recv, consumer = consumers(program)
        sends = np.flatnonzero(program.sends)
        edges += [(done[recv], head[consumer]), (done[sends], size + program.rank[sends].astype(np.int64))]
        edges += stream_edges(program, model, head, done)
    source = np.concatenate([a for a, _ in edges]).astype(np.int64)
    target = np.concatenate([b for _, b in edges]).astype(np.int64)
    never, _ = np.unique(done[ends[pairing.partner[ends] < 0]], return_index=True)  # sorts: hashing a million is slow
    nodes = max(size + ranks, int(done.max(initial=-1)) + 1)
    return EventGraph(program, pairing, model, nodes, source, target, never, done, head)


def _list_edges(program: Program, size: int) -> tuple[Ints, Ints]:
    """Each instruction after the one before it; the end of the list after the last."""
    index = np.arange(size, dtype=np.int64)
    after = index + 1
    last = program.start[1:][np.diff(program.start) > 0] - 1
    after[last] = size + program.rank[last]
    return index, after


def _buffer_edges(program: Program, pairing: Pairing, done: Ints, capacity: int | None) -> list[tuple[Ints, Ints]]:
    """A receive after its send, a send after the receive that freed its slot, each after the one before on its side."""
    sends = np.flatnonzero(program.sends & (pairing.partner >= 0))
    edges = [(done[sends], done[pairing.partner[sends]])]
    sides = (np.flatnonzero(side & (pairing.channel >= 0)) for side in (program.sends, program.receives))
    edges += [(done[before], done[after]) for before, after in (_shift(pairing, side, 1) for side in sides)]
    if capacity is not None:
        index, later = _shift(pairing, np.flatnonzero(program.sends & (pairing.channel >= 0)), capacity)
        freed = pairing.partner[index]
        edges.append((done[freed[freed >= 0]], done[later[freed >= 0]]))
    return edges


def _shift(pairing: Pairing, index: Ints, by: int) -> tuple[Ints, Ints]:
    """Pairs (x, y) of `index` on one channel, y standing `by` places after x."""
    order = index[np.lexsort((pairing.position[index], pairing.channel[index]))]
    before, after = order[:-by], order[by:]
    same = pairing.channel[before] == pairing.channel[after]
    return before[same], after[same]


def _adjacency(key: Ints, value: Ints, nodes: int) -> tuple[list[int], list[int]]:
    order = np.argsort(key, kind="stable")
    first = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(key, minlength=nodes), out=first[1:])
    return value[order].tolist(), first.tolist()


def heads(program: Program) -> Ints:
    """The instruction at which each one blocks: the first of its fused group or overlap pair, else itself."""
    size = len(program)
    joined = program.second.copy()
    if size > 1:
        joined[1:] &= computes(program.op[:-1])  # torn apart, the parts of a pair are two slots
        message = program.sends | program.receives
        same = (program.group[1:] == program.group[:-1]) & (program.group[1:] >= 0) & message[1:] & message[:-1]
        joined[1:] |= same
    joined[program.start[:-1][program.start[:-1] < size]] = False
    index = np.arange(size, dtype=np.int64)
    return np.maximum.accumulate(np.where(joined, 0, index)) if size else index


def merged(program: Program, pairing: Pairing, head: Ints, *, whole: bool) -> Ints:
    """A number for each message, the same at both ends; with `whole`, the same for all that groups link together."""
    size = len(program)
    index = np.arange(size, dtype=np.int64)
    number = np.where(pairing.partner >= 0, np.minimum(index, pairing.partner), index)
    message = program.sends | program.receives
    grouped = message & (program.group >= 0)
    if not whole or not np.any(grouped):
        return number
    root = list(range(size))

    def find(x: int) -> int:
        while root[x] != x:
            root[x] = root[root[x]]
            x = root[x]
        return x

    for i in np.flatnonzero(message).tolist():
        for other in (int(head[i]), int(number[i])):
            a, b = find(i), find(other)
            root[max(a, b)] = min(a, b)
    return np.array([find(i) if message[i] else int(number[i]) for i in range(size)], dtype=np.int64)


def consumers(program: Program) -> tuple[Ints, Ints]:
    """(message end, instruction that waits for it): computes for their receives, WAIT_SEND for its sends."""
    pairs = list(_consume(program))
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


_POSTED = {op: (op.send, op.result) for op in Op if op.send or op.receive}
_AWAITED = {  # a receive by the computes that use it, a send by its wait
    op: (not op.compute, op.result) for op in Op if op.kind.of != SAME and (op.compute or op.kind.does is Does.WAIT)
}


def _consume(program: Program) -> Iterator[tuple[int, int]]:
    op, stage, microbatch = program.op.tolist(), program.stage.tolist(), program.microbatch.tolist()
    for rank in range(program.ranks):
        latest: dict[tuple[tuple[bool, Result], int, int], tuple[int, ...]] = {}
        for i in range(int(program.start[rank]), int(program.start[rank + 1])):
            kind = op[i]
            if kind in _POSTED:
                key = _POSTED[kind], stage[i], microbatch[i]
                latest[key] = (i,) if program.other is None else (*latest.get(key, ()), i)
            elif kind in _AWAITED:
                yield from ((end, i) for end in latest.get((_AWAITED[kind], stage[i], microbatch[i]), ()))


def stream_edges(program: Program, model: Model, head: Ints, done: Ints) -> list[tuple[Ints, Ints]]:
    """done of each posted element before done of the next one on the same stream."""
    if model.kind == "async":
        return []
    ends = np.flatnonzero(program.sends | program.receives)
    rank = program.rank[ends].astype(np.int64)
    key = rank if model.kind == "one-stream" else rank * (int(program.peer.max(initial=0)) + 2) + program.peer[ends]
    element = np.stack([key, head[ends]])
    _, first = np.unique(element, axis=1, return_index=True)
    key, posts = key[first], ends[first]
    same = key[1:] == key[:-1]
    return [(done[posts[:-1][same]], done[posts[1:][same]])]
