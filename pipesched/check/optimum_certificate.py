"""Entries of a certificate, read by their type.

    {"objective": "makespan", "backward": "split", "schedule": 55, "verdict": "proved optimal",
     "lower_bound": 55, "gap": 0, "refuted": null, "every": null,
     "bound": {"kind": "one-machine", "rank": 0, "head": 0, "work": 48, "tail": 7, "value": 55,
               "operations": [{"op": "F", "route": 0, "stage": 0, "microbatches": [0, 16]}, …]}}

    bound      kind path or one-machine: as above; kind ends: before and after in place of operations; of a span also
               the frame: the rank from whose first start head is counted, and to whose last end tail is
    refuted    null, or {"value": 54, "engine": "cadical", "ranks": [7], "terms": {…}}; engine: who refuted it, `ranks`
               where that was a programme over counts (`optimum_ranks`); ranks null for all together;
               terms: what it is about, as `model.verdict.Terms`; proof: where one was made, {"lrat": text of LRAT,
               packed by xz, in base64} or {"file": NAME, "sha256": of what is in it}: that file lies beside the answer
    every      null, or what makes the schedule one for every m: `optimum_every`

Times are in the user's unit: whole numbers as integers, others as strings like 11/2. Microbatches are counted along
their route and half-open. An entry that is not named here is refused: nobody looks at what it says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pipesched.check.optimum_bound import Bound, Part
from pipesched.check.optimum_paths import Line
from pipesched.model.ops import Op

_NUMBER = re.compile(r"-?\d{1,30}(/[1-9]\d{0,29})?", re.ASCII)
_MOST = 2**60  # ticks


def same(given: object, right: object) -> bool:
    return json.dumps(given, sort_keys=True) == json.dumps(right, sort_keys=True)


class Unreadable(Exception):
    """An entry that is not there, or not what it should be."""


class Entries:
    """Entries of a JSON object. scale: ticks of the unit of time."""

    def __init__(self, entries: Mapping[str, object], scale: int) -> None:
        self.entries, self.scale = entries, scale

    def __contains__(self, name: str) -> bool:
        return self.entries.get(name) is not None

    def part(self, name: str) -> Entries:
        return Entries(self._get(name, Mapping), self.scale)

    def only(self, *names: str) -> Entries:
        """Itself, if it has no entry but these."""
        if unknown := sorted(set(self.entries) - set(names)):
            raise Unreadable(f"nothing is called {unknown[0][:40]!r} there")
        return self

    def different(self, right: Mapping[str, object]) -> list[str]:
        """The entries of `right` that are different here, or missing. As JSON 1, 1.0, true and "1" are different."""
        return [name for name in right if name not in self.entries or not same(self.entries[name], right[name])]

    def text(self, name: str) -> str:
        return str(self._get(name, str))

    def whole(self, name: str) -> int:
        return int(self._get(name, int))

    def wholes(self, name: str) -> list[int]:
        found = self._get(name, list)
        if not all(isinstance(x, int) and not isinstance(x, bool) for x in found):
            raise Unreadable(f"{name} is no list of whole numbers")
        return list(found)

    def table(self, name: str) -> list[list[int]]:
        """Times by rank, in ticks."""
        rows = self._get(name, list)
        if not all(isinstance(row, list) for row in rows):
            raise Unreadable(f"{name} is no table of times")
        return [[Entries({"time": x}, self.scale).ticks("time") for x in row] for row in rows]

    def time(self, name: str) -> Fraction:
        text = str(self._get(name, (int, str)))
        if not _NUMBER.fullmatch(text):
            raise Unreadable(f"{name} is not a number")
        return Fraction(text)

    def ticks(self, name: str) -> int:
        value = self.time(name) * self.scale
        if value.denominator != 1 or abs(value) >= _MOST:
            raise Unreadable(f"{name} is no sum of costs")
        return int(value)

    def bound(self, name: str) -> Bound:
        given, terms = self.part(name), ("kind", "rank", "head", "work", "tail", "value")
        ends = given.text("kind") == "ends"
        given.only(*terms, "frame", *(("before", "after") if ends else ("operations",)))
        head, work, tail, value = map(given.ticks, terms[2:])
        before, after = (given.ticks("before"), given.ticks("after")) if ends else (0, 0)
        parts = [] if ends else given.operations("operations")
        frame = given.whole("frame") if "frame" in given else None
        return Bound(given.text("kind"), given.whole("rank"), head, work, tail, value, before, after, parts, frame)

    def operations(self, name: str) -> list[Part]:
        made: list[Part] = []
        for entry in self._get(name, list):
            one = Entries(entry if isinstance(entry, Mapping) else {}, self.scale)
            one.only("op", "route", "stage", "microbatches")
            op, among = one.text("op"), one.wholes("microbatches")
            if op not in ("F", "I", "W", "B") or len(among) != 2:
                raise Unreadable(f"{name} has an entry that is no range of operations")
            made.append((Line(Op[op], one.whole("route"), one.whole("stage")), among[0], among[1]))
        return made

    def _get(self, name: str, kind: Any) -> Any:
        found = self.entries.get(name)
        if not isinstance(found, kind) or isinstance(found, bool):
            raise Unreadable(f"it has no entry {name!r} that can be read")
        return found
