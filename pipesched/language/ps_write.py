"""A schedule as a .ps file that a person can read, and that says exactly this schedule.

    letters ──> loops ──────────> ranks that differ in counts alone ──> text
    ps_letters  ps_fold, ps_grow  ps_ranks                              ps_print

The file is for one size. With a window (`model.window`) it is for every number of microbatches m0 + jK. It is in the
canonical form of `pipesched fmt`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from pipesched.language import ps_place
from pipesched.language.ps_fold import Folder, Tree, Word
from pipesched.language.ps_grow import grown
from pipesched.language.ps_letters import Words, words
from pipesched.language.ps_print import WIDTH, Growth, programs, sayable
from pipesched.language.ps_ranks import shared
from pipesched.model.costs import KEYS, UNIT, Cost, Costs
from pipesched.model.kernel import Window
from pipesched.model.numbers import shown
from pipesched.model.schedule import Schedule

_COPIES = 3
"""A program that is right for this many numbers of copies of a window, from none, is right for all."""


def write(
    schedule: Schedule,
    *,
    name: str = "",
    documentation: str = "",
    costs: Costs | None = None,
    claims: Sequence[str] = (),
    microbatch_window: Window | None = None,
) -> str:
    """The text of a .ps file which evaluates to this schedule, operation for operation.

    name: that of the schedule unless given; made legal where it is not. documentation: its quotes become single ones.
    costs: written where they are not the default ones. claims: what stands after the word `claim`, in canonical form.
    microbatch_window: what is repeated for more microbatches; the file then takes m0 + jK of them, by default as many
    as the schedule has.

    Raises:
        PipeschedError: PS814, what the language has no words for.
        ValueError: it is no window of this schedule.
    """
    window = microbatch_window
    if window is not None and (fault := window.fault(schedule)):
        raise ValueError(fault)
    placement = ps_place.in_ranges(schedule.placement)
    spelled = words(schedule, placement, by_chunk=window is not None)
    ranks = shared(*_folded(spelled, window))
    if not sayable(ranks, spelled):
        spelled = words(schedule, placement, by_chunk=window is not None, in_series=False)
        ranks = shared(*_folded(spelled, window))
    growth = Growth(window.least(schedule), window.microbatches) if window else Growth(schedule.microbatches, 1)
    parts = [
        [_head(schedule, name), *_documentation(documentation)],
        [*_requires(schedule, window), *ps_place.lines(placement), *_costs(costs or Costs())],
        programs(ranks, spelled, growth),
        [f"claim {claim}" for claim in claims],
    ]
    return "\n".join("".join(f"{line}\n" for line in part) for part in parts if part)


def _folded(spelled: Words, window: Window | None) -> tuple[list[Tree], list[Callable[[int], Word]]]:
    """The tree of every rank, and the words that it spells, by number of copies."""
    folder = Folder(spelled.weights)
    if window is None:
        return [folder.fold(word) for word in spelled.words], [spelled.words.__getitem__]
    cuts = [
        (word[:high], word[low:high], word[window.after(rank) :])
        for rank, (word, low, high) in enumerate(zip(spelled.words, window.low, window.high, strict=True))
    ]
    trees = [grown(folder, *cut) for cut in cuts]
    unrolled = [[before + again * n + after for before, again, after in cuts] for n in range(_COPIES)]
    return trees, [order.__getitem__ for order in unrolled]


def _head(schedule: Schedule, name: str) -> str:
    chunks = ps_place.chunks_each(schedule.placement)
    sizes = {"p": schedule.ranks, **({"v": chunks} if chunks else {}), "m": schedule.microbatches}
    return f"schedule {legal_name(name or schedule.name)}({', '.join(f'{x} = {n}' for x, n in sizes.items())})"


def legal_name(text: str) -> str:
    """The text as a name of the language: ``my-order.csv`` becomes ``my_order_csv``."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") or "schedule"
    return name if ps_place.legal(name) else f"schedule_{name}"


def _documentation(text: str) -> list[str]:
    """A string has no quotes within and no escapes."""
    plain = "".join(c for c in text.replace('"', "'") if c == "\n" or c.isprintable())
    return [f'"{plain}"'] if plain.strip() else []


def _requires(schedule: Schedule, window: Window | None) -> Iterator[str]:
    p, m = schedule.ranks, schedule.microbatches
    chunks = ps_place.chunks_each(schedule.placement)
    sizes = f"p == {p}" + (f" and v == {chunks}" if chunks else "")
    if window is None:
        yield f'require {sizes} and m == {m}, "this order is for one size"'
        return
    yield f'require {sizes}, "this order is for {p} rank{"s" * (p > 1)}"'
    least = window.least(schedule)
    if window.microbatches == 1:
        yield f'require m >= {least}, "the part that repeats is there from {least} microbatches on"'
    else:
        k = window.microbatches
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
