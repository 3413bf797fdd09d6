"""Writes a schedule as a readable .ps file that evaluates to exactly this schedule.

    words ────> loops ───> ranks that differ only in counts ──> lines of the file ──> canonical text
    spelling    folding    sharing                               here                  layout

The file is for one size. With a kernel (`lift.kernel`) it accepts every number of microbatches m0 + jK. The text is
formatted as by `pipesched fmt`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from pipesched.diagnostics import Code, fail
from pipesched.formats.targets import Head, Writer
from pipesched.language.tokens import LONGEST, too_long
from pipesched.lift import placement_writer
from pipesched.lift.folding import LETTER, LOOP, Count, Folder, Loop, Node, Tree, Word, grown
from pipesched.lift.kernel import Kernel
from pipesched.lift.layout import WIDTH, Line, rendered
from pipesched.lift.sharing import Shared, shared
from pipesched.lift.spelling import BLANK, Words, linear, words
from pipesched.model.cost_values import Cost
from pipesched.model.costs import KEYS, UNIT, Costs
from pipesched.model.grid import Grid
from pipesched.model.numbers import shown
from pipesched.model.schedule import Program, Schedule

_CELLS = 4_096  # most values of a cost by stage and microbatch
_COPIES = 3
"""Number of cases (0, 1, … further copies) in which a program with a kernel is checked; these imply all others."""


def write(
    schedule: Schedule,
    *,
    name: str = "",
    documentation: str = "",
    costs: Costs | None = None,
    claims: Sequence[str] = (),
    kernel: Kernel | None = None,
    statements: Sequence[str] = (),
) -> str:
    """Return the text of a .ps file that evaluates to this schedule, operation for operation.

    name: by default the name of the schedule, converted to a legal name. documentation: text, in which double quotes
    become single quotes. costs: written unless they are the default. claims: the texts after `claim`, in canonical
    form. kernel: the part to repeat for more microbatches; the file then accepts every m = m0 + jK, and its default m
    is the schedule's. statements: further statements, in canonical form.

    Raises:
        PipeschedError: PS814: the language cannot express a part of the schedule.
        ValueError: `kernel` is not a kernel of this schedule.
    """
    if kernel is not None and (fault := kernel.fault(schedule)):
        raise ValueError(fault)
    placement = placement_writer.in_ranges(schedule.placement)
    spelled = words(schedule, placement, by_chunk=kernel is not None)
    ranks = shared(*_folded(spelled, kernel))
    if not sayable(ranks, spelled):
        spelled = words(schedule, placement, by_chunk=kernel is not None, in_series=False)
        ranks = shared(*_folded(spelled, kernel))
    growth = Growth(kernel.least(schedule), kernel.microbatches) if kernel else Growth(schedule.microbatches, 1)
    plain = _plain(documentation, also="\n")
    parts = [
        [Line(0, [_head(schedule, name)]), *([Line(0, [f'"{plain}"'])] if plain.strip() else [])],
        [
            *_requires(schedule, kernel),
            *placement_writer.lines(placement),
            *_slices(schedule),
            *_costs(costs or Costs()),
            *(Line(0, [statement]) for statement in statements),
        ],
        *programs(ranks, spelled, growth),
        [Line(0, [f"claim {claim}"]) for claim in claims],
    ]
    for part in filter(None, parts[1:]):
        part[0].blank_before = True
    return "".join(f"{line}\n" for line in rendered([line for part in parts for line in part]))


class Language(Writer):
    """The writer of .ps files."""

    def require(self, schedule: Schedule, program: Program | None) -> None:
        """Do nothing: the writer refuses features that the language cannot express."""

    def pieces(self, order: Schedule | Program, head: Head) -> Iterator[str]:
        assert isinstance(order, Schedule)
        yield write(order, documentation=head.documentation, costs=head.costs, statements=head.statements)

    def by_rank(self, order: Schedule | Program, head: Head) -> Iterator[str]:
        raise fail(Code.USAGE, "a .ps file contains the programs of all ranks", help="-o FILE.ps writes it")


LANGUAGE = Language()


def _folded(spelled: Words, kernel: Kernel | None) -> tuple[list[Tree], list[Callable[[int], Word]]]:
    """Return the tree of each rank; and, for 0, 1, … further copies of a kernel, a function from a rank to its word."""
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
    chunks = placement_writer.chunks_each(schedule.placement)
    sizes = {"p": schedule.ranks, **({"v": chunks} if chunks else {}), "m": schedule.microbatches}
    title = "" if name not in ("", schedule.name) else _plain(schedule.title)
    called = legal_name(name or schedule.name) + (f' "{title}" ' if title else "")
    return f"schedule {called}({', '.join(f'{x} = {n}' for x, n in sizes.items())})"


def legal_name(text: str) -> str:
    """Convert text to a legal name of the language: ``my-order.csv`` becomes ``my_order_csv``."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") or "schedule"
    return name if placement_writer.legal(name) else f"schedule_{name}"


def _plain(text: str, also: str = "") -> str:
    return "".join(c for c in text.replace('"', "'") if c in also or c.isprintable())


def _requires(schedule: Schedule, kernel: Kernel | None) -> Iterator[Line]:
    p, m = schedule.ranks, schedule.microbatches
    chunks = placement_writer.chunks_each(schedule.placement)
    sizes = f"p == {p}" + (f" and v == {chunks}" if chunks else "")
    if kernel is None:
        yield Line(0, [f'require {sizes} and m == {m}, "this order is for one size"'])
        return
    yield Line(0, [f'require {sizes}, "this order is for {p} rank{"s" * (p > 1)}"'])
    least, k = kernel.least(schedule), kernel.microbatches
    condition, why = f"m >= {least} and (m - {least}) % {k} == 0", f"runs {k} microbatches"
    if k == 1:
        condition, why = f"m >= {least}", f"needs at least {least} microbatches"
    yield Line(0, [f'require {condition}, "the part that repeats {why}"'])


def _slices(schedule: Schedule) -> Iterator[Line]:
    if schedule.slices > 1:
        yield Line(0, [f"slices {schedule.slices}"])


def _costs(costs: Costs) -> Iterator[Line]:
    """Yield the lines of the given costs, which determine the others; long lines break after commas.

    Costs of 1, 1, 1 and 2 are the default.
    """
    default = [key for key in costs.given if costs[key] == Costs()[key]]
    unit = all(costs[key] == cost for key, cost in UNIT.items())
    entries = [
        _entry(key, costs.given[key])
        for key in KEYS
        if key in costs.given and (key not in default or (key in UNIT and not unit))
    ]
    if even := [entry for entry in entries if "[s, i]" not in entry]:
        first, *others = ", ".join(even).replace(", ", ",\n").split("\n")
        yield from _filled([f"costs {first}", *others], " ", 0, hanging=2)
    for entry in entries:
        if "[s, i]" in entry:
            first, *others = entry.replace(" else ", "\nelse ").split("\n")
            yield from _filled([f"costs {first}", *others], " ", 0, hanging=2)


def _entry(key: str, cost: Cost) -> str:
    """Return a cost with its key; a grid becomes a choice by stage and microbatch."""
    if not isinstance(cost, Grid):
        return f"{key} = {_cost(cost)}"
    stages, microbatches = cost.whole.shape
    if cost.whole.size > _CELLS:
        message = f"the cost {key} has {cost.whole.size:,} values; at most {_CELLS:,} can be written"
        raise fail(Code.TARGET, message, help="write the order without them; --costs accepts a file of costs")
    rows = [tuple(_cost(cost.at(stage, i)) for i in range(microbatches)) for stage in range(stages)]
    return f"{key}[s, i] = {_chosen('s', [_chosen('i', row) for row in rows])}"


def _chosen(name: str, values: Sequence[str], low: int = 0) -> str:
    """Return an expression in a name that takes these values as the name counts up from `low`."""
    if len(set(values)) == 1:
        return values[0]
    first = next(n for n, value in enumerate(values) if value != values[0])
    half = first if len(set(values[first:])) == 1 else len(values) // 2
    one, two = _chosen(name, values[:half], low), _chosen(name, values[half:], low + half)
    return f"if {name} < {low + half} then {f'({one})' if one.startswith('if') else one} else {two}"


def _cost(cost: Fraction | tuple[Fraction, ...]) -> str:
    if isinstance(cost, tuple):
        return f"[{', '.join(map(_cost, cost))}]"
    number = shown(cost)
    if any(map(too_long, number.split("/"))):
        message = f"a cost is {number[:40]}: numbers in a .ps file have at most {LONGEST} digits"
        raise fail(Code.TARGET, message, help="round the costs, or write the order without them")
    return number.replace("/", " / ")


def _filled(words: Sequence[str], blanks: str, indent: int, hanging: int = 0) -> Iterator[Line]:
    """Fill lines with words. hanging: the extra indentation of all lines but the first."""
    line = ""
    for word in words:
        if line and indent + len(line) + len(blanks) + len(word) > WIDTH:
            yield Line(indent, [line])
            line, indent, hanging = "", indent + hanging, 0
        line += blanks * bool(line) + word
    if line:
        yield Line(indent, [line])


# Programs

_COMPACT = 72
"""The largest width of a block on one line."""


@dataclass(frozen=True)
class Growth:
    """The relation between microbatches and copies of a kernel: m = m0 + copies * K."""

    m0: int
    k: int


def programs(shared: Sequence[Shared], words: Words, growth: Growth) -> Iterator[list[Line]]:
    """Yield the lines of each `rank` block.

    Programs shared by several ranks become the general block, with a choice between them; the other ranks get blocks of
    their own.
    """
    printer = _Printer(words, growth)
    several = [x for x in shared if x.high - x.low > 1]
    for x in shared:
        if x.high - x.low == 1:
            yield _block(f"rank {x.low}", printer.body(x, 1))
    if len(several) == 1:
        yield _block("rank r", printer.body(several[0], 1))
    elif several:
        choices = [f"if r < {x.high} {{" for x in several[:-1]] + ["{"]
        heads = [choices[0], *(f"}} else {choice}" for choice in choices[1:])]
        bodies = [[Line(2, [head]), *printer.body(x, 2)] for head, x in zip(heads, several, strict=True)]
        yield _block("rank r", [*(line for body in bodies for line in body), Line(2, ["}"])])


def _block(head: str, body: Sequence[Line], indent: int = 0) -> list[Line]:
    if not body:
        return [Line(indent, [f"{head} {{}}"])]
    return [Line(indent, [f"{head} {{"]), *body, Line(indent, ["}"])]


@dataclass(frozen=True)
class _Printer:
    words: Words
    growth: Growth

    def body(self, shared: Shared, depth: int) -> list[Line]:
        """Return the lines of a program within `depth` blocks."""
        nodes = _flat(shared.tree)
        kept = self._drained(shared, nodes)
        drain = [Line(2 * depth, ["drain W"])] if kept < len(nodes) else []
        return [*self._lines(nodes[:kept], depth), *drain]

    def _drained(self, shared: Shared, nodes: Tree) -> int:
        """Return the index of the first of the W at the end, if there are several and no other W is pending; else the
        end.
        """
        kept = len(nodes)
        while kept and self._only_weights(nodes[kept - 1]):
            kept -= 1
        several = nodes[kept:] and (len(nodes) - kept > 1 or isinstance(nodes[kept], Loop))
        ranks = range(shared.low, shared.high)
        return kept if several and all(self.words.drained[r] for r in ranks) else len(nodes)

    def _only_weights(self, node: Node) -> bool:
        """Return True for a W, or a loop that has only W."""
        if isinstance(node, Loop):
            return len(node.body) == 1 and self._only_weights(node.body[0])
        return self.words.letters[node] == "W"

    def _lines(self, nodes: Sequence[Node], depth: int, inside: int = 0) -> Iterator[Line]:
        texts = zip(nodes, self._texts(nodes, inside), strict=True)
        for is_loop, run in groupby(texts, key=lambda pair: isinstance(pair[0], Loop)):
            if not is_loop:
                yield from _filled([text for _, text in run], "  ", 2 * depth)
                continue
            for node, text in run:
                assert isinstance(node, Loop)
                head = self._head(node)
                if 2 * depth + len(text) <= _COMPACT:
                    yield Line(2 * depth, [head, text[len(head) + 1 :]], kind="block")
                else:
                    yield from _block(head, [*self._lines(node.body, depth + 1, 1)], 2 * depth)

    def _head(self, loop: Loop) -> str:
        serial = any(isinstance(x, int) and x in self.words.series for x in loop.body)
        return f"{'for i in 0 ..' if serial else 'repeat'} {_count(loop.count, self.growth)}"

    def _texts(self, nodes: Sequence[Node], inside: int) -> list[str]:
        """Return the nodes as text. inside: 1 in a loop, else 0."""
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
    """Return True if every series occurs once per program, outside of nested loops, so that i can count its steps."""
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
    """Expand loops that run at most once on every rank, or that are not shorter than what they expand to."""
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
    """Return a count as an expression in r and m."""
    if not count.growth:
        return linear(count.base, count.slope, "r")
    step = growth.k // count.growth
    base = step * count.base - growth.m0
    if step == 1:
        return linear(base, count.slope, "r", "m")
    return f"({linear(base, step * count.slope, 'r', 'm')}) // {step}"
