"""Compare published training runs with the plan, and fit the plan's constants to these runs.

    python -m tests.bench.published [FILE.json]           every row: predicted, measured, difference; classes, ranks
    python -m tests.bench.published fit                   fits the constants, and writes constants.toml again
    python -m tests.bench.published apart                 each source left out of the fit in turn
    python -m tests.bench.published within                each row left out, with its neighbours of one source kept

Errors of a run are errors of the logarithm of its time. The fit is a robust least squares (weights of soft L1) with a
normal prior on the logarithm of every constant: what was known before any fit, and from where. Layouts of one model
count twice, the second time without their common error. The fit uses the bound of the plan, times the ratio of the
exact timeline to that bound, which hardly depends on the constants; every printed figure is of the exact timeline.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import exp, log
from pathlib import Path
from typing import Any, cast

import numpy as np

from pipesched.planning.layouts.prediction import analysis, ends, least
from pipesched.planning.layouts.space import Choice, Space
from pipesched.planning.layouts.stages import Problem, Stages
from pipesched.planning.transformer.config import Experts, Latent, Training, Transformer
from pipesched.planning.transformer.constants import FILE, Constants, fitted
from pipesched.planning.transformer.devices import DEVICES

DATA = Path(__file__).parents[1] / "data" / "published_runs.json"


@dataclass(frozen=True)
class Prior:
    """The prior knowledge of a constant, before any fit. spread: one standard deviation, as a factor. most: a limit."""

    start: float
    spread: float
    why: str
    most: float = 1e9


PRIORS: Mapping[str, Prior] = {
    "gemm_a100": Prior(0.84, 1.05, "cuBLAS on large 16-bit products, 250 to 270 of 312 TFLOP/s"),
    "gemm_h100": Prior(0.72, 1.1, "likewise, under its power limit"),
    "gemm_fp8": Prior(0.6, 1.12, "likewise, of the doubled peak: 1.1 to 1.3 PFLOP/s of Transformer Engine"),
    "k0": Prior(32, 1.5, "a step of 32 in K to fill the pipe of a tile"),
    "wave": Prior(0.7, 1.5, "1: a last wave that is not full costs a whole one", 1.0),
    "unaligned": Prior(0.8, 1.2, "sizes that are no multiple of 64", 1.0),
    "hbm": Prior(0.75, 1.12, "share of the memory's bandwidth: copies reach 0.85, norms 0.65", 1.0),
    "scores": Prior(0.35, 1.35, "batched products of the scores, K is the size of a head"),
    "flash_a100": Prior(0.6, 1.2, "FlashAttention-2, figure 5"),
    "flash_torch": Prior(0.4, 1.35, "FlashAttention-2 on H100"),
    "flash_megatron": Prior(0.5, 1.28, "cuDNN's attention on H100"),
    "flash_back": Prior(0.75, 1.2, "backward of attention over forward, of the rate"),
    "launch": Prior(6, 1.6, "microseconds of a kernel's launch"),
    "host_deepspeed": Prior(6000, 1.8, "microseconds a layer: about 200 operations of eager torch at 30 us"),
    "host_experts": Prior(500, 2.7, "microseconds a layer and direction: permutation of tokens and its counts"),
    "busbw": Prior(0.72, 1.2, "share of NVLink that an all-reduce of NCCL reaches", 1.0),
    "latency": Prior(20, 1.6, "microseconds of a collective"),
    "tensor_shown": Prior(0.5, 1.6, "of messages over t with sequence parallelism on H100 and later", 1.0),
    "context_shown": Prior(0.4, 2.0, "of the keys and values of a ring", 1.0),
    "experts_shown": Prior(0.8, 1.5, "of messages to experts", 1.0),
    "shown_torch": Prior(0.2, 2.2, "of gathers and reductions of ZeRO 3", 1.0),
    "shown_deepspeed": Prior(0.2, 2.2, "likewise, in 2021", 1.0),
    "shown_megatron": Prior(0.1, 2.2, "likewise, with NVIDIA's FSDP", 1.0),
    "gather_torch": Prior(0.4, 2.0, "of the adapters of a node in NCCL's gathers over nodes", 1.0),
    "gather_deepspeed": Prior(0.1, 1.65, "likewise in 2021: one adapter of eight", 1.0),
    "reduce_deepspeed": Prior(2.0, 1.5, "of 2021: all-reduced, not scattered (3 / 2), at 3/4 of the link"),
    "p2p": Prior(0.7, 1.5, "share of a link that a message between stages reaches", 1.0),
    "grouped": Prior(0.6, 1.5, "rate of products of experts over that of one product"),
    "step": Prior(1.2, 1.5, "30 bytes a parameter in the optimizer's step, times this"),
}
NAMES = tuple(PRIORS)
TRAINER = {
    "megatron 2021-22": "megatron",
    "megatron-deepspeed 2021-22": "deepspeed",
    "deepspeed zero 3": "deepspeed",
    "llm-foundry (torch FSDP)": "torch",
    "torchtitan 2024": "torch",
    "nemo 2024": "megatron",
    "megatron-bridge 2025": "megatron",
    "megatron-core 0.9": "megatron",
}
"""The trainer of a plan for each trainer of the data."""
RECOMPUTED = {("torchtitan 2024", "none"): "operations"}
"""Its default, `selective_ac_option = "op"`, for what the data have without full recomputation."""
OUTPUTS = {"llm-foundry (torch FSDP)": False}
"""Its default is flash-attention's cross entropy, which writes gradients over the logits."""
GRADIENTS = {"nemo 2024": 2, "megatron-bridge 2025": 2}
"""Bytes of a gradient in the recipes of these runs, which reduce in bf16."""
OPTIMIZER = {"nemo 2024": 10}
"""apex's distributed Adam keeps of the master copy only the 16 bits that the bf16 parameters lack."""


@dataclass(frozen=True, eq=False)
class Run:
    """A published run as a choice of a plan."""

    row: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def source(self) -> str:
        return str(self.row["source"]).split(" (")[0].split(", ")[0].split(": ")[0]

    @property
    def measured(self) -> float:
        return float(self.row["measured"]["seconds"])

    @property
    def timed(self) -> bool:
        return "seconds" in self.row["measured"]

    @property
    def kind(self) -> str:
        """The class of the run."""
        model, layout, cluster = (self.row[key] for key in ("model", "layout", "cluster"))
        if "experts" in model:
            return "experts"
        if layout["zero"] == 3 and cluster["device"] == "a100":
            return "zero3_a100"
        return "long" if model["sequence"] > 16384 else "dense"

    @cached_property
    def problem(self) -> Problem:
        model, cluster, layout = dict(self.row["model"]), self.row["cluster"], self.row["layout"]
        nouns: dict[str, Callable[..., Any]] = {"experts": Experts, "latent": Latent}
        inner = {key: noun(**model.pop(key)) for key, noun in nouns.items() if key in model}
        transformer = Transformer(**model, **inner)
        device = replace(
            DEVICES[cluster["device"]],
            flops=Fraction(str(cluster["peak_tflops"])) * 10**12 / (2 if cluster.get("linears") == "fp8" else 1),
            node=Fraction(str(cluster["node_gb_s"])) * 10**9,
            network=Fraction(str(cluster["network_gb_s"])) * 10**9,
            node_size=min(cluster["node_size"], cluster["gpus"]),
            usable=Fraction(str(cluster["memory_gb"])) * 2**30 - 2**30,
        )
        training = Training(
            microbatch=layout["microbatch"],
            batch=layout["batch"],
            tensor=layout["t"],
            sequence_parallel=layout["sequence_parallel"],
            context=layout["c"],
            data=layout["d"],
            expert=layout["e"],
            zero=layout["zero"],
            recompute=RECOMPUTED.get((self.row["trainer"], layout["recompute"]), layout["recompute"]),
            attention=layout["attention"],
            optimizer_bytes=Fraction(OPTIMIZER.get(self.row["trainer"], layout["optimizer_bytes"])),
            gradient_bytes=Fraction(GRADIENTS.get(self.row["trainer"], layout["gradient_bytes"])),
            layout=tuple(layout["layers_of_stage"]) if "layers_of_stage" in layout else None,
            keep_outputs=layout.get("keep_outputs", OUTPUTS.get(self.row["trainer"])),
            trainer=TRAINER[self.row["trainer"]],
            linears=cluster.get("linears", ""),
        )
        space = Space(transformer, training, cluster["gpus"], device.node_size, {})
        return Problem(space, device, Fraction(10**15))

    @cached_property
    def choice(self) -> Choice:
        layout = self.row["layout"]
        p, v = layout["p"], layout["v"] if layout["p"] > 1 else 1
        return Choice("interleaved" if v > 1 else "1f1b", p, v, self.problem.space.training)

    @cached_property
    def _fixed(self) -> dict[Any, Any]:
        """The quantities of stages that do not depend on constants."""
        made = Stages(self.problem)
        made.layers(self.choice), made._kinds(self.choice), made._counts(self.choice)
        return made.memo

    def bound(self, constants: Constants) -> float:
        """Return the seconds of the plan's bound."""
        return least(Stages(replace(self.problem, constants=constants), dict(self._fixed)), self.choice) / 1e9

    def exact(self, constants: Constants | None = None) -> float:
        """Return the seconds of the plan."""
        problem = replace(self.problem, constants=constants)
        found, after = ends(problem, self.choice, analysis(problem, self.choice))
        return max(end + more for end, more in zip(found, after, strict=True)) / 1e9


def runs(path: Path = DATA) -> list[Run]:
    """Return the runs of a file."""
    return [Run(row) for row in json.loads(path.read_text("utf-8"))["rows"]]


def constants(x: Sequence[float], *, exactly: bool = False) -> Constants:
    """Return the constants of a point, by logarithm; floats for the fit, or four digits."""
    made = {}
    for name, value in zip(NAMES, x, strict=True):
        found = min(exp(value), PRIORS[name].most)
        made[name] = Fraction(f"{found:.4g}") if exactly else cast("Fraction", found)
    return Constants(made, {})


@dataclass
class Fit:
    """A fit on some runs. x: logarithms of the constants. sigma: their standard deviations."""

    x: np.ndarray
    sigma: np.ndarray

    @property
    def constants(self) -> Constants:
        return constants(self.x.tolist(), exactly=True)


START = np.log([row.start for row in PRIORS.values()])
SIGMA = np.log([row.spread for row in PRIORS.values()])
MOST = np.log([row.most for row in PRIORS.values()])
NOISE, BETWEEN, UNKNOWN = 0.07, 0.04, 0.3  # of a run, between layouts of one model, of experts


@dataclass
class Slopes:
    """Errors of runs at a point, and their derivatives by each constant, both divided by the noise."""

    runs: Sequence[Run]
    x: np.ndarray
    errors: np.ndarray
    slopes: np.ndarray

    def step(self, keeps: Callable[[Run], bool] = lambda _: True) -> Fit:
        """Return the point after one step of the fit on the runs that are kept."""
        kept = np.array([keeps(run) for run in self.runs])
        same = kept & np.array([run.row["group"] == "181B layouts" for run in self.runs])
        noise = np.array([UNKNOWN if run.kind == "experts" else NOISE for run in self.runs])
        rows, sizes = [(self.errors / noise)[kept]], [(self.slopes / noise[:, None])[kept]]
        if same.sum() > 1:
            rows.append((self.errors[same] - self.errors[same].mean()) / BETWEEN)
            sizes.append((self.slopes[same] - self.slopes[same].mean(axis=0)) / BETWEEN)
        r, j = np.concatenate(rows), np.concatenate(sizes)
        weight, precision = 1 / np.sqrt(1 + r**2), np.diag(SIGMA**-2)
        normal = j.T @ (weight[:, None] * j) + precision
        move = -np.linalg.solve(normal, j.T @ (weight * r) + precision @ (self.x - START))
        return Fit(np.minimum(self.x + np.clip(move, -0.5, 0.5), MOST), np.sqrt(np.diag(np.linalg.inv(normal))))


def slopes(given: Sequence[Run], x: np.ndarray, ratio: np.ndarray) -> Slopes:
    """Differentiate the errors of runs. ratio: logarithm of the exact time over the bound, by run."""

    def errors(at: np.ndarray) -> np.ndarray:
        made = constants(at.tolist())
        return np.array([log(run.bound(made) / run.measured) for run in given]) + ratio

    e, columns = errors(x), []
    for i in range(len(x)):
        moved = x.copy()
        moved[i] += 0.01 if x[i] < MOST[i] - 0.01 else -0.01
        columns.append((errors(moved) - e) / (moved[i] - x[i]))
    return Slopes(given, x, e, np.stack(columns, axis=1))


def ratios(given: Sequence[Run], x: np.ndarray) -> np.ndarray:
    """Return the logarithm of the exact time over the bound, by run."""
    exactly, made = constants(x.tolist(), exactly=True), constants(x.tolist())
    return np.array([log(run.exact(exactly) / run.bound(made)) for run in given])


def fit(given: Sequence[Run], x: np.ndarray | None = None, steps: int = 8) -> Fit:
    """Fit the constants on runs by Gauss-Newton steps, from a point or from the priors."""
    made, ratio = Fit(START.copy() if x is None else x.copy(), SIGMA), np.zeros(len(given))
    for step in range(steps):
        ratio = ratios(given, made.x) if step % 3 == 0 else ratio
        before, made = made.x, slopes(given, made.x, ratio).step()
        if np.abs(made.x - before).max() < 2e-3 and step > 3:
            break
    return made


def stored() -> np.ndarray:
    """Return the constants of the table, by logarithm."""
    return np.log([float(fitted().of[name]) for name in NAMES])


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the rank correlation of two lists."""
    a, b = (np.argsort(np.argsort(x)).astype(float) for x in (one, other))
    return float(np.corrcoef(a, b)[0, 1])


def report(given: Sequence[Run], found: Mapping[str, float], *, rows: bool = True) -> None:
    """Print differences by run, by source and by class."""
    difference = {run.id: found[run.id] / run.measured - 1 for run in given}
    for run in given if rows else ():
        shown = f"{found[run.id]:9.3f} s, measured {run.measured:9.3f} s"
        print(f"{run.id:28} {run.kind:10} {shown}  {difference[run.id]:+7.1%}")
    for name, key in (("source", lambda run: run.source), ("class", lambda run: run.kind)):
        for value in dict.fromkeys(map(key, given)):
            e = np.array([difference[run.id] for run in given if key(run) == value])
            worst = e[np.argmax(np.abs(e))]
            shown = f"median {np.median(np.abs(e)):6.1%}  worst {worst:+7.1%}  mean {e.mean():+6.1%}"
            print(f"{name} {value:32} {len(e):3}  {shown}")
    same = [run for run in given if run.row["group"] == "181B layouts"]
    if len(same) > 2:
        first = min(same, key=lambda run: found[run.id])
        over = first.measured / min(run.measured for run in same) - 1
        rank = spearman([found[run.id] for run in same], [run.measured for run in same])
        print(f"layouts of 181B: Spearman {rank:+.2f}, the first is {over:.1%} over the best")
    e = np.array([abs(difference[run.id]) for run in given if run.kind != "experts"])
    print(f"all but experts: {len(e)}, median {np.median(e):.1%}, worst {e.max():.1%}")


def apart(given: Sequence[Run], key: Callable[[Run], str], whole: Fit, steps: int = 2) -> dict[str, float]:
    """Return the seconds of every run, with its group left out of the fit."""
    found = {}
    for value in dict.fromkeys(map(key, given)):
        one = fit([run for run in given if key(run) != value], whole.x, steps)
        found |= {run.id: run.exact(one.constants) for run in given if key(run) == value}
    return found


def apart_by_a_step(found: Slopes, key: Callable[[Run], str]) -> dict[str, float]:
    """Return the seconds of every run, with its group left out of one step from the point of all runs."""
    seconds = {}
    for value in dict.fromkeys(map(key, found.runs)):
        one = found.step(lambda run, value=value: key(run) != value)  # type: ignore[misc]
        seconds |= {run.id: run.exact(one.constants) for run in found.runs if key(run) == value}
    return seconds


def written(made: Fit, errors: Mapping[str, Mapping[str, float]]) -> str:
    """Return the table of constants as TOML."""
    lines = [
        "# Made by `python -m tests.bench.published fit` from tests/data/published_runs.json, "
        "whose rows have the sources.",
        "# spread: one standard deviation, as a factor; from: data where the runs have at least halved the prior's.",
        "",
    ]
    for name, value, sigma in zip(NAMES, made.constants.of.values(), made.sigma, strict=True):
        prior = PRIORS[name]
        by = "data" if sigma < log(prior.spread) / 2 else "both" if sigma < 0.85 * log(prior.spread) else "prior"
        lines += [
            f"[constants.{name}] # {prior.why}",
            f'value = "{float(value):.4g}"',
            f"spread = {exp(sigma):.2f}",
            f'from = "{by}"',
            f"prior = {prior.start:g}",
            f"prior_spread = {prior.spread:g}",
            "",
        ]
    for name, row in errors.items():
        lines += [f"[errors.{name}]", *(f"{key} = {x:.3g}" for key, x in row.items()), ""]
    return "\n".join(lines)


def missed(given: Sequence[Run], found: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the errors of predictions by class: number, median, 90th percentile, worst."""
    made = {}
    for kind in dict.fromkeys(run.kind for run in given):
        e = np.array([abs(found[run.id] / run.measured - 1) for run in given if run.kind == kind])
        made[kind] = {"runs": len(e), "median": np.median(e), "most_of_them": np.quantile(e, 0.9), "worst": e.max()}
    return made


def main(words: Sequence[str]) -> None:
    what = words[0] if words else ""
    path = Path(words[-1]) if words and words[-1].endswith(".json") else DATA
    given = [run for run in runs(path) if run.timed]
    if what in ("fit", "apart", "within"):
        whole = fit(given)
        if what == "fit":
            report(given, {run.id: run.exact(whole.constants) for run in given})
        key = (lambda run: run.id) if what == "within" else lambda run: run.source
        found = apart(given, key, whole)
        print(f"--- {'rows' if what == 'within' else 'sources'} left out in turn")
        report(given, found)
        if what == "fit":
            FILE.write_text(written(whole, missed(given, found)), "utf-8")
        return
    report(given, {run.id: run.exact() for run in given})


if __name__ == "__main__":
    main(sys.argv[1:])
