"""A transformer and how it is trained, as a TOML file has them.

    [model]                       [training]
    layers = 24                   microbatch = 1        sequences of one microbatch
    hidden = 2304                 tensor = 4            t: ranks that share a layer
    heads = 24                    sequence_parallel = true
    vocabulary = 51200            context = 1           c: ranks that share a sequence
    sequence = 2048               data = 8              d: copies of the pipeline
                                  expert = 1            e: ranks that share the experts
    [model.experts]               zero = 1              0 nothing, 1 optimizer, 2 gradients too, 3 parameters too
    [model.latent]                recompute = "none"    none, selective, full

A number that is not given follows from the others or has the default of Megatron-LM's GPT: biases, dropout, LayerNorm,
learned positions, GeLU, 16-bit weights with fp32 gradients and 12 bytes of optimizer state a parameter (a master copy
and two moments of Adam). Every wrong value is a finding at its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

from pipesched import inputs, toml
from pipesched.assets import asset
from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.source import Source, Span
from pipesched.transformer.megatron_layout import stages_of

DTYPES: Mapping[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of a number."""
MOST = 2**40
_FOLDER = ("schedules", "models")


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


@dataclass(frozen=True)
class _Kind:
    """What a value must be; `read` of one that is."""

    what: str
    holds: Callable[[Any], bool]
    read: Callable[[Any], Any] = lambda value: value


def _whole(least: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST


def _one_of(*names: str) -> _Kind:
    return _Kind(f"one of {', '.join(names)}", lambda value: value in names)


_COUNT = _Kind("a whole number from 1", _whole(1))
_FROM_0 = _Kind("a whole number from 0", _whole(0))
_FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
_TEXT = _Kind("a text", lambda value: isinstance(value, str))
_NUMBER = _Kind(
    "a number from 0",
    lambda value: type(value) in (int, Fraction) and 0 <= value <= MOST,
    lambda value: Fraction(value),
)
_LAYERS = _Kind(
    "a list of the layers of each stage, as [1, 2, 2, 3], or Megatron's layout, as Et|tt|tt|tttL",
    lambda value: _layers(value) is not None,
    lambda value: _layers(value),
)


def _layers(value: object) -> tuple[int, ...] | None:
    """The layers of each stage; None of what is no layout of stages, or has a layer of prediction."""
    if isinstance(value, str):
        stages = stages_of(value)
        every = "".join(stages)
        whole = isinstance(stages, list) and every[:1] == "E" and every[-1:] == "L" and set(every[1:-1]) <= {"t"}
        return tuple(stage.count("t") for stage in stages) if whole else None
    whole = isinstance(value, list) and len(value) > 0 and all(map(_whole(0), value))
    return tuple(value) if isinstance(value, list) and whole else None


_OTHERS: Mapping[str, _Kind] = {
    "layers": _Kind("a whole number from 1 to 100,000", lambda value: _whole(1)(value) and value <= 100_000),
    "kv_heads": _COUNT,
    "dtype": _one_of(*DTYPES),
    "norm": _one_of("layer", "rms"),
    "name": _TEXT,
    "batch": _COUNT,
    "zero": _Kind("0, 1, 2 or 3", lambda value: _whole(0)(value) and value <= 3),
    "recompute": _one_of("none", "selective", "full"),
    "attention": _one_of("flash", "standard"),
    "layout": _LAYERS,
    "shared": _FROM_0,
    "dense_layers": _FROM_0,
}
_BY_TYPE = {"int": _COUNT, "bool": _FLAG, "Fraction": _NUMBER}
_SECTIONS: Mapping[str, type] = {
    "model": Transformer,
    "model.experts": Experts,
    "model.latent": Latent,
    "training": Training,
}
_NOT_WRITTEN = ("experts", "latent", "places")


def _keys() -> Iterator[tuple[str, _Kind, bool]]:
    """Every key of a file, what it holds, and whether it must be there where its section is."""
    for section, noun in _SECTIONS.items():
        for one in fields(noun):
            if one.name not in _NOT_WRITTEN:
                kind = _OTHERS.get(one.name) or _BY_TYPE[str(one.type)]
                yield f"{section}.{one.name}", kind, one.default is MISSING


KEYS: Mapping[str, _Kind] = {key: kind for key, kind, _ in _keys()}
_REQUIRED = tuple(key for key, _, required in _keys() if required)


def built_in() -> list[str]:
    """The names of the models that ship with pipesched."""
    folder = asset(*_FOLDER)
    return sorted(path.name.removesuffix(".toml") for path in folder.glob("*.toml")) if folder.is_dir() else []


def read(path: str) -> Trained:
    """The model of a TOML file, or of a name in `built_in`; ``NAME,tensor=8,zero=1`` with other keys of its training.

    Raises:
        PipeschedError: PS809, PS230 to PS237.
    """
    name, *others = [path] if Path(path).exists() else path.split(",")
    return of_source(source(name), {f"training.{key}": value for key, value in map(_other, others)})


def _other(text: str) -> tuple[str, object]:
    """``tensor=8``: a key and what it holds."""
    key, _, value = (part.strip() for part in text.partition("="))
    if value in ("true", "false"):
        return key, value == "true"
    number = re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", value)
    return key, value if number is None else Fraction(value) if number[1] else int(value)


def source(path: str) -> Source:
    """The text of a file, or of a name in `built_in`.

    Raises:
        PipeschedError: PS237, PS809.
    """
    if path in built_in():
        return Source(f"{path}.toml", asset(*_FOLDER, f"{path}.toml").read_text("utf-8"))
    if path != "-" and "/" not in path and not path.endswith(".toml") and not Path(path).exists():
        close = get_close_matches(path, built_in(), 1, 0.5)
        own = "for a model of yours give a .toml file, as `pipesched list llama3-70b` prints one"
        help = f"did you mean `{close[0]}`? {own}" if close else f"{own}; or one of {', '.join(built_in())}"
        raise fail(Code.MODEL_NAME, f"no model is called {path!r}", help=help)
    return inputs.read_path(path)


def of_source(source: Source, others: Mapping[str, object] | None = None) -> Trained:
    """The model of a text. others: values in the place of those that it has.

    Raises:
        PipeschedError: PS230 to PS236, all that is wrong with it.
    """
    values, places = toml.read(source, Code.MODEL_SYNTAX, toml.exact)
    values |= others or {}
    places = {key: span for key, span in places.items() if key not in (others or {})}
    unknown = list(_unknown(values, places))  # what is misspelt is not missing
    found = [*unknown, *_wrong(values, places), *([] if unknown else _missing(values, places, source))]
    if found:
        raise PipeschedError(found)
    made = {section: _section(noun, section, values) for section, noun in _SECTIONS.items()}
    inner = {"experts": made["model.experts"], "latent": made["model.latent"], "places": places}
    name = Path(source.name).name.removesuffix(".toml")
    transformer = Transformer(**{"name": name, **(made["model"] or {}), **_built(inner)})
    training = Training(**(made["training"] or {}))
    if found := list(faults(transformer, training)):
        raise PipeschedError(found)
    return transformer, training


def _built(inner: Mapping[str, Any]) -> dict[str, Any]:
    nouns = {"experts": Experts, "latent": Latent}
    return {key: nouns[key](**value) if key in nouns and value else value for key, value in inner.items()}


def _section(noun: type, section: str, values: Mapping[str, object]) -> dict[str, Any] | None:
    """The values of a section by field; None where it is not there."""
    names = [one.name for one in fields(noun)]
    keys = {name: f"{section}.{name}" for name in names}
    return {name: KEYS[key].read(values[key]) for name, key in keys.items() if key in values} or None


def _unknown(values: Mapping[str, object], places: Mapping[str, Span]) -> Iterator[Diagnostic]:
    for key in values:
        if key not in KEYS and key not in _SECTIONS:
            last = {name.rpartition(".")[2]: name for name in KEYS}
            close = get_close_matches(key, KEYS, 1, 0.8) or [
                last[name] for name in get_close_matches(key.rpartition(".")[2], last, 1, 0.6)
            ]
            help = f"did you mean {close[0]}?" if close else f"sections are {', '.join(_SECTIONS)}"
            yield _at(Code.MODEL_UNKNOWN, f"a model has no {key}", key, places, "no such key", help)


def _missing(values: Mapping[str, object], places: Mapping[str, Span], source: Source) -> Iterator[Diagnostic]:
    for key in _REQUIRED:
        section = key.rpartition(".")[0]
        there = section == "model" or section in places or any(name.startswith(f"{section}.") for name in values)
        if there and key not in values:
            where = places.get(section) or source.span(0, min(1, len(source.text)))
            label = Label(where, f"{key.rpartition('.')[2]} is not here")
            yield Diagnostic(Code.MODEL_MISSING, f"{source.name} does not say {key}", (label,), (), f"write {key} = …")
    if values.get("model.gated") is True and "model.feed_forward" not in values and "model.feed_forward" not in places:
        message = "a gated feed-forward part has a size of its own, which is not given"
        yield _at(Code.MODEL_MISSING, message, "model.gated", places, "gated", "write model.feed_forward = …")


def _wrong(values: Mapping[str, object], places: Mapping[str, Span]) -> Iterator[Diagnostic]:
    for key, value in values.items():
        kind = KEYS.get(key)
        if kind is not None and not kind.holds(value):
            shown = str(value).lower() if isinstance(value, bool) else repr(value)
            shown = str(value) if isinstance(value, Fraction) else shown
            message = f"{key.rpartition('.')[2]} is {shown[:60]}, not {kind.what}"
            yield _at(Code.MODEL_VALUE, message, key, places, f"not {kind.what}")
        elif kind is None and key in _SECTIONS and key in places and not isinstance(value, dict):
            yield _at(Code.MODEL_VALUE, f"{key} is {value!r}, not a section", key, places, "a section of keys")


def _at(
    code: Code, message: str, key: str, places: Mapping[str, Span], said: str, help: str | None = None
) -> Diagnostic:
    return Diagnostic(code, message, (Label(toml.place(key, places), said),), (), help)


def faults(transformer: Transformer, training: Training, stages: int | None = None) -> Iterator[Diagnostic]:
    """What keeps it from being trained: sizes that do not divide, more of a parallelism than there is to share."""
    for code, key, message, help in _rules(transformer, training):
        last = key.rpartition(".")[2]
        section = transformer if key.startswith("model") else training
        value = getattr(transformer.experts if ".experts." in key else section, last)
        yield _at(code, message, key, transformer.places, f"{last} = {value}", help)
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
        yield _at(Code.MODEL_STAGES, message, "model.layers", a.places, f"layers = {a.layers}", help)
    if x.layout is not None and sum(x.layout) != a.layers:
        message = f"the layout has {sum(x.layout)} layers; the model has {a.layers}"
        yield _at(Code.MODEL_STAGES, message, "training.layout", a.places, f"adds up to {sum(x.layout)}")
    if x.layout is not None and stages is not None and len(x.layout) != stages:
        message = f"the layout has {len(x.layout)} stages; the schedule has {stages}"
        yield _at(
            Code.MODEL_STAGES, message, "training.layout", a.places, f"{len(x.layout)} entries", "one entry a stage"
        )
