"""An interpreter of orders with STEPs inside that keeps real versions of the weights, as objects in a graph.

A list of a rank has ("F" | "I" | "B" | "W", stage, microbatch) and ("STEP", stage). Nothing here is derived in
advance: an operation takes the object that its rule names, a gradient remembers the objects that its operations took,
and the versions alive are the distinct objects that something still needs, counted after each operation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

Item = tuple[str, int, int] | tuple[str, int]


class Weights:
    """One version of the weights of a stage."""


@dataclass
class Copy:
    """A stage of a rank: its versions so far, the graphs of microbatches, and gradients that no STEP took."""

    made: list[Weights] = field(default_factory=lambda: [Weights()])
    graphs: dict[int, Weights] = field(default_factory=dict)
    crossing: dict[int, int] = field(default_factory=dict)
    half: dict[int, Weights] = field(default_factory=dict)
    pending: list[tuple[int, Weights]] = field(default_factory=list)
    batches: list[list[int]] = field(default_factory=list)


@dataclass
class Played:
    """The observations. wrong: the kinds of mistakes. read: by (letter, stage, microbatch) the number of the version.

    alive, stale, crossed: by rank, the most of one stage. batches: by stage, the microbatches of each STEP.
    """

    wrong: set[str] = field(default_factory=set)
    read: dict[tuple[str, int, int], int] = field(default_factory=dict)
    alive: list[int] = field(default_factory=list)
    stale: list[int] = field(default_factory=list)
    crossed: list[int] = field(default_factory=list)
    batches: dict[int, list[list[int]]] = field(default_factory=dict)


def play(lists: list[list[Item]], rule: str) -> Played:
    """Play all lists. rule: ``stash``, ``latest``, ``delay 2``, or "" where the file names none."""
    played = Played()
    of = {s: t for ops in lists for s, t in _batches(ops).items()}
    for ops in lists:
        _rank(ops, rule, of, played)
    if len({tuple(tuple(sorted(batch)) for batch in taken) for taken in played.batches.values()}) > 1:
        played.wrong.add("batches")
    return played


def _batches(ops: list[Item]) -> dict[int, dict[int, int]]:
    """Return, by stage, the number of the STEP that takes each microbatch: read ahead, as `delay` needs it."""
    taken: dict[int, dict[int, int]] = {}
    steps: Counter[int] = Counter()
    for item in ops:
        if item[0] == "STEP":
            steps[item[1]] += 1
        elif item[0] in "WB":
            taken.setdefault(item[1], {})[item[2]] = steps[item[1]]
    return taken


def _rank(ops: list[Item], rule: str, batch: dict[int, dict[int, int]], played: Played) -> None:
    stages = {item[1]: Copy() for item in ops}
    forwards = {s: [x[2] for x in ops if x[0] == "F" and x[1] == s] for s in stages}
    most, stale, crossed = 1, 0, 0

    def wanted(s: int, i: int) -> int:
        return max(0, batch[s][i] - int(rule.split()[1])) if rule.startswith("delay") else len(stages[s].made) - 1

    for item in ops:
        s, here = item[1], stages[item[1]]
        newest = here.made[-1]
        if item[0] == "STEP":
            if not here.pending:
                played.wrong.add("nothing")
            for _, weights in here.pending:
                stale = max(stale, len(here.made) - 1 - here.made.index(weights))
            here.batches.append([i for i, _ in here.pending])
            here.pending = []
            here.made.append(Weights())
        elif item[0] == "F":
            i = item[2]
            forwards[s].remove(i)
            number = wanted(s, i)
            if number >= len(here.made):
                played.wrong.add("early")
                number = len(here.made) - 1
            here.graphs[i], here.crossing[i] = here.made[number], len(here.made)
            played.read["F", s, i] = number
        elif item[0] in "IB":
            i = item[2]
            weights = newest if rule == "latest" else here.graphs[i]
            played.read[item[0], s, i] = here.made.index(weights)
            between = len(here.made) - here.crossing[i]
            crossed = max(crossed, between)
            if between and not rule:
                played.wrong.add("crossed")
            if item[0] == "B":
                here.pending.append((i, weights))
                del here.graphs[i]
            else:
                here.half[i] = weights
        else:
            here.pending.append((item[2], here.half.pop(item[2])))
            del here.graphs[item[2]]
        for stage, copy in stages.items():
            need = {id(copy.made[-1])}
            if rule != "latest":
                need |= {id(x) for x in copy.graphs.values()}
            if rule.startswith("delay"):
                need |= {id(copy.made[n]) for i in forwards[stage] if (n := wanted(stage, i)) < len(copy.made)}
            most = max(most, len(need))
    if any(copy.pending for copy in stages.values()):
        played.wrong.add("left")
    played.batches |= {s: copy.batches for s, copy in stages.items()}
    for row, value in ((played.alive, most), (played.stale, stale), (played.crossed, crossed)):
        row.append(value)
