"""In figures, labels are readable, and colour-blind readers can distinguish the kinds of operations."""

from __future__ import annotations

import itertools

import pytest

from pipesched.model.ops import Op
from pipesched.views import palette


def linear(colour: str) -> list[float]:
    """Return the linear red, green and blue of ``#rrggbb`` (IEC 61966-2-1)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]


def luminance(colour: str) -> float:
    return sum(share * x for share, x in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


@pytest.mark.parametrize("style", sorted(palette.STYLES))
def test_labels_can_be_read(style: str) -> None:
    """Every shade of every kind and its ink have a contrast of at least 4.5 to 1 (WCAG 2.2, 1.4.3)."""
    look = palette.STYLES[style]
    for op, chunks in itertools.product((Op.F, Op.I, Op.W, Op.B), (1, 2, 4)):
        for chunk in range(chunks):
            fill = palette.shade(look.colour(op), chunk, chunks, look.lighten)
            ink = {"#000": 0.0, "#fff": 1.0}[palette.ink(fill)]
            low, high = sorted((luminance(fill), ink))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (style, op, chunk)


# Linear light as seen without the long, the middle, or the short cones (Machado et al., IEEE TVCG 15(6), 2009).
SEEN = {
    "all": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def lab(light: list[float]) -> list[float]:
    """Return CIE 1976 L*a*b* of linear light, white D65."""
    matrix = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = [sum(a * max(b, 0.0) for a, b in zip(row, light, strict=True)) for row in matrix]
    scaled = [value / white for value, white in zip(xyz, (0.9505, 1.0, 1.089), strict=True)]
    f = [t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in scaled]
    return [116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])]


@pytest.mark.parametrize("eyes", sorted(SEEN))
def test_kinds_are_told_apart_by_all_eyes(eyes: str) -> None:
    """Any two kinds of the default palette differ by more than 15 in L*a*b*, whichever cones are missing."""
    look = palette.STYLES["default"]
    seen = {
        op: lab([sum(a * b for a, b in zip(row, linear(look.colour(op)), strict=True)) for row in SEEN[eyes]])
        for op in (Op.F, Op.I, Op.W, Op.B)
    }
    for one, two in itertools.combinations(seen, 2):
        distance = sum((a - b) ** 2 for a, b in zip(seen[one], seen[two], strict=True)) ** 0.5
        assert distance > 15, (one, two, distance)
