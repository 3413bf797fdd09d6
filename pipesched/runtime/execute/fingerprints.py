"""Checks before step 1 that all ranks run the same stream.

If ranks run different valid files, they silently train wrongly or hang, and no transport notices. Before step 1 all
ranks therefore exchange the fingerprint of their stream, a digest of the placement and the instructions of *all* ranks:
with equal fingerprints they run the same program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch.distributed as dist

from pipesched.runtime.execute.errors import STREAMS_DIFFER, Fault, Place, RunError, fields, printable, table
from pipesched.runtime.execute.exchange import everybody
from pipesched.stream import Stream


@dataclass(frozen=True, slots=True)
class Card:
    """The identity of a rank's stream. note: other data exchanged at the same time."""

    fingerprint: str
    title: str
    note: Mapping[str, object]

    @classmethod
    def of(cls, rank: int, data: object) -> Card:
        """Read the card of a rank. The result is safe to print.

        Raises:
            RunError: PS821 if the data are not a card.
        """
        try:
            fingerprint, title, note = fields(data, "fingerprint", "title", "note")
            return cls(printable(fingerprint), printable(title), table(note))
        except (TypeError, KeyError, ValueError):
            message = f"rank {rank} sent a description of its stream that cannot be read"
            raise RunError(
                Fault(STREAMS_DIFFER, message, Place(rank), help="run the same version of pipesched on every rank")
            ) from None


def agree(
    stream: Stream, group: dist.ProcessGroup | None = None, note: Mapping[str, object] | None = None
) -> list[Card]:
    """Exchange and return the cards of all ranks, ordered by rank in the group. This is a collective of the whole
    group.

    note: a JSON object to send in the card.

    Raises:
        RunError: PS821 on every rank, which names the ranks whose stream differs.
    """
    sizes = " ".join(f"{name}={value}" for name, value in stream.parameters.items())
    mine = {"fingerprint": stream.fingerprint, "title": f"{stream.name} {sizes}".strip(), "note": note or {}}
    cards = [Card.of(rank, data) for rank, data in enumerate(everybody(mine, group))]
    fault = disagreement(cards)
    if fault is not None:
        raise RunError(fault)
    return cards


def disagreement(cards: Sequence[Card]) -> Fault | None:
    """Return a fault that names the ranks whose stream differs from the most common one, or None. In a tie, the stream
    of the lowest rank wins.
    """
    counted = Counter(card.fingerprint for card in cards)
    if len(counted) <= 1:
        return None
    most = counted.most_common(1)[0][0]
    others = [rank for rank, card in enumerate(cards) if card.fingerprint != most]
    notes = tuple(f"rank {rank}: {card.title}, fingerprint {card.fingerprint[:16]}" for rank, card in enumerate(cards))
    return Fault(
        STREAMS_DIFFER,
        f"{ranks_text(others)} {'run' if len(others) > 1 else 'runs'} a different stream than the other ranks",
        Place(others[0]),
        notes,
        "give every rank the same file",
    )


def ranks_text(ranks: Sequence[int]) -> str:
    """Name ranks in words: ``rank 2``, ``ranks 0, 1 and 5``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
