"""Times of a layer's operations by their shape on a device: products, attention, and memory-bound operations.

    product      2 M N K operations at a share of the peak: whole waves of tiles over the multiprocessors, smoothed;
                 K / (K + k0) since the hardware pipeline fills and drains; less if a size is not a multiple of 64; and
                 at least the time to move its bytes
    elementwise  bytes divided by the memory bandwidth: norms, residuals, dropout, rotations, the activation
    attention    two products per score, only the causal half if scores are not stored; stored scores pass memory
    launches     a latency for each kernel
    fp8          products of the layers at twice the 16-bit rate, after a memory-bound cast of their inputs
    messages     bytes divided by a share of the link's rate, plus latency; some kinds partly overlap compute

F, I and W have their own operations: a W has only products, so it takes half to three quarters of the time of an F.
Every operation is rounded to the picosecond, so that sums are whole numbers and the same on every machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from pipesched.planning.transformer.adapters import adapters
from pipesched.planning.transformer.config import OWN, Training, Transformer
from pipesched.planning.transformer.constants import Constants, fitted
from pipesched.planning.transformer.devices import Device
from pipesched.planning.transformer.flops import every_second
from pipesched.planning.transformer.state import copies
from pipesched.planning.transformer.trainers import TRAINERS, Trainer

PICO = 10**12
Picoseconds: TypeAlias = int
TILES = ((256, 128, Fraction(1)), (128, 128, Fraction("0.93")), (128, 64, Fraction("0.8")), (64, 64, Fraction("0.6")))
"""Tile sizes of a matrix product (rows, columns), each with its rate as a share of the largest tile's."""
ALIGNED = 64
EAGER = Fraction("3.5")
"""Ratio of the bytes that torch's own elementwise kernels read and write to the bytes of compiled kernels: 8B on 8 H100
takes 1.157 times as long uncompiled (pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 1).
"""


@dataclass(frozen=True, eq=False)
class Machine:
    """A device with a trainer, and the constants of both."""

    device: Device
    trainer: Trainer
    constants: Constants

    @property
    def memory_rate(self) -> Fraction:
        """The memory bandwidth that elementwise kernels achieve, in bytes per second."""
        return self.device.hbm * self.constants["hbm"]

    @property
    def node_rate(self) -> Fraction:
        """The bandwidth that a collective inside a node achieves, in bytes per second."""
        return self.device.node * self.constants["busbw"]

    @property
    def launch(self) -> Picoseconds:
        """The latency of one kernel."""
        return round(self.constants["launch"] * 10**6)

    @property
    def latency(self) -> Picoseconds:
        """The latency of one message."""
        return round(self.constants["latency"] * 10**6)

    @property
    def host(self) -> Picoseconds:
        """The time that the host spends per layer and microbatch."""
        return round(self.constants[self.trainer.host] * 10**6) if self.trainer.host else 0

    def between(self, zero: int) -> Device:
        """Return the device with the rates that messages between copies reach."""
        rate, inside = self.device.network, self.node_rate
        if zero == 3:
            rate *= self.constants[self.trainer.gathers]
        elif self.trainer.between:
            rate, inside = rate / self.constants[self.trainer.between], inside / self.constants[self.trainer.between]
        return replace(self.device, node=inside, network=min(rate, inside))

    def shown(self, zero: int) -> Fraction:
        """Return the share of the messages between copies that does not overlap compute."""
        if zero == 3:
            return self.constants[f"shown_{self.trainer.name}"]
        return Fraction(0) if self.trainer.overlapped else Fraction(1)


@lru_cache(maxsize=256)
def machine(device: Device, trainer: str, constants: Constants | None = None) -> Machine | None:
    """Return a device with a trainer; None if the device lacks the figures for times by shape. constants: by default
    from the table.
    """
    whole = device.hbm and device.multiprocessors and device.gemm
    return Machine(device, TRAINERS[trainer], constants or fitted()) if whole else None


@lru_cache(maxsize=65536)
def product(m: int, n: int, k: int, count: int, eight: bool, bytes_each: int, on: Machine) -> Picoseconds:
    """Return the time of `count` products of m x k by k x n. eight: whether the products run at the rate of fp8."""
    c, device = on.constants, on.device
    best = Fraction(0)
    for a, b, rate in TILES:
        tiles = -(-m // a) * -(-n // b) * count
        whole = -(-tiles // device.multiprocessors) * device.multiprocessors
        best = max(best, rate * (m * n * count) / ((c["wave"] * whole + (1 - c["wave"]) * tiles) * (a * b)))
    reached = c["gemm_fp8" if eight else device.gemm] * best * k / (k + c["k0"])
    if m % ALIGNED or n % ALIGNED or k % ALIGNED:
        reached *= c["unaligned"]
    peak = device.flops * 2 if eight else device.flops * 2 / max(bytes_each, 2)
    computed = 2 * m * n * k * count / (peak * reached)
    moved = bytes_each * (m * n + m * k + n * k) * count / on.memory_rate
    return round(PICO * max(computed, moved)) + on.launch


@dataclass(frozen=True)
class Layer:
    """Picoseconds of one layer, the embedding or the head, for one microbatch on one rank. again: the time that
    recomputation adds to an I, with its messages.

    tensor, context, experts: messages of a forward that do not overlap compute.
    """

    forward: Picoseconds
    input: Picoseconds
    weights: Picoseconds
    again: Picoseconds = 0
    tensor: Picoseconds = 0
    context: Picoseconds = 0
    experts: Picoseconds = 0


@dataclass
class _Sum:
    """Accumulates times of F, I and W. frozen: whether the matrices have no W."""

    on: Machine
    eight: bool
    bytes_each: int
    frozen: bool = False
    forward: Picoseconds = 0
    input: Picoseconds = 0
    weights: Picoseconds = 0

    def product(self, tokens: int, inner: int, outer: int, count: int = 1, gain: Fraction = Fraction(1)) -> None:
        """Add the times of a linear map, tokens x inner by inner x outer, and of the two products of its backward."""
        way = count, self.eight, self.bytes_each, self.on
        self.forward += round(product(tokens, outer, inner, *way) / gain)
        self.input += round(product(tokens, inner, outer, *way) / gain)
        self.weights += 0 if self.frozen else round(product(inner, outer, tokens, *way) / gain)
        if self.eight:  # the input is read in 16 bits and written in 8 bits, once as it is and once transposed
            self.moved(4 * tokens * inner * count, 4 * tokens * outer * count)

    def moved(self, forward: Fraction | int, input: Fraction | int) -> None:
        """Add the time to read or write these bytes in F and in I."""
        rate = self.on.memory_rate
        self.forward += round(PICO * forward / rate)
        self.input += round(PICO * input / rate)

    def launched(self, forward: int, input: int, weights: int) -> None:
        """Add the latency of these numbers of kernel launches."""
        self.forward += forward * self.on.launch
        self.input += input * self.on.launch
        self.weights += weights * self.on.launch


def token_count(a: Transformer, x: Training) -> int:
    """Return the tokens of a microbatch on one rank."""
    return a.sequence * x.microbatch // x.context


@lru_cache(maxsize=4096)
def layer(a: Transformer, x: Training, on: Machine, *, experts: bool) -> Layer:
    """Return the times of a layer, with experts or without."""
    wide = 4 if a.dtype == "fp32" and not x.autocast else 2
    made = _Sum(on, x.linears == "fp8" or a.dtype == "fp8", wide, frozen=bool(x.lora))
    n, t, h, c = token_count(a, x), x.tensor, a.hidden, on.constants
    _projections(made, a, n, t)
    if a.encoder is not None:
        _cross(made, a, x, n)
    _adapted(made, a, x)
    sent = _experts(made, a, x, n) if experts else 0
    if not experts:
        made.product(n, h, (2 if a.gated else 1) * a.feed_forward // t)
        made.product(n, a.feed_forward // t, h)
    attending = _attention(made, a, x, n)
    before = made.forward
    _elementwise(made, a, x, n, 0 if experts else (6 if a.gated else 4) * a.feed_forward)
    elementwise = made.forward - before
    made.launched(14, 20, 4)
    made.forward += on.host // 3
    made.input += on.host - on.host // 3
    made.weights += _added(a, x, on)
    tensor, ring = _tensor(on, a, x, n * h, made.bytes_each), _ring(on, a, x, n)
    shown = round(sent * c["experts_shown"])
    scores = 0 if x.attention == "flash" else attending  # without scores none are recomputed
    way = 1, made.eight, made.bytes_each, on
    second = sum(product(n, int(outer), int(inner), *way) for inner, outer in every_second(a, t)) + elementwise
    again = {"none": 0, "selective": scores, "full": made.forward + tensor + ring + shown}
    again["operations"] = second + 14 * on.launch + tensor // 2
    return Layer(made.forward, made.input, made.weights, again[x.recompute], tensor=tensor, context=ring, experts=shown)


def _added(a: Transformer, x: Training, on: Machine) -> int:
    """Return the time to add the gradients of a layer to earlier ones, if that is a separate pass."""
    if not on.trainer.adds or x.lora:
        return 0
    held = (a.heads + a.kv_heads) * 2 * a.head_size * a.hidden + a.hidden * a.feed_forward * (3 if a.gated else 2)
    return round(PICO * (10 if x.gradient_bytes > 2 else 6) * Fraction(held, x.tensor) / on.memory_rate)


def _projections(made: _Sum, a: Transformer, n: int, t: int) -> None:
    h, way = a.hidden, a.latent
    if way is None:
        kept = max(a.kv_heads, t)
        made.product(n, h, (a.heads + 2 * kept) * a.head_size // t)
        made.product(n, a.heads * a.head_size // t, h)
        return
    made.product(n, h, way.query + way.key_value + way.rope)
    made.product(n, way.query, a.heads * (way.key + way.rope) // t)
    made.product(n, way.key_value, a.heads * (way.key + way.value) // t)
    made.product(n, a.heads * way.value // t, h)


def _cross(made: _Sum, a: Transformer, x: Training, n: int) -> None:
    """Add the time of attention to an encoder in a layer of the decoder, apart from its scores: q and the projection, k
    and v of the encoder's tokens, a norm, a residual and launches.
    """
    h, t = a.hidden, x.tensor
    made.product(n, h, a.heads * a.head_size // t)
    made.product(token_count(a.at(0), x), h, 2 * max(a.kv_heads, t) * a.head_size // t)
    made.product(n, a.heads * a.head_size // t, h)
    there, back = _moved(a, x)
    width = _width(a, x)
    made.moved(n * width * (there / 2 + Fraction(4 * h, t)), n * width * (back / 2 + Fraction(4 * h, t)))
    made.launched(7, 10, 2)


def _adapted(made: _Sum, a: Transformer, x: Training) -> None:
    """Add the times of LoRA's adapters: the products of A and B, in 16 bits and with their W, and the addition of their
    outputs.
    """
    beside = _Sum(made.on, False, made.bytes_each)
    for one in adapters(a, x, a.layers):
        n, inner, outer = int(one.tokens), int(one.inner), int(one.outer)
        beside.product(n, inner, x.lora)
        beside.product(n, x.lora, outer)
        beside.moved(3 * made.bytes_each * n * outer, 3 * made.bytes_each * n * inner)
    made.forward, made.input = made.forward + beside.forward, made.input + beside.input
    made.weights += beside.weights


def _moved(a: Transformer, x: Training) -> tuple[Fraction, Fraction]:
    """Return the entries per token that two norms, residuals and dropout read or write, in F and in I."""
    whole = a.hidden / Fraction(x.tensor if x.sequence_parallel else 1)
    dropped, norm = 6 if a.dropout else 0, 16 if a.norm == "rms" else 14
    return (norm + dropped) * whole, (28 + dropped) * whole


def _width(a: Transformer, x: Training) -> Fraction:
    """Return the bytes moved per entry, relative to 16-bit entries in fused kernels."""
    return Fraction(max(a.dtype_bytes, 2), 2) * (EAGER if x.kernels in OWN else 1)


def _elementwise(made: _Sum, a: Transformer, x: Training, n: int, act: int) -> None:
    """Add the times of norms, residuals, dropout, rotations, and an activation that reads or writes `act` numbers per
    token.
    """
    h, width, (there, back) = a.hidden, _width(a, x), _moved(a, x)
    made.moved(
        n * width * (there + Fraction(8 * h + act, x.tensor)),
        n * width * (back + (8 * h + Fraction("1.6") * act) / x.tensor),
    )


def _attention(made: _Sum, a: Transformer, x: Training, n: int) -> Picoseconds:
    """Add the time of attention to F and to I; return the time of one forward of attention."""
    on, c, s, t = made.on, made.on.constants, a.tokens, x.tensor
    size = a.head_size if a.latent is None else a.latent.key + a.latent.rope
    device, wide = on.device, Fraction(made.bytes_each, 2)
    peak = device.flops / wide
    if x.attention == "flash":
        flash = c["flash_a100" if device.gemm == "gemm_a100" else on.trainer.flash]
        once = round(PICO * Fraction(2 * n * s * a.heads * size, t) / peak / flash)
        made.input += round(Fraction(5, 2) * once / c["flash_back"])
    else:
        count = Fraction(n * s * a.heads, t)
        even = 1 if size % 8 == 0 else c["unaligned"]
        products = 4 * count * size / (peak * c["scores"] * even)
        there, back = (16, 10) if a.dropout else (6, 8)
        once = round(PICO * (products + wide * count * there / on.memory_rate))
        made.input += round(PICO * (2 * products + wide * count * back / on.memory_rate))
    made.forward += once
    return once


def _experts(made: _Sum, a: Transformer, x: Training, n: int) -> Picoseconds:
    """Add the time of the experts, over which tokens are spread evenly; return the time of a forward's messages to
    experts: the part within a node at the node's rate, the rest at the network's rate.
    """
    assert a.experts is not None
    on, own, h, e, t = made.on, a.experts, a.hidden, x.expert, x.tensor
    c, local = on.constants, max(1, own.count // e)
    mine = max(1, n // t * own.per_token // local)
    made.product(mine, h, (2 if a.gated else 1) * own.size, local, c["grouped"])
    made.product(mine, own.size, h, local, c["grouped"])
    if own.shared:
        made.product(n, h, (2 if a.gated else 1) * own.size * own.shared // t)
        made.product(n, own.size * own.shared // t, h)
    made.product(n, h, own.count)
    routed = n // t * own.per_token
    made.moved(routed * (16 * h + 6 * own.size), routed * (16 * h + 10 * own.size))
    host = round(c["host_experts"] * 10**6)
    made.forward += host
    made.input += host
    if e == 1:
        return 0
    size = on.device.node_size
    inside, outside = min(Fraction(1), Fraction(size, e)) - Fraction(1, e), max(Fraction(0), 1 - Fraction(size, e))
    bytes_sent = made.bytes_each * routed * h
    return 2 * (round(PICO * bytes_sent * (inside / on.node_rate + outside / on.device.network)) + 2 * on.latency)


def _tensor(on: Machine, a: Transformer, x: Training, entries: int, bytes_each: int) -> Picoseconds:
    """Return the time of a forward's all-reduces over the ranks of a layer: two of them, or three with an encoder."""
    t = x.tensor
    if t == 1:
        return 0
    rate = on.node_rate if on.device.node_size % t == 0 else on.device.network
    once = round(PICO * Fraction(2 * (t - 1) * bytes_each * entries, t) / rate) + 2 * on.latency
    hides = x.sequence_parallel and on.device.gemm != "gemm_a100"
    return (2 if a.encoder is None else 3) * (round(once * on.constants["tensor_shown"]) if hides else once)


def _ring(on: Machine, a: Transformer, x: Training, n: int) -> Picoseconds:
    """Return the time that a forward's keys and values take to pass the other ranks of the sequence."""
    if x.context == 1:
        return 0
    kept = Fraction(2 * a.kv_heads * a.head_size, x.tensor) if a.latent is None else a.latent.key_value + a.latent.rope
    rate = on.node_rate if on.device.node_size % (x.tensor * x.context) == 0 else on.device.network
    return round(PICO * 2 * n * kept * (x.context - 1) / rate * on.constants["context_shown"])


@lru_cache(maxsize=1024)
def embedding(a: Transformer, x: Training, on: Machine) -> Layer:
    """Return the times of the embedding: F reads rows, and W adds gradients to them."""
    moved = round(PICO * token_count(a, x) * a.hidden * 2 / on.memory_rate)
    return Layer(2 * moved, 0, 0 if x.lora else 3 * moved)


@lru_cache(maxsize=1024)
def head(a: Transformer, x: Training, on: Machine) -> Layer:
    """Return the times of the head, in 16 bits, and of its loss, cross entropy in fp32."""
    made = _Sum(on, False, 4 if a.dtype == "fp32" and not x.autocast else 2, frozen=bool(x.lora))
    n, size = token_count(a, x), -(-a.vocabulary // x.tensor)
    made.product(n, a.hidden, size)
    made.moved(n * size * 10, n * size * 12)
    return Layer(made.forward, made.input, made.weights)


def message(a: Transformer, x: Training, on: Machine, link: Fraction) -> Picoseconds:
    """Return the time of a message between stages over a link. a: the part of the model to which the stage belongs."""
    cut = x.tensor if x.sequence_parallel or on.trainer.cuts else 1
    count = token_count(a, x) + (token_count(a.at(0), x) if a.encoder else 0)
    sent = Fraction(a.dtype_bytes * count * a.hidden, cut)
    return round(PICO * sent / (link * on.constants["p2p"])) + on.latency


def step_end(count: Fraction, x: Training, on: Machine) -> Picoseconds:
    """Return the time of the optimizer's step over the parameters of a rank."""
    shared = copies(x) if x.zero else 1
    return round(PICO * on.constants["step"] * 30 * count / (on.device.hbm * shared))


@dataclass(frozen=True)
class Stage:
    """Picoseconds of F, I and W for one microbatch on a stage, and their parts: compute, recomputation, messages over
    t, over c and to experts.
    """

    forward: Picoseconds
    input: Picoseconds
    weights: Picoseconds
    parts: tuple[Picoseconds, ...]


def stage(a: Transformer, x: Training, on: Machine, layers: range, *, first: bool, last: bool) -> Stage:
    """Return the times of a stage, from the times of each kind of layer and of its ends."""
    way = replace(x, batch=None, data=1, zero=0, layout=None)
    each = [
        (count, layer(a.at(k), way, on, experts=a.has_experts(k))) for k, count in Counter(map(a.kind, layers)).items()
    ]
    ends = (first, a.at(0), embedding), (a.joins(layers)[1], a, embedding), (last, a, head)
    each += [(1, of(part, way, on)) for held, part, of in ends if held]
    whole = Layer(*(sum(count * getattr(one, field.name) for count, one in each) for field in fields(Layer)))
    there, behind = whole.tensor + whole.context + whole.experts, whole.tensor + 2 * whole.context + whole.experts
    compute = whole.forward + whole.input + whole.weights
    parts = compute, whole.again, 2 * whole.tensor, 3 * whole.context, 2 * whole.experts
    return Stage(whole.forward + there, whole.input + whole.again + behind, whole.weights, parts)
