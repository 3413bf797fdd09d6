"""The rows by which planning adds a transformer's bytes and times to verbs: options, checks, sections of reports."""

from dataclasses import replace

from pipesched.common.rows import Listing
from pipesched.extension import (
    Check,
    Codes,
    CostModel,
    Lazy,
    Measure,
    Option,
    Reading,
    Row,
    Sweep,
    Taker,
    Verb,
)
from pipesched.views.rows import Overlay

_DRAWN = ("text", "svg", "html")
_OWNER = Lazy[type]("planning.workload:Workload")
_INTO = Lazy[Taker]("planning.workload:workload")
MODEL = Option("model", Lazy("planning.values:model"), metavar="FILE.toml|NAME")
DEVICE = Option(
    "device",
    Lazy("planning.values:device"),
    "With --model, compute costs in ms for a100, h100, h200, ...",
    "NAME|FILE.toml",
)
EFFICIENCY = Option(
    "efficiency",
    Lazy[Reading]("planning.values:fraction"),
    "Fixed fraction of peak FLOP/s, e.g. 50% [default: times by shape].",
    "X",
)
CAP = Option(
    "mem_cap",
    Lazy[Reading]("planning.values:caps"),
    "Largest number of activations per rank, without buffers and parameters; with --model also bytes, such as 80GB.",
    "K|K0,K1,...",
)
EXECUTOR = Option(
    "executor",
    Lazy[Reading]("planning.executors:named"),
    "Where the work runs [default: in this process].",
    "processes[:N]|here|dask:ADDRESS",
    terminal=True,
)
_WORKERS = Lazy[type]("planning.executors:Workers")
_TIMED = ("verify", "why", "compare", "diff", "show", "optimize")


def _workload(option: Option, help: str | None, after: str, *verbs: str) -> Option:
    """Return a workload option for these verbs."""
    return replace(option, help=help, after=after, on=verbs, into=_INTO)


ROWS: tuple[Row, ...] = (
    Codes(Lazy("planning.codes:PlanningCode")),
    Verb(
        "plan",
        "Make",
        "Find the fastest layout of a training step that fits a cluster.",
        Lazy("planning.plan_command:plan"),
        Lazy("planning.plan_command:PLAN"),
        {"text": (".txt",), "json": (".json",), "html": (".html", ".htm")},
        place=11,
    ),
    _workload(MODEL, "A transformer and its training setup, to count memory in bytes.", "framework_time", "verify"),
    _workload(
        MODEL, "A transformer and its training setup, for bytes; with --device, for costs too.", "framework_time", "why"
    ),
    _workload(MODEL, "A transformer, for bytes; with --device, for costs too.", "framework_time", "compare", "diff"),
    _workload(MODEL, "A transformer, for a cap in bytes; with --device, for costs too.", "costs", "optimize"),
    _workload(
        MODEL,
        f"{', '.join(_DRAWN)}: plot the bytes by kind over time, for a transformer and its training setup.",
        "measured",
        "show",
    ),
    _workload(MODEL, "With --rank: the inputs of a stage, if the function returns only a module.", "factory", "run"),
    _workload(DEVICE, DEVICE.help, "model", *_TIMED),
    _workload(EFFICIENCY, EFFICIENCY.help, "device", *_TIMED),
    replace(CAP, on=("verify", "show", "emit", "why", "compare", "diff"), into=_INTO),
    replace(EXECUTOR, on=("verify", "compare"), after="max_ops", into=_WORKERS),
    Sweep(Lazy("planning.sweeps:reports"), owner=_WORKERS),
    CostModel(Lazy("planning.workload:costs"), owner=_OWNER),
    Measure("bytes", Lazy("planning.footprint_report:in_bytes"), owner=_OWNER),
    Check(
        "no rank needs more bytes than its cap allows",
        ("PS502",),
        Lazy("planning.footprint_check:check_bytes"),
        place=45,
        owner=_OWNER,
    ),
    Check(
        "the microbatches of the schedule match the model's batch",
        ("PS909",),
        Lazy("planning.footprint_check:check_batch"),
        place=200,
        owner=_OWNER,
    ),
    Listing(
        "models",
        Lazy("planning.listing:entries"),
        Lazy("planning.listing:lines"),
        Lazy("planning.listing:source"),
        place=20,
    ),
    Overlay(
        "model",
        {name: Lazy(f"planning.stacked:draw_{name}") for name in _DRAWN},
        without=("style", "messages", "memory", "measured"),
        why="applies to operations; with --model the picture shows bytes",
    ),
)
