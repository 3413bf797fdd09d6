"""Megatron's settings in numbers: p, v and m, layers, and the way of posting messages. None: not determined.

m            global_batch_size / (micro_batch_size x replicas), replicas = processes / (p x tensor x context)
v            from the layers per chunk, the chunks per rank, the layout, or the segments of a hybrid pattern
messages     the launcher overlaps them if there are chunks; the core by default posts them in batches
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pipesched.interop.trainers.case import Case
from pipesched.interop.trainers.megatron_keys import (
    ACTIVATIONS,
    BATCHED,
    CHUNKS,
    CP,
    DECODER,
    DECREASE,
    EMBEDDING,
    ENCODER,
    ENCODER_PP,
    ENCODER_TP,
    FLUSH,
    GLOBAL,
    GROUP,
    IN_FIRST,
    IN_LAST,
    LAYERS,
    LAYOUT,
    LOSS,
    MICRO,
    MODULES,
    MOE_RECOMPUTE,
    MTP,
    NO_OVERLAP,
    OLD_FIRST,
    OLD_LAST,
    OLD_PATTERN,
    OVERLAP,
    PATTERN,
    PER_CHUNK,
    PP,
    RAMPUP,
    RECOMPUTE,
    SEQUENCE,
    SHARDS,
    STEPS,
    TP,
    VPP,
)
from pipesched.interop.trainers.settings import Setting, Unset
from pipesched.planning.transformer.megatron_layout import stages_of

_USED = re.compile(r"\$\{?(\w+|[@*])")
_ASSIGNED = re.compile(r"(?:^|[\s;(])(\w+)\+?=|\bfor\s+(\w+)\s+in\b", re.MULTILINE)
_LETTERS: Mapping[str, str] = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


@dataclass(frozen=True)
class Sizes:
    """A case of Megatron in numbers. cli: its settings are options of the launcher."""

    case: Case
    cli: bool

    def __getitem__(self, key: str) -> Setting:
        return self.case.settings(key)

    def on(self, *keys: str) -> bool:
        """True if all of these flags are set."""
        return all(self[key].value is True for key in keys)

    def given(self, *keys: str) -> list[Setting]:
        """Settings of these keys that are in the text with a value other than false and null."""
        return [self[key] for key in keys if self[key].value not in (None, False) and self[key].at is not None]

    def known(self, *keys: str) -> bool:
        """True if all these values are known: each key is in the text and not open, or the text is complete."""
        settings = self.case.settings
        return all((self.complete or key in settings) and not settings.open(key) for key in keys)

    def lacks(self, *keys: str) -> bool:
        """True if it is known that none of these keys has a value other than false and null."""
        return self.known(*keys) and not any(self[key].value not in (None, False) for key in keys)

    def count(self, key: str) -> int | None:
        """Value of a key if it is a whole number from 1, else None."""
        return self.case.settings.count(key)

    def text(self, key: str) -> str:
        """Value of a key if it is a text, else empty."""
        return self.case.settings.text(key) or ""

    def words(self, key: str) -> list[str]:
        """Words of a list, which may also be written as one text."""
        value = self[key].value
        return (
            [str(x) for x in value]
            if isinstance(value, list)
            else str(value or "").strip("[]").replace(",", " ").split()
        )

    @cached_property
    def p(self) -> int:
        """Ranks of the pipeline, 0 if not known."""
        return self.count(PP) or 0

    @cached_property
    def pattern(self) -> str | None:
        """Pattern of the layers of a hybrid model, without the part for multi-token prediction."""
        options = (PATTERN, OLD_PATTERN) if not self.cli or self.case.since("0.17") else ()
        said = next((self.text(key) for key in options if self.text(key)), None)
        return None if said is None else said.partition("/")[0]

    @cached_property
    def segments(self) -> int:
        """Number of segments of a hybrid pattern, 0 without a pattern."""
        return 0 if self.pattern is None else self.pattern.count("|") + 1

    @cached_property
    def layers(self) -> int | None:
        """Number of layers of the model."""
        if self.pattern is not None:
            return len(self.pattern.replace("|", ""))
        return self.count(LAYERS) or self.count(ENCODER)

    @cached_property
    def counted(self) -> int | None:
        """Number of layers, including the embedding and the loss if they count as layers."""
        more = sum(self.on(key) for key in (EMBEDDING, LOSS))
        return None if self.layers is None else self.layers + more

    @cached_property
    def ends(self) -> list[Setting]:
        """Settings that give the layers of the first and of the last stage."""
        return [self[key] for key in (IN_FIRST, OLD_FIRST, IN_LAST, OLD_LAST) if self.count(key)]

    @cached_property
    def as_layers(self) -> list[Setting]:
        """Flags, of those that are set, by which the embedding and the loss count as layers."""
        return self.given(EMBEDDING, LOSS)

    @cached_property
    def middle(self) -> int | None:
        """Number of layers between the first and the last stage, if those are set."""
        ends = sum(self.count(x.key) or 0 for x in self.ends)
        return None if self.counted is None else self.counted - ends

    @cached_property
    def between(self) -> int:
        """Number of ranks whose layers are not set by `ends`."""
        return self.p - len(self.ends)

    @cached_property
    def by_rank(self) -> list[int]:
        """Layers of a rank, for each end that is set and for the ranks between."""
        each = [self.middle // self.between] if self.between > 0 and self.middle is not None else []
        return [*(self.count(x.key) or 0 for x in self.ends), *each]

    @cached_property
    def layout(self) -> list[str] | str | None:
        """Stages of a layout, one text of letters each; or a message if it is wrong."""
        value = self[LAYOUT].value
        if isinstance(value, list):
            rows = [row if isinstance(row, list) else ["?"] for row in value]
            return ["".join(_LETTERS.get(str(x).lower(), "?") for x in row) for row in rows]
        return stages_of(value) if isinstance(value, str) else None

    @cached_property
    def v(self) -> int | None:
        """Stages per rank."""
        if not self.p or self.open(PER_CHUNK, CHUNKS, LAYOUT, VPP, PATTERN, OLD_PATTERN):
            return None
        if isinstance(self.layout, str):
            return None
        stages = len(self.layout or ()) or (self.segments if self.segments > 1 else 0)
        if stages:
            return stages // self.p if stages % self.p == 0 else None
        return self._by_layers if self.count(PER_CHUNK) else self.count(CHUNKS) or self.count(VPP) or 1

    @property
    def _by_layers(self) -> int | None:
        """Stages per rank, from the layers per stage."""
        each = self.p * (self.count(PER_CHUNK) or 1)
        layers = self.counted if self.given(LAYERS) else self.count(DECODER)
        return layers // each if layers and layers % each == 0 else None

    @cached_property
    def replica(self) -> int | None:
        """Number of processes of one copy of the model."""
        tensor, context = self.count(TP), self.count(CP)
        if self.given(SHARDS) or not (self.p and tensor and context):
            return None
        return (self.p * tensor + self.encoder * (self.count(ENCODER_TP) or tensor)) * context

    @cached_property
    def encoder(self) -> int:
        """Number of ranks of the encoder's own pipeline, which come before those of the decoder."""
        return self.count(ENCODER_PP) or 0

    @cached_property
    def replicas(self) -> int | None:
        """Number of copies of the model that share a batch."""
        world = self.case.processes
        return None if world is None or not self.replica or world % self.replica else world // self.replica

    @cached_property
    def at_once(self) -> int | None:
        """Number of samples in one microbatch of all copies together."""
        size = self.count(MICRO)
        return None if size is None or self.replicas is None else size * self.replicas

    @cached_property
    def batch(self) -> int | None:
        """Samples per step; if no batch size is given, the launcher takes one microbatch."""
        if GLOBAL in self.case.settings or STEPS in self.case.settings:
            return None if STEPS in self.case.settings else self.count(GLOBAL)
        return self.at_once if self.complete else None

    @cached_property
    def complete(self) -> bool:
        """True if the text has all options of a run: the model's too, and no variable may add others."""
        text, settings = self.case.settings.source.text, self.case.settings
        model = self.cli and "hidden_size" in settings
        used = {found[1] for found in _USED.finditer(text)} - {found[1] for found in _ASSIGNED.finditer(text)}
        return model and (not used or any(x.written.startswith("MODEL_ARGS") for x in settings))

    @cached_property
    def m(self) -> int | None:
        """Microbatches per step; if the batch grows, those of the final batch size."""
        if not self.at_once or not self.batch:
            return None
        exact = self.batch % self.at_once == 0 or self.on(DECREASE)
        return self.batch // self.at_once if exact else None

    @cached_property
    def grown(self) -> list[int]:
        """Ramp-up of the batch: first size, increment, and number of samples until the full size; or empty."""
        words = self.words(RAMPUP)
        return [int(x) for x in words] if len(words) == 3 and all(x.isdigit() for x in words) else []

    @cached_property
    def overlaps(self) -> bool:
        """True if messages overlap with compute."""
        return (not self.on(NO_OVERLAP) and (self.v or 1) > 1) if self.cli else self.on(OVERLAP)

    @cached_property
    def batched(self) -> bool:
        """True if messages are posted in batches."""
        return not self.overlaps if self.cli else self.on(BATCHED)

    @cached_property
    def flush(self) -> bool:
        """True if messages overlap in warm-up and flush too."""
        return self.on(FLUSH)

    @cached_property
    def group(self) -> int:
        """Microbatches per group of the interleaved order."""
        return self.count(GROUP) or self.p

    @cached_property
    def recompute(self) -> str:
        """Kind of recomputation: ``full``, ``selective``, or empty."""
        selective = (self.cli and self.on(ACTIVATIONS)) or (self.on(MOE_RECOMPUTE) and not self.text(RECOMPUTE))
        return "selective" if selective else self.text(RECOMPUTE)

    @cached_property
    def modules(self) -> list[str]:
        """Modules that selective recomputation computes again."""
        named = self.words(MODULES) if self[MODULES].value is not None else ["core_attn"]
        return [*named, "moe"] if self.on(MOE_RECOMPUTE) else named

    @cached_property
    def sequence(self) -> bool:
        """True for sequence parallelism over the tensor ranks; the launcher turns it off if there is only one."""
        return self.on(SEQUENCE) and not (self.cli and self.case.since("0.10") and self.count(TP) == 1)

    @cached_property
    def predicted(self) -> int:
        """Number of layers for multi-token prediction."""
        return self.case.settings.whole(MTP) or 0

    def open(self, *keys: str) -> bool:
        """True if the text leaves the value of any of these keys open."""
        return any(isinstance(self[key].value, Unset) for key in keys)
