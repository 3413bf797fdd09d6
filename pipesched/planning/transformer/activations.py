"""The bytes of each tensor that one microbatch keeps on one rank for its backward.

Korthikanti et al. 2022 (arXiv:2205.05198), section 4, for a GPT with 16-bit activations and dropout, s tokens, b
sequences of a microbatch, hidden size h, a heads, t ranks of tensor parallelism:

    nothing split                  s b h (34 + 5 a s / h)
    tensor                         s b h (10 + 24 / t + 5 a s / (h t))
    tensor, sequence               s b h / t (34 + 5 a s / h)
    selective recomputation        as above, without 5 a s / h
    full recomputation             s b h 2
    recomputation by operation     the layer's input; the outputs of attention and of every second matrix product

34 = 11 (attention) + 19 (feed-forward part) + 4 (two norms). Tensor parallelism without sequence parallelism does not
split 10 of these: the inputs of the norms, of q, k, v and of the feed-forward part, and the dropout masks. Flash
attention stores no scores, so it also omits 5 a s / h; its fp32 sum of each row, 4 a / t bytes per token, is counted if
`kernels` are torch's own. A gated feed-forward part keeps gate, value and their product: 3 f instead of 2 f. Experts
keep these tensors, their input and their output for each token that they receive. Context parallelism leaves s / c
tokens per rank.

Fused kernels (Transformer Engine's or compiled) keep only these tensors. torch's own (`kernels = "eager"`) keep more:
the input of an RMS norm in fp32 and its quotient, keys and values repeated for every query head, and the SiLU of a
gate; on a CPU (`kernels = "cpu"`) also dropout masks in the activations' type. Autocast computes in 16 bits between
norms and residuals in fp32: each product keeps a copy of its input, and each microbatch a copy of every weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from pipesched.planning.transformer import adapters, parameters
from pipesched.planning.transformer.config import OWN, Training, Transformer
from pipesched.planning.transformer.rules import layers_of

SCORES = "attention scores"
INSIDE = "inside"


@dataclass(frozen=True)
class Saved:
    """A saved tensor: its name and its bytes."""

    name: str
    bytes: Fraction


@dataclass(frozen=True)
class StageBytes:
    """The activation bytes of one microbatch on one stage, on one rank.

    saved: kept from F to the backward. alone: the peak during an F that keeps nothing. input: the part of `saved` that
        a recomputed F keeps. stored: kept from I to W, in addition to `saved`. output: the message to the next stage.
    working: the peak of temporary bytes during a B, an I or a W.
    """

    saved: Fraction
    alone: Fraction
    input: Fraction
    stored: Fraction
    working: tuple[Fraction, Fraction, Fraction]


def tokens(a: Transformer, x: Training) -> Fraction:
    """Return the tokens of a microbatch on one rank."""
    return Fraction(a.sequence * x.microbatch, x.context)


def shared_tokens(a: Transformer, x: Training) -> Fraction:
    """Return the tokens on a rank outside attention and feed-forward part, which sequence parallelism divides."""
    return tokens(a, x) / (x.tensor if x.sequence_parallel else 1)


def boundary(a: Transformer, x: Training) -> Fraction:
    """Return the bytes of a message between stages: a layer's input, and in the decoder also the encoder's output,
    which each stage passes on (Megatron-core 0.12, schedules.py, get_tensor_shapes).
    """
    return residual(a, x) + encoded(a, x)


def residual(a: Transformer, x: Training) -> Fraction:
    """Return the bytes of a layer's input: 2 s b h, divided by t under sequence parallelism."""
    return shared_tokens(a, x) * a.hidden * a.dtype_bytes


def encoded(a: Transformer, x: Training) -> Fraction:
    """Return the bytes of an encoder's output, which every layer of the decoder reads; 0 without an encoder."""
    return residual(a.at(0), x) if a.encoder else Fraction(0)


def edges(a: Transformer, x: Training, stages: int) -> list[Fraction]:
    """Return the size in bytes of every stage's message."""
    return [boundary(a.at(layers.start), x) for layers in layers_of(a, x, stages)]


def entry(a: Transformer, x: Training) -> int:
    """Return the bytes per entry of an activation between the norms of a layer."""
    return 2 if x.autocast else a.dtype_bytes


def layer(a: Transformer, x: Training, index: int) -> Fraction:
    """Return the bytes that layer `index`, counted from 0, keeps for one microbatch."""
    measured = x.kept.layer if x.kept else 1
    if x.recompute == "full":
        return residual(a.at(index), x) * measured
    if x.recompute == "operations":
        return _by_operation(a, x) * measured
    found = sum((one.bytes for one in items(a, x, index)), Fraction(0)) + weights(a, x, index)
    return (found - (scores(a.at(index), x) if x.recompute == "selective" else 0)) * measured


def _by_operation(a: Transformer, x: Training) -> Fraction:
    """Return the bytes that torchtitan keeps with `selective_ac_option = "op"`, in a layer without experts: its input,
    q, v, the outputs of attention and of the first matrix of the feed-forward part; the output of a gated layer; and,
    with tensor parallelism, both scattered outputs (torchtitan 0.2.2, distributed/activation_checkpoint.py).
    """
    queries, f, t = a.heads * a.head_size, a.feed_forward, x.tensor
    inside = Fraction(2 * queries + f, t) + a.head_size * max(Fraction(a.kv_heads, t), Fraction(1))
    return tokens(a, x) * entry(a, x) * inside + residual(a, x) * (3 if t > 1 else 2 if a.gated else 1)


def weights(a: Transformer, x: Training, index: int) -> Fraction:
    """Return the bytes of the 16-bit copies of a layer's matrices that autocast makes for each microbatch."""
    parts = parameters.layer(a, x, index) if x.autocast and x.recompute in ("none", "selective") else ()
    return 2 * sum((part.on_rank for part in parts if part.name != "norms"), Fraction(0))


def items(a: Transformer, x: Training, index: int) -> tuple[Saved, ...]:
    """Return the tensors that the forward of a layer makes and its backward reads."""
    of = a.at(index)
    inner = _experts(a, x) if a.has_experts(index) else _feed_forward(of, x, a.feed_forward)
    beside = entry(a, x) * adapters.between(a, x, index)
    return (*_attention(of, x), *inner, *([Saved("between the adapters", beside)] if beside else []))


def scores(a: Transformer, x: Training) -> Fraction:
    """Return 5 a s^2 b / t, the bytes of the softmax's output and dropout's mask and output; 0 with flash attention."""
    if x.attention == "flash":
        return Fraction(0)
    each = entry(a, x) + (_mask_bytes(a, x) + entry(a, x) if a.dropout else 0)
    return tokens(a, x) * a.tokens * each * a.heads / x.tensor


def embedding(a: Transformer, x: Training) -> Fraction:
    """Return the bytes of the dropout mask of the first stage: s b h."""
    return shared_tokens(a, x) * a.hidden * _mask_bytes(a, x) if a.dropout else Fraction(0)


def head(a: Transformer, x: Training) -> Fraction:
    """Return the bytes of the inputs of the last norm and of the head, and of the fp32 logits: 4 s b h / t (1 + V / h),
    section 4.3.
    """
    return 2 * residual(a, x) + logits(a, x, 4)


def logits(a: Transformer, x: Training, size: int) -> Fraction:
    """Return the bytes of the logits, with `size` bytes each."""
    return size * tokens(a, x) * a.vocabulary / x.tensor


def loss(a: Transformer, x: Training) -> Fraction:
    """Return the bytes of gradients that the backward of the loss computes, in addition to the logits that the head
    kept.

    Megatron-LM writes the gradient in place of the logits, and rounds it to the dtype of the model (Megatron-core
    0.16.1, tensor_parallel/cross_entropy.py). torch's cross entropy makes two gradients in fp32, for the chosen logits
    and for all logits.
    """
    return logits(a, x, 8 if x.keep_outputs else a.dtype_bytes)


def stored(a: Transformer, x: Training, index: int) -> Fraction:
    """Return the bytes that a layer keeps from I to W in addition to the saved bytes: the gradient of each weight's
    output.

    This is what torch's split backward keeps: 22 of 34 s b h for a GPT, or 22 of 32 without dropout. On the first stage
    I does nothing, and W is the whole backward. The tensors that I recomputes are kept too, as if they had been saved.
    """
    again = _again(a, x, index) if x.recompute in ("full", "operations") else Fraction(0)
    outputs, a = _outputs(a, x, index), a.at(index)
    h, z = a.hidden, entry(a, x)
    outside = ((6 if a.encoder else 4) * shared_tokens(a, x)) * h * z  # of each norm, attention, feed-forward part
    left = outside + z * (_projected(a, x) + tokens(a, x) * outputs) + again
    if x.lora:  # what adapters compute, and what enters their B
        found = adapters.adapters(a, x, index)
        left = again + z * sum((one.tokens * (one.outer + x.lora) for one in found), Fraction(0))
    return left * (x.kept.stored if x.kept else 1)


def factors(
    a: Transformer, x: Training, stages: int, stage: int, measured: tuple[int, int, int, int]
) -> tuple[Fraction | None, ...]:
    """Return the factors of `Kept` from the measured bytes of one microbatch on a stage: after F, after I, peaks in B
    and I.

    The bytes of a stage outside its layers are subtracted first; the first and last stage determine only the first
    factor.
    """
    plain = replace(x, kept=None)
    one, layers = by_stage(a, plain, stages)[stage], layers_of(a, plain, stages)[stage]
    after, split, most, most_split = measured
    own = sum((layer(a, plain, index) for index in layers), Fraction(0))
    known = [own, one.stored, *one.working[:2]]
    found = [after - (one.saved - own), *map(Fraction, (split - after, most - after, most_split - split))]
    seen = len(found) if 0 < stage < stages - 1 else 1
    ratios = [there / of if of and there > 0 else None for there, of in zip(found, known, strict=True)]
    return tuple(ratio if number < seen else None for number, ratio in enumerate(ratios))


def by_stage(a: Transformer, x: Training, stages: int) -> tuple[StageBytes, ...]:
    """Return the activation bytes of every stage.

    Raises:
        PipeschedError: PS235.
    """
    way, made = replace(x, batch=None, data=1, zero=0, layout=None), list[StageBytes]()
    for stage, layers in enumerate(layers_of(a, x, stages)):
        many = Counter(map(a.kind, layers))
        ends = a.joins(layers)
        made.append(_stage(a, way, tuple(many.items()), ends, first=stage == 0, last=stage == stages - 1))
    return tuple(made)


@lru_cache(maxsize=4096)
def _stage(
    a: Transformer, x: Training, many: tuple[tuple[int, int], ...], joins: tuple[bool, bool], *, first: bool, last: bool
) -> StageBytes:
    """Return the bytes of a stage. many: the kinds of its layers, with the number of layers of each. joins: see
    `Transformer.joins`.
    """
    of = a.at(many[0][0]) if many else a
    edge, zero, ends = boundary(of, x), Fraction(0), logits(a, x, a.dtype_bytes)
    extra = embedding(of, x) * first + embedding(a, x) * joins[1] + head(a, x) * last
    extra += _norm(a.at(0), x) * joins[0] + (encoded(a, x) if of.encoder or joins[1] else zero)
    out = (ends if last else edge) * bool(x.keep_outputs)
    each = [(_of_layer(a, x, kind), number) for kind, number in many]
    saved = sum((number * one.saved for one, number in each), out + extra)
    left = sum((number * one.stored for one, number in each), zero)
    whole, inner = max((one.whole for one, _ in each), default=edge), max((one.inner for one, _ in each), default=zero)
    if last:  # B frees the head's activations before its first layer; I frees the logits at its end
        freed = logits(a, x, 4) + out
        left = max(left + edge + ends - freed, zero)
        whole, inner = max(whole - head(a, x), loss(a, x)), max(inner + freed, loss(a, x) - left)
    alone = max([edge, extra, *(one.most for one, _ in each)])
    if first:
        return StageBytes(saved, alone, zero, zero, (whole, zero, whole))
    return StageBytes(saved, alone, edge, left, (whole, inner, edge))


@dataclass(frozen=True)
class _Layer:
    """The bytes of a layer. saved: kept after F. stored: kept from I to W. most: all that an F makes. whole, inner: the
    temporary bytes of a B and of an I.
    """

    saved: Fraction
    stored: Fraction
    most: Fraction
    whole: Fraction
    inner: Fraction


@lru_cache(maxsize=1024)
def _of_layer(a: Transformer, x: Training, index: int) -> _Layer:
    most = sum((one.bytes for one in items(a, x, index)), Fraction(0))
    return _Layer(layer(a, x, index), stored(a, x, index), most, *_working(a, x, index))


def _again(a: Transformer, x: Training, index: int) -> Fraction:
    """Return the bytes that the recomputation of one layer restores during its backward."""
    whole = sum((one.bytes for one in items(a, x, index)), Fraction(0))
    return whole - layer(a, replace(x, kept=None), index)


def _working(a: Transformer, x: Training, index: int) -> tuple[Fraction, Fraction]:
    """Return the temporary bytes of a B and of an I of a layer: the gradients inside the feed-forward part, or, once
    these are freed, the gradients of the scores before and after the softmax.

    An I stores the other gradients and frees nothing.
    """
    every, again, a = items(a, x, index), _again(a, x, index), a.at(index)
    edge = residual(a, x)
    inside = sum((one.bytes for one in every if one.name.startswith(INSIDE)), Fraction(0))
    freed = sum((one.bytes for one in every), Fraction(0)) - sum((one.bytes for one in _attention(a, x)), Fraction(0))
    size = Fraction(2 * entry(a, x) * a.tokens * a.heads, x.tensor)
    two = size * tokens(a, x) if x.attention == "standard" else Fraction(0)
    late = again if x.recompute == "selective" else Fraction(0)
    whole = max(inside, late + two - freed) + edge + again - late
    split = max(inside / _inside(a, x), late + two)
    return (whole * x.kept.working, split * x.kept.split) if x.kept else (whole, split)


def _attention(a: Transformer, x: Training) -> Iterator[Saved]:
    z, t, n = entry(a, x), x.tensor, tokens(a, x)
    yield Saved("input of the norm before attention", _norm(a, x))
    yield Saved("input of q, k, v", shared_tokens(a, x) * a.hidden * z * (3 if x.autocast else 1))
    if a.latent is not None:  # the compressed vectors, before and after their norms, are on every rank
        yield Saved("compressed vectors", 2 * z * n * (a.latent.query + a.latent.key_value))
    yield Saved("q, k, v", z * _projected(a, x))
    yield Saved(SCORES, scores(a, x))
    if x.attention == "flash" and x.kernels in OWN:
        yield Saved("sums of the scores", 4 * n * a.heads / t)
    value = a.head_size if a.latent is None else a.latent.value
    yield Saved("input of the projection", n * z * a.heads * value / t)
    yield from _mask(a, x)
    if a.encoder is not None:
        yield from _cross(a, x)


def _cross(a: Transformer, x: Training) -> Iterator[Saved]:
    """Yield the other tensors of attention to an encoder; its q, k, v and scores are counted with the tensors of the
    layer. All layers share the encoder's output, of which autocast makes a copy for k and one for v.
    """
    z = entry(a, x)
    yield Saved("input of the norm before attention to the encoder", _norm(a, x))
    yield Saved("input of its q", shared_tokens(a, x) * a.hidden * z)
    if x.autocast:
        yield Saved("copies of the encoder's output", 2 * shared_tokens(a.at(0), x) * a.hidden * z)
    if x.attention == "flash" and x.kernels in OWN:
        yield Saved("sums of its scores", 4 * tokens(a, x) * a.heads / x.tensor)
    yield Saved("input of its projection", tokens(a, x) * z * a.heads * a.head_size / x.tensor)
    yield from _mask(a, x)


def _projected(a: Transformer, x: Training) -> Fraction:
    """Return the number of entries of q, k and v in a layer on a rank; a decoder has a second q, and k and v of the
    encoder.
    """
    own = tokens(a, x) * _heads(a, x)
    if a.encoder is None:
        return own
    queries = Fraction(a.heads * a.head_size, x.tensor)
    return own + tokens(a, x) * queries + tokens(a.at(0), x) * (_heads(a, x) - queries)


def _norm(a: Transformer, x: Training) -> Fraction:
    """Return the bytes that a norm keeps: its input; for torch's RMS norm, the input in fp32, and the quotient."""
    apart = x.kernels in OWN and a.norm == "rms"
    quotient = 0 if x.lora else a.dtype_bytes  # the gradient of a frozen weight does not read it
    return shared_tokens(a, x) * a.hidden * (4 + quotient) if apart else residual(a, x)


def _heads(a: Transformer, x: Training) -> Fraction:
    """Return the number of entries of q, k and v per token on a rank; each key-value head is on at least one rank."""
    t = x.tensor
    if x.kernels in OWN and a.latent is None:
        return Fraction(3 * a.heads * a.head_size, t)
    if a.latent is not None:
        return Fraction(a.heads * (2 * (a.latent.key + a.latent.rope) + a.latent.value), t)
    return Fraction(a.heads * a.head_size, t) + 2 * a.head_size * max(Fraction(a.kv_heads, t), Fraction(1))


def _feed_forward(a: Transformer, x: Training, inner: int) -> Iterator[Saved]:
    z, n, copies = entry(a, x), tokens(a, x), 2 if x.autocast and a.gated else 1
    entering = not x.lora or x.lora_on == "all"  # a frozen matrix without an adapter keeps no input
    yield Saved("input of the norm before the feed-forward part", _norm(a, x))
    yield Saved("input of the feed-forward part", shared_tokens(a, x) * a.hidden * z * copies * entering)
    kept = _inside(a, x) - (not entering and not a.relu)
    yield Saved(f"{INSIDE} the feed-forward part", n * z * inner * kept / x.tensor)
    yield from _mask(a, x)


def _experts(a: Transformer, x: Training) -> Iterator[Saved]:
    """Yield the tensors of experts. Tokens are assumed to be spread evenly: each tensor-parallel rank works on its
    share of the tokens; if e is 1, t splits the experts instead, and every rank has all tokens.
    """
    assert a.experts is not None
    z, k, f, share = entry(a, x), a.experts.per_token, a.experts.size, tokens(a, x) / x.tensor
    yield from _feed_forward(a, x, a.experts.shared * f)
    yield Saved("tokens sent to experts, and their results", 2 * tokens(a, x) / _apart(x) * z * k * a.hidden)
    yield Saved(f"{INSIDE} the experts", share * z * k * f * _inside(a, x))


def _inside(a: Transformer, x: Training) -> int:
    """Count the tensors of the inner size that the feed-forward part keeps: gate, value, product, and torch's SiLU."""
    if not a.gated:
        return 1 if a.relu else 2
    return 4 if x.kernels in OWN else 3


def _apart(x: Training) -> int:
    """Return the number of tensor-parallel ranks that send different tokens to experts."""
    return x.tensor if x.expert > 1 else 1


def _outputs(a: Transformer, x: Training, index: int) -> Fraction:
    """Return the number of entries per token that the first feed-forward matrices compute and that experts return."""
    ways, t = 2 if a.gated else 1, x.tensor
    if not a.has_experts(index):
        return Fraction(ways * a.feed_forward, t)
    assert a.experts is not None
    inside = ways * a.experts.size * (a.experts.shared + a.experts.per_token)
    return Fraction(inside, t) + Fraction(a.experts.per_token * a.hidden, _apart(x))


def _mask(a: Transformer, x: Training) -> Iterator[Saved]:
    if a.dropout:
        yield Saved("dropout mask", shared_tokens(a, x) * a.hidden * _mask_bytes(a, x))


def _mask_bytes(a: Transformer, x: Training) -> int:
    return entry(a, x) if x.kernels == "cpu" else 1
