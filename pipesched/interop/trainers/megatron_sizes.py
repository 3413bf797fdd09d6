"""Derives numbers from Megatron's settings: p, v and m, layers, and the way messages are posted. None: not determined.

m            global_batch_size / (micro_batch_size x replicas), replicas = processes / (p x tensor x context)
v            from the layers per chunk, the chunks per rank, the layout, or the segments of a hybrid pattern
messages     the launcher overlaps them if there are chunks; the core by default posts them in batches
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pipesched.interop.trainers import tables
from pipesched.interop.trainers.settings import Settings
from pipesched.planning.transformer.megatron_layout import faults, stages_of

TABLES = tables.read("megatron")
PP = "pipeline_model_parallel_size"
_AS_LAYERS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
_CHUNKS = TABLES.places["chunks"]
_PATTERNS = ("hybrid_layer_pattern", "hybrid_override_pattern")

_USED = re.compile(r"\$\{?(\w+|[@*])")
_ASSIGNED = re.compile(r"(?:^|[\s;(])(\w+)\+?=|\bfor\s+(\w+)\s+in\b", re.MULTILINE)
_LETTERS: Mapping[str, str] = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


@dataclass(frozen=True)
class Sizes(tables.Facts):
    """The numbers of a Megatron case."""

    @cached_property
    def cli(self) -> bool:
        """True if the settings are options of the launcher, not fields of the core's configuration."""
        return is_cli(self.case.settings)

    def known(self, *keys: str) -> bool:
        """Return True if all values are known. If the configuration is not complete, each of the keys must be given."""
        return all((self.complete or self.has(key)) and not self.open(key) for key in keys)

    def lacks(self, *keys: str) -> bool:
        """Return True if it is certain that these keys are all unset, false or null."""
        return self.known(*keys) and not any(self[key].value not in (None, False) for key in keys)

    def words(self, key: str) -> list[str]:
        """Return the words of a list, which may also be written as one string."""
        value = self[key].value
        return (
            [str(x) for x in value]
            if isinstance(value, list)
            else str(value or "").strip("[]").replace(",", " ").split()
        )

    @cached_property
    def p(self) -> int:
        """The number of ranks of the pipeline, 0 if unknown."""
        return self.count(PP) or 0

    @property
    def pipelined(self) -> bool:
        """True if there is a pipeline."""
        return self.p != 1 or self.encoder > 0

    @property
    def size(self) -> int | None:
        """The number of samples in a microbatch."""
        return self.count("micro_batch_size")

    @cached_property
    def pattern(self) -> str | None:
        """The layer pattern of a hybrid model, without the part for multi-token prediction."""
        options = _PATTERNS if not self.cli or self.since("0.17") else ()
        said = next((self.text(key) for key in options if self.text(key)), None)
        return None if said is None else said.partition("/")[0]

    @cached_property
    def segments(self) -> int:
        """The number of segments of a hybrid pattern, 0 without a pattern."""
        return 0 if self.pattern is None else self.pattern.count("|") + 1

    @cached_property
    def layers(self) -> int | None:
        """The number of layers in the model."""
        if self.pattern is not None:
            return len(self.pattern.replace("|", ""))
        return self.count("num_layers") or self.count("encoder_num_layers")

    @cached_property
    def counted(self) -> int | None:
        """The number of layers, including the embedding and the loss if they count as layers."""
        more = sum(self.on(key) for key in _AS_LAYERS)
        return None if self.layers is None else self.layers + more

    @cached_property
    def layout(self) -> list[str] | str | None:
        """The stages of a layout, one string of letters each; or a message if the layout is wrong."""
        value = self["pipeline_model_parallel_layout"].value
        if isinstance(value, list):
            rows = [row if isinstance(row, list) else ["?"] for row in value]
            return ["".join(_LETTERS.get(str(x).lower(), "?") for x in row) for row in rows]
        return stages_of(value) if isinstance(value, str) else None

    @property
    def layout_faults(self) -> list[str]:
        """The faults in a layout, each as a predicate for a message that begins with "the layout"."""
        if self.layout is None or isinstance(self.layout, str):
            return [self.layout] if self.layout else []
        return [*faults(self.layout, self.p, self.layers, self.whole("mtp_num_layers") or 0)] if self.p else []

    @cached_property
    def v(self) -> int | None:
        """The number of stages per rank."""
        if not self.p or self.open(*_CHUNKS) or isinstance(self.layout, str):
            return None
        stages = len(self.layout or ()) or (self.segments if self.segments > 1 else 0)
        if stages:
            return stages // self.p if stages % self.p == 0 else None
        if each := self.count("num_layers_per_virtual_pipeline_stage"):
            layers = self.counted if self.given("num_layers") else self.count("decoder_num_layers")
            return layers // (each * self.p) if layers and layers % (each * self.p) == 0 else None
        said = (self.count("num_virtual_stages_per_pipeline_rank"), self.count("virtual_pipeline_model_parallel_size"))
        return said[0] or said[1] or 1

    @property
    def looped(self) -> bool:
        """True if a rank has several stages."""
        return (self.v or 1) > 1

    @cached_property
    def replica(self) -> int | None:
        """The number of processes of one copy of the model."""
        tensor, context = self.count("tensor_model_parallel_size"), self.count("context_parallel_size")
        if self.given("tensor_parallel_num_weight_shards") or not (self.p and tensor and context):
            return None
        return (self.p * tensor + self.encoder * (self.count("encoder_tensor_model_parallel_size") or tensor)) * context

    @cached_property
    def encoder(self) -> int:
        """The number of ranks of the encoder's own pipeline, which come before the ranks of the decoder."""
        return self.count("encoder_pipeline_model_parallel_size") or 0

    @cached_property
    def replicas(self) -> int | None:
        """The number of copies of the model that share a batch."""
        world = self.case.processes
        return None if world is None or not self.replica or world % self.replica else world // self.replica

    @cached_property
    def at_once(self) -> int | None:
        """The number of samples in one microbatch of all copies together."""
        return None if self.size is None or self.replicas is None else self.size * self.replicas

    @cached_property
    def batch(self) -> int | None:
        """The number of samples per step; without a batch size, the launcher takes one microbatch."""
        if "step_batch_size_schedule" in self.case.settings:
            return None
        if "global_batch_size" in self.case.settings:
            return self.count("global_batch_size")
        return self.at_once if self.complete else None

    @cached_property
    def complete(self) -> bool:
        """True if the configuration has all options of a run, including the model's, and no variable may add others."""
        text, settings = self.case.settings.source.text, self.case.settings
        model = self.cli and "hidden_size" in settings
        used = {found[1] for found in _USED.finditer(text)} - {found[1] for found in _ASSIGNED.finditer(text)}
        return model and (not used or any(x.written.startswith("MODEL_ARGS") for x in settings))

    @cached_property
    def m(self) -> int | None:
        """The number of microbatches per step; if the batch grows, the number for the final batch size."""
        if not self.at_once or not self.batch:
            return None
        exact = self.batch % self.at_once == 0 or self.on("decrease_batch_size_if_needed")
        return self.batch // self.at_once if exact else None

    @cached_property
    def overlaps(self) -> bool:
        """True if messages overlap with compute."""
        return self.looped and not self.on("no_overlap_p2p_communication") if self.cli else self.on("overlap_p2p_comm")

    @cached_property
    def batched(self) -> bool:
        """True if messages are posted in batches."""
        return not self.overlaps if self.cli else self.on("batch_p2p_comm")

    @cached_property
    def flush(self) -> bool:
        """True if messages also overlap in warm-up and flush."""
        return self.on("overlap_p2p_comm_warmup_flush")

    @cached_property
    def group(self) -> int:
        """The number of microbatches per group of the interleaved order."""
        return self.count("microbatch_group_size_per_vp_stage") or self.p


def is_cli(settings: Settings) -> bool:
    """Return True if the settings are options of the launcher, not fields of the core's configuration."""
    return settings.kind == "cli" or any("--" in setting.key for setting in settings)
