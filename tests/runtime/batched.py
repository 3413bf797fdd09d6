"""Runs a step of a program with batches and communicators, and returns its results and its calls to torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch.distributed as dist

from pipesched.runtime.execute import transport as channels
from pipesched.stream import Stream
from tests.runtime import cases


def batched(rank: int, stream: Stream, tagged: bool, blocking: bool) -> dict[str, Any]:
    """Run one step. tagged: whether gloo's tags are used, or the path of backends without them.

    batches: how many tensors each call of batch_isend_irecv had. groups: how many process groups this rank is in, but
    for the one it was given.
    """
    own, transport = (dist.batch_isend_irecv, dist.new_group), channels.TRANSPORTS["gloo"]
    batches: list[int] = []
    groups = 0

    def batch(calls: Any) -> Any:
        batches.append(len(calls))
        return own[0](calls)

    def new_group(*ranks: Any, **options: Any) -> Any:
        nonlocal groups
        made = own[1](*ranks, **options)
        groups += made is not dist.GroupMember.NON_GROUP_MEMBER
        return made

    channels.TRANSPORTS["gloo"] = replace(transport, tagged=tagged)
    dist.batch_isend_irecv, dist.new_group = batch, new_group
    try:
        found = cases.gradients(rank, stream, blocking=blocking)
    finally:
        dist.batch_isend_irecv, dist.new_group = own
        channels.TRANSPORTS["gloo"] = transport
    return found | {"batches": batches, "groups": groups}
