"""Versions of torch's pipeline runtime: the actions that each version accepts and requires. A new version is a new row.

    accepts             the actions that its loader accepts
    needs_waits         every send and every reduction needs a wait that names it: WAIT_SEND_F, WAIT_REDUCE_GRAD, …
    reduction_reshards  REDUCE_GRAD frees the gathered parameters of its stage (FSDP), as a RESHARD does

All versions need a REDUCE_GRAD for every trained stage: REDUCE_GRAD came with 2.10, the first version here.
Source: ``torch.distributed.pipelining.schedules`` of each version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipesched.diagnostics import Code, fail
from pipesched.model.ops import Op

_MESSAGES = {Op.SEND_F, Op.RECV_F, Op.SEND_B, Op.RECV_B}
_ACTIONS = frozenset({Op.F, Op.I, Op.W, Op.B, *_MESSAGES, Op.REDUCE_GRAD, Op.UNSHARD, Op.RESHARD})
WAITS = frozenset({Op.WAIT_SEND_F, Op.WAIT_SEND_B, Op.WAIT_REDUCE_GRAD})


@dataclass(frozen=True, slots=True)
class TorchVersion:
    """A version of torch: its number, and the properties that affect schedule files."""

    number: tuple[int, int]
    accepts: frozenset[Op] = _ACTIONS
    needs_waits: bool = False
    reduction_reshards: bool = False

    def __str__(self) -> str:
        return f"{self.number[0]}.{self.number[1]}"


VERSIONS = (
    TorchVersion((2, 10)),
    TorchVersion((2, 11)),
    TorchVersion((2, 12)),
    TorchVersion((2, 13)),
    TorchVersion((2, 14)),
    TorchVersion((2, 15), accepts=_ACTIONS | WAITS, needs_waits=True, reduction_reshards=True),
)
"""The versions that are supported, oldest first."""

OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]
DEFAULT = VERSIONS[3]
"""The version whose rules apply to a CSV by default."""

ACTIONS = frozenset[Op]().union(*(version.accepts for version in VERSIONS))
"""The actions of all versions of torch."""


def first_with(action: Op) -> TorchVersion:
    """Return the first torch version that accepts an action."""
    return next(version for version in VERSIONS if action in version.accepts)


def parse_version(text: str) -> TorchVersion:
    """Return the version for text such as ``2.13``, ``2.13.1`` or ``2.13.0+cpu``.

    Raises:
        PipeschedError: PS225: the version is not supported.
    """
    match = re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,3})([.+].{0,60})?", text)
    number = (int(match[1]), int(match[2])) if match else None
    found = next((version for version in VERSIONS if version.number == number), None)
    if found is None:
        shown = repr(text if len(text) <= 40 else text[:37] + "...")
        raise fail(Code.USAGE, f"{shown} is not a torch version from {OLDEST} to {NEWEST}")
    return found
