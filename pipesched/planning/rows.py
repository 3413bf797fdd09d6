"""Bytes and times of a transformer: its options, and what the core shows of it."""

from dataclasses import replace

from pipesched.extension import Check, CostModel, Lazy, Listing, Measure, Option, Overlay, Reading, Taker, Verb, flag

_DRAWN = ("text", "svg", "html")
_OWNER = Lazy[type]("planning.workload:Workload")
_SHARE = Lazy[Reading]("command.values:fraction")
_WHOLE = Lazy[Reading]("command.values:whole")
_INTO = Lazy[Taker]("planning.workload:workload")
_MODEL = Option("model", Lazy("planning.values:model"), metavar="FILE.toml|NAME")
_DEVICE = Option(
    "device",
    Lazy("planning.values:device"),
    "With --model, costs in ms on a100, h100, h200, ...",
    "NAME|FILE.toml",
)
_EFFICIENCY = Option("efficiency", _SHARE, "Share of its peak that it reaches [default: 1/2].", "X")
_PLAN = (
    replace(
        _MODEL,
        help="The transformer; how it is trained but for what is planned.",
        read=Lazy("planning.values:named_model"),
    ),
    Option("gpus", _WHOLE, "GPUs of the cluster.", "N"),
    Option("gpus_per_node", _WHOLE, "[default: of the device's row]", "N"),
    replace(_DEVICE, help="What the GPUs are."),
    Option("batch", _WHOLE, "Sequences of a step [default: the model's].", "B"),
    Option("tokens", Lazy("planning.values:amount"), "Tokens to train on, for the days: 300B, 15T.", "T"),
    Option("mem_cap", Lazy("planning.values:byte_cap"), "Most bytes of a GPU [default: its memory].", "80GB"),
    Option(
        "only",
        Lazy("command.values:texts"),
        "Try these values of p, t, c, d, e, v, b, ...",
        "t=4,8",
        (),
        typed=Lazy("command.values:text"),
    ),
    Option("explain", None, "Say why such a choice is not the first.", "p=8,t=4,.."),
    Option("top", _WHOLE, "Rows.", "N", 5),
    replace(_EFFICIENCY, help="Share of its peak that a GPU reaches [default: 1/2]."),
    Option("overlap", _SHARE, "Share of data parallelism's messages that may overlap compute [default: 1].", "X"),
    Option("executor", None, "Who works.", "processes[:N]|here|dask:ADDRESS", "processes", terminal=True),
    Option("plot", None, "Draw seconds against bytes.", "OUT.svg", terminal=True),
    Option("verbose", flag, "All that is assumed of the model and the cluster.", terminal=True),
    Option("format", None, None, None, "text", choices=("text", "json"), terminal=True),
    Option("json", flag, "One object: rows, counts, rules, assumed.", terminal=True),
    Option("color", None, None, None, "auto", choices=("auto", "always", "never"), terminal=True),
    Option(
        "output",
        None,
        "Write to FILE instead of stdout; FILE.html is a page.",
        "FILE",
        flags=("-o", "--output"),
        terminal=True,
    ),
)
_TIMED = ("verify", "why", "compare", "diff", "show", "optimize")


def _workload(option: Option, help: str | None, after: str, *verbs: str) -> Option:
    """An option of the workload, on verbs."""
    return replace(option, help=help, after=after, on=verbs, into=_INTO)


ROWS = (
    Verb(
        "plan",
        "Make",
        "Find the layout of a training step over a cluster that is fastest and fits.",
        Lazy("planning.plan_command:plan"),
        place=11,
    ),
    *(replace(option, on=("plan",)) for option in _PLAN),
    _workload(_MODEL, "A transformer and its training, for memory in bytes.", "framework_time", "verify"),
    _workload(_MODEL, "With --device, what the costs are of.", "framework_time", "why"),
    _workload(_MODEL, "For memory in bytes; with --device, the costs too.", "framework_time", "compare", "diff"),
    _workload(_MODEL, "What a cap in bytes is of; with --device, the costs too.", "costs", "optimize"),
    _workload(
        _MODEL,
        f"{', '.join(_DRAWN)}: bytes by kind over time, of a transformer and its training.",
        "measured",
        "show",
    ),
    _workload(_MODEL, "With --rank: what enters a stage, where the function gives modules alone.", "factory", "run"),
    _workload(_DEVICE, _DEVICE.help, "model", *_TIMED),
    _workload(_EFFICIENCY, _EFFICIENCY.help, "device", *_TIMED),
    CostModel(Lazy("planning.workload:costs"), owner=_OWNER),
    Measure(Lazy("planning.footprint_report:in_bytes"), owner=_OWNER),
    Check(
        "no rank needs more bytes than its cap",
        ("PS502",),
        Lazy("planning.footprint_check:check_bytes"),
        place=45,
        owner=_OWNER,
    ),
    Check(
        "the microbatches of the batch of a model are those of the schedule",
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
        why="is for operations; with --model bytes are drawn",
    ),
)
