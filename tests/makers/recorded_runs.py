"""Runs instruction lists in an independent player, and writes the records that each recorder would write.

Every rank executes its list step by step: it posts a message, or a batch of them, and continues when all of them are
complete; the i-th send of a channel meets the i-th receive. A rank may stop forever before some instruction.
"""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pipesched.model.ops import Instruction

Lists = Sequence[Sequence[Instruction]]


@dataclass
class Post:
    """A message that a rank posted. batch: number of the posts that the rank made together."""

    what: Instruction
    index: int
    batch: int
    over: bool = False

    @property
    def send(self) -> bool:
        return self.what.op.name.startswith("SEND")

    @property
    def name(self) -> str:
        """The name of a message in a chain, by the stage that made it."""
        letter, shift = {"SEND_F": ("F", 0), "RECV_F": ("F", -1), "SEND_B": ("B", 0), "RECV_B": ("B", 1)}[
            self.what.op.name
        ]
        return f"{letter}{self.what.stage + shift}.{self.what.microbatch}"


@dataclass
class Run:
    """posts: by rank, in order. waits: by blocked rank, the ranks that did not post the awaited messages."""

    posts: list[list[Post]]
    waits: dict[int, set[int]]
    stopped: Mapping[int, int]


def play(lists: Lists, steps: int = 1, stopped: Mapping[int, int] | None = None, *, eager: bool = False) -> Run:
    """stopped: by rank, its total number of instructions. eager: no rank waits for its sends."""
    halts = stopped or {}
    groups = [[list(group) for _, group in groupby(enumerate(rank), _batch)] * steps for rank in lists]
    posts: list[list[Post]] = [[] for _ in lists]
    sides: dict[tuple[int, int, int, bool], list[Post]] = defaultdict(list)
    at, done, front = [0] * len(lists), [0] * len(lists), [list[Post]() for _ in lists]
    moved = True
    while moved:
        moved = False
        for rank, mine in enumerate(groups):
            while at[rank] < len(mine) and all(post.over or (eager and post.send) for post in front[rank]):
                group = mine[at[rank]]
                if done[rank] + len(group) > halts.get(rank, 10**9):
                    break
                moved, front[rank] = True, []
                at[rank], done[rank] = at[rank] + 1, done[rank] + len(group)
                for index, x in group:
                    if x.op.name[:5] in ("SEND_", "RECV_"):
                        post = Post(x, index, at[rank])
                        posts[rank].append(post)
                        front[rank].append(post)
                        _meet(sides, rank, post)
    waits = {
        rank: {post.what.peer for post in front[rank] if not (post.over or (eager and post.send))}
        for rank, mine in enumerate(groups)
        if at[rank] < len(mine) or any(not (post.over or (eager and post.send)) for post in front[rank])
    }
    return Run(posts, waits, halts)


def _batch(item: tuple[int, Instruction]) -> int:
    index, x = item
    return x.group if x.group >= 0 else -1 - index


def _meet(sides: dict[tuple[int, int, int, bool], list[Post]], rank: int, post: Post) -> None:
    x = post.what
    ends = (rank, x.peer) if post.send else (x.peer, rank)
    mine, theirs = (sides[x.communicator, *ends, send] for send in (post.send, not post.send))
    mine.append(post)
    if len(theirs) >= len(mine):
        post.over = theirs[len(mine) - 1].over = True


def orders(run: Run, folder: Path) -> None:
    """Return the run in the order notation, one file per rank."""
    for rank, posts in enumerate(run.posts):
        words = [f"{'send' if p.send else 'recv'}:{p.name}{'>' if p.send else '<'}{p.what.peer}{_on(p)}" for p in posts]
        (folder / f"rank{rank}.txt").write_text(f"rank {rank}: {' '.join(words)}\n")


def _on(post: Post) -> str:
    return f"@{post.what.communicator}" if post.what.communicator else ""


def traces(run: Run, folder: Path) -> None:
    """Return the run in our recorder's form, which has finished messages only, for a runtime that waits for no send."""
    for rank, posts in enumerate(run.posts):
        events = [{"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}]
        for clock, p in enumerate(p for p in posts if p.over or p.send):
            about = {"rank": rank, "index": p.index, "op": p.what.op.name}
            name = f"{p.what.stage}{p.what.op.name}{p.what.microbatch}"
            events.append({"ph": "X", "name": name, "pid": rank, "ts": clock, "dur": 1, "args": about})  # type: ignore[dict-item]
        (folder / f"rank{rank}.json").write_text(json.dumps({"traceEvents": events}))


def dumps(
    run: Run,
    folder: Path,
    *,
    as_json: bool = False,
    batched: bool = False,
    job: Sequence[int] | None = None,
    sizes: Mapping[str, list[int]] | None = None,
    chatter: bool = True,
) -> None:
    """Return the run in the form of torch's flight recorder on NCCL. sizes: by the first letter of a message's name."""
    ranks = list(job or range(len(run.posts)))
    lengths = sizes or {"F": [2, 8], "B": [2, 8]}
    groups = {"0": ("default_pg", list(range(max(ranks) + 1)))}
    communicators = sorted({p.what.communicator for posts in run.posts for p in posts})
    groups |= {str(1 + c): (f"mesh_pp{c or ''}", ranks) for c in communicators}
    config = {key: {"name": key, "desc": desc, "ranks": str(of)} for key, (desc, of) in groups.items()}
    for rank, posts in enumerate(run.posts):
        entries: list[dict[str, Any]] = []

        def add(name: str, group: str, p2p: int, state: str, kind: str, size: list[int], here: Any = entries) -> None:
            done = 5 if state == "completed" else None
            here.append(
                {
                    "record_id": len(here),
                    "pg_id": int(group),
                    "process_group": (group, groups[group][0]),
                    "collective_seq_id": sum(not e["is_p2p"] for e in here) + (not p2p),
                    "p2p_seq_id": p2p,
                    "op_id": len(here) + 1,
                    "profiling_name": f"nccl:{name}",
                    "time_created_ns": 1000 * len(here),
                    "input_sizes": [size],
                    "input_dtypes": [kind],
                    "output_sizes": [size],
                    "output_dtypes": [kind],
                    "state": state,
                    "time_discovered_started_ns": done,
                    "time_discovered_completed_ns": done,
                    "retired": done is not None,
                    "timeout_ms": 600000,
                    "is_p2p": bool(p2p),
                    "frames": [{"name": "step", "filename": "train.py", "line": 7}],
                }
            )

        number = 0
        if chatter:
            add("all_reduce", "0", 0, "completed", "Float", [1])
            for neighbour in (rank - 1, rank + 1):
                if 0 <= neighbour < len(ranks):
                    number += 1
                    arrow = f"send {rank}->{neighbour}" if neighbour > rank else f"recv {rank}<-{neighbour}"
                    add(arrow, "1", number, "completed", "Long", [1])
        for _, made in groupby(posts, key=lambda p: p.batch):
            batch = list(made)
            number += 1
            state = "completed" if all(p.over for p in batch) else "started"
            for p in batch:
                arrow = f"send {rank}->{p.what.peer}" if p.send else f"recv {rank}<-{p.what.peer}"
                alone = "scheduled" if batched else state
                add(arrow, str(1 + p.what.communicator), number, alone, "BFloat16", lengths[p.name[0]])
                number += not batched and p is not batch[-1]
            if batched:
                add("coalesced", str(1 + batch[0].what.communicator), number, state, "", [])
        value = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}
        data = json.dumps(value).encode() if as_json else pickle.dumps(value, protocol=2)
        (folder / f"nccl_trace_rank_{ranks[rank]}").write_bytes(data)
