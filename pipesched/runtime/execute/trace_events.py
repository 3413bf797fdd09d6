"""Writes a measured run as Chrome's trace events, for Perfetto, chrome://tracing and `pipesched calibrate`.

    process  one per rank       slice (X)  an instruction, under torch's name: 0F1, 2SEND_B0, (3F0;3B1)OVERLAP
    args     op, stage, microbatch, step, index; start, end, waited in seconds; `with`: the second part of an overlap

`ts` and `dur` are microseconds from the first instruction; `waited` is the part of a slice spent waiting for a message.
Clocks of processes on one machine agree (`recorder`); the clocks of several machines agree as closely as they are
synchronized.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from pipesched.stream import BATCH, Instruction, Stream

Steps = Sequence[Sequence[Sequence[float]]]
"""The steps of a rank, each a list of [index, begin, end, waited] of its instructions, as in
`recorder.Recorder.steps`."""


def dumps(stream: Stream, ranks: Mapping[int, Steps], *, base: int = 0) -> str:
    """Return the trace of some ranks as JSON, one event per line, with times relative to the first instruction of all.

    base: nanoseconds of the first instruction on a clock that several files share.
    """
    about = {"version": 1, "name": stream.name, "fingerprint": stream.fingerprint}
    head = {"displayTimeUnit": "ms", "otherData": about, **({"baseTimeNanoseconds": base} if base else {})}
    zero = min((step[0][1] for steps in ranks.values() for step in steps if step), default=0.0)
    events = (json.dumps(x) for rank, steps in sorted(ranks.items()) for x in _events(stream, rank, steps, zero))
    return json.dumps(head)[:-1] + ', "traceEvents": [\n' + ",\n".join(events) + "\n]}\n"


def _events(stream: Stream, rank: int, steps: Steps, zero: float) -> Iterator[dict[str, object]]:
    for kind, value in (("process", f"rank {rank}"), ("thread", "instructions")):
        about = {"ph": "M", "pid": rank, "tid": 0, "ts": 0}
        yield {**about, "name": f"{kind}_name", "args": {"name": value}}
        yield {**about, "name": f"{kind}_sort_index", "args": {"sort_index": rank if kind == "process" else 0}}
    for number, step in enumerate(steps):
        for index, begin, end, waited in step:
            instruction = stream.ranks[rank][int(index)]
            times = {"start": round(begin - zero, 9), "end": round(end - zero, 9), "waited": round(waited, 9)}
            args = {"rank": rank, **_args(instruction), "step": number, "index": int(index), **times}
            where = {"ph": "X", "pid": rank, "tid": 0, **_span(begin - zero, end - zero)}
            yield {**where, "name": str(instruction), "cat": instruction.op, "args": args}


def _span(begin: float, end: float) -> dict[str, float]:
    """Return the start and the length in microseconds, to the nanosecond; both ends are rounded, so that separate
    slices stay separate.
    """
    low, high = round(begin * 1e6, 3), round(end * 1e6, 3)
    return {"ts": low, "dur": max(round(high - low, 3), 0.001)}


def _args(instruction: Instruction) -> dict[str, object]:
    """Return the arguments of an event; an overlap has the arguments of its first part, and the second part under
    `with`, as in a schedule's trace.
    """
    if instruction.op == BATCH:
        return {"op": BATCH, "messages": [str(part) for part in instruction.parts]}
    first, *others = instruction.parts or (instruction,)
    said = {"op": first.op, "stage": first.stage, "microbatch": first.microbatch}
    args = {key: value for key, value in said.items() if value != -1}
    return {**args, "with": _args(others[0])} if others else args
