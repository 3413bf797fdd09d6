"""Measures on generated incidents how often the first rank that the incident desk names is the rank that failed first.

python -m tests.interop.incidents_at_length 200        the count, and optionally the first seed
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import pipesched
from tests.makers.incident_dumps import write
from tests.oracles.incidents import CAUSES, incident


def count(seeds: range) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Return the number of incidents with the right rank first, by cause and kind of call, and the others in words.

    All causes are played in turn.
    """
    right, wrong = Counter[tuple[str, str]](), list[str]()
    for seed in seeds:
        made = incident(seed, CAUSES[seed % len(CAUSES)], ("pipeline", "collective")[seed // len(CAUSES) % 2])
        with tempfile.TemporaryDirectory() as folder:
            write(made, Path(folder))
            first = pipesched.verify(recorded=folder).to_json()["incident"]["first"]  # type: ignore[index]
        right[made.cause, made.on] += first == made.rank
        if first != made.rank:
            wrong.append(f"seed {seed}: {made.cause} of a {made.on} call, {made.sizes}: rank {made.rank}, not {first}")
    return right, wrong


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[1:]] or [200]
    begin = asked[1] if len(asked) > 1 else 0
    found, missed = count(range(begin, begin + asked[0]))
    print(*missed, *(f"{cause} {on}: {times}" for (cause, on), times in sorted(found.items())), sep="\n")
    print(f"{found.total()} of {asked[0]}")
