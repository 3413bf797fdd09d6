"""The rows that add parts on engines: the option `--parts`, the costs that follow, exposed communication."""

from pipesched.extension import Codes, CostModel, Lazy, Measure, Option, Row, Statement

_OWNER = Lazy[type]("engines.parts:Parts")

ROWS: tuple[Row, ...] = (
    Codes(Lazy("engines.codes:EngineCode")),
    Option(
        "parts",
        Lazy("engines.read:parts"),
        "Parts of F, I and W on engines, the source of the costs.",
        "FILE.toml",
        on=("verify", "why", "compare", "diff", "show"),
        after="costs",
        into=Lazy("engines.read:asked"),
    ),
    Statement("Parts", Lazy("engines.read:stated")),
    CostModel(Lazy("engines.costs:costs"), owner=_OWNER),
    Measure("exposed", Lazy("engines.costs:exposed"), place=20, owner=_OWNER),
)
