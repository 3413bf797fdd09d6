"""Which layout of a training step over a cluster fits, and which is fastest.

model, cluster, batch ──> every choice ──> the fastest that fit, rule by rule, with the commands that check them
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from pipesched.diagnostics import Code, Diagnostic, exit_status, fail
from pipesched.planning.prediction import Prediction
from pipesched.planning.rules import Explained, Judged, explain, judge
from pipesched.planning.schedules import SCHEDULES
from pipesched.planning.search import Search, executor
from pipesched.planning.space import LAYOUT, LETTERS, NAMES, RECOMPUTE, Space
from pipesched.planning.stages import Problem
from pipesched.transformer.config import Trained
from pipesched.transformer.devices import Device

MOST = 2**17
_EXAMPLE = "pipesched plan --model llama3-70b --gpus 64 --device h100 --batch 512"
_WHOLE = ("p", "t", "c", "d", "e", "v", "b", "zero")


@dataclass(frozen=True)
class Request:
    """model: as it was named. trained: what that is. cap: bytes of a rank, the device's memory if None.

    explain: sizes of the choices that are to be explained.
    """

    model: str
    trained: Trained
    gpus: int
    device: Device
    batch: int
    gpus_per_node: int | None = None
    cap: Fraction | None = None
    tokens: int | None = None
    only: Mapping[str, tuple[Any, ...]] | None = None
    explain: Mapping[str, Any] | None = None
    top: int = 5
    efficiency: Fraction = Fraction(1, 2)
    overlap: Fraction = Fraction(0)

    def problem(self) -> Problem:
        """The choices, and what they run on.

        Raises:
            PipeschedError: PS246, a cluster or a batch that there is not.
        """
        node = min(self.gpus_per_node or self.device.node_size, self.gpus)
        if self.gpus > node and self.gpus % node:
            raise fail(Code.CLUSTER, f"{self.gpus} GPUs are not whole nodes of {node}", help="give --gpus-per-node")
        transformer, training = self.trained
        space = Space(transformer, replace(training, batch=self.batch, layout=None), self.gpus, node, self.only or {})
        device = replace(self.device, node_size=node)
        return Problem(space, device, self.cap or device.memory, self.efficiency, self.overlap)


@dataclass(frozen=True)
class Plan:
    """The fastest choices, one of each (p, t, c, d, e). counts: of choices by what became of them; refused: why some
    are none, with how many. rules: of the literature, against the first. explained: what was asked about.
    """

    request: Request
    problem: Problem
    rows: tuple[Prediction, ...]
    counts: Mapping[str, int]
    refused: Mapping[str, int]
    rules: tuple[Judged, ...]
    explained: Explained | None
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def best(self) -> Prediction | None:
        """The first."""
        return self.rows[0] if self.rows else None

    @property
    def exit_status(self) -> int:
        """1 where nothing fits."""
        return exit_status(self.diagnostics)

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """The table, the rules, and what was assumed."""
        from pipesched.verbs.plan_report import text

        return text(self)

    def to_json(self) -> dict[str, object]:
        """The published form, see ``emit/README.md``."""
        from pipesched.verbs.plan_report import to_json

        return to_json(self)

    def plot(self) -> str:
        """Seconds of a step against the most bytes of a rank, as SVG."""
        from pipesched.verbs.plan_report import plot

        return plot(self)

    def html(self) -> str:
        """A page that loads nothing."""
        from pipesched.verbs.plan_page import html

        return html(self)


def plan(request: Request, workers: str | Executor = "here") -> Plan:
    """All of it. workers: an executor of `concurrent.futures`, or how `--executor` names one.

    Raises:
        PipeschedError: PS246, PS248, PS249, PS225.
    """
    problem = request.problem()
    if isinstance(workers, Executor):
        return _planned(request, Search(problem, workers))
    with executor(workers, problem.space) as made:
        return _planned(request, Search(problem, made))


def _planned(request: Request, search: Search) -> Plan:
    if not search.choices:
        raise fail(Code.NO_CHOICE, "there is no such choice", help=_dimensions(request))
    rows = search.best(request.top, apart=LAYOUT)
    explained = explain(search, request.explain) if request.explain else None
    if explained is not None and not explained.count:
        said = ", ".join(f"{name}={value}" for name, value in explained.asked.items())
        raise fail(Code.NO_CHOICE, f"no choice has {said}", help=_dimensions(request))
    rules = tuple(judge(search, rows[0])) if rows else ()
    refused = dict(search.reasons.most_common())
    found = () if rows else (_nothing(search),)
    return Plan(request, search.problem, tuple(rows), search.counts, refused, rules, explained, found)


def _dimensions(request: Request) -> str:
    return (
        f"p t c d is {request.gpus}, and a microbatch of b sequences on d copies divides the batch of {request.batch}"
    )


def _nothing(search: Search) -> Diagnostic:
    """PS245: what comes closest, and by what the choices fail."""
    over = [one for one in search.example.values() if one.over]
    least = min(over, key=lambda one: one.over, default=None)
    reasons = [f"{number:,}: {kind}" for kind, number in search.reasons.most_common(6)]
    notes = ([f"least is over with {least.choice}: {least.reason}"] if least else []) + reasons
    many = f"none of {len(search.choices):,} choices fits"
    return Diagnostic(Code.NO_PLAN, many, (), tuple(notes), "more GPUs, a larger cap, or fewer restrictions by --only")


def only(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """``t=4,8,p=2`` as the values of sizes; several texts add up.

    Raises:
        PipeschedError: PS247.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        for name, values in _sizes(text):
            found[name] = tuple(dict.fromkeys((*found.get(name, ()), *values)))
    return found


def choice(text: str) -> dict[str, Any]:
    """``p=8,t=4,recompute=full``.

    Raises:
        PipeschedError: PS247.
    """
    found: dict[str, Any] = {}
    for name, values in _sizes(text):
        if name in found or values[1:]:
            raise fail(Code.CHOICE, f"{name} is given twice")
        found[name] = values[0]
    return found


def _sizes(text: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Of ``p=8,t=4,2`` each size with its values."""
    for part in re.split(r",(?=[^,]*=)", text):
        name, equals, values = (one.strip() for one in part.partition("="))
        name = next((short for short, long in LETTERS.items() if long == name), name)
        if name not in NAMES or not equals:
            raise fail(
                Code.CHOICE, f"{part[:60]!r} is no size of a choice", help=f"sizes are {', '.join(NAMES)}, as p=8"
            )
        yield name, tuple(_value(name, value.strip()) for value in values.split(","))


def _value(name: str, text: str) -> Any:
    known: Mapping[str, Sequence[str]] = {"schedule": tuple(SCHEDULES), "recompute": RECOMPUTE}
    if name in known and text in known[name]:
        return text
    if name in _WHOLE and text.isdecimal() and len(text) <= 6:
        number = int(text)
        if number <= 3 if name == "zero" else number > 0:
            return number
    what = (
        f"one of {', '.join(known[name])}" if name in known else "0 to 3" if name == "zero" else "a whole number from 1"
    )
    raise fail(Code.CHOICE, f"{name} is {text[:60]!r}, not {what}")


def request(given: Mapping[str, Any]) -> Request:
    """What a command line, or keywords, ask for.

    Raises:
        PipeschedError: PS225, something that must be given is not; PS247.
    """
    for name in ("model", "gpus", "device"):
        if given[name] is None:
            raise fail(Code.USAGE, f"a plan needs --{name}", help=_EXAMPLE)
    name, trained = given["model"]
    counts = {key: given[key] for key in ("gpus", "gpus_per_node", "batch", "top") if given[key] is not None}
    if wrong := next(((key, x) for key, x in counts.items() if not 0 < x <= MOST), None):
        raise fail(Code.CLUSTER, f"{wrong[0]} is {wrong[1]}, not from 1 to {MOST:,}")
    batch = given["batch"] or trained[1].batch
    if batch is None:
        raise fail(Code.USAGE, f"a plan needs --batch: {name} does not say how many sequences a step has")
    if given["efficiency"] == 0:
        raise fail(Code.USAGE, "at an efficiency of 0 nothing is computed")
    shares = {key: given[key] for key in ("efficiency", "overlap") if given[key] is not None}
    return Request(
        name,
        trained,
        given["gpus"],
        given["device"],
        batch,
        given["gpus_per_node"],
        given["mem_cap"],
        given["tokens"],
        only(given["only"]),
        choice(given["explain"]) if given["explain"] else None,
        given["top"],
        **shares,
    )
