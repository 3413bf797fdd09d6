"""1F1B with a mistake: the loop of the last backwards ends too early."""

from collections.abc import Iterator


def order(p: int, m: int, rank: int, left: int = 0) -> Iterator[str]:
    warmup = min(p - 1 - rank, m)
    for i in range(warmup):
        yield f"F{rank}.{i}"
    for i in range(m - warmup):
        yield f"F{rank}.{warmup + i}"
        yield f"B{rank}.{i}"
    for i in range(m - warmup, m - left):
        yield f"B{rank}.{i}"
