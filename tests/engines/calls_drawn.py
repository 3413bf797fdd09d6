"""Random sets of calls on engines with collectives and messages, about half of which finish."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.oracles.calls_by_states import Called

Drawn = tuple[list[list[Called]], dict[str, list[int]]]


def drawn(rng: random.Random, *, events: int = 7) -> Drawn:
    """Draw calls in an order in which they end, then move some calls of some ranks: agreement and order may be lost."""
    count = rng.randint(2, 3)
    groups = {"ab"[g]: sorted(rng.sample(range(count), rng.randint(2, count))) for g in range(rng.randint(1, 2))}
    engines = ["compute", "comm", "p2p"][: rng.randint(1, 3)]
    on = {(r, group): rng.choice(engines) for r in range(count) for group in groups}
    ranks: list[list[Called]] = [[] for _ in range(count)]
    for number in range(rng.randint(2, events)):
        what, name = rng.random(), f"x{number}"
        if what < 0.4:
            group = rng.choice(sorted(groups))
            for r in groups[group]:
                ranks[r].append(Called(name, on[r, group], group, "", -1, needed(rng, ranks[r])))
        elif what < 0.75:
            a, b = rng.sample(range(count), 2)
            over = rng.choice(["", "", *(group for group in sorted(groups) if {a, b} <= {*groups[group]})])
            ranks[a].append(Called(name, rng.choice(engines), over, ">", b, needed(rng, ranks[a])))
            ranks[b].append(Called(name, rng.choice(engines), over, "<", a, needed(rng, ranks[b])))
        else:
            r = rng.randrange(count)
            ranks[r].append(Called(name, rng.choice(engines), "", "", -1, needed(rng, ranks[r])))
    for _ in range(rng.choice([0, 1, 1, 2])):
        row = rng.choice(ranks)
        if len(row) > 1:
            row.insert(rng.randrange(len(row)), row.pop(rng.randrange(len(row))))
    return [batched(rng, row) for row in ranks], groups


def batched(rng: random.Random, row: list[Called]) -> list[Called]:
    """Post some neighbouring messages of an engine in one batch; none of it waits for another."""
    for k in range(1, len(row)):
        head = next(j for j in range(k - 1, -1, -1) if not row[j].joined)
        keys = {x.key for x in row[head : k + 1]}
        alike = row[k - 1].way and row[k].way and row[k - 1].engine == row[k].engine
        if alike and rng.random() < 0.5 and not any(keys & {*x.needs} for x in row[head : k + 1]):
            row[k] = row[k]._replace(joined=True)
    return row


def needed(rng: random.Random, row: Sequence[Called]) -> tuple[str, ...]:
    """Return at most one earlier call of the rank to wait for."""
    return (rng.choice(row).key,) if row and rng.random() < 0.4 else ()
