"""``plan --explain-model``: the parameters of a transformer, and the FLOPs and bytes of its layers, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from pipesched.model.numbers import Ladder, quantity
from pipesched.planning.byte_counts import gigabytes
from pipesched.planning.transformer import activations, adapters, flops, parameters, state, traffic
from pipesched.planning.transformer.config import Trained, Training, Transformer
from pipesched.planning.transformer.parameters import Part
from pipesched.views.tables import grouped, table

_UNITS = (("T", 12), ("B", 9), ("M", 6), ("K", 3), ("", 0))
_COUNTS: Ladder = tuple((name, Fraction(10**power)) for name, power in _UNITS)
_FLOPS: Ladder = tuple((f"{name.replace('B', 'G')}FLOP", Fraction(10**power)) for name, power in _UNITS)
_MEMORY = 80 * 10**9


def count(number: int | Fraction) -> str:
    """Format a number of parameters, as in ``70.6 B``."""
    return quantity(number, _COUNTS).rstrip()


def head(a: Transformer) -> str:
    """Return a model's name and number of parameters: ``llama3-70b (70.6 B parameters)``."""
    used = parameters.active(a)
    of_token = f", {count(used)} of them active per token" if a.experts else ""
    return f"{a.name} ({count(parameters.total(a))} parameters{of_token})"


@dataclass(frozen=True)
class Model:
    """A transformer and its training, on a rank: t ranks share a layer, e ranks share its experts."""

    trained: Trained
    exit_status: int = 0

    @property
    def kinds(self) -> list[tuple[str, int, int]]:
        """The kinds of layers: name, first layer, number of layers."""
        (a, _), made = self.trained, []
        for kind, number in Counter(map(a.kind, range(a.layers))).items():
            part = "encoder " if a.encoder and not kind else "decoder " if a.encoder else ""
            made.append((f"{part}layer{' with experts' * a.has_experts(kind)}", kind, number))
        return made

    @property
    def parts(self) -> list[tuple[str, int, Sequence[Part]]]:
        """The parts of the model, each with its number of copies and its parameters."""
        a, x = self.trained
        ends = parameters.head(a, x)[: 1 if a.tied else 2]
        layers = [(name, number, [*parameters.layer(a, x, i), *self._adapters(i)]) for name, i, number in self.kinds]
        between = [("end of the encoder", 1, parameters.middle(a, x, range(a.layers)))] if a.encoder else []
        return [("embedding", 1, parameters.embedding(a, x)), *layers, *between, ("head", 1, ends)]

    def _adapters(self, index: int) -> list[Part]:
        a, x = self.trained
        whole = adapters.count(a, replace(x, tensor=1), index)
        return [Part("adapters", int(whole), adapters.count(a, x, index))] if x.lora else []

    @property
    def work(self) -> list[tuple[str, int, tuple[Fraction, ...]]]:
        """For each part of the model: its name, its number of copies, and the FLOPs of its F, I and W for one
        microbatch on a rank.
        """
        a, x = self.trained
        made = []
        for name, index, number in self.kinds:
            linear, attention = flops.products_of(a, x, index), flops.attention(a.at(index), x)
            beside = adapters.flops(a, x, index)
            linear += beside
            back = linear + 2 * attention
            made.append((name, number, (linear + attention, back, beside if x.lora else linear)))
        logits = 2 * activations.tokens(a, x) * a.hidden * a.vocabulary / x.tensor
        return [*made, ("head", 1, (logits, logits, Fraction(0) if x.lora else logits))]

    def kept(self, index: int) -> list[tuple[str, Fraction]]:
        """Return the names and bytes of the tensors that a layer keeps for one microbatch on a rank, without
        recomputation.
        """
        a, x = self.trained
        sizes = grouped((one.name, one.bytes) for one in activations.items(a, x, index) if one.bytes)
        copies = activations.weights(a, x, index)
        made = [(name, sum(found, Fraction(0))) for name, found in sizes.items()]
        return [*made, *([("copies of weights in 16 bits", copies)] if copies else [])]

    @property
    def sent(self) -> list[tuple[str, Fraction]]:
        """The bytes that a rank sends for one microbatch in a forward of a layer, and between stages."""
        a, x = self.trained
        made = []
        for name, index, _ in self.kinds:
            found = traffic.forward(a, x, index)
            groups = (("t", found.tensor), ("c", found.context), ("experts", found.experts))
            made += [(f"F of a {name}, over {group}", size) for group, size in groups if size]
        return [*made, ("between stages, once in F and once in the backward", activations.boundary(a, x))]

    @property
    def divided(self) -> list[tuple[int, Fraction]]:
        """For each ZeRO stage, the bytes per parameter on one rank, including its gradient and optimizer state."""
        a, x = self.trained
        n = state.copies(x)
        parts = (a.dtype_bytes, 3), (x.gradient_bytes, 2), (x.optimizer_bytes, 1)
        return [
            (zero, sum((Fraction(size) / (n if zero >= least else 1) for size, least in parts), Fraction(0)))
            for zero in range(4)
        ]

    def text(self, *, verbose: bool = False) -> str:
        """Return the tables."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        a, x = self.trained
        yield f"{head(a)}: {parameters.total(a):,}"
        yield from [f"trained, with LoRA of rank {x.lora}: {parameters.trained(a, x):,}"] * bool(x.lora)
        yield (
            f"on a rank: t={x.tensor} c={x.context} e={x.expert}, a microbatch of {x.microbatch} x {a.length} "
            f"tokens, {a.dtype}; NAME,tensor=8 and the like set other sizes"
        )
        named = ("part", "", "parameters of one", "", "on a rank")
        yield from ("", table(named, self._counted(), left=(0, 1, 2)))
        rows = [
            [name, f"x {number}" * (number > 1), *(quantity(one, _FLOPS) for one in made)]
            for name, number, made in self.work
        ]
        yield from ("", table(("FLOPs of one, on a rank", "", "F", "I", "W"), rows, left=(0, 1)))
        whole = flops.of_model(a, 1, x)
        yield f"training per token: {quantity(whole / a.tokens, _FLOPS)}, with attention to {a.length} tokens"
        for name, index, _ in self.kinds:
            kept = self.kept(index)
            rows = [[tensor, gigabytes(size)] for tensor, size in kept]
            rows.append(["all", gigabytes(sum((size for _, size in kept), Fraction(0)))])
            yield from ("", table((f"bytes that {'an' if name[0] == 'e' else 'a'} {name} keeps on a rank", ""), rows))
        yield from ("", table(("bytes sent by a rank", ""), [[said, gigabytes(size)] for said, size in self.sent]))
        if (n := state.copies(x)) > 1:
            rows = [
                [str(zero), f"{float(each):.4g}", gigabytes(each * parameters.total(a)), count(_MEMORY / each)]
                for zero, each in self.divided
            ]
            heads = ("ZeRO", "bytes of\na parameter", "of all", f"largest model\nin {gigabytes(_MEMORY)}")
            yield from ("", f"parameters, gradients and optimizer over {n} copies", table(heads, rows))
        kept_whole = Training(optimizer_bytes=x.optimizer_bytes, gradient_bytes=x.gradient_bytes)
        each = a.dtype_bytes + kept_whole.gradient_bytes + kept_whole.optimizer_bytes
        yield ""
        total = gigabytes(each * parameters.total(a))
        yield f"parameters, gradients and optimizer state: {each} bytes per parameter, {total} in total"
        yield from (f"left out: {one}" for one in a.left_out)

    def _counted(self) -> Iterator[list[str]]:
        """Yield the rows of the table of parameters; only the first row of each part shows the part's name."""
        for name, number, parts in self.parts:
            first = [name, f"x {number}" * (number > 1)]
            for one in filter(lambda part: part.count, parts):
                yield [*first, one.name, f"{one.count:,}", count(one.on_rank)]
                first = ["", ""]

    def to_json(self) -> dict[str, object]:
        """Return the published JSON form (see ``emit/README.md``)."""
        a, _ = self.trained
        return {
            "ok": True,
            "model": a.name,
            "parameters": parameters.total(a),
            "active": parameters.active(a),
            "parts": [
                {"part": name, "number": number, "parameters": {one.name: one.count for one in parts}}
                for name, number, parts in self.parts
            ],
            "flops": [
                {"part": name, "number": number, **dict(zip(("F", "I", "W"), map(float, made), strict=True))}
                for name, number, made in self.work
            ],
            "bytes": [
                {"part": name, "number": number, "kept": {tensor: float(size) for tensor, size in self.kept(index)}}
                for name, index, number in self.kinds
            ],
            "sent": {said: float(size) for said, size in self.sent},
            "zero": {str(zero): float(each) for zero, each in self.divided},
            "left_out": list(a.left_out),
        }
