"""The rules by which a trainer refuses a choice, as rows, and a choice in the form that writers read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from pipesched.model.schedule import Schedule
from pipesched.planning.layouts.space import Choice, Space
from pipesched.planning.transformer.config import Training, Transformer
from pipesched.planning.transformer.rules import layers_of


@dataclass(frozen=True)
class Setup:
    """A choice for one release of a trainer. order: an order that replaces the choice's own."""

    space: Space
    choice: Choice
    release: str
    order: Schedule | None = None

    @property
    def a(self) -> Transformer:
        return self.space.transformer

    @property
    def x(self) -> Training:
        return self.choice.training

    @property
    def copies(self) -> int:
        """The number of ranks that hold the same parameters: d * c."""
        return self.x.data * self.x.context

    @cached_property
    def layers(self) -> tuple[range, ...]:
        """For each stage, the range of its layers."""
        return layers_of(self.a, self.x, self.choice.cut.stages)

    @property
    def even(self) -> bool:
        """True if all stages have equally many layers."""
        return len({*map(len, self.layers)}) == 1

    @property
    def nodes(self) -> int:
        """The number of nodes in the cluster."""
        return -(-self.space.gpus // self.space.node)

    def since(self, release: str) -> bool:
        """Return True if the trainer's release is `release` or a later one."""
        own, first = (tuple(map(int, x.split("."))) for x in (self.release, release))
        return own >= first


@dataclass(frozen=True)
class Rule:
    """A rule that refuses a choice. broken: returns a true value if a `Setup` breaks the rule. says: the reason, a
    format string in which ``x`` is the `Setup`. source: project and file.
    """

    broken: Callable[[Setup], object]
    says: str
    source: str


def first_broken(rules: Iterable[Rule], x: Setup) -> str:
    """Return the reason that the first broken rule states, or an empty string."""
    return next((rule.says.format(x=x) for rule in rules if rule.broken(x)), "")


NOT_WRITTEN = (
    Rule(lambda x: x.a.encoder, "configurations of encoder-decoder models are not written", "interop/launch"),
    Rule(lambda x: x.x.lora, "configurations with LoRA adapters are not written", "interop/launch"),
)


def only_schedules(names: Collection[str], source: str) -> Rule:
    """Return the rule that a trainer runs only these schedules."""
    return Rule(
        lambda x: x.choice.p > 1 and x.choice.schedule not in names, f"it runs only {' and '.join(names)}", source
    )
