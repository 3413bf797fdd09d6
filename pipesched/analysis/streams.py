"""Parts of the event graph: what blocks as one, who consumes what, and in which order posts complete."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.analysis.channels import Pairing
from pipesched.analysis.models import Model
from pipesched.model.columns import Ints, computes
from pipesched.model.ops import SAME, Does, Op, Result
from pipesched.model.program import Program


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
    """(message end, instruction that waits for it): computes for their receive, WAIT_SEND for its send."""
    pairs = list(_consume(program))
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


_POSTED = {op: (op.send, op.kind.result) for op in Op if op.send or op.receive}
_AWAITED = {  # a receive by the computes that use it, a send by its wait
    op: (not op.compute, op.kind.result)
    for op in Op
    if op.kind.of != SAME and (op.compute or op.kind.does is Does.WAIT)
}


def _consume(program: Program) -> Iterator[tuple[int, int]]:
    op, stage, microbatch = program.op.tolist(), program.stage.tolist(), program.microbatch.tolist()
    for rank in range(program.ranks):
        latest: dict[tuple[tuple[bool, Result | None], int, int], int] = {}
        for i in range(int(program.start[rank]), int(program.start[rank + 1])):
            kind = op[i]
            if kind in _POSTED:
                latest[_POSTED[kind], stage[i], microbatch[i]] = i
            elif kind in _AWAITED:
                end = latest.get((_AWAITED[kind], stage[i], microbatch[i]))
                if end is not None:
                    yield end, i


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
