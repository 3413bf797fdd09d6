"""LoRA (Hu et al. 2021, arXiv:2106.09685): every parameter is frozen, and trained matrices are added to some of them.

    y = x M + x A B      M of in x out entries, A of in x r, B of r x out

A frozen matrix has no W, no gradient and no optimizer state; its F and I remain, since gradients pass through it. A
matrix without an adapter keeps no input. Tensor parallelism splits B like the columns of M, or A like the rows of M;
the other matrix is whole on every rank. Scaling by alpha / r and dropout before A are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from pipesched.planning.transformer.config import Training, Transformer


@dataclass(frozen=True)
class Adapter:
    """The sizes of a matrix with an adapter, on one rank: its rows and columns, and the tokens of its input."""

    inner: Fraction
    outer: Fraction
    tokens: Fraction


def adapters(a: Transformer, x: Training, index: int) -> tuple[Adapter, ...]:
    """Return the sizes of a layer's matrices with adapters; q, k and v are separate, as are a gate and its value."""
    return tuple(_adapters(a.at(index), x)) if x.lora else ()


def _adapters(a: Transformer, x: Training) -> Iterator[Adapter]:
    t, h = x.tensor, Fraction(a.hidden)
    queries = Fraction(a.heads * a.head_size, t)
    keys = a.head_size * max(Fraction(a.kv_heads, t), Fraction(1))
    own = Fraction(a.sequence * x.microbatch, x.context)
    attended = [own] if a.encoder is None else [own, Fraction(a.encoder.sequence * x.microbatch, x.context)]
    for entered in attended:
        yield Adapter(h, queries, own)
        yield Adapter(h, keys, entered)
        if x.lora_on != "qv":
            yield Adapter(h, keys, entered)
            yield Adapter(queries, h, own)
    if x.lora_on == "all":
        inner = Fraction(a.feed_forward, t)
        yield from [Adapter(h, inner, own)] * (2 if a.gated else 1)
        yield Adapter(inner, h, own)


def count(a: Transformer, x: Training, index: int) -> Fraction:
    """Return the number of trained parameters of a layer on one rank."""
    return x.lora * sum((one.inner + one.outer for one in adapters(a, x, index)), Fraction(0))


def flops(a: Transformer, x: Training, index: int) -> Fraction:
    """Return the FLOPs of the adapters of a layer in F; I and W each take as many."""
    return 2 * x.lora * sum((one.tokens * (one.inner + one.outer) for one in adapters(a, x, index)), Fraction(0))


def between(a: Transformer, x: Training, index: int) -> Fraction:
    """Return the number of entries that the adapters of a layer compute between A and B."""
    return x.lora * sum((one.tokens for one in adapters(a, x, index)), Fraction(0))
