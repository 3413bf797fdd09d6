"""1F1B as one might write it, and with a slip: the backwards that end the list stop too early."""

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
