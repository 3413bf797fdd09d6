"""Bytes that one rank sends to the ranks with which it shares a layer, a sequence, experts or gradients.

    tensor       two all-reduces per layer in F and in I, of 2 s b h bytes: a rank sends 2 (t - 1) / t of each; the
                 same under sequence parallelism, as a reduce-scatter and an all-gather
    context      keys and values pass c - 1 ranks in F; in I they pass them again, with their gradients
    experts      a token goes to its experts and back, in F and in I; (e - 1) / e of the experts are on other ranks
    copies       each of n = d c ranks with equal parameters sends (n - 1) / n of them (Rajbhandari et al. 2020, 7):
        ZeRO 0   gradients are all-reduced once per step: scattered and gathered
             1   gradients are scattered and parameters gathered, once per step
             2   gradients are scattered for every microbatch, parameters gathered once per step
             3   likewise, and parameters are gathered for every F and every backward
        HSDP     n counts the ranks of one group of copies; gradients are then all-reduced between groups

With a pipeline, ZeRO's messages cannot wait for the end of the step. Only messages between copies overlap compute,
layer by layer, as in FSDP and in Megatron with --overlap-grad-reduce. Messages of recomputation are counted in I. Ranks
are numbered t first, then c, d and p; latency is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import TypeAlias, TypeVar

from pipesched.planning.transformer.activations import tokens
from pipesched.planning.transformer.config import Training, Transformer
from pipesched.planning.transformer.devices import Device
from pipesched.planning.transformer.parameters import Counts
from pipesched.planning.transformer.state import copies

Seconds = TypeVar("Seconds", Fraction, float)
Shares: TypeAlias = tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction], Fraction]
"""Seconds per parameter of an all-gather and of a reduce-scatter over the data-parallel copies: of parts without
experts, and of experts; then of the all-gather of a frozen parameter.
"""


@dataclass(frozen=True)
class Traffic:
    """The bytes that a rank sends to the ranks with which it shares a layer, a sequence or experts."""

    tensor: Fraction
    context: Fraction
    experts: Fraction

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.tensor + other.tensor, self.context + other.context, self.experts + other.experts)


NONE = Traffic(Fraction(0), Fraction(0), Fraction(0))


def forward(a: Transformer, x: Training, index: int) -> Traffic:
    """Return the traffic of a layer's F for one microbatch."""
    a = a.at(index)
    n, z, t, c, e = tokens(a, x), a.dtype_bytes, x.tensor, x.context, x.expert
    shared = 2 * (3 if a.encoder else 2) * Fraction(t - 1, t) * n * a.hidden * z
    heads = max(Fraction(a.kv_heads, t), Fraction(1))
    kept = a.latent.key_value + a.latent.rope if a.latent else 2 * a.head_size * heads
    sent = a.experts.per_token if a.experts is not None and a.has_experts(index) else 0
    return Traffic(shared, (c - 1) * n * kept * z, 2 * Fraction(e - 1, e) * n / t * sent * a.hidden * z)


def backward(a: Transformer, x: Training, index: int) -> Traffic:
    """Return the traffic of a layer's I for one microbatch."""
    once = forward(a, x, index)
    back = Traffic(once.tensor, 2 * once.context, once.experts)
    again = {"full": once, "operations": Traffic(once.tensor / 2, NONE.context, NONE.experts)}
    return back + again.get(x.recompute, NONE)


def seconds(x: Training, device: Device, sent: Traffic) -> Fraction:
    """Return the seconds of the traffic: ranks of a layer are adjacent, then ranks of a sequence, then copies."""
    return (
        sent.tensor / link(device, x.tensor)
        + sent.context / link(device, x.tensor * x.context)
        + sent.experts / link(device, max(x.expert, x.tensor))
    )


def link(device: Device, ranks: int) -> Fraction:
    """Return the bandwidth of the slowest group of adjacent ranks: with groups of 3 and nodes of 8, one group spans two
    nodes.
    """
    return device.node if device.node_size % ranks == 0 else device.network


def ring(device: Device, ranks: int, apart: int) -> Fraction:
    """Return the bandwidth of a reduction over ranks that are `apart` devices apart. With k ranks in a node, each of k
    adapters sends 1/k of the bytes out of the node, since NCCL has one ring per adapter.
    """
    if device.node_size % (ranks * apart) == 0:
        return device.node
    return min(device.node, max(1, gcd(ranks * apart, device.node_size) // apart) * device.network)


def exposed(sent: Seconds, beside: Seconds, layers: int) -> Seconds:
    """Return the time that a compute operation waits for messages that overlap it layer by layer: the messages of one
    layer, or the excess of all messages over the compute of the other layers.
    """
    pieces = max(layers, 1)
    return max(sent / pieces, sent - beside * (pieces - 1) / pieces)


def waits(
    copies: tuple[Seconds, Seconds], alone: tuple[Seconds, Seconds, Seconds], layers: int, overlap: Seconds
) -> tuple[Seconds, Seconds, Seconds, Seconds]:
    """Return the time that the messages of `each_microbatch` add to F, I, W and a whole B. alone: times of F, I and W;
    overlap: the share of messages that may overlap them.

    Compute operations wait for parameters layer by layer. Gradients delay only the next gradients, so only the excess
    of their time over the time of a microbatch counts.
    """
    (gather, scatter), (forward, inputs, weights), apart = copies, alone, 1 - overlap
    first, second, whole = (exposed(overlap * gather, time, layers) for time in (forward, inputs, inputs + weights))

    def more(waited: Seconds) -> Seconds:
        return max(0 * waited, overlap * (2 * gather + scatter) - (sum(alone) + first + waited))

    late = apart * gather, apart * gather, apart * scatter
    return late[0] + first, late[1] + second, late[2] + more(second), late[1] + late[2] + whole + more(whole)


def shares(a: Transformer, x: Training, device: Device) -> Shares:
    """Return the seconds of one gather and of one scatter between copies, per parameter on a rank: first a parameter
    outside experts, then a parameter of an expert.
    """
    whole, made = x.tensor * x.context * x.data, list[tuple[Fraction, Fraction]]()
    for of_experts in (False, True):
        n = copies(x, of_experts=of_experts)
        apart = whole // (n * x.replicas)
        share = Fraction(n - 1, n) / ring(device, n, apart)
        scatter = share * x.gradient_bytes
        if x.replicas > 1:
            between = ring(device, x.replicas, apart * n)
            scatter += x.gradient_bytes * Fraction(2 * (x.replicas - 1), n * x.replicas) / between
        made.append((share * (a.dtype_bytes if x.zero else x.gradient_bytes), scatter))
    return made[0], made[1], made[0][0] * (x.zero == 3)


def between_copies(counts: Counts, each: Shares) -> tuple[Fraction, Fraction]:
    """Return the seconds of one gather and of one scatter. each: as `shares`."""
    (gather, scatter), (of_experts, back), frozen = each
    sent = counts[0] * gather + counts[1] * of_experts + counts[2] * frozen
    return sent, counts[0] * scatter + counts[1] * back


def each_microbatch(x: Training, counts: Counts, each: Shares) -> tuple[Fraction, Fraction]:
    """Return the seconds of ZeRO's messages per microbatch: a gather each for F and I, and the scatter for W."""
    gather, scatter = between_copies(counts, each) if x.zero >= 2 else (Fraction(0), Fraction(0))
    return gather if x.zero == 3 else Fraction(0), scatter
