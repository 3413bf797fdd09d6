"""Primus's ScheduleRunner on tokens: what the nodes of a table make it do.

A node finds what it takes by type, microbatch and chunk among the nodes before it. Messages that stand side by side are
posted together, and the rank goes on when all of them have ended; those of one pair of ranks match in the order in
which they are posted. It reads JSON and knows nothing of pipesched. Source: Primus at fd1eeab, `scheduler.py` and the
handlers of its Megatron backend.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

Node = dict[str, Any]
MESSAGES = {"SF": "RF", "SB": "RB"}
TAKES = {"SF": ("F",), "SB": ("B", "BW")}


class Stop(Exception):
    """It raises, takes another tensor than it should, or waits for ever."""


class Rank:
    """One rank. made: by type, microbatch and chunk of a node, what it left, as (F or B, stage of it, microbatch)."""

    def __init__(self, rank: int, nodes: list[Node]) -> None:
        self.rank, self.nodes, self.at = rank, nodes, 0
        self.made: dict[tuple[str, int, int], Any] = {}
        self.ran: list[tuple[str, int, int]] = []


def key(node: Node, kind: str | None = None) -> tuple[str, int, int]:
    return kind or node["func_type"], node["mini_batch"], node["chunk"]


def run(table: list[list[Node]], homes: list[int]) -> list[list[tuple[str, int, int]]]:
    """By rank what was computed, as (func_type, stage, microbatch).

    Raises:
        Stop: it does not come to its end, or a tensor is not the one that it should be.
    """
    stage_of = {(home, homes[:stage].count(home)): stage for stage, home in enumerate(homes)}
    ranks = [Rank(number, nodes) for number, nodes in enumerate(table)]
    under_way: dict[tuple[int, int], deque[Any]] = defaultdict(deque)  # sent, not received
    wanted: dict[tuple[int, int], deque[tuple[Rank, Node]]] = defaultdict(deque)
    open_: dict[int, int] = defaultdict(int)  # how many messages of its batch have not ended, by rank
    moved = True
    while moved:
        moved = False
        for rank in ranks:
            while rank.at < len(rank.nodes) and not open_[rank.rank]:
                moved = True
                if rank.nodes[rank.at]["func_type"] in (*MESSAGES, *MESSAGES.values()):
                    post(rank, stage_of, under_way, wanted, open_)
                else:
                    compute(rank, rank.nodes[rank.at], stage_of, len(homes))
                    rank.at += 1
            for channel in under_way:
                while under_way[channel] and wanted[channel]:
                    sender, what = under_way[channel].popleft()
                    receiver, node = wanted[channel].popleft()
                    receiver.made[key(node)] = what
                    open_[sender] -= 1
                    open_[receiver.rank] -= 1
                    moved = True
    if any(rank.at < len(rank.nodes) or open_[rank.rank] for rank in ranks):
        raise Stop(f"all wait: {[rank.at for rank in ranks]}")
    first, last = (
        [i for rank in ranks for kind, s, i in rank.ran if (kind, s) == ("F", at)] for at in (0, len(homes) - 1)
    )
    if first != last:
        raise Stop(f"the batches of the first stage are {first}, and {last} of the last")
    return [rank.ran for rank in ranks]


def post(rank: Rank, stage_of: Any, under_way: Any, wanted: Any, open_: Any) -> None:
    """The messages from here to the next compute, as one batch; those of a rank to itself are copied."""
    while rank.at < len(rank.nodes) and (kind := rank.nodes[rank.at]["func_type"]) in (*MESSAGES, *MESSAGES.values()):
        node = rank.nodes[rank.at]
        source, target = node["args"]["from_pp_rank"], node["args"]["to_pp_rank"]
        rank.at += 1
        if kind in MESSAGES:
            what = next((rank.made[key(node, x)] for x in TAKES[kind] if key(node, x) in rank.made), None)
            if what is None or source != rank.rank:
                raise Stop(f"rank {rank.rank} has nothing to send for {node}")
            if stage_of[target, node["args"]["send_to_chunk"]] != what[1] + (1 if kind == "SF" else -1):
                raise Stop(f"{node} goes to another chunk")
            rank.made[key(node)] = what
            if target != source:
                under_way[source, target].append((rank.rank, what))
                open_[rank.rank] += 1
        elif source == target:
            sent = {"RF": "SF", "RB": "SB"}[kind]
            rank.made[key(node)] = rank.made[sent, node["mini_batch"], node["args"]["recv_from_chunk"]]
        else:
            wanted[source, target].append((rank, node))
            open_[rank.rank] += 1


def compute(rank: Rank, node: Node, stage_of: Any, stages: int) -> None:
    kind, microbatch, chunk = key(node)
    stage = stage_of[rank.rank, chunk]
    if kind == "F":
        if rank.made.get(("RF", microbatch, chunk)) != (None if stage == 0 else ("F", stage - 1, microbatch)):
            raise Stop(f"forward of stage {stage} takes {rank.made.get(('RF', microbatch, chunk))}")
    elif kind == "W":
        if rank.made.get(("B", microbatch, chunk)) is None:
            raise Stop(f"nothing is stored for the weights of {node}")
    elif ("F", microbatch, chunk) not in rank.made or rank.made.get(("RB", microbatch, chunk)) != (
        None if stage == stages - 1 else ("B", stage + 1, microbatch)
    ):
        raise Stop(f"backward of stage {stage} takes {rank.made.get(('RB', microbatch, chunk))}")
    if (kind, microbatch, chunk) in rank.made:
        raise Stop(f"{node} runs twice")
    rank.made[kind, microbatch, chunk] = ("F" if kind == "F" else "B", stage, microbatch)
    rank.ran.append((kind, stage, microbatch))
