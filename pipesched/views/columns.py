"""Computes columns for every operation: the producers of its inputs, the memory of its rank, the time of its
messages.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

from pipesched.model.columns import Ints
from pipesched.views.causes import Causes, causes
from pipesched.views.chart.chart import Chart

Text = TypeVar("Text")


def causes_of(chart: Chart) -> Causes:
    """Return the cause of every operation's start."""
    return causes(chart.schedule, chart.analysis.dependencies, chart.times, chart.analysis.ticks)


def delays(chart: Chart, sent: Ints) -> Ints:
    """Return the ticks that each message takes. sent: the operations whose results are sent."""
    return chart.analysis.ticks.delays(chart.schedule.stage[sent], chart.schedule.microbatch[sent])


def producers(chart: Chart) -> list[tuple[int, ...]]:
    """Return the producers of each operation's inputs, nearest first."""
    dependencies = chart.analysis.dependencies
    found: list[tuple[int, ...]] = [(x,) if x >= 0 else () for x in dependencies.producer.tolist()]
    further = dependencies.further
    for producer, consumer in zip(further.producer.tolist(), further.consumer.tolist(), strict=True):
        found[consumer] += (producer,)
    return found


def amounts(chart: Chart, column: Ints, written: Callable[[Fraction], Text]) -> list[Text]:
    """Convert amounts of memory from `memory.part` to the unit of peaks; each distinct value is formatted once."""
    values = column.tolist()
    known = {value: written(value * chart.analysis.memory.part) for value in set(values)}
    return [known[value] for value in values]
