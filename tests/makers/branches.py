"""Random models whose stages read any earlier stages, with orders for them, and both as a .ps file."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

from tests.oracles.branches import Model, Slot


def random_model(rng: random.Random) -> Model:
    """Return Up to 7 stages on up to 4 ranks, up to 4 microbatches; every stage but the last has a reader. Some are
    frozen."""
    stages, ranks = rng.randint(1, 7), rng.randint(1, 4)
    rank_of = [rng.randrange(ranks) for _ in range(stages)]
    used = sorted(set(rank_of))
    reads = [{t for t in range(s) if rng.random() < 0.3} for s in range(stages)]
    for s in range(stages - 1):
        if not any(s in read for read in reads):
            reads[rng.randrange(s + 1, stages)].add(s)
    whole = rng.random() < 0.5
    amounts = [Fraction(x) if whole else Fraction(x, 2) for x in range(1, 7)]
    cost = {key: tuple(rng.choice(amounts) for _ in range(stages)) for key in "FIWBM"}
    cost["B"] = tuple(i + w for i, w in zip(cost["I"], cost["W"], strict=True))
    cost["C"] = tuple(rng.choice([Fraction(0), Fraction(0), *amounts]) for _ in range(stages))
    frozen = {s for s in range(stages) if rng.random() < 0.4} if rng.random() < 0.3 else set()
    return Model(
        [used.index(rank) for rank in rank_of],
        [frozenset(read) for read in reads],
        rng.randint(1, 4),
        rng.random() < 0.5,
        cost,
        frozenset(frozen),
    )


def random_orders(model: Model, rng: random.Random) -> list[list[Slot]]:
    """Return the steps in an order in which each comes after its inputs, some neighbours as one slot."""
    orders: list[list[Slot]] = [[] for _ in range(model.ranks)]
    left, done = model.steps(), set()
    while left:
        step = rng.choice([x for x in left if model.inputs(x) <= done])
        left.remove(step)
        done.add(step)
        order = orders[model.rank_of[step[1]]]
        before = order[-1] if order else ()
        overlaps = len(before) == 1 and before[0][0] == "F" and step[0] in "IB" and before[0][2] != step[2]
        if overlaps and rng.random() < 0.3:
            order[-1] = (*before, step)
            continue
        order.append((step,))
    return orders


def text(model: Model, orders: Sequence[Sequence[Slot]], rng: random.Random) -> str:
    """Return the file: readers are written where needed, elsewhere at random, and some stages are read twice."""
    lines = [f"schedule branches(m = {model.microbatches})"]
    for stage, rank in enumerate(model.rank_of):
        read = [*sorted(model.reads[stage]), *([] if model.reads[stage] and rng.random() < 0.7 else [-1])]
        rng.shuffle(read)
        read += rng.sample(read, rng.randint(0, 1))
        plain = model.reads[stage] == ({stage - 1} if stage else set()) and rng.random() < 0.5
        lines.append(f"stage {stage} on rank {rank}" + ("" if plain else f" reads {', '.join(map(str, read))}"))
    lines += [f"frozen {stage}" for stage in sorted(model.frozen)]
    rows = (f"{key} = [{', '.join(str(float(x)) for x in row)}]" for key, row in model.cost.items() if key != "B")
    lines.append(f"costs {', '.join(rows)}")
    for rank, order in enumerate(orders):
        held = [stage for stage, on in enumerate(model.rank_of) if on == rank]
        words = [[f"{letter}[{held.index(stage)}]({i})" for letter, stage, i in slot] for slot in order]
        said = (f"overlap({slot[0]}, {slot[1]})" if len(slot) > 1 else slot[0] for slot in words)
        lines.append(f"rank {rank} {{ {' '.join(said)} }}")
    return "\n".join(lines) + "\n"
