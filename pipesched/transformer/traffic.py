"""Bytes that one rank sends to the ranks with which it shares a layer, a sequence, experts or gradients.

    tensor       two all-reduces a layer in F and in I, of 2 s b h: 2 (t - 1) / t of it each; the same under sequence
                 parallelism, as a reduce-scatter and an all-gather
    context      keys and values pass c - 1 ranks in F; in I they do so again, and their gradients with them
    experts      a token goes to its experts and comes back, in F and in I: (e - 1) / e of them are on other ranks
    copies       n = d c ranks with the same parameters, (n - 1) / n of them (Rajbhandari et al. 2020, section 7):
        ZeRO 0   gradients are all-reduced once a step: scattered, and gathered
             1   gradients are scattered and parameters gathered, once a step
             2   gradients are scattered for every microbatch, parameters gathered once a step
             3   that, and parameters are gathered for every F and every backward

With a pipeline, what ZeRO divides cannot wait for the end of the step. Nothing is taken to overlap with a compute. What
recomputation sends again counts in I. Ranks are numbered t first, then c, d and p; latency counts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pipesched.transformer.activations import tokens
from pipesched.transformer.config import Training, Transformer
from pipesched.transformer.devices import Device
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
    """Of groups of so many ranks side by side the slowest: 3 on nodes of 8 are across two of them somewhere."""
    return device.node if device.node_size % ranks == 0 else device.network


def between_copies(
    a: Transformer, x: Training, counts: tuple[Fraction, Fraction], device: Device
) -> tuple[Fraction, Fraction]:
    """Seconds of one gathering and of one scattering. counts: parameters of a rank, those of experts apart."""
    gather = scatter = Fraction(0)
    bandwidth = link(device, x.tensor * x.context * x.data)
    for count, of_experts in zip(counts, (False, True), strict=True):
        n = copies(x, of_experts=of_experts)
        share = count * Fraction(n - 1, n) / bandwidth
        gather += share * (a.dtype_bytes if x.zero else x.gradient_bytes)
        scatter += share * x.gradient_bytes
    return gather, scatter


def each_microbatch(
    a: Transformer, x: Training, counts: tuple[Fraction, Fraction], device: Device
) -> tuple[Fraction, Fraction]:
    """Of these what ZeRO does not leave for the end of the step: a gathering for F and I each, a scattering for W."""
    gather, scatter = between_copies(a, x, counts, device) if x.zero >= 2 else (Fraction(0), Fraction(0))
    return gather if x.zero == 3 else Fraction(0), scatter
