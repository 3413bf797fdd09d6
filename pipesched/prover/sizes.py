"""The order in which sizes are tried. The order defines the smallest size, and keeps counterexamples short.

The smallest p + m comes first, then the fewest ranks: p=3 m=4 is before p=4 m=4, which is before p=2 m=31.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def ascending(most: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield all sizes from 1 up to the given ones: the smallest sum first, then the smallest first value, and so on."""
    for total in range(len(most), sum(most.values()) + 1):
        yield from _of_sum(total, most)


def _of_sum(total: int, most: Mapping[str, int]) -> Iterator[dict[str, int]]:
    name, *others = most
    if not others:
        if 1 <= total <= most[name]:
            yield {name: total}
        return
    rest = {other: most[other] for other in others}
    for value in range(max(1, total - sum(rest.values())), min(most[name], total - len(rest)) + 1):
        yield from ({name: value, **own} for own in _of_sum(total - value, rest))
