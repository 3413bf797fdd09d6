"""Finds the best schedule of a tiny instance by trying all schedules.

Every schedule is written down operation by operation: one whose inputs are there goes next on its rank, as soon as it
can. Among states with the same finished operations, only those that no other is ahead of are kept. For the span a late
begin of a rank may be better, so until every rank has begun, only duplicates are dropped. Microbatches need not keep
their order, so the FIFO lemma is not assumed. Shares no code with the optimizer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True)
class Instance:
    """rank_of[route][stage]; route_of[microbatch]; costs by stage, B unless split; memory in parts, by stage.

    frozen: the stages without W; if all stages before one are frozen too, it has no backward, and holds memory only in
    F.
    """

    rank_of: list[list[int]]
    route_of: list[int]
    ranks: int
    fused: bool
    F: list[int]
    I: list[int]
    W: list[int]
    B: list[int]
    C: list[int]
    takes: list[int]
    at_input: list[int]
    at_weight: list[int]
    cap: list[int]
    objective: str = "makespan"
    frozen: tuple[int, ...] = ()

    @property
    def alone(self) -> int:
        """The number of stages without a backward: the frozen ones at the beginning."""
        return next((s for s in range(self.stages) if s not in self.frozen), self.stages)

    @property
    def stages(self) -> int:
        return len(self.F)


@dataclass(frozen=True)
class Step:
    """An operation: its rank, its time, its inputs with the latency of their messages, memory at start and end."""

    name: tuple[str, int, int]
    rank: int
    work: int
    needs: tuple[str, int, int] | None
    message: int
    start: int
    end: int


def steps(x: Instance) -> list[Step]:
    """Return every operation of an instance, after its inputs."""
    made = []
    for i, route in enumerate(x.route_of):
        where, last = x.rank_of[route], x.stages - 1
        for s in range(x.stages):
            sent = x.C[s - 1] if s and where[s - 1] != where[s] else 0
            freed = -x.takes[s] if s < x.alone else 0
            made.append(Step(("F", s, i), where[s], x.F[s], ("F", s - 1, i) if s else None, sent, x.takes[s], freed))
        back = "B" if x.fused else "I"
        for s in reversed(range(x.alone, x.stages)):
            needs = (back, s + 1, i) if s < last else ("F", s, i)
            sent = x.C[s + 1] if s < last and where[s + 1] != where[s] else 0
            freed = x.takes[s] if x.fused or s in x.frozen else x.at_input[s]
            made.append(Step((back, s, i), where[s], (x.B if x.fused else x.I)[s], needs, sent, 0, -freed))
            if not x.fused and s not in x.frozen:
                made.append(Step(("W", s, i), where[s], x.W[s], ("I", s, i), 0, 0, -x.at_weight[s]))
    return made


@dataclass
class _Search:
    instance: Instance
    fifo: bool
    all: list[Step] = field(init=False)
    followers: dict[int, list[int]] = field(init=False)
    needs: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.all = steps(self.instance)
        number = {step.name: n for n, step in enumerate(self.all)}
        self.needs = [number[step.needs] if step.needs else -1 for step in self.all]
        self.followers = {n: [] for n in range(len(self.all))}
        for n, before in enumerate(self.needs):
            if before >= 0:
                self.followers[before].append(n)
        routes = self.instance.route_of
        self.older = [
            number.get((k, s, max((j for j in range(i) if routes[j] == routes[i]), default=-1)), -1)
            for k, s, i in number
        ]

    def ready(self, done: int, held: list[int]) -> Iterator[int]:
        for n, step in enumerate(self.all):
            before = self.needs[n]
            if done >> n & 1 or (before >= 0 and not done >> before & 1):
                continue
            if self.fifo and self.older[n] >= 0 and not done >> self.older[n] & 1:
                continue
            here = held[step.rank] + step.start
            if max(here, here + step.end) <= self.instance.cap[step.rank]:
                yield n

    def held(self, done: int) -> list[int]:
        made = [0] * self.instance.ranks
        for n, step in enumerate(self.all):
            if done >> n & 1:
                made[step.rank] += step.start + step.end
        return made

    def best(self) -> int | None:
        """Return the layer by layer: for every set of done operations the clocks of ranks, pending ends, first
        starts."""
        ranks = self.instance.ranks
        layer: dict[int, list[tuple[tuple[int, ...], dict[int, int], tuple[int, ...]]]] = {
            0: [((0,) * ranks, {}, (-1,) * ranks)]
        }
        for _ in self.all:
            following: dict[int, list[tuple[tuple[int, ...], dict[int, int], tuple[int, ...]]]] = {}
            for done, states in layer.items():
                for n in self.ready(done, self.held(done)):
                    kept = following.setdefault(done | 1 << n, [])
                    ahead = self.begun(done | 1 << n)
                    for state in states:
                        _keep(kept, self.after(done, n, *state), ahead=ahead)
            layer = following
        finals = [state for states in layer.values() for state in states]
        return min((self.value(clock, first) for clock, _, first in finals), default=None)

    def begun(self, done: int) -> bool:
        """Return True if a state that is ahead stays ahead."""
        ranks = {step.rank for n, step in enumerate(self.all) if done >> n & 1}
        return self.instance.objective == "makespan" or ranks == {step.rank for step in self.all}

    def after(
        self, done: int, n: int, clock: tuple[int, ...], ends: dict[int, int], first: tuple[int, ...]
    ) -> tuple[tuple[int, ...], dict[int, int], tuple[int, ...]]:
        step, before = self.all[n], self.needs[n]
        start = max(clock[step.rank], ends[before] + step.message if before >= 0 else 0)
        end = start + step.work
        now = done | 1 << n
        open_ends = {k: t for k, t in {**ends, n: end}.items() if any(not now >> f & 1 for f in self.followers[k])}
        began = first[step.rank] if first[step.rank] >= 0 else start
        return _put(clock, step.rank, end), open_ends, _put(first, step.rank, began)

    def value(self, clock: tuple[int, ...], first: tuple[int, ...]) -> int:
        if self.instance.objective == "makespan":
            return max(clock)
        return max(end - max(start, 0) for end, start in zip(clock, first, strict=True))


def _put(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _keep(
    kept: list[tuple[tuple[int, ...], dict[int, int], tuple[int, ...]]],
    new: tuple[tuple[int, ...], dict[int, int], tuple[int, ...]],
    *,
    ahead: bool,
) -> None:
    """Add a state unless another one is nowhere later; an earlier first start counts as later."""
    flat = _flat(new)
    if not ahead:
        kept += [] if new in kept else [new]
    elif not any(all(a <= b for a, b in zip(_flat(old), flat, strict=True)) for old in kept):
        kept[:] = [old for old in kept if not all(a <= b for a, b in zip(flat, _flat(old), strict=True))] + [new]


def _flat(state: tuple[tuple[int, ...], dict[int, int], tuple[int, ...]]) -> list[int]:
    clock, ends, first = state
    return [*clock, *(ends[k] for k in sorted(ends)), *(-x for x in first)]


def optimum(instance: Instance, *, fifo: bool = False) -> int | None:
    """Return the least objective, None if no schedule is within the caps. fifo: microbatches of a route in order."""
    return _Search(instance, fifo).best()


SHARES = (
    (Fraction(0), Fraction(1)),
    (Fraction(1), Fraction(0)),
    (Fraction(1, 3), Fraction(2, 3)),
    (Fraction(-3, 5), Fraction(8, 5)),
)
"""The memory that I and W free of what F took: the rules W, I, split:2/3 and torch."""


def random_instance(seed: int, *, ranks: int = 2, microbatches: int = 3, chunks: int = 2) -> Instance:
    """Return any placement, fused and split, all release rules, costs and memory by stage, zeros, and caps from tight
    up."""
    rng = random.Random(seed)
    p, m = rng.randint(1, ranks), rng.randint(1, microbatches)
    line = list(range(p))
    shape = rng.choice(("linear", "loop", "vee", "two", "any"))
    first = {"linear": line, "two": line, "loop": line * 2, "vee": line + line[::-1]}.get(shape, [])
    if chunks < 2 and shape in ("loop", "vee"):
        first = line
    first = first or [rng.randrange(p) for _ in range(rng.randint(1, p * chunks))]
    tables = [first, [p - 1 - r for r in first]] if shape == "two" else [first]
    routes = [rng.randrange(len(tables)) for _ in range(m)]
    stages, uneven, zeros = len(first), rng.random() < 0.5, rng.random() < 0.2

    def costs(low: int, high: int) -> list[int]:
        one = rng.randint(low, high)
        return [rng.randint(low, high) if uneven else one for _ in range(stages)]

    at_input, at_weight = rng.choice(SHARES)
    takes = [15 * (rng.randint(1, 2) if uneven and rng.random() < 0.4 else 1) for _ in range(stages)]
    room = max(sum(takes[s] for s in range(stages) if table[s] == r) for table in tables for r in table)
    cap = [rng.randint(room // 2, 2 * room + 15 * (m - 1)) for _ in range(p)]
    if rng.random() < 0.3:
        cap = [cap[0]] * p
    inner, weight = costs(0 if zeros else 1, 3), costs(0 if zeros else 1, 3)
    return Instance(
        tables, routes, p, rng.random() < 0.3, costs(1, 3), inner, weight,
        [max(1, i + w) for i, w in zip(inner, weight, strict=True)],
        costs(0, 2) if rng.random() < 0.5 else [0] * stages,
        takes, [int(x * at_input) for x in takes], [int(x * at_weight) for x in takes], cap,
    )  # fmt: skip
