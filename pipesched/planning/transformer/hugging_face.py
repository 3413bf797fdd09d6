"""A transformer from the ``config.json`` of Hugging Face: each family of models is a row.

A row has the keys of the sizes, the properties of all models of the family (gate, biases, norms), and the parameters
that the usual layer lacks (`config.More`). An unknown family, or a setting that would change a counted figure, is
refused with a message that names it; features that change no parameter and are not counted are listed.

Source: transformers, models/*/configuration_*.py and modeling_*.py, v4.57; absent keys have their family's defaults.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeAlias

from pipesched.diagnostics import Label, PipeschedError, budgeted, fail
from pipesched.planning import toml
from pipesched.planning.codes import PlanningCode
from pipesched.support.foreign import json_of
from pipesched.support.source import Source, Span

Config: TypeAlias = Mapping[str, object]
Counts: TypeAlias = Mapping[str, int]
"""The integer settings of a configuration, with the head size and the number of key-value heads."""


@dataclass(frozen=True)
class Family:
    """A family of models. keys: the family's key for each of our sizes, if it differs from `_USUAL`. always: our keys
    with a value that is the same in all models of the family. more: returns the parameters that the usual layer lacks.
    defaults: values of absent keys.

    experts, latent: whether layers have experts, or latent attention.
    """

    always: Mapping[str, object]
    more: Callable[[Counts], Mapping[str, int]] = lambda x: {}
    keys: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    experts: Mapping[str, str] | None = None
    latent: bool = False


_USUAL = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
    "feed_forward": "intermediate_size",
    "vocabulary": "vocab_size",
    "sequence": "max_position_embeddings",
    "tied": "tie_word_embeddings",
}
_GPT2 = {
    "layers": "n_layer",
    "hidden": "n_embd",
    "heads": "n_head",
    "feed_forward": "n_inner",
    "sequence": "n_positions",
}
_LLAMA = {"gated": True, "norm": "rms", "biases": False, "learned_positions": False, "dropout": False}
_GPT = {"gated": False, "norm": "layer", "biases": True, "learned_positions": False, "dropout": False}
_PLAIN = {"gated": False, "norm": "layer", "biases": False, "learned_positions": False, "dropout": False}
_MOE = {"count": "num_experts", "per_token": "num_experts_per_tok", "size": "moe_intermediate_size"}
_DEEPSEEK = {
    "count": "n_routed_experts",
    "per_token": "num_experts_per_tok",
    "size": "moe_intermediate_size",
    "shared": "n_shared_experts",
    "dense_layers": "first_k_dense_replace",
}
_LATENT = {
    "query": "q_lora_rank",
    "key_value": "kv_lora_rank",
    "rope": "qk_rope_head_dim",
    "key": "qk_nope_head_dim",
    "value": "v_head_dim",
}


def _projected(x: Counts) -> int:
    """Return the number of entries of q, k and v per token, which is the number of their biases."""
    return (x["heads"] + 2 * x["kv_heads"]) * x["head_size"]


def _llama(x: Counts) -> Mapping[str, int]:
    whole = _projected(x) + x["hidden"] if x["attention_bias"] else 0
    return {"of_attention": whole, "of_feed_forward": (2 * x["feed_forward"] + x["hidden"]) * x["mlp_bias"]}


def _by_head(x: Counts) -> Mapping[str, int]:
    """Count the parameters of query and key norms whose weight all heads share, and of the attention biases, if any."""
    return {"of_attention": 2 * x["head_size"] + (_projected(x) + x["hidden"]) * x["attention_bias"]}


def _over_heads(x: Counts) -> Mapping[str, int]:
    """Count the parameters of norms over all queries and over all keys of a token."""
    return {"of_attention": (x["heads"] + x["kv_heads"]) * x["head_size"]}


def _falcon(x: Counts) -> Mapping[str, int]:
    two = not x["parallel_attn"] or (x["new_decoder_architecture"] and x["num_ln_in_parallel_attn"] != 1)
    return {"norms": 2 if two else 1}


_T5 = Family(
    {**_LLAMA, "dropout": True},
    lambda x: {"of_embedding": 2 * x["relative_attention_num_buckets"] * x["heads"]},
    keys={
        "layers": "num_layers",
        "hidden": "d_model",
        "heads": "num_heads",
        "head_size": "d_kv",
        "feed_forward": "d_ff",
        "sequence": "n_positions",
    },
    defaults={"tie_word_embeddings": True, "n_positions": 512, "relative_attention_num_buckets": 32},
)
FAMILIES: Mapping[str, Family] = {
    "llama": Family(_LLAMA, _llama),
    "mistral": Family(_LLAMA),
    "qwen2": Family(_LLAMA, lambda x: {"of_attention": _projected(x)}),
    "qwen3": Family(_LLAMA, _by_head),
    "gemma": Family(_LLAMA, defaults={"tie_word_embeddings": True, "head_dim": 256}),
    "gemma2": Family(_LLAMA, lambda x: {"norms": 4}, defaults={"tie_word_embeddings": True, "head_dim": 256}),
    "olmo2": Family(_LLAMA, _over_heads),
    "phi3": Family(_LLAMA),
    "phi": Family(_GPT, lambda x: {"norms": 1, "of_head": x["vocabulary"]}),
    "starcoder2": Family(_GPT, defaults={"use_bias": True, "tie_word_embeddings": True}),
    "gpt_neox": Family(_GPT),
    "gpt2": Family(
        {**_GPT, "learned_positions": True, "dropout": True}, keys=_GPT2, defaults={"tie_word_embeddings": True}
    ),
    "opt": Family(
        {**_GPT, "learned_positions": True, "dropout": True},
        lambda x: {"of_embedding": 2 * x["hidden"]},
        keys={"feed_forward": "ffn_dim"},
        defaults={"tie_word_embeddings": True},
    ),
    "bloom": Family(
        _GPT,
        lambda x: {"of_embedding": 2 * x["hidden"]},
        keys={**_GPT2, "sequence": "seq_length"},
        defaults={"tie_word_embeddings": True, "seq_length": 2048},
    ),
    "falcon": Family(
        _PLAIN,
        _falcon,
        keys={"kv_heads": "num_kv_heads"},
        defaults={"tie_word_embeddings": True, "max_position_embeddings": 2048, "parallel_attn": True},
    ),
    "mixtral": Family(
        _LLAMA, experts={"count": "num_local_experts", "per_token": "num_experts_per_tok", "size": "intermediate_size"}
    ),
    "olmoe": Family(
        _LLAMA,
        _over_heads,
        experts={"count": "num_experts", "per_token": "num_experts_per_tok", "size": "intermediate_size"},
    ),
    "qwen2_moe": Family(
        _LLAMA,
        lambda x: {"of_attention": _projected(x), "of_router": x["hidden"]},
        experts={**_MOE, "shared": "shared_expert_intermediate_size"},
    ),
    "qwen3_moe": Family(_LLAMA, _by_head, experts=_MOE),
    **dict.fromkeys(("t5", "mt5"), _T5),
    "deepseek_v2": Family(_LLAMA, experts=_DEEPSEEK, latent=True, defaults={"q_lora_rank": 0}),
    "deepseek_v3": Family(_LLAMA, lambda x: {"of_router": x["n_routed_experts"]}, experts=_DEEPSEEK, latent=True),
}
"""Model families by their ``model_type``."""

_HYBRID = "has layers that are not attention"
_TWO = "has an encoder and a decoder whose form differs from T5's"
_SEES = "has an encoder for images or sound: give the config.json of its text model"
UNCOUNTED: Mapping[str, str] = {
    **dict.fromkeys(("umt5", "longt5", "bart", "mbart", "pegasus", "marian", "whisper", "m2m_100"), _TWO),
    **dict.fromkeys(("mamba", "mamba2", "jamba", "zamba", "zamba2", "bamba", "falcon_h1", "nemotron_h"), _HYBRID),
    **dict.fromkeys(("qwen3_next", "recurrent_gemma", "granitemoehybrid", "lfm2", "minimax", "rwkv"), _HYBRID),
    **dict.fromkeys(("llava", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "mllama", "llama4", "gemma3", "idefics3"), _SEES),
}
"""Families that are refused, with the reason."""

_CHANGES: tuple[tuple[str, Callable[[object, Config], object], str], ...] = (
    ("is_encoder_decoder", lambda x, all: x is True and all.get("model_type") not in ("t5", "mt5"), _TWO),
    ("text_config", lambda x, all: isinstance(x, dict), _SEES),
    ("vision_config", lambda x, all: isinstance(x, dict), _SEES),
    ("decoder_sparse_step", lambda x, all: x not in (None, 1), "has experts in only some layers"),
    ("mlp_only_layers", lambda x, all: x, "has experts in only some layers"),
    ("moe_layer_freq", lambda x, all: x not in (None, 1), "has experts in only some layers"),
    ("qk_layernorm", lambda x, all: x is True, "has norms of queries and keys"),
    (
        "word_embed_proj_dim",
        lambda x, all: x not in (None, all.get("hidden_size")),
        "has an embedding size of its own",
    ),
    ("do_layer_norm_before", lambda x, all: x is False, "has its norms after attention"),
    ("add_cross_attention", lambda x, all: x is True, "has attention to an encoder"),
    ("multi_query", lambda x, all: x is True and all.get("model_type") != "falcon", "has one head of keys and values"),
)
"""Settings that change a counted figure: the key, the values with this effect, and the feature of the model."""

_LEFT_OUT: tuple[tuple[str, Callable[[object], object], str], ...] = (
    ("num_nextn_predict_layers", lambda x: isinstance(x, int) and x > 0, "layers of multi-token prediction"),
    ("sliding_window", lambda x: isinstance(x, int), "attention within a window is counted over the whole sequence"),
    ("quantization_config", lambda x: isinstance(x, dict), "weights are counted as they are trained, not quantized"),
)
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_FLAGS = ("attention_bias", "mlp_bias", "new_decoder_architecture", "parallel_attn")


def recognized(text: str) -> bool:
    """Return True if text is JSON, not TOML."""
    return text.lstrip()[:1] == "{"


_SIZES = ("layers", "hidden", "heads", "vocabulary", "sequence")
_OPTIONAL = ("shared", "dense_layers")


def _inner(found: dict[str, object], given: Mapping[str, object], family: Family) -> list[str]:
    """Add the values of experts and of latent attention; return the keys that are missing."""
    missing: list[str] = []
    for section, names in {"experts": family.experts or {}, "latent": _LATENT if family.latent else {}}.items():
        found |= {f"model.{section}.{name}": given[key] for name, key in names.items() if key in given}
        missing += [key for name, key in names.items() if key not in given and name not in _OPTIONAL]
    return missing


def values(source: Source, others: Mapping[str, object]) -> tuple[dict[str, object], dict[str, Span], tuple[str, ...]]:
    """Return the values that an equivalent TOML file would contain, their places, and the features that are not
    counted. others: values given in addition to the file, which can then omit them.

    Raises:
        PipeschedError: PS230: the text is not JSON; PS232: a size is missing; PS233: a size has a wrong value; PS251:
        the model has a feature that is not counted.
    """
    config = _parsed(source)
    kind = str(config.get("model_type"))
    _require_counted(source, config, kind)
    family = FAMILIES[kind]
    given = {**family.defaults, **{key: value for key, value in config.items() if value is not None}}
    keys = {**_USUAL, **family.keys}
    found = {f"model.{name}": given[key] for name, key in keys.items() if key in given}
    found |= {f"model.{name}": value for name, value in family.always.items()}
    _completed(found, given, kind)
    found |= {f"model.{name}": others[f"model.{name}"] for name in _USUAL if f"model.{name}" in others}
    _require_whole(source, kind, found, keys, _inner(found, given, family))
    _require_counts(source, found)
    _shared(source, found)
    counts = _counts(found, given)
    found |= {f"model.more.{name}": count for name, count in family.more(counts).items()}
    unused = {"sliding_window"} if given.get("use_sliding_window") is False else set()
    left = tuple(f"{key}: {says}" for key, when, says in _LEFT_OUT if when(given.get(key)) and key not in unused)
    places = {f"model.{name}": at for name, key in keys.items() if (at := _place(source, key))}
    return found, places, left


def _require_whole(source: Source, kind: str, found: Config, keys: Mapping[str, str], inner: Sequence[str]) -> None:
    """Raise PS232 if a size is missing; without a gate, the inner size defaults to four times the hidden size."""
    sizes = (*_SIZES, "feed_forward") if found["model.gated"] else _SIZES
    missing = {keys[name]: name for name in sizes if f"model.{name}" not in found}
    if every := [*missing, *inner]:
        message = f"{source.name} lacks {', '.join(every)}, which a {kind} model has"
        beside = f", or add the size to its name, as in {source.name},{next(iter(missing.values()), '')}=…"
        raise fail(PlanningCode.MODEL_MISSING, message, help=f"give the whole config.json{beside * bool(missing)}")


def _parsed(source: Source) -> dict[str, object]:
    try:
        with budgeted(source):
            config = json_of(source.text)
    except json.JSONDecodeError as error:
        raise toml.broken(
            source, PlanningCode.MODEL_SYNTAX, "JSON", error.msg[:1].lower() + error.msg[1:], error.lineno, error.colno
        ) from None
    except ValueError as error:
        raise toml.broken(source, PlanningCode.MODEL_SYNTAX, "JSON", str(error), 1, 1) from None
    if not isinstance(config, dict):
        raise fail(PlanningCode.MODEL_SYNTAX, f"{source.name} is not a config.json: its top level is not a JSON object")
    return config


def _require_counted(source: Source, config: Config, kind: str) -> None:
    """Raise PS251 if the family is unknown, or a setting would change a counted figure."""
    if kind not in FAMILIES:
        says = UNCOUNTED.get(kind)
        message = f"{says}, which is not counted" if says else "belongs to an unknown family"
        near = get_close_matches(kind, FAMILIES, 1, 0.7)
        known = f"families are {', '.join(FAMILIES)}; for another model give a .toml file"
        raise _uncounted(source, "model_type", kind, message, f"did you mean {near[0]}?" if near else known)
    for key, changes, says in _CHANGES:
        if key in config and changes(config[key], config):
            raise _uncounted(source, key, config[key], f"{says}, which is not counted", "give a .toml file")


def _uncounted(source: Source, key: str, value: object, message: str, help: str) -> PipeschedError:
    label = Label(_place(source, key), f"{key} is {str(value)[:40]}")
    return fail(PlanningCode.MODEL_UNCOUNTED, f"{source.name} {message}", label, help=help)


def _place(source: Source, key: str) -> Span | None:
    """Return the place of a key in the text, None if the key is absent."""
    at = source.text.find(f'"{key}"')
    return source.span(at, at + len(key) + 2) if at >= 0 else None


def _completed(found: dict[str, object], given: Config, kind: str) -> None:
    """Add values that follow from other keys: the dtype, and the sizes that a family leaves to its class."""
    dtype = str(given.get("dtype", given.get("torch_dtype", "bfloat16")))
    found["model.dtype"] = _DTYPES.get(dtype, "bf16")
    found.setdefault("model.tied", False)
    if kind == "falcon" and not given.get("new_decoder_architecture"):
        found["model.kv_heads"] = 1 if given.get("multi_query", True) else found.get("model.heads", 1)
    if kind in ("t5", "mt5") and isinstance(encoder := found.get("model.layers"), int):
        decoder = given.get("num_decoder_layers", encoder)
        found["model.layers"] = encoder + decoder if isinstance(decoder, int) else decoder
        found["model.encoder.layers"] = encoder
        inside = str(given.get("feed_forward_proj", "relu"))
        found |= {"model.gated": inside.startswith("gated"), "model.relu": inside == "relu"}
    if kind in ("bloom", "falcon"):
        found.pop("model.feed_forward", None)  # four times the hidden size
    if kind.startswith("deepseek"):
        for name in ("kv_heads", "head_size"):
            found.pop(f"model.{name}", None)
    if kind == "phi3":
        found.pop("model.head_size", None)


def _require_counts(source: Source, found: Config) -> None:
    """Raise PS233 if a size is not an integer of at least 1, or at least 0 if the feature is optional."""
    for key, value in found.items():
        name = key.rpartition(".")[2]
        least = 0 if name in ("shared", "dense_layers", "query") else 1
        whole = isinstance(value, int) and not isinstance(value, bool) and least <= value <= 2**40
        if name in (*_USUAL, *_LATENT, *_DEEPSEEK) and name != "tied" and not whole:
            message = f"{source.name}: {name} is {str(value)[:40]!r}, not a whole number >= {least}"
            raise fail(PlanningCode.MODEL_VALUE, message)


def _shared(source: Source, found: dict[str, object]) -> None:
    """Convert a joint size of all shared experts to a number of experts."""
    shared, size = found.get("model.experts.shared"), found.get("model.experts.size")
    if isinstance(shared, int) and isinstance(size, int) and shared >= size > 0:
        if shared % size:
            message = f"{source.name} has shared experts of size {shared:,}; the other experts have {size:,}"
            raise fail(PlanningCode.MODEL_UNCOUNTED, message, help="give a .toml file")
        found["model.experts.shared"] = shared // size


def _counts(found: Config, given: Config) -> dict[str, int]:
    counts = {key.rpartition(".")[2]: int(value) for key, value in found.items() if isinstance(value, int)}
    counts.setdefault("kv_heads", counts["heads"])
    counts.setdefault("head_size", counts["hidden"] // counts["heads"])
    counts |= {name: int(bool(given.get(name))) for name in _FLAGS}
    others = ("n_routed_experts", "num_ln_in_parallel_attn", "relative_attention_num_buckets")
    return counts | {name: value if isinstance(value := given.get(name), int) else 0 for name in others}
