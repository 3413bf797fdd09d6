"""An interpreter of .ps files, written only from the language reference (grammars/README.md), with lists, sets,
fractions and searches.

    tree (`ps_reader`) ──> sizes, who is where, who reads whom, costs ──> the words of every rank ──> slots

A step is named by its letter, its stage and its microbatch; a slot has one step, or two that overlap. The next
operation is found by searching lists of finished ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from tests.oracles.ps_reader import Tree

Step: TypeAlias = tuple[str, int, int]
Slot: TypeAlias = tuple[Step, ...]
Env: TypeAlias = Mapping[str, Any]
KEYS = ("F", "I", "W", "B", "R", "O", "L", "FB", "C", "M", "K")


class Refused(Exception):
    """The file is wrong: the code that the reference gives."""


@dataclass
class Model:
    """homes: by route, then by stage, the rank. taken: by route, its first microbatch and the end. cost: by key, stage
    and microbatch. again: whether costs differ from microbatch to microbatch, by key.
    """

    homes: list[list[int]]
    names: list[str]
    taken: list[tuple[int, int]]
    reads: list[tuple[int, ...]]
    frozen: frozenset[int]
    slices: int
    cost: dict[tuple[str, int, int], Fraction] = field(default_factory=dict)
    given: frozenset[str] = frozenset()

    @property
    def stages(self) -> int:
        return len(self.homes[0])

    @property
    def ranks(self) -> int:
        return max(max(row) for row in self.homes) + 1

    @property
    def microbatches(self) -> int:
        return max(end for _, end in self.taken)

    def route(self, i: int) -> int:
        return next(route for route, (low, end) in enumerate(self.taken) if low <= i < end)

    def home(self, stage: int, i: int) -> int:
        return self.homes[self.route(i)][stage]

    def chunks(self, rank: int) -> list[tuple[int, int]]:
        return [(route, s) for route, row in enumerate(self.homes) for s, home in enumerate(row) if home == rank]

    def readers(self, stage: int) -> list[int]:
        return [s for s in range(self.stages) if stage in self.reads[s]]

    def fed(self, stage: int) -> bool:
        """Return True if an earlier stage is trained."""
        return any(s not in self.frozen or self.fed(s) for s in self.reads[stage] if s >= 0)

    def runs(self, letter: str, stage: int) -> str:
        """Return the letter as that stage runs it; none if it is not needed."""
        if stage not in self.frozen:
            return letter
        if not self.fed(stage):
            return letter if letter == "F" else ""
        return "I" if letter == "B" else "" if letter == "W" else letter

    @property
    def unit(self) -> Fraction:
        return Fraction(self.ranks, self.stages)


@dataclass
class Written:
    """A file at its sizes. slots: by rank. claims: with the scope of names that they may use."""

    model: Model
    slots: list[list[Slot]]
    claims: list[Tree]
    env: dict[str, Any]
    variable: str | None


# Expressions

BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def value(e: Tree, env: Env) -> Any:
    """Return an expression; names are numbers, truth values, lists (tuple) or functions (callable)."""
    match e:
        case ("number" | "truth", x):
            return x
        case ("name", name):
            found = env[name]
            return found() if callable(found) else found
        case ("call", name, given):
            return env[name](*(value(x, env) for x in given))
        case ("entry", name, index):
            at = value(index, env)
            if at != int(at) or not 0 <= at < len(env[name]):
                raise Refused("PS227")
            return env[name][int(at)]
        case ("unary", operator, x):
            return not value(x, env) if operator == "not" else -value(x, env)
        case ("choice", condition, yes, no):
            return value(yes if value(condition, env) else no, env)
        case ("binary", "and", a, b):
            return value(a, env) and value(b, env)
        case ("binary", "or", a, b):
            return value(a, env) or value(b, env)
        case ("binary", operator, a, b):
            x, y = value(a, env), value(b, env)
            if operator in BINARY:
                return BINARY[operator](x, y)
            if y == 0:
                raise Refused("PS206")
            return Fraction(x) / y if operator == "/" else x // y if operator == "//" else x - x // y * y
    raise AssertionError(e)


def bound(names: Sequence[str], body: Tree, env: Env) -> Callable[..., Any]:
    return lambda *given: value(body, {**env, **dict(zip(names, given, strict=True))})


def defined(let: Tree, env: dict[str, Any]) -> None:
    _, name, names, body = let
    env[name] = value(body, env) if names is None else bound(names, body, dict(env))


# A file

FUNCTIONS: Env = {"min": min, "max": max, "abs": abs}


def interpret(file: Tree, given: Mapping[str, Any], asked: Mapping[str, Fraction] | None = None) -> Written:
    """Evaluate the file at these parameters; asked: costs of the command line, which change no
    order. Raises Refused.
    """
    _, _, parameters, items = file
    env: dict[str, Any] = dict(FUNCTIONS)
    for name, size, default in parameters:
        if size is None:
            env[name] = given[name] if name in given else value(default, env)
        else:
            count = value(size, env)
            env[name] = tuple(given[name]) if name in given else (value(default, env),) * count
            if len(env[name]) != count:
                raise Refused("PS226")
    names: list[str] = []
    for item in items:
        if item[0] == "stage" and item[1] and item[1] not in names:
            env[item[1]] = len(names)
            names.append(item[1])
    for item in items:
        if item[0] == "let":
            defined(item, env)
    for item in items:
        if item[0] == "require" and not value(item[1], env):
            raise Refused("PS209")
    model = placed(items, names, env)
    costs(items, env, model)
    programs, general, variable = literal(items, env, model)
    ranks = []
    bodies = [programs.get(rank, general) for rank in range(model.ranks)]
    for rank, body in enumerate(bodies):
        if None in bodies or body is None:
            raise Refused("PS224")
        ranks.append(Rank(rank, model))
        ranks[-1].run(body, {**env, **({variable: rank} if variable and rank not in programs else {})})
    from tests.oracles.ps_clock import backfilled, clocked

    moves = {bool(body) and body[-1] == ("backfill",) for body in bodies if body is not None}
    if len(moves) > 1:
        raise Refused("PS229")
    if any(rank.lines for rank in ranks):
        clocked(model, ranks)
    slots = [rank.kept() for rank in ranks]
    if True in moves:
        slots = backfilled(model, slots)
    if asked:
        costs(items, env, model, asked)
    return Written(model, slots, [x for x in items if x[0] == "claim"], env, variable)


def literal(items: Sequence[Tree], env: Env, model: Model) -> tuple[dict[int, Tree], Tree | None, str | None]:
    """Return the programs of single ranks, the program of every rank, and the name of the rank's number."""
    own: dict[int, Tree] = {}
    general, variable = None, None
    for item in items:
        if item[0] == "rank":
            if item[1][0] == "name" and item[1][1] not in env:
                general, variable = item[2], item[1][1]
            else:
                rank = value(item[1], env)
                if rank in own or not 0 <= rank < model.ranks:
                    raise Refused("PS224")
                own[rank] = item[2]
    return own, general, variable


def placed(items: Sequence[Tree], names: Sequence[str], env: dict[str, Any]) -> Model:
    """Return the ranks of the stages: a line for one stage replaces the formula before it."""
    m = env["m"]
    if m < 1:
        raise Refused("PS223")
    rows: dict[str | None, dict[int, tuple[int, tuple[int, ...]]]] = {}
    taken: dict[str | None, tuple[int, int]] = {}
    single: set[tuple[str | None, int]] = set()
    for item in items:
        if item[0] != "stage":
            continue
        _, route, name, low, high, rank, reads, microbatches = item
        row = rows.setdefault(route, {})
        taken.setdefault(route, (0, m))
        if microbatches is not None:
            taken[route] = (value(microbatches[0], env), value(microbatches[1], env))
        for s in [value(low, env)] if name is None else range(value(low, env), value(high, env)):
            inside = env if name is None else {**env, name: s}
            read = (s - 1,) if reads is None else tuple(value(x, inside) for x in reads)
            if s in row and (name is not None or (route, s) in single):
                raise Refused("PS215")
            row[s] = (value(rank, inside), tuple(sorted({*read}, reverse=True)))
            single |= {(route, s)} if name is None else set()
    stages = max((s for row in rows.values() for s in row), default=-1) + 1
    every = [*rows.values()]
    if (
        not stages
        or any({*row} != {*range(stages)} for row in every)
        or any(home < 0 for row in every for home, _ in row.values())
    ):
        raise Refused("PS215")
    reading = [tuple(row[s][1] for s in range(stages)) for row in every]
    ends = sorted(taken.values())
    if (
        any(x != reading[0] for x in reading)
        or [a for a, _ in ends] != [0, *(b for _, b in ends[:-1])]
        or ends[-1][1] != m
    ):
        raise Refused("PS216")
    if any(not -1 <= t < s for s, read in enumerate(reading[0]) for t in read):
        raise Refused("PS215")
    read = {t for one in reading[0] for t in one}
    if any(s not in read for s in range(stages - 1)):
        raise Refused("PS215")
    frozen: set[int] = set()
    slices = 1
    for item in items:
        if item[0] == "frozen":
            _, name, low, high = item
            these = [value(low, env)] if name is None else [*range(value(low, env), value(high, env))]
            if any(not 0 <= s < stages for s in these):
                raise Refused("PS215")
            frozen |= {*these}
        elif item[0] == "slices":
            slices = value(item[1], env)
            if slices < 1 or m % slices or any(x % slices for ends in taken.values() for x in ends):
                raise Refused("PS228")
    homes = [[row[s][0] for s in range(stages)] for row in every]
    return Model(homes, [*names], [taken[x] for x in rows], [*reading[0]], frozenset(frozen), slices)


def costs(items: Sequence[Tree], env: Env, model: Model, asked: Mapping[str, Fraction] | None = None) -> None:
    """Costs of every stage and microbatch: the given costs, key by key, and the costs that follow by the table."""
    rows = [row for item in items if item[0] == "costs" for row in item[1]]
    if any(names is None and isinstance(e[0], tuple) and len(e) != model.stages for _, names, e in rows):
        raise Refused("PS222")
    for s in range(model.stages):
        for i in range(model.microbatches):
            known: dict[str, Fraction] = {}
            for key, names, e in rows:
                if names is not None:
                    known[key] = Fraction(value(e, {**env, **dict(zip(names, (s, i), strict=False))}))
                elif isinstance(e[0], tuple):
                    known[key] = Fraction(value(e[s], env))
                else:
                    known[key] = Fraction(value(e, env))
            model.cost |= {(key, s, i): x for key, x in followed({**known, **(asked or {})}).items()}
    model.given = frozenset({row[0] for row in rows} | {*(asked or ())})


def followed(given: Mapping[str, Fraction]) -> dict[str, Fraction]:
    has, x = {*given}, dict(given)
    if not has & {*"FIWB"}:
        x |= {"F": Fraction(1), "I": Fraction(1), "W": Fraction(1), "B": Fraction(2)}
    elif "B" in has and not has & {"I", "W"}:
        x["I"] = x["W"] = x["B"] / 2
        x.setdefault("F", x["B"] / 2)
    elif {"B", "I"} <= has:
        x.setdefault("W", x["B"] - x["I"])
        x.setdefault("F", x["I"])
    elif {"B", "W"} <= has:
        x["I"] = x["B"] - x["W"]
        x.setdefault("F", x["B"] / 2)
    elif has & {"I", "W"}:
        x.setdefault("I", x.get("W", Fraction(0)))
        x.setdefault("W", x["I"])
        x["B"] = x["I"] + x["W"]
        x.setdefault("F", x["I"] if "I" in has else x["B"] / 2)
    else:
        x["I"] = x["W"] = x["F"]
        x["B"] = x["I"] + x["W"]
    for key, otherwise in (("C", Fraction(0)), ("M", Fraction(1)), ("K", Fraction(0)), ("R", x["F"]), ("O", x["F"])):
        x.setdefault(key, otherwise)
    x.setdefault("L", x["O"])
    if min(x.values()) < 0:
        raise Refused("PS222")
    return x


# The program of a rank

BEFORE = {"W": "I", "R": "F", "O": "F", "L": "O"}
GRADIENT = ("I", "B")


class Rank:
    """The operations of a rank. done: (letter, chunk, microbatch) in order, with whether it was named and overlaps the
    previous one; I and B are one kind. lines: of a rule.
    """

    def __init__(self, rank: int, model: Model) -> None:
        self.rank, self.model = rank, model
        self.chunks = model.chunks(rank)
        self.done: list[tuple[str, int, int]] = []
        self.named: list[bool] = []
        self.joined: list[bool] = []
        self.waiting: dict[str, list[tuple[int, int]]] = {letter: [] for letter in BEFORE}
        self.lines: list[tuple[str, int | None, Callable[[], Any] | None]] = []
        self.held: Callable[..., Any] = lambda *chunk: 0

    def run(self, body: Tree, env: Env) -> None:
        inside = {"pending": self.pending, **env}
        if "pending" in env:
            inside["pending"] = env["pending"]
        if body and body[-1][0] == "greedy":
            after = self.block(body[:-1], inside)
            for (_, letter, chunk, _), when in body[-1][1]:
                of = None if chunk is None else value(chunk, after)
                if letter != "W" or of is not None:
                    self.chunk(letter, of)
                names = {"held": lambda *c: self.held(*c), **after}
                self.lines.append((letter, of, None if when is None else (lambda e=when, n=names: value(e, n))))
        else:
            self.block(body[:-1] if body and body[-1] == ("backfill",) else body, inside)

    def block(self, body: Tree, env: Env) -> dict[str, Any]:
        env = dict(env)
        for statement in body:
            match statement:
                case ("let", *_):
                    defined(statement, env)
                case ("op", letter, chunk, microbatch):
                    i = None if microbatch is None else value(microbatch, env)
                    self.write(letter, None if chunk is None else value(chunk, env), i)
                case ("overlap", first, second):
                    for _, letter, chunk, microbatch in (first, second):
                        i = None if microbatch is None else value(microbatch, env)
                        self.write(letter, None if chunk is None else value(chunk, env), i)
                    self.joined[-1] = True
                case ("drain", chunk):
                    of = None if chunk is None else self.chunk("W", value(chunk, env))
                    for entry in [x for x in self.waiting["W"] if of is None or x[0] == of]:
                        self.put("W", *entry, named=False)
                case ("repeat", count, inner):
                    for _ in range(value(count, env)):
                        self.block(inner, env)
                case ("for", name, low, high, inner):
                    for k in range(value(low, env), value(high, env)):
                        self.block(inner, {**env, name: k})
                case ("if", condition, yes, no):
                    self.block(yes if value(condition, env) else no, env)
                case _:
                    raise Refused("PS229")
        return env

    def chunk(self, letter: str, chunk: int | None) -> int:
        if not self.chunks:
            raise Refused("PS215")
        if chunk is None and len(self.chunks) != 1:
            raise Refused("PS217")
        if chunk is not None and not 0 <= chunk < len(self.chunks):
            raise Refused("PS212")
        return chunk or 0

    def pending(self, chunk: int | None = None) -> int:
        if chunk is not None:
            self.chunk("W", chunk)
        return sum(chunk in (None, of) for of, _ in self.waiting["W"])

    def write(self, letter: str, chunk: int | None, microbatch: int | None) -> None:
        if letter == "W" and chunk is None and microbatch is None:
            if not self.waiting["W"]:
                raise Refused("PS214")
            self.put("W", *self.waiting["W"][0], named=False)
            return
        of = self.chunk(letter, chunk)
        if microbatch is not None:
            low, end = self.model.taken[self.chunks[of][0]]
            if not low <= microbatch < end:
                raise Refused("PS220")
            self.put(letter, of, microbatch, named=True)
            return
        found = self.upcoming(letter, of)
        if found is None:
            raise Refused("PS214" if letter == "W" else "PS213")
        self.put(letter, of, found, named=False)

    def upcoming(self, letter: str, chunk: int) -> int | None:
        """Return the next microbatch of a letter and a chunk, if there is one."""
        q = self.model.slices
        if letter in BEFORE:
            left = [i for of, i in self.waiting[letter] if of == chunk]
            if left and letter in "RL" and q > 1:
                return max(i for i in left if i // q == left[0] // q)
            return left[0] if left else None
        kinds = GRADIENT if letter in GRADIENT else (letter,)
        ran = {i for x, of, i in self.done if x in kinds and of == chunk}
        low, end = self.model.taken[self.chunks[chunk][0]]
        left = [i for i in range(low, end) if i not in ran]
        if left and letter in GRADIENT:
            return max(i for i in left if i // q == left[0] // q)
        return left[0] if left else None

    def put(self, letter: str, chunk: int, i: int, *, named: bool) -> None:
        self.done.append((letter, chunk, i))
        self.named.append(named)
        self.joined.append(False)
        if letter in BEFORE and (chunk, i) in self.waiting[letter]:
            self.waiting[letter].remove((chunk, i))
        for later, of in BEFORE.items():
            if of == letter:
                self.waiting[later].append((chunk, i))

    def kept(self) -> list[Slot]:
        """Return the needed operations, by stage. Raises Refused: PS310, an unneeded one that names its microbatch."""
        slots: list[Slot] = []
        whole = True
        for (letter, chunk, i), named, joined in zip(self.done, self.named, self.joined, strict=True):
            stage = self.chunks[chunk][1]
            wanted = self.model.runs(letter, stage)
            if named and not wanted:
                raise Refused("PS310")
            if wanted and joined and whole:
                slots[-1] = (*slots[-1], (wanted, stage, i))
            elif wanted:
                slots.append(((wanted, stage, i),))
            whole = bool(wanted)
        return slots
