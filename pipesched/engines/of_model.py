"""The parts of a model's layers on a device, at a flat fraction of its peak FLOP/s.

    F   attn  dispatch on comm  mlp  combine on comm
    I   combine on comm  mlp  dispatch on comm  attn
    W   mlp  attn

On the last stage, the head comes after the layers in F, and first in I and W. Dispatch and combine each send half of
the traffic of experts; layers without experts have neither part. Messages within a layer are counted in attn and mlp,
where compute waits for them. The parts of F, I and W add up to the costs on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pipesched.diagnostics import Code, fail
from pipesched.engines.codes import EngineCode
from pipesched.engines.parts import OWN, Chain, Parts, Piece, Stage
from pipesched.model.costs import Costs
from pipesched.model.numbers import shown
from pipesched.model.placement import Placement
from pipesched.model.units import MILLISECONDS
from pipesched.planning.transformer import flops, traffic
from pipesched.planning.transformer.activations import tokens
from pipesched.planning.transformer.config import Training, Transformer
from pipesched.planning.transformer.devices import Device
from pipesched.planning.transformer.rules import layers_of
from pipesched.planning.transformer.times import milliseconds, within
from pipesched.planning.workload import Workload, own_costs

_MODEL = "--parts model"


def of_model(asked: Workload, placement: Placement) -> Parts:
    """Return the parts of every stage.

    Raises:
        PipeschedError: PS225 without a model, a device or an efficiency; PS235; PS264 for a training run whose times do
            not follow from parts.
    """
    if asked.model is None or asked.device is None or not asked.efficiency:
        missing = next(name for name in ("model", "device", "efficiency") if not getattr(asked, name))
        help = "give --model, --device and --efficiency, the assumed fraction of peak FLOP/s"
        raise fail(Code.USAGE, f"{_MODEL} needs --{missing}", help=help)
    a, x = asked.model
    for known, what in (
        (x.recompute != "none", "recomputation"),
        (x.zero >= 2, f"ZeRO {x.zero}"),
        (a.encoder, "an encoder"),
    ):
        if known:
            raise fail(
                EngineCode.PARTS_PAIR, f"{_MODEL}: parts do not determine times with {what}", help="give --costs"
            )
    device = within(asked.device, x, placement.rank_of[0].tolist())
    rate = device.flops * asked.efficiency
    count = placement.stages
    stages = tuple(
        _stage(a, x, device, rate, list(layers), head=number == count - 1)
        for number, layers in enumerate(layers_of(a, x, count))
    )
    sent = own_costs(asked, placement, Costs()).given["C"]
    reached = f"at {shown(100 * asked.efficiency)} % of its peak"
    return Parts(name=f"{a.name} on {device.name} {reached}", stages=stages, unit=MILLISECONDS, costs={"C": sent})


def _stage(a: Transformer, x: Training, device: Device, rate: Fraction, layers: list[int], *, head: bool) -> Stage:
    by_layer = [dict(_layer(a, x, device, rate, i)) for i in layers]
    logits = [Piece("head", milliseconds(2 * tokens(a, x) * a.hidden * a.vocabulary / x.tensor / rate))] * head
    if not head and all(one == by_layer[0] for one in by_layer):
        return Stage(*(Chain(len(layers), by_layer[0][letter]) for letter in "FIW"))
    chains = {letter: [one for k, of in enumerate(by_layer) for one in _numbered(of[letter], k)] for letter in "F"}
    for letter in "IW":
        back = [one for k, of in reversed([*enumerate(by_layer)]) for one in _numbered(of[letter], k)]
        chains[letter] = [*logits, *back]
    chains["F"] += logits
    return Stage(*(Chain(1, tuple(chains[letter])) for letter in "FIW"))


def _numbered(parts: tuple[Piece, ...], layer: int) -> list[Piece]:
    return [Piece(f"{one.name}{layer}", one.time, one.engine) for one in parts]


def _layer(
    a: Transformer, x: Training, device: Device, rate: Fraction, i: int
) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    """Yield each of F, I and W with its parts in layer `i`."""
    own, n = a.at(i), tokens(a.at(i), x)
    attended, fed = (2 * n * many / rate for many in flops.halves(own, x, i))
    scores = flops.attention(own, x) / rate
    for letter, way, times in (("F", traffic.forward, 1), ("I", traffic.backward, 2)):
        sent = way(a, x, i)
        tensor, context, experts = (
            traffic.seconds(x, device, traffic.Traffic(*one))
            for one in ((sent.tensor, 0, 0), (0, sent.context, 0), (0, 0, sent.experts))
        )
        attn = _piece("attn", attended + times * scores + tensor / 2 + context)
        mlp = _piece("mlp", fed + tensor / 2)
        meets = [_piece(name, experts / 2, "comm") for name in ("dispatch", "combine")] if a.has_experts(i) else []
        row = [attn, *meets[:1], mlp, *meets[1:]]
        yield letter, tuple(row if letter == "F" else row[::-1])
    yield "W", (_piece("mlp", fed), _piece("attn", attended))


def _piece(name: str, seconds: Fraction, engine: str = OWN) -> Piece:
    return Piece(name, milliseconds(seconds), engine)
