"""A schedule as a .ps file that a person can read, and that says exactly this schedule.

    words ────> loops ───> ranks that differ in counts alone ──> words of the file ──> canonical text
    spelling    folding    sharing                               here                  printer

The file is for one size. With a kernel (`model.kernel`) it is for every number of microbatches m0 + jK. Here it is only
said which words stand in which line; `printer` lays them out, as it does for `pipesched fmt`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from pipesched.language import placement_lines
from pipesched.language.folding import LETTER, LOOP, Count, Folder, Loop, Node, Tree, Word, grown
from pipesched.language.printer import WIDTH, format_source
from pipesched.language.sharing import Shared, shared
from pipesched.language.spelling import BLANK, Words, words
from pipesched.model.costs import KEYS, UNIT, Cost, Costs
from pipesched.model.kernel import Kernel
from pipesched.model.numbers import shown
from pipesched.model.schedule import Schedule
from pipesched.source import Source

_COPIES = 3
"""A program that is right for this many numbers of copies of a kernel, from none, is right for all."""


def write(
    schedule: Schedule,
    *,
    name: str = "",
    documentation: str = "",
    costs: Costs | None = None,
    claims: Sequence[str] = (),
    kernel: Kernel | None = None,
) -> str:
    """The text of a .ps file which evaluates to this schedule, operation for operation.

    name: that of the schedule unless given; made legal where it is not. documentation: its quotes become single ones.
    costs: written where they are not the default ones. claims: what stands after the word `claim`, in canonical form.
    kernel: what is repeated for more microbatches; the file then takes m0 + jK of them, by default as many
    as the schedule has.

    Raises:
        PipeschedError: PS814, what the language has no words for.
        ValueError: it is no kernel of this schedule.
    """
    if kernel is not None and (fault := kernel.fault(schedule)):
        raise ValueError(fault)
    placement = placement_lines.in_ranges(schedule.placement)
    spelled = words(schedule, placement, by_chunk=kernel is not None)
    ranks = shared(*_folded(spelled, kernel))
    if not sayable(ranks, spelled):
        spelled = words(schedule, placement, by_chunk=kernel is not None, in_series=False)
        ranks = shared(*_folded(spelled, kernel))
    growth = Growth(kernel.least(schedule), kernel.microbatches) if kernel else Growth(schedule.microbatches, 1)
    parts = [
        [_head(schedule, name), *_documentation(documentation)],
        [*_requires(schedule, kernel), *placement_lines.lines(placement), *_costs(costs or Costs())],
        programs(ranks, spelled, growth),
        [f"claim {claim}" for claim in claims],
    ]
    text = "\n".join("".join(f"{line}\n" for line in part) for part in parts if part)
    return format_source(Source("", text), words=len(text))


def _folded(spelled: Words, kernel: Kernel | None) -> tuple[list[Tree], list[Callable[[int], Word]]]:
    """The tree of every rank, and the words that it spells, by number of copies."""
    folder = Folder(spelled.weights)
    if kernel is None:
        return [folder.fold(word) for word in spelled.words], [spelled.words.__getitem__]
    cuts = [
        (word[:high], word[low:high], word[kernel.after(rank) :])
        for rank, (word, low, high) in enumerate(zip(spelled.words, kernel.low, kernel.high, strict=True))
    ]
    trees = [grown(folder, *cut) for cut in cuts]
    unrolled = [[before + again * n + after for before, again, after in cuts] for n in range(_COPIES)]
    return trees, [order.__getitem__ for order in unrolled]


def _head(schedule: Schedule, name: str) -> str:
    chunks = placement_lines.chunks_each(schedule.placement)
    sizes = {"p": schedule.ranks, **({"v": chunks} if chunks else {}), "m": schedule.microbatches}
    title = "" if name not in ("", schedule.name) else _plain(schedule.title)
    called = legal_name(name or schedule.name) + (f' "{title}" ' if title else "")
    return f"schedule {called}({', '.join(f'{x} = {n}' for x, n in sizes.items())})"


def legal_name(text: str) -> str:
    """The text as a name of the language: ``my-order.csv`` becomes ``my_order_csv``."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") or "schedule"
    return name if placement_lines.legal(name) else f"schedule_{name}"


def _documentation(text: str) -> list[str]:
    """A string has no quotes within and no escapes."""
    plain = _plain(text, also="\n")
    return [f'"{plain}"'] if plain.strip() else []


def _plain(text: str, also: str = "") -> str:
    return "".join(c for c in text.replace('"', "'") if c in also or c.isprintable())


def _requires(schedule: Schedule, kernel: Kernel | None) -> Iterator[str]:
    p, m = schedule.ranks, schedule.microbatches
    chunks = placement_lines.chunks_each(schedule.placement)
    sizes = f"p == {p}" + (f" and v == {chunks}" if chunks else "")
    if kernel is None:
        yield f'require {sizes} and m == {m}, "this order is for one size"'
        return
    yield f'require {sizes}, "this order is for {p} rank{"s" * (p > 1)}"'
    least = kernel.least(schedule)
    if kernel.microbatches == 1:
        yield f'require m >= {least}, "the part that repeats is there from {least} microbatches on"'
    else:
        k = kernel.microbatches
        yield f'require m >= {least} and (m - {least}) % {k} == 0, "the part that repeats runs {k} microbatches"'


def _costs(costs: Costs) -> Iterator[str]:
    """What was given, as what is not follows from it; broken after commas where that is too long for a line.

    Costs of 1, 1, 1 and 2 go without saying.
    """
    default = [key for key in costs.given if costs[key] == Costs()[key]]
    unit = all(costs[key] == cost for key, cost in UNIT.items())
    entries = [
        f"{key} = {_cost(costs.given[key])}"
        for key in KEYS
        if key in costs.given and (key not in default or (key in UNIT and not unit))
    ]
    line = "costs"
    for word in ", ".join(entries).replace(", ", ",\n").split("\n") if entries else ():
        if len(line) + 1 + len(word) > WIDTH:
            yield line
            line = " "
        line += f" {word}"
    if entries:
        yield line


def _cost(cost: Cost) -> str:
    if isinstance(cost, tuple):
        return f"[{', '.join(_number(x) for x in cost)}]"
    return _number(cost)


def _number(value: Fraction) -> str:
    return shown(value).replace("/", " / ")


# Programs

_COMPACT = 72
"""A block of this width at most is on one line."""


@dataclass(frozen=True)
class Growth:
    """How the number of microbatches says how often a kernel is repeated: m = m0 + copies * K."""

    m0: int
    k: int


def programs(shared: Sequence[Shared], words: Words, growth: Growth) -> list[str]:
    """The `rank` blocks, a blank line between them.

    The programs of several ranks become the general one, with a choice between them; the others are each rank's own.
    """
    printer = _Printer(words, growth)
    lines: list[str] = []
    several = [x for x in shared if x.high - x.low > 1]
    for x in shared:
        if x.high - x.low == 1:
            lines += ["", f"rank {x.low} {{", *printer.body(x, 1), "}"]
    if len(several) == 1:
        lines += ["", "rank r {", *printer.body(several[0], 1), "}"]
    elif several:
        lines += ["", "rank r {"]
        for x in several:
            condition = f"if r < {x.high} " if x is not several[-1] else ""
            lines += [f"{'' if x is several[0] else '} else '}{condition}{{", *printer.body(x, 2)]
        lines += ["}", "}"]
    return lines[1:]


@dataclass(frozen=True)
class _Printer:
    words: Words
    growth: Growth

    def body(self, shared: Shared, depth: int) -> list[str]:
        """The lines of a program, so many blocks deep."""
        nodes = _flat(shared.tree)
        kept = self._drained(shared, nodes)
        return [*self._lines(nodes[:kept], depth), *(["drain W"] if kept < len(nodes) else [])]

    def _drained(self, shared: Shared, nodes: Tree) -> int:
        """Where the last W begin, if they are several and all that are pending; else the end."""
        kept = len(nodes)
        while kept and self._only_weights(nodes[kept - 1]):
            kept -= 1
        several = nodes[kept:] and (len(nodes) - kept > 1 or isinstance(nodes[kept], Loop))
        ranks = range(shared.low, shared.high)
        return kept if several and all(self.words.drained[r] for r in ranks) else len(nodes)

    def _only_weights(self, node: Node) -> bool:
        """Whether this is W, or a loop of nothing else."""
        if isinstance(node, Loop):
            return len(node.body) == 1 and self._only_weights(node.body[0])
        return self.words.letters[node] == "W"

    def _lines(self, nodes: Sequence[Node], depth: int, inside: int = 0) -> Iterator[str]:
        texts = zip(nodes, self._texts(nodes, inside), strict=True)
        for is_loop, run in groupby(texts, key=lambda pair: isinstance(pair[0], Loop)):
            if not is_loop:
                yield " ".join(text for _, text in run)
                continue
            for node, text in run:
                assert isinstance(node, Loop)
                if 2 * depth + len(text) <= _COMPACT:
                    yield text
                else:
                    yield from (f"{self._head(node)} {{", *self._lines(node.body, depth + 1, 1), "}")

    def _head(self, loop: Loop) -> str:
        serial = any(isinstance(x, int) and x in self.words.series for x in loop.body)
        return f"{'for i in 0 ..' if serial else 'repeat'} {_count(loop.count, self.growth)}"

    def _texts(self, nodes: Sequence[Node], inside: int) -> list[str]:
        """Nodes in words; inside: 1 in a loop, whose variable is i."""
        seen: Counter[Node] = Counter()
        texts: list[str] = []
        for node in nodes:
            if isinstance(node, Loop):
                texts.append(f"{self._head(node)} {{ {'  '.join(self._texts(node.body, 1))} }}")
            elif node in self.words.series:
                named = self.words.series[node].at(seen[node], inside * nodes.count(node))
                texts.append(self.words.letters[node].replace(BLANK, named))
            else:
                texts.append(self.words.letters[node])
            seen[node] += 1
        return texts


def sayable(shared: Sequence[Shared], words: Words) -> bool:
    """Whether every series has one place in a program, in no loop within a loop, so that i counts its turns."""
    if not words.series:
        return True
    for program in shared:
        tree = _flat(program.tree)
        loops = [x for x in tree if isinstance(x, Loop)]
        places = [{x for x in tree if isinstance(x, int)}, *map(_letters_of, loops)]
        once = Counter(letter for place in places for letter in place if letter in words.series)
        deep = {letter for loop in loops for x in loop.body if isinstance(x, Loop) for letter in _letters_of(x)}
        if max(once.values(), default=0) > 1 or deep & set(words.series):
            return False
    return True


def _letters_of(loop: Loop) -> set[int]:
    found = {x for x in loop.body if isinstance(x, int)}
    return found.union(*(_letters_of(x) for x in loop.body if isinstance(x, Loop)))


def _flat(tree: Tree) -> Tree:
    """A tree without loops that run once on every rank, or never, or are no shorter than what they spell."""
    nodes: list[Node] = []
    for x in tree:
        if isinstance(x, Loop):
            body = _flat(x.body)
            constant = x.count.slope == x.count.growth == 0
            plain = all(isinstance(node, int) for node in body)
            if not body:
                continue
            few = x.count.base <= 1 or (plain and (x.count.base - 1) * LETTER * len(body) <= LOOP)
            nodes += list(body) * max(0, x.count.base) if constant and few else [Loop(x.count, body)]
        else:
            nodes.append(x)
    return tuple(nodes)


def _count(count: Count, growth: Growth) -> str:
    """A count as an expression in r and m."""
    if not count.growth:
        return _sum(count.base, count.slope, "")
    step = growth.k // count.growth
    base = step * count.base - growth.m0
    if step == 1:
        return _sum(base, count.slope, "m")
    return f"({_sum(base, step * count.slope, 'm')}) // {step}"


def _sum(base: int, slope: int, first: str) -> str:
    """first + base + slope * r, without what is nothing."""
    times = "r" if abs(slope) == 1 else f"{abs(slope)} * r"
    terms = [("+", first)] if first else []
    rank = [("-" if slope < 0 else "+", times)] if slope else []
    number = [("-" if base < 0 else "+", str(abs(base)))] if base else []
    terms += [*number, *rank] if slope < 0 <= base or first else [*rank, *number]
    if not terms:
        return "0"
    (sign, head), *others = terms
    return ("-" if sign == "-" else "") + head + "".join(f" {sign} {term}" for sign, term in others)
