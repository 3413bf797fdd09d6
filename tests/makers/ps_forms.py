"""Random files with all forms of the language, right and wrong, written from random runs in varied forms.

    a model ──> a run of it, word by word ──> loops, choices, lets, functions, expressions ──> text in any layout

So most files are right, and every order of a rank comes up. Some are spoilt: a word is lost, doubled, moved or changed,
or a number of the text is another. Others are rules (`greedy`), or published schedules at any size. An interpreter
finds what a file means; nothing here is assumed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

from tests.oracles import ps_clock as clock
from tests.oracles.ps_claims import names as claimed
from tests.oracles.ps_interpreter import GRADIENT, Model, Rank, Refused, interpret
from tests.oracles.ps_reader import Tree, read, tokens

Word: TypeAlias = tuple[
    Any, ...
]  # (letter, chunk or None, microbatch or None), ("drain", chunk), ("overlap", word, word)
LIBRARY = [  # STEPs inside an order have an interpreter of their own, in `oracles/kept_weights.py`
    file
    for file in sorted((Path(__file__).parents[2] / "schedules").glob("*.ps"))
    if "STEP" not in file.read_text("utf-8")
]
LEVELS = {
    "or": 1,
    "and": 2,
    "==": 4,
    "!=": 4,
    "<": 4,
    "<=": 4,
    ">": 4,
    ">=": 4,
    "+": 5,
    "-": 5,
    "*": 6,
    "//": 6,
    "%": 6,
}
LEVELS["/"] = 6


def shown(e: Tree, level: int = 0) -> str:
    """Return an expression with the brackets that the table of precedence requires, and no others."""
    match e:
        case ("number", x):
            said = str(x) if isinstance(x, int) or x.denominator == 1 else str(float(x))
            return said if x >= 0 else shown(("unary", "-", ("number", -x)), level)
        case ("truth", x):
            return "true" if x else "false"
        case ("name", x):
            return str(x)
        case ("call", name, given):
            return f"{name}({', '.join(map(shown, given))})"
        case ("entry", name, index):
            return f"{name}[{shown(index)}]"
        case ("choice", condition, yes, no):
            return closed(f"if {shown(condition)} then {shown(yes)} else {shown(no)}", level > 0)
        case ("unary", "not", x):
            return closed(f"not {shown(x, 3)}", level > 3)
        case ("unary", "-", x):
            return closed(f"-{shown(x, 7)}", level > 7)
        case ("binary", operator, a, b):
            mine = LEVELS[operator]
            left = mine + 1 if mine == 4 else mine
            return closed(f"{shown(a, left)} {operator} {shown(b, mine + 1)}", level > mine)
    raise AssertionError(e)


def closed(text: str, brackets: bool) -> str:
    return f"({text})" if brackets else text


def number(x: Any) -> Tree:
    return ("number", x)


@dataclass
class Scope:
    """Names known at a place: numbers, functions of numbers, booleans, lists; and names that are taken anywhere."""

    numbers: dict[str, int]
    functions: dict[str, tuple[int, Callable[..., int]]]
    lists: dict[str, tuple[int, ...]]
    taken: set[str] = field(default_factory=set)

    def inner(self, **more: int) -> Scope:
        return Scope({**self.numbers, **more}, self.functions, self.lists, self.taken)


NAMES = (
    "w",
    "n",
    "k",
    "x",
    "y",
    "warm",
    "frozen",
    "reads",
    "greedy",
    "slices",
    "R",
    "O",
    "L",
    "a1",
    "_",
    "half",
    "Fx",
    "due",
)


class Expressions:
    """Expressions with a known value."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def fresh(self, scope: Scope) -> str:
        free = [x for x in NAMES if x not in scope.taken]
        name = self.rng.choice(free) if free else f"v{len(scope.taken)}"
        scope.taken.add(name)
        return name

    def some(self, scope: Scope, depth: int) -> tuple[Tree, int]:
        """Return any expression, and its value."""
        pick = self.rng.random()
        if depth <= 0 or pick < 0.35:
            if scope.numbers and pick < 0.25:
                name = self.rng.choice([*scope.numbers])
                return ("name", name), scope.numbers[name]
            x = self.rng.randint(0, 9)
            return number(x), x
        if pick < 0.42 and scope.lists:
            name = self.rng.choice([*scope.lists])
            at = self.rng.randrange(len(scope.lists[name]))
            return ("entry", name, self.of(at, scope, depth - 1)), scope.lists[name][at]
        if pick < 0.52 and scope.functions:
            name = self.rng.choice([*scope.functions])
            count, call = scope.functions[name]
            given = [self.some(scope, depth - 1) for _ in range(count)]
            if all(abs(x) < 1000 for _, x in given):
                return ("call", name, tuple(e for e, _ in given)), call(*(x for _, x in given))
        a, x = self.some(scope, depth - 1)
        if pick < 0.58:
            return ("unary", "-", a), -x
        b, y = self.some(scope, depth - 1)
        if pick < 0.64:
            name, call = self.rng.choice((("min", min), ("max", max), ("abs", abs)))
            return (("call", name, (a,)), abs(x)) if name == "abs" else (("call", name, (a, b)), call(x, y))
        if pick < 0.7:
            truth = self.rng.random() < 0.5
            return ("choice", self.truth(truth, scope, depth - 1), a, b), x if truth else y
        operator = self.rng.choice(("+", "-", "*", "//", "%", "+", "-"))
        if operator in ("//", "%") and y == 0:
            b, y = number(3), 3
        made = {"+": x + y, "-": x - y, "*": x * y, "//": x // y if y else 0, "%": x % y if y else 0}[operator]
        return (("binary", operator, a, b), made) if abs(made) < 10**6 else (number(1), 1)

    def of(self, value: int, scope: Scope, depth: int = 2) -> Tree:
        """Return an expression of this value."""
        alike = [name for name, x in scope.numbers.items() if x == value]
        pick = self.rng.random()
        if alike and pick < 0.4:
            return ("name", self.rng.choice(alike))
        if depth <= 0 or pick < 0.7:
            return number(value)
        e, x = self.some(scope, depth - 1)
        if x == value:
            return e
        if pick < 0.76:
            truth = self.rng.random() < 0.5
            pair = (number(value), e) if truth else (e, number(value))
            return ("choice", self.truth(truth, scope, depth - 1), *pair)
        return ("binary", "+" if value > x else "-", e, number(abs(value - x)))

    def truth(self, wanted: bool, scope: Scope, depth: int = 1) -> Tree:
        """Return a condition with this value."""
        pick = self.rng.random()
        if depth > 0 and pick < 0.12:
            return ("unary", "not", self.truth(not wanted, scope, depth - 1))
        if depth > 0 and pick < 0.36:
            other = self.rng.random() < 0.5
            both = [self.truth(wanted, scope, depth - 1), self.truth(other, scope, depth - 1)]
            operator = ("and" if other else "or") if wanted else ("or" if not other else "and")
            self.rng.shuffle(both)
            return ("binary", operator, *both)
        if pick < 0.4:
            return ("truth", wanted)
        a, x = self.some(scope, depth)
        b, y = self.some(scope, depth)
        fits = [s for s, holds in COMPARED.items() if holds(x, y) == wanted]
        return ("binary", self.rng.choice(fits), a, b)


COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


# A model, and a run of it


def model_of(rng: random.Random) -> Model:
    """Return any placement; sometimes with routes, readers, slices and frozen stages."""
    p = rng.choice((1, 2, 2, 3, 3, 4))
    row = rng.choice(
        (
            [*range(p)],
            [*range(p)],
            [*range(p), *range(p)],
            [*range(p), *reversed(range(p))],
            [*range(p), *(rng.randrange(p) for _ in range(rng.randint(0, 3)))],
        )
    )
    q = rng.choice((2, 3)) if rng.random() < 0.22 else 1
    m = rng.randint(1, 2 if q > 1 else 4)
    ways = 2 if m > 1 and rng.random() < 0.3 else 1
    cut = m if ways == 1 else rng.randint(1, m - 1)
    stages = len(row)
    reads: list[tuple[int, ...]] = [(s - 1,) for s in range(stages)]
    if stages > 2 and rng.random() < 0.3:
        reads = [
            tuple(sorted({s - 1 if rng.random() < 0.8 else -1, *_few(rng, range(-1, s))}, reverse=True))
            for s in range(stages)
        ]
        for s in range(stages - 1):
            if not any(s in reads[t] for t in range(stages)):
                reads[s + 1] = tuple(sorted({*reads[s + 1], s}, reverse=True))
    frozen = frozenset(s for s in range(stages) if rng.random() < 0.45) if rng.random() < 0.25 else frozenset()
    taken = [(0, cut * q), (cut * q, m * q)][:ways]
    other = [p - 1 - x for x in row] if rng.random() < 0.8 else [rng.randrange(p) for _ in row]
    names = ["down", "up"] if ways == 2 else []
    return Model([row, other][:ways], names, taken, reads, frozen, q)


def _few(rng: random.Random, of: Sequence[int]) -> list[int]:
    return [x for x in of if rng.random() < 0.25]


class Run:
    """A run of a model with all stages trained, recorded word by word."""

    def __init__(self, rng: random.Random, model: Model) -> None:
        self.rng = rng
        self.model = Model(model.homes, model.names, model.taken, model.reads, frozenset(), model.slices)
        self.ranks = [Rank(rank, self.model) for rank in range(self.model.ranks)]
        self.words: list[list[Word]] = [[] for _ in self.ranks]
        self.made: set[tuple[str, int, int]] = set()
        self.forward_only = rng.random() < 0.1
        kinds = ("B",) if rng.random() < 0.45 else ("I",) if rng.random() < 0.6 else ("B", "I")
        every = [(s, i) for s in range(model.stages) for i in range(model.microbatches)]
        self.back = {x: rng.choice(kinds) for x in every}
        again, away = (rng.choice((0.4, 1)) if rng.random() < 0.27 else 0 for _ in range(2))
        whole = rng.random() < 0.6
        self.again = (
            {x for x in every if rng.random() < again and not (whole and x[0] % 2)} if not self.forward_only else set()
        )
        self.away = (
            {x for x in every if rng.random() < away and x not in self.again} if not self.forward_only else set()
        )
        self.names = rng.choice((0, 0, 0.15, 0.5))
        self.pairs = rng.choice((0, 0, 0.6, 1))

    def write(self) -> list[list[Word]]:
        while True:
            able = [(rank, found) for rank in self.ranks if (found := [*self.possible(rank)])]
            able += [(rank, []) for rank in self.ranks if rank.waiting["W"] and all(rank is not x for x, _ in able)]
            if not able:
                return self.words
            rank, found = self.rng.choice(able)
            if rank.waiting["W"] and (not found or self.rng.random() < 0.35):
                self.weigh(rank)
            else:
                self.put(rank, found)

    def possible(self, rank: Rank) -> Iterator[tuple[str, int, int]]:
        """Yield the possible next words: letter, chunk, microbatch."""
        for chunk, (route, s) in enumerate(rank.chunks):
            for letter in "FRO" if self.forward_only else "FIBROL":
                low, end = self.model.taken[route]
                wanted = range(low, end) if self.rng.random() < self.names else [rank.upcoming(letter, chunk)]
                for i in wanted:
                    if i is not None and self.ready(letter, s, i):
                        yield letter, chunk, i

    def ready(self, letter: str, s: int, i: int) -> bool:
        made, q = self.made, self.model.slices
        if (letter, s, i) in made or (letter in GRADIENT and self.back[s, i] != letter):
            return False
        if letter == "F":
            before = [("F", t, i) for t in self.model.reads[s] if t >= 0]
            return {*before, *([("F", s, i - 1)] if i % q else [])} <= made
        if ("F", s, i) not in made or ("G", s, i) in made:
            return False
        if letter == "R":
            return (s, i) in self.again
        if letter == "O":
            return (s, i) in self.away
        if letter == "L":
            return ("O", s, i) in made
        ends = {("G", t, i) for t in self.model.readers(s)} | ({("G", s, i + 1)} if (i + 1) % q else set())
        ends |= {("R", s, i)} if (s, i) in self.again else set()
        return ends | ({("L", s, i)} if (s, i) in self.away else set()) <= made

    def put(self, rank: Rank, found: list[tuple[str, int, int]]) -> None:
        one = self.rng.choice(found)
        both = [one]
        if one[0] in "FIB" and self.rng.random() < self.pairs:
            others = [x for x in found if (x[0] == "F") != (one[0] == "F") and x[0] in "FIB" and x[2] != one[2]]
            both += [self.rng.choice(others)] if others else []
        both.sort(key=lambda x: x[0] != "F")
        words: list[Word] = []
        for letter, chunk, i in both:
            bare = rank.upcoming(letter, chunk) == i and (letter not in "FIB" or self.rng.random() > self.names / 4)
            words.append((letter, chunk, None if bare else i))
            rank.put(letter, chunk, i, named=False)
            stage = rank.chunks[chunk][1]
            self.made |= {(letter, stage, i), *([("G", stage, i)] if letter in GRADIENT else [])}
        self.words[rank.rank].append(words[0] if len(words) == 1 else ("overlap", *words))

    def weigh(self, rank: Rank) -> None:
        """Run a W: the oldest, the oldest of a chunk, one by its name, or all."""
        pending, chance = rank.waiting["W"], self.rng.random()
        chunk, i = self.rng.choice(pending)
        taken: list[tuple[int, int]] = [pending[0]]
        word: Word = ("W", None, None)
        if chance < 0.15:
            taken, word = [*pending], ("drain", None)
        elif chance < 0.3:
            taken, word = [x for x in pending if x[0] == chunk], ("drain", chunk)
        elif chance < 0.6:
            taken, word = [next(x for x in pending if x[0] == chunk)], ("W", chunk, None)
        elif chance < 0.6 + self.names / 4:
            taken, word = [(chunk, i)], ("W", chunk, i)
        self.words[rank.rank].append(word)
        for entry in taken:
            rank.put("W", *entry, named=False)


# The text of a file


class File:
    """A file in one of the forms."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.e = Expressions(rng)
        self.model = model_of(rng)
        m = self.model.microbatches
        self.given: dict[str, Any] = {"p": self.model.ranks, "m": m}
        self.scope = Scope(dict(self.given), {}, {}, {"p", "m", "s", "i", "r", "down", "up"})
        self.heads = ["p", "m"]
        self.lines: list[str] = []
        self.pending = rng.random() > 0.04  # whether `pending` is not a name of the file's own
        self.rule = self.pending and rng.random() < 0.18

    def text(self) -> str:
        rng = self.rng
        self.parameters()
        for _ in range(rng.choice((0, 0, 1, 2, 3))):
            self.let()
        if not self.pending:
            self.lines.append("let pending = 2")
            self.scope.numbers["pending"] = 2
            self.scope.taken.add("pending")
        if rng.random() < 0.2:
            self.lines.append(f"require {shown(self.e.truth(True, self.scope, 2))}" + ', "why"' * (rng.random() < 0.5))
        lines = [*self.placement()]
        if self.model.slices > 1:
            lines.append(f"slices {shown(self.e.of(self.model.slices, self.scope))}")
        lines += self.frozen()
        lines += self.costs()
        if self.rule:
            programs = [*self.rules()]
        else:
            words = Run(rng, self.model).write()
            if rng.random() < 0.22:
                self.spoil(words)
            programs = [*self.programs(words)]
        if rng.random() < 0.3:
            rng.shuffle(programs)
        title = ' "A title"' * (rng.random() < 0.1)
        head = f"schedule random{title}({', '.join(self.heads)})"
        doc = ['"What it is"'] if rng.random() < 0.1 else []
        return "\n".join([head, *doc, *self.lines, *lines, *programs]) + "\n"

    def parameters(self) -> None:
        rng, m = self.rng, self.model.microbatches
        if rng.random() < 0.3:
            self.heads[1] = f"m = {shown(self.e.of(m, Scope({'p': self.model.ranks}, {}, {})))}"
            if rng.random() < 0.5:
                del self.given["m"]
        if rng.random() < 0.3:
            name, x = self.e.fresh(self.scope), rng.randint(0, 5)
            self.heads.append(f"{name} = {x if rng.random() < 0.5 else rng.randint(0, 5)}")
            self.given[name] = self.scope.numbers[name] = x
        if rng.random() < 0.3:
            for name in ("length", "other")[: rng.randint(1, 2)]:
                count = rng.choice((m, m, 3))
                entries = tuple(rng.randint(0, 4) for _ in range(count))
                if rng.random() < 0.2:
                    entries = (entries[0],) * count
                    self.heads.append(f"{name}[{'m' if count == m else 3}] = {entries[0]}")
                else:
                    self.heads.append(f"{name}[{'m' if count == m else 3}]" + " = 1" * (rng.random() < 0.5))
                    self.given[name] = entries
                self.scope.lists[name] = entries
                self.scope.taken.add(name)

    def let(self) -> None:
        """Define a value, or a function of numbers, at top level."""
        rng, name = self.rng, self.e.fresh(self.scope)
        if rng.random() < 0.5:
            e, x = self.e.some(self.scope, 2)
            self.lines.append(f"let {name} = {shown(e)}")
            self.scope.numbers[name] = x
            return
        known = dict(self.scope.numbers)
        p, c = known["p"], rng.randint(0, 4)
        body, call = rng.choice(
            (
                (f"z + {c}", lambda z: z + c),
                (f"z * {c} - p", lambda z: z * c - p),
                (f"if z % 2 == 0 then z // 2 else {c}", lambda z: z // 2 if z % 2 == 0 else c),
                (f"min(z, {c})", lambda z: min(z, c)),
            )
        )
        if rng.random() < 0.3:
            both = {"z": 0, "u": 1}
            self.lines.append(f"let {name}(z, u) = z - u * {c}")
            self.scope.functions[name] = (len(both), lambda z, u: z - u * c)
        else:
            self.lines.append(f"let {name}(z) = {body}")
            self.scope.functions[name] = (1, call)
        self.scope.taken |= {"z", "u"}

    # Placements

    def placement(self) -> Iterator[str]:
        rng, model = self.rng, self.model
        for route, row in enumerate(model.homes):
            named = f"route {model.names[route]}: " if model.names else ""
            low, end = model.taken[route]
            for_ = ""
            if len(model.homes) > 1 or rng.random() < 0.1:
                ends = [shown(self.e.of(x, self.scope)) for x in (low, end)]
                for_ = f" for microbatch {ends[0]} .. {ends[1]}"
            said: dict[int, int] = {}
            formula = next(
                (
                    f
                    for f, of in FORMULAS
                    if rng.random() < 0.7 and [of(s, model.ranks) for s in range(len(row))] == row
                ),
                None,
            )
            if formula is None and rng.random() < 0.4:
                formula = rng.choice(FORMULAS)[0]
            if formula is not None:
                of = dict(FORMULAS)[formula]
                wide = len(row)
                if all(0 <= of(s, model.ranks) < model.ranks for s in range(wide)):
                    reads = self.reads_line()
                    yield f"{named}stage s in 0 .. {shown(self.e.of(wide, self.scope))} on rank {formula}{reads}{for_}"
                    said = {s: of(s, model.ranks) for s in range(wide) if self.plain(s) == (not reads) or reads}
                    if reads:
                        said = {
                            s: x for s, x in said.items() if model.reads[s] == (s - 1, *(() if s < 2 else (s - 2,)))
                        }
            for s, home in enumerate(row):
                if said.get(s) != home:
                    reads = (
                        ""
                        if self.plain(s)
                        else f" reads {', '.join(map(str, rng.sample(model.reads[s], len(model.reads[s]))))}"
                    )
                    said_of = [shown(self.e.of(x, self.scope)) for x in (s, home)]
                    yield f"{named}stage {said_of[0]} on rank {said_of[1]}{reads}{for_}"

    def plain(self, s: int) -> bool:
        return self.model.reads[s] == (s - 1,)

    def reads_line(self) -> str:
        some = [s for s in range(2, self.model.stages) if self.model.reads[s] == (s - 1, s - 2)]
        return " reads s - 1, max(s - 2, s - s - 1)" if len(some) > 1 else ""

    def frozen(self) -> Iterator[str]:
        left = sorted(self.model.frozen)
        while left:
            run = next(n for n in range(len(left), 0, -1) if left[:n] == [*range(left[0], left[0] + n)])
            if run > 1 or self.rng.random() < 0.4:
                low, end = (shown(self.e.of(x, self.scope)) for x in (left[0], left[0] + run))
                yield f"frozen s in {low} .. {end}"
            else:
                yield f"frozen {shown(self.e.of(left[0], self.scope))}"
            left = left[run:]

    def costs(self) -> Iterator[str]:
        rng = self.rng
        if rng.random() < 0.35:
            return
        keys = [key for key in ("F", "I", "W", "B", "R", "O", "L", "FB", "C", "M", "K") if rng.random() < 0.3]
        if {"I", "W"} & {*keys} and "B" in keys and rng.random() < 0.9:
            keys.remove("B")
        said = [self.cost(key) for key in keys]
        cut = rng.randint(0, len(said))
        yield from (f"costs {', '.join(part)}" for part in (said[:cut], said[cut:]) if part)

    def cost(self, key: str) -> str:
        rng, stages = self.rng, self.model.stages
        least = 0 if key in "CK" or (rng.random() < 0.05 and not self.rule) else 1
        if key == "K":
            return f"K = {rng.choice(('0', '1 / 8', '0.5', '1'))}"

        def one() -> str:
            return rng.choice(
                (
                    str(rng.randint(least, 6)),
                    f"{rng.randint(least, 9)} / {rng.randint(1, 4)}",
                    f"{rng.randint(least, 4)}.5",
                )
            )

        pick = rng.random()
        if pick < 0.5:
            return f"{key} = {one()}"
        if pick < 0.65:
            return f"{key} = [{', '.join(one() for _ in range(stages))}]"
        if pick < 0.75:
            return f"{key}[s] = {one()} + s * {rng.randint(0, 2)}"
        length = next(
            (f"{name}[i]" for name, x in self.scope.lists.items() if len(x) == self.model.microbatches), "i % 3"
        )
        return f"{key}[s, i] = {one()} + {rng.choice((length, f'{length} * s', f'{length} / 2'))}"

    # Programs

    def spoil(self, words: list[list[Word]]) -> None:
        """Drop, double, move or change one word; or a microbatch or a chunk."""
        rng = self.rng
        rank = rng.choice([x for x in words if x] or [[("F", 0, None)]])
        at = rng.randrange(len(rank))
        how = rng.randrange(6)
        if how == 0:
            del rank[at]
        elif how == 1:
            rank.insert(rng.randrange(len(rank) + 1), rank[at])
        elif how == 2:
            rank.insert(rng.randrange(len(rank)), rank.pop(at))
        elif rank[at][0] in ("drain", "overlap"):
            rank[at] = ("W", None, None)
        elif how == 3:
            rank[at] = (rng.choice("FIWBROL"), rank[at][1] or 0, rank[at][2])
        elif how == 4:
            rank[at] = (rank[at][0], rng.randint(-1, 3), rank[at][2])
        else:
            rank[at] = (rank[at][0], rank[at][1] or 0, rng.randint(-1, self.model.microbatches))

    def programs(self, words: list[list[Word]]) -> Iterator[str]:
        """Yield the programs: of single ranks, and of every rank with a choice between them."""
        rng = self.rng
        alone = [rank for rank in range(len(words)) if rng.random() < rng.choice((0, 0.3, 1))]
        others = [rank for rank in range(len(words)) if rank not in alone]
        for rank in alone:
            body = Body(self, rank).dressed(words[rank], self.scope.inner())
            yield f"rank {shown(self.e.of(rank, Scope(dict(self.scope.numbers), {}, {})))} {{ {body} }}"
        if others:
            yield f"rank r {{ {self.choice(others, words)} }}"

    def choice(self, ranks: list[int], words: list[list[Word]]) -> str:
        first, *rest = ranks
        body = Body(self, first).dressed(words[first], self.scope.inner(r=first))
        if not rest:
            return body
        also = [
            rank
            for rank in rest
            if words[rank] == words[first] and len(self.model.chunks(rank)) == len(self.model.chunks(first))
        ]
        if also and self.rng.random() < 0.5:
            body = Body(self, first).dressed(words[first], self.scope.inner())
            condition = " or ".join(f"r == {rank}" for rank in [first, *also])
            rest = [rank for rank in rest if rank not in also]
        else:
            condition = f"r == {first}" if self.rng.random() < 0.7 or rest[0] < first else f"r < {rest[0]}"
        if not rest:
            return f"if {condition} {{ {body} }}"
        inner = self.choice(rest, words)
        inner = inner if inner.startswith("if ") and len(rest) > 1 and self.rng.random() < 0.8 else f"{{ {inner} }}"
        return f"if {condition} {{ {body} }} else {inner}"

    def rules(self) -> Iterator[str]:
        """Yield a rule for each rank, sometimes a list."""
        rng, model = self.rng, self.model
        lists = Run(rng, model)
        lists.again.clear()
        lists.away.clear()
        lists.pairs = rng.choice((0, 1))
        words = lists.write()
        moved = rng.random() < 0.3
        for rank in range(model.ranks):
            if moved:
                yield f"rank {rank} {{ {Body(self, rank).dressed(words[rank], self.scope.inner())}  backfill }}"
                continue
            chunks = len(model.chunks(rank))
            if rng.random() < 0.4:
                yield f"rank {rank} {{ {Body(self, rank).dressed(words[rank], self.scope.inner())} }}"
                continue
            lines = []
            split = rng.random() < 0.5
            for chunk in range(chunks):
                of = "" if chunks == 1 and rng.random() < 0.5 else f"[{shown(self.e.of(chunk, self.scope))}]"
                for letter in ("F", "I") if split else ("F", "B"):
                    when = f" when {self.condition(letter, chunks)}" if rng.random() < 0.35 else ""
                    lines.append(f"{letter}{of}{when}")
                if split and rng.random() < 0.5:
                    lines.append(f"W{of or '[0]'}")
            if split and (rng.random() < 0.3 or not any(line[0] == "W" for line in lines)):
                lines.append("W" + f" when {self.condition('W', chunks)}" * (rng.random() < 0.2))
            rng.shuffle(lines)
            before = "".join(f"F[{chunk}]  " for chunk in range(chunks) if rng.random() < 0.15)
            yield f"rank {rank} {{ {before}greedy {{ {'  '.join(lines)} }} }}"

    def condition(self, letter: str, chunks: int) -> str:
        rng = self.rng
        one = (
            rng.choice(("held", f"held({rng.randrange(chunks)})", "pending", f"pending({rng.randrange(chunks)})"))
            if chunks
            else "held"
        )
        if letter == "F":
            return f"{one} <{'=' * rng.randint(0, 1)} {rng.choice(('p', '2', '3', '1', 'p + 1'))}"
        return rng.choice((f"{one} < 4", f"not {one} > 5", "m >= 1", f"pending < {rng.randint(2, 4)}"))


FORMULAS: Sequence[tuple[str, Callable[[int, int], int]]] = (
    ("s", lambda s, p: s),
    ("s % p", lambda s, p: s % p),
    ("min(s, 2 * p - 1 - s)", lambda s, p: min(s, 2 * p - 1 - s)),
    ("if s < p then s else 2 * p - 1 - s", lambda s, p: s if s < p else 2 * p - 1 - s),
    ("p - 1 - s % p", lambda s, p: p - 1 - s % p),
)


class Body:
    """The words of a rank, as statements."""

    def __init__(self, file: File, rank: int) -> None:
        self.file, self.rng, self.e = file, file.rng, file.e
        self.chunks = len(file.model.chunks(rank))
        self.ways = len(file.model.names) > 1 and file.model.ranks * 1 == file.model.stages

    def dressed(self, words: Sequence[Word], scope: Scope, depth: int = 3) -> str:
        rng, said, at = self.rng, list[str](), 0
        scope = scope.inner()
        while at < len(words):
            if depth and (found := self.again(words, at)) and rng.random() < 0.75:
                period, count = found
                said.append(self.loop(words[at : at + period], count, scope, depth))
                at += period * count
            elif depth and (length := self.series(words, at)) and rng.random() < 0.8:
                said.append(self.named(words[at : at + length], scope))
                at += length
            elif depth and rng.random() < 0.06:
                length = rng.randint(1, 4)
                said.append(self.choice(words[at : at + length], scope, depth))
                at += length
            elif rng.random() < 0.05:
                name = self.e.fresh(scope)
                e, x = self.e.some(scope, 1)
                said.append(f"let {name} = {shown(e)}")
                scope.numbers[name] = x
            else:
                said.append(self.word(words[at], scope))
                at += 1
        return "  ".join(said)

    def again(self, words: Sequence[Word], at: int) -> tuple[int, int] | None:
        """Return the length of a part that repeats at once, and its count."""
        best = None
        for period in range(1, min(6, (len(words) - at) // 2) + 1):
            part, count = words[at : at + period], 1
            while words[at + count * period : at + (count + 1) * period] == part:
                count += 1
            if count > 1 and (best is None or count * period > best[0] * best[1]):
                best = (period, count)
        return best

    def series(self, words: Sequence[Word], at: int) -> int:
        """Return the number of words that name microbatches in even steps, if at least two do."""
        first = words[at]
        if first[0] in ("drain", "overlap") or first[2] is None:
            return 0
        count = 1
        while at + count < len(words) and words[at + count][:2] == first[:2] and words[at + count][2] is not None:
            if count > 1 and words[at + count][2] - words[at + count - 1][2] != words[at + 1][2] - first[2]:
                break
            count += 1
        return count if count > 1 else 0

    def loop(self, part: Sequence[Word], count: int, scope: Scope, depth: int) -> str:
        body = self.dressed(part, scope, depth - 1)
        if {*part} == {("W", None, None)} and self.file.pending and self.rng.random() < 0.25:
            return f"repeat {shown(self.e.of(count, scope, 1))} {{ if pending > 0 {{ W }} }}"
        if self.rng.random() < 0.5:
            return f"repeat {shown(self.e.of(count, scope))} {{ {body} }}"
        low = self.rng.randint(-2, 3)
        ends = [shown(self.e.of(x, scope, 1), 5) for x in (low, low + count)]
        name = self.e.fresh(scope)
        if self.rng.random() < 0.3:
            body = f"if {name} >= {ends[0]} {{ {body} }} else {{ {self.junk()} }}"
        return f"for {name} in {ends[0]} .. {ends[1]} {{ {body} }}"

    def named(self, part: Sequence[Word], scope: Scope) -> str:
        step, first = part[1][2] - part[0][2], part[0][2]
        name, low = self.e.fresh(scope), self.rng.randint(0, 2)
        base = first - step * low
        grows = f"{step} * {name}" if step not in (1, -1) else name if step == 1 else f"-{name}"
        i = f"{grows} {'-' if base < 0 else '+'} {abs(base)}" if base else grows
        head = f"for {name} in {low} .. {low + len(part)}"
        return f"{head} {{ {part[0][0]}{self.chunk(part[0], scope, named=True)}({i}) }}"

    def choice(self, part: Sequence[Word], scope: Scope, depth: int) -> str:
        yes, no = self.dressed(part, scope, depth - 1), self.junk()
        truth = self.rng.random() < 0.6
        condition = shown(self.e.truth(truth, scope, 2))
        if not truth:
            yes, no = no, yes
        elif self.rng.random() < 0.4:
            return f"if {condition} {{ {yes} }}"
        if truth and self.rng.random() < 0.3:
            return (
                f"if {condition} {{ {yes} }} else if {shown(self.e.truth(self.rng.random() < 0.5, scope))} {{ {no} }}"
            )
        return f"if {condition} {{ {yes} }} else {{ {no} }}"

    def junk(self) -> str:
        """Return the statements that never run."""
        return self.rng.choice(
            ("F[7](9)", "drain W", "repeat 3 { W }", "", "B[m]  W[1]", "for never in 0 .. 2 { I[never] }")
        )

    def word(self, word: Word, scope: Scope) -> str:
        if word[0] == "overlap":
            return f"overlap({', '.join(self.word(x, scope) for x in word[1:])})"
        if word[0] == "drain":
            if word[1] is None and self.file.pending and self.rng.random() < 0.4:
                return "repeat pending { W }"
            if word[1] is not None and self.file.pending and self.rng.random() < 0.3:
                of = shown(self.e.of(word[1], scope, 1))
                return f"repeat pending({of}) {{ W[{of}] }}"
            return "drain W" + ("" if word[1] is None else f"[{shown(self.e.of(word[1], scope))}]")
        i = "" if word[2] is None else f"({shown(self.e.of(word[2], scope))})"
        said = f"{word[0]}{self.chunk(word, scope, named=bool(i))}{i}"
        return f"if pending > 0 {{ {said} }}" if said == "W" and self.file.pending and self.rng.random() < 0.2 else said

    def chunk(self, word: Word, scope: Scope, *, named: bool) -> str:
        if word[1] is None or (
            word[1] == 0 and self.chunks == 1 and (word[0] != "W" or named) and self.rng.random() < 0.6
        ):
            return ""
        if self.ways and self.chunks == 2 and word[1] in (0, 1) and self.rng.random() < 0.5:
            return f"[{self.file.model.names[word[1]]}]"
        return f"[{shown(self.e.of(word[1], scope))}]"


# A file at last


def library(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Return a published schedule at some sizes, which it may refuse."""
    text = rng.choice(LIBRARY).read_text("utf-8")
    head = text[: text.index(")")]
    p = rng.choice((1, 2, 3, 4, 4))
    sizes = {
        "p": p,
        "m": p * rng.randint(1, 4) if rng.random() < 0.7 else rng.randint(1, 9),
        "v": rng.randint(1, 3),
        "q": 2,
    }
    return text, {name: x for name, x in sizes.items() if re.search(rf"\b{name}\b", head)}


def laid_out(rng: random.Random, text: str) -> str:
    """Return the same words with other blanks, line ends and comments between them."""
    found = []
    for _, word in tokens(text):
        found += [word, rng.choice((" ", " ", " ", "  ", "\n", "\t", " # a comment\n"))]
    return "".join(found) + "\n"


def spoilt(rng: random.Random, text: str) -> str:
    """Change a number of the text."""
    numbers = list(re.finditer(r"(?<![\w.\"])\d+(?![\w.])", text))
    if not numbers:
        return text
    one = rng.choice(numbers)
    return text[: one.start()] + str(abs(int(one[0]) + rng.choice((-1, 1, 1, 2)))) + text[one.end() :]


def with_claims(rng: random.Random, text: str, given: Mapping[str, Any]) -> str:
    """Add claims, usually true ones."""
    try:
        written = interpret(read(text), given)
    except Refused:
        return text
    played = None if clock.wrong(written.model, written.slots) else clock.play(written.model, written.slots)
    if played is None:
        return text
    figures = clock.Figures.of(written.model, written.slots, played)
    lines = []
    for _ in range(rng.randint(1, 3)):
        release = rng.choice(("", "", "", " release I", " release split:1/4", " release torch", " release W"))
        known = claimed(written, figures, release.removeprefix(" release ") or "W")
        name = rng.choice(
            ("makespan", "span", "bubble", "work", "idle", "span_idle", "peak", "host", "span_bubble", "tF", "tM", "tB")
        )
        rank = (
            f"({rng.randrange(written.model.ranks)})"
            if name in ("work", "idle", "span_idle", "peak", "host") and rng.random() < 0.5
            else ""
        )
        if name[0] == "t" and name != "torch":
            lines.append(f"claim {name} >= 0 and makespan >= {name}{release}")
            continue
        if not callable(known[name]):
            rank = ""
        value = known[name](int(rank[1:-1])) if rank else known[name]() if callable(known[name]) else known[name]
        value = Fraction(value) + (rng.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 1)))
        said = f"{value.numerator} / {value.denominator}" if value.denominator > 1 else str(value)
        said = said.replace("-", "0 - ", 1) if said.startswith("-") else said
        sign = rng.choice(("==", "<=", ">="))
        when = rng.choice(("", "", "", " when m >= 1", " when m > 100", " when tF == tB", " when p == 2 or p != 2"))
        if not rank and name in ("peak", "work") and rng.random() < 0.3 and "rank r" in text:
            lines.append(f"claim {name}(r) <= {said}{release}{when}")
        else:
            lines.append(f"claim {name}{rank} {sign} {said}{release}{when}")
    return text + "\n".join(lines) + "\n"


def program(seed: int) -> tuple[str, dict[str, Any]]:
    """Return the text of a seed, and its parameters."""
    rng = random.Random(-seed - 1)
    if rng.random() < 0.06:
        return library(rng)
    file = File(seed)
    text = file.text()
    if rng.random() < 0.05:
        text = spoilt(rng, text)
    if rng.random() < 0.3:
        text = with_claims(rng, text, file.given)
    return laid_out(rng, text) if rng.random() < 0.2 else text, file.given


def asked(seed: int) -> tuple[str, dict[str, Fraction] | None]:
    """Return a release rule, and sometimes costs, as on a command line."""
    rng = random.Random(f"asked {seed}")
    release = rng.choice(("W", "I", "split:1/4", "torch"))
    if rng.random() < 0.85:
        return release, None
    keys = ("F", "I", "W", "C", "FB", "R", "O", "L") if rng.random() < 0.9 else ("B", "W", "K", "M")
    return release, {
        key: Fraction(rng.randint(1, 9), rng.choice((1, 1, 2))) for key in keys if rng.random() < 0.4
    } or None


# Which forms a file has


def forms(file: Tree, given: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()

    def walk(node: Any) -> None:
        if not isinstance(node, tuple):
            return
        if node and isinstance(node[0], str):
            found.update(form_of(node))
        for part in node:
            walk(part)

    walk(file[3])
    for name, size, default in file[2]:
        found.add("parameter list" if size is not None else "parameter with a default" if default else "parameter")
        walk((size, default))
        found.add(f"parameter {'given' if name in given else 'left out'}")
    has = {
        "forward only": not found & {f"operation {x}" for x in "IWB"},
        "routes": "route" in found,
        "readers": "reads" in found,
        "frozen stages": bool(found & {"frozen range", "frozen alone"}),
        "slices": "slices" in found,
        "recomputation": "operation R" in found,
        "offloading": "operation O" in found,
        "pairs": bool(found & {"overlap F and B", "overlap F and I"}),
        "a rule": "greedy" in found,
        "packed": "cost by stage and microbatch" in found,
    }
    there = [name for name, holds in has.items() if holds]
    return found | {*there} | {f"{one} with {other}" for one, other in combinations(there, 2)}


def form_of(node: Tree) -> Iterator[str]:
    match node:
        case ("op", letter, chunk, microbatch):
            yield f"operation {letter}"
            yield "operation of a chunk" if chunk is not None else "operation without a chunk"
            if microbatch is not None:
                yield f"operation {letter} of a microbatch"
        case ("overlap", _, ("op", letter, _, _)):
            yield f"overlap F and {letter}"
        case ("drain", chunk):
            yield "drain W" if chunk is None else "drain W of a chunk"
        case ("let", _, names, _):
            yield "let value" if names is None else "let function"
        case ("stage", route, name, _, _, _, reads, taken):
            yield "stage by formula" if name else "stage alone"
            yield from (x for x, there in (("route", route), ("reads", reads), ("for microbatch", taken)) if there)
        case ("frozen", name, _, _):
            yield "frozen range" if name else "frozen alone"
        case ("rank", ("name", "r"), _):
            yield "rank r"
        case ("rank", _, _):
            yield "rank alone"
        case ("costs", rows):
            for key, names, e in rows:
                several = names is None and isinstance(e[0], tuple)
                yield f"cost {key}"
                yield (
                    "cost by stage and microbatch"
                    if names and len(names) == 2
                    else "cost by stage"
                    if names
                    else "cost list"
                    if several
                    else "cost"
                )
        case ("claim", _, release, condition):
            yield f"claim release {release}"
            yield from ["claim when"] if condition else []
        case ("if", _, _, no):
            yield "if" if not no else "if else" if no[0][0] != "if" else "else if"
        case ("greedy", lines):
            yield "greedy"
            yield from ["greedy when"] if any(when for _, when in lines) else []
        case ("backfill",):
            yield "backfill"
        case ("name", "pending" | "held" as name):
            yield name
        case ("call", "pending" | "held" | "min" | "max" | "abs" as name, _):
            yield f"{name}(…)"
        case ("call", _, _):
            yield "call of a function of its own"
        case ("unary" | "binary" as kind, operator, *_):
            yield f"{kind} {operator}"
        case ("choice" | "entry" | "for" | "repeat" | "slices" | "require" as name, *_):
            yield name
