"""The bytes of parameters, gradients and optimizer state on one rank under ZeRO (Rajbhandari et al. 2020).

    stage    held by each rank; "/ n" is divided by ZeRO                                bytes at 2 + 2 + 8, n = 8
    0        parameters    gradients    optimizer                                              12
    1        parameters    gradients    optimizer / n                                           5
    2        parameters    gradients / n    optimizer / n                                       3.25
    3        parameters / n    gradients / n    optimizer / n                                   1.5

n is d c divided by the number of `replicas` (HSDP): the ranks of one sequence have the same parameters. If e ranks
share the experts, t c d / e ranks hold each expert. A layer computes with all of its parameters, and computes all of
its gradients, before ZeRO divides them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from pipesched.planning.transformer import adapters, parameters
from pipesched.planning.transformer.config import Training, Transformer
from pipesched.planning.transformer.parameters import Part, on_rank
from pipesched.planning.transformer.rules import layers_of
from pipesched.planning.transformer.trainers import TRAINERS


@dataclass(frozen=True)
class State:
    """The bytes of parameters, gradients and optimizer state on one rank."""

    parameters: Fraction
    gradients: Fraction
    optimizer: Fraction

    @property
    def total(self) -> Fraction:
        return self.parameters + self.gradients + self.optimizer

    def __add__(self, other: State) -> State:
        return State(
            self.parameters + other.parameters, self.gradients + other.gradients, self.optimizer + other.optimizer
        )


def state(a: Transformer, x: Training, parts: Sequence[Part], *, whole: bool = False) -> State:
    """Return the state of the given parts on one rank; frozen parts have neither gradients nor optimizer state. whole:
    whether gradients stay unsharded until the last backward.
    """
    found = State(Fraction(0), Fraction(0), Fraction(0))
    for of_experts in (False, True):
        n, kind = copies(x, of_experts=of_experts), {"of_experts": of_experts}
        found += _sharded(a, x, on_rank(parts, trained=True, **kind), n, whole=whole)
        frozen = _sharded(a, x, on_rank(parts, trained=False, **kind), n, whole=whole).parameters
        found += State(frozen, Fraction(0), Fraction(0))
    return found


def copies(x: Training, *, of_experts: bool = False) -> int:
    """Return the number of ranks over which ZeRO divides the state."""
    whole = x.data * x.context // x.replicas
    return whole * x.tensor // x.expert if of_experts and x.expert > 1 else whole


def undivided(a: Transformer, x: Training, stages: int) -> tuple[tuple[Fraction, Fraction], ...]:
    """Return, for each stage, the temporary bytes of its largest layer, of the embedding or of the head: parameters
    under ZeRO 3, and gradients, in a B or a W, under ZeRO 2 and 3.

    DeepSpeed limits both by `stage3_max_live_parameters` and `reduce_bucket_size`, but never below one matrix.
    """
    made, live = [], TRAINERS[x.trainer].live if x.trainer else (0, 0)
    matrix = Fraction(a.hidden * max(a.feed_forward, (a.heads + 2 * a.kv_heads) * a.head_size), x.tensor)
    for stage, layers in enumerate(layers_of(a, x, stages)):
        units = [parameters.layer(a, x, i) for i in {*map(a.kind, layers)}]
        units += [parameters.embedding(a, x)] if stage == 0 else []
        units += [parameters.head(a, x)] if stage == stages - 1 else []
        units += [parameters.middle(a, x, layers)]
        counts = (sum(p.on_rank for p in unit if copies(x, of_experts=p.of_experts) > 1) for unit in units)
        most = Fraction(max(counts, default=0))
        trained = max((adapters.count(a, x, i) for i in layers), default=Fraction(0)) if x.lora else most
        whole, added = (
            min(size, max(matrix, Fraction(number))) if number else size
            for size, number in zip((most, trained), live, strict=True)
        )
        made.append((whole * a.dtype_bytes * (x.zero == 3), added * x.gradient_bytes * (x.zero >= 2)))
    return tuple(made)


def _sharded(a: Transformer, x: Training, count: Fraction, n: int, *, whole: bool) -> State:
    parameters, gradients, optimizer = (n if x.zero >= stage else 1 for stage in (3, 2, 1))
    gradients = 1 if whole else gradients
    return State(
        count * a.dtype_bytes / parameters, count * x.gradient_bytes / gradients, count * x.optimizer_bytes / optimizer
    )
