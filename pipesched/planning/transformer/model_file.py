"""A transformer and its training, read from a TOML file.

    [model]                       [training]
    layers = 24                   microbatch = 1        sequences of one microbatch
    hidden = 2304                 tensor = 4            t: ranks that share a layer
    heads = 24                    sequence_parallel = true
    vocabulary = 51200            context = 1           c: ranks that share a sequence
    sequence = 2048               data = 8              d: copies of the pipeline
                                  expert = 1            e: ranks that share the experts
    [model.experts]               zero = 1              0 nothing, 1 optimizer, 2 gradients too, 3 parameters too
    [model.latent]                recompute = "none"    none, selective, operations, full
    [model.encoder]               layers = 12           the first of the model's layers; sequence = 512

Every wrong value is reported as a finding at its line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from pipesched.diagnostics import Diagnostic, Label, PipeschedError, fail
from pipesched.library import inputs
from pipesched.library.assets import asset
from pipesched.planning import toml
from pipesched.planning.codes import PlanningCode
from pipesched.planning.transformer import hugging_face
from pipesched.planning.transformer.config import (
    ADAPTED,
    DTYPES,
    RECOMPUTE,
    Encoder,
    Experts,
    Latent,
    More,
    Trained,
    Training,
    Transformer,
)
from pipesched.planning.transformer.kept import read as read_kept
from pipesched.planning.transformer.megatron_layout import stages_of
from pipesched.planning.transformer.rules import faults, finding
from pipesched.planning.transformer.trainers import TRAINERS
from pipesched.support.source import Source, Span

MOST = 2**40
_FOLDER = ("schedules", "models")


@dataclass(frozen=True)
class _Kind:
    """A requirement on a value; `read` converts a value that satisfies the requirement."""

    what: str
    holds: Callable[[object], bool]
    read: Callable[[object], object] = lambda value: value


def _whole(least: int, most: int = MOST) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _one_of(*names: str) -> _Kind:
    return _Kind(f"one of {', '.join(names)}", lambda value: value in names)


_COUNT = _Kind("a positive whole number", _whole(1))
_FROM_0 = _Kind("a nonnegative whole number", _whole(0))
_FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
_TEXT = _Kind("a string", lambda value: isinstance(value, str))
_NUMBER = _Kind(
    "a nonnegative number",
    lambda value: isinstance(value, int | Fraction) and not isinstance(value, bool) and 0 <= value <= MOST,
    lambda value: Fraction(str(value)),
)
_LAYERS = _Kind(
    "a list of the layers of each stage, such as [1, 2, 2, 3], or Megatron's layout, such as Et|tt|tt|tttL",
    lambda value: _layers(value) is not None,
    lambda value: _layers(value),
)


def _layers(value: object) -> tuple[int, ...] | None:
    """Return the number of layers of each stage; None if the value is not a layout, or has a prediction layer."""
    if isinstance(value, str):
        stages = stages_of(value)
        every = "".join(stages)
        whole = isinstance(stages, list) and every[:1] == "E" and every[-1:] == "L" and set(every[1:-1]) <= {"t"}
        return tuple(stage.count("t") for stage in stages) if whole else None
    whole = isinstance(value, list) and len(value) > 0 and all(map(_whole(0), value))
    return tuple(value) if isinstance(value, list) and whole else None


def _kept(value: object) -> object:
    return read_kept(str(value))


_OTHERS: Mapping[str, _Kind] = {
    "layers": _Kind("a whole number from 1 to 100,000", _whole(1, 100_000)),
    "kv_heads": _COUNT,
    "dtype": _one_of(*DTYPES),
    "norm": _one_of("layer", "rms"),
    "name": _TEXT,
    "batch": _COUNT,
    "lora": _FROM_0,
    "lora_on": _one_of(*ADAPTED),
    "zero": _Kind("0, 1, 2 or 3", _whole(0, 3)),
    "recompute": _one_of(*RECOMPUTE),
    "attention": _one_of("flash", "standard"),
    "layout": _LAYERS,
    "keep_outputs": _FLAG,
    "kept": _Kind("the path of a file that `run --rank -o` writes", lambda value: isinstance(value, str), _kept),
    "trainer": _one_of(*TRAINERS),
    "linears": _one_of("fp8"),
    "kernels": _one_of("fused", "eager", "cpu"),
    "shared": _FROM_0,
    "query": _FROM_0,
    "dense_layers": _FROM_0,
    **{one.name: _FROM_0 for one in fields(More)},
}
_BY_TYPE = {"int": _COUNT, "bool": _FLAG, "Fraction": _NUMBER}
_SECTIONS: Mapping[str, type] = {
    "model": Transformer,
    "model.experts": Experts,
    "model.latent": Latent,
    "model.encoder": Encoder,
    "model.more": More,
    "training": Training,
}
_NOT_WRITTEN = ("experts", "latent", "encoder", "more", "left_out", "places")


_NOT_PLANNED: Mapping[str, str] = {
    "frozen": (
        "freezing single layers is not supported: training.lora freezes all layers, and `verify --frozen` takes stages"
    ),
    "lora": "training.lora is the rank of LoRA's adapters; training.lora_on names their matrices",
    "adapter": "training.lora is the rank of LoRA's adapters; other adapters are not supported",
    "decoder": "model.layers counts the layers of encoder and decoder, model.encoder.layers only the encoder's",
    "pattern": "layers without attention are not supported: all layers must be alike, apart from experts",
    "mamba": "layers without attention are not supported: all layers must be alike, apart from experts",
    "layer_types": "layers without attention are not supported: all layers must be alike, apart from experts",
    "hsdp": "training.replicas is the number of groups; ZeRO divides within each group",
    "replicate": "training.replicas is the number of groups; ZeRO divides within each group",
    "offload": "an optimizer on the host is not supported; optimizer_bytes = 0 omits its bytes and its time",
    "scatter_gather": "the trainer decides: with megatron a message between stages is split over the tensor ranks",
}
"""Known but unsupported keys of model files: a part of the key, and the reason."""


def _keys() -> Iterator[tuple[str, _Kind, bool]]:
    """Yield each possible key, the requirement on its value, and whether its section requires the key."""
    for section, noun in _SECTIONS.items():
        for one in fields(noun):
            if one.name not in _NOT_WRITTEN:
                kind = _OTHERS.get(one.name) or _BY_TYPE[str(one.type)]
                yield f"{section}.{one.name}", kind, one.default is MISSING


KEYS: Mapping[str, _Kind] = {key: kind for key, kind, _ in _keys()}
_REQUIRED = tuple(key for key, _, required in _keys() if required)


def built_in() -> list[str]:
    """Return the names of the models that ship with pipesched."""
    folder = asset(*_FOLDER)
    return sorted(path.name.removesuffix(".toml") for path in folder.glob("*.toml")) if folder.is_dir() else []


def read(path: str) -> Trained:
    """Return the model in a TOML file or a ``config.json`` of Hugging Face, or a built-in model by its name;
    ``NAME,tensor=8,zero=1`` changes keys of its training, ``NAME,sequence=8192`` sizes of the model.

    Raises:
        PipeschedError: PS809, PS230 to PS237 or PS251 if the model cannot be read.
    """
    name, *others = [path] if os.path.exists(path) else path.split(",")
    return of_source(source(name), {_section_of(key): value for key, value in map(_other, others)})


def _section_of(key: str) -> str:
    """Return a key with its section; an unknown key is treated as a key of the training."""
    return f"model.{key}" if f"model.{key}" in KEYS and f"training.{key}" not in KEYS else f"training.{key}"


def _other(text: str) -> tuple[str, object]:
    """Parse ``tensor=8`` as a key and its value."""
    key, _, value = (part.strip() for part in text.partition("="))
    if value in ("true", "false"):
        return key, value == "true"
    number = re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", value)
    return key, value if number is None else Fraction(value) if number[1] else int(value)


def source(path: str) -> Source:
    """Return the text of a file, of the ``config.json`` in a folder, or of a built-in model's file.

    Raises:
        PipeschedError: PS237, PS809.
    """
    if path in built_in():
        return Source(f"{path}.toml", asset(*_FOLDER, f"{path}.toml").read_text("utf-8"))
    if path != "-" and "/" not in path and not path.endswith((".toml", ".json")) and not os.path.exists(path):
        close = get_close_matches(path, built_in(), 1, 0.5)
        own = "for your own model give a .toml file like the output of `pipesched list llama3-70b`"
        help = f"did you mean `{close[0]}`? {own}" if close else f"{own}; or one of {', '.join(built_in())}"
        raise fail(PlanningCode.MODEL_NAME, f"unknown model {path!r}", help=help)
    inside = Path(path) / "config.json"
    return inputs.read_path(str(inside) if inside.is_file() else path)


def of_source(source: Source, others: Mapping[str, object] | None = None) -> Trained:
    """Read a model from TOML text. others: values that replace the file's values.

    Raises:
        PipeschedError: PS230 to PS236, with all errors in the file; PS251.
    """
    left: tuple[str, ...] = ()
    if hugging_face.recognized(source.text):
        values, places, left = hugging_face.values(source, others or {})
    else:
        values, places = toml.read(source, PlanningCode.MODEL_SYNTAX, toml.exact)
    values |= others or {}
    places = {key: span for key, span in places.items() if key not in (others or {})}
    unknown = list(_unknown(values, places))  # a misspelt key is not reported as missing
    found = [*unknown, *_wrong(values, places), *([] if unknown else _missing(values, places, source))]
    if found:
        raise PipeschedError(found)
    made = {section: _section(noun, section, values) for section, noun in _SECTIONS.items()}
    nouns: dict[str, Callable[..., object]] = {
        "experts": Experts,
        "latent": Latent,
        "encoder": Encoder,
        "more": More,
    }
    inner = {key: _built(noun, own) for key, noun in nouns.items() if (own := made[f"model.{key}"])}
    path = Path(source.name)
    name = path.parent.name if path.name == "config.json" and path.parent.name else path.name.removesuffix(".toml")
    own = {"name": name.removesuffix(".json"), "left_out": left}
    transformer = _built(Transformer, {**own, **made["model"], **inner, "places": places})
    training = _built(Training, made["training"])
    if found := list(faults(transformer, training)):
        raise PipeschedError(found)
    return transformer, training


Noun = TypeVar("Noun")


def _built(noun: Callable[..., Noun], values: Mapping[str, object]) -> Noun:
    """Build the value of a section; an absent section gets its defaults."""
    return noun(**values)


def _section(noun: type, section: str, values: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a section by field, empty if it is absent."""
    names = [one.name for one in fields(noun)]
    keys = {name: f"{section}.{name}" for name in names}
    return {name: KEYS[key].read(values[key]) for name, key in keys.items() if key in values}


def _unknown(values: Mapping[str, object], places: Mapping[str, Span]) -> Iterator[Diagnostic]:
    for key in values:
        if key not in KEYS and key not in _SECTIONS:
            last = {name.rpartition(".")[2]: name for name in reversed([*KEYS])}
            close = get_close_matches(key, KEYS, 1, 0.8) or [
                last[name] for name in get_close_matches(key.rpartition(".")[2], last, 1, 0.6)
            ]
            help = f"did you mean {close[0]}?" if close else f"sections are {', '.join(_SECTIONS)}"
            help = next((says for part, says in _NOT_PLANNED.items() if part in key.lower()), help)
            yield finding(PlanningCode.MODEL_UNKNOWN, f"a model has no {key}", key, places, "no such key", help)


def _missing(values: Mapping[str, object], places: Mapping[str, Span], source: Source) -> Iterator[Diagnostic]:
    for key in _REQUIRED:
        section = key.rpartition(".")[0]
        there = section == "model" or section in places or any(name.startswith(f"{section}.") for name in values)
        if there and key not in values:
            where = places.get(section) or source.span(0, min(1, len(source.text)))
            label = Label(where, f"{key.rpartition('.')[2]} is missing")
            yield Diagnostic(PlanningCode.MODEL_MISSING, f"{source.name} lacks {key}", (label,), (), f"write {key} = …")
    if values.get("model.gated") is True and "model.feed_forward" not in values and "model.feed_forward" not in places:
        message = "the size of the gated feed-forward part is missing"
        yield finding(
            PlanningCode.MODEL_MISSING, message, "model.gated", places, "gated", "write model.feed_forward = …"
        )


def _wrong(values: Mapping[str, object], places: Mapping[str, Span]) -> Iterator[Diagnostic]:
    for key, value in values.items():
        kind = KEYS.get(key)
        if kind is not None and not kind.holds(value):
            shown = str(value).lower() if isinstance(value, bool) else repr(value)
            shown = str(value) if isinstance(value, Fraction) else shown
            message = f"{key.rpartition('.')[2]} is {shown[:60]}, not {kind.what}"
            yield finding(PlanningCode.MODEL_VALUE, message, key, places, f"not {kind.what}")
        elif kind is None and key in _SECTIONS and key in places and not isinstance(value, dict):
            yield finding(
                PlanningCode.MODEL_VALUE, f"{key} is {value!r}, not a section", key, places, "a section of keys"
            )
