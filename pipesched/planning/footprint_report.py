"""The section of a report about memory in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from pipesched.examine import Examination
from pipesched.planning.byte_counts import gigabytes
from pipesched.planning.footprint import RESERVE, Footprint, footprint
from pipesched.planning.workload import byte_caps
from pipesched.report.parts import Part
from pipesched.views.tables import table

_ROWS = 17  # most rows printed of a table by rank


def in_bytes(made: Examination) -> InBytes | None:
    """Return the memory of a schedule in bytes, with its caps.

    Raises:
        PipeschedError: PS225 if caps in bytes are given without a model, or not one cap per rank; PS235.
    """
    caps, used = byte_caps(made.analysis), made.analysis.fact(footprint)
    return None if used is None else InBytes.of(used, caps)


@dataclass(frozen=True)
class InBytes(Part):
    """Peak memory of every rank for a transformer, in bytes.

    model: the transformer's name. ranks: for each rank, the bytes by kind at its peak. at: each rank's operation at the
    peak, empty for a rank without operations. cap: the cap of each rank, or None. assumed: the assumptions behind the
    figures, as text. host: each rank's peak in host memory, if activations are offloaded.
    """

    key = "bytes"
    kept = "in bytes, it keeps the input of its stage"

    model: str
    ranks: tuple[Mapping[str, int], ...]
    at: tuple[str, ...]
    cap: tuple[Fraction, ...] | None
    assumed: tuple[str, ...] = ()
    host: tuple[int, ...] | None = None

    @classmethod
    def of(cls, used: Footprint, cap: tuple[Fraction, ...] | None) -> InBytes:
        """Return the report on a footprint; cap: the cap of each rank, or None."""
        at = tuple(str(used.schedule[index]) if index >= 0 else "" for index in used.peak_at)
        return cls(used.trained[0].name, used.peaks, at, cap, used.assumed, used.host)

    @property
    def total(self) -> tuple[int, ...]:
        """The peak bytes of each rank."""
        return tuple(sum(kinds.values()) for kinds in self.ranks)

    def short(self) -> list[str]:
        """Return the largest peak of any rank, as text."""
        return [gigabytes(max(self.total))]

    def lines(self) -> list[str]:
        """Return the largest peak with its cap, and a table of the ranks; if there are many, of the first, the last and
        the fullest ranks.
        """
        total = self.total
        top = total.index(max(total))
        limit = gigabytes(self.cap[top]) if self.cap else "none"
        rows = self._rows()
        if len(rows) > _ROWS:
            kept = sorted({*range(1, 4), top + 1, *range(len(rows) - 3, len(rows))})
            rows = [rows[0], *(rows[i] for i in kept)]
        lines = table(rows[0], rows[1:], left=()).split("\n")
        head = f"{self.model}: {gigabytes(total[top])} of cap {limit}, on rank {top}"
        if self.host is not None:
            most = max(self.host)
            lines.append(f"host memory: {gigabytes(most)}, on rank {self.host.index(most)}")
        return [head, *lines]

    def _rows(self) -> list[list[str]]:
        """Return the column headings, and a row per rank: bytes by kind, without kinds that are 0 everywhere."""
        cap = self.cap or (None,) * len(self.ranks)
        kinds = [kind for kind in self.ranks[0] if any(rank[kind] for rank in self.ranks)]
        rows = [["rank", *kinds, "total", *(["cap", "free"] if self.cap else []), "at"]]
        for rank, (sizes, most, own, at) in enumerate(zip(self.ranks, self.total, cap, self.at, strict=True)):
            free = [] if own is None else [gigabytes(own), gigabytes(own - most)]
            rows.append([str(rank), *(gigabytes(sizes[kind]) for kind in kinds), gigabytes(most), *free, at])
        return rows

    def to_json(self) -> dict[str, object]:
        """Return the whole bytes by rank as JSON; `room`, the free bytes, is negative above the cap."""
        cap = self.cap or (None,) * len(self.ranks)
        ranks = [
            {
                **{
                    kind.replace(" ", "_"): size
                    for kind, size in sizes.items()
                    if size or kind not in (RESERVE, "versions")
                },
                "total": most,
                "cap": None if own is None else int(own),
                "room": None if own is None else int(own) - most,
                "at": at or None,
            }
            for sizes, most, own, at in zip(self.ranks, self.total, cap, self.at, strict=True)
        ]
        host = {} if self.host is None else {"host": list(self.host)}
        return {"model": self.model, "ranks": ranks, **host, "assumed": list(self.assumed)}
