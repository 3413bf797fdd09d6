"""Reads the entries of a certificate and checks their types.

    {"objective": "makespan", "backward": "split", "schedule": 55, "verdict": "proved optimal",
     "lower_bound": 55, "gap": 0, "refuted": null, "every": null,
     "bound": {"rank": 0, "head": 0, "work": 48, "tail": 7, "value": 55}}

    bound      the work of a rank's operations between a head and a tail (`work`), or null; for the span also the
               frame: the rank from whose first start the head is counted, and to whose last end the tail is counted
    refuted    null, or {"value": 54, "engine": "cadical", "ranks": [7], "terms": {…}}; engine: the name of the engine,
               or `ranks` for dynamic programming over counts (`ranks`); ranks: null for all ranks together;
               terms: as `verdict.Terms.to_json`; grid: the time to whose multiples all costs were rounded down, if they
               were; proof: if one was made, {"lrat": text of LRAT, packed by xz, in base64}
    every      null, or the data that extend the schedule to every m (`every`):
               {"microbatches": m0, "step": K, "value": 27, "growth": "3/2", "seam": 30, "starts": [[0, 1, …], …],
                "bound": {…}, "proof": …}; growth: increase of the objective per microbatch, so P = K growth; starts:
               of each rank's operations at m0; bound, proof: if the value at m0 is optimal, one of them shows it

Times are in the user's unit: integers, or strings like 11/2.
"""

from __future__ import annotations

import lzma
import re
from base64 import b64decode
from collections.abc import Mapping
from fractions import Fraction
from typing import TypeVar

Kind = TypeVar("Kind")

_NUMBER = re.compile(r"-?\d{1,30}(/[1-9]\d{0,29})?", re.ASCII)
_MOST = 2**60  # most ticks of a time
_MOST_TEXT = 32_000_000  # most bytes of a proof; the largest in tests/bench/proofs.py has 24 million
_MEMORY = 200_000_000


class Unreadable(Exception):
    """Raised if an entry is missing, or has the wrong type or value."""


class Entries:
    """The entries of a JSON object, with typed access. scale: the number of ticks per unit of time."""

    def __init__(self, entries: Mapping[str, object], scale: int) -> None:
        self.entries, self.scale = entries, scale

    def __contains__(self, name: str) -> bool:
        return self.entries.get(name) is not None

    def only(self, *names: str) -> Entries:
        """Return self; raise Unreadable if there are entries with other names, which no check would read."""
        if unknown := sorted(set(self.entries) - set(names)):
            raise Unreadable(f"answers of this version have no entry {unknown[0][:40]!r} there")
        return self

    def part(self, name: str) -> Entries:
        return Entries(self._get(name, dict), self.scale)

    def text(self, name: str) -> str:
        return self._get(name, str)

    def whole(self, name: str) -> int:
        return self._get(name, int)

    def time(self, name: str) -> Fraction:
        text = str(self._get(name, int, str))
        if not _NUMBER.fullmatch(text):
            raise Unreadable(f"{name} is not a number")
        return Fraction(text)

    def ticks(self, name: str) -> int:
        return self._ticks(name, self.time(name))

    def table(self, name: str) -> list[list[int]]:
        """Return the times in each row of a table, in ticks."""
        rows = self._get(name, list)
        if not all(isinstance(row, list) for row in rows):
            raise Unreadable(f"{name} is not a table of times")
        return [[Entries({name: x}, self.scale).ticks(name) for x in row] for row in rows]

    def ranks(self) -> list[int]:
        return self._get("ranks", list)

    def period(self) -> int:
        """Return the duration of one repetition of the kernel, in ticks."""
        return self._ticks("growth", self.time("growth") * self.whole("step"))

    def proof(self) -> bytes:
        """Return the text of the LRAT proof, unpacked."""
        try:
            return unpacked(b64decode(self.part("proof").only("lrat").text("lrat"), validate=True))
        except ValueError:
            raise Unreadable("its proof is not xz-compressed LRAT text, or is too long") from None

    def _ticks(self, name: str, time: Fraction) -> int:
        value = time * self.scale
        if value.denominator != 1 or abs(value) >= _MOST:
            raise Unreadable(f"{name} is not a sum of costs")
        return int(value)

    def _get(self, name: str, *kinds: type[Kind]) -> Kind:
        found = self.entries.get(name)
        if not isinstance(found, kinds) or isinstance(found, bool):
            raise Unreadable(f"it has no entry {name!r} of the right type")
        return found


def unpacked(packed: bytes) -> bytes:
    """Unpack the text of an xz file.

    Raises:
        ValueError: it is not an xz file, or the text exceeds the limit.
    """
    reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
    try:
        text = reader.decompress(packed, _MOST_TEXT + 1)
    except (lzma.LZMAError, EOFError):
        raise ValueError from None
    if not reader.eof or len(text) > _MOST_TEXT:
        raise ValueError
    return text
