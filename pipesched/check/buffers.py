"""No rank collects messages that its order gives no reason to hold.

    rank 0    F0 SEND_F0  F1 SEND_F1  F2 SEND_F2  …
    rank 1    RECV_F0 RECV_F1 RECV_F2 …  F0 B0  F1 B1  F2 B2        all m activations are there before the first is used

The lowering of the same order sends what is made and receives what is sent, so it says how many messages have to wait.
Received and not yet used: torch's lowering, which goes round the ranks and follows no clock, has up to ranks - 1 more
than ours (measured on its schedule classes, 2 to 8 ranks), so that much is allowed. Made and not yet sent: an overlap
pair makes two at one time.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipesched.analysis.holdings import Buffers, InHand
from pipesched.check.place import label
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.program import Program

_PAIR = 2
_RECEIVED = "received and not yet used", "receive each message just before the operation that uses it"
_UNSENT = "made and not yet sent", "send each message right after the operation that makes it"


def check_buffers(program: Program, found: Buffers, lowered: tuple[int, ...]) -> Iterator[Diagnostic]:
    """PS906 for the first rank that collects; `lowered`: by rank, most messages received and not yet used there."""
    yield from _first(program, found.received, lowered, program.ranks - 1, *_RECEIVED)
    yield from _first(program, found.unsent, (_PAIR,) * program.ranks, 0, *_UNSENT)


def _first(
    program: Program, found: InHand, lowered: tuple[int, ...], ahead: int, what: str, help: str
) -> Iterator[Diagnostic]:
    over = [rank for rank, most in enumerate(found.most) if most > lowered[rank] + ahead]
    for rank in over[:1]:
        most = found.most[rank]
        yield Diagnostic(
            Code.BUFFERS,
            f"rank {rank} has {most} messages {what}; the lowering of this order has at most {lowered[rank]} there",
            (label(program, found.at[rank], f"{most} are {what}"),),
            ("their buffers come on top of the peak, and --mem-cap does not count them",),
            help,
        )
