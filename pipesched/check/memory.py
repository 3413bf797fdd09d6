"""No rank holds more activations than its cap, or more messages than its order requires.

    rank 0    F0 SEND_F0  F1 SEND_F1  F2 SEND_F2  …
    rank 1    RECV_F0 RECV_F1 RECV_F2 …  F0 B0  F1 B1  F2 B2        all m activations arrive before the first is used

The lowering of the same order sends a value when it is made and receives it when it is sent, so it shows how many
messages have to wait. Received but not yet used: torch's lowering, which takes the ranks in turn without a clock, has
up to ranks - 1 more than ours (measured on its schedule classes, 2 to 8 ranks), so that much is allowed. Made but not
yet sent: an overlap pair makes two at one time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from pipesched.analysis.holdings import Memory, buffers
from pipesched.check.checks import Subject
from pipesched.check.findings import label, limited, notes
from pipesched.check.rows import CheckCode
from pipesched.diagnostics import Diagnostic, Label
from pipesched.model.numbers import shown
from pipesched.model.schedule import Schedule

LISTED = 12
RANKS = 3
_PAIR = 2
_RECEIVED = "received and not yet used", "receive each message just before the operation that uses it"
_UNSENT = "made and not yet sent", "send each message right after the operation that makes it"


def check_memory(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS501 for the ranks that exceed their caps by most; caps in the unit of `analysis.holdings`."""
    memory, caps = subject.analysis.memory, subject.caps
    for rank, more in furthest(memory.peak, caps):
        first, top, most = memory.first_over(rank, caps[rank]), memory.peak_at[rank], shown(memory.peak[rank])
        live = memory.live(top)
        yield Diagnostic(
            CheckCode.OVER_CAP,
            f"rank {rank} holds {most} activations; its cap is {shown(caps[rank])}",
            places(memory.schedule, first, top, f"{shown(memory.at(first))} are held", f"{most} are held"),
            notes(
                f"held at the peak (stage.microbatch): {listed(live)}",
                _uneven(memory, live),
                f"release rule {memory.release.name}",
                more,
            ),
            "run a backward before the next forward, or raise the cap",
        )


def furthest(peaks: Sequence[Fraction | int], caps: Sequence[Fraction]) -> Iterator[tuple[int, str]]:
    """Yield the ranks that exceed their caps by most; of equal ones the first."""
    over = [peak - cap for peak, cap in zip(peaks, caps, strict=True)]
    return limited(sorted((rank for rank, more in enumerate(over) if more > 0), key=lambda rank: -over[rank]), RANKS)


def places(schedule: Schedule, first: int, top: int, held: str, most: str) -> tuple[Label, ...]:
    """Return labels where a rank first exceeds its cap, and where it holds most, with the live activations."""
    said = f"{schedule[first]} is the first over the cap, {held}"
    if first == top:
        return (label(schedule, first, f"{said}, which is the peak"),)
    return label(schedule, first, said), label(schedule, top, f"the peak: {most}")


def listed(live: Sequence[tuple[int, int]]) -> str:
    others = f" and {len(live) - LISTED} more" if len(live) > LISTED else ""
    return " ".join(f"{stage}.{microbatch}" for stage, microbatch in live[:LISTED]) + others


def _uneven(memory: Memory, live: Sequence[tuple[int, int]]) -> str:
    """Return a note on every stage whose M is not 1, per microbatch if M differs between microbatches."""
    if memory.sizes.even:
        sizes = {f"on stage {stage}": memory.sizes.at(stage, 0) for stage in sorted({stage for stage, _ in live})}
    else:
        sizes = {f"of {stage}.{microbatch}": memory.sizes.at(stage, microbatch) for stage, microbatch in live}
    uneven = [f"{shown(size)} {where}" for where, size in sizes.items() if size != 1]
    others = " and others" if len(uneven) > LISTED else ""
    return f"M, what one F holds: {', '.join(uneven[:LISTED])}{others}" if uneven else ""


def check_buffers(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS906 for the first rank that accumulates messages, in a file with instructions."""
    analysis = subject.analysis
    program, found = analysis.own, analysis.buffers
    if program is None or found is None:
        return
    if max(found.received.most) < program.ranks and max(found.unsent.most) <= _PAIR:
        return  # which no lowering makes too many
    lowered = analysis.having(None).program
    assert lowered is not None
    own = buffers(lowered)
    for hand, least, ahead, what, help in (
        (found.received, own.received.most, program.ranks - 1, *_RECEIVED),
        (found.unsent, [max(_PAIR, most) for most in own.unsent.most], 0, *_UNSENT),
    ):
        for rank in [rank for rank, most in enumerate(hand.most) if most > least[rank] + ahead][:1]:
            yield Diagnostic(
                CheckCode.BUFFERS,
                f"rank {rank} has {hand.most[rank]} messages {what}; "
                f"the lowering of this order has at most {least[rank]} there, at these costs",
                (label(program, hand.at[rank], f"{hand.most[rank]} are {what}"),),
                ("their buffers come on top of the peak, and --mem-cap does not count them",),
                help,
            )
