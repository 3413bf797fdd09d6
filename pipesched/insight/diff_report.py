"""Writes the differences between two orders as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import groupby
from typing import TypeAlias

from pipesched import render
from pipesched.examine import Examination
from pipesched.model import numbers
from pipesched.model.numbers import exact, percent
from pipesched.planning.byte_counts import gigabytes
from pipesched.planning.footprint_report import InBytes
from pipesched.render import clean
from pipesched.report.parts import activations
from pipesched.support.record import Record
from pipesched.views.tables import ratio, table

_LINES = 20
_OPS = 12
_SHARES = ("bubble", "span bubble")
_TITLES = {"span bubble": "bubble by span", "bytes": "fullest rank"}
Said: TypeAlias = Callable[[Fraction], str]


@dataclass(frozen=True)
class Move:
    """Operations that are neighbours in both orders and moved together. step_a, step_b: the step of their first
    operation in a and in b, counted from 1.

    before: the next operation in the second order that did not move; None at the end.
    """

    rank: int
    operations: tuple[str, ...]
    step_a: int
    step_b: int
    before: str | None


@dataclass(frozen=True)
class Alone:
    """The operations of a rank that only one order has. steps: the step of each operation, counted from 1."""

    rank: int
    operations: tuple[str, ...]
    steps: tuple[int, ...]


class Difference(Record):
    """The differences between two orders, sorted by rank. facts: differences in sizes and placement, as text.

    pairs_a, pairs_b: overlap pairs that only one of the two orders has. split_a, split_b: each B of one order that the
    other order splits into I and W. messages: whether messages are also compared.
    """

    a: Examination
    b: Examination
    facts: tuple[str, ...]
    moves: tuple[Move, ...]
    only_a: tuple[Alone, ...]
    only_b: tuple[Alone, ...]
    pairs_a: tuple[Alone, ...]
    pairs_b: tuple[Alone, ...]
    split_a: tuple[Alone, ...]
    split_b: tuple[Alone, ...]
    messages: bool

    @property
    def equal(self) -> bool:
        alone = (self.only_a, self.only_b, self.pairs_a, self.pairs_b, self.split_a, self.split_b)
        return not (self.facts or self.moves or any(alone))

    @property
    def exit_status(self) -> int:
        """The exit status: 0 for the same order, 1 if they differ."""
        return 0 if self.equal else 1

    def __str__(self) -> str:
        return self.text()

    def text(self, *, every: bool = False, verbose: bool = False) -> str:
        """Return one line per difference, and the cost. every: show all lines and operations. verbose: list all
        assumptions.
        """
        names = _names(self)
        if self.equal:
            what = "instructions" if self.messages else "operations"
            count = len(self.a.loaded.program or ()) if self.messages else len(self.a.loaded.schedule)
            return clean(
                f"{names[0]} and {names[1]} are the same order: {count} {what} on {self.a.loaded.schedule.ranks} ranks"
            )
        lines = [clean(line) for line in _lines(self, every)]
        if not every and len(lines) > _LINES:
            lines = [*lines[:_LINES], f"... {len(lines) - _LINES} more lines (--all)"]
        said = dict.fromkeys((*self.a.report.rests_on, *self.b.report.rests_on))
        assumed = render.assumptions([*said], verbose=verbose)
        return "\n".join([*lines, "", _cost(self), *([""] if assumed else []), *assumed])

    def to_json(self) -> dict[str, object]:
        """Return the published form, see ``emit/README.md``."""
        figures = {name.replace(" ", "_"): (a, b) for name, a, b in self.figures()}
        return {
            "ok": self.equal,
            "equal": self.equal,
            "sources": [self.a.loaded.source, self.b.loaded.source],
            "compared": "instructions" if self.messages else "operations",
            "facts": list(self.facts),
            "moves": [_move_json(move) for move in self.moves],
            "only": [[_alone_json(entry) for entry in alone] for alone in (self.only_a, self.only_b)],
            "pairs": [[_alone_json(entry) for entry in alone] for alone in (self.pairs_a, self.pairs_b)],
            "split": [[_alone_json(entry) for entry in alone] for alone in (self.split_a, self.split_b)],
            **exact(figures={**figures, "bubble_ratio": figures["bubble"]}),
            **{key: [one, two[key]] for two in [_costs(self.b)] for key, one in _costs(self.a).items()},
            "diagnostics": [render.as_json(x) for made in (self.a, self.b) for x in made.report.diagnostics],
        }

    def figures(self) -> list[tuple[str, Fraction | None, Fraction | None]]:
        """Return the makespan, span, bubble and peak of both orders; None for an order that deadlocks."""
        one, two = _figures(self.a), _figures(self.b)
        return [(name, one[name], two[name]) for name in one]


def _figures(made: Examination) -> dict[str, Fraction | None]:
    time, memory, used = made.report.parts.time, made.report.parts.memory, made.report.parts.of(InBytes)
    return {
        "makespan": time.makespan if time else None,
        "span": time.span if time else None,
        "bubble": time.bubble if time else None,
        "span bubble": time.span_bubble if time else None,
        "peak": max(memory.peak, default=Fraction(0)) if memory else None,
        **({} if used is None else {"bytes": Fraction(max(used.total))}),
    }


def _names(found: Difference) -> tuple[str, str]:
    """Return the names of the files, with their sizes if the names are equal."""
    one, two = found.a.loaded.source, found.b.loaded.source
    return (one, two) if one != two else (f"{one} (first)", f"{two} (second)")


def _lines(found: Difference, every: bool) -> Iterator[str]:
    names = _names(found)
    yield from found.facts
    by_rank: dict[int, list[str]] = {}
    for moved in _together(found.moves):
        by_rank.setdefault(moved[0].rank, []).append(moved_text(moved, every=every))
    for name, alone in zip((*names, *names), (found.only_a, found.only_b, found.pairs_a, found.pairs_b), strict=True):
        for entry in alone:
            by_rank.setdefault(entry.rank, []).append(f"only in {name}: {_operations(entry.operations, every)}")
    for (mine, other), alone in zip((names, names[::-1]), (found.split_a, found.split_b), strict=True):
        for entry in alone:
            by_rank.setdefault(entry.rank, []).append(f"{_split(len(entry.operations), mine)} I and W in {other}")
    for lines, ranks in groupby(sorted(by_rank), key=by_rank.__getitem__):
        same = list(ranks)
        where = f"rank {same[0]}" if len(same) == 1 else f"ranks {', '.join(map(str, same))}"
        yield from (f"{where}: {line}" for line in lines)


def _together(moves: Sequence[Move]) -> Iterator[list[Move]]:
    """Group moves whose operations are next to each other in the second order."""
    run: list[Move] = []
    for move in moves:
        if run and (run[-1].rank, run[-1].step_b + len(run[-1].operations)) != (move.rank, move.step_b):
            yield run
            run = []
        run.append(move)
    if run:
        yield run


def moved_text(moves: Sequence[Move], *, every: bool = False) -> str:
    """Return ``W1.3 moved from step 14 to 11, before F1.5``; ``B0.0 B0.1 moved from steps 5, 7 to 9, before B0.4``."""
    names = tuple(name for move in moves for name in move.operations)
    where = "at the end" if moves[-1].before is None else f"before {moves[-1].before}"
    if len(moves) == 1 and moves[0].step_a == moves[0].step_b:
        return f"{_operations(names, every)} moved, still at step {moves[0].step_b}, {where}"
    steps = [_steps(move) for move in moves]
    listed = steps if every or len(steps) <= _OPS else [*steps[: _OPS - 2], "..."]
    word = "step" if len(names) == 1 else "steps"
    return f"{_operations(names, every)} moved from {word} {', '.join(listed)} to {moves[0].step_b}, {where}"


def _steps(move: Move) -> str:
    """Return the step, such as ``5``, or ``5 to 7`` for several neighbours."""
    last = move.step_a + len(move.operations) - 1
    return str(move.step_a) if last == move.step_a else f"{move.step_a} to {last}"


def _split(count: int, name: str) -> str:
    return f"{count} B of {name} {'is' if count == 1 else 'are'}"


def _operations(names: tuple[str, ...], every: bool) -> str:
    if every or len(names) <= _OPS:
        return " ".join(names)
    return f"{' '.join(names[: _OPS - 2])} ... {len(names) - _OPS + 2} more"


def _cost(found: Difference) -> str:
    """Return the table with the figures of both orders and their differences."""
    rows = []
    written = _written(found.a)
    for name, a, b in found.figures():
        said = written.get(name, numbers.shown)
        shown = ratio if name in _SHARES else partial(_or_dash, said)
        rows.append([_TITLES.get(name, name), shown(a), shown(b), _change(name, a, b, said)])
    return "\n".join([table(("", *_names(found), "change"), rows), *_remarks(found)])


def _remarks(found: Difference) -> Iterator[str]:
    """Yield remarks on the costs of both orders, or of one order."""
    names, both = _names(found), tuple(_own(made) for made in (found.a, found.b))
    for remark in dict.fromkeys([*both[0], *both[1]]):
        about = [name for name, remarks in zip(names, both, strict=True) if remark in remarks]
        yield clean(f"{', '.join(about)}: {remark}")


def _own(made: Examination) -> tuple[str, ...]:
    """Return the remarks on an order's costs, without the assumptions that are listed at the end."""
    found = made.analysis
    return tuple(found.costs.doubts(found.costs_used)) if made.report.rests_on else found.remarks


def _written(made: Examination) -> dict[str, Said]:
    """Return the format of figures other than shares."""
    unit = made.analysis.costs.unit
    bare = not unit and not made.report.parts.counted
    return {
        "makespan": unit.text,
        "span": unit.text,
        "peak": numbers.shown if bare else activations,
        "bytes": gigabytes,
    }


def _or_dash(said: Said, value: Fraction | None) -> str:
    return "-" if value is None else said(value)


def _change(name: str, a: Fraction | None, b: Fraction | None, said: Said) -> str:
    if a is None or b is None:
        return "-"
    if name in _SHARES:
        return "0" if a == b else percent(b - a, "+").removesuffix("%") + "points"
    return "0" if a == b else ("+" if b > a else "") + said(b - a)


def _costs(made: Examination) -> dict[str, object]:
    return made.analysis.costs.published(made.analysis.costs_used)


def _move_json(move: Move) -> dict[str, object]:
    return {
        "rank": move.rank,
        "operations": list(move.operations),
        "from": move.step_a,
        "to": move.step_b,
        "before": move.before,
        "text": moved_text([move], every=True),
    }


def _alone_json(entry: Alone) -> dict[str, object]:
    return {"rank": entry.rank, "operations": list(entry.operations), "steps": list(entry.steps)}
