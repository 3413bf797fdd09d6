"""Runs every schedule class of torch at a grid of sizes in one process, and prints the orders and three errors as
JSON.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

package = types.ModuleType("pipesched")  # of which a recorder needs its folder alone
package.__path__ = [str(Path(__file__).parents[2] / "pipesched")]
sys.modules["pipesched"] = package

from pipesched.interop.frameworks import torch_schedule  # noqa: E402
from pipesched.interop.frameworks.recording import Unknown  # noqa: E402

SINGLE, PAIR = ("GPipe", "1F1B"), ("ZBVZeroBubble", "DualPipeV")
MANY = ("LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble")


def cases(deep: int, flags: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, p, times in product((*SINGLE, *PAIR, *MANY), (2, 3, 4)[: 1 + deep], (2, 4)[:deep]):
        for v, flag in product((1,) if name in SINGLE else (2,) if name in PAIR else (1, 2, 3)[: 1 + deep], flags):
            if name not in SINGLE or not flag or "lowered" in flag:
                yield name, {"p": p, "v": v, "m": times * p, **flag}


if __name__ == "__main__":
    made = []
    for name, options in cases(int(sys.argv[1]), json.loads(sys.argv[2])):
        try:
            found = torch_schedule.record(name, {**options, "max-ops": 10**6})
        except Unknown:  # an option of a later release
            continue
        made.append([name, options, found.rows, found.places, found.version])
    refused = []
    for name, options in (("Interleave", {"p": 2, "m": 2}), ("1F1B", {"p": 4, "m": 2}), ("1F1B", {"p": 4})):
        try:
            torch_schedule.record(name, {**options, "max-ops": 10**6})
        except Exception as error:
            refused.append(f"{type(error).__name__}: {error}")
    json.dump([made, refused], sys.stdout)
