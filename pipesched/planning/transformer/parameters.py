"""The parameters of a stage, counted by matrix, in total and on one rank.

    embedding        V h, and s h of learned positions        split by t (the vocabulary), not (the positions)
    attention        q h -> a d,  k and v h -> k d,  a d -> h  split by t; a key-value head is on at least one rank
    latent           h -> q' -> a (n + r),  h -> c + r,  c -> a (n + v),  a v -> h
    feed-forward     2 h f, gated 3 h f                       split by t
    experts          the same for each expert, and h E of router   split by e, or by t where e is 1
    norms, and biases added after a sum over t                 on every rank
    encoder          its last norm; each layer of the decoder has a second attention and a third norm

For a GPT, the sum over the layers is, except for the 2 h of the last norm, equation 2 of Narayanan et al., SC 2021: P =
12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from pipesched.planning.transformer import adapters
from pipesched.planning.transformer.config import Latent, Training, Transformer
from pipesched.planning.transformer.rules import layers_of

ALONE = Training()


@dataclass(frozen=True)
class Part:
    """A group of parameters. count, on_rank: their number in the model and on one rank. of_experts: whether they belong
    to experts that ranks share. trained: whether they are trained.
    """

    name: str
    count: int
    on_rank: Fraction
    of_experts: bool = False
    trained: bool = True


def layer(a: Transformer, x: Training, index: int) -> tuple[Part, ...]:
    """Return the parameters of layer `index`, counted from 0."""
    inner = _experts(a, x) if a.has_experts(index) else (_feed_forward(a, x),)
    more = a.more.of_attention + (a.more.of_router if a.has_experts(index) else a.more.of_feed_forward)
    cross = a.at(index).encoder is not None
    other = (replace(_attention(a, x), name="attention to the encoder"),) if cross else ()
    return (_norms(a, a.more.norms + cross, more), _attention(a, x), *other, *inner)


def embedding(a: Transformer, x: Training) -> tuple[Part, ...]:
    """Return the embeddings of the vocabulary and of the positions, including an encoder's."""
    positions = (a.tokens * a.hidden if a.learned_positions else 0) + a.more.of_embedding
    return (_vocabulary("embedding", a, x), Part("positions", positions, Fraction(positions)))


def middle(a: Transformer, x: Training, layers: range) -> tuple[Part, ...]:
    """Return the parameters that a stage with these layers has between an encoder and its decoder: the encoder's last
    norm, and a copy of the embedding if the decoder begins here but the model does not, as in Megatron-LM (core 0.12,
    parallel_state.py: ranks of the embedding).
    """
    ends, begins = a.joins(layers)
    norm = (_norms(a, 1, 0),) if ends else ()
    return (*norm, _vocabulary("embedding", a, x)) if begins and not ends else norm


def head(a: Transformer, x: Training) -> tuple[Part, ...]:
    """Return the last norm, and the matrix of the logits; if tied, the last stage has a copy of the embedding."""
    return (_norms(a, 1, a.more.of_head), _vocabulary("head", a, x))


def by_stage(a: Transformer, x: Training, stages: int) -> tuple[tuple[Part, ...], ...]:
    """Return the parts of each stage. With several stages, a tied head also counts on the last stage. Stages at the
    border between an encoder and its decoder also have the parts of `middle`.

    Raises:
        PipeschedError: PS235.
    """
    made, of = [], {kind: layer(a, x, kind) for kind in {a.kind(0), a.kind(a.layers - 1)}}
    for stage, layers in enumerate(layers_of(a, x, stages)):
        parts = [part for index in layers for part in of[a.kind(index)]]
        first = embedding(a, x) if stage == 0 else ()
        last = head(a, x) if stage == stages - 1 else ()
        between = middle(a, x, layers)
        if a.tied and (stages == 1 or any(part.name == "embedding" for part in between)):
            last = last[:1]
        made.append(_trained(a, x, (*first, *parts, *between, *last), layers))
    return tuple(made)


def _trained(a: Transformer, x: Training, parts: tuple[Part, ...], layers: range) -> tuple[Part, ...]:
    """Return the parts of a stage; with LoRA, also the adapters of its layers, the only trained parameters."""
    if not x.lora:
        return parts
    whole, on_rank = (sum(adapters.count(a, way, i) for i in layers) for way in (replace(x, tensor=1), x))
    return (*(replace(part, trained=False) for part in parts), Part("adapters", int(whole), Fraction(on_rank)))


def trained(a: Transformer, x: Training) -> int:
    """Return the number of trained parameters: all, or only those of LoRA's adapters."""
    (parts,) = by_stage(a, replace(x, tensor=1, layout=None), 1)
    return sum(part.count for part in parts if part.trained)


def total(a: Transformer) -> int:
    """Return the number of parameters of the model, each counted once."""
    every = [*embedding(a, ALONE), *head(a, ALONE)[: 1 if a.tied else 2]]
    every += middle(a, ALONE, range(a.layers))
    for index in range(a.layers):
        every += layer(a, ALONE, index)
    return sum(part.count for part in every)


def active(a: Transformer) -> int:
    """Return the number of parameters that one token uses: among experts, only the shared experts and those that the
    token visits.
    """
    if a.experts is None:
        return total(a)
    idle = (a.experts.count - a.experts.per_token) * _expert(a)
    return total(a) - idle * sum(a.has_experts(index) for index in range(a.layers))


Counts: TypeAlias = tuple[Fraction, Fraction, Fraction]
"""Parameters on one rank: trained outside the experts, trained in the experts, and frozen."""


def on_rank(parts: Sequence[Part], *, of_experts: bool | None = None, trained: bool | None = None) -> Fraction:
    """Return the number of parameters on one rank. of_experts, trained: count only parts with this value; None: any
    value.
    """
    own = [part for part in parts if trained in (None, part.trained)]
    return sum((part.on_rank for part in own if of_experts in (None, part.of_experts)), Fraction(0))


def counts(parts: Sequence[Part]) -> Counts:
    """Return the numbers of parameters on one rank: trained outside experts, trained in experts, and frozen."""
    one, other = (on_rank(parts, of_experts=kind, trained=True) for kind in (False, True))
    return one, other, on_rank(parts, trained=False)


def _norms(a: Transformer, count: int, more: int) -> Part:
    """Return the parameters of `count` norms over the hidden size, and `more` others."""
    each = count * a.hidden * (2 if a.norm == "layer" else 1) + more
    return Part("norms", each, Fraction(each))


def _vocabulary(name: str, a: Transformer, x: Training) -> Part:
    """Return the parameters of a vocabulary matrix; on a rank, of the vocabulary padded to a multiple of t."""
    return Part(name, a.vocabulary * a.hidden, Fraction(-(-a.vocabulary // x.tensor) * a.hidden))


def _attention(a: Transformer, x: Training) -> Part:
    if a.latent is not None:
        return _latent(a, a.latent, x)
    h, queries, keys = a.hidden, a.heads * a.head_size, 2 * a.kv_heads * a.head_size
    kept = max(Fraction(keys, x.tensor), Fraction(2 * a.head_size))
    inside, added = (queries + keys, h) if a.biases else (0, 0)
    count = h * (queries + keys) + queries * h + inside + added
    into = h + (1 if a.biases else 0)
    share = into * (Fraction(queries, x.tensor) + kept) + Fraction(queries * h, x.tensor) + added
    return Part("attention", count, share)


def _latent(a: Transformer, way: Latent, x: Training) -> Part:
    """Return the parameters of latent attention: every rank has the compressing matrices; heads are split."""
    whole = a.hidden * (way.query + way.key_value + way.rope) + way.query + way.key_value
    heads = (
        (way.query or a.hidden) * (way.key + way.rope) + way.key_value * (way.key + way.value) + way.value * a.hidden
    )
    return Part("attention", whole + a.heads * heads, whole + Fraction(a.heads * heads, x.tensor))


def _matrices(a: Transformer, inner: int) -> int:
    return a.hidden * inner * (3 if a.gated else 2)


def _feed_forward(a: Transformer, x: Training) -> Part:
    f = a.feed_forward
    split, added = _matrices(a, f) + (f * (2 if a.gated else 1) if a.biases else 0), a.hidden if a.biases else 0
    return Part("feed-forward", split + added, Fraction(split, x.tensor) + added)


def _expert(a: Transformer) -> int:
    assert a.experts is not None
    return _matrices(a, a.experts.size)


def _experts(a: Transformer, x: Training) -> Iterator[Part]:
    """Yield the parameters of experts, which have no biases; shared ones are split like a feed-forward part."""
    assert a.experts is not None
    count, shared = a.experts.count * _expert(a), a.experts.shared * _expert(a)
    yield Part("router", a.hidden * a.experts.count, Fraction(a.hidden * a.experts.count))
    yield Part("experts", count, Fraction(count, x.expert if x.expert > 1 else x.tensor), of_experts=True)
    if shared:
        yield Part("shared experts", shared, Fraction(shared, x.tensor))
