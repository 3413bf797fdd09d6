"""A plan as a table, as JSON and as a plot; and the commands that verify, optimize and emit its rows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from fractions import Fraction

from pipesched import render
from pipesched.diagnostics import Code, fail
from pipesched.model.numbers import quantity
from pipesched.model.units import SECONDS
from pipesched.planning import plan_launch
from pipesched.planning.byte_counts import Bytes, gigabytes
from pipesched.planning.launch import launcher
from pipesched.planning.layouts.plan import Outcome
from pipesched.planning.layouts.prediction import Prediction
from pipesched.planning.layouts.rules import TERMS
from pipesched.planning.layouts.space import LETTERS
from pipesched.planning.layouts.stages import stages_of
from pipesched.planning.plan_model import head
from pipesched.planning.plan_order import fastest
from pipesched.planning.transformer import flops, parameters
from pipesched.planning.transformer.config import Training
from pipesched.planning.transformer.devices import DEVICES
from pipesched.planning.transformer.megatron_layout import layout_of
from pipesched.planning.transformer.state import undivided
from pipesched.views.tables import table

_UNITS = {"GB": 10**9, "MB": 10**6, "B": 1}
_DIMENSIONS = ("p", "t", "c", "d", "e", "schedule", "v", "split", "b")
LEGEND = {
    "p": "pipeline",
    "t": "tensor",
    "c": "context",
    "d": "data",
    "e": "experts",
    "v": "stages per rank",
    "b": "sequences per microbatch",
    "m": "microbatches",
}
"""The meaning of each letter in a choice."""
_HEADERS = ("m", "recompute", "ZeRO", "step", "tokens/s", "TFLOP/s\nper GPU", "MFU", "bubble", "most\nof a GPU")

_SENT = {
    "tensor": "over t: per layer, 2 all-reduces of 2 s b h / c bytes in F and 2 in the backward, of which a rank sends "
    "2 (t-1)/t; with full recomputation, the all-reduces of F are repeated (Narayanan et al., SC 2021, 3.2)",
    "context": "over c: keys and values pass through c - 1 ranks in F, and, with their gradients, in the "
    "backward (Dubey et al. 2024, 3.3.2)",
    "experts": "over e: (e-1)/e of the tokens are sent to their experts and back, in F and in the backward",
    "gradients": "over d c, once per step: gradients are all-reduced; with ZeRO, (n-1)/n of the gradients are "
    "scattered and (n-1)/n of the parameters gathered (Rajbhandari et al. 2020, 7)",
    "copies": "over d c in every microbatch: with ZeRO 2, gradients are scattered; with ZeRO 3, parameters are also "
    "gathered for F and for the backward",
}
"""The messages that each term counts, with their source."""


def text(plan: Outcome, *, verbose: bool = False) -> str:
    """Return the plan as text: request, table, commands, rules, explanation, assumptions. verbose: list all
    assumptions.
    """
    lines = list(facts(plan))
    if plan.best is not None:
        legend = "  ".join(f"{name} {LEGEND[name]}" for name in (*_shown(plan), "m") if name in LEGEND)
        lines += ["", _table(plan), legend, *_bars(plan), "", *_commands(plan)]
        lines += ["", *(one.text() for one in plan.ordered), *filter(None, [fastest(plan)])] if plan.ordered else []
        lines += ["", *plan_launch.text(plan)] if plan.request.trainer else []
        lines += ["", *(f"- {one.text(plan.best)}" for one in plan.rules)] if plan.best.trust.timed else []
    if plan.explained is not None and plan.best is not None:
        lines += ["", *plan.explained.text(plan.best)]
        found = plan.explained.found
        lines += ["", _terms(found, plan.best)] if found and found.trust.timed else []
    lines += ["", *render.assumptions([*assumed(plan)], verbose=verbose)] if plan.rows else []
    lines += ["", *(render.text(found) for found in plan.diagnostics)] if plan.diagnostics else []
    return "\n".join(lines)


def facts(plan: Outcome) -> Iterator[str]:
    """Yield a line that describes the request, and a line with the number of choices by outcome."""
    request, problem, counts = plan.request, plan.problem, plan.counts
    a, device = problem.space.transformer, problem.device
    yield (
        f"{head(a)} on {request.gpus:,} {device.name}, {device.node_size} per node; a step of {request.batch:,} "
        f"sequences of {a.length} tokens; at most {gigabytes(problem.cap)} per GPU"
    )
    none = next((f" (for example: {kind})" for kind in plan.refused if kind.endswith("copies of 1 each")), "")
    refused = f" or are not supported by {launcher(request.trainer).named}" if request.trainer else ""
    yield (
        f"{counts['choices']:,} choices: {counts['none']:,} do not divide evenly{none}{refused}, "
        f"{counts['over_the_cap']:,} are over the cap, {counts['slower_by_a_bound']:,} are excluded by a bound; "
        f"{counts['timed']:,} were timed"
    )


def headers(plan: Outcome) -> tuple[str, ...]:
    """Return the headers of the table."""
    days = ("training", "by\n8TP/(nX)") if plan.request.tokens is not None else ()
    return (*_shown(plan), *_HEADERS, *days)


def _shown(plan: Outcome) -> list[str]:
    used = {"e": plan.problem.space.transformer.experts, "split": any(one.choice.split != "even" for one in plan.rows)}
    return [name for name in _DIMENSIONS if used.get(name, True)]


def cells(plan: Outcome, one: Prediction) -> Iterator[tuple[str, str | float]]:
    """Yield the cells of a row, each as text with a sort key."""
    choice, tokens = one.choice, plan.request.tokens
    for name in (*_shown(plan), "m", "recompute", "zero"):
        value = choice.to_json()[name]
        yield str(value), value
    if not one.trust.timed:
        yield from _untimed(plan, one)
        return
    bar = "" if one.trust.percent is None else f" ±{one.trust.percent} %"
    yield SECONDS.text(one.seconds) + bar, float(one.seconds)
    yield f"{float(f'{float(one.tokens_per_second):.3g}'):,.0f}", float(one.tokens_per_second)
    yield f"{float(per_gpu(one)) / 1e12:,.0f}", float(per_gpu(one))
    yield f"{float(one.utilisation) * 100:.1f} %", float(one.utilisation)
    yield f"{one.bubble * 100:.1f} %", one.bubble
    yield gigabytes(one.peak), one.peak
    for days in () if tokens is None else (one.days(tokens), by_formula(one, tokens)):
        yield quantity(days, (("days", Fraction(1)),)), float(days)


def _untimed(plan: Outcome, one: Prediction) -> Iterator[tuple[str, str | float]]:
    """Yield the cells of a row whose times are not shown; their sort keys keep the rows in the predicted order."""
    for _ in range(5):
        yield "-", float(one.seconds)
    yield gigabytes(one.peak), one.peak
    for _ in range(2 * (plan.request.tokens is not None)):
        yield "-", float(one.seconds)


def per_gpu(one: Prediction) -> Fraction:
    """Return the FLOP/s per GPU: the model's FLOPs, without recomputation, divided by the step time and the GPUs."""
    return one.model_flops / (one.seconds * one.gpus)


def _bars(plan: Outcome) -> Iterator[str]:
    """Yield the source of the error bars, or the reason why there are no times."""
    for found in dict.fromkeys(one.trust for one in plan.rows if one.trust.why):
        bar = f"± {found.why}" if found.percent is not None else found.why
        yield bar if found.timed else f"{found.why}; the rows are in the predicted order"


def _terms(asked: Prediction, best: Prediction) -> str:
    """Return a table of the terms of the explained choice's step and of the plan's; each column adds up to the step
    time.
    """
    one, other = ({**asdict(each.terms), "step": each.seconds} for each in (asked, best))
    rows = [
        [TERMS.get(name, name), *map(SECONDS.text, parts), SECONDS.more(parts[0] - parts[1])]
        for name in one
        if any(parts := (_micro(one[name]), _micro(other[name])))
    ]
    return table(("", "this", "the plan", "more"), rows, left=(0,))


def _micro(seconds: float | Fraction) -> Fraction:
    """Round to the microsecond."""
    return Fraction(round(seconds * 10**6), 10**6)


def _table(plan: Outcome) -> str:
    names = headers(plan)
    rows = [[str(number), *(shown for shown, _ in cells(plan, one))] for number, one in enumerate(plan.rows, 1)]
    words = (index for index, name in enumerate(names, 1) if name in ("schedule", "split", "recompute"))
    return table(("", *names), rows, left=words)


def by_formula(one: Prediction, tokens: int) -> Fraction:
    """Return the days by 8TP/(nX), Narayanan et al., SC 2021, section 5.1, with the predicted FLOP/s for X. The factor
    8 is 2 for a forward, 4 for a backward and 2 for a recomputed forward; without recomputation, it is 6.
    """
    a, x = one.problem.space.transformer, one.choice.training
    (whole,) = flops.by_stage(a, Training(recompute=x.recompute, attention=x.attention), 1)
    done = (whole.forward + whole.backward) * (x.batch or 0)
    factor = 8 if x.recompute == "full" else 6
    return factor * tokens * parameters.active(a) / (done / one.seconds) / 86_400


def commands(plan: Outcome, one: Prediction) -> dict[str, str]:
    """Return the commands that verify, optimize and emit a row; without a pipeline, there is only one order."""
    choice, sizes = one.choice, " ".join(f"--{name} {size}" for name, size in one.choice.sizes.items())
    x, own = choice.training, plan.request.trained[1]
    keys = (*LETTERS.values(), "zero", "recompute", "batch", "sequence_parallel", "keep_outputs", "trainer", "kernels")
    given = {key: getattr(x, key) for key in keys}
    others = [f"{key}={str(size).lower()}" for key, size in given.items() if size != getattr(own, key)]
    if x.kept is not None and f"kept={x.kept}" not in plan.request.model:
        others.append(f"kept={x.kept}")
    if x.layout != own.layout:
        others.append(f"layout={layout_of(list(map(len, stages_of(plan.problem).layers(choice))))}")
    model = shlex.quote(",".join([plan.request.model, *others]))
    order = f"{choice.schedule} {sizes}"
    under = f"{order} --model {model}{_device(plan) if one.trust.timed else ''} --mem-cap {_cap(plan.problem.cap)}"
    made = {"verify": f"pipesched verify {under}"}
    if choice.p > 1 and one.trust.timed:
        made["optimize"] = f"pipesched optimize {under}"
    if choice.p > 1:
        made["emit"] = f"pipesched emit {order} --target torch-csv"
    return made


def _device(plan: Outcome) -> str:
    device, size = plan.request.device, plan.problem.device.node_size
    row = DEVICES.get(device.name.partition(",")[0])
    name = device.name if row and row.source == device.source else device.source
    name += "" if size == min(device.node_size, plan.request.gpus) else f",node_size={size}"
    given = "" if plan.problem.efficiency is None else f" --efficiency {plan.problem.efficiency}"
    return f" --device {shlex.quote(name)}{given}"


def _cap(cap: Fraction) -> str:
    if isinstance(cap, Bytes) and cap.written:
        return cap.written.replace(" ", "")
    return next(f"{cap / size}{unit}" for unit, size in _UNITS.items() if cap % size == 0 or size == 1)


def _commands(plan: Outcome) -> Iterator[str]:
    for number, one in enumerate(plan.rows, 1):
        for verb, command in commands(plan, one).items():
            yield f"{number if verb == 'verify' else ' '}  {command}"


def _overlapped(plan: Outcome) -> Iterator[str]:
    """Yield the assumptions about messages that overlap compute, and about the layers that ZeRO 2 and 3 gather."""
    problem = plan.problem
    hidden = [problem.hidden(zero) for zero in dict.fromkeys(one.choice.training.zero for one in plan.rows)]
    shares = " or ".join(f"{float(share) * 100:.3g} %" for share in dict.fromkeys(hidden))
    yield (
        f"overlapping compute: all messages between stages; of messages between copies, {shares} layer by layer, as "
        "in FSDP and with Megatron's --overlap-grad-reduce and --overlap-param-gather; of messages between ranks of "
        f"a layer, a sequence or experts, {'as fitted' if problem.on else 'none'}; each kind separately"
    )
    parted = [one.choice for one in plan.rows if one.choice.training.zero > 1]
    parted = parted if any(map(problem.hidden, (2, 3))) else []
    whole = [sum(one) for x in parted for one in undivided(problem.space.transformer, x.training, x.cut.stages)]
    if most := max(whole, default=0):
        yield (
            "bytes of ZeRO 2 and 3 include one whole layer at a time; if the next layer is gathered or the last one "
            f"reduced during compute, a second layer takes up to {gigabytes(most)} more"
        )
    if problem.overlap not in (1, None) and any(one.choice.training.zero > 1 for one in plan.rows):
        yield "verify and optimize assume that all messages of ZeRO 2 and 3 in a microbatch overlap compute"


def assumed(plan: Outcome) -> Iterator[str]:
    """Yield the assumptions about the cluster that have no source in a data sheet or paper."""
    problem = plan.problem
    device, x = problem.device, problem.space.training
    if problem.on is None:
        yield (
            f"matrix products reach {float(problem.flat) * 100:g} % of {float(device.flops) / 1e12:g} TFLOP/s, "
            "whatever their size: larger microbatches are no faster, and the utilisation cannot be higher"
        )
    else:
        yield (
            f"times of products, attention, elementwise work and messages by their shape on {device.name} under "
            f"{problem.on.trainer.name} ({problem.on.trainer.about}): constants fitted to published runs"
        )
    yield (
        f"{float(device.node) / 1e9:g} GB/s inside a node, {float(device.network) / 1e9:g} GB/s between nodes, "
        "per GPU, without latency; k copies in a node reduce gradients over the adapters of k GPUs; ranks are numbered "
        "t first, then c, d, p"
    )
    yield from _overlapped(plan)
    for name, said in _SENT.items():
        if any(getattr(one.terms, name) > 0 for one in plan.rows):
            yield said
    split = "with" if x.sequence_parallel else "without"
    yield f"{split} sequence parallelism, {x.attention} attention, as in the model's file"
    yield (
        "layers are divided evenly, and the end stages have fewer if there is a remainder; with split = ends, "
        "embedding and head count as one layer each; microbatches of 1, 2, 4 and 8 sequences are tried"
    )
    yield from problem.space.transformer.left_out
    yield (
        "data loading takes no time"
        if problem.on
        else ("the optimizer's step, norms, dropout and data loading take no time")
    )


def to_json(plan: Outcome) -> dict[str, object]:
    """Return the published JSON form (see ``emit/README.md``)."""
    request, problem = plan.request, plan.problem
    return {
        "ok": plan.exit_status == 0,
        "model": request.model,
        "parameters": parameters.total(problem.space.transformer),
        "gpus": request.gpus,
        "gpus_per_node": problem.device.node_size,
        "device": problem.device.name,
        "batch": request.batch,
        "tokens": request.tokens,
        "trainer": launcher(request.trainer).named if request.trainer else None,
        "cap_bytes": int(problem.cap),
        "counts": dict(plan.counts),
        "refused": dict(plan.refused),
        "rows": [row(plan, one) for one in plan.rows],
        "rules": [
            {
                "rule": one.rule.text,
                "source": one.rule.source,
                "holds": None if one.lacks else one.kept,
                "text": one.text(plan.best) if plan.best else "",
            }
            for one in plan.rules
        ],
        "optimized": plan.ordered[0].to_json() if plan.ordered and plan.ordered[0].row == 1 else None,
        "explained": None if plan.explained is None else _explained(plan),
        "assumed": list(assumed(plan)),
        "diagnostics": [render.as_json(found) for found in plan.diagnostics],
    }


def row(plan: Outcome, one: Prediction) -> dict[str, object]:
    """Return a choice with its figures, as JSON."""
    tokens, choice, bar = plan.request.tokens, one.choice, one.trust
    return {
        **choice.to_json(),
        "seconds": float(one.seconds) if bar.timed else None,
        "error_percent": bar.percent,
        "why": bar.why,
        "terms": asdict(one.terms) if bar.timed else None,
        "tokens_per_second": float(one.tokens_per_second) if bar.timed else None,
        "flops_per_gpu": float(per_gpu(one)) if bar.timed else None,
        "utilisation": float(one.utilisation) if bar.timed else None,
        "bubble": one.bubble if bar.timed else None,
        "bytes": list(one.peaks),
        "days": None if tokens is None or not bar.timed else float(one.days(tokens)),
        "days_by_formula": None if tokens is None or not bar.timed else float(by_formula(one, tokens)),
        "optimized": next((x.to_json() for x in plan.ordered if plan.rows[x.row - 1] is one), None),
        "commands": commands(plan, one),
        "launch": plan_launch.to_json(plan, one),
    }


def _explained(plan: Outcome) -> dict[str, object]:
    made = plan.explained
    assert made is not None
    return {
        "asked": dict(made.asked),
        "choices": made.count,
        "fastest": None if made.found is None else row(plan, made.found),
        "text": list(made.text(plan.best)) if plan.best else [],
    }


def plot(plan: Outcome) -> str:
    """Plot the step time against the peak bytes of a rank, one series per schedule, as SVG.

    Raises:
        PipeschedError: PS225 if the rows have no times.
    """
    from pipesched.views.plot import Point
    from pipesched.views.plot import plot as drawn

    if plan.best is not None and not plan.best.trust.timed:
        raise fail(Code.USAGE, f"nothing can be plotted: {plan.best.trust.why}", help="leave out --plot")
    points = [
        Point(
            Fraction(round(one.peak / 1e8), 10),
            Fraction(round(one.seconds * 1000), 1000),
            one.choice.schedule,
            one.choice.layout,
        )
        for one in plan.rows
    ]
    title = f"{plan.request.model} on {plan.request.gpus} GPUs"
    said = (lambda held: gigabytes(held * 10**9), SECONDS.text)
    return drawn(points, x="most of a rank, GB", y="step, s", title=title, said=said)
