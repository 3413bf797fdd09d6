"""A transformer and its training, as frozen values; `rules` lists the conditions that they must satisfy.

Sizes that are not given follow from others, or default to Megatron-LM's GPT: biases, dropout, LayerNorm, learned
positions, GeLU, 16-bit weights with fp32 gradients and 12 bytes of optimizer state per parameter (a master copy and two
moments of Adam).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from pipesched.planning.transformer.kept import Kept
from pipesched.support.source import Span

DTYPES: Mapping[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes per number for each dtype."""
OWN = ("eager", "cpu")
"""The values of `Training.kernels` for torch's own kernels, neither fused nor compiled."""
ADAPTED = ("all", "attention", "qv")
"""The matrices of a layer that get LoRA adapters: all; q, k, v and the projection; q and v."""
RECOMPUTE = ("none", "selective", "operations", "full")
"""The values of recompute: a backward recomputes no operations, the scores of attention, every second matrix product as
in torchtitan, or all operations."""


@dataclass(frozen=True)
class Experts:
    """A mixture of experts that replaces the feed-forward part of a layer.

    per_token: experts to which a token is sent. size: the inner size of one expert. shared: experts that every token
    visits. dense_layers: the number of layers at the start that have a feed-forward part instead of experts.
    """

    count: int
    per_token: int
    size: int
    shared: int = 0
    dense_layers: int = 0


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, section 2.1). query, key_value: the sizes of the compressed vectors;
    query is 0 if queries are not compressed.

    rope: the size of the part of a query or key head that carries positions. key: the size of the part without
    positions. value: the size of a value head.
    """

    query: int
    key_value: int
    rope: int
    key: int
    value: int


@dataclass(frozen=True)
class Encoder:
    """An encoder in front of the decoder, as in T5: the model's first layers. sequence: the encoder's tokens per
    sequence; 0 means as many as the decoder's.

    The decoder's layers also attend to the encoder's output, between their attention and their feed-forward part.
    """

    layers: int
    sequence: int = 0


@dataclass(frozen=True)
class More:
    """Parameters that the usual layer lacks, such as biases and norms of some models; every rank has all of them.

    of_attention, of_feed_forward, of_router: parameters per layer, the last two for layers without and with experts.
    of_embedding, of_head: parameters of the first and of the last stage. norms: the number of norms in a layer.
    """

    of_attention: int = 0
    of_feed_forward: int = 0
    of_router: int = 0
    of_embedding: int = 0
    of_head: int = 0
    norms: int = 2


@dataclass(frozen=True)
class Transformer:
    """A decoder of equal layers, or an encoder and a decoder; `layers` counts both. heads: the number of query heads;
    kv_heads: the number of key-value heads.

    gated: the feed-forward part has a gate (SwiGLU): three matrices, not two. relu: its activation is ReLU, whose
    backward reads only its output. tied: the head uses the embedding's matrix. learned_positions: whether each position
    has a learned vector. dtype_bytes: bytes of a parameter and of an activation. more: parameters that the usual layer
    lacks. name: the name of the file. left_out: features of the model that are not counted. places: the place of each
    key in the file.
    """

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    sequence: int
    kv_heads: int = 0
    head_size: int = 0
    feed_forward: int = 0
    gated: bool = False
    relu: bool = False
    experts: Experts | None = None
    latent: Latent | None = None
    encoder: Encoder | None = None
    tied: bool = False
    learned_positions: bool = True
    biases: bool = True
    dropout: bool = True
    norm: str = "layer"
    dtype: str = "bf16"
    more: More = More()
    name: str = "model"
    left_out: tuple[str, ...] = ()
    places: Mapping[str, Span] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Derive sizes that are 0 from the other sizes."""
        for key, size in (
            ("kv_heads", self.heads),
            ("head_size", self.hidden // self.heads),
            ("feed_forward", 4 * self.hidden),
        ):
            if not getattr(self, key):
                object.__setattr__(self, key, size)
        if self.encoder is not None and not self.encoder.sequence:
            object.__setattr__(self, "encoder", replace(self.encoder, sequence=self.sequence))

    @property
    def dtype_bytes(self) -> int:
        """The number of bytes of a parameter, and of an activation's entry."""
        return DTYPES[self.dtype]

    def has_experts(self, layer: int) -> bool:
        """Return True if a layer, counted from 0, has experts."""
        return self.experts is not None and layer >= self.experts.dense_layers

    def kind(self, layer: int) -> int:
        """Return the index, counted from 0, of the first layer with the same sizes as the given layer."""
        if self.encoder is not None:
            return self.encoder.layers if layer >= self.encoder.layers else 0
        return self.experts.dense_layers if self.experts is not None and self.has_experts(layer) else 0

    @property
    def tokens(self) -> int:
        """The tokens of a sequence, in encoder and decoder together."""
        return self.sequence + (self.encoder.sequence if self.encoder else 0)

    @property
    def length(self) -> str:
        """The tokens of a sequence as text: ``2,048``, with an encoder ``512 + 128``."""
        return f"{self.encoder.sequence:,} + {self.sequence:,}" if self.encoder else f"{self.sequence:,}"

    def at(self, layer: int) -> Transformer:
        """Return the transformer that a layer, counted from 0, belongs to: the encoder alone, or the whole model."""
        return self if self.encoder is None or layer >= self.encoder.layers else _encoder(self)

    def joins(self, layers: range) -> tuple[bool, bool]:
        """Return whether these layers contain the encoder's last layer, and whether the decoder's first layer."""
        last = self.encoder.layers - 1 if self.encoder else -2
        return last in layers, last + 1 in layers


@lru_cache(maxsize=64)
def _encoder(a: Transformer) -> Transformer:
    assert a.encoder is not None
    return replace(a, layers=a.encoder.layers, sequence=a.encoder.sequence, encoder=None)


@dataclass(frozen=True)
class Training:
    """The training of a transformer. batch: sequences per step over all copies, None if not given.

    optimizer_bytes, gradient_bytes: bytes per parameter. layout: the number of layers of each stage, with the embedding
    on the first stage and the head on the last; None: as even as possible. keep_outputs: the output of a stage is kept
    until its backward, as in torch; otherwise it is freed once it is sent, as in Megatron-LM; None: as the trainer
    does. trainer: a row of `trainers`, whose reserve and host time are used; empty if not given. linears: "fp8" if the
    products of the layers run at twice the 16-bit rate; their bytes still follow `dtype`. kernels: fused (Transformer
    Engine's, or compiled), eager (torch's own) or cpu (torch's own on a CPU). autocast: whether parameters are in fp32
    and products in 16 bits. replicas: the number of groups of copies; ZeRO divides inside a group (HSDP). lora: the
    rank of LoRA's adapters, the only trained parameters; 0: all parameters are trained. lora_on: the matrices with
    adapters, one of `ADAPTED`. kept: measured factors for bytes.
    """

    microbatch: int = 1
    batch: int | None = None
    tensor: int = 1
    sequence_parallel: bool = False
    context: int = 1
    data: int = 1
    expert: int = 1
    zero: int = 0
    recompute: str = "none"
    attention: str = "flash"
    optimizer_bytes: Fraction = Fraction(12)
    gradient_bytes: Fraction = Fraction(4)
    layout: tuple[int, ...] | None = None
    keep_outputs: bool | None = None
    trainer: str = ""
    linears: str = ""
    kernels: str = ""
    autocast: bool = False
    replicas: int = 1
    lora: int = 0
    lora_on: str = "all"
    kept: Kept | None = None

    @property
    def microbatches(self) -> int | None:
        """The microbatches per step of one copy; None without a batch."""
        return None if self.batch is None else self.batch // (self.data * self.microbatch)


Trained: TypeAlias = tuple[Transformer, Training]
"""The model of a file."""
