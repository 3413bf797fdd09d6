"""What each rank holds, as a line of blocks over the same columns of time, with bars where its phases end.

rank 0 ▂▂▄▄▆▆▇▇▇▇▇▇│▇▇▇▇▇▇▇▇▇▇▇│▇▇▇▆▆▆▄▄▄▂▂▂   4
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

import numpy as np

from pipesched.model.numbers import shown
from pipesched.views.levels import highest
from pipesched.views.text_layout import Layout
from pipesched.views.text_words import wrapped

_BLOCKS = {False: " ▁▂▃▄▅▆▇", True: " .:-=+*#"}  # by whether ASCII is all there is


def memory(layout: Layout) -> Iterator[str]:
    """A heading, and the line of each rank with its peak."""
    top = max(layout.chart.held.peak, default=Fraction(0))
    head, wide = (
        f"memory: 0 to {shown(top)} activations" + (f", {layout.bar} between phases" if layout.phased else ""),
        layout.left + layout.axis.columns,
    )
    if len(head) > wide:
        yield from wrapped(layout, head)
        head = ""
    yield f"{head:<{wide}} {'peak':>{layout.right}}"
    blocks = partial(_blocks, layout, max(int(top / layout.chart.held.part), 1))
    for rank, peak in enumerate(layout.peaks):
        line = blocks(rank)
        for instant in (int(layout.phases.steady[rank]), int(layout.phases.cooling[rank])):
            if layout.axis.begin < instant < layout.axis.end:
                line[int(layout.axis.column(np.array(instant)))] = layout.bar
        yield f"{layout.name(rank)}{''.join(line)} {peak:>{layout.right}}"


def _blocks(layout: Layout, most: int, rank: int) -> list[str]:
    """The most that is held in each column, in sevenths of the largest peak, rounded up."""
    blocks = _BLOCKS[layout.how.ascii]
    held = np.maximum(highest(layout.chart, rank, layout.axis.bounds), 0)
    level = -(-held * (len(blocks) - 1) // most)
    return [blocks[min(x, len(blocks) - 1)] for x in level.tolist()]
