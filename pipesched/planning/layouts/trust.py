"""How far a predicted time is to be trusted: what predictions of its class missed, each source left out of the fit.

The classes are those of constants.toml: dense models, sequences above 16,384 tokens, ZeRO 3 on A100 over nodes, and
experts. A class that misses by more than 30 % in one run of ten has no time; the row says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from pipesched.planning.layouts.space import Choice
from pipesched.planning.layouts.stages import Problem

LIMIT = 0.30
LONG = 16_384
_NAMES = {
    "dense": "dense models",
    "long": "sequences above 16,384 tokens",
    "zero3_a100": "ZeRO 3 over nodes of A100",
    "experts": "models with experts",
}


@dataclass(frozen=True)
class Trust:
    """The error bar of a time in per cent, None if nothing is known of it. why: the runs behind it, or why there is no
    time. timed: whether a time is said at all.
    """

    percent: int | None
    why: str
    timed: bool = True


def trust(problem: Problem, choice: Choice) -> Trust:
    """Return the error bar of the time of a choice."""
    if problem.on is None:
        return Trust(None, "")
    kind = _kind(problem, choice)
    row = problem.on.constants.errors.get(kind)
    if row is None:
        return Trust(None, "")
    nine, runs = row["most_of_them"], int(row["runs"])
    if nine > LIMIT:
        missed = f"{runs} published runs are missed by {row['median']:.0%} in the median, {row['worst']:.0%} at worst"
        return Trust(None, f"no times for {_NAMES[kind]}: {missed}; rows stand in the predicted order", False)
    behind = f"{_NAMES[kind]}: 9 of 10 of {runs} published runs, each source left out of the fit in turn"
    return Trust(ceil(100 * nine), behind)


def _kind(problem: Problem, choice: Choice) -> str:
    if problem.space.transformer.experts is not None:
        return "experts"
    wide = problem.space.gpus > problem.device.node_size
    if choice.training.zero == 3 and problem.device.gemm == "gemm_a100" and wide:
        return "zero3_a100"
    return "long" if problem.space.transformer.sequence > LONG else "dense"
