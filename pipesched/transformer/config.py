"""A transformer, how it is trained, and what keeps it from being trained so.

Sizes that are not given follow from the others or have the default of Megatron-LM's GPT: biases, dropout, LayerNorm,
learned positions, GeLU, 16-bit weights with fp32 gradients and 12 bytes of optimizer state a parameter (a master copy
and two moments of Adam).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from pipesched import toml
from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError
from pipesched.source import Span

DTYPES: Mapping[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of a number."""


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the feed-forward part of a layer.

    per_token: experts that a token is sent to. size: the inner size of one. shared: experts that every token goes
    through. dense_layers: first layers that have a feed-forward part and no experts.
    """

    count: int
    per_token: int
    size: int
    shared: int = 0
    dense_layers: int = 0


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, section 2.1). query, key_value: the sizes of the compressed vectors.

    rope: the part of a query or key head that has positions. key: the part without. value: the size of a value head.
    """

    query: int
    key_value: int
    rope: int
    key: int
    value: int


@dataclass(frozen=True)
class Transformer:
    """A decoder of equal layers. heads: of queries; kv_heads: of keys and values.

    gated: the feed-forward part has a gate (SwiGLU): three matrices, not two. tied: the head uses the embedding's
    matrix. learned_positions: a vector for each position. dtype_bytes: of a parameter and of an activation. name: of
    the file. places: where each key is written.
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
    experts: Experts | None = None
    latent: Latent | None = None
    tied: bool = False
    learned_positions: bool = True
    biases: bool = True
    dropout: bool = True
    norm: str = "layer"
    dtype: str = "bf16"
    name: str = "model"
    places: Mapping[str, Span] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Sizes that are 0 follow from the others."""
        for key, size in (
            ("kv_heads", self.heads),
            ("head_size", self.hidden // self.heads),
            ("feed_forward", 4 * self.hidden),
        ):
            if not getattr(self, key):
                object.__setattr__(self, key, size)

    @property
    def dtype_bytes(self) -> int:
        """Bytes of a parameter, and of an entry of an activation."""
        return DTYPES[self.dtype]

    def has_experts(self, layer: int) -> bool:
        """Whether a layer, counted from 0, has experts."""
        return self.experts is not None and layer >= self.experts.dense_layers


@dataclass(frozen=True)
class Training:
    """How a transformer is trained. batch: sequences of a step over all copies, None where it is not given.

    optimizer_bytes, gradient_bytes: of one parameter. layout: layers by stage, the embedding on the first stage and the
    head on the last; None: as evenly as possible. keep_outputs: what a stage sends stays until its backward, as in
    torch; else it is freed once it is sent, as in Megatron-LM.
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
    keep_outputs: bool = False

    @property
    def microbatches(self) -> int | None:
        """Of one step of one copy, where the batch is given."""
        return None if self.batch is None else self.batch // (self.data * self.microbatch)


Trained: TypeAlias = tuple[Transformer, Training]
"""What a file holds."""


def layers_of(transformer: Transformer, training: Training, stages: int) -> tuple[range, ...]:
    """The layers of each stage, counted from 0.

    Where they do not divide, the ends have one less, the last stage first, then the first, as Llama 3 does it: the
    embedding and the head are there.

    Raises:
        PipeschedError: PS235, the layers do not go onto so many stages.
    """
    if found := list(_stage_faults(transformer, training, stages)):
        raise PipeschedError(found)
    counts = list(training.layout or [-(-transformer.layers // stages)] * stages)
    if training.layout is None:
        for i in range(sum(counts) - transformer.layers):
            counts[-1 - i // 2 if i % 2 == 0 else i // 2] -= 1
    ends = [sum(counts[: stage + 1]) for stage in range(stages)]
    return tuple(range(end - count, end) for end, count in zip(ends, counts, strict=True))


def finding(
    code: Code, message: str, key: str, places: Mapping[str, Span], said: str, help: str | None = None
) -> Diagnostic:
    """At a key of the file, where it is written."""
    return Diagnostic(code, message, (Label(toml.place(key, places), said),), (), help)


def faults(transformer: Transformer, training: Training, stages: int | None = None) -> Iterator[Diagnostic]:
    """What keeps it from being trained: sizes that do not divide, more of a parallelism than there is to share."""
    for code, key, message, help in _rules(transformer, training):
        last = key.rpartition(".")[2]
        section = transformer if key.startswith("model") else training
        value = getattr(transformer.experts if ".experts." in key else section, last)
        yield finding(code, message, key, transformer.places, f"{last} = {value}", help)
    if stages is not None or training.layout is not None:
        yield from _stage_faults(transformer, training, stages)


def _rules(a: Transformer, x: Training) -> Iterator[tuple[Code, str, str, str | None]]:
    """Code, key, message and help of all that is wrong."""
    shape, parallel = Code.MODEL_SHAPE, Code.MODEL_PARALLEL
    t, c, d, e = x.tensor, x.context, x.data, x.expert
    if a.hidden % a.heads and not a.latent and "model.head_size" not in a.places:
        message = f"hidden {a.hidden:,} does not divide by {a.heads} heads"
        yield shape, "model.heads", message, "give head_size if a head has another size"
    if a.heads % a.kv_heads:
        yield shape, "model.kv_heads", f"{a.heads} heads do not divide by {a.kv_heads} key-value heads", None
    if a.experts and a.experts.per_token > a.experts.count:
        message = f"a token goes to {a.experts.per_token} of {a.experts.count} experts"
        yield shape, "model.experts.per_token", message, None
    if a.experts and a.experts.dense_layers > a.layers:
        message = f"{a.experts.dense_layers} of {a.layers} layers are without experts"
        yield shape, "model.experts.dense_layers", message, None
    if t > a.heads:
        yield parallel, "training.tensor", f"{t} ranks share {a.heads} heads", f"at most {a.heads}"
    elif a.heads % t:
        yield parallel, "training.tensor", f"{a.heads} heads do not divide by tensor {t}", None
    elif a.kv_heads % t and t % a.kv_heads:
        message = f"{a.kv_heads} key-value heads and tensor {t}: neither divides by the other"
        yield parallel, "training.tensor", message, None
    if a.feed_forward % t:
        yield (
            parallel,
            "training.tensor",
            f"feed_forward {a.feed_forward:,} does not divide by tensor {t}",
            None,
        )
    if a.experts and (inner := a.experts.size * (1 if e == 1 else a.experts.shared)) % t:
        yield (
            parallel,
            "training.tensor",
            f"the size {inner:,} of experts that are split does not divide by tensor {t}",
            None,
        )
    if a.sequence % c:
        yield parallel, "training.context", f"sequence {a.sequence:,} does not divide by context {c}", None
    elif x.sequence_parallel and a.sequence // c % t:
        message = f"sequence parallelism cuts {a.sequence // c:,} tokens by tensor {t}, which does not divide them"
        yield parallel, "training.sequence_parallel", message, None
    if e > 1 and a.experts is None:
        yield (
            parallel,
            "training.expert",
            f"expert is {e}, and the model has no experts",
            "give model.experts",
        )
    elif a.experts and a.experts.count % e:
        yield parallel, "training.expert", f"{a.experts.count} experts do not divide by expert {e}", None
    elif t * c * d % e:
        message = f"expert {e} does not divide the {t * c * d} ranks of a stage (tensor x context x data)"
        yield parallel, "training.expert", message, None
    if x.batch is not None and d * x.microbatch > x.batch:
        message = f"{d} copies of {x.microbatch} {'sequence' if x.microbatch == 1 else 'sequences'} each are more than"
        yield parallel, "training.data", f"{message} a batch of {x.batch}", None
    elif x.batch is not None and x.batch % (d * x.microbatch):
        message = f"a batch of {x.batch} does not divide by {d} copies of {x.microbatch} each"
        yield parallel, "training.batch", message, None


def _stage_faults(a: Transformer, x: Training, stages: int | None) -> Iterator[Diagnostic]:
    """PS235: the layers do not go onto the stages."""
    if x.layout is None and stages is not None and a.layers < stages:
        message = f"{a.layers} layers do not go onto {stages} stages"
        help = "give training.layout if stages without a layer are meant"
        yield finding(Code.MODEL_STAGES, message, "model.layers", a.places, f"layers = {a.layers}", help)
    if x.layout is not None and sum(x.layout) != a.layers:
        message = f"the layout has {sum(x.layout)} layers; the model has {a.layers}"
        yield finding(Code.MODEL_STAGES, message, "training.layout", a.places, f"adds up to {sum(x.layout)}")
    if x.layout is not None and stages is not None and len(x.layout) != stages:
        message = f"the layout has {len(x.layout)} stages; the schedule has {stages}"
        yield finding(
            Code.MODEL_STAGES, message, "training.layout", a.places, f"{len(x.layout)} entries", "one entry a stage"
        )
