"""Plans of a training step over a cluster: the request, and the fastest choices that fit.

model, cluster, batch ──> every choice ──> the fastest that fit, rule by rule, with the commands that check them
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace

from pipesched.command.options import Given
from pipesched.diagnostics import Code, fail
from pipesched.planning import plan_launch, plan_page, plan_report
from pipesched.planning.codes import PlanningCode
from pipesched.planning.layouts.plan import Outcome, Request, outcome
from pipesched.planning.layouts.schedules import SCHEDULES, UNTRIED
from pipesched.planning.layouts.search import Tell, silent
from pipesched.planning.layouts.space import LETTERS, NAMES, SPLITS, Size
from pipesched.planning.plan_order import ordered
from pipesched.planning.transformer.config import RECOMPUTE
from pipesched.planning.transformer.kept import read as read_kept
from pipesched.planning.values import one_device

MOST = 2**17
_EXAMPLE = "pipesched plan --model llama3-70b --gpus 64 --device h100 --batch 512"
_WHOLE = ("p", "t", "c", "d", "e", "v", "b", "zero")


class Plan(Outcome):
    """The fastest choices, as text, JSON, plot or page."""

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None, *, verbose: bool = False) -> str:
        """Return the table, the rules and the assumptions; verbose: show all assumptions."""
        return plan_report.text(self, verbose=verbose)

    def to_json(self) -> dict[str, object]:
        """Return the published JSON form (see ``emit/README.md``)."""
        return plan_report.to_json(self)

    def plot(self) -> str:
        """Return the plot of step time against the peak bytes of a rank, as SVG."""
        return plan_report.plot(self)

    def with_order(self, seconds: float) -> Plan:
        """Return the plan with the optimizer's orders for the first rows. seconds: the optimizer's time limit."""
        return replace(self, ordered=ordered(self, seconds))

    def configuration(self, path: str) -> dict[str, str]:
        """Return the contents, by path, of the trainer's files for the first row; the main file is at `path`."""
        made = plan_launch.launch(self, self.best) if self.best else None
        return {} if made is None else plan_launch.named(made, path)

    def check(self, path: str) -> str:
        """Return the command that checks the first row's configuration at `path`; empty without a trainer."""
        made = plan_launch.launch(self, self.best) if self.best else None
        return "" if made is None else made.check(path)

    def html(self) -> str:
        """Return the plan as a self-contained HTML page."""
        return plan_page.html(self)


def plan(request: Request, workers: str | Executor = "here", tell: Tell = silent) -> Plan:
    """Find the plan. workers: an executor of `concurrent.futures`, or a name for `--executor`. tell: a function that is
    called with progress messages.

    Raises:
        PipeschedError: PS225, PS246, PS248 or PS249 if the request is invalid.
    """
    return Plan(**vars(outcome(request, workers, tell)))


def only(texts: Sequence[str]) -> dict[str, tuple[Size, ...]]:
    """Parse ``t=4,8,p=2`` as values of sizes; several strings are combined.

    Raises:
        PipeschedError: PS247.
    """
    found: dict[str, tuple[Size, ...]] = {}
    for text in texts:
        for name, values in _sizes(text):
            found[name] = tuple(dict.fromkeys((*found.get(name, ()), *values)))
    return found


def choice(text: str) -> dict[str, Size]:
    """Parse the sizes of one choice, as in ``p=8,t=4,recompute=full``.

    Raises:
        PipeschedError: PS247.
    """
    found: dict[str, Size] = {}
    for name, values in _sizes(text):
        if name in found or values[1:]:
            raise fail(PlanningCode.CHOICE, f"{name} has more than one value")
        found[name] = values[0]
    return found


def _sizes(text: str) -> Iterator[tuple[str, tuple[Size, ...]]]:
    """Yield each size in ``p=8,t=4,2`` with its values."""
    for part in re.split(r",(?=[^,]*=)", text):
        name, equals, values = (one.strip() for one in part.partition("="))
        name = next((short for short, long in LETTERS.items() if long == name), name)
        if name not in NAMES or not equals:
            raise fail(
                PlanningCode.CHOICE,
                f"{part[:60]!r} is not a size of a choice",
                help=f"sizes are {', '.join(NAMES)}, such as p=8",
            )
        yield name, tuple(_value(name, value.strip()) for value in values.split(","))


def _value(name: str, text: str) -> Size:
    known: Mapping[str, Sequence[str]] = {"schedule": tuple(SCHEDULES), "recompute": RECOMPUTE, "split": SPLITS}
    if name in known and text in known[name]:
        return text
    if name in _WHOLE and text.isdecimal() and len(text) <= 6:
        number = int(text)
        if number <= 3 if name == "zero" else number > 0:
            return number
    what = f"one of {', '.join(known[name])}" if name in known else "0 to 3" if name == "zero" else "a positive integer"
    untried = f"{text} {UNTRIED[text]}" if name == "schedule" and text in UNTRIED else None
    raise fail(PlanningCode.CHOICE, f"{name} is {text[:60]!r}, not {what}", help=untried)


def request(given: Given) -> Request:
    """Build the request from a command line's options, or from keywords.

    Raises:
        PipeschedError: PS225 if a required value is missing; PS247.
    """
    given = {**given, "device": one_device(given["device"])}
    for name in ("model", "gpus", "device"):
        if given[name] is None:
            raise fail(Code.USAGE, f"a plan needs --{name}", help=_EXAMPLE)
    name, trained = given["model"]
    if given["kept"] is not None:
        trained = trained[0], replace(trained[1], kept=read_kept(given["kept"]))
    counts = {key: given[key] for key in ("gpus", "gpus_per_node", "batch", "top") if given[key] is not None}
    if wrong := next(((key, x) for key, x in counts.items() if not 0 < x <= MOST), None):
        raise fail(PlanningCode.CLUSTER, f"{wrong[0]} is {wrong[1]}, not between 1 and {MOST:,}")
    batch = given["batch"] or trained[1].batch
    if batch is None:
        raise fail(Code.USAGE, f"a plan needs --batch: {name} does not state the sequences per step", help=_EXAMPLE)
    if given["efficiency"] == 0:
        raise fail(Code.USAGE, "the efficiency must be above 0")
    shares = {key: given[key] for key in ("efficiency", "overlap") if given[key] is not None}
    return Request(
        name,
        trained,
        given["gpus"],
        given["device"],
        batch,
        gpus_per_node=given["gpus_per_node"],
        cap=given["mem_cap"],
        tokens=given["tokens"],
        only=only(given["only"]),
        explain=choice(given["explain"]) if given["explain"] else None,
        trainer=given["trainer"] or "",
        top=given["top"],
        **shares,
    )
