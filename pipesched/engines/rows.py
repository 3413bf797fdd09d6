"""The rows that add parts on engines: the option `--parts`, the costs derived from parts, and exposed communication."""

import re

from pipesched.extension import Check, Codes, CostModel, Lazy, Measure, Option, Reader, Row, Statement, flag
from pipesched.views.rows import Inset, Overlay, Strip


def _calls(first: str, text: str) -> bool:
    """Return True if the first meaningful line of a text belongs to a file of calls on engines."""
    return re.match(r"(?:group|pipeline)\s+\w+\s*:", first) is not None


_OWNER = Lazy[type]("engines.parts:Parts")
_LAUNCHED = Lazy[type]("interop.frameworks.loaded:Launched")

ROWS: tuple[Row, ...] = (
    Codes(Lazy("engines.codes:EngineCode")),
    Option(
        "costs",
        Lazy("engines.read:costs"),
        "Costs from a TOML file: numbers, lists with one number per stage, or parts as for --parts.",
        "FILE.toml",
        typed=Lazy("engines.read:costs_file"),
        on=("verify", "why", "compare", "diff", "show"),
        into=Lazy("engines.read:asked"),
    ),
    Option(
        "parts",
        Lazy("engines.read:parts"),
        "Parts of F, I and W on engines; they determine the costs.",
        "FILE.toml",
        on=("verify", "why", "compare", "diff", "show"),
        after="costs",
        into=Lazy("engines.read:asked"),
    ),
    Reader(
        "calls",
        "calls on engines",
        ".calls",
        _calls,
        Lazy("engines.calls:schedule"),
        verify=Lazy("engines.verify_calls:verify"),
        place=6,
    ),
    Option(
        "traffic",
        flag,
        "With --plot: plot the makespan against the ratio of communication to compute, from 0 to 1.2.",
        default=False,
        on=("compare",),
        after="parts",
        into=Lazy("engines.traffic:Traffic"),
    ),
    Option(
        "slot",
        None,
        "With text or svg: draw the parts of this operation's slot, one lane per engine.",
        "F0.3",
        on=("show",),
        after="parts",
    ),
    Overlay(
        "slot",
        {"text": Lazy("engines.slot_picture:text"), "svg": Lazy("engines.slot_picture:svg")},
        Lazy("engines.slot_picture:lay"),
        ("messages", "memory"),
        "draws the whole schedule, but --slot draws only one slot",
        place=-1,
    ),
    Inset("slots", Lazy("engines.slot_picture:insets"), owner=_OWNER),
    Strip("exposed", Lazy("engines.slot_picture:strips"), owner=_OWNER),
    Statement("Parts", Lazy("engines.read:stated"), Lazy("engines.read:lines"), owner=_OWNER),
    CostModel(Lazy("engines.costs:costs"), owner=_OWNER, place=-1),
    Check(
        "expert peers make the same calls, and calls do not wait in a cycle",
        ("PS407", "PS408"),
        Lazy("engines.launched:check"),
        place=85,
        owner=_LAUNCHED,
    ),
    Measure("meetings", Lazy("engines.launched:met"), place=25, owner=_LAUNCHED),
    Measure("exposed", Lazy("engines.costs:exposed"), place=20, owner=_OWNER),
)
