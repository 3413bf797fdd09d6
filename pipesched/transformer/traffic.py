"""Bytes that one rank sends to the ranks with which it shares a layer, a sequence, experts or gradients.

    tensor       two all-reduces a layer in F and in I, of 2 s b h: 2 (t - 1) / t of it each; the same under sequence
                 parallelism, as a reduce-scatter and an all-gather
    context      keys and values pass c - 1 ranks in F; in I they do so again, and their gradients with them
    experts      a token goes to its experts and comes back, in F and in I: (e - 1) / e of them are on other ranks
    gradients    once a step, over n ranks: all-reduced, 2 (n - 1) / n; under ZeRO gradients are scattered and
                 parameters gathered; at stage 3 these are gathered before F and before the backward

Nothing is taken to overlap with a compute. What recomputation sends again counts in I.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from pipesched.transformer.activations import tokens
from pipesched.transformer.config import Training, Transformer
from pipesched.transformer.devices import Device
from pipesched.transformer.parameters import Part, on_rank
from pipesched.transformer.state import copies


@dataclass(frozen=True)
class Traffic:
    """By the ranks it goes to, bytes."""

    tensor: Fraction
    context: Fraction
    experts: Fraction

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.tensor + other.tensor, self.context + other.context, self.experts + other.experts)


NONE = Traffic(Fraction(0), Fraction(0), Fraction(0))


def forward(a: Transformer, x: Training, index: int) -> Traffic:
    """Of F of a layer and one microbatch."""
    n, z, t, c, e = tokens(a, x), a.dtype_bytes, x.tensor, x.context, x.expert
    shared = 2 * 2 * Fraction(t - 1, t) * n * a.hidden * z
    heads = max(Fraction(a.kv_heads, t), Fraction(1))
    kept = a.latent.key_value + a.latent.rope if a.latent else 2 * a.head_size * heads
    sent = a.experts.per_token if a.experts is not None and a.has_experts(index) else 0
    return Traffic(shared, (c - 1) * n * kept * z, 2 * Fraction(e - 1, e) * n / t * sent * a.hidden * z)


def backward(a: Transformer, x: Training, index: int) -> Traffic:
    """Of I of a layer and one microbatch."""
    once = forward(a, x, index)
    back = Traffic(once.tensor, 2 * once.context, once.experts)
    return back + once if x.recompute == "full" else back


def seconds(x: Training, device: Device, sent: Traffic) -> Fraction:
    """On the links of a device: ranks of a layer are side by side, then those of a sequence, then the copies."""
    return (
        sent.tensor / link(device, x.tensor)
        + sent.context / link(device, x.tensor * x.context)
        + sent.experts / link(device, max(x.expert, x.tensor))
    )


def link(device: Device, ranks: int) -> Fraction:
    """Between so many ranks side by side: inside a node, or to others."""
    return device.node if ranks <= device.node_size else device.network


def gradients(a: Transformer, x: Training, parts: Sequence[Part]) -> Fraction:
    """Once a step, of the parameters of a rank."""
    held = ((on_rank(parts, of_experts=y), copies(x, of_experts=y)) for y in (False, True))
    return sum((_reduced(a, x, count, n) for count, n in held), Fraction(0))


def _reduced(a: Transformer, x: Training, count: Fraction, n: int) -> Fraction:
    share = Fraction(n - 1, n) * count
    if x.zero == 0:
        return 2 * share * x.gradient_bytes
    return share * (x.gradient_bytes + a.dtype_bytes * (2 if x.zero == 3 else 1))
