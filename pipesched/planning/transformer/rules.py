"""Rules that a transformer and its training must satisfy, as rows (key, condition, message, help); and the layers of
each stage.

In a row `a` is the transformer, `x` its training, `s` the number of stages, None if no schedule is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import TypeAlias

from pipesched.diagnostics import AnyCode, Diagnostic, Label, PipeschedError
from pipesched.planning import toml
from pipesched.planning.codes import PlanningCode
from pipesched.planning.transformer.config import Experts, Training, Transformer
from pipesched.support.source import Span

Says: TypeAlias = Callable[[Transformer, Training, int | None], str]


@dataclass(frozen=True)
class Rule:
    """A rule whose violation is reported at a key of the file. label: the text at the key, by default key and value."""

    key: str
    broken: Callable[[Transformer, Training, int | None], object]
    says: Says
    code: AnyCode = PlanningCode.MODEL_PARALLEL
    label: Says | None = None
    help: Says | None = None

    def told(self, a: Transformer, x: Training, s: int | None) -> Diagnostic:
        """Return the diagnostic at the place of the key."""
        section, _, name = self.key.rpartition(".")
        noun = {"model": a, "model.experts": a.experts, "model.encoder": a.encoder, "training": x}[section]
        said = self.label(a, x, s) if self.label else f"{name} = {getattr(noun, name)}"
        help = self.help(a, x, s) if self.help else None
        return finding(self.code, self.says(a, x, s), self.key, a.places, said, help)


def finding(
    code: AnyCode, message: str, key: str, places: Mapping[str, Span], said: str, help: str | None = None
) -> Diagnostic:
    """Return the diagnostic at the place of a key in the file."""
    return Diagnostic(code, message, (Label(toml.place(key, places), said),), (), help)


_NO_EXPERTS = Experts(0, 0, 0)


def _experts(a: Transformer) -> Experts:
    return a.experts or _NO_EXPERTS


def _split(a: Transformer, x: Training) -> int:
    """Return the inner size of the experts that tensor parallelism splits: all experts, or the shared ones."""
    return _experts(a).size * (1 if x.expert == 1 else _experts(a).shared)


def _encoder(a: Transformer) -> int:
    return a.encoder.layers if a.encoder else 0


def _uncut(a: Transformer, x: Training) -> int:
    """Return the length of the decoder's or encoder's sequence that t does not divide; 0 if t divides both."""
    lengths = (a.sequence // x.context, *([a.encoder.sequence] if a.encoder else ()))
    return next((length for length in lengths if length % x.tensor), 0)


def _mixed(a: Transformer, x: Training) -> bool:
    """Return True if a stage of a layout has layers of both the encoder and the decoder."""
    ends = [*accumulate(x.layout or ())]
    return a.encoder is not None and len(ends) > 1 and a.encoder.layers not in ends


def _stage_ranks(x: Training) -> int:
    return x.tensor * x.context * x.data


RULES = (
    Rule(
        "model.heads",
        lambda a, x, s: a.hidden % a.heads and not a.latent and "model.head_size" not in a.places,
        lambda a, x, s: f"hidden {a.hidden:,} is not divisible by {a.heads} heads",
        PlanningCode.MODEL_SHAPE,
        help=lambda a, x, s: "give head_size if a head has another size",
    ),
    Rule(
        "model.kv_heads",
        lambda a, x, s: a.heads % a.kv_heads,
        lambda a, x, s: f"{a.heads} heads are not divisible by {a.kv_heads} key-value heads",
        PlanningCode.MODEL_SHAPE,
    ),
    Rule(
        "model.experts.per_token",
        lambda a, x, s: _experts(a).per_token > _experts(a).count,
        lambda a, x, s: f"a token goes to {_experts(a).per_token} of {_experts(a).count} experts",
        PlanningCode.MODEL_SHAPE,
    ),
    Rule(
        "model.experts.dense_layers",
        lambda a, x, s: _experts(a).dense_layers > a.layers,
        lambda a, x, s: f"dense_layers is {_experts(a).dense_layers}, more than the {a.layers} layers of the model",
        PlanningCode.MODEL_SHAPE,
    ),
    Rule(
        "model.encoder.layers",
        lambda a, x, s: a.encoder is not None and not a.encoder.layers < a.layers,
        lambda a, x, s: f"the encoder has {_encoder(a)} of {a.layers} layers, which leaves none for the decoder",
        PlanningCode.MODEL_SHAPE,
        help=lambda a, x, s: "model.layers counts the layers of encoder and decoder",
    ),
    Rule(
        "model.encoder.layers",
        lambda a, x, s: a.encoder is not None and (a.experts or a.latent),
        lambda a, x, s: "encoder-decoder models with experts or latent attention are not supported",
        PlanningCode.MODEL_SHAPE,
    ),
    Rule(
        "training.context",
        lambda a, x, s: a.encoder is not None and x.context > 1,
        lambda a, x, s: f"context {x.context}: context parallelism is not supported for encoder-decoder models",
        help=lambda a, x, s: "context = 1",
    ),
    Rule(
        "training.tensor",
        lambda a, x, s: x.tensor > a.heads,
        lambda a, x, s: f"tensor {x.tensor} is more than the {a.heads} heads",
        help=lambda a, x, s: f"use at most {a.heads}",
    ),
    Rule(
        "training.tensor",
        lambda a, x, s: x.tensor <= a.heads and a.heads % x.tensor,
        lambda a, x, s: f"{a.heads} heads are not divisible by tensor {x.tensor}",
    ),
    Rule(
        "training.tensor",
        lambda a, x, s: a.heads % x.tensor == 0 and a.kv_heads % x.tensor and x.tensor % a.kv_heads,
        lambda a, x, s: f"{a.kv_heads} key-value heads and tensor {x.tensor}: neither divides the other",
    ),
    Rule(
        "training.tensor",
        lambda a, x, s: a.feed_forward % x.tensor,
        lambda a, x, s: f"feed_forward {a.feed_forward:,} is not divisible by tensor {x.tensor}",
    ),
    Rule(
        "training.tensor",
        lambda a, x, s: _split(a, x) % x.tensor,
        lambda a, x, s: f"split experts of size {_split(a, x):,} are not divisible by tensor {x.tensor}",
    ),
    Rule(
        "training.recompute",
        lambda a, x, s: x.recompute == "operations" and (a.experts or a.latent or a.encoder or x.lora),
        lambda a, x, s: "recomputation by operation is not supported for experts, latent attention, an encoder or LoRA",
        help=lambda a, x, s: "use none, selective or full",
    ),
    Rule(
        "training.autocast",
        lambda a, x, s: x.autocast and a.dtype != "fp32",
        lambda a, x, s: f"autocast needs parameters in fp32, not {a.dtype}",
        help=lambda a, x, s: 'dtype = "fp32"',
    ),
    Rule(
        "training.context",
        lambda a, x, s: a.sequence % x.context,
        lambda a, x, s: f"sequence {a.sequence:,} is not divisible by context {x.context}",
    ),
    Rule(
        "training.sequence_parallel",
        lambda a, x, s: x.sequence_parallel and a.sequence % x.context == 0 and _uncut(a, x),
        lambda a, x, s: (
            f"sequence parallelism splits {_uncut(a, x):,} tokens over tensor {x.tensor}, which does not divide them"
        ),
    ),
    Rule(
        "training.expert",
        lambda a, x, s: x.expert > 1 and a.experts is None,
        lambda a, x, s: f"expert is {x.expert}, but the model has no experts",
        help=lambda a, x, s: "give model.experts",
    ),
    Rule(
        "training.expert",
        lambda a, x, s: _experts(a).count % x.expert,
        lambda a, x, s: f"{_experts(a).count} experts are not divisible by expert {x.expert}",
    ),
    Rule(
        "training.expert",
        lambda a, x, s: a.experts and a.experts.count % x.expert == 0 and _stage_ranks(x) % x.expert,
        lambda a, x, s: (
            f"expert {x.expert} does not divide the {_stage_ranks(x)} ranks of a stage (tensor x context x data)"
        ),
    ),
    Rule(
        "training.lora",
        lambda a, x, s: x.lora and (a.latent or (a.experts and x.lora_on == "all")),
        lambda a, x, s: "adapters of experts and of latent attention are not supported",
        help=lambda a, x, s: 'with experts lora_on must be "attention" or "qv"',
    ),
    Rule(
        "training.replicas",
        lambda a, x, s: x.data % x.replicas,
        lambda a, x, s: f"{x.data} copies are not divisible by {x.replicas} replicas",
    ),
    Rule(
        "training.replicas",
        lambda a, x, s: x.replicas > 1 and (x.zero == 0 or a.experts or x.replicas == x.data),
        lambda a, x, s: "replicas need ZeRO 1 to 3, several copies each, and a model without experts",
    ),
    Rule(
        "training.data",
        lambda a, x, s: x.batch is not None and x.data * x.microbatch > x.batch,
        lambda a, x, s: (
            f"{x.data} copies of {x.microbatch} {'sequence' if x.microbatch == 1 else 'sequences'} each exceed a "
            f"batch of {x.batch}"
        ),
    ),
    Rule(
        "training.batch",
        lambda a, x, s: x.batch is not None and x.data * x.microbatch <= x.batch and x.batch % (x.data * x.microbatch),
        lambda a, x, s: f"a batch of {x.batch} is not divisible by {x.data} copies of {x.microbatch} each",
    ),
)
STAGES = (
    Rule(
        "model.layers",
        lambda a, x, s: x.layout is None and s is not None and a.layers < s,
        lambda a, x, s: f"{a.layers} layers are too few for {s} stages",
        PlanningCode.MODEL_STAGES,
        help=lambda a, x, s: "give training.layout if stages without a layer are intended",
    ),
    Rule(
        "training.layout",
        lambda a, x, s: x.layout is not None and sum(x.layout) != a.layers,
        lambda a, x, s: f"the layout has {sum(x.layout or ())} layers; the model has {a.layers}",
        PlanningCode.MODEL_STAGES,
        label=lambda a, x, s: f"adds up to {sum(x.layout or ())}",
    ),
    Rule(
        "training.layout",
        lambda a, x, s: x.layout is not None and sum(x.layout) == a.layers and _mixed(a, x),
        lambda a, x, s: f"a stage has layers of both the encoder (the first {_encoder(a)} layers) and the decoder",
        PlanningCode.MODEL_STAGES,
        label=lambda a, x, s: f"no stage ends after layer {_encoder(a)}",
        help=lambda a, x, s: "the first layer of the decoder must be the first layer of a stage, as in Megatron-LM",
    ),
    Rule(
        "training.layout",
        lambda a, x, s: x.layout is not None and s is not None and len(x.layout) != s,
        lambda a, x, s: f"the layout has {len(x.layout or ())} stages; the schedule has {s}",
        PlanningCode.MODEL_STAGES,
        label=lambda a, x, s: f"{len(x.layout or ())} entries",
        help=lambda a, x, s: "one entry per stage",
    ),
)

OF_TRAINING = (*(rule for rule in RULES if rule.key.startswith("training.")), *STAGES)
"""The rules that a model may still break after it is read, if its training is changed."""


def faults(
    a: Transformer, x: Training, stages: int | None = None, rules: tuple[Rule, ...] = (*RULES, *STAGES)
) -> Iterator[Diagnostic]:
    """Return all broken rules: sizes that do not divide evenly, too high a degree of parallelism, too few layers."""
    return (rule.told(a, x, stages) for rule in rules if rule.broken(a, x, stages))


def _counts(a: Transformer, stages: int) -> list[int]:
    """Return the layers of each stage. An encoder and a decoder share the stages in proportion to their layers."""
    if a.encoder is not None and stages > 1:
        first = min(max(round(Fraction(stages * a.encoder.layers, a.layers)), 1), stages - 1)
        one, other = _even(a.encoder.layers, first), _even(a.layers - a.encoder.layers, stages - first)
        return [*reversed(one), *other]
    return _even(a.layers, stages)


def _even(layers: int, stages: int) -> list[int]:
    counts = [-(-layers // stages)] * stages
    for i in range(sum(counts) - layers):
        counts[-1 - i // 2 if i % 2 == 0 else i // 2] -= 1
    return counts


def layers_of(transformer: Transformer, training: Training, stages: int) -> tuple[range, ...]:
    """Return the layers of each stage, counted from 0.

    The first stages belong to an encoder and the rest to its decoder, in proportion to their layers. If the layers do
    not divide evenly, the last stage, then the first, has one layer fewer, to make room for the head and the embedding,
    as in Llama 3.

    Raises:
        PipeschedError: PS235 if the layers cannot be divided among the stages.
    """
    if found := list(faults(transformer, training, stages, STAGES)):
        raise PipeschedError(found)
    counts = list(training.layout or _counts(transformer, stages))
    ends = [sum(counts[: stage + 1]) for stage in range(stages)]
    return tuple(range(end - count, end) for end, count in zip(ends, counts, strict=True))
