"""Floating-point operations of one microbatch through a stage, on one rank.

A matrix with k n entries takes 2 k n per token in the forward, 2 k n for the gradient of its input and 2 k n for its
own gradient. Attention over s tokens takes 2 s^2 per entry of a query-key head and of a value head in the forward,
twice as much for its gradients, and has no weights. For a GPT this is, per layer and b sequences (Narayanan et al., SC
2021, appendix):

    F    24 b s h^2 (1 + s / 6h)      I    24 b s h^2 (1 + s / 3h)      W    24 b s h^2      head    2 b s h V each

    a step with full recomputation: 96 B s l h^2 (1 + s / 6h + V / 16 l h), equation 3

A causal mask saves nothing, as in the paper. Recomputation is part of I: selective, of the scores; by operation, of
every second product; full, of all of F except the head. Norms, activations, dropout and the recomputation inside flash
attention's backward are not counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from pipesched.planning.transformer import adapters
from pipesched.planning.transformer.activations import tokens
from pipesched.planning.transformer.config import Training, Transformer
from pipesched.planning.transformer.rules import layers_of


@dataclass(frozen=True)
class StageFlops:
    """The FLOPs of one microbatch. again: the part of `input` that is recomputation."""

    forward: Fraction
    input: Fraction
    weights: Fraction
    again: Fraction

    @property
    def backward(self) -> Fraction:
        """The FLOPs of B, the sum of I and W."""
        return self.input + self.weights


def by_stage(a: Transformer, x: Training, stages: int) -> tuple[StageFlops, ...]:
    """Return the FLOPs of every stage.

    Raises:
        PipeschedError: PS235.
    """
    made, n = [], tokens(a, x)
    for stage, layers in enumerate(layers_of(a, x, stages)):
        many = Counter(map(a.kind, layers))
        linear = sum((number * products_of(a, x, kind) for kind, number in many.items()), Fraction(0))
        beside = sum((number * adapters.flops(a, x, kind) for kind, number in many.items()), Fraction(0))
        attending = sum((number * attention(a.at(kind), x) for kind, number in many.items()), Fraction(0))
        logits = 2 * n * a.hidden * a.vocabulary / x.tensor if stage == stages - 1 else Fraction(0)
        scores = Fraction(0) if x.attention == "flash" else attending  # without scores none are recomputed
        products = 2 * n * len(layers) * sum(k * outer for k, outer in every_second(a, x.tensor))
        again = {"none": Fraction(0), "selective": scores, "operations": products, "full": linear + beside + attending}
        linear += logits + beside
        back = again[x.recompute]
        made.append(StageFlops(linear + attending, linear + 2 * attending + back, beside if x.lora else linear, back))
    return tuple(made)


def products_of(a: Transformer, x: Training, index: int) -> Fraction:
    """Return the FLOPs of a layer's products in F; keys and values from an encoder's output are counted for the
    encoder's tokens.
    """
    a = a.at(index)
    made = 2 * tokens(a, x) * entries(a, x, index)
    if a.encoder is not None:
        keys = 2 * a.hidden * a.head_size * max(Fraction(a.kv_heads, x.tensor), Fraction(1))
        own = _projections(a, x.tensor) - keys
        made += 2 * tokens(a, x) * own + 2 * tokens(a.at(0), x) * keys
    return made


def entries(a: Transformer, x: Training, index: int) -> Fraction:
    """Return the number of matrix entries by which a token is multiplied in a layer, on one rank."""
    return sum(halves(a, x, index), Fraction(0))


def halves(a: Transformer, x: Training, index: int) -> tuple[Fraction, Fraction]:
    """Return the matrix entries per token separately for attention and for the feed-forward part."""
    return _projections(a, x.tensor), _feed_forward(a, x.tensor, index)


def every_second(a: Transformer, t: int) -> tuple[tuple[Fraction | int, Fraction | int], ...]:
    """Return the rows and columns of the matrices whose products recomputation by operation runs again: k, the
    projection, and the second-to-last matrix of a gated feed-forward part, or the last one without a gate.
    """
    keys, queries, f = a.head_size * max(Fraction(a.kv_heads, t), Fraction(1)), a.heads * a.head_size, a.feed_forward
    return (a.hidden, keys), (Fraction(queries, t), a.hidden), (a.hidden, Fraction(f, t))


def attention(a: Transformer, x: Training) -> Fraction:
    """Return the forward FLOPs of attention, of queries with keys and of scores with values: 4 b s^2 h for a GPT. A
    decoder's queries also attend to the keys of its encoder.
    """
    key, value = (a.head_size, a.head_size) if a.latent is None else (a.latent.key + a.latent.rope, a.latent.value)
    return 2 * tokens(a, x) * a.tokens * a.heads * (key + value) / x.tensor


def of_model(a: Transformer, sequences: int = 1, x: Training = Training()) -> Fraction:  # noqa: B008
    """Return the FLOPs of F, I and W of all layers and the head without recomputation, as MFU counts them. x: the
    training; with LoRA, frozen matrices have no W.
    """
    (whole,) = by_stage(a, Training(microbatch=sequences, lora=x.lora, lora_on=x.lora_on), 1)
    return whole.forward + whole.backward


def _projections(a: Transformer, t: int) -> Fraction:
    h, way = a.hidden, a.latent
    if way is not None:  # every rank has the compressing matrices
        whole = h * (way.query + way.key_value + way.rope)
        heads = (way.query or h) * (way.key + way.rope) + way.key_value * (way.key + way.value) + way.value * h
        return whole + Fraction(a.heads * heads, t)
    kept = max(Fraction(a.kv_heads, t), Fraction(1))
    return Fraction(2 * h * a.heads * a.head_size, t) + 2 * h * a.head_size * kept


def _feed_forward(a: Transformer, t: int, index: int) -> Fraction:
    """Count the matrix entries of the feed-forward part; with experts, count the entries of a token's experts and of
    the router.
    """
    matrices = a.hidden * (3 if a.gated else 2)
    if not a.has_experts(index):
        return Fraction(matrices * a.feed_forward, t)
    assert a.experts is not None
    used = (a.experts.per_token + a.experts.shared) * a.experts.size
    return Fraction(matrices * used, t) + a.hidden * a.experts.count
