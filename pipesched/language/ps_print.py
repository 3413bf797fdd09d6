"""Programs of ranks as text in canonical form: what `pipesched fmt` leaves as it is.

rank r {                                    operations two blanks apart, loops on lines of their own,
  repeat 3 - r { F }                        the braces of neighbours below one another,
  repeat 5 + r { F  B }                     no line of more than 100 columns
  repeat 3 - r { B }
}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pipesched.language.ps_fold import LETTER, LOOP, Count, Loop, Node, Tree
from pipesched.language.ps_letters import BLANK, Words
from pipesched.language.ps_ranks import Shared

WIDTH = 100

_COMPACT = 72
"""A block of this width at most stands on one line."""


@dataclass(frozen=True)
class Growth:
    """How the number of microbatches says how often a window is repeated: m = m0 + copies * K."""

    m0: int
    k: int


@dataclass(frozen=True)
class _Line:
    """A line; for a block on one line, what stands from its brace on."""

    indent: int
    text: str
    rest: str = ""


def programs(shared: Sequence[Shared], words: Words, growth: Growth) -> list[str]:
    """The `rank` blocks, with a blank line between those that are longer than a line.

    The programs of several ranks become the general one, with a choice between them; the others are each rank's own.
    """
    printer = _Printer(words, growth)
    lines: list[str] = []
    several = [x for x in shared if x.high - x.low > 1]
    for x in shared:
        if x.high - x.low == 1:
            lines += ["", *_block(f"rank {x.low}", printer.body(x, 1), 0)]
    if len(several) == 1:
        lines += ["", *_block("rank r", printer.body(several[0], 1), 0)]
    elif several:
        lines += ["", "rank r {", *_choice(several, printer), "}"]
    return lines[1:]


def _choice(several: Sequence[Shared], printer: _Printer) -> Iterator[str]:
    """if … else if … else …, by rank."""
    for x in several:
        head = f"if r < {x.high} {{" if x is not several[-1] else "{"
        yield f"  {'' if x is several[0] else '} else '}{head}"
        yield from rendered(printer.body(x, 2))
    yield "  }"


def _block(head: str, body: list[_Line], indent: int) -> list[str]:
    blanks = " " * indent
    return [f"{blanks}{head} {{", *rendered(body), f"{blanks}}}"] if body else [f"{blanks}{head} {{}}"]


@dataclass(frozen=True)
class _Printer:
    words: Words
    growth: Growth

    def body(self, shared: Shared, depth: int) -> list[_Line]:
        """The lines of a program."""
        nodes = _flat(shared.tree)
        kept = self._drained(shared, nodes)
        lines = list(self._lines(nodes[:kept], depth))
        return lines if kept == len(nodes) else [*lines, _Line(2 * depth, "drain W")]

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

    def _lines(self, nodes: Sequence[Node], depth: int, inside: int = 0) -> Iterator[_Line]:
        texts = zip(nodes, self._texts(nodes, inside), strict=True)
        for loop, run in groupby(texts, key=lambda pair: isinstance(pair[0], Loop)):
            if loop:
                for node, text in run:
                    yield from self._loop(node, text, depth)
            else:
                yield from _wrapped([text for _, text in run], depth)

    def _loop(self, node: Node, text: str, depth: int) -> Iterator[_Line]:
        assert isinstance(node, Loop)
        head = self._head(node)
        if 2 * depth + len(text) <= _COMPACT:
            yield _Line(2 * depth, head, text[len(head) + 1 :])
        else:
            yield _Line(2 * depth, head + " {")
            yield from self._lines(node.body, depth + 1, 1)
            yield _Line(2 * depth, "}")

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
    """Whether every series stands in one place of a program, and in no loop within a loop, so that i tells its turn."""
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


def _wrapped(words: Sequence[str], depth: int) -> Iterator[_Line]:
    """Operations on as few lines as hold them."""
    line = ""
    for word in words:
        if line and 2 * depth + len(line) + 2 + len(word) > WIDTH:
            yield _Line(2 * depth, line)
            line = ""
        line += f"  {word}" if line else word
    if line:
        yield _Line(2 * depth, line)


def rendered(lines: Sequence[_Line]) -> Iterator[str]:
    """The lines as text, the braces of neighbouring blocks aligned where that keeps them within the width."""
    for _, run in groupby(lines, key=lambda line: (line.indent, line.rest != "", line.rest == "" and id(line))):
        here = list(run)
        widest = max(len(line.text) for line in here)
        if any(line.indent + widest + 1 + len(line.rest) > WIDTH for line in here):
            widest = 0
        for line in here:
            yield " " * line.indent + (f"{line.text.ljust(widest)} {line.rest}" if line.rest else line.text)
