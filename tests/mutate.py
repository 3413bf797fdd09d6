"""Ways in which a program goes wrong: one slip, or the same slip at both ends of a message.

Each takes the lists of a program, one list of records a rank, and changes them in place; it says whether it found
something to change. What comes out may still be right: two neighbours that do not care may change places.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from pipesched.model.ops import Instruction, Op

Lists: TypeAlias = list[list[Instruction]]
Mutation: TypeAlias = Callable[[random.Random, Lists], bool]
Wanted: TypeAlias = Callable[[Instruction], bool]


def _message(x: Instruction) -> bool:
    return x.op.send or x.op.receive


def _spots(lists: Lists, wanted: Wanted = lambda _: True) -> list[tuple[int, int]]:
    return [(rank, i) for rank, listed in enumerate(lists) for i, x in enumerate(listed) if wanted(x)]


def _spot(rng: random.Random, lists: Lists, wanted: Wanted = lambda _: True) -> tuple[int, int] | None:
    found = _spots(lists, wanted)
    return rng.choice(found) if found else None


def _other_end(lists: Lists, rank: int, i: int) -> tuple[int, int] | None:
    """Where the message at a spot is sent or received on the other rank, by name."""
    x = lists[rank][i]
    twin = {
        Op.SEND_F: (Op.RECV_F, 1),
        Op.RECV_F: (Op.SEND_F, -1),
        Op.SEND_B: (Op.RECV_B, -1),
        Op.RECV_B: (Op.SEND_B, 1),
    }
    op, step = twin[x.op]
    for j, y in enumerate(lists[x.peer] if 0 <= x.peer < len(lists) else ()):
        if (y.op, y.stage, y.microbatch, y.peer) == (op, x.stage + step, x.microbatch, rank):
            return x.peer, j
    return None


def _both_ends(rng: random.Random, lists: Lists) -> tuple[tuple[int, int], tuple[int, int]] | None:
    send = _spot(rng, lists, lambda x: x.op.send)
    receive = _other_end(lists, *send) if send else None
    return (send, receive) if send and receive else None


def drop(rng: random.Random, lists: Lists) -> bool:
    spot = _spot(rng, lists)
    if spot:
        del lists[spot[0]][spot[1]]
    return spot is not None


def duplicate(rng: random.Random, lists: Lists) -> bool:
    """The same instruction again, there or later."""
    spot = _spot(rng, lists)
    if spot:
        rank, i = spot
        lists[rank].insert(rng.choice([i + 1, rng.randint(i + 1, len(lists[rank]))]), lists[rank][i])
    return spot is not None


def swap_neighbours(rng: random.Random, lists: Lists) -> bool:
    rank = rng.randrange(len(lists))
    if len(lists[rank]) < 2:
        return False
    i = rng.randrange(len(lists[rank]) - 1)
    lists[rank][i], lists[rank][i + 1] = lists[rank][i + 1], lists[rank][i]
    return True


def swap_any(rng: random.Random, lists: Lists) -> bool:
    rank = rng.randrange(len(lists))
    if len(lists[rank]) < 2:
        return False
    i, j = rng.sample(range(len(lists[rank])), 2)
    lists[rank][i], lists[rank][j] = lists[rank][j], lists[rank][i]
    return True


def move(rng: random.Random, lists: Lists) -> bool:
    """To another place of the same list."""
    spot = _spot(rng, lists)
    if spot:
        rank, i = spot
        x = lists[rank].pop(i)
        lists[rank].insert(rng.randint(0, len(lists[rank])), x)
    return spot is not None


def to_another_rank(rng: random.Random, lists: Lists) -> bool:
    spot = _spot(rng, lists)
    if spot is None or len(lists) < 2:
        return False
    x = lists[spot[0]].pop(spot[1])
    there = rng.choice([r for r in range(len(lists)) if r != spot[0]])
    lists[there].insert(rng.randint(0, len(lists[there])), x)
    return True


def relabel_stage(rng: random.Random, lists: Lists) -> bool:
    return _changed(
        rng, lists, lambda x: x.stage >= 0, lambda x: {"stage": max(0, x.stage + rng.choice((-2, -1, 1, 2)))}
    )


def relabel_microbatch(rng: random.Random, lists: Lists) -> bool:
    top = max((x.microbatch for listed in lists for x in listed), default=0)
    return _changed(rng, lists, lambda x: x.microbatch >= 0, lambda _: {"microbatch": rng.randint(0, top + 1)})


def relabel_peer(rng: random.Random, lists: Lists) -> bool:
    return _changed(rng, lists, lambda x: x.peer >= 0, lambda _: {"peer": rng.randint(0, len(lists))})


def relabel_operation(rng: random.Random, lists: Lists) -> bool:
    """A compute becomes another one, a message goes the other way or carries the other thing."""
    computes, messages = [Op.F, Op.I, Op.W, Op.B], [Op.SEND_F, Op.SEND_B, Op.RECV_F, Op.RECV_B]

    def other(x: Instruction) -> dict[str, object]:
        return {"op": rng.choice([op for op in (computes if x.op.compute else messages) if op is not x.op])}

    return _changed(rng, lists, lambda x: x.op.compute or _message(x), other)


def other_communicator(rng: random.Random, lists: Lists) -> bool:
    return _changed(rng, lists, _message, lambda _: {"communicator": 1})


def _changed(
    rng: random.Random, lists: Lists, wanted: Wanted, change: Callable[[Instruction], dict[str, object]]
) -> bool:
    spot = _spot(rng, lists, wanted)
    if spot is None:
        return False
    rank, i = spot
    old = lists[rank][i]
    lists[rank][i] = replace(old, **change(old))  # type: ignore[arg-type]
    return lists[rank][i] != old


def _swap_like(rng: random.Random, lists: Lists, wanted: Wanted) -> bool:
    spot = _spot(rng, lists, wanted)
    if spot is None:
        return False
    rank, i = spot
    like = [j for r, j in _spots(lists, wanted) if r == rank and j != i]
    if not like:
        return False
    near = sorted(like, key=lambda j: abs(j - i))[:4]
    j = rng.choice(near)
    lists[rank][i], lists[rank][j] = lists[rank][j], lists[rank][i]
    return True


def swap_receives(rng: random.Random, lists: Lists) -> bool:
    return _swap_like(rng, lists, lambda x: x.op.receive)


def swap_sends(rng: random.Random, lists: Lists) -> bool:
    return _swap_like(rng, lists, lambda x: x.op.send)


def swap_computes(rng: random.Random, lists: Lists) -> bool:
    return _swap_like(rng, lists, lambda x: x.op.compute)


def swap_both_ends(rng: random.Random, lists: Lists) -> bool:
    """Two messages of one channel change places on both sides."""
    first = _both_ends(rng, lists)
    if first is None:
        return False
    (source, i), (target, k) = first
    alike = [j for j, x in enumerate(lists[source]) if x.op.send and x.peer == target and j != i]
    if not alike:
        return False
    j = min(alike, key=lambda j: (abs(j - i), j))
    other = _other_end(lists, source, j)
    if other is None:
        return False
    lists[source][i], lists[source][j] = lists[source][j], lists[source][i]
    lists[target][k], lists[target][other[1]] = lists[target][other[1]], lists[target][k]
    return True


def drop_message(rng: random.Random, lists: Lists) -> bool:
    """Both ends."""
    ends = _both_ends(rng, lists)
    if ends:
        (a, i), (b, j) = ends
        del lists[a][i]
        del lists[b][j]
    return ends is not None


def duplicate_message(rng: random.Random, lists: Lists) -> bool:
    """Both ends, each again right after itself."""
    ends = _both_ends(rng, lists)
    if ends:
        for rank, i in ends:
            lists[rank].insert(i + 1, lists[rank][i])
    return ends is not None


def relabel_message(rng: random.Random, lists: Lists) -> bool:
    """Both ends name another microbatch."""
    ends = _both_ends(rng, lists)
    if ends is None:
        return False
    top = max(x.microbatch for listed in lists for x in listed)
    microbatch = rng.randint(0, top + 1)
    for rank, i in ends:
        lists[rank][i] = replace(lists[rank][i], microbatch=microbatch)
    return True


def shift_message(rng: random.Random, lists: Lists) -> bool:
    """Both ends name another stage, the same number of stages away."""
    ends = _both_ends(rng, lists)
    if ends is None:
        return False
    by = rng.choice((-2, -1, 1, 2))
    for rank, i in ends:
        lists[rank][i] = replace(lists[rank][i], stage=max(0, lists[rank][i].stage + by))
    return True


def redirect_message(rng: random.Random, lists: Lists) -> bool:
    """A message goes to another rank, which receives it at about the same place of its list."""
    ends = _both_ends(rng, lists)
    if ends is None or len(lists) < 3:
        return False
    (a, i), (b, j) = ends
    c = rng.choice([r for r in range(len(lists)) if r not in (a, b)])
    received = lists[b].pop(j)
    lists[a][i] = replace(lists[a][i], peer=c)
    place = round(j * len(lists[c]) / max(1, len(lists[b])))
    lists[c].insert(min(len(lists[c]), max(0, place + rng.randint(-2, 2))), received)
    return True


def reroute_message(rng: random.Random, lists: Lists) -> bool:
    """A message comes from another rank, which sends it at about the same place of its list."""
    ends = _both_ends(rng, lists)
    if ends is None or len(lists) < 3:
        return False
    (a, i), (b, j) = ends
    c = rng.choice([r for r in range(len(lists)) if r not in (a, b)])
    sent = lists[a].pop(i)
    lists[b][j] = replace(lists[b][j], peer=c)
    place = round(i * len(lists[c]) / max(1, len(lists[a])))
    lists[c].insert(min(len(lists[c]), max(0, place + rng.randint(-2, 2))), sent)
    return True


def own_channel(rng: random.Random, lists: Lists) -> bool:
    """Both ends go to another communicator."""
    ends = _both_ends(rng, lists)
    if ends:
        for rank, i in ends:
            lists[rank][i] = replace(lists[rank][i], communicator=1)
    return ends is not None


def _ending(x: Instruction) -> bool:
    return x.op in (Op.REDUCE_GRAD, Op.SYNC, Op.STEP)


def move_ending(rng: random.Random, lists: Lists) -> bool:
    """REDUCE_GRAD, SYNC or STEP to another place, mostly a near one."""
    spot = _spot(rng, lists, _ending)
    if spot:
        rank, i = spot
        x = lists[rank].pop(i)
        near = max(0, i - rng.choice((1, 2, 3, len(lists[rank]))))
        lists[rank].insert(rng.choice([near, rng.randint(0, len(lists[rank]))]), x)
    return spot is not None


def drop_ending(rng: random.Random, lists: Lists) -> bool:
    spot = _spot(rng, lists, _ending)
    if spot:
        del lists[spot[0]][spot[1]]
    return spot is not None


def duplicate_ending(rng: random.Random, lists: Lists) -> bool:
    spot = _spot(rng, lists, _ending)
    if spot:
        rank, i = spot
        lists[rank].insert(rng.randint(0, len(lists[rank])), lists[rank][i])
    return spot is not None


def relabel_ending(rng: random.Random, lists: Lists) -> bool:
    top = max(x.stage for listed in lists for x in listed)
    return _changed(rng, lists, lambda x: _ending(x) and x.stage >= 0, lambda _: {"stage": rng.randint(0, top + 1)})


def drop_kind(rng: random.Random, lists: Lists) -> bool:
    """All REDUCE_GRADs, SYNCs or STEPs, or those of one stage, on every rank."""
    spot = _spot(rng, lists, _ending)
    if spot is None:
        return False
    like = lists[spot[0]][spot[1]]
    whole = rng.random() < 0.3
    for listed in lists:
        listed[:] = [x for x in listed if x.op is not like.op or not (whole or x.stage == like.stage)]
    return True


def duplicate_sync(rng: random.Random, lists: Lists) -> bool:
    """Both ends of a SYNC, again."""
    spot = _spot(rng, lists, lambda x: x.op is Op.SYNC)
    if spot is None:
        return False
    like = lists[spot[0]][spot[1]]
    for listed in lists:
        for i in reversed([i for i, x in enumerate(listed) if x.op is Op.SYNC and x.stage == like.stage]):
            listed.insert(i, listed[i])
    return True


def swap_syncs(rng: random.Random, lists: Lists) -> bool:
    return _swap_like(rng, lists, lambda x: x.op is Op.SYNC)


def split(rng: random.Random, lists: Lists) -> bool:
    """A B becomes its I and, there or later, its W."""
    spot = _spot(rng, lists, lambda x: x.op is Op.B)
    if spot is None:
        return False
    rank, i = spot
    x = lists[rank][i]
    lists[rank][i] = replace(x, op=Op.I)
    after = rng.choice([i + 1, rng.randint(i + 1, len(lists[rank]))])
    lists[rank].insert(after, replace(x, op=Op.W, second=False))
    return True


def fuse(rng: random.Random, lists: Lists) -> bool:
    """An I becomes a B, and its W goes."""
    spot = _spot(rng, lists, lambda x: x.op is Op.I)
    if spot is None:
        return False
    rank, i = spot
    x = lists[rank][i]
    lists[rank][i] = replace(x, op=Op.B)
    lists[rank][:] = [y for y in lists[rank] if (y.op, y.stage, y.microbatch) != (Op.W, x.stage, x.microbatch)]
    return True


def batch(rng: random.Random, lists: Lists) -> bool:
    """Two or more messages that stand side by side become one fused batch."""
    spot = _spot(rng, lists, _message)
    if spot is None:
        return False
    rank, i = spot
    j = i
    while j < len(lists[rank]) and _message(lists[rank][j]) and j - i < rng.randint(2, 4):
        lists[rank][j] = replace(lists[rank][j], group=i)
        j += 1
    return j - i >= 2


def pair(rng: random.Random, lists: Lists) -> bool:
    """A compute becomes the second part of a slot, or stops to be one."""
    return _changed(rng, lists, lambda x: x.op.compute, lambda x: {"second": not x.second})


MUTATIONS: tuple[Mutation, ...] = (
    drop,
    duplicate,
    swap_neighbours,
    swap_any,
    move,
    to_another_rank,
    relabel_stage,
    relabel_microbatch,
    relabel_peer,
    relabel_operation,
    other_communicator,
    swap_receives,
    swap_sends,
    swap_computes,
    swap_both_ends,
    drop_message,
    duplicate_message,
    relabel_message,
    shift_message,
    redirect_message,
    reroute_message,
    own_channel,
    move_ending,
    drop_ending,
    duplicate_ending,
    relabel_ending,
    drop_kind,
    duplicate_sync,
    swap_syncs,
    split,
    fuse,
    batch,
    pair,
)
