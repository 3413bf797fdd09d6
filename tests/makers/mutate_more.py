"""Plants mistakes at both ends of a message, in several lists, or in the form of a program."""

from __future__ import annotations

import random
from dataclasses import replace

from pipesched.model.ops import Instruction, Op
from tests.makers.mutate import SLIPS, Lists, Mutation, Spot, ending, message, spot, top

TWIN = {Op.SEND_F: (Op.RECV_F, 1), Op.RECV_F: (Op.SEND_F, -1), Op.SEND_B: (Op.RECV_B, -1), Op.RECV_B: (Op.SEND_B, 1)}


def _other_end(lists: Lists, rank: int, x: Instruction) -> Spot | None:
    """Return the place of the other end of a message of a rank, by name."""
    op, step = TWIN[x.op]
    for j, y in enumerate(lists[x.peer] if 0 <= x.peer < len(lists) else ()):
        if (y.op, y.stage, y.microbatch, y.peer) == (op, x.stage + step, x.microbatch, rank):
            return x.peer, j
    return None


def _both_ends(rng: random.Random, lists: Lists) -> tuple[Spot, Spot] | None:
    """Return a SEND and its RECV."""
    send = spot(rng, lists, lambda x: x.op.send)
    receive = _other_end(lists, send[0], lists[send[0]][send[1]]) if send else None
    return (send, receive) if send and receive else None


def swap_messages(rng: random.Random, lists: Lists) -> bool:
    """Swap two messages of one channel on both sides."""
    ends = _both_ends(rng, lists)
    if ends is None:
        return False
    (source, i), (target, k) = ends
    alike = [j for j, x in enumerate(lists[source]) if x.op.send and x.peer == target and j != i]
    near = min(alike, key=lambda j: abs(j - i), default=None)
    other = None if near is None else _other_end(lists, source, lists[source][near])
    if near is None or other is None:
        return False
    lists[source][i], lists[source][near] = lists[source][near], lists[source][i]
    lists[target][k], lists[target][other[1]] = lists[target][other[1]], lists[target][k]
    return True


def drop_message(rng: random.Random, lists: Lists) -> bool:
    ends = _both_ends(rng, lists)
    for rank, i in ends or ():
        del lists[rank][i]
    return ends is not None


def duplicate_message(rng: random.Random, lists: Lists) -> bool:
    ends = _both_ends(rng, lists)
    for rank, i in ends or ():
        lists[rank].insert(i + 1, lists[rank][i])
    return ends is not None


def rename_message(rng: random.Random, lists: Lists) -> bool:
    """Let both ends name another microbatch."""
    ends = _both_ends(rng, lists)
    microbatch = rng.randint(0, top(lists, "microbatch") + 1)
    for rank, i in ends or ():
        lists[rank][i] = replace(lists[rank][i], microbatch=microbatch)
    return ends is not None


def shift_message(rng: random.Random, lists: Lists) -> bool:
    """Let both ends name another stage, at the same distance."""
    ends = _both_ends(rng, lists)
    by = rng.choice((-2, -1, 1, 2))
    for rank, i in ends or ():
        lists[rank][i] = replace(lists[rank][i], stage=max(0, lists[rank][i].stage + by))
    return ends is not None


def own_communicator(rng: random.Random, lists: Lists) -> bool:
    """Let both ends use a communicator of their own."""
    ends = _both_ends(rng, lists)
    for rank, i in ends or ():
        lists[rank][i] = replace(lists[rank][i], communicator=1)
    return ends is not None


def redirect_message(rng: random.Random, lists: Lists) -> bool:
    """Move one end of a message, with its stage, to a third rank, at about the same place; the other end follows."""
    ends = _both_ends(rng, lists)
    if ends is None or len(lists) < 3:
        return False
    (stays, i), (leaves, j) = ends if rng.random() < 0.5 else ends[::-1]
    new = rng.choice([rank for rank in range(len(lists)) if rank not in (stays, leaves)])
    moved = lists[leaves].pop(j)
    lists[stays][i] = replace(lists[stays][i], peer=new)
    about = round(j * len(lists[new]) / max(1, len(lists[leaves]))) + rng.randint(-2, 2)
    lists[new].insert(min(len(lists[new]), max(0, about)), moved)
    return True


def drop_everywhere(rng: random.Random, lists: Lists) -> bool:
    """Drop all REDUCE_GRADs, SYNCs or STEPs of one stage, or of all, on every rank."""
    found = spot(rng, lists, ending)
    if found is None:
        return False
    like, all_stages = lists[found[0]][found[1]], rng.random() < 0.3
    for listed in lists:
        listed[:] = [x for x in listed if x.op is not like.op or not (all_stages or x.stage == like.stage)]
    return True


def duplicate_sync(rng: random.Random, lists: Lists) -> bool:
    """Repeat both ends of a SYNC."""
    found = spot(rng, lists, lambda x: x.op is Op.SYNC)
    if found is None:
        return False
    stage = lists[found[0]][found[1]].stage
    for listed in lists:
        for i in reversed([i for i, x in enumerate(listed) if x.op is Op.SYNC and x.stage == stage]):
            listed.insert(i, listed[i])
    return True


def split(rng: random.Random, lists: Lists) -> bool:
    """Split a B into its I and, there or later, its W."""
    found = spot(rng, lists, lambda x: x.op is Op.B)
    if found is None:
        return False
    rank, i = found
    x = lists[rank][i]
    lists[rank][i] = replace(x, op=Op.I)
    lists[rank].insert(rng.choice([i + 1, rng.randint(i + 1, len(lists[rank]))]), replace(x, op=Op.W, second=False))
    return True


def fuse(rng: random.Random, lists: Lists) -> bool:
    """Make an I a B, and drop its W."""
    found = spot(rng, lists, lambda x: x.op is Op.I)
    if found is None:
        return False
    rank, i = found
    x = lists[rank][i]
    lists[rank][i] = replace(x, op=Op.B)
    lists[rank][:] = [y for y in lists[rank] if (y.op, y.stage, y.microbatch) != (Op.W, x.stage, x.microbatch)]
    return True


def batch(rng: random.Random, lists: Lists) -> bool:
    """Merge two to four adjacent messages into one batch."""
    found = spot(rng, lists, message)
    if found is None:
        return False
    rank, i = found
    end = i
    while end < min(len(lists[rank]), i + rng.randint(2, 4)) and message(lists[rank][end]):
        lists[rank][end] = replace(lists[rank][end], group=i)
        end += 1
    return end - i >= 2


MUTATIONS: dict[str, Mutation] = {
    **SLIPS,
    "swap two messages": swap_messages,
    "drop a message": drop_message,
    "duplicate a message": duplicate_message,
    "rename a message": rename_message,
    "shift a message": shift_message,
    "a message on its own communicator": own_communicator,
    "redirect a message": redirect_message,
    "drop everywhere": drop_everywhere,
    "duplicate a SYNC": duplicate_sync,
    "split a B": split,
    "fuse I and W": fuse,
    "fuse messages": batch,
}
