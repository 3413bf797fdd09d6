"""Exchanges values between ranks before step 1: one JSON text per rank, as bytes in a collective of their group.

    everybody(value)         [value of rank 0, value of rank 1, …]      on every rank

The values are JSON, since unpickling could run code of the sender. Text that is too long or not JSON is an error that
names the sender; the caller checks the values.
"""

from __future__ import annotations

import json
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

Value = TypeVar("Value")
LONGEST = 1 << 26  # most bytes of a text


def everybody(value: Value, group: dist.ProcessGroup | None = None) -> list[Value]:
    """Gather a JSON value from every rank, ordered by rank in the group. A collective.

    Raises:
        ValueError: if a text cannot be read; the message names the rank that sent it.
    """
    device, mine = _device(group), _bytes(value)
    lengths = _gathered(torch.tensor([mine.numel()], device=device), group)
    sizes = [_size(rank, int(length)) for rank, length in enumerate(lengths)]
    padded = torch.zeros(max(sizes), dtype=torch.uint8, device=device)
    padded[: mine.numel()] = mine.to(device)
    texts = _gathered(padded, group)
    found = [_value(rank, text[:size]) for rank, (text, size) in enumerate(zip(texts, sizes, strict=True))]
    return cast("list[Value]", found)


def _gathered(mine: Tensor, group: dist.ProcessGroup | None) -> list[Tensor]:
    made = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(made, mine, group=group)
    return made


def _bytes(value: object) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value, separators=(",", ":")).encode()), dtype=torch.uint8)


def _size(rank: int, length: int) -> int:
    if not 0 < length <= LONGEST:
        raise ValueError(f"rank {rank} announces {length} bytes of text; the limit is {LONGEST}")
    return length


def _value(rank: int, text: Tensor) -> object:
    try:
        return json.loads(bytes(text.cpu().numpy()))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"rank {rank} sent text that is not JSON: it may run another version of pipesched") from error


def _device(group: dist.ProcessGroup | None) -> torch.device:
    """Return the device on which the group transfers bytes."""
    able = [part.partition(":")[0] for part in str(dist.get_backend_config(group)).split(",")]
    if "cpu" in able:
        return torch.device("cpu")
    return torch.device(able[0], torch.accelerator.current_device_index())
