"""Words beside the marks of a scatter plot: at the right of a mark, else at its left, above or below it.

o 1f1b       m=8 o x         a label that would cover a mark, another label or the frame is left out;
     x zb_h1                 the legend and the title under the mouse tell that point
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from pipesched.safe import safe

Box: TypeAlias = tuple[float, float, float, float]  # left, top, right, bottom, in pixels
_LETTER, _MARK = 6, 6  # pixels: the width of a letter, half of that of a mark


def told_apart(points: Sequence[tuple[str, str]]) -> list[str]:
    """Of each (series, note): the series where it has one point; else the words that its notes do not share.

    Nothing where there is one series of one point.
    """
    notes: dict[str, list[set[str]]] = {}
    for series, note in points:
        notes.setdefault(series, []).append(set(note.split()))
    shared = {series: set.intersection(*own) for series, own in notes.items()}
    return [
        " ".join(word for word in note.split() if word not in shared[series])
        if len(notes[series]) > 1
        else series * (len(notes) > 1)
        for series, note in points
    ]


def labels(texts: Sequence[str], spots: Sequence[tuple[float, float]], frame: Box) -> Iterator[str]:
    """A text for each spot where there is room for it, in the order of the spots."""
    taken = [(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in spots]
    for text, (x, y) in zip(texts, spots, strict=True):
        wide = _LETTER * len(text)
        for left, base in ((x + 9, y + 4), (x - 9 - wide, y + 4), (x - wide / 2, y - 9), (x - wide / 2, y + 17)):
            box = (left, base - 9, left + wide, base + 2)
            if text and _within(box, frame) and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                yield f'<text class="label" x="{left:g}" y="{base:g}">{safe(text, "xml")}</text>'
                break


def _within(box: Box, frame: Box) -> bool:
    return box[0] > frame[0] and box[1] > frame[1] and box[2] < frame[2] and box[3] < frame[3]


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
