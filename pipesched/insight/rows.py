"""The rows that add `why`, `compare`, `diff` and `--jitter`."""

from pipesched.common.rows import Service
from pipesched.extension import TEXTS, ClaimName, Lazy, Measure, Option, Row, Verb, flag

_JITTERED = Lazy[type]("insight.jitter:Jittered")

ROWS: tuple[Row, ...] = (
    Verb(
        "why",
        "Look",
        "Explain the idle time of a schedule.",
        Lazy("insight.why_command:why"),
        Lazy("insight.options:WHY"),
        place=2,
    ),
    Verb(
        "compare",
        "Look",
        "Compare schedules and sizes in one table.",
        Lazy("insight.compare_command:compare"),
        Lazy("insight.options:COMPARE"),
        {**TEXTS, "csv": (".csv",), "markdown": (".md",), "latex": (".tex",)},
        place=3,
    ),
    Verb(
        "diff",
        "Look",
        "Show the differences between two orders, and their cost.",
        Lazy("insight.diff_command:diff"),
        Lazy("insight.options:DIFF"),
        place=4,
    ),
    Option(
        "jitter",
        Lazy("common.values:deviation"),
        "Report the makespan with random times that have this standard deviation, such as 5%.",
        "X%",
        on=("verify", "compare"),
        after="comm",
        into=_JITTERED,
    ),
    Option(
        "rule",
        flag,
        "With --jitter: decide a `greedy` order again in each draw.",
        None,
        False,
        on=("verify", "compare"),
        after="jitter",
        into=_JITTERED,
    ),
    Measure("period", Lazy("insight.batches:part"), inside=True, place=30),
    ClaimName("period", Lazy("insight.batches:claimed"), by_rank=False),
    ClaimName("period_bubble", Lazy("insight.batches:claimed_bubble"), by_rank=False),
    Service("quantiles", Lazy("insight.jitter:quantiles")),
    Measure("jitter", Lazy("insight.jitter:jitter"), place=10, owner=_JITTERED),
)
