"""Checks that no rank holds more messages than its order requires.

    rank 0    F0 SEND_F0  F1 SEND_F1  F2 SEND_F2  …
    rank 1    RECV_F0 RECV_F1 RECV_F2 …  F0 B0  F1 B1  F2 B2        all m activations arrive before the first is used

The lowering of the same order sends a value when it is made and receives it when it is sent, so it shows how many
messages have to wait. Two excesses are allowed: torch's lowering, which visits the ranks in turn without a clock, holds
up to ranks - 1 more received messages than ours (measured on its schedule classes, 2 to 8 ranks), and an overlap pair
makes two messages at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipesched.analysis.holdings import buffers
from pipesched.check.checks import Subject
from pipesched.check.findings import label
from pipesched.diagnostics import Diagnostic
from pipesched.orders.codes import OrdersCode

_PAIR = 2
_RECEIVED = "received but not yet used", "receive each message just before the operation that uses it"
_UNSENT = "made but not yet sent", "send each message right after the operation that makes it"


def check_in_hand(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS906 for the first rank that accumulates messages, in a file that contains instructions."""
    analysis = subject.analysis
    program, found = analysis.own, analysis.buffers
    if program is None or found is None:
        return
    if max(found.received.most) < program.ranks and max(found.unsent.most) <= _PAIR:
        return  # kinds of which a lowering never has too many
    lowered = analysis.having(None).program
    assert lowered is not None
    own = buffers(lowered)
    for hand, least, ahead, what, help in (
        (found.received, own.received.most, program.ranks - 1, *_RECEIVED),
        (found.unsent, [max(_PAIR, most) for most in own.unsent.most], 0, *_UNSENT),
    ):
        for rank in [rank for rank, most in enumerate(hand.most) if most > least[rank] + ahead][:1]:
            yield Diagnostic(
                OrdersCode.BUFFERS,
                f"rank {rank} has {hand.most[rank]} messages {what}; the lowering of this order needs at most "
                f"{least[rank]}, at these costs",
                (label(program, hand.at[rank], f"{hand.most[rank]} are {what}"),),
                ("the peak and --mem-cap do not include message buffers",),
                help,
            )
